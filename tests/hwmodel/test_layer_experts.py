"""The time of a counted expert load is that of the expected one where the two are equal."""

import dataclasses

import numpy as np
import pytest

from hwmodel.collectives import allreduce_curve
from hwmodel.gpus import load_gpu
from hwmodel.models import load_model
from hwmodel.parameters import Parameters
from hwmodel.rank import Parallelism, rank_work
from hwmodel.step import Machine, decode_batch, experts_time_s, layer_experts_time_s, layer_load, tile_rows

GPU = load_gpu("h200")
P = Parameters(**{field.name: 0.5 for field in dataclasses.fields(Parameters)})


@pytest.mark.parametrize("expert_parallel", [False, True])
@pytest.mark.parametrize("sequences", [1.0, 16.0, 256.0])
def test_a_counted_load_costs_what_the_formula_says_of_it(expert_parallel, sequences):
    parallel = Parallelism(tensor=8, expert_parallel=expert_parallel)
    machine = Machine(GPU, parallel, allreduce_curve(GPU, 8, "nvswitch"), "nvswitch", "FLASHMLA", "bf16")
    work = rank_work(load_model("kimi-k2.5-int4"), parallel, 2.0)
    batch = decode_batch(sequences, sequences, np.array([2.0]), 1000.0, 2 * sequences)
    (moe,) = work.moe
    load = layer_load(moe, batch, P, 1)
    busiest, distinct, rows = (float(x[0, 0]) for x in (load.busiest_rank, load.distinct, load.padded_rows))
    share = busiest / distinct if expert_parallel else 1.0
    seconds = float(np.ravel(layer_experts_time_s(moe, machine, P, busiest, rows * share))[0])
    assert seconds * moe.num_layers == pytest.approx(float(experts_time_s(work, machine, batch, P)[0, 0]))


def test_tiles_are_those_of_the_weight_format():
    int4, bf16 = (rank_work(load_model(m), Parallelism(), 2.0).moe[0] for m in ("kimi-k2.5-int4", "qwen3-30b-a3b-bf16"))
    assert (tile_rows(int4), tile_rows(bf16)) == (8, 16)
