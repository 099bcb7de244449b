"""The parameter tables: every quantity has a prior, a source and a unit; every GPU card its fitted values."""

from dataclasses import fields

import numpy as np
import pytest

from hwmodel.gpus import gpu_names, load_gpu
from hwmodel.interconnects import interconnect_names
from hwmodel.parameters import PARAMETER_NAMES, Parameters, fitted_values, prior_table, si_name

NAMES = sorted(prior_table())


def with_routing(sigma: object, stickiness: object, memory: object) -> Parameters:
    values: dict[str, object] = dict.fromkeys(PARAMETER_NAMES, 0.0)
    return Parameters(**(values | {"popularity_sigma": sigma, "stickiness": stickiness, "routing_memory": memory}))


@pytest.mark.parametrize(
    ("file_name", "si", "factor"),
    [
        ("kernel_floor_us", "kernel_floor_s", 1e-6),
        ("host_step_ms", "host_step_s", 1e-3),
        ("memory_reserve_gb", "memory_reserve_bytes", 1e9),
        ("stickiness", "stickiness", 1.0),
    ],
)
def test_file_keys_turn_into_si_names_and_factors(file_name: str, si: str, factor: float) -> None:
    assert si_name(file_name) == (si, factor)


def test_there_is_one_prior_for_every_parameter_and_no_other() -> None:
    assert sorted(si_name(name)[0] for name in NAMES) == sorted(PARAMETER_NAMES)
    assert tuple(f.name for f in fields(Parameters) if f.name != "residual") == PARAMETER_NAMES


@pytest.mark.parametrize("name", NAMES)
def test_every_prior_says_what_it_means_and_where_it_comes_from(name: str) -> None:
    row = prior_table()[name]
    assert row["meaning"]
    assert len(row["source"]) > 8


@pytest.mark.parametrize("name", NAMES)
def test_every_prior_has_one_centre_within_its_bounds_and_a_spread(name: str) -> None:
    row = prior_table()[name]
    centres = [row[key] for key in ("median", "mean", "probability") if key in row]
    assert len(centres) == 1
    assert row["low"] <= centres[0] <= row["high"]
    spread = {"median": "log_sd", "mean": "sd"}
    for centre, width in spread.items():
        assert (centre in row) == (width in row)
        assert row.get(width, 1.0) > 0


@pytest.mark.parametrize("table", ["gpu", "interconnect", "engine", "backend"])
def test_fitted_medians_replace_known_parameters_within_their_bounds(table: str) -> None:
    for key, medians in fitted_values()[table].items():
        for name, value in medians.items():
            if name in ("gemm_exponent", "growth_error_scale"):  # no priors
                assert value >= 1.0, key
            else:
                assert prior_table()[name]["low"] <= value <= prior_table()[name]["high"], (key, name)


def test_every_gpu_card_has_fitted_values_for_its_architecture() -> None:
    missing = {load_gpu(name).sm_arch for name in gpu_names()} - set(fitted_values()["gpu"])
    assert not missing


def test_fitted_interconnects_are_known_classes() -> None:
    assert set(fitted_values()["interconnect"]) <= set(interconnect_names())


def test_the_centres_of_the_specification_s_one_prior_table() -> None:
    # docs/model.md, correction 5.
    table = prior_table()
    assert table["bandwidth_efficiency"]["median"] == pytest.approx(0.78, abs=0.03)
    assert (table["popularity_sigma"]["mean"], table["popularity_sigma"]["sd"]) == (0.9, 0.35)
    assert (table["stickiness"]["mean"], table["stickiness"]["sd"]) == (0.20, 0.08)
    assert (table["routing_memory"]["median"], table["routing_memory"]["log_sd"]) == (6.5, 0.5)
    assert (table["synchronous_step_ms"]["median"], table["synchronous_step_ms"]["log_sd"]) == (1.5, 0.6)
    assert (table["speculation_step_ms"]["median"], table["speculation_step_ms"]["log_sd"]) == (0.3, 0.7)
    assert (table["model_error"]["median"], table["model_error"]["log_sd"]) == (0.05, 0.4)
    assert table["draft_pass_ms"]["log_sd"] == 0.25  # 0.4 before the fit of published runs


def test_what_the_engines_pay_per_draft_pass() -> None:
    # Fit of published runs; docs/model.md, correction 5, before it: SGLang 0.25 ms, vLLM 0.8 ms.
    engines = fitted_values()["engine"]
    assert (engines["sglang"]["draft_pass_ms"], engines["vllm"]["draft_pass_ms"]) == (0.14, 0.65)


def test_verification_reads_two_thirds_of_the_cache_again_with_triton_mla_and_a_sixth_elsewhere() -> None:
    assert fitted_values()["backend"]["TRITON_MLA"]["verify_kv_share"] == 0.67
    assert prior_table()["verify_kv_share"]["median"] == 0.17


def test_independent_routing_keeps_popularity_and_forgets_the_rest() -> None:
    drawn = np.array([[0.1], [0.3]])
    independent = with_routing(0.9, drawn, np.array([[5.0], [7.0]])).independent_routing
    assert independent.popularity_sigma == 0.9
    assert np.array_equal(independent.stickiness, np.zeros((2, 1)))
    assert np.all(np.asarray(independent.routing_memory) >= 1e5)


def test_routing_is_made_once() -> None:
    parameters = with_routing(0.9, 0.2, 6.5)
    assert parameters.routing is parameters.routing
    assert parameters.routing.columns.ravel() == pytest.approx([0.9, 0.2, np.log(6.5)])
