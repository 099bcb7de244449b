"""Stepping and counting: by hand, and against a walk one position at a time."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibration.replay.counts import CONTEXT_EDGES, FIXED_COLUMNS, Tally, context_bins
from calibration.replay.intervals import independent_error, interval, resampling, student_factor
from calibration.replay.ngram import Lookup
from calibration.replay.recording import Batch, recording
from calibration.replay.report import report
from calibration.replay.run import Counted, Recorded, Settings, replay
from calibration.replay.versions import EngineRules
from calibration.replay.walk import accepting_steps, step_positions


@given(st.lists(st.tuples(st.integers(1, 12), st.randoms(use_true_random=False)), min_size=1, max_size=5))
def test_steps_are_those_of_a_walk_one_position_at_a_time(requests: list[tuple[int, object]]) -> None:
    rng = np.random.default_rng(sum(size for size, _ in requests))
    right = np.concatenate([np.minimum(rng.integers(0, 5, size), np.arange(size)[::-1]) for size, _ in requests])
    expected, begin = np.zeros(len(right), bool), 0
    for size, _ in requests:
        position = begin
        while position < begin + size:
            expected[position] = True
            position += 1 + right[position]
        begin += size
    accepting = accepting_steps(right)
    assert step_positions(right, accepting).tolist() == expected.tolist()
    assert accepting.tolist() == np.flatnonzero(expected & (right > 0)).tolist()


def tally_of(drafted: list[int], right: list[int], outputs: list[int], k: int = 2, prompt: int = 0) -> Tally:
    """The count of given drafts at the decode positions of outputs of these lengths."""
    batch = Batch(tuple(recording([7] * prompt, list(range(size))) for size in outputs))
    tally = Tally(k)
    tally.add(batch, context_bins(batch), (np.array(drafted, np.int8), np.array(right, np.int8)), None)
    return tally


def test_counts_of_two_requests_by_hand() -> None:
    # Request one, five decode positions: draft of 2 with 1 right (skips one), draft of 2 with none, two without.
    # Request two, two positions: a draft of 1 that is right.
    tally = tally_of([2, 2, 2, 0, 0, 1, 2], [1, 1, 0, 0, 0, 1, 0], [6, 3])
    steps, drafts, tokens = tally.requests[:, :3].T.tolist()
    assert steps == [4, 1]
    assert drafts == [2, 1]
    assert tokens == [4, 1]
    assert tally.requests[:, FIXED_COLUMNS:].tolist() == [[1, 0], [1, 0]]


def test_runs_end_with_the_request_and_with_an_undrafted_step() -> None:
    tally = tally_of([1, 1, 0, 1, 1, 1], [0, 0, 0, 0, 0, 0], [5, 3])
    assert tally.drafted_runs.tolist() == [0, 1, 2]  # of one step: the last of request one; of two: both others
    assert tally.accepted_runs.tolist() == [0]


def test_accepted_runs_count_tokens_over_consecutive_accepting_steps() -> None:
    # 2 accepted, then 1 accepted (run of 3 tokens), then nothing, then 2.
    tally = tally_of([2] * 9, [2, 0, 0, 1, 0, 0, 2, 0, 0], [10])
    assert tally.accepted_runs.tolist() == [0, 0, 1, 1]


def test_contexts_count_the_prompt() -> None:
    tally = tally_of([1, 0, 1], [0, 0, 0], [4], prompt=254)  # contexts 255, 256, 257
    assert tally.by_context[:2, :2].tolist() == [[1, 2], [1, 1]]
    assert tally.by_context.shape == (3, len(CONTEXT_EDGES))


def test_what_the_scheduler_has_no_room_for_is_not_accepted_but_still_counted_as_proposed() -> None:
    batch = Batch((recording([], [0, 1, 2, 3]),))
    tally = Tally(2)
    lengths = (np.array([2, 2, 2], np.int8), np.array([2, 1, 0], np.int8))
    tally.add(batch, context_bins(batch), lengths, np.array([1, 0, 0]))
    steps, drafts, tokens, scheduled, scheduled_tokens, first, second = tally.requests[0].tolist()
    assert (steps, drafts, tokens, scheduled, scheduled_tokens) == (2, 2, 4, 1, 1)
    assert (first, second) == (1, 0)


def test_one_request_gets_an_interval_over_its_parts_and_a_word_about_it() -> None:
    rng = np.random.default_rng(1)
    counted = replay(
        [recording([], rng.integers(0, 3, 400).tolist())], Settings(Lookup("lps", 2, 2), (3,), EngineRules())
    )
    result = report(counted, seed=0)["results"][0]
    low, high = result["tokens_per_step_ci95"]
    assert low < result["tokens_per_step"] < high
    assert "one request" in result["tokens_per_step_ci95_reason"]


def test_without_decode_steps_figures_are_null_with_a_reason() -> None:
    counted = Counted((Tally(2),), Recorded(requests=1, without_steps=1))
    result = report(counted, seed=0)["results"][0]
    assert result["tokens_per_step"] is None
    assert result["tokens_per_step_ci95"] == [None, None]
    assert "fewer than two tokens" in result["tokens_per_step_reason"]


def test_few_requests_and_missing_prompts_and_sampling_are_warned_about() -> None:
    said = " ".join(report(Counted((Tally(1),), Recorded(requests=3, without_prompt=1, sampled=2)), 0)["warnings"])
    assert "only 3 requests" in said
    assert "1 of 3 requests have no prompt" in said
    assert "2 of 3 outputs were sampled" in said


def test_equal_seeds_give_equal_reports_and_batches_do_not_matter() -> None:
    rng = np.random.default_rng(2)
    requests = [recording([1, 2], rng.integers(0, 4, 80).tolist()) for _ in range(8)]
    settings = Settings(Lookup("lps", 2, 3), (1, 4), EngineRules())
    assert report(replay(requests, settings), 5) == report(replay(iter(requests), settings), 5)
    assert report(replay(requests, settings), 5) != report(replay(requests, settings), 6)


def test_the_report_adds_up() -> None:
    rng = np.random.default_rng(3)
    requests = [recording([1, 2], rng.integers(0, 3, size).tolist()) for size in (60, 2, 1, 90, 30)]
    for row in report(replay(requests, Settings(Lookup("lps", 2, 3), (1, 4), EngineRules())), 0)["results"]:
        assert row["accepted_tokens"] == sum(row["accepted_per_position"])
        assert row["steps"] + row["accepted_tokens"] == 59 + 1 + 89 + 29
        assert sum(part["steps"] for part in row["draft_probability_by_context"]) == row["steps"]
        assert sum(part["drafts"] for part in row["draft_probability_by_context"]) == row["drafts"]
        assert row["draft_probability"] == row["drafts"] / row["steps"]
        assert row["tokens_per_step"] == pytest.approx(1 + row["accepted_tokens"] / row["steps"])
        assert row["num_requests"] == 4


@pytest.mark.parametrize(("num_requests", "trials"), [(6, 400), (40, 250)])
def test_bootstrap_intervals_cover_near_nominal_with_few_and_with_many_requests(num_requests: int, trials: int) -> None:
    rng = np.random.default_rng(num_requests)
    truth, covered = 0.3, 0
    for _ in range(trials):
        steps = rng.integers(50, 300, num_requests)
        shares = rng.beta(truth * 6, (1 - truth) * 6, num_requests)
        counts = np.stack([rng.binomial(steps, shares), steps], axis=1)
        resamples = resampling(np.ones(num_requests, bool), rng)
        draws = resamples.sums(counts)
        low, high = interval(draws[:, 0] / draws[:, 1], counts[:, 0].sum() / counts[:, 1].sum(), num_requests, 0.0)
        covered += low <= truth <= high
    assert 0.90 <= covered / trials <= 0.99


def test_equal_requests_do_not_make_an_interval_of_no_width() -> None:
    tokens = [1, 2, 3, 4, 1, 2, 3, 5, 1, 2, 3, 4, 9]
    counted = replay([recording([], tokens)] * 3, Settings(Lookup("lps", 2, 2), (2,), EngineRules()))
    row = report(counted, 0)["results"][0]
    for name in ("tokens_per_step", "draft_probability", "accepted_per_draft"):
        low, high = row[f"{name}_ci95"]
        assert low < row[name] < high


def test_the_independent_error_is_that_of_a_mean() -> None:
    values = np.random.default_rng(0).integers(0, 4, 5000)
    error = independent_error(float(values.sum()), float((values**2).sum()), 5000)
    assert error == pytest.approx(values.std() / 5000**0.5, rel=1e-2)
    assert independent_error(0.0, 0.0, 100) == pytest.approx((0.5 / 101) ** 0.5 / 10, rel=0.01)


def test_many_requests_are_resampled_in_groups_of_the_same_total() -> None:
    rng = np.random.default_rng(0)
    counts = rng.integers(1, 50, (3000, 2))
    resamples = resampling(np.ones(3000, bool), rng)
    assert resamples.number == 500
    draws = resamples.sums(counts)
    spread = (draws[:, 0] / draws[:, 1]).std()
    whole = counts[:, 0] - counts[:, 0].sum() / counts[:, 1].sum() * counts[:, 1]
    assert spread == pytest.approx(whole.std() * 3000**0.5 / counts[:, 1].sum(), rel=0.15)


def test_student_widens_few_clusters_only() -> None:
    assert student_factor(2) > 6
    assert student_factor(10) == pytest.approx(2.262 / 1.96, rel=1e-3)
    assert student_factor(31) == 1.0
