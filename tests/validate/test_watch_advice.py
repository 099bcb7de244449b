"""The comparison behind a watch: lengths against each other, and what the intervals hold."""

import numpy as np
import pytest

from calibration.records import AcceptanceCounts
from simulator.deployment import load_deployment
from validate.watch.advice import Asked, UnknownError, acceptance_now, advice_for, deployed_length
from validate.watch.traffic import Traffic

NGRAM = {
    "model": {"config": "qwen3-30b-a3b-bf16"},
    "hardware": {"gpu": "h200"},
    "engine": {"version": "0.32.0"},
    "speculation": {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4},
}


def traffic(**changes):
    counts = AcceptanceCounts(1000.0, (800.0, 700.0, 650.0, 600.0, 550.0), 5000.0, 2000.0, 50.0)
    given = {
        "num_speculative_tokens": 5, "concurrency": 8.0, "running_mean": 8.0, "waiting": 0.0, "input_tokens": 500.0,
        "output_tokens": 200.0, "prefix_hit_share": 0.0, "tokens_per_step": 2.65, "step_s": 0.02,
        "tpot_s": 0.02 / 2.65, "relative_noise": 0.04, "throughput_tokens_per_s": 1000.0, "steps": 2000.0,
        "num_requests": 50.0, "acceptance": counts, "acceptance_source": "window", "draft_probability": 0.5,
        "kv_cache_tokens": None,
    }  # fmt: skip
    return Traffic(**(given | changes))


def advice(deployment=NGRAM, asked=None, **changes):
    return advice_for(load_deployment(deployment), traffic(**changes), asked or Asked(None, 400))


def test_the_deployed_length_is_exactly_as_good_as_itself_and_gains_are_chained():
    found = advice()
    assert set(found.over(5, 5)) == {1.0}
    assert found.over(2, 5) * found.over(5, 1) == pytest.approx(found.over(2, 1))
    assert found.probability_better(5) == 0.0


def test_the_further_from_the_deployed_length_the_wider_the_interval():
    found = advice()
    widths = [np.std(np.log(found.over(k, 5))) for k in (4, 2, 0)]
    assert widths == sorted(widths)
    assert np.std(np.log(found.over(8, 5))) > np.std(np.log(found.over(6, 5)))


def test_the_error_of_a_comparison_does_not_hang_on_what_else_is_compared():
    few, many = advice(asked=Asked((8,), 400)), advice()
    assert few.over(8, 5) == pytest.approx(many.over(8, 5))


def test_what_the_model_misses_of_a_longer_step_is_in_the_interval():
    """Half-width of a 90 % interval of published pairs from k = 5 to 8: 1.64 x 0.06 sqrt(ln 9/6)."""
    sure = AcceptanceCounts(1e6, (9e5, 8.1e5, 7.3e5, 6.6e5, 5.9e5), 5e6, 2e6, 5e4)
    band = advice(acceptance=sure, num_requests=5e4).figures(8)
    assert np.log(band["p95"] / band["p05"]) / 2 > 0.055


def test_an_unfitted_chip_has_a_wide_interval_until_a_profile_is_given():
    cpu = NGRAM | {"hardware": {"gpu": "cpu-2core", "num_gpus": 1}, "engine": {"version": "0.32.0"},
                   "model": {"config": "qwen3-0.6b-bf16"}}  # fmt: skip
    widths = [np.std(np.log(advice(deployment).over(6, 5))) for deployment in (NGRAM, cpu)]
    assert widths[1] > 2 * widths[0]


def test_fewer_drafts_make_the_interval_wider():
    few = AcceptanceCounts(40.0, (32.0, 28.0, 26.0, 24.0, 22.0), 200.0, 80.0, 4.0)
    sure, unsure = advice(), advice(acceptance=few, num_requests=4.0)
    assert np.std(np.log(unsure.over(8, 5))) > 1.1 * np.std(np.log(sure.over(8, 5)))


def test_requests_that_differ_make_few_requests_worth_less_than_many():
    acceptance, _ = acceptance_now(load_deployment(NGRAM), traffic(num_requests=3.0), 5)
    assert acceptance.num_requests == 3
    many, few = advice(num_requests=500.0), advice(num_requests=3.0)
    assert np.std(np.log(few.over(8, 5))) > np.std(np.log(many.over(8, 5)))


def test_a_load_between_two_whole_ones_is_between_them():
    low, mid, high = (float(np.median(advice(concurrency=c).over(0, 5))) for c in (8.0, 8.5, 9.0))
    assert min(low, high) - 0.01 <= mid <= max(low, high) + 0.01


def test_a_schedule_says_what_drafts_at_this_load():
    deployment = load_deployment(NGRAM | {"speculation": {"method": "ngram", "num_speculative_tokens": 5,
                                                          "schedule": [[1, 4, 5], [5, 64, 2]]}})  # fmt: skip
    assert [deployed_length(deployment, traffic(concurrency=c)) for c in (3.0, 12.0)] == [5, 2]


def test_what_the_server_shows_wins_over_the_file():
    deployment = load_deployment(NGRAM)
    assert deployed_length(deployment, traffic(num_speculative_tokens=3)) == 3
    assert deployed_length(deployment, traffic(num_speculative_tokens=None)) == 5


def test_a_length_that_nobody_tells_is_asked_for():
    deployment = load_deployment(NGRAM | {"speculation": {"method": "ngram"}})
    with pytest.raises(UnknownError, match="num_speculative_tokens=N"):
        deployed_length(deployment, traffic(num_speculative_tokens=None))


def test_positions_that_a_racing_counter_put_out_of_order_are_levelled():
    counts = AcceptanceCounts(100.0, (60.0, 61.0, 40.0), 300.0, 99.5, 5.0)
    acceptance, _ = acceptance_now(load_deployment(NGRAM), traffic(acceptance=counts), 3)
    assert acceptance.counters["num_accepted_tokens_per_pos"] == [60.0, 60.0, 40.0]
    assert acceptance.counters["itl_count"] == 100.0


def test_nothing_accepted_and_nothing_ever_drafted_are_no_fault():
    never = AcceptanceCounts(500.0, (0.0,) * 5, 2500.0, 1000.0, 20.0)
    found = advice(acceptance=never, tokens_per_step=1.0, tpot_s=0.02)
    assert found.best == 0
    with pytest.raises(UnknownError, match="too few drafts"):
        advice(acceptance=None, acceptance_source=None, tokens_per_step=1.0, tpot_s=0.02)


def test_a_tree_or_chain_of_sglang_is_known_by_its_mean_length():
    eagle = {**NGRAM, "engine": {"name": "sglang", "version": "0.5.23"}, "speculation": {"method": "eagle3"}}
    found = advice(eagle, num_speculative_tokens=3, acceptance=None, acceptance_source=None, draft_probability=None)
    assert found.acceptance_source == "tokens per step of this interval"
    assert found.deployed == 3
