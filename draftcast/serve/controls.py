"""The controls of the page: one table of keys of the deployment file; units, bounds and words are the keys' own."""

import math
from collections.abc import Callable, Sequence

from hwmodel.gpus import gpu_names
from hwmodel.models import model_names
from hwmodel.records import dataclass
from simulator.deployment.keys import choices, field_at, known_keys
from simulator.deployment.tables import MAX_CONCURRENCY

LOAD = "c"  # the one control that is no key: as `predict -c`, the load that is looked into
_PER_DECADE = (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8)


@dataclass(frozen=True, slots=True)
class Control:
    """One key with the values that its slider stops at, or its list of words; any other value can be typed."""

    key: str
    label: str
    group: str
    stops: tuple[float, ...] = ()
    words: Callable[[], Sequence[str]] | None = None
    unit: str | None = None  # where the key's ending does not say it
    needs: str = ""  # a control that must have a value as well

    @property
    def options(self) -> tuple[str, ...]:
        """The words to choose from; none where the value is a number."""
        if self.words is not None:
            return tuple(self.words())
        field = field_at(self.key.split("."))
        return choices(field) if field else ()

    def meaning(self) -> tuple[str, str]:
        """The unit and the meaning of the key."""
        if self.key == LOAD:
            return "requests", f"requests at once that the step below is for (1 to {MAX_CONCURRENCY})"
        info = next(info for info in known_keys() if info.key == self.key)
        return info.unit if self.unit is None else self.unit, info.meaning


def logarithmic(low: float, high: float, *, whole: bool) -> tuple[float, ...]:
    """Round values from `low` to `high`, about evenly apart in their logarithm.

    >>> logarithmic(1, 20, whole=True)
    (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20)
    """
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    values = [float(f"{digit * 10.0**power:.3g}") for power in powers for digit in _PER_DECADE]
    kept = [value for value in values if low <= value <= high and (not whole or value == int(value))]
    return tuple(int(value) for value in kept) if whole else tuple(kept)


def doubling(high: int) -> tuple[float, ...]:
    """Powers of two up to `high`."""
    return tuple(2**power for power in range(int(math.log2(high)) + 1))


_HUNDREDTHS = tuple(i / 100 for i in range(101))
_DRAFT, _LOAD, _MACHINE = "Drafts", "Traffic", "Machine"
CONTROLS = (
    Control("speculation.method", "Method", _DRAFT),
    Control("speculation.num_speculative_tokens", "Draft tokens, k", _DRAFT, tuple(range(17)), unit="tokens a step"),
    Control("speculation.acceptance.conditional", "Acceptance of each token", _DRAFT, _HUNDREDTHS, unit="0 to 1"),
    Control(
        "speculation.acceptance.draft_probability",
        "Steps with a draft",
        _DRAFT,
        _HUNDREDTHS,
        unit="0 to 1",
        needs="speculation.acceptance.conditional",
    ),
    Control(LOAD, "Concurrency looked into", _LOAD, logarithmic(1, 1000, whole=True)),
    Control("workload.concurrency", "Concurrencies compared", _LOAD, unit="1,4,16"),
    Control("workload.input_tokens", "Prompt", _LOAD, logarithmic(10, 1_000_000, whole=True)),
    Control("workload.output_tokens", "Output", _LOAD, logarithmic(10, 100_000, whole=True)),
    Control("workload.kind", "Kind of text", _LOAD),
    Control("model.config", "Model", _MACHINE, words=model_names),
    Control("hardware.gpu", "GPU", _MACHINE, words=gpu_names),
    Control("hardware.num_gpus", "GPUs of the machine", _MACHINE, doubling(64)),
    Control("engine.tensor_parallel_size", "Tensor parallel size", _MACHINE, doubling(64)),
    Control("hardware.interconnect", "Interconnect", _MACHINE),
    Control(
        "hardware.allreduce_latency_us", "AllReduce latency", _MACHINE, logarithmic(1, 1000, whole=False), unit="us"
    ),
)
BY_KEY = {control.key: control for control in CONTROLS}
