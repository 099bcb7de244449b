import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

Run = Callable[..., Result]


def test_json_is_one_object_and_the_page_fits_80_columns(run: Run, reference_case: Path) -> None:
    arguments = ("budget", reference_case, "--method", "eagle3", "-k", 3, "-c", "1,16", "--draws", 100)
    found = json.loads(run(*arguments, "--json").stdout)
    assert {"budgets", "ceiling", "best_budget", "risk", "why", "without_budget"} <= set(found)
    assert found["ceiling"]["budget"] == 8
    page = run(*arguments)
    assert page.exit_code == 0
    assert max(map(len, page.stdout.splitlines())) <= 80
    assert "answers change" in " ".join(page.stdout.split())


@pytest.mark.parametrize(
    "more",
    [("--budgets", "0"), ("-k", "0"), ("--set", "model.config=qwen3-8b-bf16"), ("--set", "speculation.method=none")],
)
def test_what_cannot_be_asked_is_one_line_and_exit_code_1(
    run: Run, reference_case: Path, more: tuple[str, str]
) -> None:
    result = run("budget", reference_case, *more)
    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 1


def test_experts_prints_what_a_budget_keeps(run: Run) -> None:
    arguments = ("experts", "qwen3-30b-a3b-bf16", "-t", "4,16", "--requests", 2, "--budget", "8,128")
    found = json.loads(run(*arguments, "--json").stdout)
    assert [(row["tokens"], row["budget"]) for row in found["budgets"]] == [(4, 8), (4, 128), (16, 8), (16, 128)]
    assert found["budgets"][1]["gate_mass_truncated"] == pytest.approx(1.0)
    page = run(*arguments)
    assert max(map(len, page.stdout.splitlines())) <= 80
    assert "lose best" in page.stdout


def test_experts_without_a_budget_answers_as_before(run: Run) -> None:
    found = json.loads(run("experts", "qwen3-30b-a3b-bf16", "-t", "4", "--json").stdout)
    assert set(found) == {"inputs", "curve"}


@pytest.mark.parametrize(
    "more",
    [
        ("--budget", "0"),
        ("--gate-sharpness", "0.5"),
        ("--gate-sharpness", "nan", "--budget", "8"),
        ("--budget", "8", "-t", "5000"),
    ],
)
def test_odd_budgets_of_experts_are_one_line_and_exit_code_1(run: Run, more: tuple[str, ...]) -> None:
    result = run("experts", "qwen3-30b-a3b-bf16", "-t", "4", *more)
    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 1
