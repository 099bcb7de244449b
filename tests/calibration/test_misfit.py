"""Warnings: each sign of a wrong description or measurement is named, and a good fit names none."""

import functools
from dataclasses import replace

import numpy as np
import pytest
from measured import measured_cells
from profiles import BOX, box

from calibration.calibrate import Calibration, calibrate
from calibration.misfit import warnings
from calibration.records import Evidence, MeasuredCell
from hwmodel.percent import percent
from simulator.closed_form import Cell
from simulator.deployment import Deployment, load_deployment
from simulator.deployment.load import with_profile
from simulator.study import build_study


def fitted(*cells: MeasuredCell, deployment: Deployment | None = None) -> Calibration:
    """A calibration of the box, or of another deployment."""
    return calibrate(deployment or box(), Evidence(cells))


def said(found: Calibration) -> str:
    """All its warnings."""
    return " | ".join(warnings(found.plan, found.fitted, found.profile.kv_cache_tokens))


@functools.cache
def good() -> Calibration:
    """A sweep that the model could have made."""
    return fitted(*measured_cells(box(), {"kernel_floor_us": 0.5}, noise=(0.02, 5)))


def test_a_good_fit_warns_of_nothing() -> None:
    assert said(good()) == ""


def test_an_outlier_is_named_with_its_source_and_weight() -> None:
    cells = list(measured_cells(box(), noise=(0.01, 3)))
    cells[3] = replace(cells[3], tpot_s=1.4 * (cells[3].tpot_s or 0.0), source="odd.json")
    text = said(fitted(*cells))
    assert "odd.json" in text
    assert "of its weight: measure it again" in text


@pytest.mark.parametrize(
    ("loads", "times", "from_priors"),
    [((8,), (5.0,), True), ((1, 8), (1.0, 6.0), None), ((1, 8, 64), (0.7, 4.0, 0.5), False)],
)
def test_few_loads_that_the_model_cannot_explain_widen_the_answer_and_say_what_missed(
    loads: tuple[int, ...], times: tuple[float, ...], from_priors: bool | None
) -> None:
    cells = measured_cells(box(), loads=loads)
    wrong = [replace(c, tpot_s=t * (c.tpot_s or 0.0)) for c, t in zip(cells, times, strict=True)]
    fine, found = fitted(*cells), fitted(*wrong)
    assert fine.profile.misfit is None
    misfit = found.profile.misfit
    assert misfit is not None
    assert misfit.num_inside < misfit.num_measurements == len(loads)
    assert from_priors is None or misfit.from_priors is from_priors
    assert misfit.found_error > 3.0 * misfit.usual_error
    assert width(found) > 2.0 * width(fine)


@pytest.mark.parametrize("times", [0.2, 5.0])
def test_what_one_load_misses_counts_less_with_the_distance_and_is_said(times: float) -> None:
    cell = measured_cells(box(), loads=(1,))[0]
    misfit = fitted(replace(cell, tpot_s=times * (cell.tpot_s or 0.0))).profile.misfit
    assert misfit is not None
    assert misfit.loads == (1.0, *(c for c in box().workload.concurrency if c != 1))
    sizes = np.abs(np.log1p(misfit.carried))
    assert sizes[0] > 0.1
    assert np.all(np.diff(sizes) < 0)
    assert all(share * misfit.carried[0] >= 0 for share in misfit.carried)
    there = percent(misfit.carried[0], signed=True)
    assert f"Only C=1 was measured: what no parameter explains there, {there} of a step" in misfit.sentence()


def test_between_measured_loads_nothing_is_said_of_what_is_carried() -> None:
    cells = [replace(c, tpot_s=5.0 * (c.tpot_s or 0.0)) for c in measured_cells(box(), loads=(1, 8))]
    misfit = fitted(*cells).profile.misfit
    assert misfit is not None
    assert misfit.loads == misfit.carried == ()


def width(found: Calibration) -> float:
    """Width of the 90 % interval of ln(speedup) at 8 requests."""
    study = build_study(with_profile(box(), found.profile), k_max=3, num_draws=500)
    low, high = np.quantile(np.log(study.speedup_draws([Cell(3, 8)])), [0.05, 0.95])
    return float(high - low)


def test_the_worse_three_loads_fit_the_wider_the_answer() -> None:
    cells = measured_cells(box(), loads=(1, 8, 64))
    widths = []
    for times in (1.0, 1.5, 2.2, 4.0):
        worse = replace(cells[1], tpot_s=times * (cells[1].tpot_s or 0.0))
        widths.append(width(fitted(cells[0], worse, cells[2])))
    assert widths == sorted(widths)
    assert widths[-1] > 3.0 * widths[0]


def test_two_loads_are_no_cliff() -> None:
    cells = measured_cells(box(), loads=(4, 16), factor=lambda rows: 3.0 if rows > 8 else 1.0)
    found = fitted(*cells)
    assert found.fitted.cliff is None
    assert found.profile.misfit is not None


def test_a_cliff_names_its_rows_and_what_to_check() -> None:
    cells = measured_cells(box(), loads=(1, 2, 4, 8, 16, 32, 64), factor=lambda rows: 2.0 if rows > 8 else 1.0)
    text = said(fitted(*cells))
    assert "between 8 and 16 rows a step gets" in text
    assert "cudagraph_capture_sizes" in text


def test_several_loads_on_one_side_of_the_model_are_named() -> None:
    cells = measured_cells(box(), factor=lambda rows: 1.2 if 4 <= rows <= 64 else 0.95, noise=(0.005, 1))
    fixed = {"parameters": {"popularity_sigma": 0.9, "kernel_floor_us": 2.4, "allreduce_size_scale": 1.0}}
    text = said(fitted(*cells, deployment=load_deployment({**BOX, **fixed})))
    assert "every step is longer than the model alone says" in text


def test_a_bound_that_is_hit_is_named_with_its_value() -> None:
    # Every weight byte faster than the datasheet allows.
    fast = {**BOX, "parameters": {"kernel_floor_us": 0.01, "attention_latency_us": 0.01, "piecewise_layer_us": 0.01}}
    deployment = load_deployment(fast)
    cells = measured_cells(deployment, factor=lambda rows: 0.55, loads=(1, 8, 32, 64))
    assert "bandwidth_efficiency ends at its highest possible value, 1" in said(fitted(*cells, deployment=deployment))


def test_a_parameter_far_from_its_prior_is_named() -> None:
    cells = measured_cells(box(), {"kernel_floor_us": 4.5}, loads=(1, 2, 4, 8, 16, 32, 64))
    assert "standard deviations from its prior" in said(fitted(*cells))


def test_a_profiled_share_that_the_model_cannot_explain_is_named() -> None:
    base = measured_cells(box())
    share = MeasuredCell(
        "trace.json", concurrency=1.0, num_speculative_tokens=0, allreduce_share=0.97, relative_noise=0.001
    )
    text = said(fitted(*base, share))
    assert "AllReduce takes 97 % of the profiled step" in text
    assert "check the interconnect" in text


def test_more_requests_than_the_cache_holds_are_named() -> None:
    small = load_deployment({**BOX, "measured": [{"concurrency": 1, "kv_cache_tokens": 20_000}]})
    text = said(fitted(*measured_cells(small, loads=(1, 64)), deployment=small))
    assert "64 requests ran at once, the model says" in text


def test_new_data_against_an_earlier_profile_are_named() -> None:
    earlier = with_profile(box(), good().profile)
    contradiction = measured_cells(box(), {"kernel_floor_us": 5.5}, loads=(1, 2, 4, 8, 3, 6))
    text = said(fitted(*(replace(c, relative_noise=0.005) for c in contradiction), deployment=earlier))
    assert "the earlier profile's widths" in text or "from what all other measurements say" in text


def test_scatter_beyond_the_stated_noise_is_named() -> None:
    rng = np.random.default_rng(0)
    cells: list[MeasuredCell] = []
    for turn in range(4):
        for cell in measured_cells(box(), loads=(1, 8, 64)):
            wild = (cell.tpot_s or 0.0) * float(np.exp(0.06 * rng.standard_normal()))
            cells.append(replace(cell, tpot_s=wild, relative_noise=0.01, source=f"{cell.source} {turn}"))
    assert "times as much as their noise says" in said(fitted(*cells))


def test_every_warning_is_one_line() -> None:
    found = fitted(*measured_cells(box(), factor=lambda rows: 1.0 + 0.3 * np.sin(rows)))
    assert warnings(found.plan, found.fitted)
    assert "\n" not in said(found)
