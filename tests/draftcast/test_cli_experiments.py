import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

Run = Callable[..., Result]


def test_json_is_one_object_and_the_page_fits_80_columns(run: Run, reference_case: Path) -> None:
    arguments = ("experiments", reference_case, "--methods", "eagle3", "--draws", 200)
    found = json.loads(run(*arguments, "--json").stdout)
    assert {"experiments", "evpi", "choice_now", "choices", "recommendation", "horizon_days"} <= set(found)
    page = run(*arguments)
    assert page.exit_code == 0
    assert max(map(len, page.stdout.splitlines())) <= 80
    for experiment in found["experiments"]:
        assert experiment["name"] in page.stdout
        assert experiment["outage_s"] == experiment["restarts"] * found["missed_per_restart_s"]


@pytest.mark.parametrize(
    "more",
    [
        ("--set", "speculation.method=none"),
        ("--methods", "telepathy"),
        ("-c", "0"),
        ("-k", "0"),
        ("--methods", "a,b,c,d,e,f,g"),
    ],
)
def test_what_cannot_be_asked_is_one_line_and_exit_code_1(
    run: Run, reference_case: Path, more: tuple[str, str]
) -> None:
    result = run("experiments", reference_case, *more)
    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("days", ["0", "-1", "nan", "1e9"])
def test_a_horizon_that_cannot_be_is_refused(run: Run, reference_case: Path, days: str) -> None:
    assert run("experiments", reference_case, "--horizon-days", days).exit_code in (1, 2)
