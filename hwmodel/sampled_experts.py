"""Time of the routed experts of one layer on one rank, for a load that was counted instead of expected."""

from hwmodel.parameters import Parameters
from hwmodel.rank import MoeWork
from hwmodel.roofline import operator_time_s
from hwmodel.step import _DEFAULT_TILE_ROWS, _MARLIN_TILE_ROWS, Machine


def tile_rows(moe: MoeWork) -> int:
    """Rows of one tile of the grouped GEMM for these experts' weight format."""
    return _MARLIN_TILE_ROWS.get(moe.weight_format, _DEFAULT_TILE_ROWS)


def sampled_experts_time_s(
    moe: MoeWork, machine: Machine, p: Parameters, *, experts_read: float, padded_rows: float
) -> float:
    """Seconds of a layer's routed experts on a rank that reads `experts_read` of them and computes `padded_rows` rows.

    The same operator as `step.experts_time_s`, which a test compares at the expected load; parameters are one draw.
    """
    bandwidth = p.bandwidth_efficiency * machine.gpu.memory_bandwidth_bytes_per_s
    rate = p.expert_compute_efficiency * machine.flop_per_s(moe.weight_format)
    flop = 2.0 * padded_rows * moe.expert_parameters
    seconds = operator_time_s(experts_read * moe.expert_bytes, bandwidth, flop, rate, machine.gemm_exponent)
    return float(seconds.item()) if hasattr(seconds, "item") else float(seconds)
