"""The routing parameters fitted to counted experts: how many different ones a layer read, by tokens and requests.

Engines that record what was routed where (SGLang's expert distribution, routed experts returned by vLLM), or a forward
pass over recorded answers, give such counts. They tell what step times tell only together with everything else.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from calibration.published.rows import SHOWN_PATH, checked, csv_records
from hwmodel.errors import InputError
from hwmodel.moe import Routing, expected_distinct
from hwmodel.parameters import prior_table
from simulator.deployment.keys import short

Array = NDArray[np.float64]

COLUMNS = ("tokens", "requests", "distinct_experts")
NAMES = ("popularity_sigma", "stickiness", "routing_memory")
_COUNT_NOISE = 0.02  # relative: about the error of the model itself (docs/model.md, eq. E2)
_MAX_TOKENS = 65_536
_MAX_ROWS = 10_000
_TOLD = 4.0  # by so much more must the squared errors grow where parameters stay at their priors' centres


@dataclass(frozen=True, slots=True)
class ExpertCount:
    """A step of `tokens` tokens spread evenly over `requests` read so many different experts a layer, on average."""

    tokens: int
    requests: int
    distinct_experts: float


@dataclass(frozen=True, slots=True)
class RoutingFit:
    """The value of each parameter, those that the counts do not tell, and the count of each row as fitted."""

    value: dict[str, float]
    undetermined: tuple[str, ...]
    fitted: tuple[float, ...]

    @property
    def routing(self) -> Routing:
        """As the model takes it."""
        return Routing(*(self.value[name] for name in NAMES))


def read_expert_counts(path: str, num_experts: int, num_experts_per_tok: int) -> tuple[ExpertCount, ...]:
    """The rows of a CSV file with the columns `tokens`, `requests` and `distinct_experts`; others are passed over.

    Raises `InputError` in one line where a count is impossible for such a layer.
    """
    reader, layer = csv_records(path, "expert counts"), (num_experts, num_experts_per_tok)
    records = _bounded(checked(reader, COLUMNS, path), path)
    return tuple(_count(record, _Place(path, reader.line_num), layer) for record in records)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a row stands, as errors name it."""

    path: str
    line: int

    def fault(self, what: str) -> InputError:
        """The error for the row."""
        return InputError(f"'{short(self.path, SHOWN_PATH)}' line {self.line}: {what}")


def _bounded(records: Iterable[Mapping[str, Any]], path: str) -> Iterator[Mapping[str, Any]]:
    for number, record in enumerate(records, start=1):
        if number > _MAX_ROWS:
            raise InputError(
                f"expert counts: '{short(path, SHOWN_PATH)}' has over {_MAX_ROWS} rows, allowed: a row per kind of step"
            )
        yield record


def _count(record: Mapping[Any, Any], place: _Place, layer: tuple[int, int]) -> ExpertCount:
    num_experts, top_k = layer
    extra = record.get(None)  # where csv puts cells beyond the header's
    if extra:
        columns = len(record) - 1
        raise place.fault(f"got {columns + len(extra)} cells, allowed: {columns}, as in the header")
    tokens, requests = (_whole(record, name, place) for name in COLUMNS[:2])
    if requests > tokens:
        raise place.fault(f"{requests} requests with {tokens} tokens, allowed: a token or more for each")
    distinct = _number(record, COLUMNS[2], place)
    most = min(num_experts, tokens * top_k)
    if not top_k <= distinct <= most:
        raise place.fault(
            f"got {distinct:g} distinct experts, allowed: {top_k} to {most} for {tokens} tokens of a layer with {top_k}"
            f" of {num_experts} experts"
        )
    return ExpertCount(tokens, requests, distinct)


def _whole(record: Mapping[Any, Any], name: str, place: _Place) -> int:
    value = _number(record, name, place)
    if value != int(value) or not 1 <= value <= _MAX_TOKENS:
        raise place.fault(f"{name}: got {value:g}, allowed: a whole number from 1 to {_MAX_TOKENS}")
    return int(value)


def _number(record: Mapping[Any, Any], name: str, place: _Place) -> float:
    text = str(record[name] or "").strip()
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise place.fault(f"{name}: got '{short(text)}', allowed: a number")
    return value


def fit_routing(num_experts: int, num_experts_per_tok: int, counts: Sequence[ExpertCount]) -> RoutingFit:
    """The mode of the routing parameters given the counts and their priors, in log residuals.

    Equations E1 and E2 of docs/model.md. A count is taken to be right to 2 %, which is about the model's own error.
    Undetermined are as many parameters as can stay at their priors' centres with the counts fitted as well, the one
    that matters least first; they have the values of those centres.
    """
    centre, spread, low, high = _priors()
    log_counts = np.log([count.distinct_experts for count in counts])

    def predicted(x: Array) -> Array:
        routing = Routing(x[0], x[1], math.exp(x[2]))
        return np.array(
            [expected_distinct(num_experts, num_experts_per_tok, c.tokens, c.requests, routing) for c in counts]
        )

    def residuals(x: Array) -> Array:
        return np.concatenate([(np.log(predicted(x)) - log_counts) / _COUNT_NOISE, (x - centre) / spread])

    def search(free: NDArray[np.intp]) -> tuple[Array, float]:
        def place(moved: Array) -> Array:
            x = centre.copy()
            x[free] = moved
            return x

        def of(moved: Array) -> Array:
            return residuals(place(moved))

        if not len(free):
            return centre, float(np.sum(residuals(centre) ** 2))
        found = least_squares(of, centre[free], bounds=(low[free], high[free]), x_scale=spread[free])
        return place(found.x), float(2.0 * found.cost)

    free = np.arange(len(NAMES))
    mode, least = search(free)
    while len(free):
        tried = [search(np.delete(free, i)) for i in range(len(free))]
        worst = int(np.argmin([cost for _, cost in tried]))
        if tried[worst][1] - least > _TOLD:
            break
        mode, free = tried[worst][0], np.delete(free, worst)
    return RoutingFit(
        dict(zip(NAMES, [*mode[:2].tolist(), math.exp(mode[2])], strict=True)),
        tuple(name for i, name in enumerate(NAMES) if i not in free),
        tuple(predicted(mode).tolist()),
    )


def _priors() -> tuple[Array, Array, Array, Array]:
    """Centre, standard deviation and bounds of each parameter, the memory as its logarithm."""
    sigma, stickiness, memory = (prior_table()[name] for name in NAMES)
    centre = [sigma["mean"], stickiness["mean"], math.log(memory["median"])]
    spread = [sigma["sd"], stickiness["sd"], memory["log_sd"]]
    low = [sigma["low"], stickiness["low"], math.log(memory["low"])]
    high = [sigma["high"], stickiness["high"], math.log(memory["high"])]
    return np.array(centre), np.array(spread), np.array(low), np.array(high)
