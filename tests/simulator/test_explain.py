"""The sentences: numbers in them by hand, what is named, and what is left out."""

import re
from pathlib import Path
from typing import Any

import pytest

from hwmodel.step import STEP_PARTS
from simulator import explain
from simulator.closed_form import Cell
from simulator.deployment import load_deployment
from simulator.study import Study, build_study

REFERENCE = Path(__file__).parent.parent.parent / "examples" / "kimi-k2.5-8x-rtx-pro-6000.toml"
DENSE: dict[str, Any] = {
    "model": {"config": "qwen3-8b-bf16"},
    "hardware": {"gpu": "h100-sxm"},
    "engine": {"version": "0.16.0"},
    "speculation": {"method": "eagle3", "acceptance": {"conditional": [0.7]}},
}
MOE: dict[str, Any] = {
    **DENSE,
    "model": {"config": "qwen3-30b-a3b-bf16"},
    "hardware": {"gpu": "rtx-pro-6000-blackwell-server", "interconnect": "pcie-switch"},
    "engine": {"version": "0.16.0", "tensor_parallel_size": 4},
}


def study(tables: dict[str, Any] | Path, *overrides: str, k_max: int = 8) -> Study:
    """A small study."""
    return build_study(load_deployment(tables, overrides), k_max=k_max, num_draws=20)


def sentences(of: Study, k: int, concurrency: int = 1) -> list[str]:
    """What is said of one cell."""
    cell = Cell(k, concurrency)
    return explain.explain_cell(of, cell, of.grid([cell], point=True), 0)


def parts(**milliseconds: float) -> dict[str, float]:
    """A step of these parts."""
    return {name: milliseconds.get(name, 0.0) * 1e-3 for name in STEP_PARTS}


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.1234, "123 ms"), (0.01361, "13.6 ms"), (0.001234, "1.23 ms"), (0.0, "0.00 ms")]
)
def test_times_have_three_figures(seconds: float, text: str) -> None:
    assert explain.milliseconds(seconds) == text


def test_baseline_sentence_names_the_four_largest_parts_with_their_shares() -> None:
    base = parts(attention=2.0, experts=1.0, allreduce=7.0, overhead=3.0, lm_head=0.5)
    text = explain.baseline_sentence(study(DENSE), Cell(0, 4), base)
    assert text == (
        "Without speculation a step at concurrency 4 takes 13.5 ms: AllReduce 7.00 ms (52 %),"
        " kernel floors and host 3.00 ms (22 %), attention weights 2.00 ms (15 %), routed experts 1.00 ms (7 %)."
    )


def test_difference_sentence_names_what_is_added_largest_first_and_leaves_out_trifles() -> None:
    base = parts(attention=5.0, allreduce=5.0, lm_head=1.0)
    spec = parts(attention=5.0, allreduce=5.5, lm_head=1.001, drafter=2.0, speculation_overhead=0.01)
    text = explain.difference_sentence(study(DENSE), Cell(3, 1), base, spec)
    assert text == (
        "The step with k=3 takes 13.5 ms (1.23x the baseline's): drafter +2.00 ms, AllReduce +0.50 ms,"
        " software cost of speculation +0.01 ms."
    )


def test_difference_sentence_of_a_lookup_method_speaks_of_the_mean_step() -> None:
    of = study({**DENSE, "speculation": {"method": "ngram"}})
    text = explain.difference_sentence(of, Cell(3, 1), parts(attention=1.0), parts(attention=1.0, drafter=1.0))
    assert text.startswith("The mean step with k=3 takes 2.00 ms (2.00x")


def test_difference_sentence_without_a_difference_says_so() -> None:
    same = parts(attention=5.0)
    assert explain.difference_sentence(study(DENSE), Cell(3, 1), same, same).endswith("nothing of note is added.")


def test_baseline_alone_is_one_sentence() -> None:
    assert len(sentences(study(MOE), 0)) == 1


def test_a_dense_model_has_no_sentence_about_experts() -> None:
    of = study(DENSE)
    assert explain.distinct_experts(of, Cell(3, 1)) is None
    assert not any("experts" in line.split(":")[0] for line in sentences(of, 3)[2:])


def test_distinct_experts_of_one_request_lie_between_one_token_s_and_independent_tokens() -> None:
    counts = explain.distinct_experts(study(MOE), Cell(3, 1))
    assert counts is not None
    assert (counts["tokens"], counts["num_experts"]) == (4, 128)
    assert counts["baseline"] == pytest.approx(8.0)
    # Uniform and independent: 128 (1 - (1 - 8 / 128)^4).
    assert counts["uniform"] == pytest.approx(128 * (1 - (120 / 128) ** 4))
    assert 8.0 < counts["speculative"] < counts["uniform"]


def test_distinct_experts_count_the_tokens_of_all_replicas() -> None:
    engine = {"version": "0.16.0", "data_parallel_size": 4, "expert_parallel": True}
    counts = explain.distinct_experts(study({**MOE, "engine": engine}), Cell(1, 16))
    assert counts is not None
    assert counts["tokens"] == 32


def test_distinct_experts_name_the_routing_model_in_use() -> None:
    parameters = {"popularity_sigma": 0.5, "stickiness": 0.3, "routing_memory": 9.0}
    counts = explain.distinct_experts(study({**MOE, "parameters": parameters}), Cell(3, 1))
    assert counts is not None
    assert counts["routing_model"] == "popularity sigma 0.50, stickiness 0.30, memory 9.0 within a request"


def test_tokens_sentence_states_break_even_as_the_ratio_of_the_steps() -> None:
    of = study(DENSE)
    grid = of.grid([Cell(2, 1)], point=True)
    text = explain.tokens_sentence(of, Cell(2, 1), grid, 0, parts(attention=10.0), parts(attention=10.0, drafter=2.5))
    # 1 + 0.7 + 0.49 tokens; 12.5 / 10.
    assert text.startswith("A request emits 2.19 tokens per step and breaks even at 1.25. Acceptance: ")


def test_software_cost_is_weighed_against_the_speedup_without_it() -> None:
    grid = study(DENSE).grid([Cell(2, 1)], point=True)
    now = float(grid.speedup[0, 0])
    text = explain.hardware_only_sentence(grid, 0, parts(attention=8.0, speculation_overhead=1.5, verify_path=0.5))
    assert text is not None
    assert text.startswith("Software cost and verify path take 20 % of the step")
    assert f"about {now * 10 / 8:.2f} instead of {now:.2f}" in text


def test_little_software_cost_is_not_worth_a_sentence() -> None:
    grid = study(DENSE).grid([Cell(2, 1)], point=True)
    assert explain.hardware_only_sentence(grid, 0, parts(attention=10.0, speculation_overhead=0.1)) is None


def test_drafted_and_undrafted_steps_are_told_apart_for_lookup_at_one_request_only() -> None:
    of = study({**DENSE, "speculation": {"method": "ngram"}})
    assert any("of the steps carry a draft" in line for line in sentences(of, 3, 1))
    assert not any("of the steps carry a draft" in line for line in sentences(of, 3, 8))
    assert not any("of the steps carry a draft" in line for line in sentences(study(DENSE), 3, 1))


def test_the_mean_step_lies_between_the_two_steps_that_are_named() -> None:
    of = study(REFERENCE)
    text = next(line for line in sentences(of, 5) if "carry a draft" in line)
    found = re.match(r"About (\d+) % .* takes ([\d.]+) ms .* one without ([\d.]+) ms", text)
    assert found is not None, text
    share, drafted, undrafted = (float(x) for x in found.groups())
    step_ms = float(of.grid([Cell(5, 1)], point=True).speculative.step_s[0, 0]) * 1e3
    assert share / 100 * drafted + (1 - share / 100) * undrafted == pytest.approx(step_ms, rel=0.01)
    assert drafted > undrafted


def test_a_gain_that_ends_does_so_between_loads_that_gain_and_lose() -> None:
    of = study(REFERENCE, "speculation.method=eagle3", "speculation.acceptance.conditional=[0.64]")
    end, limit, name = explain.gain_end(of, 3)
    assert end is not None
    assert 1.0 < end < limit
    assert name == "kv_cache"
    before, after = (of.grid([Cell(3, c)], point=True).speedup[0, 0] for c in (max(int(end / 2), 1), int(end * 2) + 1))
    assert after < 1.0 < before
    assert explain.gain_end_sentence(of, 3).startswith(f"With k=3 the gain ends near concurrency {end:.0f} (median)")


def test_a_gain_that_does_not_end_before_the_limit_is_said_with_the_limit() -> None:
    of = study(DENSE, "engine.max_num_seqs=8")
    assert explain.gain_end(of, 3) == (None, 8, "max_num_seqs")
    assert explain.gain_end_sentence(of, 3) == (
        "With k=3 the gain does not end before the limit: 8 requests, which max_num_seqs allows (median)."
    )


def test_a_draft_that_is_never_accepted_gains_at_no_load() -> None:
    of = study({**DENSE, "speculation": {"method": "eagle3", "acceptance": {"conditional": [0.0]}}})
    assert explain.gain_end(of, 3)[0] == 0.0
    assert "there is no gain at any load" in explain.gain_end_sentence(of, 3)


def test_what_does_not_fit_is_not_said_to_fit() -> None:
    of = study({**DENSE, "model": {"config": "kimi-k2.5-int4"}})
    assert explain.gain_end(of, 3)[2] == "does_not_fit"
    assert "which fit" not in explain.gain_end_sentence(of, 3)


def settling(of: Study, k: int = 5) -> str:
    """What would settle it, in one text."""
    return " ".join(explain.settling_observations(of, k))


def test_the_reference_case_is_settled_by_drafts_per_step_a_synchronous_baseline_and_two_contexts() -> None:
    text = settling(study(REFERENCE))
    assert "spec_decode_num_drafts / decode steps" in text
    assert "--no-async-scheduling" in text
    assert "drafted steps at two contexts" in text


def test_a_drafter_that_keeps_async_scheduling_is_not_settled_by_turning_it_off() -> None:
    assert "--no-async-scheduling" not in settling(study(DENSE))
    assert "spec_decode_num_drafts" not in settling(study(DENSE))


def test_a_prior_acceptance_is_settled_by_one_restart_and_a_stated_one_is_not() -> None:
    without = {**DENSE, "speculation": {"method": "eagle3"}}
    assert "one restart with eagle3" in settling(study(without))
    assert "one restart with eagle3" not in settling(study(DENSE))


def test_an_unmeasured_link_asks_for_nccl_tests() -> None:
    assert "nccl-tests" in settling(study(MOE))
    assert "nccl-tests" not in settling(study({**MOE, "measured": [{"concurrency": 1, "tpot_ms": 7.0}]}))
    assert "nccl-tests" not in settling(study(DENSE))


def test_nothing_needs_settling_where_nothing_is_drafted() -> None:
    assert settling(study(REFERENCE), 0) == ""


def test_facts_within_reach_give_no_note() -> None:
    assert explain.conflict_notes(study(MOE)) == []
