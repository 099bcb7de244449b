"""The highest rate of Poisson arrivals at which enough requests keep the limits, found by simulation."""

from dataclasses import replace

from simulator.results import JsonObject
from simulator.serving.arms import Arm, Load, run_arm
from simulator.serving.metrics import Slo
from simulator.serving.workload import Arrivals

_PERCENT = 100.0
_HALVINGS = 12  # down to 1/4096 of the capacity
_PRECISION = 1.03  # ratio of the rates between which the answer lies in the end


def highest_rate(arm: Arm, load: Load, slo: Slo, capacity_requests_per_s: float) -> JsonObject:
    """`max_rate_requests_per_s` of the deployment within the limits, or None with `max_rate_reason`.

    Halving from the capacity until enough requests keep the limits, then bisection; every trial sees the same
    requests, so that the share of those within the limits falls with the rate.
    """

    def keeps(rate: float) -> bool:
        trial = replace(load, arrivals=Arrivals("poisson", rate_per_s=rate))
        report = run_arm(arm, trial, slo)
        if not report.finished_all:
            raise KeyboardInterrupt
        return (report.metrics.attainment or 0.0) >= slo.percentile / _PERCENT

    high = capacity_requests_per_s
    low = high / 2.0
    for _ in range(_HALVINGS):
        if keeps(low):
            break
        high, low = low, low / 2.0
    else:
        reason = f"below {slo.percentile:g} % within the limits even at {high:.3g} requests a second"
        return {"max_rate_requests_per_s": None, "max_rate_reason": reason}
    while high / low > _PRECISION:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if keeps(middle) else (low, middle)
    return {"max_rate_requests_per_s": low, "max_rate_reason": None}
