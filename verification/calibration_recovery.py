"""Known parameters recovered from simulated runs, and intervals that hold the truth as often as they say.

Each trial draws every parameter and residual from its prior, lets the serving simulation (request by request) measure a
baseline sweep with 2 % noise on top, calibrates on that, and looks whether the truth lies in the 90 % intervals: of
the parameters, of loads that were not measured, and of speedups. Right: between the bounds that so many trials allow.
The second half adds runs with drafts, whose error the truth holds as well.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from calibration.calibrate import Calibration, calibrate
from calibration.coordinates import coordinates_of
from calibration.discrepancy import residual_coordinates
from calibration.records import AcceptanceCounts, Evidence, MeasuredCell
from hwmodel.percent import percent
from simulator.closed_form import Cell
from simulator.deployment import Deployment, load_deployment
from simulator.deployment.load import with_profile
from simulator.identity import identity_of
from simulator.profile import SCATTER_SHARE, Profile
from simulator.serving.run import simulate
from simulator.study import build_study
from simulator.system import build_system
from verification.checks import Check, report
from verification.plots import BAND, RIGHT, UNJUDGED, draw

Array = NDArray[np.float64]

TRIALS, LOADS, DRAFTED_LOADS = 40, (1, 2, 4, 8, 16, 32, 64), (1, 16)
BETWEEN, CELLS = (3, 24, 96), (Cell(3, 1), Cell(3, 8), Cell(3, 64))
NOISE, TAU, DRAWS = 0.02, 0.05, 1000
SURVIVAL = (0.6, 0.36, 0.216)
PLOT_INCHES = (8.0, 3.6)
TABLES: dict[str, Any] = {
    "model": {"config": "qwen3-30b-a3b-bf16"},
    "hardware": {"gpu": "rtx-pro-6000-blackwell-server", "interconnect": "pcie-switch", "allreduce_algorithm": "nccl"},
    "engine": {"version": "0.16.0", "tensor_parallel_size": 2},
    "speculation": {
        "method": "eagle3",
        "num_speculative_tokens": 3,
        "acceptance": {"per_position": list(SURVIVAL), "num_requests": 100_000, "heterogeneity": 1e6},
    },
    "workload": {"concurrency": [1, 8, 64], "input_tokens": 64, "output_tokens": 200},
}


@dataclass
class Outcome:
    """What the trials found: truth minus estimate in posterior standard deviations, and the rank of the truth."""

    scores: dict[str, list[float]]
    ranks: dict[str, list[float]]  # of the truth among the draws, 0 to 1
    taus: list[float]
    widths: list[float]


def truth_of(deployment: Deployment, rng: np.random.Generator) -> Profile:
    """A machine drawn from the priors, as a profile that knows it exactly."""
    system = build_system(deployment)
    coordinates = coordinates_of(system.priors) + residual_coordinates(TAU, TAU)
    drawn = np.clip(coordinates.factor @ rng.standard_normal(coordinates.size), coordinates.low, coordinates.high)
    drawn[coordinates.names.index("verify_path_applies")] = 0.0
    return Profile(
        identity=identity_of(system),
        priors=system.priors.priors,
        mode=drawn,
        covariance=1e-12 * np.eye(coordinates.size),
        created="",
        versions={},
        model_error=TAU,
        method="eagle3",
        settings={},
        stated_acceptance="",
    )


def measured(machine: Deployment, load: int, k: int, rng: np.random.Generator) -> MeasuredCell:
    """One run of the serving simulation, as a benchmark client reports it."""
    run = simulate(
        machine, arrivals=f"closed:{load}", num_requests=max(4 * load, 16), num_speculative_tokens=k, seed=load
    ).to_dict()
    arm = run["speculative" if k else "baseline"]
    return MeasuredCell(
        source=f"run at {load}, k={k}",
        concurrency=float(load),
        num_speculative_tokens=k,
        method="eagle3" if k else None,
        tpot_s=arm["tpot_s"]["mean"] * float(np.exp(NOISE * rng.standard_normal())),
        tokens_per_step=arm["tokens_per_step"] if k else 1.0,
        relative_noise=NOISE,
        input_tokens=float(TABLES["workload"]["input_tokens"]),
        output_tokens=float(TABLES["workload"]["output_tokens"]),
        acceptance=AcceptanceCounts(1e6, tuple(1e6 * s for s in SURVIVAL), None, 1e6) if k else None,
    )


def trial(outcome: Outcome, seed: int, drafted: bool) -> None:
    """One machine measured, calibrated and compared with what it was."""
    rng = np.random.default_rng([seed, drafted])
    deployment = load_deployment(TABLES)
    truth = truth_of(deployment, rng)
    machine = with_profile(deployment, truth)
    runs = [measured(machine, load, 0, rng) for load in LOADS]
    if drafted:
        runs += [measured(machine, load, 3, rng) for load in DRAFTED_LOADS]
    found = calibrate(deployment, Evidence(tuple(runs)), seed=seed)
    compare_parameters(outcome, truth, found)
    compare_predictions(outcome, machine, with_profile(deployment, found.profile), rng)
    outcome.taus.append(found.fitted.tau.value)


def compare_parameters(outcome: Outcome, truth: Profile, found: Calibration) -> None:
    """Scores of the coordinates."""
    spread = np.sqrt(np.diag(found.profile.covariance))
    scores = (truth.mode - found.profile.mode) / spread
    names = [prior.name for prior in truth.priors]
    kept = [i for i, name in enumerate(names) if name not in ("verify_path_applies", "model_error")]
    outcome.scores.setdefault("parameters", []).extend(scores[kept].tolist())
    outcome.scores.setdefault("residual", []).extend(scores[len(names) :].tolist())
    outcome.scores.setdefault("kernel_floor_us", []).append(float(scores[names.index("kernel_floor_us")]))


def compare_predictions(
    outcome: Outcome, machine: Deployment, calibrated: Deployment, rng: np.random.Generator
) -> None:
    """Ranks of true times between the measured loads and of true speedups among the draws."""
    true, known = (build_study(d, k_max=3, num_draws=DRAWS) for d in (machine, calibrated))
    between = [Cell(0, load) for load in BETWEEN]
    times = true.grid(between, point=True).baseline.tpot_s[0], known.grid(between, point=False).baseline.tpot_s
    scatter = np.exp(SCATTER_SHARE * TAU * rng.standard_normal())
    gains = true.grid(CELLS, point=True).speedup[0] * scatter, known.speedup_draws(CELLS)
    for name, (value, draws) in (("times at other loads", times), ("speedups", gains)):
        outcome.ranks.setdefault(name, []).extend(np.mean(draws < value, axis=0).tolist())
    low, high = np.quantile(gains[1], [0.05, 0.95], axis=0)
    outcome.widths += (0.5 * np.log(high / low)).tolist()


def coverage_checks(outcome: Outcome, label: str) -> Iterator[Check]:
    """Shares of truths inside 90 % intervals, and whether estimates are off to one side."""
    for name, scores in outcome.scores.items():
        inside = float(np.mean(np.abs(scores) < 1.645))
        allowed = 0.05 if len(scores) > 10 * TRIALS else 0.12  # 2.5 standard errors of so many trials
        text = f"{label}, {name}: {percent(inside, 1)} of {len(scores)} within 90 % intervals"
        yield Check(text, inside - 0.9, allowed)
        mean = float(np.mean(scores))
        yield Check(f"{label}, {name}: {mean:+.2f} standard deviations to one side on average", mean, 0.5)
    for name, ranks in outcome.ranks.items():
        inside = float(np.mean([0.05 <= rank <= 0.95 for rank in ranks]))
        # Loads between the measured ones: intervals are careful, since draws are held to the measured steps alone.
        allowed = 0.08 if name == "speedups" else 0.1
        yield Check(
            f"{label}, {name}: {percent(inside, 1)} of {len(ranks)} within 90 % intervals", inside - 0.9, allowed
        )


def checks(outcomes: dict[str, Outcome]) -> Iterator[Check]:
    """Both kinds of evidence."""
    for label, drafted in (("baseline only", False), ("with two runs that draft", True)):
        outcome = outcomes[label] = Outcome({}, {}, [], [])
        for seed in range(TRIALS):
            trial(outcome, seed, drafted)
        yield from coverage_checks(outcome, label)
        tau = float(np.median(outcome.taus))
        yield Check(f"{label}: model error {tau:.3f} at the median, {TAU} in truth", tau / TAU - 1.0, 0.35)
    widths = [float(np.median(outcome.widths)) for outcome in outcomes.values()]
    text = (
        f"runs that draft narrow speedups from {percent(widths[0], 1)} to {percent(widths[1], 1)} (median half-width)"
    )
    yield Check(text, max(widths[1] / widths[0] - 0.85, 0.0), 0.0)


def paint(figure: Any, outcomes: dict[str, Outcome]) -> None:
    """Share of truths inside intervals of any size, against that size."""
    figure.suptitle("Share of truths inside intervals of a nominal size. Right: on the line.")
    nominal = np.linspace(0.02, 0.98, 49)
    looks = {"parameters": "-", "residual": "--", "times at other loads": "-.", "speedups": ":"}
    for axes, (label, outcome) in zip(figure.subplots(1, len(outcomes), sharey=True), outcomes.items(), strict=True):
        axes.fill_between([0, 1], [-0.05, 0.95], [0.05, 1.05], **BAND)
        axes.plot([0, 1], [0, 1], color=UNJUDGED["color"])
        for name, style in looks.items():
            axes.plot(nominal, shares(outcome, name, nominal), style, label=name, color=RIGHT["color"])
        axes.set(title=label, xlabel="nominal", xlim=(0, 1), ylim=(0, 1))
        axes.legend()


def shares(outcome: Outcome, name: str, nominal: Array) -> Array:
    """Observed shares at the nominal ones: from ranks where there are draws, from normal scores else."""
    if name in outcome.ranks:
        distance = 2.0 * np.abs(np.array(outcome.ranks[name]) - 0.5)
    else:
        distance = 2.0 * ndtr(np.abs(outcome.scores[name])) - 1.0
    return np.array([float(np.mean(distance <= size)) for size in nominal])


def main() -> int:
    """1 when a check fails."""
    outcomes: dict[str, Outcome] = {}
    code = report("calibration_recovery", checks(outcomes))
    draw("calibration_recovery_coverage", PLOT_INCHES, lambda figure: paint(figure, outcomes))
    return code


if __name__ == "__main__":
    sys.exit(main())
