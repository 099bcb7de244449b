"""The constants of the cost model that published runs of speculation have moved, and how to move them again.

Each has a value from its source, with a spread, and the value that ships after a fit to all usable sets; to score the
model on sources it has not seen, the fit is repeated without one of them (`validate.backtest.left_out`).
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from calibration.published.rows import PublishedRow
from simulator.parameters import Prior
from simulator.system import System

NO_SHIFTS: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Constant:
    """One fitted constant: whose prior it is the median of, where it applies, and what its source said of it."""

    name: str
    parameter: str
    applies: Callable[[System, PublishedRow], bool]
    source_value: float  # before the fit
    shipped_value: float  # in data/fits, or in `systems`
    log_sd: float  # of the source's value

    @property
    def source_shift(self) -> float:
        """ln of the source's value over the shipped one: where a fit without data ends."""
        return math.log(self.source_value / self.shipped_value)


def _engine(name: str) -> Callable[[System, PublishedRow], bool]:
    return lambda system, row: name in row.text["engine"].lower()


def _hopper(system: System, row: PublishedRow) -> bool:
    return system.gpu.sm_arch == "9.0" and system.shape.expert_format != "int4"  # INT4 is measured: architectures.toml


def _shared_tiles(system: System, row: PublishedRow) -> bool:
    return system.machine.attention_backend != "TRITON_MLA"


CONSTANTS = (
    Constant("draft pass, vLLM", "draft_pass_ms", _engine("vllm"), 0.8, 0.65, 0.4),
    Constant("draft pass, SGLang", "draft_pass_ms", _engine("sglang"), 0.25, 0.14, 0.4),
    Constant("draft pass, TensorRT-LLM", "draft_pass_ms", _engine("tensorrt"), 0.5, 0.3, 0.4),
    Constant("overlap lost, SGLang", "synchronous_step_ms", _engine("sglang"), 1.0, 0.8, 0.4),
    Constant("cache read again in verification", "verify_kv_share", _shared_tiles, 0.33, 0.17, 0.4),
    Constant("issue of an expert, Hopper", "expert_issue_us", _hopper, 0.33, 1.2, 0.6),
    Constant("elementwise kernels", "activation_scale", lambda system, row: True, 1.0, 1.0, 0.5),
    Constant("exchange, shared context", "context_exchange_scale", lambda system, row: True, 0.5, 0.7, 0.6),
    Constant("token overhead", "token_overhead_us", lambda system, row: True, 4.0, 2.0, 1.0),
)


def shifted(system: System, row: PublishedRow, shifts: Mapping[str, float]) -> System:
    """The system with the medians of its priors moved by `shifts` (ln) where the constants apply."""
    changes: dict[str, Prior] = {}
    for constant in CONSTANTS:
        shift = shifts.get(constant.name, 0.0)
        if shift and constant.applies(system, row):
            prior = changes.get(constant.parameter) or system.priors[constant.parameter]
            changes[constant.parameter] = replace(prior, center=prior.center * math.exp(shift))
    return replace(system, priors=system.priors.replaced(changes)) if changes else system
