"""The backtest protocol: which rows are scored, which calibrate, what is skipped and why."""

from pathlib import Path
from typing import Any

import pytest
from published_rows import row, rows

from hwmodel.errors import InputError
from validate.backtest.protocol import SkippedRow, Task, prepare, read_roles, skip_reason, with_roles

BLIND = {"mean_accepted_len": ""}  # acceptance not told


def task_of(*changes: dict[str, Any], protocol: str = "informed") -> tuple[Task | None, list[SkippedRow]]:
    """The task of one group."""
    return prepare(rows(*changes), protocol)


def scored(*changes: dict[str, Any], protocol: str = "informed") -> list[int]:
    """Positions of the scored rows."""
    task = task_of(*changes, protocol=protocol)[0]
    return list(task.scored) if task else []


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({}, None),
        ({"role": "usable"}, None),
        ({"role": "Usable"}, None),
        ({"role": "caution"}, "role caution"),
        ({"role": "ratio only"}, "role ratio only"),
        ({"skip_reason": "source asks to exclude it"}, "source asks to exclude it"),
        ({"skip_reason": "broken", "role": "caution"}, "broken"),
        ({"speedup": "-2"}, "speedup is negative: '-2'"),
        ({"speedup": "nan"}, "speedup is not a number: 'nan'"),
        ({"baseline": "1e400"}, "baseline is too large: '1e400'"),
        ({"gpu_count": "0"}, "gpu_count is zero: '0'"),
        ({"tp": "-8"}, "tp is negative: '-8'"),
        ({"context_len": "inf"}, "context_len is infinite: 'inf'"),
        ({"gpu_count": "-"}, None),
        ({"context_len": "~0"}, None),
        ({"sglang_topk": "4", "k": ""}, "tree"),
        ({"sglang_topk": "1"}, None),
        ({"method": "EAGLE-3 tree k=21", "k": "21"}, "tree"),
        ({"k": "7 (adaptive)"}, "adaptive draft length"),
        ({"method": "DSpark adaptive verification"}, "adaptive draft length"),
        ({"k": ""}, "no draft length"),
        ({"k": "0"}, "no draft length"),
        ({"concurrency": ""}, "no concurrency"),
        ({"concurrency": "QPS=1"}, "no concurrency"),
        ({"concurrency": "burst of 1000"}, "no concurrency"),
        ({"concurrency": "128 per rank"}, None),
        ({"speedup": "", "spec": ""}, "no speedup"),
        ({"speedup": ""}, None),  # from the two figures
        ({"method": "some new method"}, None),
    ],
)
def test_a_row_is_skipped_for_a_stated_reason(cells: dict[str, str], reason: str | None) -> None:
    assert skip_reason(row(**cells)) == reason


def test_rows_with_a_length_are_all_scored_and_pooled_by_draft_length() -> None:
    task, skipped = task_of({"k": "2"}, {"k": "3"}, {"k": "3", "concurrency": "16"})
    assert task is not None
    assert task.scored == (0, 1, 2)
    assert task.seen.lengths == {2: [0], 3: [1, 2]}
    assert not task.seen.calibration
    assert not skipped


def test_one_row_with_a_length_serves_the_others_of_its_draft_length() -> None:
    task, _ = task_of({}, {**BLIND, "concurrency": "16"}, {**BLIND, "concurrency": "32"})
    assert task is not None
    assert task.seen.lengths == {3: [0]}
    assert task.scored == (0, 1, 2)


def test_an_impossible_length_is_not_used() -> None:
    task, _ = task_of({"mean_accepted_len": "5.2"}, {"mean_accepted_len": "2.4", "concurrency": "16"})
    assert task is not None
    assert task.seen.lengths == {3: [1]}
    assert task.scored == (0, 1)
    assert scored({"mean_accepted_len": "4"}) == [0]  # k + 1 exactly is possible
    assert scored({"mean_accepted_len": "4.1"}) == []


@pytest.mark.parametrize(
    ("loads", "calibrating"), [((1,), 1), ((1, 2), 1), ((1, 2, 4), 2), ((1, 2, 4, 8), 2), ((64, 32, 16, 8, 4), 3)]
)
def test_the_lower_half_of_the_loads_rounded_up_calibrates(loads: tuple[int, ...], calibrating: int) -> None:
    changes = [{**BLIND, "concurrency": str(c)} for c in loads]
    _, skipped = task_of(*changes)
    assert [each.reason for each in skipped] == ["calibrates acceptance"] * calibrating
    assert sorted(each.row.concurrency or 0.0 for each in skipped) == sorted(loads)[:calibrating]


def test_only_the_shortest_context_calibrates() -> None:
    changes = [
        {**BLIND, "concurrency": c, "context_len": context}
        for context in ("16384", "0")
        for c in ("1", "8", "64", "128")
    ]
    _, skipped = task_of(*changes)
    assert [(each.row.context_tokens, each.row.concurrency) for each in skipped] == [(0.0, 1.0), (0.0, 8.0)]


def test_each_draft_length_is_calibrated_on_its_own() -> None:
    changes = [{**BLIND, "k": k, "concurrency": c} for k in ("1", "5") for c in ("1", "8")]
    task, _ = task_of(*changes)
    assert task is not None
    assert task.seen.calibration == {1: [0], 5: [2]}
    assert task.scored == (1, 3)


def test_a_draft_length_with_told_lengths_stands_beside_one_without() -> None:
    task, skipped = task_of({"k": "2"}, {**BLIND, "k": "4"})
    assert task is not None
    assert (task.seen.lengths, task.seen.calibration) == ({2: [0]}, {4: [1]})
    assert task.scored == (0,)
    assert [each.reason for each in skipped] == ["calibrates acceptance"]


def test_rows_that_repeat_a_load_calibrate_together() -> None:
    task, _ = task_of(*[{**BLIND, "concurrency": c} for c in ("1", "1", "8")])
    assert task is not None
    assert task.seen.calibration == {3: [0, 1]}
    assert task.scored == (2,)


def test_the_anchor_has_the_lowest_load_then_the_shortest_draft_then_the_shortest_context() -> None:
    changes = [
        {"concurrency": "8", "k": "2"},
        {"concurrency": "1", "k": "5", "context_len": "0"},
        {"concurrency": "1", "k": "3", "context_len": "16384"},
        {"concurrency": "1", "k": "3", "context_len": "0"},
    ]
    task, skipped = task_of(*changes, protocol="anchored")
    assert task is not None
    assert task.seen.anchors == (3,)
    assert task.scored == (0, 1, 2)
    assert [each.reason for each in skipped] == ["anchor"]


def test_an_anchor_that_calibrates_already_is_no_second_fact() -> None:
    task, skipped = task_of(*[{**BLIND, "concurrency": c} for c in ("1", "8")], protocol="anchored")
    assert task is not None
    assert task.seen.anchors == ()
    assert task.scored == (1,)
    assert len(skipped) == 1


def test_other_protocols_have_no_anchor() -> None:
    for protocol in ("informed", "cold"):
        task, _ = task_of({}, {"concurrency": "1"}, protocol=protocol)
        assert task is not None
        assert task.seen.anchors == ()
        assert task.scored == (0, 1)


def test_baselines_of_rows_that_are_not_scored_may_be_seen() -> None:
    task, _ = task_of(
        {}, {"concurrency": "64", "skip_reason": "broken"}, {"concurrency": "128", "spec": "", "speedup": ""}
    )
    assert task is not None
    assert [each.concurrency for each in task.baselines] == [8.0, 64.0, 128.0]
    assert len(task.rows) == 1


def test_a_group_with_nothing_left_has_no_task() -> None:
    assert task_of({"role": "caution"})[0] is None
    assert task_of(BLIND)[0] is None
    assert task_of({}, protocol="anchored")[0] is None


def test_every_row_is_either_scored_or_skipped_once() -> None:
    changes = [
        {"k": "", "sglang_topk": "4"},
        {"role": "caution"},
        {**BLIND, "k": "5", "concurrency": "1"},
        {**BLIND, "k": "5", "concurrency": "2"},
        {"concurrency": "1"},
        {"concurrency": "2"},
    ]
    for protocol in ("informed", "cold", "anchored"):
        group = rows(*changes)
        task, skipped = prepare(group, protocol)
        assert task is not None
        found = [task.rows[i].line for i in task.scored] + [each.row.line for each in skipped]
        assert sorted(found) == [each.line for each in group]


def _sets(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_roles_come_from_a_file_of_sets(tmp_path: Path) -> None:
    path = _sets(tmp_path / "s.csv", "set_id,role,role_reason\nA,usable,\nB, caution ,a defect\n")
    roles = read_roles(path)
    assert roles == {"A": "usable", "B": "caution"}
    group = with_roles(rows({"set_id": "A"}, {"set_id": "B"}, {"set_id": "C", "role": "ratio only"}), roles)
    assert [each.text["role"] for each in group] == ["usable", "caution", "ratio only"]
    assert [skip_reason(each) for each in group] == [None, "role caution", "role ratio only"]


def test_a_file_of_sets_overrides_the_column(tmp_path: Path) -> None:
    path = _sets(tmp_path / "s.csv", "set_id,role\nA,usable\n")
    assert skip_reason(with_roles(rows({"set_id": "A", "role": "caution"}), read_roles(path))[0]) is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("set_id\nA\n", "lacks the column role"),
        ("", "no rows"),
        ("set_id,role\nA,usable\nA,caution\n", "one role a set"),
    ],
)
def test_a_file_of_sets_that_is_none_is_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        read_roles(_sets(tmp_path / "s.csv", text))
