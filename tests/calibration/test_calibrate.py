"""The whole fit: parameters that made the measurements are found, odd ones set aside, and a profile continues one."""

import functools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from measured import LOADS, measured_cells, parameters_at
from profiles import BOX, box

from calibration.calibrate import Calibration, calibrate, curve_of
from calibration.records import (
    AcceptanceCounts,
    CollectivePoint,
    Evidence,
    MeasuredCell,
    SourceFile,
    StepSample,
)
from hwmodel.errors import InputError
from hwmodel.residual import ROW_KNOTS
from simulator.closed_form import Cell, baseline_step
from simulator.deployment import Deployment, load_deployment
from simulator.deployment.load import with_profile
from simulator.predict import predict
from simulator.profile import CONSTANT_SHARE, parse_profile
from simulator.study import build_study
from simulator.system import build_system

TRUTH = {"kernel_floor_us": 1.0, "host_step_ms": -0.7, "bandwidth_efficiency": 0.8, "popularity_sigma": 0.5}


def evidence(*cells: MeasuredCell, **other: Any) -> Evidence:
    """Cells and what else is known."""
    return Evidence(cells=cells, **other)


@functools.cache
def found_truth() -> Calibration:
    """The fit to a sweep made from `TRUTH` with 2 % noise."""
    return calibrate(box(), evidence(*measured_cells(box(), TRUTH, noise=(0.02, 1))))


@functools.cache
def found_drafted() -> Calibration:
    """The same with three runs that draft, whose steps take 15 % longer than the model's."""
    runs = measured_cells(box(), TRUTH, (1, 8, 32), drafts=(3, 2.176), factor=lambda rows: 1.15, noise=(0.02, 2))
    return calibrate(box(), evidence(*measured_cells(box(), TRUTH, noise=(0.02, 1)), *runs))


def moved(of: Calibration, name: str) -> tuple[float, float]:
    """Mode and spread of a parameter, in prior standard deviations."""
    index = of.fitted.fit.index(name)
    return float(of.profile.mode[index]), float(np.sqrt(of.profile.covariance[index, index]))


def factor_at(of: Calibration, rows: int) -> float:
    """Log of the factor that the profile puts on steps of so many rows."""
    return float(of.profile.mode[len(of.profile.priors) + list(ROW_KNOTS).index(rows)])


def tpot_s(deployment: Deployment, concurrency: int, k: int = 0) -> float:
    """TPOT at the posterior median."""
    grid = build_study(deployment, k_max=3, num_draws=100).grid([Cell(k, concurrency)], point=True)
    return float((grid.speculative if k else grid.baseline).tpot_s[0, 0])


# ---- recovery


def test_parameters_that_made_the_measurements_lie_within_their_intervals() -> None:
    for name, true in TRUTH.items():
        mode, spread = moved(found_truth(), name)
        assert abs(mode - true) < 2.5 * spread, name
    assert moved(found_truth(), "kernel_floor_us")[1] < 0.95


def test_predictions_follow_the_measurements_within_their_noise() -> None:
    calibrated = with_profile(box(), found_truth().profile)
    for cell in measured_cells(box(), TRUTH, noise=(0.02, 1)):
        assert cell.concurrency is not None
        assert tpot_s(calibrated, int(cell.concurrency)) == pytest.approx(cell.tpot_s, rel=0.03)


def test_a_load_between_the_measured_ones_is_predicted() -> None:
    true = measured_cells(box(), TRUTH, (24,))[0].tpot_s
    assert tpot_s(with_profile(box(), found_truth().profile), 24) == pytest.approx(true, rel=0.03)


def test_what_nothing_depends_on_keeps_its_prior() -> None:
    for name in ("synchronous_step_ms", "memory_reserve_gb", "eager_kernel_us"):
        mode, spread = moved(found_truth(), name)
        assert abs(mode) < 0.05
        assert spread == pytest.approx(1.0, abs=0.05)


def test_other_concurrencies_predict_each_within_its_interval() -> None:
    left = found_truth().fitted.left_out
    assert len(left) == len(LOADS)
    assert sum(item.inside for item in left) >= len(LOADS) - 1


def test_a_perfect_model_leaves_a_smaller_model_error_than_the_prior() -> None:
    tau = found_truth().fitted.tau
    assert tau.num_groups == len(LOADS)
    assert tau.value < 0.045


def test_a_model_that_misses_by_load_leaves_a_larger_one() -> None:
    bumpy = measured_cells(box(), factor=lambda rows: 1.0 + 0.18 * np.sin(2.1 * np.log2(rows)))
    assert calibrate(box(), evidence(*bumpy)).fitted.tau.value > 0.06


def test_the_same_measurements_give_the_same_profile() -> None:
    again = calibrate(box(), evidence(*measured_cells(box(), TRUTH, noise=(0.02, 1)))).profile
    assert np.array_equal(again.mode, found_truth().profile.mode)
    assert np.array_equal(again.covariance, found_truth().profile.covariance)


def test_the_profile_survives_its_file() -> None:
    profile = found_truth().profile
    assert np.array_equal(parse_profile(profile.to_document()).mode, profile.mode)


def test_agrees_with_the_light_conditioning_on_the_facts_of_the_file() -> None:
    prior = tpot_s(box(), 1)
    facts = [
        {"concurrency": 1, "tpot_ms": 1.25e3 * prior, "allreduce_share": 0.3},
        {"concurrency": 32, "tpot_ms": 25.0},
    ]
    told = load_deployment({**BOX, "measured": facts})
    light = build_study(told, k_max=3, num_draws=1000)
    full = build_study(with_profile(told, calibrate(told, evidence()).profile), k_max=3, num_draws=1000)
    spread = np.sqrt(np.diag(light.posterior.factor @ light.posterior.factor.T))
    for prior_of, ours, theirs, width in zip(
        light.system.priors.priors, full.posterior.mode, light.posterior.mode, spread, strict=True
    ):
        if prior_of.name != "model_error":  # the full fit splits it into a constant and a scatter
            assert abs(ours - theirs) < 1.2 * width, prior_of.name
    cells = [Cell(3, 1), Cell(3, 8)]
    quantiles = [np.quantile(s.speedup_draws(cells), [0.05, 0.5, 0.95], axis=0) for s in (light, full)]
    assert quantiles[0][1] == pytest.approx(quantiles[1][1], rel=0.04)
    assert quantiles[1][2] - quantiles[1][0] == pytest.approx(quantiles[0][2] - quantiles[0][0], rel=0.4)
    for study in (light, full):
        point = float(study.grid([Cell(0, 1)], point=True).baseline.tpot_s[0, 0])
        assert point == pytest.approx(1.25 * prior, rel=0.02)


# ---- what only runs with drafts tell


def test_runs_that_draft_fix_the_constant_of_drafted_steps() -> None:
    plain, drafted = found_truth().profile, found_drafted().profile
    assert (plain.method, drafted.method) == ("none", "eagle3")
    assert plain.mode[-1] == pytest.approx(0.0, abs=1e-6)
    assert drafted.mode[-1] > 0.02
    spreads = [np.sqrt(p.covariance[-1, -1]) / (CONSTANT_SHARE * p.model_error) for p in (plain, drafted)]
    assert spreads[1] < 0.95 * spreads[0]


def test_one_restart_corrects_the_loads_that_were_not_run() -> None:
    true = measured_cells(box(), TRUTH, (16,), drafts=(3, 2.176), factor=lambda rows: 1.15)[0].tpot_s
    assert true is not None
    spec = {**BOX["speculation"], "acceptance": {"conditional": [0.6]}}
    deployment = load_deployment({**BOX, "speculation": spec})
    before = tpot_s(with_profile(deployment, found_truth().profile), 16, 3)
    after = tpot_s(with_profile(deployment, found_drafted().profile), 16, 3)
    assert abs(after / true - 1.0) < 0.04 < abs(before / true - 1.0)


def test_the_interval_of_a_speedup_narrows_with_every_kind_of_run() -> None:
    widths = []
    for profile in (None, found_truth().profile, found_drafted().profile):
        speedup = build_study(with_profile(box(), profile), k_max=3, num_draws=1000).speedup_draws([Cell(3, 8)])
        low, high = np.quantile(np.log(speedup[:, 0]), [0.05, 0.95])
        widths.append(float(high - low))
    assert widths[0] > widths[1] > widths[2]


def test_uncounted_acceptance_is_left_open_instead_of_blamed_on_the_cost() -> None:
    # Twice the tokens per step that the deployment states, and nobody counted them.
    runs = measured_cells(box(), {}, (1, 8), drafts=(3, 4.0))
    base = measured_cells(box())
    blind = calibrate(box(), evidence(*base, *(replace(run, tokens_per_step=None) for run in runs)))
    name = next(n for n in blind.fitted.fit.coordinates.names if n.startswith("tokens per step"))
    place = blind.fitted.fit.index(name)
    assert blind.fitted.fit.mode[place] > np.log(2.3)
    assert len(blind.profile.mode) < len(blind.fitted.fit.mode)  # it does not belong to the machine


def test_counted_acceptance_is_kept_and_used() -> None:
    counts = AcceptanceCounts(5000.0, (4000.0, 3200.0, 2560.0), 15000.0, 5000.0, 40.0)
    runs = measured_cells(box(), {}, (8,), drafts=(3, 2.952), acceptance=counts)
    calibrated = with_profile(box(), calibrate(box(), evidence(*measured_cells(box()), *runs)).profile)
    told = predict(calibrated, num_speculative_tokens=3, concurrency=8, num_draws=200)
    assert told.speculative.tokens_per_step == pytest.approx(2.952, rel=1e-3)


# ---- other evidence


def test_nccl_tests_replace_the_curve_and_narrow_its_scale() -> None:
    points = tuple(CollectivePoint("nccl.txt", float(2**i), 20e-6 + 2**i / 2e9, 2) for i in range(10, 25))
    found = calibrate(box(), evidence(*measured_cells(box()), collectives=points))
    assert found.plan.system.machine.allreduce.kind == "user"
    assert found.profile.curve is not None
    assert found.profile.curve.source == "nccl.txt"
    scale = found.profile.priors[found.fitted.fit.index("allreduce_latency_scale")]
    assert scale.spread == 0.03
    used = build_study(with_profile(box(), found.profile), k_max=3, num_draws=100)
    assert float(used.system.machine.allreduce.time_s(2.0**20)) == pytest.approx(20e-6 + 2**20 / 2e9, rel=0.01)


def test_nccl_tests_of_another_number_of_gpus_are_refused() -> None:
    points = tuple(CollectivePoint("nccl.txt", float(2**i), 1e-5, 8) for i in range(10, 15))
    found = calibrate(box(), evidence(*measured_cells(box()), collectives=points))
    assert found.profile.curve is None
    assert "AllReduce over 8 ranks, the deployment reduces over 2" in found.selected.refused[0].reason


def test_nccl_tests_of_another_card_are_refused() -> None:
    def points(device: str) -> tuple[CollectivePoint, ...]:
        return tuple(CollectivePoint("nccl.txt", float(2**i), 1e-5, 2, (device,)) for i in range(10, 15))

    ours = "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition"
    assert curve_of(points(ours), box())[0] is not None
    assert curve_of(points(""), box())[0] is not None
    curve, refused, _ = curve_of(points("NVIDIA H200"), box())
    assert curve is None
    assert "measured on NVIDIA H200, the deployment has NVIDIA RTX PRO 6000" in refused[0].reason
    assert curve_of(points("NVIDIA RTX 6000 Ada Generation"), box())[0] is None
    a100 = box(hardware={"gpu": "a100-sxm-80gb", "interconnect": "nvswitch"})
    assert curve_of(points("NVIDIA A100-SXM4-80GB"), a100)[0] is not None


def test_iterations_of_the_log_tell_rows_beyond_the_largest_load() -> None:
    system = build_system(box())
    p = parameters_at(system, TRUTH)
    rows = np.array([4.0, 16.0, 64.0, 256.0])
    seconds = baseline_step(system, p, rows, system.context_tokens).total_s[0]
    samples = tuple(StepSample("vllm.log", t, t, 0.0, float(s), 50) for t, s in zip(rows, seconds, strict=True))
    found = calibrate(box(), evidence(steps=samples))
    wide = load_deployment({**BOX, "workload": {"input_tokens": 1, "output_tokens": 2999, "concurrency": [1]}})
    told = predict(with_profile(wide, found.profile), num_speculative_tokens=0, concurrency=256, num_draws=100)
    assert told.baseline.step_s == pytest.approx(float(seconds[-1]), rel=0.04)


def test_acceptance_alone_makes_a_profile() -> None:
    counts = AcceptanceCounts(5000.0, (4000.0, 3200.0, 2560.0), 15000.0, 5000.0, 40.0)
    only = MeasuredCell("metrics", num_speculative_tokens=3, method="eagle3", acceptance=counts)
    found = calibrate(box(), evidence(only))
    assert found.profile.acceptance[0].drafts == 5000.0
    assert found.fitted.left_out == ()
    assert found.fitted.tau.num_groups == 0


# ---- what does not fit


def test_nothing_to_go_by_is_said_in_one_line() -> None:
    with pytest.raises(InputError, match="got no new measurement; allowed: --data FILE"):
        calibrate(box(), evidence())
    wrong = MeasuredCell("a.json", concurrency=4.0, num_speculative_tokens=0, tpot_s=0.02, engine="sglang")
    with pytest.raises(InputError, match=r"no measurement can be used; a\.json: measured on sglang"):
        calibrate(box(), evidence(wrong))


def test_a_cliff_is_kept_for_every_step_of_so_many_rows_and_bends_no_parameter() -> None:
    cliff = measured_cells(box(), TRUTH, (1, 2, 4, 8, 16, 32, 64, 128), factor=lambda rows: 2.2 if rows > 16 else 1.0)
    found = calibrate(box(), evidence(*cliff))
    assert found.fitted.cliff is not None
    assert (found.fitted.cliff.before_rows, found.fitted.cliff.after_rows) == (16.0, 32.0)
    assert factor_at(found, 8) == pytest.approx(0.0, abs=0.04)
    assert factor_at(found, 64) == pytest.approx(np.log(2.2), abs=0.1)
    assert factor_at(found, 4096) == pytest.approx(factor_at(found, 128), abs=1e-6)
    mode, spread = moved(found, "kernel_floor_us")
    assert abs(mode - TRUTH["kernel_floor_us"]) < 2.5 * spread
    # A drafted step of 8 requests runs 32 rows: it falls off the cliff, the baseline's 8 do not.
    calibrated = with_profile(box(), found.profile)
    grid = build_study(calibrated, k_max=3, num_draws=100).grid([Cell(3, 8)], point=True)
    assert float(grid.speculative.step_s[0, 0] / grid.baseline.step_s[0, 0]) > 2.0


def test_a_single_outlier_counts_less_than_its_neighbours() -> None:
    cells = list(measured_cells(box(), TRUTH, noise=(0.01, 3)))
    wrong = replace(cells[3], tpot_s=1.35 * (cells[3].tpot_s or 0.0))
    found = calibrate(box(), evidence(*cells[:3], wrong, *cells[4:]))
    assert list(found.fitted.softened) == [3]
    assert found.fitted.softened[3] > 5.0
    true = cells[3].tpot_s or 0.0
    assert tpot_s(with_profile(box(), found.profile), 8) == pytest.approx(true, rel=0.05)


# ---- one profile after another


def test_a_second_sitting_narrows_what_the_first_left_open() -> None:
    cells = measured_cells(box(), TRUTH, noise=(0.02, 1))
    first = calibrate(box(), evidence(*cells[:3]))
    second = calibrate(with_profile(box(), first.profile), evidence(*cells[3:]))
    together = found_truth()
    for name in TRUTH:
        (one, _), (two, width) = moved(second, name), moved(together, name)
        assert abs(one - two) < 1.5 * width, name
    for load in (1, 8, 64):
        calibrated = [tpot_s(with_profile(box(), c.profile), load) for c in (second, together)]
        assert calibrated[0] == pytest.approx(calibrated[1], rel=0.03)
    assert len(second.profile.cells_sha256) == len(cells)


def test_the_same_data_again_add_nothing() -> None:
    first = found_truth()
    calibrated = with_profile(box(), first.profile)
    with pytest.raises(InputError, match="no new measurement"):
        calibrate(calibrated, evidence(*measured_cells(box(), TRUTH, noise=(0.02, 1))))


def test_a_file_that_the_profile_has_read_is_not_read_again() -> None:
    points = tuple(CollectivePoint("nccl.txt", float(2**i), 2e-5 + 2**i / 1e9, 2) for i in range(10, 25))
    file = SourceFile("nccl.txt", "nccl-tests", "abc")
    first = calibrate(box(), evidence(*measured_cells(box())[:3], collectives=points, files=(file,)))
    assert first.profile.data[0]["sha256"] == "abc"
    second = calibrate(
        with_profile(box(), first.profile),
        evidence(*measured_cells(box())[3:], collectives=points, files=(file,)),
    )
    assert "counted this file already" in " ".join(second.notes)
    assert second.profile.curve == first.profile.curve
    assert len(second.profile.data) == 1


def test_facts_of_the_file_count_once_over_both_sittings() -> None:
    told = load_deployment({**BOX, "measured": [{"concurrency": 1, "tpot_ms": 12.0}]})
    first = calibrate(told, evidence())
    second = calibrate(with_profile(told, first.profile), evidence(*measured_cells(told, loads=(8,))))
    assert [q.requests for q in second.plan.questions] == [1.0, 8.0]


def test_a_run_after_the_restart_continues_the_profile_of_the_baseline() -> None:
    counts = AcceptanceCounts(5000.0, (3000.0, 1800.0, 1080.0), 15000.0, 5000.0, 40.0)
    runs = measured_cells(
        box(), TRUTH, (1, 8, 32), drafts=(3, 2.176), factor=lambda rows: 1.15, noise=(0.02, 2), acceptance=counts
    )
    second = calibrate(with_profile(box(), found_truth().profile), evidence(*runs))
    assert second.profile.method == "eagle3"
    assert second.profile.mode[-1] > 0.02
    assert second.profile.acceptance[0].drafts == 15_000.0
    true = measured_cells(box(), TRUTH, (16,), drafts=(3, 2.176), factor=lambda rows: 1.15)[0].tpot_s
    assert tpot_s(with_profile(box(), second.profile), 16, 3) == pytest.approx(true, rel=0.05)
    assert tpot_s(with_profile(box(), second.profile), 16) == pytest.approx(
        tpot_s(with_profile(box(), found_truth().profile), 16), rel=0.03
    )
