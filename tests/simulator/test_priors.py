"""Model parameters as random variables: values by hand, what fits and the deployment file replace, and the draws."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwmodel.errors import InputError, UnknownNameError
from hwmodel.parameters import PARAMETER_NAMES, si_name
from simulator.deployment import load_deployment
from simulator.parameters import Prior, PriorSet, prior_set, standard_draws, with_user_values

GENERAL = {"sm_arch": "unheard-of", "interconnect": "none", "engine": "unheard-of", "attention_backend": "UNHEARD_OF"}


def priors(**kind: str) -> PriorSet:
    """The priors of a machine that is nothing special but for `kind`."""
    return prior_set(**{**GENERAL, **kind})


def at(prior: Prior, z: float) -> float:
    """The parameter in SI units at one coordinate."""
    return float(prior.values(np.array([z]))[0])


def test_what_an_expert_adds_is_that_of_its_format_where_it_was_measured() -> None:
    def issue_us(sm_arch: str, expert_format: str) -> float:
        return priors(sm_arch=sm_arch, expert_format=expert_format)["expert_issue_us"].center

    assert [issue_us("9.0", name) for name in ("int4", "bf16", "fp8", "")] == [0.33, 1.2, 1.2, 1.2]
    assert issue_us("8.0", "bf16") == issue_us("9.0", "bf16")
    assert issue_us("8.0", "int4") == issue_us("8.9", "bf16") == 0.2


def test_lognormal_is_its_median_at_zero_and_a_factor_away_at_one() -> None:
    prior = Prior("kernel_floor_us", 2.0, 0.5, "lognormal", 0.0, 50.0, "by hand")
    assert at(prior, 0.0) == pytest.approx(2e-6)
    assert at(prior, 1.0) == pytest.approx(2e-6 * math.exp(0.5))
    assert at(prior, -2.0) == pytest.approx(2e-6 * math.exp(-1.0))


def test_normal_is_its_mean_at_zero_and_a_difference_away_at_one() -> None:
    prior = Prior("popularity_sigma", 0.9, 0.35, "normal", 0.01, 2.0, "by hand")
    assert at(prior, 0.0) == pytest.approx(0.9)
    assert at(prior, 1.0) == pytest.approx(1.25)


def test_values_stop_at_the_bounds_in_the_units_of_the_file() -> None:
    prior = Prior("host_step_ms", 10.0, 1.0, "lognormal", 5.0, 20.0, "by hand")
    assert at(prior, 9.0) == pytest.approx(0.020)
    assert at(prior, -9.0) == pytest.approx(0.005)


def test_switch_is_on_in_its_share_of_the_draws_and_at_the_median_where_more_likely() -> None:
    prior = Prior("verify_path_applies", 0.7, 0.0, "switch", 0.0, 1.0, "by hand")
    z = np.linspace(-4.0, 4.0, 8001)
    density = np.exp(-(z**2) / 2)
    values = prior.values(z)
    assert set(values) == {0.0, 1.0}
    assert (values * density).sum() / density.sum() == pytest.approx(0.7, abs=0.002)
    assert at(prior, 0.0) == 1.0


@pytest.mark.parametrize(("probability", "value"), [(0.0, 0.0), (1.0, 1.0)])
def test_certain_switch_has_one_value_everywhere(probability: float, value: float) -> None:
    prior = Prior("verify_path_applies", probability, 0.0, "switch", 0.0, 1.0, "by hand")
    assert set(prior.values(np.linspace(-8.0, 8.0, 17))) == {value}


def test_every_parameter_of_the_cost_model_has_one_prior_with_a_source_and_a_median_in_bounds() -> None:
    known = priors().priors
    assert sorted(si_name(p.name)[0] for p in known) == sorted(PARAMETER_NAMES)
    for prior in known:
        assert prior.source, prior.name
        assert prior.low <= prior.center <= prior.high, prior.name
        assert prior.spread >= 0.0, prior.name
        assert prior.kind in ("lognormal", "normal", "switch"), prior.name


def test_medians_are_the_centers_in_si_units() -> None:
    known = priors()
    medians = known.parameters(known.medians())
    for prior in known.priors:
        if prior.kind != "switch":
            name, factor = si_name(prior.name)
            assert np.shape(getattr(medians, name)) == (1, 1), name
            assert float(getattr(medians, name)[0, 0]) == pytest.approx(prior.center * factor), name


def test_draws_of_each_parameter_are_a_column_of_their_own() -> None:
    known = priors()
    z = np.zeros((3, len(known.priors)))
    z[1, [p.name for p in known.priors].index("host_step_ms")] = 1.0
    host_step_s = np.asarray(known.parameters(z).host_step_s)
    kernel_floor_s = np.asarray(known.parameters(z).kernel_floor_s)
    assert host_step_s.shape == (3, 1)
    assert host_step_s[1, 0] > host_step_s[0, 0] == host_step_s[2, 0]
    assert np.ptp(kernel_floor_s) == 0.0


@pytest.mark.parametrize(
    ("kind", "name", "median"),
    [
        ({"sm_arch": "12.0"}, "expert_compute_efficiency", 0.33),
        ({"sm_arch": "9.0"}, "expert_compute_efficiency", 0.7),
        ({"interconnect": "nvswitch"}, "allreduce_skew_us", 2.0),
        ({"engine": "sglang"}, "draft_pass_ms", 0.14),
        ({"engine": "vllm"}, "draft_pass_ms", 0.65),
        ({"attention_backend": "TRITON_MLA"}, "verify_kv_share", 0.67),
    ],
)
def test_fitted_medians_replace_the_general_ones(kind: dict[str, str], name: str, median: float) -> None:
    assert priors(**kind)[name].center == median


def test_fitted_medians_keep_the_spread_of_the_general_prior() -> None:
    assert priors(sm_arch="12.0")["expert_compute_efficiency"].spread == priors()["expert_compute_efficiency"].spread


def test_number_in_the_file_fixes_a_parameter() -> None:
    fixed = with_user_values(priors(), {"host_step_ms": 1.25})["host_step_ms"]
    assert [at(fixed, z) for z in (-3.0, 0.0, 3.0)] == pytest.approx([1.25e-3] * 3)
    assert fixed.source == "deployment file"


def test_zero_in_the_file_switches_a_cost_off() -> None:
    off = with_user_values(priors(), {"synchronous_step_ms": 0})["synchronous_step_ms"]
    assert [at(off, z) for z in (-2.0, 0.0, 2.0)] == [0.0, 0.0, 0.0]


def test_median_and_log_sd_in_the_file_replace_a_prior_even_a_normal_one() -> None:
    replaced = with_user_values(priors(), {"stickiness": {"median": 0.1, "log_sd": 0.2}})["stickiness"]
    assert at(replaced, 1.0) == pytest.approx(0.1 * math.exp(0.2))


def test_prior_of_a_loaded_deployment_is_read_as_one_of_a_mapping() -> None:
    tables = {"model": {"config": "x"}, "hardware": {"gpu": "y"}}
    stated = {"parameters": {"host_step_ms": {"median": 2.0, "log_sd": 0.1}}}
    deployment = load_deployment({**tables, **stated})
    assert at(with_user_values(priors(), deployment.parameters)["host_step_ms"], 1.0) == pytest.approx(
        2e-3 * math.exp(0.1)
    )


def test_probability_of_a_switch_can_be_stated() -> None:
    switched = with_user_values(priors(), {"verify_path_applies": 0.0})["verify_path_applies"]
    assert at(switched, 0.0) == 0.0
    assert at(switched, -5.0) == 0.0


def test_only_the_named_prior_changes() -> None:
    before, after = priors(), with_user_values(priors(), {"host_step_ms": 1.25})
    assert [p for p in after.priors if p.name != "host_step_ms"] == [
        p for p in before.priors if p.name != "host_step_ms"
    ]


def test_unknown_parameter_is_refused_in_one_line_with_the_nearest_name() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'host_step_ms'") as raised:
        with_user_values(priors(), {"host_stepp_ms": 1.0})
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "value", [1.5, -0.1, {"median": 7.0, "log_sd": 0.1}], ids=["too large", "negative", "median too large"]
)
def test_value_beyond_the_bounds_is_refused_in_one_line_with_the_bounds(value: object) -> None:
    with pytest.raises(InputError, match=r"parameters.bandwidth_efficiency: got .*, allowed 0.2 to 1") as raised:
        with_user_values(priors(), {"bandwidth_efficiency": value})
    assert "\n" not in str(raised.value)


def test_zero_median_with_a_spread_is_refused() -> None:
    with pytest.raises(InputError, match="give the number alone"):
        with_user_values(priors(), {"host_step_ms": {"median": 0.0, "log_sd": 0.3}})


@pytest.mark.parametrize("num_draws", [1, 2, 7, 500])
def test_standard_draws_have_the_asked_shape(num_draws: int) -> None:
    assert standard_draws(num_draws, 3, np.random.default_rng(0)).shape == (num_draws, 3)


def test_an_even_number_of_standard_draws_is_centred_exactly() -> None:
    drawn = standard_draws(500, 4, np.random.default_rng(1))
    assert np.sort(drawn, axis=0) == pytest.approx(np.sort(-drawn, axis=0))
    assert np.median(drawn, axis=0) == pytest.approx(np.zeros(4), abs=1e-12)


def test_standard_draws_are_standard_and_repeat_with_the_seed() -> None:
    drawn = standard_draws(4000, 2, np.random.default_rng(2))
    assert drawn.std(axis=0) == pytest.approx(np.ones(2), abs=0.04)
    assert abs(float(np.mean(drawn[:, 0] * drawn[:, 1]))) < 0.05
    assert np.array_equal(drawn, standard_draws(4000, 2, np.random.default_rng(2)))


@given(st.lists(st.floats(-9.0, 9.0), min_size=2, max_size=8))
def test_values_rise_with_the_coordinate_within_the_bounds(coordinates: list[float]) -> None:
    for prior in priors().priors:
        if prior.kind == "switch":
            continue
        factor = si_name(prior.name)[1]
        values = prior.values(np.array(sorted(coordinates)))
        assert all(b >= a for a, b in pairwise(values)), prior.name
        assert values.min() >= prior.low * factor * (1 - 1e-12)
        assert values.max() <= prior.high * factor * (1 + 1e-12)
