"""The cost model narrowed by a baseline: what counts as measured, what is carried to the speculative step."""

import numpy as np
import pytest
from published_rows import row, rows, sweep

from calibration.published.group_fit import Cells, GroupFit, common_offset, fit_candidates, mean_context_tokens
from calibration.published.rows import PublishedRow
from calibration.published.systems import candidates
from simulator.closed_form import baseline_step


def fits_of(group: list[PublishedRow], *, with_baseline: bool = True) -> list[GroupFit]:
    """All candidates of a group, fitted."""
    return fit_candidates(candidates(group), Cells.of(group, with_baseline=with_baseline))


def step_s(fit: GroupFit, concurrency: float, context: float) -> float:
    """The fitted baseline step without the residual field."""
    parameters = fit.system.priors.parameters(fit.posterior.mode[None, :])
    return float(baseline_step(fit.system, parameters, np.array([concurrency]), np.array([context])).total_s[0, 0])


@pytest.mark.parametrize(
    ("cells", "tokens"),
    [
        ({"context_len": "16384", "output_len": "512"}, 16_640.0),
        ({"context_len": "0", "output_len": ""}, 500.0),
        ({"context_len": "0", "output_len": "<=8192"}, 1000.0),  # an upper bound is no mean
        ({"context_len": "", "input_len": "1000", "output_len": "200"}, 1100.0),
        ({"context_len": "", "input_len": "", "output_len": ""}, 800.0),
    ],
)
def test_the_mean_context_is_what_stands_before_and_half_the_output(cells: dict[str, str], tokens: float) -> None:
    assert mean_context_tokens(row(**cells)) == tokens


def test_rows_that_differ_in_draft_length_repeat_one_baseline() -> None:
    cells = Cells.of(rows({"k": "1"}, {"k": "3"}, {"concurrency": "16"}), with_baseline=True)
    assert cells.measured.tolist() == [0, 2]


def test_without_permission_no_baseline_is_in_the_cells() -> None:
    cells = Cells.of(rows({}, {"concurrency": "16"}), with_baseline=False)
    assert not np.isfinite(cells.baseline_step_s).any()
    assert cells.sweep(1) is None


def test_two_baselines_of_one_cell_count_as_their_mean_known_better() -> None:
    cells = Cells.of(rows({"baseline": "1000"}, {"baseline": "1210"}, {"concurrency": "16"}), with_baseline=True)
    found = cells.sweep(1)
    assert found is not None
    assert found.points.sequences.tolist() == [8.0, 16.0]
    assert np.exp(found.log_step_s[0]) == pytest.approx(8.0 / 1100.0, rel=1e-3)
    assert found.noise.tolist() == pytest.approx([0.03 / np.sqrt(2.0), 0.03])


def test_replicas_share_the_load() -> None:
    found = Cells.of(rows({"concurrency": "2"}, {"concurrency": "32"}), with_baseline=True).sweep(4)
    assert found is not None
    assert found.points.sequences.tolist() == [1.0, 8.0]


def test_a_sweep_of_thousands_of_points_is_thinned_from_end_to_end() -> None:
    group = rows(*({"concurrency": str(c), "baseline": "1000"} for c in range(1, 5001)))
    found = Cells.of(group, with_baseline=True).sweep(1)
    assert found is not None
    assert len(found.log_step_s) == 2000
    assert (found.points.sequences[0], found.points.sequences[-1]) == (1.0, 5000.0)


def test_the_fit_meets_the_baseline_within_its_noise() -> None:
    group = rows(*sweep((1, 4, 16, 64)))
    fit = fits_of(group)[0]
    for each in group:
        assert each.requests is not None
        assert step_s(fit, each.requests, 800.0) == pytest.approx(each.baseline_step_s, rel=0.12)


def test_a_slower_server_has_slower_verification() -> None:
    fast, slow = (
        fits_of(rows({"baseline": baseline}, {"baseline": baseline, "concurrency": "32"}))[0]
        for baseline in ("1600", "800")
    )
    assert step_s(slow, 8.0, 800.0) > 1.3 * step_s(fast, 8.0, 800.0)


def test_weights_of_the_candidates_add_up_to_one() -> None:
    group = rows(*sweep(gpu="", tp="", gpu_count=""))
    fits = fits_of(group)
    assert len(fits) > 1
    assert sum(fit.weight for fit in fits) == pytest.approx(1.0)


def test_the_baseline_tells_which_gpu_it_was() -> None:
    # a B200 streams 61 GB of weights in a sixth of the time that an A100 takes
    quick, slow = (
        fits_of(rows({"gpu": "", "tp": "1", "gpu_count": "1", "model": "Qwen3-32B", "concurrency": "1", "baseline": b}))
        for b in ("95", "25")
    )
    best = [max(fits, key=lambda fit: fit.weight).candidate.label for fits in (quick, slow)]
    assert best == ["1 x b200", "1 x a100-sxm-80gb"]


def test_a_baseline_that_no_candidate_explains_scales_the_whole_step() -> None:
    group = rows(*sweep(model="Qwen3-32B", k="1"))
    slow = rows(*({**each, "baseline": str(float(each["baseline"]) / 5.0)} for each in sweep(model="Qwen3-32B", k="1")))
    ratios = []
    for each in (group, slow):
        cells = Cells.of(each, with_baseline=True)
        fit = fits_of(each)[0]
        ratios.append(np.exp(fit.log_step_ratio(fit.posterior.mode[None, :], cells))[0])
    assert np.all(ratios[1] > 0.9)
    assert np.all(ratios[1] < 1.6 * ratios[0])


def test_small_residuals_are_local_and_large_ones_common() -> None:
    assert common_offset(np.array([[0.05, -0.08, 0.02]])) == pytest.approx(0.0)
    assert common_offset(np.array([[0.7, 0.6, 0.8], [-0.7, -0.6, -0.8]])) == pytest.approx(np.array([[0.6], [-0.6]]))


def test_a_group_without_a_baseline_keeps_the_priors() -> None:
    fit = fits_of(rows({"baseline": "", "speedup": "1.5"}))[0]
    assert fit.field is None
    assert not fit.posterior.mode.any()
    assert fit.residual_sd(Cells.of(rows({}), with_baseline=False)) == pytest.approx([0.0])
