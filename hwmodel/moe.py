"""Which experts one layer reads for the tokens of one step: distinct experts, the busiest rank, padded GEMM rows.

The routing model has three parameters (docs/model.md, "Experts"): popularity differs between experts (log-normal with
`popularity_sigma`), consecutive tokens of a request repeat experts (`stickiness`), and a request keeps favourites for
its whole length (`routing_memory`, the concentration of a Beta). Different requests are independent.
"""

import functools
from collections.abc import Sequence
from functools import cached_property
from itertools import permutations, product

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hwmodel.records import dataclass
from hwmodel.special import log_gamma, normal_quantile

Array = NDArray[np.float64]

_QUADRATURE_NODES = 32  # against summing 384 experts one by one: 0.2 % at sigma 0.9, 0.7 % at 1.6 (test_moe.py)
_EXACT_RUN_TOKENS = 33  # longer runs use the normal quadrature over the number of fresh tokens
_INTERPOLATION_POINTS = 4  # Chebyshev points per parameter; decode cells: 0.2 % in the median, 0.8 % at most
_DIRECT_DRAWS = 48  # fewer draws are computed one by one, without interpolation


@dataclass(frozen=True)
class Routing:
    """The routing parameters: floats, or arrays of one value a draw, any shape of the same size."""

    popularity_sigma: ArrayLike
    stickiness: ArrayLike
    routing_memory: ArrayLike

    @cached_property
    def columns(self) -> Array:
        """Coordinates `(3, num_draws)`: sigma, stickiness, logarithm of the memory."""
        sigma, rho, memory = (np.ravel(np.asarray(x, dtype=float)) for x in self._values)
        return np.stack(np.broadcast_arrays(sigma, rho, np.log(memory)))

    @property
    def _values(self) -> tuple[ArrayLike, ...]:
        return self.popularity_sigma, self.stickiness, self.routing_memory

    @cached_property
    def interpolation(self) -> tuple[Array, Array]:
        """Chebyshev points over the draws `(3, num_points)` and the weights of each draw `(num_draws, num_points)`."""
        points, bases = zip(*(_chebyshev(axis) for axis in self.columns), strict=True)
        basis = functools.reduce(lambda a, b: (a[:, :, None] * b[:, None, :]).reshape(len(a), -1), bases)
        return np.array(list(product(*points))).T, np.ascontiguousarray(basis)

    @cached_property
    def selections(self) -> dict[tuple[int, int, bool], "Selection"]:
        """What `selection` has computed."""
        return {}

    def selection(self, num_experts: int, top_k: int, *, interpolated: bool) -> "Selection":
        """The selection at the draws, or at the points between which it is interpolated: once for all steps."""
        key = num_experts, top_k, interpolated
        if key not in self.selections:
            columns = self.interpolation[0] if interpolated else self.columns
            self.selections[key] = Selection(num_experts, top_k, columns)
        return self.selections[key]


@dataclass(frozen=True, slots=True)
class ExpertLoad:
    """Per MoE layer: expected distinct experts, those of the busiest of `num_ranks` ranks, GEMM rows after padding."""

    distinct: Array
    busiest_rank: Array
    padded_rows: Array


@functools.lru_cache(maxsize=64)
def _popularity_nodes(num_experts: int) -> tuple[Array, Array]:
    """Standard-normal nodes and weights (summing to `num_experts`) that stand for the experts."""
    if num_experts <= _QUADRATURE_NODES:
        z = normal_quantile((np.arange(num_experts) + 0.5) / num_experts)
        return z, np.ones(num_experts)
    # Golub and Welsch: nodes are eigenvalues of the Jacobi matrix, weights the squared first components.
    off_diagonal = np.sqrt(np.arange(1.0, _QUADRATURE_NODES))
    nodes, vectors = np.linalg.eigh(np.diag(off_diagonal, 1) + np.diag(off_diagonal, -1))
    weights = vectors[0] ** 2
    keep = weights > 1e-9
    nodes, weights = nodes[keep], weights[keep]
    return nodes, weights * (num_experts / weights.sum())


def selection_probability(num_experts: int, top_k: int, popularity_sigma: Array) -> Array:
    """Probability that a token selects each expert class, shape `(num_draws, num_nodes)`.

    Formula: q = 1 - exp(-c * exp(sigma * z)), with c such that the q sum to `top_k` (docs/model.md, eq. E1).
    """
    z, weights = _popularity_nodes(num_experts)
    if top_k >= num_experts:
        return np.ones((len(np.atleast_1d(popularity_sigma)), len(z)))
    popularity = np.exp(np.atleast_2d(popularity_sigma).reshape(-1, 1) * z)
    log_c = (
        np.full((len(popularity), 1), np.log(top_k / num_experts)) - 0.5 * np.reshape(popularity_sigma, (-1, 1)) ** 2
    )
    for _ in range(60):  # Newton on log c: the sum is increasing and concave in c, steps are damped
        rate = np.exp(log_c) * popularity
        selected = weights * -np.expm1(-rate)
        excess = selected.sum(axis=1, keepdims=True) - top_k
        slope = (weights * rate * np.exp(-rate)).sum(axis=1, keepdims=True)
        step = np.clip(excess / slope, -1.0, 1.0)
        log_c = log_c - step
        if np.max(np.abs(step)) < 1e-12:
            break
    return np.asarray(-np.expm1(-np.exp(log_c) * popularity))


def untouched_probability(q: Array, run_tokens: float, stickiness: Array, routing_memory: Array) -> Array:
    """Probability that a run of `run_tokens` consecutive tokens of one request leaves an expert untouched.

    Formula: E[(1 - q_r) * (1 - (1 - rho) * q_r)^(n - 1)], q_r ~ Beta(kappa q, kappa (1 - q)); expanded in the number j
    of fresh (not copied) tokens, whose moments are products (docs/model.md, eq. E2).
    Source: model fitted to the published counts of DeepSeek-V4.1-Flash; see `docs/model.md` for the data.
    """
    absent = np.maximum(routing_memory * (1.0 - q), 1e-12)
    repeats = run_tokens - 1.0
    if repeats <= _EXACT_RUN_TOKENS - 1 and repeats == int(repeats):
        return _untouched_exact(absent, routing_memory, stickiness, int(repeats))
    return _untouched_quadrature(absent, routing_memory, stickiness, repeats)


def _untouched_exact(absent: Array, memory: Array, stickiness: Array, repeats: int) -> Array:
    moment = absent / memory
    total = np.zeros(np.broadcast_shapes(absent.shape, np.shape(stickiness)))
    binomial = 1.0
    for fresh in range(repeats + 1):
        weight = binomial * stickiness ** (repeats - fresh) * (1.0 - stickiness) ** fresh
        total = total + weight * moment
        moment = moment * (absent + fresh + 1) / (memory + fresh + 1)
        binomial = binomial * (repeats - fresh) / (fresh + 1)
    return total


def _untouched_quadrature(absent: Array, memory: Array, stickiness: Array, repeats: float) -> Array:
    mean, spread = repeats * (1.0 - stickiness), np.sqrt(3.0 * repeats * stickiness * (1.0 - stickiness))
    ratio = log_gamma(memory) - log_gamma(absent)
    total = np.zeros_like(absent)
    for shift, weight in ((-1.0, 1 / 6), (0.0, 2 / 3), (1.0, 1 / 6)):  # Gauss-Hermite, 3 points
        fresh = np.maximum(mean + shift * spread, 0.0) + 1.0
        total = total + weight * np.exp(log_gamma(absent + fresh) - log_gamma(memory + fresh) + ratio)
    return np.asarray(np.minimum(total, 1.0))


@dataclass(frozen=True, slots=True)
class Runs:
    """The tokens of one step: `counts[i]` requests with `tokens[i]` consecutive tokens each.

    A count has shape `(1,)`, or `(num_draws,)` where it varies by draw: then there are two runs, and the counts of a
    draw add up to the same number of requests.
    """

    tokens: tuple[float, ...]
    counts: tuple[Array, ...]


@dataclass(frozen=True)
class Selection:
    """How tokens pick the experts of a layer, at columns of routing parameters `(3, num_columns)`."""

    num_experts: int
    top_k: int
    columns: Array

    @cached_property
    def probability(self) -> Array:
        """That a token selects each expert class, `(num_columns, num_nodes)`."""
        return selection_probability(self.num_experts, self.top_k, self.columns[0])

    @cached_property
    def weights(self) -> Array:
        """Experts that each class stands for."""
        return _popularity_nodes(self.num_experts)[1]

    @cached_property
    def _known(self) -> dict[float, Array]:
        return {}

    def log_untouched(self, run_tokens: float) -> Array:
        """Logarithm of `untouched_probability` of a run, `(num_columns, num_nodes)`."""
        if run_tokens not in self._known:
            rho, memory = self.columns[1][:, None], np.exp(self.columns[2])[:, None]
            untouched = untouched_probability(self.probability, run_tokens, rho, memory)
            self._known[run_tokens] = np.log(np.maximum(untouched, 1e-300))
        return self._known[run_tokens]


def expert_load(
    num_experts: int, top_k: int, runs: Sequence[Runs], routing: Routing, *, num_ranks: int = 1, tile_rows: int = 1
) -> ExpertLoad:
    """Expert load of each cell, arrays `(num_draws, num_cells)`; one `Runs` per cell with counts of shape `(1,)` or
    `(num_draws,)`.

    Many draws are interpolated (Chebyshev, per parameter) from a few exact evaluations; few are computed exactly.
    """
    num_draws = max(routing.columns.shape[1], *(np.size(count) for cell in runs for count in cell.counts))
    interpolated = num_draws > _DIRECT_DRAWS and routing.columns.shape[1] == num_draws
    layer = _Layer(routing.selection(num_experts, top_k, interpolated=interpolated), num_ranks, tile_rows)
    return layer.interpolated(routing, runs) if interpolated else layer.exact(runs, num_draws)


@dataclass(frozen=True, slots=True)
class _Layer:
    selection: Selection
    num_ranks: int
    tile_rows: int

    def exact(self, runs: Sequence[Runs], num_draws: int) -> ExpertLoad:
        """Loads at each column of the selection, or at one column for counts that vary by draw."""
        alike: dict[tuple[float, ...], list[int]] = {}
        for i, cell in enumerate(runs):
            alike.setdefault(cell.tokens, []).append(i)
        loads = np.empty((3, num_draws, len(runs)))
        for tokens, cells in alike.items():
            counts = [_stacked([runs[i].counts[run] for i in cells]) for run in range(len(tokens))]
            for load, part in zip(loads, self._of_cells(tokens, counts), strict=True):
                load[:, cells] = part.T
        return ExpertLoad(*loads)

    def _of_cells(self, tokens: tuple[float, ...], counts: list[Array]) -> tuple[Array, Array, Array]:
        """Distinct experts, those of the busiest rank, and rows `(num_cells, num_draws)`, for runs of these lengths."""
        selection = self.selection
        touched = -np.expm1(sum(count * selection.log_untouched(n) for n, count in zip(tokens, counts, strict=True)))
        rows = sum(count * n for n, count in zip(tokens, counts, strict=True)) * selection.probability
        distinct = np.minimum(touched @ selection.weights, selection.num_experts)
        return distinct, self._busiest(touched, distinct), self._padded_rows(touched, rows)

    def _busiest(self, touched: Array, distinct: Array) -> Array:
        """Experts on the busiest rank: the largest of `num_ranks` normals (docs/model.md, eq. E4)."""
        if self.num_ranks == 1:
            return distinct
        variance = (touched * (1.0 - touched)) @ self.selection.weights / self.num_ranks
        largest = distinct / self.num_ranks + _expected_maximum(self.num_ranks) * np.sqrt(variance)
        return np.clip(largest, np.minimum(distinct, 1.0), self.selection.num_experts / self.num_ranks)

    def _padded_rows(self, touched: Array, rows: Array) -> Array:
        """Rows that the grouped GEMM computes: whole tiles of `tile_rows` per touched expert.

        E ceil(n / b) of a Poisson-like count is close to max(P(n > 0), mean / b + P(n > 0) / 2).
        """
        tiles = np.maximum(touched, rows / self.tile_rows + 0.5 * touched)
        return (np.maximum(tiles * self.tile_rows, rows) if self.tile_rows > 1 else rows) @ self.selection.weights

    def interpolated(self, routing: Routing, runs: Sequence[Runs]) -> ExpertLoad:
        """Loads at each draw by tensor-product Chebyshev interpolation.

        A cell whose counts vary by draw (some requests without a draft) is interpolated in that share as well.
        """
        points, basis = routing.interpolation
        known: dict[bytes, tuple[Array, Array]] = {}
        split = [_split_by_share(cell, known) for cell in runs]
        load = self.exact([part for parts, _ in split for part in parts], points.shape[1])

        def at_draws(values: Array) -> Array:
            columns = basis @ values
            if columns.shape[1] == len(runs):
                return np.asarray(columns)
            result, start = np.empty((len(columns), len(runs))), 0
            for i, (parts, share) in enumerate(split):
                stop = start + len(parts)
                result[:, i] = np.einsum(
                    "ij,ij->i", columns[:, start:stop], np.broadcast_to(share, (len(columns), stop - start))
                )
                start = stop
            return result

        # Interpolation may overshoot its limits by a fraction of a per cent where a curve saturates.
        num_experts = self.selection.num_experts
        distinct = np.clip(at_draws(load.distinct), min(self.selection.top_k, num_experts), num_experts)
        busiest = distinct
        if self.num_ranks > 1:
            busiest = np.minimum(at_draws(load.busiest_rank), num_experts / self.num_ranks)
        return ExpertLoad(distinct, busiest, at_draws(load.padded_rows))


def _stacked(counts: list[Array]) -> Array:
    """Counts of several cells, `(num_cells, num_draws or 1, 1)`."""
    longest = max(len(count) for count in counts)
    return np.array([count if len(count) == longest else np.repeat(count, longest) for count in counts])[:, :, None]


def _split_by_share(cell: Runs, known: dict[bytes, tuple[Array, Array]]) -> tuple[list[Runs], Array]:
    """The cell at a few shares of its first run, and the interpolation weights `(num_draws or 1, num_parts)`.

    `known` holds those of other cells: at one load the shares of all draft lengths are often the same.
    """
    if all(np.size(count) == 1 for count in cell.counts):
        return [cell], np.ones((1, 1))
    total = sum(cell.counts)
    share = np.ravel(cell.counts[0] / total)
    if (key := share.tobytes()) not in known:
        known[key] = _chebyshev(share)
    points, basis = known[key]
    size = float(np.ravel(total)[0])
    return [Runs(cell.tokens, (np.array([p * size]), np.array([(1 - p) * size]))) for p in points], basis


def _chebyshev(values: Array) -> tuple[Array, Array]:
    """Chebyshev points over the range of `values`, and the Lagrange weights `(num_values, num_points)`."""
    low, high = float(values.min()), float(values.max())
    if high - low < 1e-12:
        return np.array([low]), np.ones((len(values), 1))
    count = _INTERPOLATION_POINTS
    points = 0.5 * (low + high) + 0.5 * (high - low) * np.cos(np.pi * (np.arange(count) + 0.5) / count)
    apart, weights = values - points[:, None], np.ones((count, len(values)))
    for i, j in permutations(range(count), 2):
        weights[i] *= apart[j] / (points[i] - points[j])
    return points, np.ascontiguousarray(weights.T)


def expected_distinct(num_experts: int, top_k: int, tokens: float, requests: int, routing: Routing) -> float:
    """Distinct experts that `tokens` tokens spread evenly over `requests` requests read in one layer."""
    each, longer = divmod(tokens, requests)
    lengths, counts = [each + 1.0], [np.array([longer])]
    if each:
        lengths.append(each)
        counts.append(np.array([requests - longer]))
    return float(expert_load(num_experts, top_k, [Runs(tuple(lengths), tuple(counts))], routing).distinct[0, 0])


def uniform_distinct(num_experts: int, top_k: int, tokens: float) -> float:
    """Distinct experts of independent tokens with equally likely experts.

    Formula: N (1 - (1 - K / N)^T). Source: MoESD, arXiv 2505.19645.

    >>> round(uniform_distinct(384, 8, 6), 2)
    45.57
    """
    return float(num_experts * (1.0 - (1.0 - top_k / num_experts) ** tokens))


@functools.lru_cache(maxsize=16)
def _expected_maximum(count: int) -> float:
    """Expected largest of `count` independent standard normals (trapezoid over the distribution function)."""
    z = np.linspace(-8.0, 8.0, 4001)
    cdf = np.cumsum(np.exp(-0.5 * z**2))
    cdf /= cdf[-1]
    return float(np.sum(z[:-1] * np.diff(cdf**count)))
