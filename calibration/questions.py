"""What the model is asked: one measured quantity each, under the conditions it was measured in."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from simulator.posterior import Observation

Quantity = Literal["tpot", "step", "throughput", "allreduce_share"]
_UNITS: dict[Quantity, str] = {
    "tpot": "TPOT",
    "step": "step",
    "throughput": "throughput",
    "allreduce_share": "AR share",
}


@dataclass(frozen=True, slots=True)
class Setting:
    """What the requests were like and how they drafted; `num_speculative_tokens` 0 is the baseline."""

    method: str
    num_speculative_tokens: int
    input_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Question:
    """A measured `value` in SI units (a share in 0..1) with its relative noise, and what ran then.

    `requests` are those running on all replicas together; `tokens_per_step` is None where nobody counted them.
    `with_prompts`: the time holds the prefill of other requests. `kind` is "cell", "step" or "fact".
    """

    source: str
    quantity: Quantity
    value: float
    noise: float
    setting: Setting
    requests: float
    context_tokens: float
    tokens_per_step: float | None = 1.0
    draft_probability: float = 1.0
    with_prompts: bool = True
    kind: str = "cell"

    @property
    def drafts(self) -> bool:
        """Whether the engine speculated."""
        return self.setting.num_speculative_tokens > 0

    @property
    def group(self) -> str:
        """What is left out together in cross-validation: about the same concurrency (quarters of an octave)."""
        return f"C={2.0 ** (round(4.0 * np.log2(self.requests)) / 4.0):.3g}"

    @property
    def label(self) -> str:
        """A few words for tables."""
        k = f", k={self.setting.num_speculative_tokens}" if self.drafts else ""
        return f"{_UNITS[self.quantity]} at C={self.requests:g}{k}, context {self.context_tokens:.0f}"

    def observation(self) -> Observation:
        """The value on the scale of the fit: a log, or the logit of a share."""
        if self.quantity == "allreduce_share":
            return Observation(self.label, float(np.log(self.value / (1.0 - self.value))), self.noise)
        return Observation(self.label, float(np.log(self.value)), self.noise)

    def natural(self, scaled: float) -> float:
        """A value of the fit's scale in SI units."""
        return float(1.0 / (1.0 + np.exp(-scaled)) if self.quantity == "allreduce_share" else np.exp(scaled))
