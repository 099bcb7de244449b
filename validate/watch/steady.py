"""Hysteresis: one interval's best is noise; a change is announced when it is sure and stays so.

Rule. Announced is the deployed length at first. Where some length is better than the announced one with at least
`min_probability` and by at least `min_gain` in `persist` intervals with traffic one after the other, the length with
the largest mean log gain over them is announced. An announced length that is not the deployed one is withdrawn once
its median gain over the deployed one has been no gain for as many intervals. Intervals without an answer change
nothing.
"""

import math
from dataclasses import dataclass, field

from simulator.summary import median, share_above
from validate.watch.advice import Advice


@dataclass(frozen=True, slots=True)
class Rule:
    """When a change is announced."""

    min_probability: float = 0.9
    min_gain: float = 0.03  # relative: what a restart is worth at least
    persist: int = 3  # intervals


@dataclass(slots=True)
class Steady:
    """What is announced, and for how long something else has been better."""

    rule: Rule
    deployed: int | None = None
    announced: int | None = None
    better_for: int = 0  # intervals in which another length was better than the announced one
    worse_for: int = 0  # intervals in which the announced one was no better than the deployed one
    _log_gains: dict[int, float] = field(default_factory=dict)  # over the announced one, summed over these intervals

    def take(self, advice: Advice) -> bool:
        """Takes one interval's comparison; whether the announcement changes with it."""
        if advice.deployed != self.deployed:
            self.reset(advice.deployed)
        if self.announced not in advice.gains:  # no longer compared: it cannot be told to be best
            self.announced = advice.deployed
        if self._challenged(advice):
            return True
        return self._withdrawn(advice)

    def reset(self, deployed: int | None) -> None:
        """Another length is deployed: nothing is announced but that."""
        self.deployed = self.announced = deployed
        self._start_over()

    def _start_over(self) -> None:
        self.better_for, self.worse_for, self._log_gains = 0, 0, {}

    def _challenged(self, advice: Advice) -> bool:
        assert self.announced is not None
        medians = {k: float(median(advice.over(k, self.announced))) for k in advice.gains}
        sure = [k for k, gain in medians.items() if gain >= 1.0 + self.rule.min_gain and self._is_sure(advice, k)]
        if not sure:
            self.better_for, self._log_gains = 0, {}
            return False
        known = self._log_gains if self.better_for else dict.fromkeys(medians, 0.0)
        self._log_gains = {k: known[k] + math.log(gain) for k, gain in medians.items() if k in known}
        self.better_for += 1
        if self.better_for < self.rule.persist:
            return False
        self.announced = max(self._log_gains, key=lambda k: (round(self._log_gains[k], 9), -k))
        self._start_over()
        return True

    def _is_sure(self, advice: Advice, k: int) -> bool:
        assert self.announced is not None
        return k != self.announced and share_above(advice.over(k, self.announced), 1.0) >= self.rule.min_probability

    def _withdrawn(self, advice: Advice) -> bool:
        assert self.announced is not None
        if self.announced == advice.deployed or float(median(advice.over(self.announced, advice.deployed))) > 1.0:
            self.worse_for = 0
            return False
        self.worse_for += 1
        if self.worse_for < self.rule.persist:
            return False
        self.announced = advice.deployed
        self._start_over()
        return True
