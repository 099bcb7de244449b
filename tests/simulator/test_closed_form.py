"""Closed-loop serving: the identities of a closed loop by hand, limits, and what must hold for any load."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwmodel.step import STEP_PARTS, StepCost
from simulator.closed_form import (
    ArmResult,
    Cell,
    Grid,
    Load,
    PrefillCost,
    arm,
    baseline_step,
    capacity,
    prefill_cost,
)
from simulator.deployment import load_deployment
from simulator.study import Study, build_study
from simulator.system import System, build_system

TINY: dict[str, Any] = {
    "model": {"config": "llama-3.2-1b-bf16"},
    "hardware": {"gpu": "h100-sxm"},
    "engine": {"version": "0.16.0"},
    "speculation": {"method": "eagle3", "acceptance": {"conditional": [0.7]}},
    "workload": {"input_tokens": 1000, "output_tokens": 101},
}
MOE: dict[str, Any] = {
    "model": {"config": "qwen3-30b-a3b-bf16"},
    "hardware": {"gpu": "rtx-pro-6000-blackwell-server", "interconnect": "pcie-switch"},
    "engine": {"version": "0.16.0", "tensor_parallel_size": 4},
    "speculation": {"method": "eagle3", "acceptance": {"conditional": [0.6]}},
}
ONE = Load(np.array([1.0]), np.array([1.0]), ("concurrency",))


def tables(base: dict[str, Any], **changes: dict[str, Any]) -> dict[str, Any]:
    """The base with keys of its tables laid over."""
    return {**base, **{name: {**base.get(name, {}), **table} for name, table in changes.items()}}


def study(deployment: dict[str, Any], *, k_max: int = 5, num_draws: int = 20) -> Study:
    """A small study of a deployment."""
    return build_study(load_deployment(deployment), k_max=k_max, num_draws=num_draws)


def point(deployment: dict[str, Any], k: int, concurrency: int) -> Grid:
    """One cell at the medians."""
    return study(deployment).grid([Cell(k, concurrency)], point=True)


def tiny_system() -> System:
    """One dense model on one GPU: 1000 tokens in, 101 out."""
    return build_system(load_deployment(TINY))


def step_of(seconds: float, columns: int = 1) -> StepCost:
    """A step of this length, all of it dense work."""
    parts = {name: np.zeros((1, columns)) for name in STEP_PARTS}
    return StepCost({**parts, "shared_dense": np.full((1, columns), seconds)})


def result(
    *, step_s: float = 0.010, added_s: float = 0.050, steps: float = 1.0, tokens: float = 1.0, load: Load = ONE
) -> ArmResult:
    """An arm from a stated step and prompt."""
    columns = len(load.running)
    prompt = PrefillCost(np.full((1, columns), added_s), steps)
    return arm(tiny_system(), step_of(step_s, columns), prompt, tokens, load)


def running(count: int, offered: int | None = None) -> Load:
    """So many running requests of so many offered."""
    return Load(np.array([float(offered or count)]), np.array([float(count)]), ("concurrency",))


def test_one_user_waits_for_the_prompt_and_then_for_each_step() -> None:
    # Prompt 50 + 10 ms; 100 more tokens at 2 a step: 50 steps of 10 ms. 101 tokens in 0.56 s.
    one = result(tokens=2.0)
    assert one.ttft_s[0, 0] == pytest.approx(0.060)
    assert one.tpot_s[0, 0] == pytest.approx(0.5 / 100)
    assert one.throughput_tokens_per_s[0, 0] == pytest.approx(101 / 0.56)


def test_prompt_in_three_chunks_takes_three_steps() -> None:
    # 50 ms on top of 3 steps of 10 ms, then 100 steps.
    one = result(steps=3.0)
    assert one.ttft_s[0, 0] == pytest.approx(0.080)
    assert one.throughput_tokens_per_s[0, 0] == pytest.approx(101 / 1.080)


def test_prompts_of_the_others_run_beside_a_users_decode() -> None:
    # 8 users: own prompt 60 ms, 100 steps of 10 ms, 7 prompts of the others at 50 ms each.
    eight = result(load=running(8))
    assert eight.throughput_tokens_per_s[0, 0] == pytest.approx(8 * 101 / (0.06 + 1.0 + 0.35))
    assert eight.tpot_s[0, 0] == pytest.approx(1.35 / 100)


@pytest.mark.parametrize("users", [1, 8, 64])
@pytest.mark.parametrize("added_s", [0.0, 0.02, 0.2])
def test_throughput_is_that_of_decode_and_of_prefill_in_series(users: int, added_s: float) -> None:
    # X = 1 / (1 / x0 + P / (L mu)), x0 = B / t without prompts, mu = P / added prompt tokens a second.
    alone, prompt_tokens, output_tokens = users / 0.010, 1000, 101
    expected = 1 / (1 / alone + (prompt_tokens / (prompt_tokens / added_s) if added_s else 0.0) / output_tokens)
    found = result(added_s=added_s, load=running(users)).throughput_tokens_per_s[0, 0]
    assert found == pytest.approx(expected, rel=1e-12)


def test_users_beyond_the_limit_wait_for_whole_cycles_before_their_prompt() -> None:
    # 8 run of 24: a request waits for 2 cycles of 1.41 s, then 60 ms.
    waiting = result(load=running(8, offered=24))
    assert waiting.ttft_s[0, 0] == pytest.approx(2 * 1.41 + 0.060)
    assert waiting.throughput_tokens_per_s[0, 0] == pytest.approx(result(load=running(8)).throughput_tokens_per_s[0, 0])


@pytest.mark.parametrize(("users", "offered"), [(1, 1), (8, 8), (8, 24)])
def test_little_s_law_holds(users: int, offered: int) -> None:
    """Users = requests a second x seconds a request, waiting counted."""
    found = result(tokens=1.7, load=running(users, offered))
    request_s = found.ttft_s[0, 0] + 100 * found.tpot_s[0, 0]
    assert found.throughput_tokens_per_s[0, 0] / 101 * request_s == pytest.approx(offered)


def test_replicas_share_the_prompts() -> None:
    # 16 users on 2 replicas: 8 each, so 7 prompts beside, and twice the throughput of 8 users.
    two = build_system(load_deployment(tables(TINY, engine={"data_parallel_size": 2})))
    both = arm(two, step_of(0.010), PrefillCost(np.array([[0.05]]), 1.0), 1.0, running(16))
    assert both.throughput_tokens_per_s[0, 0] == pytest.approx(
        2 * result(load=running(8)).throughput_tokens_per_s[0, 0]
    )


def test_one_token_of_output_has_no_decode_and_stays_finite() -> None:
    found = point(tables(TINY, workload={"output_tokens": 1}), 3, 4)
    for figures in (found.baseline, found.speculative):
        assert np.isfinite(figures.tpot_s).all()
        assert np.isfinite(figures.throughput_tokens_per_s).all()
    assert found.speculative.throughput_tokens_per_s[0, 0] == pytest.approx(
        4 / (found.speculative.ttft_s[0, 0] + 3 * (found.baseline.ttft_s[0, 0] - found.baseline.step_s[0, 0])), rel=1e-9
    )


def test_the_whole_model_obeys_the_single_user_identity() -> None:
    found = point(TINY, 3, 1)
    for figures in (found.baseline, found.speculative):
        assert figures.throughput_tokens_per_s[0, 0] == pytest.approx(
            101 / (figures.ttft_s[0, 0] + 100 * figures.tpot_s[0, 0])
        )
        assert figures.tpot_s[0, 0] == pytest.approx(figures.step_s[0, 0] / figures.tokens_per_step[0, 0])


def test_a_step_is_the_sum_of_its_parts() -> None:
    found = point(MOE, 3, 16)
    for figures in (found.baseline, found.speculative):
        assert set(figures.parts_s) == set(STEP_PARTS)
        assert sum(figures.parts_s.values()) == pytest.approx(figures.step_s)


def test_tokens_per_step_are_the_bonus_token_and_the_survivals() -> None:
    # Held at 0.7: 1 + 0.7 + 0.49 + 0.343.
    assert point(TINY, 3, 1).speculative.tokens_per_step[0, 0] == pytest.approx(2.533)
    assert point(TINY, 3, 1).baseline.tokens_per_step[0, 0] == 1.0


def test_drafts_on_some_steps_only_count_by_their_share() -> None:
    sometimes = {"method": "ngram", "acceptance": {"conditional": [0.5, 0.5], "draft_probability": 0.2}}
    found = point({**TINY, "speculation": sometimes}, 2, 1)
    assert found.speculative.tokens_per_step[0, 0] == pytest.approx(1 + 0.2 * (0.5 + 0.25))


def test_a_step_of_one_user_is_the_mixture_of_drafted_and_undrafted_steps() -> None:
    def step_s(share: float) -> float:
        lookup = {"method": "ngram", "acceptance": {"conditional": [0.5] * 4, "draft_probability": share}}
        return float(point({**MOE, "speculation": lookup}, 4, 1).speculative.step_s[0, 0])

    never, always = step_s(0.0), step_s(1.0)
    assert always != never
    assert step_s(0.25) == pytest.approx(0.75 * never + 0.25 * always)


def test_a_row_that_drafts_alone_replays_the_full_graph_that_a_mixed_batch_loses() -> None:
    # Full graphs hold rows of k + 1 tokens: with a draft on every step the n-gram engine is as uniform as any other.
    def overhead_s(share: float, users: int) -> float:
        lookup = {"method": "ngram", "acceptance": {"conditional": [0.5] * 4, "draft_probability": share}}
        return float(point({**MOE, "speculation": lookup}, 4, users).speculative.parts_s["speculation_overhead"][0, 0])

    assert overhead_s(1.0, 1) == pytest.approx(overhead_s(1.0, 8))
    assert overhead_s(0.5, 8) > overhead_s(1.0, 8)
    halves = 0.5 * (overhead_s(0.0, 1) + overhead_s(1.0, 1))
    assert overhead_s(0.5, 1) == pytest.approx(halves)


def test_suffix_drafts_are_as_long_as_the_match_and_never_uniform() -> None:
    lookup = {"method": "suffix", "acceptance": {"conditional": [0.5], "draft_probability": 1.0}}
    suffix = point({**MOE, "speculation": lookup}, 4, 1).speculative.parts_s["speculation_overhead"][0, 0]
    ngram = point({**MOE, "speculation": {**lookup, "method": "ngram"}}, 4, 1).speculative
    assert suffix > ngram.parts_s["speculation_overhead"][0, 0]


def test_a_prompt_is_charged_with_what_every_engine_step_costs() -> None:
    # Sampling and the work a sequence are part of a step with prompt rows too: with a prompt of one token the mixed
    # step is longer than the decode step by what the graph loses, not shorter by what was forgotten.
    one_token = tables(TINY, workload={"input_tokens": 1})
    system = build_system(load_deployment(one_token))
    study = build_study(load_deployment(one_token), k_max=1, num_draws=10)
    loads = np.array([64.0])
    step = baseline_step(system, study.point_parameters, loads, system.context_tokens).total_s
    added = prefill_cost(system, study.point_parameters, loads, step).added_s[0, 0]
    layers = system.work.num_attention_calls
    assert added == pytest.approx(layers * float(study.point_parameters.piecewise_layer_s[0, 0]), rel=0.2)


def test_speculation_that_never_drafts_still_pays_its_software_cost() -> None:
    lookup = {"method": "ngram", "acceptance": {"conditional": [0.5], "draft_probability": 0.0}}
    found = point({**MOE, "speculation": lookup}, 4, 1)
    extra_s = found.speculative.step_s[0, 0] - found.baseline.step_s[0, 0]
    assert found.speculative.parts_s["verify_path"][0, 0] == 0.0
    assert extra_s >= found.speculative.parts_s["speculation_overhead"][0, 0] > 0.0


def test_no_drafted_tokens_are_the_baseline_itself() -> None:
    of = study(TINY)
    cells = [Cell(0, 1), Cell(0, 64), Cell(3, 64)]
    grid = of.grid(cells, point=False)
    assert np.all(grid.speedup[:, :2] == 1.0)
    assert np.array_equal(grid.speculative.step_s[:, :2], grid.baseline.step_s[:, :2])
    assert np.all(of.speedup_draws(cells)[:, :2] == 1.0)
    assert np.std(of.speedup_draws(cells)[:, 2]) > 0.0


def test_requests_run_up_to_max_num_seqs() -> None:
    grid = point(tables(TINY, engine={"max_num_seqs": 4}), 3, 16)
    assert (grid.baseline.running[0], grid.baseline.limited_by) == (4.0, ("max_num_seqs",))
    assert (grid.speculative.running[0], grid.speculative.limited_by) == (4.0, ("max_num_seqs",))


def test_requests_run_up_to_what_the_cache_holds() -> None:
    # 30,000 tokens logged, 1050.5 in the mean context: 28 requests.
    deployment = {**TINY, "measured": [{"concurrency": 1, "kv_cache_tokens": 30_000}]}
    grid = point(deployment, 3, 64)
    assert (grid.baseline.running[0], grid.baseline.limited_by) == (28.0, ("kv_cache",))
    assert grid.speculative.limited_by == ("kv_cache",)
    assert grid.speculative.running[0] < 28.0


def test_load_below_the_limits_is_limited_by_the_load() -> None:
    grid = point(TINY, 3, 2)
    assert grid.baseline.limited_by == ("concurrency",)
    assert grid.baseline.running[0] == 2.0


def test_drafter_and_lookahead_shrink_the_cache_by_hand() -> None:
    of = study(TINY)
    base, drafting = capacity(of.system, 0), capacity(of.system, 5)
    drafter = of.system.drafter
    tokens = (base.memory.kv_cache_bytes - drafter.weight_bytes) / (
        base.memory.kv_bytes_per_token + drafter.kv_bytes_per_token
    )
    assert drafting.memory.kv_cache_tokens == pytest.approx(tokens)
    assert of.system.mode(5).lookahead_slots == 5
    loose = study(tables(TINY, engine={"max_num_seqs": 100_000, "max_num_batched_tokens": 100_000}))
    assert capacity(loose.system, 0).max_running == int(base.memory.kv_cache_tokens // 1050.5)
    assert capacity(loose.system, 5).max_running == int(tokens // 1055.5)


def test_the_token_budget_of_a_step_limits_how_many_requests_verify_together() -> None:
    tight = study(tables(TINY, engine={"max_num_batched_tokens": 512}))
    found = capacity(tight.system, 3)
    assert (found.max_running, found.limited_by) == (512 // 4, "max_num_batched_tokens")


def test_a_cache_smaller_than_the_longest_request_does_not_fit() -> None:
    long = study(tables(TINY, engine={"max_model_len": 50_000_000}))
    found = capacity(long.system, 0)
    assert found.limited_by == "does_not_fit"
    assert "less than max_model_len 50,000,000" in found.reason


def test_memory_by_hand_for_one_dense_model() -> None:
    # 1.24 billion BF16 parameters; 8 KV heads x 64 x 2 x 16 layers x 2 bytes = 32,768 bytes a token.
    memory = capacity(tiny_system(), 0).memory
    assert memory.weight_bytes == pytest.approx(2 * 1.236e9, rel=0.01)
    assert memory.kv_bytes_per_token == 32_768
    free = 0.9 * tiny_system().gpu.memory_bytes - memory.weight_bytes - 5.5e9
    assert memory.kv_cache_tokens == pytest.approx(free / 32_768)


def test_stated_weights_replace_the_computed_ones() -> None:
    stated = build_system(load_deployment(tables(TINY, model={"weights_gb": 10.0})))
    assert capacity(stated, 0).memory.weight_bytes == pytest.approx(10e9)


def test_a_logged_cache_size_sets_the_reserve() -> None:
    memory = capacity(tiny_system(), 0, 50_000.0).memory
    assert memory.kv_cache_tokens == pytest.approx(50_000)
    assert memory.reserve_bytes > 5.5e9


def test_what_does_not_fit_is_named_and_computed_as_if_it_did() -> None:
    grid = point({"model": {"config": "kimi-k2.5-int4"}, "hardware": {"gpu": "h100-sxm"}}, 0, 8)
    assert grid.baseline.limited_by == ("does_not_fit",)
    assert grid.baseline.running[0] == 8.0
    assert np.isfinite(grid.baseline.throughput_tokens_per_s).all()


def test_replicas_multiply_what_runs_at_once() -> None:
    one = capacity(study(MOE).system, 0)
    two = capacity(study(tables(MOE, engine={"data_parallel_size": 2, "expert_parallel": True})).system, 0)
    assert two.max_running >= 2 * one.max_running  # each rank holds fewer experts, so more cache too


def test_cells_do_not_depend_on_which_others_are_asked() -> None:
    of = study(MOE)
    full = [Cell(k, c) for k in range(6) for c in (1, 4, 16, 64, 256)]
    for mode in (True, False):
        alone, among = of.grid([Cell(3, 4)], point=mode), of.grid(full, point=mode)
        column = full.index(Cell(3, 4))
        for name in ("step_s", "tpot_s", "ttft_s", "throughput_tokens_per_s"):
            for figures, all_figures in ((alone.baseline, among.baseline), (alone.speculative, among.speculative)):
                expected = getattr(figures, name)[:, 0]
                assert getattr(all_figures, name)[:, column] == pytest.approx(expected, rel=1e-6), name


def test_chunks_of_a_long_prompt_do_not_depend_on_which_other_loads_are_asked() -> None:
    # 8192 tokens a step at most: 8150 and 4 decode rows fit in one step, 8150 and 200 do not.
    of = study(tables(MOE, workload={"input_tokens": 8150, "output_tokens": 100}))
    alone = of.grid([Cell(0, 4)], point=True).baseline
    among = of.grid([Cell(0, 4), Cell(0, 200)], point=True).baseline
    assert among.running[1] == 200.0
    assert among.ttft_s[0, 0] == pytest.approx(alone.ttft_s[0, 0], rel=1e-9)


def test_lookup_drafts_of_mixed_lengths_come_in_the_order_asked() -> None:
    of = study({**MOE, "speculation": {"method": "ngram"}})
    cells = [Cell(4, 16), Cell(1, 2), Cell(4, 2), Cell(0, 16), Cell(1, 16)]
    among = of.grid(cells, point=True)
    for column, cell in enumerate(cells):
        alone = of.grid([cell], point=True)
        assert among.speculative.tpot_s[0, column] == pytest.approx(alone.speculative.tpot_s[0, 0], rel=1e-6)
        assert among.baseline.tpot_s[0, column] == pytest.approx(alone.baseline.tpot_s[0, 0], rel=1e-6)


def test_more_users_get_more_together_and_less_each() -> None:
    of = study(MOE)
    loads = [1, 2, 4, 8, 16, 32, 64, 128]
    base = of.grid([Cell(0, c) for c in loads], point=True).baseline
    assert all(b > a for a, b in pairwise(base.throughput_tokens_per_s[0]))
    assert all(b > a for a, b in pairwise(base.tpot_s[0]))


def test_cached_prompts_shorten_the_first_token() -> None:
    cold, warm = (point(tables(TINY, workload={"prefix_cache_hit_share": s}), 0, 8).baseline for s in (0.0, 0.9))
    assert warm.ttft_s[0, 0] < cold.ttft_s[0, 0]
    assert warm.tpot_s[0, 0] < cold.tpot_s[0, 0]


rates = st.floats(0.05, 0.95)
loads = st.sampled_from([1, 3, 8, 32])
lengths = st.integers(1, 5)


@settings(max_examples=12)
@given(low=rates, high=rates, k=lengths, users=loads)
def test_higher_acceptance_is_never_slower(low: float, high: float, k: int, users: int) -> None:
    low, high = sorted((low, high))

    def speedup(rate: float) -> float:
        acceptance = {"conditional": [rate]}
        of = {**MOE, "speculation": {"method": "eagle3", "acceptance": acceptance}}
        return float(point(of, k, users).speedup[0, 0])

    assert speedup(high) >= speedup(low) * (1 - 1e-9)


@settings(max_examples=12)
@given(scales=st.tuples(st.floats(0.1, 5.0), st.floats(0.1, 5.0)), k=lengths, users=loads)
def test_a_slower_link_is_never_faster(scales: tuple[float, float], k: int, users: int) -> None:
    fast, slow = (
        point({**MOE, "parameters": {"allreduce_latency_scale": s, "allreduce_size_scale": s}}, k, users)
        for s in sorted(scales)
    )
    for one, other in ((fast.baseline, slow.baseline), (fast.speculative, slow.speculative)):
        assert other.step_s[0, 0] >= one.step_s[0, 0] * (1 - 1e-9)
        assert other.tpot_s[0, 0] >= one.tpot_s[0, 0] * (1 - 1e-9)
        assert other.throughput_tokens_per_s[0, 0] <= one.throughput_tokens_per_s[0, 0] * (1 + 1e-9)


@settings(max_examples=12)
@given(contexts=st.tuples(st.integers(100, 7000), st.integers(100, 7000)), k=lengths, users=loads)
def test_a_longer_context_is_never_faster(contexts: tuple[int, int], k: int, users: int) -> None:
    short, long = (point(tables(MOE, workload={"input_tokens": n}), k, users) for n in sorted(contexts))
    assert short.baseline.running == long.baseline.running == users
    for one, other in ((short.baseline, long.baseline), (short.speculative, long.speculative)):
        assert other.step_s[0, 0] >= one.step_s[0, 0] * (1 - 1e-9)
        assert other.throughput_tokens_per_s[0, 0] <= one.throughput_tokens_per_s[0, 0] * (1 + 1e-9)


@settings(max_examples=10)
@given(
    method=st.sampled_from(["ngram", "suffix", "eagle3", "mtp", "medusa"]),
    k=lengths,
    users=st.sampled_from([1, 7, 100, 2000]),
    tokens=st.integers(1, 20_000),
)
def test_draws_are_finite_and_positive_for_any_method_and_load(method: str, k: int, users: int, tokens: int) -> None:
    deployment = {**MOE, "speculation": {"method": method}, "workload": {"input_tokens": tokens, "output_tokens": 64}}
    of = study(deployment, num_draws=60)
    speedup = of.speedup_draws([Cell(k, users), Cell(0, users)])
    assert speedup.shape == (60, 2)
    assert np.isfinite(speedup).all()
    assert (speedup > 0).all()
    grid = of.grid([Cell(k, users)], point=False)
    for figures in (grid.baseline, grid.speculative):
        assert (figures.ttft_s > 0).all()
        assert (figures.tpot_s > 0).all()
