"""Descriptions compared by evidence: an AllReduce switch in the sweep, a verify path that is taken or not."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
from measured import measured_cells
from profiles import BOX, box

from calibration.calibrate import calibrate
from calibration.records import Evidence, MeasuredCell
from calibration.structure import allreduce_choices
from simulator.closed_form import Cell
from simulator.deployment import load_deployment
from simulator.deployment.load import with_profile
from simulator.study import build_study
from simulator.system import build_system

ROOT = Path(__file__).parents[2]
SWITCH_BOX = ROOT / "examples" / "kimi-k2.6-8x-rtx-pro-6000-switch.toml"
PUBLISHED = tomllib.loads((ROOT / "calibration" / "data" / "kimi-k2.6-switch.toml").read_text(encoding="utf-8"))
UNSTATED = ("hardware.allreduce_algorithm=", "hardware.allreduce_one_shot_max_kib=")


def published() -> Evidence:
    """The published baseline of the switch box, 3 % noise."""
    pairs = zip(PUBLISHED["concurrency"], PUBLISHED["baseline_tokens_per_s"], strict=True)
    return Evidence(
        tuple(
            MeasuredCell(
                f"published {c}",
                concurrency=float(c),
                num_speculative_tokens=0,
                throughput_tokens_per_s=x,
                relative_noise=0.03,
            )
            for c, x in pairs
        )
    )


def test_the_published_sweep_shows_its_one_shot_threshold_of_256_kib() -> None:
    # The image switched at 256 KiB, past the crossover: the hump at 16 requests. Nobody told the fit.
    found = calibrate(load_deployment(SWITCH_BOX, UNSTATED), published())
    assert found.profile.settings == {"allreduce_algorithm": "one-shot", "allreduce_one_shot_max_kib": 256.0}
    assert "hardware.allreduce_one_shot_max_kib = 256" in found.findings[0]
    calibrated = with_profile(load_deployment(SWITCH_BOX, UNSTATED), found.profile)
    grid = build_study(calibrated, k_max=3, num_draws=100).grid([Cell(0, 16)], point=True)
    assert float(grid.baseline.throughput_tokens_per_s[0, 0]) == pytest.approx(483.0, rel=0.05)


def test_a_stated_algorithm_is_not_questioned() -> None:
    found = calibrate(load_deployment(SWITCH_BOX), published())
    assert found.findings == ()
    assert found.profile.settings == {}


def test_a_sweep_without_a_switch_keeps_the_engines_own_algorithm() -> None:
    found = calibrate(box(), Evidence(measured_cells(box(), {"kernel_floor_us": 0.5}, noise=(0.02, 4))))
    assert found.findings == ()
    assert found.profile.settings == {}


def test_loads_that_contradict_each_other_show_no_other_algorithm() -> None:
    times_ms = {1: 7.0, 2: 8.0, 4: 30.0, 8: 12.0, 64: 5.0}
    cells = tuple(
        MeasuredCell(f"sweep.csv {c}", concurrency=float(c), num_speculative_tokens=0, tpot_s=ms / 1e3)
        for c, ms in times_ms.items()
    )
    found = calibrate(box(), Evidence(cells=cells))
    assert found.fitted.tau.value > 0.3
    assert not found.plan.settings
    assert not found.findings


@pytest.mark.parametrize(
    ("tables", "loads"),
    [
        ({"engine": {"tensor_parallel_size": 1}}, (1, 2, 4, 8)),
        ({"hardware": {"allreduce_algorithm": "nccl"}}, (1, 2, 4, 8)),
        ({}, (1, 8)),
    ],
)
def test_nothing_is_tried_where_nothing_could_show(tables: dict[str, Any], loads: tuple[int, ...]) -> None:
    deployment = box(**tables)
    questions = calibrate(deployment, Evidence(measured_cells(deployment, loads=loads))).plan.questions
    assert allreduce_choices(build_system(deployment), questions) == []


def ngram(**fields: Any) -> dict[str, Any]:
    """The reference case's engine: n-gram drafts that an MLA backend verifies as prefill, if it is the deduced one."""
    return {
        "model": {"config": "kimi-k2.5-int4"},
        "hardware": {"gpu": "rtx-pro-6000-blackwell-server", "interconnect": "pcie-switch"},
        "engine": {"version": "0.16.0", "tensor_parallel_size": 8, "gpu_memory_utilization": 0.95, **fields},
        "speculation": {"method": "eagle3", "num_speculative_tokens": 3, "acceptance": {"conditional": [0.6]}},
        "workload": {"concurrency": [1], "input_tokens": 8000, "output_tokens": 1000},
    }


@pytest.mark.parametrize("taken", [True, False])
def test_runs_with_drafts_tell_whether_the_verify_path_is_taken(taken: bool) -> None:
    deployment = load_deployment(ngram())
    assert build_system(deployment).mode(3).multi_token_rows_as_prefill
    truth = {"verify_path_applies": -50.0 if taken else 50.0}
    base = measured_cells(deployment, {}, (1, 4))
    runs = measured_cells(deployment, truth, (1, 4), drafts=(3, 2.176))
    found = calibrate(deployment, Evidence((*base, *runs)))
    prior = next(p for p in found.profile.priors if p.name == "verify_path_applies")
    assert (prior.center > 0.9) == taken
    assert (prior.center < 0.1) != taken
    study = build_study(with_profile(deployment, found.profile), k_max=3, num_draws=200)
    path = study.grid([Cell(3, 1)], point=True).speculative.parts_s["verify_path"][0, 0]
    assert (path > 0.01) == taken


def test_without_runs_that_draft_the_switch_stays_as_open_as_it_was() -> None:
    deployment = load_deployment(ngram())
    found = calibrate(deployment, Evidence(measured_cells(deployment, {}, (1, 4))))
    prior = next(p for p in found.profile.priors if p.name == "verify_path_applies")
    assert prior.center == 0.6
    assert load_deployment(BOX).profile is None
