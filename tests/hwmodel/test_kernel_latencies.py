"""The step model's operators, at the centres of the priors, against published kernel latencies of one GPU.

Some constants of data/fits were chosen with rows of these tables in view (their comments say which), so this guards
how operators are composed of them; it is no independent measure of accuracy.
"""

import math
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hwmodel.collectives import zero_curve
from hwmodel.gpus import load_gpu
from hwmodel.models import load_model
from hwmodel.parameters import Parameters, fitted_values, prior_table, si_name
from hwmodel.rank import Parallelism, RankWork, rank_work
from hwmodel.roofline import operator_time_s
from hwmodel.step import Machine, cache_time_s, decode_batch, floors_s, forward_parts
from hwmodel.units import US

_FILE = Path(__file__).parent.parent / "data" / "kernels" / "rtx-pro-6000.toml"
DATA = tomllib.loads(_FILE.read_text(encoding="utf-8"))
GPU = load_gpu(DATA["gpu"])
MEDIAN_ERROR_ALLOWED = 0.20


def prior_centres(attention_backend: str) -> Parameters:
    """The centre of every prior for this GPU, in SI units."""
    fits = fitted_values()
    fitted: dict[str, float] = fits["gpu"][GPU.sm_arch] | fits["backend"].get(attention_backend, {})
    values = {}
    for name, row in prior_table().items():
        centre = next(row[key] for key in ("median", "mean", "probability") if key in row)
        si, factor = si_name(name)
        values[si] = fitted.get(name, centre) * factor
    return Parameters(**values)


P = prior_centres(DATA["mla"]["attention_backend"])
BYTES_PER_S = P.bandwidth_efficiency * GPU.memory_bandwidth_bytes_per_s
MACHINE = Machine(
    gpu=GPU,
    parallel=Parallelism(tensor=DATA["mla"]["tensor_parallel_size"]),
    allreduce=zero_curve(),
    interconnect=GPU.interconnect,
    attention_backend=DATA["mla"]["attention_backend"],
    dense_format="bf16",
)


def kimi_work(table: Mapping[str, Any]) -> RankWork:
    return rank_work(load_model(table["model"]), Parallelism(tensor=table["tensor_parallel_size"]), 2.0)


def relative_error(model_s: float, measured_us: float) -> float:
    return model_s / (measured_us * US) - 1.0


def marlin_errors() -> list[float]:
    """One call of the routed experts: weights read against rows in whole tiles of 8, and a floor for each kernel."""
    table = DATA["marlin"]
    (moe,) = kimi_work(table).moe
    rate = P.expert_compute_efficiency * MACHINE.flop_per_s(moe.weight_format)
    errors = []
    for tokens, measured_us in zip(table["tokens"], table["latency_us"], strict=True):
        distinct = min(moe.num_experts, moe.num_experts_per_tok * tokens)
        tiles_each = math.ceil(moe.num_experts_per_tok * tokens / distinct / 8)
        flop = 2.0 * distinct * tiles_each * 8 * moe.expert_parameters
        work_s = operator_time_s(distinct * moe.expert_bytes, BYTES_PER_S, flop, rate, MACHINE.gemm_exponent)
        errors.append(relative_error(work_s + table["kernels"] * P.kernel_floor_s, measured_us))
    return errors


def one_mla_block() -> RankWork:
    """Kimi's attention of one layer on one rank, with the kernels that the model counts for it."""
    whole = kimi_work(DATA["mla"])
    layers = whole.num_layers
    return replace(
        whole,
        attention_bytes=whole.attention_bytes / layers,
        attention_parameters=whole.attention_parameters / layers,
        cache=(replace(whole.cache[0], num_layers=1),),
        moe=(),
        num_layers=1,
        num_attention_calls=1,
        num_kernels=fitted_values()["kernels"]["mla"],
        num_collectives=0,
    )


def mla_errors() -> list[float]:
    """One attention block: projections, cache, and the floors of its kernels."""
    table, work = DATA["mla"], one_mla_block()
    errors = []
    for sequences, latencies_us in table["latency_us"].items():
        for context, measured_us in zip(table["context_tokens"], latencies_us, strict=False):
            count = np.array([float(sequences)])
            batch = decode_batch(count, count, [1.0], float(context), count)
            projections = forward_parts(work, MACHINE, batch, P)["attention"]
            block_s = projections + cache_time_s(work, MACHINE, batch, P) + floors_s(work, MACHINE, batch, P)
            errors.append(relative_error(float(np.ravel(block_s)[0]), measured_us))
    return errors


def gemv_errors(name: str) -> list[float]:
    """One BF16 matrix: its bytes, its FLOP, the floor of one kernel."""
    matrix = DATA["gemv"]["matrix"][name]
    parameters = matrix["n"] * matrix["k"]
    rate = P.dense_compute_efficiency * MACHINE.flop_per_s("bf16")
    errors = []
    for rows, measured_us in zip(DATA["gemv"]["rows"], matrix["latency_us"], strict=True):
        flop = 2.0 * parameters * rows
        work_s = operator_time_s(2.0 * parameters, BYTES_PER_S, flop, rate, MACHINE.gemm_exponent)
        errors.append(relative_error(work_s + P.kernel_floor_s, measured_us))
    return errors


MATRICES = list(DATA["gemv"]["matrix"])
FAMILIES = {
    "marlin": marlin_errors,
    "mla": mla_errors,
    "gemv": lambda: [error for name in MATRICES for error in gemv_errors(name)],
}


@pytest.mark.parametrize("family", FAMILIES)
def test_half_of_a_family_s_kernels_are_within_a_fifth_of_what_was_measured(family: str) -> None:
    assert np.median(np.abs(FAMILIES[family]())) <= MEDIAN_ERROR_ALLOWED


def test_half_of_all_kernels_are_within_a_tenth() -> None:
    errors = [error for errors in FAMILIES.values() for error in errors()]
    assert len(errors) == 14 + 19 + 49
    assert np.median(np.abs(errors)) <= MEDIAN_ERROR_ALLOWED / 2


@pytest.mark.parametrize("family", ["marlin", "mla"])
def test_the_kernels_that_a_step_spends_its_time_in_are_unbiased_and_never_far_off(family: str) -> None:
    errors = np.array(FAMILIES[family]())
    assert abs(errors.mean()) < 0.05
    assert np.abs(errors).max() < 0.15


@pytest.mark.parametrize("name", ["lm_head", "square_8192", "wide_51200"])
def test_matrices_larger_than_the_cache_are_read_at_the_modelled_rate(name: str) -> None:
    matrix = DATA["gemv"]["matrix"][name]
    assert 2.0 * matrix["n"] * matrix["k"] >= 0.99 * GPU.l2_bytes
    assert np.abs(gemv_errors(name)).max() <= 0.12


def test_the_output_projection_was_measured_from_the_cache_and_not_from_memory() -> None:
    # Its rows are in the family above all the same; what the step model needs is the time from memory.
    matrix = DATA["gemv"]["matrix"]["o_proj"]
    measured_bytes_per_s = 2.0 * matrix["n"] * matrix["k"] / (min(matrix["latency_us"]) * US)
    assert measured_bytes_per_s > GPU.memory_bandwidth_bytes_per_s
    assert min(gemv_errors("o_proj")) > 0.3


def test_marlin_below_eight_tokens_is_left_out_because_the_cache_holds_it() -> None:
    (moe,) = kimi_work(DATA["marlin"]).moe
    bytes_per_token = moe.num_experts_per_tok * moe.expert_bytes
    assert min(DATA["marlin"]["tokens"]) == 8
    assert 4 * bytes_per_token < GPU.l2_bytes < 8 * bytes_per_token
