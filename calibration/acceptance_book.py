"""What is known of acceptance apart from the measurements: for methods and draft lengths that nobody counted."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulator.acceptance import AcceptanceDraws, acceptance_draws
from simulator.deployment import with_method
from simulator.system import System

Array = NDArray[np.float64]


@dataclass
class AcceptanceBook:
    """Draws of acceptance by method and draft length, made once."""

    system: System
    num_draws: int
    seed: int

    def __post_init__(self) -> None:
        """No draws yet."""
        self._made: dict[tuple[str, int], AcceptanceDraws] = {}

    def draws(self, method: str, k: int) -> AcceptanceDraws:
        """Draws of S_1..S_k as the deployment states them, else of the prior for that method."""
        if (method, k) not in self._made:
            deployment, _ = with_method(self.system.deployment, method)
            self._made[method, k] = acceptance_draws(
                deployment.speculation,
                deployment.workload,
                k_max=max(k, 1),
                num_draws=self.num_draws,
                rng=np.random.default_rng(self.seed),
                ngram_variant=self.system.mode(k).ngram_variant if method == self.system.method else None,
                context_tokens=self.system.context_tokens,
            )
        return self._made[method, k].for_length(k)

    def draft_probability(self, method: str, k: int) -> float:
        """Median share of steps with a draft."""
        return self.draws(method, k).median_draft_probability

    def log_tokens_per_step(self, method: str, k: int) -> tuple[float, float]:
        """Median and standard deviation of the log of tokens per step and request."""
        found = self.draws(method, k)
        emitted = 1.0 + found.draft_probability[:, 0] * found.survival.sum(axis=1)
        median = 1.0 + found.median_draft_probability * float(found.median_survival.sum())
        return float(np.log(median)), max(float(np.std(np.log(emitted))), 1e-3)
