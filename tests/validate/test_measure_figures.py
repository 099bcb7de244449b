"""Figures of a cell by hand: two users, answers of known times; intervals; client against server."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from validate.client.answers import Answer
from validate.client.faults import Fault
from validate.measure.cell import Measured, cell_dict
from validate.measure.checks import Whole, checks_of, foreign_traffic, joined_chunks, whole_of
from validate.measure.client_side import Steady, by_kind, client_side, request_records
from validate.measure.gauges import Gauges, random_waits_s
from validate.measure.server_side import ServerSide, Totals, acceptance_of_answers
from validate.measure.statistics import described, percentile, precision_of, student_975
from validate.measure.users import Outcome


def answer(start_s, chunks, gap_s=1.0, first_s=1.0, counted_by="token_ids"):
    """An answer whose first chunk comes `first_s` after its start and whose others follow every `gap_s`."""
    times = [start_s + first_s + index * gap_s for index in range(len(chunks))]
    return Answer(start_s, times[-1], times, list(chunks), sum(chunks), counted_by, prompt_tokens=10)


def outcome(number, made, user=0, kind="any"):
    return Outcome(number, kind, user, False, made.start_s, made.chunk_times_s[-1], made)


# User 0: seconds 0 to 4 and 4 to 8; user 1: 2 to 6. Two tokens a chunk after the first.
OUTCOMES = [
    outcome(0, answer(0.0, [1, 2, 2, 2])),
    outcome(1, answer(2.0, [1, 2, 2, 2]), user=1),
    outcome(2, answer(4.0, [1, 2, 2, 2])),
]
TOTALS = Totals(21.0, 3.0, 9.0, 9.0, 3.0, 0.0, 30.0, 0.0, 0.0)


def test_the_figures_of_a_window_by_hand():
    side = client_side(OUTCOMES, 2, Steady(2.0, 6.0))
    assert len(side.answers) == 2  # those that ended in it, at 4 and 6
    assert side.in_flight == pytest.approx((2 + 4 + 2) / 4)
    assert side.decoding == pytest.approx((2 + 3 + 1) / 4)
    assert side.tpots_s == pytest.approx([0.5, 0.5])
    assert side.tokens_per_chunk == 2.0
    # Tokens of the first at 3 and 4 (2 + 2), of the second at 3 to 6 (1 + 2 + 2 + 2), of the third at 5 and 6 (1 + 2).
    assert side.chunks.all_tokens == 4 + 7 + 3
    assert side.throughput_tokens_per_s == pytest.approx(14 / 4)
    assert len(side.chunks.gaps_s) == 2 + 3 + 1
    assert side.to_dict()["chunk_gap_s"]["mean"] == pytest.approx(1.0)
    assert side.joined(k=1) == 0.0
    assert side.joined(k=0) == 1.0


def test_answers_without_tokens_of_chunks_have_no_steps_but_a_throughput():
    made = Answer(0.0, 5.0, [1.0, 5.0], [], 9, "final usage")
    side = client_side([Outcome(0, "any", 0, False, 0.0, 5.0, made)], 1, Steady(0.0, 9.0))
    assert side.tokens_per_chunk is None
    assert side.joined(k=0) is None
    assert side.throughput_tokens_per_s == pytest.approx(1.0)
    assert side.tpots_s == [0.5]


def test_one_answer_that_was_not_counted_spoils_the_route():
    made = [answer(0.0, [1, 1]), Answer(0.0, 1.0, [0.5, 1.0], [], None, "nothing")]
    side = client_side([outcome(i, item) for i, item in enumerate(made)], 1, Steady(-1.0, 9.0))
    assert side.counted_by == "nothing"
    assert side.throughput_tokens_per_s is None


def test_failed_requests_are_counted_and_those_told_to_wait_are_not():
    faults = [Fault("broken", "cut"), Fault("later", "wait"), Fault("stopped", "us"), Fault("broken", "cut")]
    outcomes = [Outcome(i, "any", 0, False, 0.0, 1.0, None, fault) for i, fault in enumerate(faults)]
    side = client_side(outcomes, 1, Steady(0.0, 2.0))
    assert (side.num_failed, side.faults) == (2, {"cut": 2})
    assert whole_of(outcomes) == Whole(0, 3, 0, 0)


def test_kinds_and_records_of_requests():
    outcomes = [outcome(0, answer(0.0, [1, 3]), kind="code"), outcome(1, answer(0.0, [1, 1]), kind="prose")]
    window = Steady(0.0, 5.0)
    kinds = {item["kind"]: item for item in by_kind(outcomes, window)}
    assert kinds["code"]["tokens_per_step"] == 3.0
    assert kinds["prose"]["tpot_s"] == 1.0
    record = request_records(outcomes, Steady(0.0, 1.0), -1.0)[0]
    assert (record["sent_s"], record["ttft_s"], record["chunks"], record["in_window"]) == (1.0, 1.0, 2, False)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=50), st.floats(0, 1))
def test_a_percentile_lies_between_the_ends(values, share):
    assert min(values) <= percentile(values, share) <= max(values)


def test_percentiles_and_interval_by_hand():
    found = described([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0])
    assert (found["mean"], found["p50"]) == (5.0, 5.0)
    # Variance 7.5, standard error sqrt(7.5 / 9); nine blocks of one value each; t with 8 degrees of freedom is 2.31.
    assert found["stderr"] == pytest.approx((7.5 / 9) ** 0.5)
    assert found["ci95"][1] == pytest.approx(5.0 + 2.31 * (7.5 / 9) ** 0.5)
    assert described([]) is None
    assert described([1.0])["ci95"] is None


def test_requests_that_run_together_are_not_independent():
    """Four users whose step time drifts: within a round all are alike, so only the rounds count."""
    drifting = [value for value in (1.0, 1.2, 0.9, 1.3, 1.1, 0.8) for _ in range(4)]
    alone, _ = precision_of(drifting, 1)
    together, half = precision_of(drifting, 4)
    assert together > alone
    assert half == pytest.approx(student_975(6) * together)
    assert precision_of(drifting[:8], 4)[1] is None  # two rounds tell no interval


@given(st.lists(st.floats(0.5, 2.0), min_size=30, max_size=60))
def test_more_users_never_narrow_an_interval_below_that_of_independent_requests(values):
    half = precision_of(values, 5)[1]
    independent = student_975(len(values)) * described(values, len(values))["stderr"]
    assert half >= independent * (1 - 1e-9)


def checks(**changes):
    totals = Totals(**{name: getattr(TOTALS, name) for name in Totals.__slots__} | changes)
    side = client_side(OUTCOMES, 2, Steady(2.0, 6.0))
    return side, checks_of(whole_of(OUTCOMES), totals, (side, ServerSide(totals, None, ())))


def test_sums_that_are_equal_agree_and_show_nobody_else():
    side, found = checks()
    assert whole_of(OUTCOMES) == Whole(3, 0, 21, 9)
    assert {check.name: check.agrees for check in found} == {"requests": True, "tokens": True, "steps": True}
    assert foreign_traffic(found, 2.0, 2) is None
    assert joined_chunks(side, 1, found) is None


def test_requests_and_tokens_beyond_ours_are_others_traffic():
    _, found = checks(finished=5.0, generated_tokens=71.0, steps=40.0)
    words = foreign_traffic(found, None, 2)
    assert "2 requests that are not ours" in words
    assert "50 generated tokens that are not ours" in words
    assert "3 requests running at once, ours are 2" in foreign_traffic([], 3.0, 2)


def test_fewer_chunks_than_steps_are_joined_chunks_only_where_all_tokens_are_ours():
    side, found = checks(steps=18.0)
    assert "9 chunks after the first for 18 decode steps" in joined_chunks(side, 1, found)
    side, found = checks(steps=18.0, generated_tokens=99.0)
    assert joined_chunks(side, 1, found) is None


def test_chunks_with_more_tokens_than_a_step_has_are_joined():
    side, found = checks()
    assert "100 % of the chunks hold more tokens than the 1 of one step" in joined_chunks(side, 0, found)


def test_with_unfinished_requests_sums_cannot_be_compared():
    cut = Outcome(3, "any", 0, False, 0.0, 1.0, None, Fault("broken", "cut"))
    totals = Totals(*[25.0 if name == "generated_tokens" else getattr(TOTALS, name) for name in Totals.__slots__])
    side = client_side(OUTCOMES, 2, Steady(2.0, 6.0))
    found = checks_of(whole_of([*OUTCOMES, cut]), totals, (side, None))
    assert {check.name: check.agrees for check in found}["tokens"] is None
    assert foreign_traffic(found, 3.0, 2) is None


def test_acceptance_that_a_server_tells_with_each_answer_is_pooled():
    first, second = answer(0.0, [1]), answer(0.0, [1])
    first.acceptance_histogram, second.acceptance_histogram = (1, 0, 2), (1, 1, 0)
    counts = acceptance_of_answers([first, second])
    assert (counts["drafts"], counts["accepted_per_position"]) == (5, [3, 2])
    assert counts["mean_length"] == 2.0
    assert acceptance_of_answers([first, answer(0.0, [1])]) is None


# Whether the load that was asked for ran: four users, each with answers of 30 s one after the other.


def refusal(running, waiting=(), later=0, idle_s=0.0, users=4, queued=0):
    """Of `queued` users the server makes every answer at once, when the others' are through."""
    paces = [(0.5, 0.5)] * (users - queued) + [(29.9, 0.001)] * queued  # first chunk after, gap
    answers = [
        outcome(users * turn + user, answer((30.0 + idle_s) * turn, [1] * 60, gap_s, first_s), user=user)
        for turn in range(2)
        for user, (first_s, gap_s) in enumerate(paces)
    ]
    told = [Outcome(99, "any", 0, False, 30.0, 30.1, None, Fault("later", "HTTP 429"))] * later
    outcomes = [*answers, *told]
    side = client_side(outcomes, users, Steady(0.0, 60.0 + idle_s))
    return cell_dict(Measured(side, outcomes, 0, gauges=Gauges(running, waiting)))["refused_reason"]


def test_a_gauge_that_is_one_lower_between_requests_is_no_limit():
    assert refusal((3.0, 3.0, 4.0, 3.0, 3.0, 3.0, 3.0)) is None
    assert refusal((4.0,) * 7) is None
    assert refusal((2.0, 2.0)) is None  # two looks tell nothing


def test_a_number_that_the_client_saw_decode_at_once_ran_though_no_look_met_it():
    assert refusal((3.0,) * 7) is None  # all four of them decode for 59 s of each minute
    assert refusal((7.0,) * 7, users=8) is None
    assert "never ran more than 7" in refusal((7.0,) * 7, users=8, queued=1)
    assert "never ran more than 2" in refusal((2.0,) * 7)  # half of what decodes: the gauge of another replica


def test_a_gauge_that_never_gets_there_or_seldom_while_others_wait_is_a_limit():
    assert "never ran more than 2" in refusal((2.0,) * 7)
    assert "never ran more than 2, up to 2 waited: max_num_seqs" in refusal((2.0,) * 7, waiting=(1.0, 2.0))
    assert "seldom ran more than 3, up to 1 waited" in refusal((4.0, *(3.0,) * 6), waiting=(0.0, 1.0))
    assert refusal((3.0,) * 7, waiting=(1.0, *(0.0,) * 6)) is None  # one that had just come


def test_users_who_are_told_to_come_later_leave_the_load_below_what_was_asked_for():
    assert "only 3.43 were under way" in refusal((4.0,) * 7, later=3, idle_s=10.0)
    assert "told users to come later 3 times" in refusal((4.0,) * 7, later=3, idle_s=10.0)
    assert refusal((4.0,) * 7, later=1) is None


@given(st.floats(0.05, 0.5), st.floats(0.0, 1.0), st.integers(0, 2**32))
def test_looks_at_the_load_do_not_keep_step_with_requests_that_end_as_often(dip, phase, seed):
    waits, moment, inside = random_waits_s(1.0, random.Random(seed)), 0.0, 0
    for number in range(2000):
        moment += next(waits)
        assert number <= moment <= number + 1  # one in each interval
        inside += (moment + phase) % 1.0 < dip
    assert inside / 2000 == pytest.approx(dip, abs=6 * (dip * (1 - dip) / 2000) ** 0.5)
