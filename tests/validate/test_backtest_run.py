"""The whole backtest: nothing leaks that the protocol forbids, whatever the cells hold something sensible comes out."""

import json
import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from published_rows import records, sweep

from calibration.published.rows import rows_of
from calibration.published.tables import shipped_rows
from hwmodel.errors import InputError
from validate.backtest.left_out import family, leave_families_out
from validate.backtest.protocol import PROTOCOLS
from validate.backtest.run import Options, backtest

Record = dict[str, Any]
LOADS = (1, 4, 16, 64)
FORBIDDEN = ("spec_step_ms", "implied_step_ratio", "notes")


def table() -> list[Record]:
    """Groups of every kind: acceptance told and fitted, chains of several lengths, lookup, MoE on several GPUs."""
    told = [
        change for k in ("1", "3") for change in sweep(LOADS, k=k, mean_accepted_len=str(1.0 + 0.6 * int(k) ** 0.6))
    ]
    fitted = sweep(LOADS, set_id="FITTED", mean_accepted_len="")
    lookup = sweep(LOADS, set_id="LOOKUP", method="ngram", mean_accepted_len="")
    boxes = sweep(
        LOADS, set_id="BOX", model="Qwen3-235B-A22B", quantization="FP8", gpu="RTX PRO 6000", gpu_count="4", tp="4",
        interconnect="PCIe 5", method="EAGLE-3", k="3",
    )  # fmt: skip
    return records(*told, *fitted, *lookup, *boxes)


def run(found: Sequence[Record], protocol: str = "informed", **options: Any) -> dict[str, Any]:
    """The result with its rows, through JSON."""
    result = backtest(rows_of(found, "a test"), protocol, options=Options(**options))
    parsed = json.loads(json.dumps(result.to_dict(with_rows=True), allow_nan=False))
    assert isinstance(parsed, dict)
    return parsed


def predictions(result: dict[str, Any]) -> dict[int, Any]:
    """All that was said of each row before its observation was looked at."""
    return {each["line"]: {name: each[name] for name in each if name != "speedup_observed"} for each in result["rows"]}


def changed(found: Sequence[Record], change: Callable[[int, Record], Record]) -> list[Record]:
    """The records with some cells changed, by line."""
    return [{**record, **change(line, record)} for line, record in enumerate(found, start=2)]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_no_prediction_depends_on_what_was_observed_of_a_scored_row(protocol: str) -> None:
    before = run(table(), protocol)
    scored = {each["line"] for each in before["rows"]}
    assert scored
    rng = random.Random(1)
    other = changed(
        table(),
        lambda line, _: (
            {"speedup": str(rng.uniform(0.2, 5.0)), "spec": str(rng.uniform(1, 1e4))} if line in scored else {}
        ),
    )
    after = run(other, protocol)
    assert predictions(after) == predictions(before)
    assert [each["speedup_observed"] for each in after["rows"]] != [each["speedup_observed"] for each in before["rows"]]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_no_prediction_depends_on_the_forbidden_columns(protocol: str) -> None:
    rng = random.Random(2)
    other = changed(table(), lambda _line, _record: {name: str(rng.uniform(0.1, 100.0)) for name in FORBIDDEN})
    assert run(other, protocol)["rows"] == run(table(), protocol)["rows"]


def test_in_the_cold_protocol_no_baseline_matters() -> None:
    rng = random.Random(3)
    other = changed(
        table(), lambda _line, _record: {"baseline": str(rng.uniform(1, 1e5)), "spec": "", "baseline_step_ms": "9"}
    )
    assert run(other, "cold")["rows"] == run(table(), "cold")["rows"]


@pytest.mark.parametrize("protocol", ["informed", "anchored"])
def test_in_the_other_protocols_baselines_do_matter(protocol: str) -> None:
    other = changed(table(), lambda _line, record: {"baseline": str(1.3 * float(record["baseline"])), "spec": ""})
    before, after = predictions(run(table(), protocol)), predictions(run(other, protocol))
    assert before.keys() == after.keys()
    assert all(before[line] != after[line] for line in before)


def test_accepted_lengths_matter_where_they_are_told() -> None:
    other = changed(table(), lambda _, record: {"mean_accepted_len": "1.2"} if record["mean_accepted_len"] else {})
    before, after = predictions(run(table())), predictions(run(other))
    assert {line for line in before if before[line] != after[line]} == {
        line for line in before if before[line]["set_id"] in ("SET", "BOX")
    }


def test_what_calibrates_and_what_anchors_does_matter() -> None:
    lower = changed(table(), lambda _, record: {"speedup": "1.1"} if record["concurrency"] == "1" else {})
    for protocol, sets in (("informed", {"FITTED", "LOOKUP"}), ("anchored", {"FITTED", "LOOKUP", "SET", "BOX"})):
        before, after = predictions(run(table(), protocol)), predictions(run(lower, protocol))
        assert {before[line]["set_id"] for line in before if before[line] != after[line]} == sets


def test_groups_do_not_see_each_other() -> None:
    together = predictions(run(table()))
    for name in ("SET", "FITTED", "LOOKUP", "BOX"):
        alone = run([record for record in table() if record["set_id"] == name])
        expected = [each["speedup"] for each in together.values() if each["set_id"] == name]
        assert [each["speedup"] for each in alone["rows"]] == expected


def test_the_order_of_the_rows_moves_no_prediction() -> None:
    forward = {
        (each["set_id"], each["num_speculative_tokens"], each["concurrency"]): each for each in run(table())["rows"]
    }
    for each in run(table()[::-1])["rows"]:
        other = forward[each["set_id"], each["num_speculative_tokens"], each["concurrency"]]
        assert each["speedup"]["p50"] == pytest.approx(other["speedup"]["p50"], rel=1e-9)


def test_a_row_twice_is_scored_twice_alike() -> None:
    found = run(records(*sweep(LOADS), *sweep(LOADS)))["rows"]
    assert len(found) == 2 * len(LOADS)
    half = len(LOADS)
    assert [each["speedup"]["p50"] for each in found[:half]] == pytest.approx(
        [each["speedup"]["p50"] for each in found[half:]]
    )


def test_results_hold_what_the_contract_names() -> None:
    result = run(table())
    figures = {
        "rows",
        "median_abs_error",
        "p90_abs_error",
        "sign_accuracy",
        "best_k_regret",
        "coverage_90",
        "half_width_90",
    }
    assert {each["set_id"] for each in result["sets"]} == {"SET", "FITTED", "LOOKUP", "BOX"}
    assert all(set(each) >= {"set_id", *figures} for each in result["sets"])
    assert set(result["overall"]) >= {*figures, "by_set", "known_hardware"}
    assert set(result["overall"]["by_set"]) >= figures
    assert sum(each["rows"] for each in result["sets"]) == result["overall"]["rows"] == len(result["rows"])
    assert all(set(each) == {"set_id", "rows", "reason"} for each in result["skipped"])
    assert result["overall"]["rows"] + sum(each["rows"] for each in result["skipped"]) == len(table())


def test_a_set_without_a_scored_row_stands_among_the_skipped_only() -> None:
    result = run(
        records({"set_id": "A"}, {"set_id": "B", "role": "caution"}, {"set_id": "B", "role": "caution", "k": "2"})
    )
    assert [each["set_id"] for each in result["sets"]] == ["A"]
    assert result["skipped"] == [{"set_id": "B", "rows": 2, "reason": "role caution"}]


def test_trees_are_listed_apart() -> None:
    result = run(records({}, {"sglang_topk": "4", "k": ""}, {"k": ""}))
    assert sorted(each["reason"] for each in result["skipped"]) == ["no draft length", "tree"]
    assert [each["rows"] for each in result["skipped"]] == [1, 1]


def test_known_hardware_leaves_out_rows_whose_source_names_no_gpu() -> None:
    result = run(records({}, {"gpu": "Radeon 8060S", "set_id": "B"}, {"gpu": "", "set_id": "C"}))
    assert result["overall"]["rows"] == 3
    assert result["overall"]["known_hardware"]["rows"] == 2


def test_the_references_are_scored_on_the_same_rows() -> None:
    informed, cold = run(table()), run(table(), "cold")
    for result in (informed, cold):
        assert result["references"]["free_verification"]["rows"] == result["overall"]["rows"]
    assert informed["references"]["interpolated_baseline"]["rows"] == informed["overall"]["rows"]
    assert cold["references"]["interpolated_baseline"]["rows"] == 0  # no baseline to interpolate
    assert informed["references"]["free_verification"]["coverage_90_reason"]


def test_without_intervals_there_is_no_coverage() -> None:
    found = run(table(), intervals=False)["overall"]
    assert found["coverage_90"] is None
    assert found["median_abs_error"] is not None


def test_an_unknown_protocol_is_refused() -> None:
    with pytest.raises(InputError, match="allowed: informed, cold, anchored"):
        backtest(rows_of(table(), "a test"), "warm")


def test_progress_is_told_row_by_row() -> None:
    told: list[tuple[int, int]] = []
    found = rows_of(table(), "a test")
    backtest(found, "cold", lambda done, total: told.append((done, total)))
    assert [total for _, total in told] == [len(found)] * 4
    assert [done for done, _ in told] == sorted(done for done, _ in told)


POOLS = {
    "engine": ["vLLM", "SGLang", "TensorRT-LLM", "llama.cpp", "", "Engine 9"],
    "engine_version": ["", "0.33.0", "v0.11.2", "nightly", "b5000"],
    "date": ["", "2025-03", "2026-08-14", "yesterday"],
    "model": ["Qwen3-8B", "Foo-13B", "Bar-400B-A20B", "???", "", "DeepSeek-V3", "Kimi-K2", "gpt-oss-20b"],
    "arch": ["", "MoE", "dense"],
    "quantization": ["", "FP8", "NVFP4", "AWQ", "GGUF Q4_K_M", "1.58 bit"],
    "gpu": ["H100", "", "B200", "TPU v6e", "MI300X", "RTX 4090"],
    "gpu_count": ["", "1", "8", "3", "16", "128"],
    "tp": ["", "1", "2", "8", "5"],
    "dp": ["", "1", "8", "0"],
    "ep": ["", "on", "8"],
    "dcp": ["", "2", "8"],
    "interconnect": ["", "NVLink", "CPU offload"],
    "method": ["MTP", "EAGLE", "P-EAGLE", "ngram", "suffix", "medusa", "draft model", "DFlash", "new thing", ""],
    "k": ["1", "3", "16", "~4", "250", "0", ""],
    "concurrency": ["1", "0.3", "8", "128 per rank", "999999", "~1K", "QPS=1"],
    "context_len": ["", "0", "128K", "1e12"],
    "output_len": ["", "1", "<=8192"],
    "metric": ["output tok/s", "TPOT ms", "tok/s/user", "req/s", ""],
    "baseline": ["", "0", "1e-9", "100", "12345.6", "1e14"],
    "spec": ["", "0", "150"],
    "speedup": ["", "1.3", "0.0011", "999", "-2", "150%"],
    "mean_accepted_len": ["", "1", "2.4", "17", "0.2"],
    "per_position_rates": ["", "0.8/0.5/0.3", "1/1/1", "0/0"],
}
record = st.fixed_dictionaries({}, optional={name: st.sampled_from(pool) for name, pool in POOLS.items()})


@given(st.lists(record, min_size=1, max_size=4), st.sampled_from(PROTOCOLS))
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
def test_whatever_the_cells_hold_predictions_are_finite_and_positive(changes: list[Record], protocol: str) -> None:
    result = run(records({}, {"concurrency": "32"}, *changes), protocol)
    assert result["overall"]["rows"] + sum(each["rows"] for each in result["skipped"]) == len(changes) + 2
    for each in result["rows"]:
        speedup = each["speedup"]
        assert 0.0 < speedup["p05"] <= speedup["p50"] <= speedup["p95"] < math.inf
        assert 0.0 < each["step_ratio"] < math.inf
        assert 1.0 <= each["tokens_per_step"] <= each["num_speculative_tokens"] + 1.0 + 1e-9


@given(st.lists(st.dictionaries(st.sampled_from(sorted(POOLS)), st.text(max_size=12)), min_size=1, max_size=3))
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
def test_any_text_in_any_cell_is_scored_or_skipped(changes: list[Record]) -> None:
    result = run(records(*changes))
    assert result["overall"]["rows"] + sum(each["rows"] for each in result["skipped"]) == len(changes)


def test_the_families_of_sets_are_sources_and_on_the_rtx_pages_models() -> None:
    names = {each.text["set_id"]: family(each) for each in shipped_rows()}
    assert names["RTX-K26-v4-dcp1"] == names["RTX-K26-v2-dcp8"] == "RTX-K26"
    assert names["RTX-GLM51-v2-dcp1"] != names["RTX-K26-v2-dcp1"]
    assert names["SPECBUNDLE-Kimi-K2-Instruct"] == names["SPECBUNDLE-Llama-3.1-8B-Instruct"] == "SPECBUNDLE"


def test_leaving_a_family_out_scores_every_row_once_and_moves_little() -> None:
    sets = ("TRT-DSR1-k", "VLLM-ISSUE20780")
    found = leave_families_out([each for each in shipped_rows() if each.text["set_id"] in sets])
    assert set(found.by_family) == {"TRT", "VLLM"}
    assert sum(each.rows for each in found.by_family.values()) == found.overall.rows == found.in_sample.rows == 17
    assert found.overall.coverage_90 is None
    assert (found.overall.median_abs_error or 1.0) < 0.2
    assert max(abs(value) for value in found.shifts.values()) < 3.0
