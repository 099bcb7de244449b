"""What a published `metric` means: whether less of it is better, and what it says of a decode step."""

import re

from hwmodel.units import MS, US

_RATE = re.compile(
    r"throughput|speed|\btps\b|\bt/s\b|[rq]ps\b|tok\w*\s*(?:/|per)\s*(?:s\b|sec)|req\w*\s*(?:/|per)\s*(?:s\b|sec)"
    r"|(?:/|per )step"
)
_TIME = re.compile(r"tpot|itl|ttft|latency|step|time|delay|duration|\b[mu]?s\b|\bµs\b|\bmsec|\bsec")
_OF_A_TOKEN = re.compile(r"tpot|itl|inter[- ]?token|(?:/|per |per output |per decode )tok|\bstep\b|step time")
_NO_DECODE_RATE = re.compile(
    r"ratio|relative|normal|speed-?up|%|input|prompt|prefill|ttft|\b[rq]ps\b|\breq\w*\s*(?:/|per)\s*(?:s\b|sec)"
)
_TOKENS = re.compile(r"tok|\btps\b|\bt/s\b")
_OUTPUT = re.compile(r"output|decode|generat")
_OF_A_USER = re.compile(r"(?:/|\bper )\s*(?:user|req|seq|stream|client)")
_OF_A_GPU = re.compile(r"(?:/|\bper )\s*(?:gpu|device|card|accelerator)")
_THOUSANDS = re.compile(r"\bk\s?tok")
_UNITS = ((re.compile(r"\bms\b|\bmsec|millisec"), MS), (re.compile(r"\b[uµ]s\b|microsec"), US))
_SECONDS = re.compile(r"\bs\b|\bsec")
_SHORTEST_STEP_S, _LONGEST_STEP_S = 1e-5, 600.0  # outside, the metric is not what it seems


def is_a_time(metric: str) -> bool:
    """Whether less is better in this metric.

    >>> is_a_time("mean TPOT ms"), is_a_time("aggregate output tok/s")
    (True, False)
    """
    name = metric.lower()
    return not _RATE.search(name) and bool(_TIME.search(name))


def oriented_ratio(metric: str, baseline: float, speculative: float) -> float:
    """How many times faster speculation is, more than 1 being faster whatever the metric."""
    return baseline / speculative if is_a_time(metric) else speculative / baseline


def decode_step_s(metric: str, baseline: float, requests: float | None, num_gpus: float | None) -> float | None:
    """Seconds of a decode step without speculation, where the metric tells: one token a request and step.

    `requests` run at once on `num_gpus`; both matter only for rates that are summed over them.

    >>> decode_step_s("output tok/s/user", 50.0, None, None)
    0.02
    """
    name = metric.lower()
    if _NO_DECODE_RATE.search(name):
        return None
    step_s = _of_time(name, baseline) if is_a_time(metric) else _of_rate(name, baseline, requests, num_gpus)
    return step_s if step_s and _SHORTEST_STEP_S <= step_s <= _LONGEST_STEP_S else None


def _of_time(name: str, value: float) -> float | None:
    if not _OF_A_TOKEN.search(name):
        return None  # a whole request
    unit = next((size for pattern, size in _UNITS if pattern.search(name)), 1.0 if _SECONDS.search(name) else None)
    return value * unit if unit else None


def _of_rate(name: str, value: float, requests: float | None, num_gpus: float | None) -> float | None:
    if not _TOKENS.search(name) or ("total" in name and not _OUTPUT.search(name)):
        return None  # other things than tokens, or prompts counted too
    value *= 1000.0 if _THOUSANDS.search(name) else 1.0
    if _OF_A_USER.search(name):
        return 1.0 / value
    if _OF_A_GPU.search(name):
        return requests / (value * num_gpus) if requests and num_gpus else None
    return requests / value if requests else None
