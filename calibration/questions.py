"""What the model is asked: one measured quantity each, under the conditions it was measured in."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import numpy as np

from hwmodel.percent import load_text
from simulator.deployment.speculation import MAX_DRAFT_TOKENS, METHODS
from simulator.deployment.tables import MAX_TOKENS
from simulator.json_table import JsonTable
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
        return f"{_UNITS[self.quantity]} at C={load_text(self.requests)}{k}, context {self.context_tokens:.0f}"

    def observation(self) -> Observation:
        """The value on the scale of the fit: a log, or the logit of a share."""
        if self.quantity == "allreduce_share":
            return Observation(self.label, float(np.log(self.value / (1.0 - self.value))), self.noise)
        return Observation(self.label, float(np.log(self.value)), self.noise)

    def natural(self, scaled: float) -> float:
        """A value of the fit's scale in SI units."""
        return float(1.0 / (1.0 + np.exp(-scaled)) if self.quantity == "allreduce_share" else np.exp(scaled))

    def to_dict(self) -> dict[str, Any]:
        """The question as a profile keeps it."""
        return asdict(self)


def question_of(item: Mapping[str, Any], place: str) -> Question:
    """The question that a profile keeps at `place`; `InputError` where a value cannot be."""
    table = JsonTable(item, place)
    quantity = table.text("quantity")
    if quantity not in get_args(Quantity):
        raise table.refuse("quantity", ", ".join(get_args(Quantity)))
    return Question(
        source=table.text("source"),
        quantity=quantity,  # type: ignore[arg-type]
        value=table.number("value", 1e-9, 1e12 if quantity == "throughput" else 1e4),
        noise=table.number("noise", 1e-6, 100.0),
        setting=_setting_of(table.table("setting")),
        requests=table.number("requests", 1.0, 1e6),
        context_tokens=table.number("context_tokens", 1.0, float(MAX_TOKENS)),
        tokens_per_step=table.optional("tokens_per_step", 1.0, MAX_DRAFT_TOKENS + 1.0),
        draft_probability=table.number("draft_probability", 0.0, 1.0),
        with_prompts=table.truth("with_prompts"),
        kind=table.text("kind"),
    )


def _setting_of(table: JsonTable) -> Setting:
    method = table.text("method")
    if method not in METHODS:
        raise table.refuse("method", ", ".join(METHODS))
    return Setting(
        method,
        table.whole("num_speculative_tokens", 0, MAX_DRAFT_TOKENS),
        table.whole("input_tokens", 1, MAX_TOKENS),
        table.whole("output_tokens", 2, MAX_TOKENS),
    )
