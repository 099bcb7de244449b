"""Acceptance draws: every form by hand, intervals, priors, and what must hold for any valid input."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwmodel.errors import InputError
from simulator.acceptance import AcceptanceDraws, acceptance_draws
from simulator.deployment import LOOKUP_METHODS, METHODS, load_deployment

CARD = [0.633, 0.404, 0.264]  # Kimi-K2.6 EAGLE-3, 912 prompts: mean length 2.30
COUNTERS = {
    "num_drafts": 1242,
    "num_draft_tokens": 6210,
    "num_accepted_tokens": 2462,
    "num_accepted_tokens_per_pos": [750, 578, 467, 369, 298],
    "itl_count": 3675,
    "ttft_count": 24,
}


def ask(
    speculation: dict[str, Any], *, k_max: int = 5, seed: int = 0, variant: str = "lps", **workload: Any
) -> AcceptanceDraws:
    """Acceptance of one `[speculation]` table."""
    deployment = load_deployment(
        {"model": {"config": "x"}, "hardware": {"gpu": "y"}, "speculation": speculation, "workload": workload}
    )
    return acceptance_draws(
        deployment.speculation,
        deployment.workload,
        k_max=k_max,
        num_draws=1000,
        rng=np.random.default_rng(seed),
        ngram_variant=variant,
        context_tokens=deployment.workload.context_tokens,
    )


def stated(acceptance: dict[str, Any], method: str = "eagle3", **options: Any) -> AcceptanceDraws:
    """Acceptance of one stated form."""
    return ask({"method": method, "acceptance": acceptance}, **options)


def length(draws: AcceptanceDraws, k: int) -> float:
    """Mean tokens per draft of k tokens at the point values, the bonus token included."""
    return float(1 + draws.median_survival[0, :k].sum())


def spread(draws: AcceptanceDraws, k: int) -> float:
    """Standard deviation of the tokens per draft of k tokens."""
    return float(draws.survival[:, :k].sum(axis=1).std())


def test_published_card_gives_its_mean_length() -> None:
    draws = stated({"per_position": CARD})
    assert draws.median_survival[0, :3] == pytest.approx(CARD)
    assert length(draws, 3) == pytest.approx(2.30, abs=0.005)
    assert not draws.is_prior
    assert draws.source == "per-position acceptance of the file, 0.633 0.404 0.264"
    assert draws.draft_probability.tolist() == [[1.0]] * 1000


def test_conditional_form_says_the_same_as_the_unconditional_one() -> None:
    by_condition = stated({"conditional": [0.633, 0.638, 0.653]})
    assert by_condition.median_survival[0, :3] == pytest.approx(CARD, abs=1e-3)


def test_shorter_vectors_are_held_at_their_last_conditional_value() -> None:
    survival = stated({"per_position": CARD}).median_survival[0]
    last = CARD[2] / CARD[1]
    assert survival[3:] == pytest.approx([CARD[2] * last, CARD[2] * last**2])


def test_held_curve_predicts_a_published_seven_token_card_from_three_positions() -> None:
    # Kimi-K3.1-Pro DSpark on GSM8K: .86 .71 .59 .48 .39 .32 .26, so 4.61 tokens
    assert length(stated({"per_position": [0.86, 0.71, 0.59]}, "dspark", k_max=7), 7) == pytest.approx(4.61, rel=0.02)


def test_longer_vectors_are_cut() -> None:
    assert stated({"per_position": CARD}, k_max=2).median_survival.tolist() == [CARD[:2]]


def test_mean_length_and_rate_are_the_same_scalar() -> None:
    by_length = stated({"mean_length": 2.30, "measured_at_k": 3})
    by_rate = stated({"rate": 1.30 / 3, "measured_at_k": 3})
    assert by_length.median_survival == pytest.approx(by_rate.median_survival)
    assert length(by_length, 3) == pytest.approx(2.30)
    ratios = by_length.median_survival[0, 1:] / by_length.median_survival[0, :-1]
    assert ratios == pytest.approx([by_length.median_survival[0, 0]] * 4)


def test_a_scalar_keeps_its_mean_length_in_every_draw_whatever_the_slope() -> None:
    draws = stated({"mean_length": 2.30, "measured_at_k": 3, "num_requests": 10**8}, output_tokens=100_000)
    assert 1 + draws.survival[:, :3].sum(axis=1) == pytest.approx(np.full(1000, 2.30), abs=2e-3)
    assert draws.survival[:, 0].std() > 0.005


def test_n_gram_scalar_has_the_shape_of_true_and_accidental_matches() -> None:
    # GLM-5.1 reasoning, first 1,000 tokens: 1.75 accepted of 5
    draws = stated({"mean_length": 2.75, "measured_at_k": 5, "draft_probability": 0.098}, "ngram")
    assert draws.median_survival[0] == pytest.approx([0.573, 0.386, 0.303, 0.256, 0.232], abs=0.01)
    assert draws.median_draft_probability == 0.098


def test_mean_length_of_n_gram_is_per_draft_and_the_share_of_drafts_is_assumed_aloud() -> None:
    draws = stated({"mean_length": 2.75, "measured_at_k": 5}, "ngram")
    assert 0.02 < draws.median_draft_probability < 0.2
    assert "not stated: prior" in draws.notes[0]
    assert length(draws, 5) == pytest.approx(2.75)


def test_counters_give_acceptance_per_draft_and_the_share_of_steps_with_a_draft() -> None:
    draws = stated({"counters": COUNTERS}, "ngram")
    assert draws.median_survival[0] == pytest.approx(np.array([750, 578, 467, 369, 298]) / 1242)
    assert draws.median_draft_probability == pytest.approx(1242 / 3675)
    tokens_per_step = 1 + draws.median_draft_probability * (length(draws, 5) - 1)
    assert tokens_per_step == pytest.approx(1.67, abs=0.005)  # and not the 2.98 per draft


def test_counters_without_positions_are_a_scalar_at_the_drafted_length() -> None:
    counters = {name: value for name, value in COUNTERS.items() if name != "num_accepted_tokens_per_pos"}
    draws = stated({"counters": counters}, "ngram")
    assert length(draws, 5) == pytest.approx(1 + 2462 / 1242)
    assert draws.notes == ()


def test_counters_of_drafts_of_varying_length_are_read_as_drafts_of_the_configured_length() -> None:
    acceptance = {"counters": {"num_drafts": 100, "num_draft_tokens": 250, "num_accepted_tokens": 90}}
    draws = ask({"method": "eagle3", "num_speculative_tokens": 5, "acceptance": acceptance})
    assert length(draws, 5) == pytest.approx(1.9)
    assert "drafts of 2.50 tokens on average" in draws.notes[0]


def test_model_drafters_draft_on_every_step_even_where_they_were_off_part_of_the_time() -> None:
    counters = {**COUNTERS, "itl_count": 2000}
    draws = stated({"counters": counters})
    assert draws.median_draft_probability == 1.0
    assert draws.notes == ("only 62 % of the measured steps carried a draft; predicted with one on every step",)


def test_a_stated_draft_probability_wins() -> None:
    draws = stated({"counters": COUNTERS, "draft_probability": 0.2}, "ngram")
    assert draws.median_draft_probability == 0.2
    assert draws.draft_probability.mean() == pytest.approx(0.2, abs=0.02)


def test_rate_is_refused_for_suffix_whose_drafts_vary_in_length() -> None:
    with pytest.raises(InputError, match=r"got it for suffix, whose drafts vary in length; allowed: mean_length"):
        stated({"rate": 0.4, "measured_at_k": 5}, "suffix")


def result(k: int, steps: int, drafts: int, accepted: list[int]) -> dict[str, Any]:
    """One entry of a replay's results."""
    return {
        "num_speculative_tokens": k,
        "steps": steps,
        "drafts": drafts,
        "draft_tokens": drafts * k,
        "accepted_tokens": sum(accepted),
        "accepted_per_position": accepted,
    }


def replayed(tmp_path: Path, results: Any, k: int | None) -> AcceptanceDraws:
    """Acceptance from a replay file that holds `results`."""
    path = tmp_path / "replay.json"
    path.write_text(json.dumps({"results": results}))
    speculation: dict[str, Any] = {"method": "ngram", "acceptance": {"replay": str(path)}}
    return ask(speculation | ({} if k is None else {"num_speculative_tokens": k}))


def test_replay_takes_the_k_asked_for_and_positions_beyond_it_from_larger_k(tmp_path: Path) -> None:
    results = [result(2, 1000, 100, [50, 40]), result(4, 900, 80, [30, 24, 12, 6])]
    draws = replayed(tmp_path, results, 2)
    assert draws.median_survival[0, :4] == pytest.approx([0.5, 0.4, 0.2, 0.1])
    assert draws.median_draft_probability == pytest.approx(0.1)


def test_replay_without_the_k_asked_for_pools_all(tmp_path: Path) -> None:
    results = [result(1, 1000, 100, [50]), result(2, 900, 100, [40, 10])]
    draws = replayed(tmp_path, results, None)
    assert draws.median_survival[0, :2] == pytest.approx([90 / 200, 90 / 200 * 10 / 40])
    assert draws.median_draft_probability == pytest.approx(200 / 1900)


@pytest.mark.parametrize(
    ("results", "said"),
    [
        ([], "no results in"),
        (None, "no results in"),
        ([3], "lacks num_speculative_tokens"),
        ([{"num_speculative_tokens": 2, "steps": 5, "drafts": 3}], "lacks num_speculative_tokens, steps, drafts or"),
        ([result(2, 100, 50, [20])], "allowed: k positions, never increasing"),
        ([result(2, 100, 50, [20, 30])], "allowed: k positions, never increasing"),
        ([result(2, 40, 50, [20, 10])], "allowed: k positions, never increasing"),
        ([result(2, 40, 30, [-1, -2])], "as counts"),
        ([result(2, 0, 0, [0, 0])], "no decode step in"),
    ],
)
def test_replay_files_that_cannot_be_are_one_line(tmp_path: Path, results: Any, said: str) -> None:
    with pytest.raises(InputError) as caught:
        replayed(tmp_path, results, 2)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_replay_without_any_draft_says_that_lookup_never_drafts(tmp_path: Path) -> None:
    draws = replayed(tmp_path, [result(2, 4000, 0, [0, 0])], 2)
    assert draws.median_draft_probability == 0.0
    assert draws.draft_probability.max() < 0.01
    with pytest.raises(InputError, match="no draft in"):
        stated({"replay": str(tmp_path / "replay.json")}, "eagle3")


def test_what_a_replay_counted_as_worth_sets_the_width(tmp_path: Path) -> None:
    many, few = (
        {**result(2, 10_000, 5000, [2500, 1250]), "effective_drafts_per_position": [n, n / 2], "effective_steps": 2 * n}
        for n in (4000.0, 40.0)
    )
    wide, narrow = replayed(tmp_path, [few], 2), replayed(tmp_path, [many], 2)
    for draws, trials in ((wide, 40), (narrow, 4000)):
        assert draws.survival[:, 0].std() == pytest.approx((0.25 / trials) ** 0.5, rel=0.1)
        assert draws.draft_probability.std() == pytest.approx((0.25 / (2 * trials)) ** 0.5, rel=0.1)


def test_a_replay_of_other_settings_than_the_deployments_is_noted(tmp_path: Path) -> None:
    path = tmp_path / "replay.json"
    inputs = {"method": "ngram", "variant": "mrv2", "prompt_lookup_min": 2, "prompt_lookup_max": 4}
    path.write_text(json.dumps({"results": [result(2, 100, 50, [20, 10])], "inputs": inputs}))
    speculation = {"method": "ngram", "num_speculative_tokens": 2, "acceptance": {"replay": str(path)}}
    notes = " ".join(ask(speculation).notes)
    assert "matches of 2 to 4 tokens, the deployment's are of 5 to 5" in notes
    assert "n-gram search mrv2, this engine's is lps" in notes
    as_replayed = {**speculation, "prompt_lookup_min": 2, "prompt_lookup_max": 4}
    assert not [note for note in ask(as_replayed, variant="mrv2").notes if "replay" in note]


@pytest.mark.parametrize("content", ["{", "[" * 100_000, '{"results": NaN}', "[]", '"x"'])
def test_replay_files_that_are_no_replay_are_one_line(tmp_path: Path, content: str) -> None:
    path = tmp_path / "replay.json"
    path.write_text(content)
    with pytest.raises(InputError, match=r"replay: (no results in|'.*' is not JSON)"):
        stated({"replay": str(path)}, "ngram")


def test_more_requests_narrow_the_interval_and_centre_it_on_the_input() -> None:
    few, many = (stated({"per_position": CARD, "num_requests": number}) for number in (12, 100_000))
    assert spread(few, 3) > 5 * spread(many, 3)
    assert many.survival[:, :3].mean(axis=0) == pytest.approx(CARD, abs=2e-3)
    assert few.survival[:, :3].mean(axis=0) == pytest.approx(CARD, abs=0.02)


def test_without_a_number_of_requests_the_mean_length_is_known_to_six_percent() -> None:
    assert spread(stated({"per_position": CARD}), 3) / 2.30 == pytest.approx(0.06, abs=0.02)


def test_requests_that_differ_more_widen_the_interval() -> None:
    counters = {**COUNTERS, "ttft_count": 24}
    narrow, wide = (stated({"counters": counters, "heterogeneity": kappa}, "ngram") for kappa in (200, 3))
    assert spread(wide, 5) > 1.5 * spread(narrow, 5)


def pooled_lengths(num_requests: int, num_drafts: int, *, num_runs: int) -> np.ndarray:
    """Accepted tokens per draft of 3, pooled, of runs whose requests differ by Beta(0.64 * 12, 0.36 * 12)."""
    rng = np.random.default_rng(7)
    alpha = rng.beta(0.64 * 12, 0.36 * 12, (num_runs, num_requests))
    pooled = np.zeros((num_runs, 3))
    survivors = np.full(alpha.shape, num_drafts)
    for position in range(3):
        survivors = rng.binomial(survivors, alpha)
        pooled[:, position] = survivors.sum(axis=1)
    return np.asarray(pooled.sum(axis=1) / (num_requests * num_drafts))


def test_the_interval_is_the_scatter_of_simulated_runs_with_differing_requests() -> None:
    scatter = pooled_lengths(60, 80, num_runs=2000)
    mean, second, third = 0.64, 0.64 * 8.68 / 13, 0.64 * 8.68 / 13 * 9.68 / 14  # beta-geometric S_1..S_3
    counters = {
        "num_drafts": 4800,
        "num_accepted_tokens": 4800 * (mean + second + third),
        "num_accepted_tokens_per_pos": [4800 * mean, 4800 * second, 4800 * third],
    }
    draws = stated({"counters": counters, "num_requests": 60, "heterogeneity": 12})
    assert scatter.mean() == pytest.approx(mean + second + third, rel=0.01)
    assert spread(draws, 3) == pytest.approx(scatter.std(), rel=0.15)


def test_nothing_accepted_in_ten_drafts_is_not_never() -> None:
    counters = {"num_drafts": 10, "num_accepted_tokens": 0, "num_accepted_tokens_per_pos": [0, 0]}
    draws = stated({"counters": counters, "num_requests": 10})
    assert draws.survival[:, 0].mean() == pytest.approx(0.5 / 11, rel=0.1)  # Jeffreys
    assert draws.median_survival.max() == 0


def test_share_of_steps_with_a_draft_is_as_sure_as_the_steps_behind_it() -> None:
    counters = {"num_drafts": 1000, "num_accepted_tokens": 0, "num_draft_tokens": 5000, "itl_count": 10_000}
    alike = stated({"counters": counters, "num_requests": 10, "heterogeneity": 1e12}, "ngram")
    assert alike.draft_probability.std() == pytest.approx((0.1 * 0.9 / 10_000) ** 0.5, rel=0.1)
    # 10 requests of 1,000 steps at kappa 9 are worth 10,000 / (1 + 999 / 10) = 99 steps
    differing = stated({"counters": counters, "num_requests": 10, "heterogeneity": 9}, "ngram")
    assert differing.draft_probability.std() == pytest.approx((0.1 * 0.9 / 100) ** 0.5, rel=0.1)


def test_the_interval_grows_with_each_position_beyond_the_measured_ones() -> None:
    draws = stated({"per_position": CARD, "num_requests": 10**6}, output_tokens=10_000, k_max=8)
    relative = draws.survival.std(axis=0) / draws.survival.mean(axis=0)
    assert relative[2] < 0.01
    assert (np.diff(relative[2:]) > 0).all()
    assert relative[3] == pytest.approx(0.03, abs=0.006)


def test_parallel_drafters_are_extended_with_twice_the_spread_and_not_beyond_a_block() -> None:
    acceptance = {"per_position": [0.8, 0.6], "num_requests": 10**6}
    options: dict[str, Any] = {"k_max": 3, "output_tokens": 10_000}
    block, chain = stated(acceptance, "dflash", **options), stated(acceptance, "eagle3", **options)
    assert block.survival[:, 2].std() == pytest.approx(2 * chain.survival[:, 2].std(), rel=0.15)
    assert block.median_survival == pytest.approx(chain.median_survival)
    with pytest.raises(InputError, match=r"got 17 for dflash, allowed: to 16"):
        stated(acceptance, "dflash", k_max=17)
    with pytest.raises(InputError, match=r"got 20 for p_eagle"):
        ask({"method": "p_eagle"}, k_max=20)
    stated({"per_position": [0.5] * 20}, "dflash", k_max=20)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_a_prior_or_none(method: str) -> None:
    draws = ask({"method": method}, k_max=8)
    assert draws.survival.shape == (1000, 8)
    assert draws.draft_probability.shape == (1000, 1)
    assert draws.is_prior is (method != "none")
    assert method == "none" or method in draws.source
    assert (draws.median_draft_probability < 1) is (method in (*LOOKUP_METHODS, "none"))


def test_eagle3_prior_is_centred_on_live_traffic_and_is_wide() -> None:
    draws = ask({"method": "eagle3"})
    low, high = np.quantile(1 + draws.survival[:, :3].sum(axis=1), [0.05, 0.95])
    assert length(draws, 3) == pytest.approx(2.2, abs=0.03)
    assert low < 1.95
    assert high > 2.6
    assert "mixed text" in draws.source


def test_code_is_accepted_more_than_chat() -> None:
    lengths = {kind: length(ask({"method": "eagle3"}, kind=kind), 3) for kind in ("chat", "reasoning", "code")}
    assert lengths["chat"] < lengths["reasoning"] < lengths["code"]


def test_greedy_sampling_is_accepted_more_and_says_so() -> None:
    live, greedy = ask({"method": "eagle3"}, temperature=1.0), ask({"method": "eagle3"}, temperature=0)
    assert greedy.median_survival[0, 0] == pytest.approx(live.median_survival[0, 0] / 0.9)
    assert live.notes == ()
    assert "assumption" in greedy.notes[0]


def test_n_gram_prior_is_the_replayed_text() -> None:
    draws = ask({"method": "ngram", "prompt_lookup_max": 4}, kind="reasoning")
    assert draws.median_survival[0].sum() == pytest.approx(1.6)
    assert draws.draft_probability.mean() == pytest.approx(1.6 / 13.6, abs=0.01)
    assert draws.survival.sum(axis=1).std() == pytest.approx(0.35, abs=0.03)


def test_shorter_matches_draft_more_often_and_worse() -> None:
    exact = ask({"method": "ngram", "prompt_lookup_max": 4})
    loose = ask({"method": "ngram", "prompt_lookup_min": 2, "prompt_lookup_max": 4})
    ratio = loose.median_draft_probability / exact.median_draft_probability
    assert 2 < ratio < 4
    assert length(loose, 5) < length(exact, 5)


def test_longer_contexts_hold_more_matches() -> None:
    short, long = (ask({"method": "ngram", "prompt_lookup_max": 4}, input_tokens=n) for n in (500, 10_500))
    assert long.median_draft_probability > 2 * short.median_draft_probability
    assert long.median_survival == pytest.approx(short.median_survival)


def test_always_drafting_search_turns_misses_into_rejected_drafts() -> None:
    given_ = {"method": "ngram", "prompt_lookup_max": 4}
    classic, always = ask(given_), ask(given_, variant="mrv2")
    assert always.median_draft_probability == 1.0
    assert always.draft_probability.min() == 1.0
    assert always.median_survival == pytest.approx(classic.median_survival * classic.median_draft_probability)
    assert "rejected drafts" in always.notes[0]
    measured = stated({"per_position": [0.1, 0.05]}, "ngram", variant="mrv2")
    assert measured.median_survival[0, 0] == pytest.approx(0.1)
    assert measured.notes == ()


def test_no_drafted_tokens_is_an_empty_vector() -> None:
    assert ask({"method": "eagle3"}, k_max=0).survival.shape == (1000, 0)
    assert stated({"per_position": CARD}, k_max=0).median_survival.shape == (1, 0)
    assert stated({"rate": 0.4, "measured_at_k": 3}, k_max=0).survival.shape == (1000, 0)


def test_certain_acceptance_is_certain_at_the_point_values() -> None:
    assert length(stated({"per_position": [1.0, 1.0, 1.0]}), 5) == pytest.approx(6.0)
    assert length(stated({"rate": 1.0, "measured_at_k": 3}), 3) == pytest.approx(4.0)
    assert length(stated({"per_position": [0.0, 0.0]}), 5) == 1.0
    assert length(stated({"mean_length": 1.0, "measured_at_k": 3}), 5) == pytest.approx(1.0)


def test_equal_seeds_give_equal_draws() -> None:
    one, other = stated({"per_position": CARD}, seed=3), stated({"per_position": CARD}, seed=3)
    assert (one.survival == other.survival).all()


vectors = st.lists(st.floats(0, 1), min_size=1, max_size=8).map(lambda values: sorted(values, reverse=True))
forms = st.one_of(
    vectors.map(lambda values: {"per_position": values}),
    st.lists(st.floats(0, 1), min_size=1, max_size=8).map(lambda values: {"conditional": values}),
    st.tuples(st.floats(0, 1), st.integers(1, 8)).map(lambda pair: {"rate": pair[0], "measured_at_k": pair[1]}),
    st.tuples(st.floats(0, 1), st.integers(1, 8)).map(
        lambda pair: {"mean_length": 1 + pair[0] * pair[1], "measured_at_k": pair[1]}
    ),
)
extras = st.fixed_dictionaries(
    {},
    optional={
        "num_requests": st.integers(1, 10**6),
        "heterogeneity": st.floats(0.1, 1e4),
        "draft_probability": st.floats(0, 1),
    },
)


@settings(max_examples=60, deadline=None)
@given(forms, extras, st.sampled_from(["eagle3", "ngram", "mtp", "dflash"]), st.integers(0, 12))
def test_survival_never_increases_and_stays_a_share(
    form: dict[str, Any], extra: dict[str, Any], method: str, k_max: int
) -> None:
    draws = stated(form | extra, method, k_max=k_max)
    for survival in (draws.survival, draws.median_survival):
        assert np.isfinite(survival).all()
        assert ((survival >= 0) & (survival <= 1)).all()
        assert (np.diff(survival, axis=1) <= 1e-12).all()
    assert ((draws.draft_probability >= 0) & (draws.draft_probability <= 1)).all()
    assert 0 <= draws.median_draft_probability <= 1


@settings(max_examples=40, deadline=None)
@given(st.floats(0, 1), st.floats(0, 1), st.integers(1, 8), st.sampled_from(["eagle3", "ngram"]))
def test_a_higher_rate_never_lowers_survival(one: float, other: float, at_k: int, method: str) -> None:
    low, high = (
        stated({"rate": rate, "measured_at_k": at_k, "draft_probability": 1.0}, method) for rate in sorted((one, other))
    )
    assert (high.median_survival >= low.median_survival - 1e-9).all()


@settings(max_examples=20, deadline=None)
@given(vectors)
def test_draws_of_many_requests_are_near_the_input(values: list[float]) -> None:
    draws = stated({"per_position": values, "num_requests": 10**6}, k_max=len(values))
    assert draws.survival.mean(axis=0) == pytest.approx(values, abs=5e-3)


def test_a_lookup_counted_at_one_length_drafts_less_often_when_drafts_are_longer() -> None:
    # odds(p_k) = odds(p_5) (1 + a_5) / (1 + a_k): eq. L1. The counters' share is theirs at k = 5.
    found = ask({"method": "ngram", "num_speculative_tokens": 5, "acceptance": {"counters": COUNTERS}}, k_max=8)
    odds = [own.median_draft_probability / (1.0 - own.median_draft_probability) for own in found.by_length]
    accepted = [float(own.median_survival.sum()) for own in found.by_length]
    assert found.by_length[4].median_draft_probability == pytest.approx(1242 / 3675)
    assert [o * (1.0 + a) for o, a in zip(odds, accepted, strict=True)] == pytest.approx(
        [odds[4] * (1 + 2462 / 1242)] * 8
    )
    assert [own.survival.shape[1] for own in found.by_length] == list(range(1, 9))


def test_a_share_belongs_to_the_length_it_was_stated_at() -> None:
    scalar = {"mean_length": 2.5, "measured_at_k": 3, "draft_probability": 0.4}
    held = {"conditional": [0.5], "draft_probability": 0.4}
    counted = {"conditional": [0.5] * 6, "draft_probability": 0.4}
    for stated, length in ((scalar, 3), (held, 5), (counted, 6)):
        found = ask({"method": "ngram", "num_speculative_tokens": 5, "acceptance": stated}, k_max=2)
        wider = ask({"method": "ngram", "num_speculative_tokens": 5, "acceptance": stated}, k_max=8)
        assert wider.for_length(length).median_draft_probability == pytest.approx(0.4)
        assert found.for_length(2).median_draft_probability == pytest.approx(
            wider.for_length(2).median_draft_probability
        )
        assert found.for_length(2).median_draft_probability > 0.4


def test_the_priors_share_is_that_of_drafts_of_five_and_says_its_own_length() -> None:
    found = ask({"method": "ngram"}, k_max=8)
    alone = ask({"method": "ngram"}, k_max=5)
    assert found.for_length(5).median_draft_probability == pytest.approx(alone.median_draft_probability)
    assert "at k = 3" in found.for_length(3).source
    assert found.for_length(1).median_draft_probability > found.for_length(8).median_draft_probability
