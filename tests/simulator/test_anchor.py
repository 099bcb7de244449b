"""A time measured with drafts on: the model takes it, says less about what it did not see, and keeps its baseline."""

import numpy as np
import pytest

from simulator.anchor import DraftedFact
from simulator.closed_form import Cell
from simulator.deployment import load_deployment
from simulator.study import build_study

K = 3
SERVER = {
    "model": {"config": "qwen3-30b-a3b-bf16"},
    "hardware": {"gpu": "h200"},
    "speculation": {"method": "eagle3", "num_speculative_tokens": K, "acceptance": {"per_position": [0.6, 0.3, 0.1]}},
    "workload": {"concurrency": [8], "input_tokens": 500, "output_tokens": 200},
}


def fact(tpot_s, noise=0.03, tokens=2.0):
    return DraftedFact(K, 8.0, None, 1.0, tokens, tpot_s, noise)


@pytest.fixture(scope="module")
def server():
    return load_deployment(SERVER)


def times(server, drafted=None):
    study = build_study(server, k_max=K, num_draws=400, drafted=drafted)
    grid = study.grid([Cell(0, 8), Cell(K, 8)], point=False)
    return grid.speculative.tpot_s[:, 1], grid.baseline.tpot_s[:, 0], study


def test_the_time_is_moved_to_what_was_measured_and_is_surer(server):
    free, _, _ = times(server)
    measured_s = 1.15 * float(np.median(free))
    held, _, study = times(server, fact(measured_s))
    assert np.median(held) == pytest.approx(1.15 * np.median(free), rel=0.03)
    assert np.std(np.log(held)) < 0.6 * np.std(np.log(free))
    assert np.all(np.abs(study.posterior.residuals) < 1)


def test_a_slower_drafted_step_makes_the_baseline_slower_too(server):
    free, base, _ = times(server)
    median_s = float(np.median(free))
    _, slow, _ = times(server, fact(1.2 * median_s))
    _, fast, _ = times(server, fact(0.85 * median_s))
    assert np.median(fast) < np.median(base) < np.median(slow)


def test_a_measurement_that_is_all_noise_changes_nothing(server):
    free, _, _ = times(server)
    held, _, _ = times(server, fact(3.0 * float(np.median(free)), noise=50.0))
    assert np.median(held) == pytest.approx(np.median(free), rel=0.05)


def test_a_time_that_the_model_cannot_follow_shows_in_the_residual(server):
    free, _, _ = times(server)
    _, _, study = times(server, fact(20 * float(np.median(free))))
    assert np.max(np.abs(study.posterior.residuals)) > 3
