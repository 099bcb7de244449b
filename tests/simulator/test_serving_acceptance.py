"""Who accepts what: the population pools to the given vector, the draws follow it, and records are replayed."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwmodel.errors import InputError
from simulator.serving.acceptance_sampling import SampledAcceptance
from simulator.serving.population import NUM_LEVELS, beta_levels, population
from simulator.serving.random_streams import consecutive_words, halves, mixed, request_key, stream_salts, words
from simulator.serving.recorded_steps import read_recorded_steps
from simulator.serving.request import Request
from simulator.serving.running_batch import RunningBatch

SURVIVAL = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=6).map(lambda c: np.cumprod(np.array(c)))
TWO_32 = 2.0**32


def batch_of(acceptance: SampledAcceptance, count: int, output_tokens: int = 100) -> RunningBatch:
    """A batch of so many requests."""
    batch = RunningBatch()
    for number in range(count):
        request = Request(number, 0.0, 10, output_tokens, generated=1)
        acceptance.enrol(request)
        batch.append(request)
    return batch


def accepting(survival: list[float], kappa: float, **options: Any) -> SampledAcceptance:
    """Sampled acceptance around a vector."""
    persistence = options.get("persistence", 0.0)
    share = options.get("share", 1.0)
    people = population(np.array(survival), share, kappa, stretches=persistence > 0.0, offset=0.3)
    return SampledAcceptance(people, share, persistence, options.get("seed", 0))


@given(SURVIVAL, st.floats(0.5, 1e5))
def test_levels_have_the_given_mean_and_never_increase_with_the_position(survival: Any, kappa: float) -> None:
    levels = beta_levels(survival, kappa, NUM_LEVELS)
    assert levels.mean(axis=0) == pytest.approx(survival, abs=1e-9)
    assert (np.diff(levels, axis=1) <= 1e-9).all()
    assert ((levels >= 0.0) & (levels <= 1.0)).all()


def test_levels_spread_as_the_beta_distribution() -> None:
    # Beta(6, 6): variance 1 / (4 x 13); equal slices lose a little of it in the tails.
    levels = beta_levels(np.array([0.5]), 12.0, 512)[:, 0]
    assert levels.var() == pytest.approx(1.0 / (4.0 * 13.0), rel=0.01)


def test_without_heterogeneity_all_levels_are_equal() -> None:
    levels = beta_levels(np.array([0.6, 0.3]), 1e6, NUM_LEVELS)
    assert (levels == [0.6, 0.3]).all()


def test_requests_are_tilted_so_that_drafts_pool_to_the_vector() -> None:
    # Equal outputs: a request with A tokens a step takes 1 / A steps, so the harmonic mean of A over requests is
    # 1 + S_1 + ... + S_k, and the plain mean is larger (model specification, section 1.10).
    people = population(np.array([0.64, 0.43, 0.29]), 1.0, 12.0, stretches=False)
    requests = np.array([people.level_of(number) for number in range(20_000)])
    tokens = 1.0 + people.survival[requests, 0].sum(axis=1)
    assert 1.0 / np.mean(1.0 / tokens) == pytest.approx(1.0 + 0.64 + 0.43 + 0.29, rel=1e-3)
    assert tokens.mean() > 1.02 * 2.36


def test_a_few_requests_already_have_nearly_the_mean_of_the_population() -> None:
    people = population(np.array([0.64, 0.43, 0.29]), 1.0, 12.0, stretches=False, offset=0.7)
    means = [
        1.0 / np.mean([1.0 / (1.0 + people.survival[people.level_of(i), 0].sum()) for i in range(start, start + 40)])
        for start in range(0, 2000, 40)
    ]
    assert np.std(means) / np.mean(means) < 0.01  # 40 at random: 0.18 / sqrt(40) = 3 %


def test_words_are_uniform_and_their_halves_independent() -> None:
    keys = np.array([request_key(int(stream_salts(1, 1)[0]), n) for n in range(200)]).view(np.uint64)
    bits = words(keys, np.arange(500)[:, None])
    first, second = (half.ravel() / TWO_32 for half in halves(bits))
    assert first.mean() == pytest.approx(0.5, abs=0.003)
    assert first.var() == pytest.approx(1 / 12, rel=0.01)
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.01
    assert abs(np.corrcoef(bits[:-1].ravel() / 2.0**64, bits[1:].ravel() / 2.0**64)[0, 1]) < 0.01
    assert len(np.unique(bits)) == bits.size


def test_the_key_of_a_request_is_the_mixing_function_in_plain_integers() -> None:
    increment, salt = 0x9E3779B97F4A7C15, 0x0123456789ABCDEF
    for number in (0, 1, 2, 12345, 2**40):
        state = np.array([(number * increment ^ salt) % 2**64], dtype=np.uint64)
        assert request_key(salt, number) == int(mixed(state).view(np.int64)[0])


def test_words_do_not_depend_on_the_portions_in_which_they_are_asked_for() -> None:
    keys = np.array([request_key(int(stream_salts(7, 1)[0]), n) for n in range(5)]).view(np.uint64)
    first = np.arange(5)
    assert (consecutive_words(keys, first, 8) == words(keys, first + np.arange(8)[:, None])).all()


def test_accepted_tokens_follow_the_survival_vector() -> None:
    acceptance = accepting([0.6, 0.4, 0.3], 1e6)
    outcome = acceptance.outcomes(batch_of(acceptance, 100), 400, 3)
    shares = [(outcome.accepted >= i).mean() for i in (1, 2, 3)]
    assert shares == pytest.approx([0.6, 0.4, 0.3], abs=0.008)
    assert outcome.drafted == 3


def test_a_longer_draft_accepts_at_least_what_a_shorter_one_did() -> None:
    acceptance = accepting([0.6, 0.4, 0.3], 12.0)
    batch = batch_of(acceptance, 50)
    short, full = acceptance.outcomes(batch, 100, 1).accepted, acceptance.outcomes(batch, 100, 3).accepted
    assert (short == np.minimum(full, 1)).all()


def test_text_lookup_drafts_on_its_share_of_the_steps_and_accepts_only_then() -> None:
    acceptance = accepting([0.6, 0.4], 1e6, share=0.3)
    outcome = acceptance.outcomes(batch_of(acceptance, 100), 400, 2)
    assert (outcome.drafted > 0).mean() == pytest.approx(0.3, abs=0.01)
    assert set(np.unique(outcome.drafted)) == {0, 2}
    assert (outcome.accepted <= outcome.drafted).all()
    drafted = outcome.drafted > 0
    assert (outcome.accepted[drafted] >= 1).mean() == pytest.approx(0.6, abs=0.02)


def test_lengths_by_row_limit_each_row() -> None:
    acceptance = accepting([0.9, 0.8, 0.7], 1e6)
    lengths = np.array([0, 1, 3])
    outcome = acceptance.outcomes(batch_of(acceptance, 3), 50, lengths)
    assert (outcome.accepted <= lengths).all()
    assert (np.asarray(outcome.drafted) == lengths).all()


def test_stretches_keep_the_mean_and_make_steps_alike() -> None:
    def mean_and_correlation(persistence: float) -> tuple[float, float]:
        acceptance = accepting([0.6, 0.4, 0.3], 6.0, persistence=persistence, seed=3)
        accepted = acceptance.outcomes(batch_of(acceptance, 400), 600, 3).accepted.astype(float)
        centred = accepted - accepted.mean(axis=0)
        return float(accepted.mean()), float((centred[1:] * centred[:-1]).mean() / centred.var())

    loose, alike = mean_and_correlation(0.0), mean_and_correlation(0.9)
    assert alike[0] == pytest.approx(loose[0], rel=0.02)
    assert abs(loose[1]) < 0.01
    assert alike[1] > 0.05


def test_the_draft_indicator_lasts_as_long_as_a_stretch() -> None:
    acceptance = accepting([0.6], 12.0, share=0.3, persistence=0.5)
    drafted = np.asarray(acceptance.outcomes(batch_of(acceptance, 300), 400, 1).drafted) > 0
    assert drafted.mean() == pytest.approx(0.3, abs=0.01)
    assert np.corrcoef(drafted[1:].ravel(), drafted[:-1].ravel())[0, 1] == pytest.approx(0.5, abs=0.03)


@settings(max_examples=30)
@given(st.integers(1, 60), st.sampled_from([0.0, 0.7]), st.sampled_from([1.0, 0.4]))
def test_outcomes_do_not_depend_on_how_many_steps_are_asked_for_at_once(
    cut: int, persistence: float, share: float
) -> None:
    acceptance = accepting([0.7, 0.5], 12.0, persistence=persistence, share=share)
    batch = batch_of(acceptance, 4, output_tokens=10_000)
    whole = acceptance.outcomes(batch, 80, 2)
    head = acceptance.outcomes(batch, cut, 2)
    batch.count(cut, 0, 0)
    if head.stretch is not None:
        batch.stretch[:] = head.stretch[-1]
    tail = acceptance.outcomes(batch, 80 - cut, 2)
    assert (np.concatenate([head.accepted, tail.accepted]) == whole.accepted).all()


def recorded(tmp_path: Path, *rows: Any) -> str:
    """A file of recorded steps."""
    path = tmp_path / "steps.jsonl"
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows), encoding="utf-8")
    return str(path)


def test_recorded_steps_are_replayed_in_order_and_again_from_the_start(tmp_path: Path) -> None:
    path = recorded(
        tmp_path,
        {"draft_tokens": [3, 0, 2], "accepted_tokens": [2, 0, 2]},
        {"draft_tokens": [1], "accepted_tokens": [1]},
    )
    acceptance = read_recorded_steps(path)
    batch = batch_of(acceptance, 2)  # type: ignore[arg-type]
    outcome = acceptance.outcomes(batch, 4, 3)
    assert outcome.accepted.T.tolist() == [[2, 0, 2, 2], [1, 1, 1, 1]]
    assert np.asarray(outcome.drafted).T.tolist() == [[3, 0, 2, 3], [1, 1, 1, 1]]
    assert acceptance.draft_share == pytest.approx(3 / 4)
    assert acceptance.survival(batch)[0].tolist() == [3 / 4, 2 / 4, 0.0]


@pytest.mark.parametrize(
    "line",
    [
        "no json",
        "[1, 2]",
        '{"draft_tokens": [1]}',
        '{"draft_tokens": [], "accepted_tokens": []}',
        '{"draft_tokens": [1, 2], "accepted_tokens": [1]}',
        '{"draft_tokens": [1], "accepted_tokens": [2]}',
        '{"draft_tokens": [-1], "accepted_tokens": [-1]}',
        '{"draft_tokens": [1.5], "accepted_tokens": [1]}',
        '{"draft_tokens": [65], "accepted_tokens": [1]}',
        '{"draft_tokens": [true], "accepted_tokens": [true]}',
        '{"draft_tokens": [NaN], "accepted_tokens": [0]}',
        "[" * 100_000,
    ],
)
def test_a_bad_line_of_recorded_steps_is_named(tmp_path: Path, line: str) -> None:
    path = recorded(tmp_path, {"draft_tokens": [1], "accepted_tokens": [1]}, line)
    with pytest.raises(InputError, match=r"line 2: .*allowed"):
        read_recorded_steps(path)


def test_recorded_steps_that_cannot_be_read_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read"):
        read_recorded_steps(str(tmp_path / "absent.jsonl"))
    with pytest.raises(InputError, match="no request"):
        read_recorded_steps(recorded(tmp_path, ""))
