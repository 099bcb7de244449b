"""`draftcast train-cost` and `draftcast list drafters` from the outside."""

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from strict_json import strict

Run = Callable[..., Result]


def test_the_json_holds_the_contract(run: Run, reference_case: Path) -> None:
    result = run("train-cost", reference_case, "--draws", 200, "--json")
    assert result.exit_code == 0
    answer = strict(result.stdout)
    assert set(answer["hours"]) == {"local", "rented"}
    assert {"currency", "local", "rented", "reason"} <= set(answer["cost"])
    assert set(answer["hours"]["rented"]) == {"h200", "b200", "b300"}


def test_the_page_fits_80_columns_and_starts_with_the_verdict(run: Run, reference_case: Path) -> None:
    result = run("train-cost", reference_case, "--draws", 200)
    assert result.exit_code == 0
    assert all(len(line) <= 80 for line in result.stdout.splitlines())
    assert result.stdout.startswith(("Download first", "Do not train", "A trained head"))
    assert "here: 8 GPUs" in result.stdout


def test_prices_and_machines_are_options(run: Run, reference_case: Path) -> None:
    result = run(
        "train-cost", reference_case, "--draws", 200, "--rent", "b200:16", "--price", "b200=5", "--json"
    )  # fmt: skip
    answer = strict(result.stdout)
    assert list(answer["hours"]["rented"]) == ["b200:16"]
    assert answer["hours"]["rented"]["b200:16"]["num_gpus"] == 16
    hours = answer["hours"]["rented"]["b200:16"]["gpu_hours"]["p50"]
    assert answer["cost"]["rented"]["b200:16"]["p50"] == pytest.approx(5 * hours)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--rent", "b200:0"), "--rent: got 'b200:0'"),
        (("--rent", "b200:x"), "--rent: got 'b200:x'"),
        (("--rent", "b999"), "b999"),
        (("--price", "b200"), "--price: got 'b200'"),
        (("--price", "b200=-1"), "--price: got 'b200=-1'"),
        (("--price", "b200=nan"), "--price: got 'b200=nan'"),
        (("--price", "b200=inf"), "--price: got 'b200=inf'"),
        (("--set", "costs.mfu=0"), "costs.mfu"),
    ],
)
def test_bad_values_are_one_line(run: Run, reference_case: Path, arguments: tuple[str, ...], message: str) -> None:
    result = run("train-cost", reference_case, *arguments)
    assert result.exit_code == 1
    assert message in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_the_list_of_drafters_has_sources_and_an_expectation(run: Run) -> None:
    items = strict(run("list", "drafters", "--json").stdout)["items"]
    assert len(items) > 40
    for item in items:
        assert item["sources"]
        assert (
            0 < item["first_acceptance"]["p05"] < item["first_acceptance"]["p50"] < item["first_acceptance"]["p95"] < 1
        )
    page = run("list", "drafters").stdout
    assert all(len(line) <= 80 for line in page.splitlines())
    assert "lightseekorg/kimi-k2.5-eagle3-mla" in page
