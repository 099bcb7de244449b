"""The engine by hand: steps of 10 ms, a prompt token costs 1 ms more; then what must hold for any run."""

import csv
import io
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simpy
from hypothesis import example, given, settings
from hypothesis import strategies as st

from simulator.serving import clients
from simulator.serving.acceptance_sampling import NoDrafts, RecordedAcceptance, SampledAcceptance
from simulator.serving.clients import Outage
from simulator.serving.decode_blocks import DecodePlanner
from simulator.serving.engine import Engine
from simulator.serving.kv_blocks import BlockPool
from simulator.serving.metrics import ArmMetrics, Counting, Slo
from simulator.serving.policies import ScheduledLength, StaticLength
from simulator.serving.population import population
from simulator.serving.records import RecordWriter
from simulator.serving.request import Request, RequestSpec
from simulator.serving.scheduler import Limits, Scheduler

GOLDEN = Path(__file__).parent.parent / "data" / "serving" / "golden_records.csv"
STEP_S, PROMPT_TOKEN_S = 0.010, 0.001
ROOMY = Limits(max_num_seqs=64, max_num_batched_tokens=1000)


class FixedTimes:
    """10 ms a step, 1 ms for each prompt token in it."""

    def decode_s(self, sequences: int, drafted: Any, drafts: Any, context_tokens: Any) -> Any:
        return np.full(len(context_tokens), STEP_S)

    def mixed_s(self, key: Any, context_tokens: float, prompt_tokens: int, seen_tokens: float, finished: int) -> float:
        return STEP_S + PROMPT_TOKEN_S * prompt_tokens


@dataclass
class Log:
    """Requests in the order in which they left, and (start, end, decode rows, prompt tokens) of every step."""

    requests: list[Request] = field(default_factory=list)
    rows: list[tuple[float, float, int, int]] = field(default_factory=list)

    def request_done(self, request: Request) -> None:
        self.requests.append(request)

    def steps(self, starts_s: Any, ends_s: Any, facts: dict[str, int]) -> None:
        for start, end in zip(starts_s.tolist(), ends_s.tolist(), strict=True):
            self.rows.append((round(start, 9), round(end, 9), facts["decode"], facts["prompt_tokens"]))

    def __getitem__(self, number: int) -> Request:
        return next(request for request in self.requests if request.number == number)


@dataclass
class Run:
    """A finished run."""

    log: Log
    metrics: ArmMetrics
    scheduler: Scheduler
    now_s: float
    outage: Outage | None


def run(  # noqa: PLR0913 - a test names only what it changes
    specs: list[tuple[float, int, int]],
    *,
    limits: Limits = ROOMY,
    blocks: int = 10_000,
    acceptance: Any = None,
    policy: Any = None,
    users: int = 0,
    outage: Outage | None = None,
    block_steps: int = 512,
) -> Run:
    """Runs requests (arrival, prompt, output); with `users` in a closed loop that starts at once."""
    env = simpy.Environment(initial_time=0.0)
    scheduler = Scheduler(limits, BlockPool(blocks, 16))
    metrics = ArmMetrics(Slo(), Counting(0, len(specs), until_closed=False))
    log = Log()
    planner = DecodePlanner(
        env,
        scheduler,
        FixedTimes(),  # type: ignore[arg-type]
        acceptance or NoDrafts(),
        policy or StaticLength(0),
        metrics,
        max_block_steps=block_steps,
    )
    engine = Engine(env, scheduler, planner, metrics, (log,) if outage is None else (log, outage))
    requests = [RequestSpec(i, *spec) for i, spec in enumerate(specs)]
    if users:
        done = env.process(clients.closed_loop(engine, iter(requests), users, 0.0))
    else:
        done = env.process(clients.open_loop(engine, requests))
    if outage:
        env.process(outage.process(engine))
    env.run(until=done)
    scheduler.check()
    return Run(log, metrics, scheduler, float(env.now), outage)


def always(accepted: int, drafted: int) -> RecordedAcceptance:
    """Every step drafts and accepts the same number of tokens."""
    return RecordedAcceptance(np.array([drafted]), np.array([accepted]), np.array([0, 1]))


def sampled(survival: list[float], *, share: float = 1.0, persistence: float = 0.0, seed: int = 0) -> SampledAcceptance:
    """Sampled acceptance of a mixed population."""
    people = population(np.array(survival), share, 12.0, stretches=persistence > 0.0)
    return SampledAcceptance(people, share, persistence, seed)


def test_one_request_takes_its_prompt_and_one_step_a_token() -> None:
    # 100 prompt tokens: 10 + 100 ms, with the first token; four more at 10 ms each.
    done = run([(0.5, 100, 5)]).log[0]
    assert done.ttft_s == pytest.approx(0.110)
    assert done.e2e_s == pytest.approx(0.150)
    assert done.tpot_s == pytest.approx(0.010)
    assert (done.start_s, done.steps, done.generated) == (0.5, 4, 5)


def test_a_request_of_one_token_is_done_with_its_prompt() -> None:
    done = run([(0.0, 100, 1)]).log[0]
    assert done.finish_s == done.first_token_s == pytest.approx(0.110)
    assert done.tpot_s is None


def test_accepted_drafts_and_the_bonus_token_come_out_together() -> None:
    # After the first token: 3 accepted + 1 a step, so 8 more tokens take two steps.
    result = run([(0.0, 100, 9)], acceptance=always(3, 3), policy=StaticLength(3))
    done = result.log[0]
    assert done.e2e_s == pytest.approx(0.130)
    assert (done.steps, done.drafts, done.draft_tokens, done.accepted_tokens, done.wasted) == (2, 2, 6, 6, 0)
    assert result.metrics.tokens_per_step == pytest.approx(4.0)


def test_tokens_beyond_the_limit_are_counted_as_accepted_but_not_as_emitted() -> None:
    result = run([(0.0, 100, 8)], acceptance=always(3, 3), policy=StaticLength(3))
    done = result.log[0]
    assert (done.steps, done.accepted_tokens, done.wasted, done.generated) == (2, 6, 1, 8)
    assert result.metrics.tokens_per_step == pytest.approx(3.5)


def test_rejected_drafts_cost_their_step_and_give_one_token() -> None:
    done = run([(0.0, 100, 5)], acceptance=always(0, 3), policy=StaticLength(3)).log[0]
    assert (done.steps, done.accepted_tokens, done.draft_tokens) == (4, 0, 12)


def test_a_step_without_a_draft_gives_one_token() -> None:
    recorded = RecordedAcceptance(np.array([3, 0]), np.array([3, 0]), np.array([0, 2]))
    # Steps give 4, 1, 4: nine tokens.
    done = run([(0.0, 100, 10)], acceptance=recorded, policy=StaticLength(3)).log[0]
    assert (done.steps, done.drafts, done.draft_tokens) == (3, 2, 6)


def test_recorded_drafts_are_cut_to_the_policys_length() -> None:
    done = run([(0.0, 100, 7)], acceptance=always(3, 3), policy=StaticLength(2)).log[0]
    assert (done.steps, done.draft_tokens, done.accepted_tokens) == (2, 4, 4)


def test_a_second_request_waits_for_a_seat() -> None:
    limits = Limits(max_num_seqs=1, max_num_batched_tokens=1000)
    log = run([(0.0, 100, 5), (0.0, 100, 5)], limits=limits).log
    assert log[1].start_s == pytest.approx(0.150)
    assert log[1].ttft_s == pytest.approx(0.260)


def test_an_arrival_joins_at_the_next_step_and_its_prompt_slows_the_others() -> None:
    # The first decodes from 0.110 on. The second comes at 0.114: it starts at 0.120, in a step of 10 + 50 ms.
    log = run([(0.0, 100, 5), (0.114, 50, 2)]).log
    assert log[1].start_s == pytest.approx(0.120)
    assert log[1].first_token_s == pytest.approx(0.180)
    assert log[0].finish_s == pytest.approx(0.120 + 0.060 + 0.010 + 0.010)


def test_a_long_prompt_is_computed_in_chunks_of_the_token_budget() -> None:
    result = run([(0.0, 100, 2)], limits=Limits(max_num_seqs=8, max_num_batched_tokens=64))
    assert [row[3] for row in result.log.rows] == [64, 36, 0]
    assert result.log[0].ttft_s == pytest.approx(0.074 + 0.046)


def test_decode_rows_take_the_token_budget_first() -> None:
    # Two decode rows leave 8 - 2 tokens of the budget for the third prompt.
    limits = Limits(max_num_seqs=8, max_num_batched_tokens=8)
    result = run([(0.0, 4, 30), (0.0, 4, 30), (0.05, 12, 1)], limits=limits)
    mixed = [row for row in result.log.rows if row[3] and row[2]]
    assert [row[2:] for row in mixed] == [(2, 6), (2, 6)]


def test_drafts_are_cut_to_the_token_budget_and_rows_beyond_it_wait() -> None:
    # Three rows of 1 + 3 tokens in a budget of 6: one whole row, one with a draft of one token, one left out.
    limits = Limits(max_num_seqs=8, max_num_batched_tokens=6, longest_draft=3)
    result = run([(0.0, 2, 9)] * 3, limits=limits, acceptance=always(3, 3), policy=StaticLength(3))
    first = next(row for row in result.log.rows if not row[3])
    assert first[2] == 2
    assert result.log[0].draft_tokens == 6
    assert result.log[1].draft_tokens < result.log[1].drafts * 3
    assert result.log.requests[0].number == 0


def test_drafts_stop_at_the_end_of_the_context_window() -> None:
    limits = Limits(max_num_seqs=8, max_num_batched_tokens=1000, longest_draft=3, max_model_len=20)
    done = run([(0.0, 12, 8)], limits=limits, acceptance=always(3, 3), policy=StaticLength(3)).log[0]
    # 13 tokens after the prompt, 17 after one step; then 20 - 1 - 17 = 2 drafts fit.
    assert (done.steps, done.draft_tokens, done.wasted) == (2, 5, 0)


def test_the_prefix_cache_saves_whole_blocks_but_never_the_whole_prompt() -> None:
    limits = Limits(max_num_seqs=8, max_num_batched_tokens=1000, prefix_cache_hit_share=0.5)
    done = run([(0.0, 100, 1)], limits=limits).log[0]
    assert (done.cached, round(done.ttft_s, 9)) == (48, 0.010 + 0.052)
    everything = Limits(max_num_seqs=8, max_num_batched_tokens=1000, prefix_cache_hit_share=1.0)
    assert run([(0.0, 32, 1)], limits=everything).log[0].ttft_s == pytest.approx(0.011)


def test_without_blocks_the_last_admitted_request_is_preempted_and_computed_again() -> None:
    # Four blocks of 16: two prompts of 30 take two each. At 33 tokens both need a third block: the second gives way,
    # waits until the first is done, and computes its prompt and its tokens so far again.
    result = run([(0.0, 30, 10), (0.0, 30, 10)], blocks=4)
    first, second = result.log[0], result.log[1]
    assert (first.preemptions, second.preemptions) == (0, 1)
    assert result.metrics.totals.preemptions == 1
    assert second.finish_s > first.finish_s
    assert second.generated == 10
    assert result.metrics.totals.prompt_tokens == 30 + 30 + (30 + 3)
    assert second.from_prefill == 2


def test_lookahead_slots_take_blocks() -> None:
    plain = run([(0.0, 31, 1)], blocks=4)
    reserved = Limits(max_num_seqs=8, max_num_batched_tokens=1000, lookahead_slots=3)
    ahead = run([(0.0, 31, 1)], blocks=4, limits=reserved)
    assert plain.metrics.kv_usage_max == pytest.approx(0.5)
    assert ahead.metrics.kv_usage_max == pytest.approx(0.75)


def test_requests_that_can_never_run_are_rejected_with_the_reason_and_counted() -> None:
    limits = Limits(max_num_seqs=8, max_num_batched_tokens=1000, max_model_len=200)
    result = run([(0.0, 150, 60), (0.0, 70, 20), (0.0, 30, 2)], limits=limits, blocks=5)
    reasons = result.metrics.rejections
    assert reasons == {
        "longer than max_model_len = 200 tokens": 1,
        "longer than the KV cache of 80 tokens": 1,
    }
    assert (result.metrics.totals.finished, result.metrics.totals.rejected) == (1, 2)


def test_users_of_a_closed_loop_send_the_next_request_when_the_last_is_done() -> None:
    log = run([(0.0, 10, 3)] * 4, users=2).log
    assert log[2].arrival_s == log[0].finish_s
    assert {request.number for request in log.requests} == {0, 1, 2, 3}


def test_a_schedule_drafts_by_the_number_of_requests() -> None:
    schedule = ScheduledLength([(1, 1, 3), (2, 8, 0)])
    log = run([(0.0, 10, 41), (0.0, 10, 5)], acceptance=always(3, 3), policy=schedule).log
    assert log[1].drafts == 0
    assert log[0].draft_tokens == 3 * log[0].drafts > 0


def test_an_outage_loses_what_runs_and_everything_is_sent_again() -> None:
    # Prompt to 0.110, tokens at .12 and .13; the step in progress at .135 is lost with the rest. Back at 1.135.
    outage = Outage(0.135, 1.0)
    result = run([(0.0, 100, 8), (0.5, 10, 1)], outage=outage)
    first, second = result.log[0], result.log[1]
    assert (outage.lost_requests, outage.lost_tokens, outage.arrived_meanwhile) == (1, 3, 1)
    assert outage.queue_at_restart == 2
    assert (first.attempts, second.attempts) == (2, 1)
    assert first.start_s == second.start_s == pytest.approx(1.135)
    assert first.first_token_s == pytest.approx(1.135 + 0.120)
    assert first.arrival_s == 0.0
    assert outage.recovery_s == pytest.approx(0.120)


def test_an_outage_of_an_idle_engine_loses_nothing() -> None:
    outage = Outage(1.0, 1.0)
    result = run([(0.0, 10, 2), (1.5, 10, 2)], outage=outage)
    assert outage.lost_requests == 0
    assert result.log[1].start_s == pytest.approx(2.0)


def test_throughput_of_a_saturated_closed_loop_is_rows_per_step() -> None:
    result = run([(0.0, 1, 200)] * 4, users=4)
    decode = [row for row in result.log.rows if not row[3]]
    assert all(row[2] == 4 for row in decode)
    assert result.metrics.step_s == pytest.approx(STEP_S)


SPECS = st.lists(
    st.tuples(
        st.floats(0.0, 3.0),
        st.integers(1, 120),
        st.integers(1, 60),
    ),
    min_size=1,
    max_size=12,
).map(lambda rows: sorted(rows))
LIMITS = st.builds(
    Limits,
    max_num_seqs=st.integers(1, 6),
    max_num_batched_tokens=st.integers(8, 200),
    lookahead_slots=st.sampled_from([0, 3]),
    longest_draft=st.just(3),
    max_model_len=st.sampled_from([None, 150]),
    prefix_cache_hit_share=st.sampled_from([0.0, 0.6]),
)
WORLD = st.fixed_dictionaries(
    {
        "specs": SPECS,
        "limits": LIMITS,
        "blocks": st.integers(8, 40),
        "users": st.sampled_from([0, 0, 2]),
        "share": st.sampled_from([1.0, 0.4]),
        "persistence": st.sampled_from([0.0, 0.8]),
        "outage": st.sampled_from([None, (0.3, 0.5)]),
    }
)


def world_run(world: dict[str, Any], block_steps: int = 512) -> Run:
    """A run of a drawn world."""
    return run(
        world["specs"],
        limits=world["limits"],
        blocks=world["blocks"],
        users=world["users"],
        outage=None if world["outage"] is None else Outage(*world["outage"]),
        acceptance=sampled([0.8, 0.6, 0.5], share=world["share"], persistence=world["persistence"]),
        policy=StaticLength(3),
        block_steps=block_steps,
    )


_TIMES_THAT_ROUND: dict[str, Any] = {  # 0.68... + (2.94... - 0.68...) is one rounding below 2.94...
    "specs": [(0.6836223347055379, 1, 1), (2.9405006005788805, 1, 1)],
    "limits": Limits(1, 8, 0, 3),
    "blocks": 8,
    "users": 0,
    "share": 1.0,
    "persistence": 0.0,
    "outage": None,
}


@settings(max_examples=120)
@given(WORLD)
@example(_TIMES_THAT_ROUND)
def test_invariants_hold_in_any_run(world: dict[str, Any]) -> None:
    result = world_run(world)
    totals, requests = result.metrics.totals, result.log.requests
    finished = [request for request in requests if not request.rejected]
    # 1: requests are conserved.
    assert sorted(r.number for r in requests) == list(range(len(world["specs"])))
    assert totals.arrived == totals.finished + totals.rejected == len(world["specs"])
    # 2: tokens are conserved, request by request and in all.
    for r in finished:
        assert r.generated == r.output_tokens
        assert r.generated + r.wasted == r.from_prefill + r.steps + r.accepted_tokens
        assert 0 <= r.accepted_tokens <= r.draft_tokens
        assert r.drafts <= r.steps
    assert totals.first_tokens + totals.decode_tokens == totals.lost_tokens + sum(r.generated for r in finished)
    assert totals.decode_tokens + totals.wasted_tokens == totals.decode_steps + totals.accepted_tokens
    # 3: KV blocks are conserved.
    assert result.scheduler.pool.free == result.scheduler.pool.total
    # 4: the clock is monotone, for requests and for steps.
    for r in finished:
        assert r.arrival_s <= r.start_s < r.first_token_s <= r.finish_s <= result.now_s
    ends = [row[1] for row in result.log.rows]
    assert all(row[0] >= end - 1e-9 for row, end in zip(result.log.rows[1:], ends, strict=False))
    # 5: parts add up.
    for r in finished:
        waits = (r.start_s - r.arrival_s) + (r.first_token_s - r.start_s) + (r.finish_s - r.first_token_s)
        assert waits == pytest.approx(r.e2e_s)
        if r.tpot_s is not None:
            assert r.ttft_s + (r.output_tokens - 1) * r.tpot_s == pytest.approx(r.e2e_s)
    if world["outage"] is None:
        gaps = sum(r.finish_s - r.first_token_s for r in finished)
        assert result.metrics.itl.mean_s is None or result.metrics.itl.total_s == pytest.approx(gaps)
        resumed = sum(r.from_prefill - 1 for r in finished)
        assert result.metrics.itl.count == totals.decode_steps + resumed
    # 6: a step holds no more than it may.
    assert all(row[2] <= world["limits"].max_num_seqs for row in result.log.rows)
    assert all(row[2] + row[3] <= world["limits"].max_num_batched_tokens for row in result.log.rows)


@settings(max_examples=80)
@given(WORLD)
def test_steps_taken_in_blocks_give_the_same_as_one_by_one(world: dict[str, Any]) -> None:
    together, apart = world_run(world), world_run(world, block_steps=1)
    for ours, theirs in zip(together.log.requests, apart.log.requests, strict=True):
        assert (ours.number, ours.steps, ours.accepted_tokens, ours.preemptions) == (
            theirs.number,
            theirs.steps,
            theirs.accepted_tokens,
            theirs.preemptions,
        )
        assert ours.finish_s == pytest.approx(theirs.finish_s, rel=1e-9)
    assert together.log.rows == apart.log.rows


@settings(max_examples=20)
@given(WORLD)
def test_the_same_seed_gives_the_same_run(world: dict[str, Any]) -> None:
    first, second = world_run(world), world_run(world)
    assert first.log.rows == second.log.rows
    assert [(r.number, r.finish_s) for r in first.log.requests] == [(r.number, r.finish_s) for r in second.log.requests]


def golden_run() -> str:
    """The records of a run with queueing, chunks, drafts, preemption and an outage."""
    file = io.StringIO()
    specs = [(round(0.07 * i, 2), 20 + 37 * i % 90, 5 + 13 * i % 40) for i in range(40)]
    limits = Limits(max_num_seqs=6, max_num_batched_tokens=64, longest_draft=3, prefix_cache_hit_share=0.4)
    acceptance = sampled([0.8, 0.6, 0.5], share=0.7, persistence=0.5, seed=11)
    outage = Outage(1.5, 0.4)
    result = run(specs, limits=limits, blocks=24, acceptance=acceptance, policy=StaticLength(3), outage=outage)
    writer = RecordWriter(file, as_json=False).of("speculative")
    for request in result.log.requests:
        writer.request_done(request)
    return file.getvalue()


def test_a_whole_run_is_the_golden_one_byte_for_byte() -> None:
    text = golden_run()
    if os.environ.get("DRAFTCAST_GOLDEN") == "write":
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert sum(int(row["preemptions"]) for row in rows) > 0
    assert sum(int(row["attempts"]) > 1 for row in rows) > 0
