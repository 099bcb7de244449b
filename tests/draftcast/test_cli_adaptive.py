import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

Run = Callable[..., Result]


def test_json_is_one_object_and_the_page_fits_80_columns(run: Run, reference_case: Path) -> None:
    arguments = ("adaptive", reference_case, "--method", "eagle3", "--draws", 100)
    found = json.loads(run(*arguments, "--json").stdout)
    assert {"controllers", "contexts", "best_static", "recommendation", "left_out", "prediction_id"} <= set(found)
    page = run(*arguments)
    assert page.exit_code == 0
    prose = page.stdout.split("To paste")[0]
    assert max(map(len, prose.splitlines())) <= 80
    for control in found["controllers"]:
        assert control["title"] in page.stdout


def test_contexts_and_loads_can_be_asked_for(run: Run, reference_case: Path) -> None:
    found = json.loads(
        run(
            "adaptive", reference_case, "-c", "2,8", "-k", "0-3", "--contexts", "500,9000", "--draws", 100, "--json"
        ).stdout
    )
    assert [row["concurrency"] for row in found["controllers"][0]["by_load"]] == [2, 8]
    assert [point["context_tokens"] for point in found["contexts"]["points"]] == [500, 9000]


@pytest.mark.parametrize("more", [("--contexts", "0"), ("-k", "0"), ("-c", "0"), ("--set", "speculation.method=none")])
def test_what_cannot_be_asked_is_one_line_and_exit_code_1(
    run: Run, reference_case: Path, more: tuple[str, str]
) -> None:
    result = run("adaptive", reference_case, *more)
    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 1


def test_what_this_engine_may_lack_is_marked_where_it_could_be_pasted(run: Run, tmp_path: Path) -> None:
    case = tmp_path / "case.toml"
    case.write_text(
        '[model]\nconfig = "llama-3.1-8b-bf16"\n[hardware]\ngpu = "h100-sxm"\n'
        '[engine]\nname = "sglang"\nversion = "0.5.9"\n[speculation]\nmethod = "eagle3"\n'
    )
    page = run("adaptive", case, "--draws", 100).stdout
    assert "SGLang adaptive: SGLang 0.5.9: --speculative-adaptive is known from 0.5.23" in page
    assert "paste into the launch: SGLang adaptive (not known of this version: see above)" in page
