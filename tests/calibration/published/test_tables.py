"""The published measurements that ship with the project: complete, sourced, and what their roles say."""

import tomllib
from collections import Counter
from pathlib import Path

import pytest

import calibration
from calibration.published.tables import shipped_rows

FILES = sorted((Path(calibration.__file__).parent / "data" / "published").glob("*.toml"))
ROLES = {"usable", "caution", "ratio only"}


def test_every_shipped_row_has_a_speedup_and_a_set_with_a_role() -> None:
    found = shipped_rows()
    assert all(each.speedup for each in found)
    assert {each.text["role"] for each in found} <= ROLES
    assert Counter(each.text["role"] for each in found)["usable"] > 900
    assert len({each.text["set_id"] for each in found if each.text["role"] == "usable"}) == 59


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_set_names_its_source_and_its_role(path: Path) -> None:
    for table in tomllib.loads(path.read_text(encoding="utf-8"))["set"]:
        assert table["set_id"]
        assert table["source"]
        assert table["role"] in ROLES
        assert all(len(each) == len(table["columns"]) for each in table["rows"])
        assert not {"notes", "spec_step_ms", "implied_step_ratio"} & {*table, *table["columns"]}


def test_stated_speedups_agree_with_the_two_figures_they_came_from() -> None:
    off = [
        each.line
        for each in shipped_rows()
        if each.speedup and each.text["baseline"] and each.text["spec"] and "tok/s" in each.text["metric"]
        if abs(float(each.text["spec"]) / float(each.text["baseline"]) / each.speedup - 1.0) > 0.05
    ]
    assert not off
