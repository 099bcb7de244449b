"""What clients ask for: when requests arrive and how long they are. The same in both arms, whatever the engine does."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from hwmodel.errors import InputError
from simulator.deployment.keys import short
from simulator.deployment.tables import MAX_CONCURRENCY, Workload
from simulator.serving.request import MAX_TIME_S, RequestSpec
from simulator.serving.traces import read_lengths, read_trace

Ints = NDArray[np.int64]

_CHUNK = 1024  # requests drawn at a time
_MIN_RATE_PER_S, _MAX_RATE_PER_S = 1e-6, 1e6
_FORMS = "closed:USERS[:RAMP_S], poisson:RATE, gamma:RATE:SHAPE, trace:FILE"


@dataclass(frozen=True, slots=True)
class Arrivals:
    """How requests arrive: `kind` is closed, poisson, gamma or trace; rates in requests per second."""

    kind: str
    users: int = 0
    rate_per_s: float = 0.0
    shape: float = 1.0  # of the gamma distribution of gaps: below 1 burstier than Poisson, above 1 more even
    path: str = ""
    ramp_s: float | None = None  # over which users of a closed loop start; None: one request's duration

    @property
    def closed(self) -> bool:
        """Whether a fixed number of users wait for their answers."""
        return self.kind == "closed"

    def __str__(self) -> str:
        """As it is written."""
        if self.kind == "closed":
            return f"closed:{self.users}" + ("" if self.ramp_s is None else f":{self.ramp_s:g}")
        if self.kind == "trace":
            return f"trace:{self.path}"
        return f"poisson:{self.rate_per_s:g}" if self.kind == "poisson" else f"gamma:{self.rate_per_s:g}:{self.shape:g}"


def parse_arrivals(text: str) -> Arrivals:
    """Arrivals from `closed:64`, `poisson:2.5`, `gamma:2.5:0.5` (rate, shape) or `trace:FILE`."""
    kind, _, rest = text.partition(":")
    if kind == "trace" and rest:
        return Arrivals("trace", path=rest)
    fields = rest.split(":") if rest else []
    if kind == "closed" and len(fields) in (1, 2):
        users = _number(text, fields[0], 1, MAX_CONCURRENCY)
        if users != int(users):
            raise InputError(f"arrivals: got {short(text)}, allowed: a whole number of users")
        ramp = _number(text, fields[1], 0.0, MAX_TIME_S) if len(fields) == 2 else None
        return Arrivals("closed", users=int(users), ramp_s=ramp)
    if kind == "poisson" and len(fields) == 1:
        return Arrivals("poisson", rate_per_s=_number(text, fields[0], _MIN_RATE_PER_S, _MAX_RATE_PER_S))
    if kind == "gamma" and len(fields) in (1, 2):
        rate = _number(text, fields[0], _MIN_RATE_PER_S, _MAX_RATE_PER_S)
        shape = _number(text, fields[1], 0.01, 1000.0) if len(fields) == 2 else 1.0
        return Arrivals("gamma", rate_per_s=rate, shape=shape)
    raise InputError(f"arrivals: got {short(text)}, allowed: {_FORMS}")


def _number(text: str, field: str, low: float, high: float) -> float:
    try:
        value = float(field)
    except ValueError:
        value = np.nan
    if not low <= value <= high:
        raise InputError(f"arrivals: got {short(field)} in {short(text)}, allowed: {low:g} to {high:g}")
    return value


def requests(arrivals: Arrivals, workload: Workload, num_requests: int, seed: int) -> Iterator[RequestSpec]:
    """The first `num_requests` requests, in order of arrival; the same for equal arguments."""
    if arrivals.kind == "trace":
        return islice(read_trace(arrivals.path), num_requests)
    gaps, lengths = np.random.default_rng(seed).spawn(2)
    pairs = _lengths(workload, lengths)
    return islice(_timed(_arrival_times(arrivals, gaps), pairs), num_requests)


def _timed(times: Iterator[float], pairs: Iterator[tuple[int, int]]) -> Iterator[RequestSpec]:
    for number, (time, (prompt, output)) in enumerate(zip(times, pairs, strict=False)):
        yield RequestSpec(number, time, prompt, output)


def _arrival_times(arrivals: Arrivals, rng: np.random.Generator) -> Iterator[float]:
    """Arrival times in seconds, without end. Zeros in a closed loop, where answers decide."""
    now = 0.0
    while True:
        if arrivals.closed:
            yield from [0.0] * _CHUNK
            continue
        scale = 1.0 / (arrivals.rate_per_s * arrivals.shape)
        times = now + np.cumsum(rng.gamma(arrivals.shape, scale, _CHUNK))
        now = float(times[-1])
        yield from times.tolist()


def _lengths(workload: Workload, rng: np.random.Generator) -> Iterator[tuple[int, int]]:
    """Prompt and output lengths, without end: fixed, log-normal around the means, or drawn from a file's rows."""
    draw = _length_sampler(workload, rng)
    while True:
        prompts, outputs = draw(_CHUNK)
        yield from zip(prompts.tolist(), outputs.tolist(), strict=True)


def _length_sampler(workload: Workload, rng: np.random.Generator) -> Callable[[int], tuple[Ints, Ints]]:
    means = workload.input_tokens, workload.output_tokens
    if workload.length_distribution == "fixed":
        return lambda count: (np.full(count, means[0]), np.full(count, means[1]))
    if workload.length_distribution == "lognormal":
        spread = workload.length_log_sd

        def lognormal(mean: float, count: int) -> Ints:
            drawn = mean * np.exp(spread * rng.standard_normal(count) - 0.5 * spread**2)  # keeps the mean
            return np.maximum(np.rint(drawn), 1).astype(np.int64)

        return lambda count: (lognormal(means[0], count), lognormal(means[1], count))
    prompts, outputs = read_lengths(workload.length_distribution)

    def empirical(count: int) -> tuple[Ints, Ints]:
        rows = rng.integers(len(prompts), size=count)
        return prompts[rows], outputs[rows]

    return empirical
