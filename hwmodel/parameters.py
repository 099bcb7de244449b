"""The uncertain quantities of the cost model, as plain numbers or as arrays of draws."""

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hwmodel.moe import Routing
from hwmodel.records import dataclass
from hwmodel.units import GB, MS, US

if TYPE_CHECKING:
    from hwmodel.residual import StepResidual

Array = NDArray[np.float64]

_NO_MEMORY = 1e6  # Beta concentration at which requests no longer differ
_DATA = Path(__file__).parent / "data" / "fits"
_FILE_UNITS = {"_us": (US, "_s"), "_ms": (MS, "_s"), "_gb": (GB, "_bytes")}


@dataclass(frozen=True)
class Parameters:
    """One value of every parameter, each a float or an array `(num_draws, 1)`; meanings in data/fits/priors.toml."""

    bandwidth_efficiency: Any
    popularity_sigma: Any
    stickiness: Any
    routing_memory: Any
    allreduce_latency_scale: Any
    allreduce_size_scale: Any
    allreduce_skew_s: Any
    context_exchange_scale: Any
    kernel_floor_s: Any
    attention_latency_s: Any
    host_step_s: Any
    synchronous_step_s: Any
    speculation_step_s: Any
    sequence_overhead_s: Any
    token_overhead_s: Any
    kv_read_scale: Any
    kv_latency_scale: Any
    attention_flop_scale: Any
    expert_issue_s: Any
    activation_scale: Any
    verify_kv_share: Any
    verify_path_scale: Any
    verify_path_applies: Any
    draft_pass_s: Any
    expert_compute_efficiency: Any
    dense_compute_efficiency: Any
    piecewise_layer_s: Any
    eager_kernel_s: Any
    sampling_scale: Any
    memory_reserve_bytes: Any
    model_error: Any
    residual: "StepResidual | None" = None  # what measurements add to the model; no parameter, has no prior of its own

    @functools.cached_property
    def routing(self) -> Routing:
        """The routing parameters together; what is derived from the draws is computed once."""
        return Routing(self.popularity_sigma, self.stickiness, self.routing_memory)

    @functools.cached_property
    def independent_routing(self) -> Routing:
        """Routing without memory of any kind, for layers that pick experts by token id."""
        none = 0.0 * np.asarray(self.stickiness, dtype=float)
        return Routing(self.popularity_sigma, none, none + _NO_MEMORY)


PARAMETER_NAMES = tuple(f.name for f in fields(Parameters) if f.default is MISSING)


def si_name(file_name: str) -> tuple[str, float]:
    """The SI name and factor of a file key: `kernel_floor_us` -> (`kernel_floor_s`, 1e-6)."""
    suffix = file_name[-3:]
    if suffix in _FILE_UNITS:
        factor, si_suffix = _FILE_UNITS[suffix]
        return file_name[:-3] + si_suffix, factor
    return file_name, 1.0


@functools.cache
def prior_table() -> Mapping[str, Mapping[str, Any]]:
    """The prior of every parameter by its file name (units in the name), as written in priors.toml."""
    return tomllib.loads((_DATA / "priors.toml").read_text(encoding="utf-8"))


@functools.cache
def fitted_values() -> Mapping[str, Any]:
    """Fitted constants by GPU architecture, interconnect, engine and attention backend (architectures.toml)."""
    return tomllib.loads((_DATA / "architectures.toml").read_text(encoding="utf-8"))
