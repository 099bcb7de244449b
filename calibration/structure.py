"""Which of several descriptions fits the measurements best: AllReduce algorithm and crossover, the verify path.

A sweep over the load shows an algorithm switch as a hump or a step at one message size (docs/calibration.md, eq. C4).
Descriptions are compared by evidence (Laplace), not by residuals alone.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from calibration.questions import Question
from hwmodel.errors import InputError
from hwmodel.units import KIB
from simulator.calibrated import with_settings
from simulator.system import System, build_system

Array = NDArray[np.float64]

_ALGORITHMS = ("nccl", "one-shot", "two-shot", "hierarchical")
_LIMITS_KIB = (48.0, 128.0, 256.0, 512.0, 1024.0)  # switch-over sizes that engines and images ship
_FEWEST_LOADS = 4  # of the baseline: fewer cannot show a switch
CLEAR = 3.0  # log of the odds at which another algorithm than the engine's own is believed: 20 to 1
_MOST_TIMES = 1000.0  # odds beyond it say more about the model than about the box
_SAME_CURVE = 0.01  # relative


class Choice(NamedTuple):
    """A description of [hardware] that was tried, the system it gives and the log of its evidence."""

    settings: dict[str, object]
    system: System
    log_evidence: float


def allreduce_choices(system: System, questions: Sequence[Question]) -> list[tuple[dict[str, object], System]]:
    """Other AllReduce algorithms and switch-over sizes that would show in these measurements; maybe none."""
    hardware = system.deployment.hardware
    stated = {"allreduce_algorithm", "allreduce_one_shot_max_kib", "nccl_tests"} & set(hardware.stated)
    loads = {round(q.requests) for q in questions if not q.drafts and q.quantity != "allreduce_share"}
    if stated or system.machine.allreduce.kind == "user" or system.parallel.tensor == 1 or len(loads) < _FEWEST_LOADS:
        return []
    messages = np.array(sorted(loads)) / system.batch_divisor * system.shape.hidden_size * 2.0
    found: list[tuple[dict[str, object], System]] = []
    curves = [system.machine.allreduce.time_s(messages)]
    wanted: list[dict[str, object]] = [{"allreduce_algorithm": name} for name in _ALGORITHMS]
    wanted += [{"allreduce_algorithm": "one-shot", "allreduce_one_shot_max_kib": limit} for limit in _LIMITS_KIB]
    for settings in wanted:
        limit = settings.get("allreduce_one_shot_max_kib")
        if isinstance(limit, float) and not messages[0] <= limit * KIB <= messages[-1]:
            continue
        try:
            other = build_system(with_settings(system.deployment, settings))
        except InputError:
            continue  # a kernel that this box cannot run
        curve = other.machine.allreduce.time_s(messages)
        if all(np.max(np.abs(curve / known - 1.0)) > _SAME_CURVE for known in curves):
            curves.append(curve)
            found.append((settings, other))
    return found


def best_choice(own: Choice, others: Sequence[Choice]) -> tuple[Choice, str]:
    """The description to fit with, and a sentence where it is not the deployment's own."""
    if not others:
        return own, ""
    best = max(others, key=lambda choice: choice.log_evidence)
    odds = best.log_evidence - own.log_evidence
    if odds < CLEAR:
        return own, ""
    words = ", ".join(f"hardware.{key} = {_toml(value)}" for key, value in best.settings.items())
    assumed = own.system.machine.allreduce.algorithms[0]
    more = " or more" if odds > np.log(_MOST_TIMES) else ""
    return best, (
        f"the sweep over the load looks like another AllReduce than assumed ({assumed} first): with {words} the"
        f" measurements are {min(np.exp(odds), _MOST_TIMES):,.0f} times as likely{more}; fitted with it. Put it into"
        " the deployment file if the engine's log confirms it"
    )


def _toml(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else f"{value:g}"


@dataclass(frozen=True, slots=True)
class Switch:
    """A parameter that is either 0 or 1: its place, the value that fits better, and the probability of 1."""

    index: int
    value: bool
    probability: float

    @property
    def fixed(self) -> tuple[int, float]:
        """The coordinate at which it has that value, whatever its probability."""
        return self.index, -_SURE if self.value else _SURE


_SURE = 50.0  # prior standard deviations: `Prior.values` of a switch is 1 below its quantile
_VISIBLE = 0.01  # of a log: a switch that moves nothing more cannot be told


def decide_switches(
    system: System,
    predictor: Callable[[tuple[tuple[int, float], ...]], Callable[[Array], Array]],
    evidence: Callable[[tuple[tuple[int, float], ...]], float],
    at: Array,
) -> list[Switch]:
    """The switches that the measurements can tell; `predictor` and `evidence` take the coordinates to hold fixed."""
    found = []
    for index, prior in enumerate(system.priors.priors):
        if prior.kind != "switch" or not 0.0 < prior.center < 1.0:
            continue
        on, off = ((index, -_SURE),), ((index, _SURE),)
        change = predictor(on)(at[None, :]) - predictor(off)(at[None, :])
        if not change.size or np.max(np.abs(change)) < _VISIBLE:
            continue
        odds = evidence(on) - evidence(off) + np.log(prior.center / (1.0 - prior.center))
        probability = float(1.0 / (1.0 + np.exp(-np.clip(odds, -30.0, 30.0))))
        found.append(Switch(index, probability > 0.5, min(max(probability, 0.005), 0.995)))
    return found
