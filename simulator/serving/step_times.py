"""A table of step durations that fills itself: each composition is asked of `hwmodel` once, at a few contexts.

Why: one question costs milliseconds, a simulated step may cost some tens of microseconds. Between its kinks, which are
nodes of the table, a duration is linear in the context, so interpolation is nearly exact (tests: within 0.2 %).
"""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from itertools import product

import numpy as np
from numpy.typing import NDArray

from simulator.serving.step_costs import Compositions, StepCosts

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Key = tuple[int, int, int]  # sequences, rows with a draft, drafted tokens
_Weights = list[tuple[float, float]]  # nodes around a value, and their weights

_LARGEST_EXPONENT = 27  # contexts up to 2^27 tokens, beyond the longest that a deployment file may state
_PROMPT_NODE_RATIO = 1.08  # neighbouring prompt-chunk sizes; the error of a line in between is below 0.1 %
_NEIGHBOURS = 8  # draft counts asked for together: the second to eighth cell of a call cost little


@dataclass(slots=True)
class _Curve:
    """Durations of one composition over the context; NaN where they have not been needed yet."""

    nodes: Array
    values_s: Array
    node_list: list[float] = field(default_factory=list)

    def missing(self, low: float, high: float) -> list[int]:
        """The unknown nodes around the contexts from `low` to `high`."""
        first = max(bisect_right(self.node_list, low) - 1, 0)
        last = min(bisect_left(self.node_list, high), len(self.node_list) - 1)
        return [i for i in range(first, last + 1) if np.isnan(self.values_s[i])]


class StepTimes:
    """Seconds of decode steps and of steps with prompt rows, for one arm at one set of parameters."""

    def __init__(self, costs: StepCosts) -> None:
        """An empty table."""
        self._costs = costs
        self._curves: dict[Key, _Curve] = {}
        self._mixed: dict[tuple[Key, int, float, float, float], float] = {}
        self._prompt_nodes = _prompt_nodes()
        self._seen_nodes = _geometric(costs.context_kinks(0)).tolist()
        mode = costs.system.mode(costs.num_speculative_tokens)
        self._exact_below = mode.capture_sizes[-1] if mode.capture_sizes else 0
        self.num_evaluated = 0  # compositions asked of hwmodel

    def decode_s(self, sequences: int, drafted: Ints | int, drafts: Ints | int, context_tokens: Array) -> Array:
        """Seconds of consecutive decode steps with these mean contexts, `(steps,)`."""
        low, high = float(context_tokens.min()), float(context_tokens.max())
        if isinstance(drafted, int) and isinstance(drafts, int):
            return self._along(self._filled((sequences, drafted, drafts), low, high), context_tokens)
        drafted, drafts = np.broadcast_arrays(drafted, drafts)
        seconds = np.empty(len(context_tokens))
        for rows, tokens in set(zip(drafted.tolist(), drafts.tolist(), strict=True)):
            at = (drafted == rows) & (drafts == tokens)
            curve = self._filled((sequences, rows, tokens), low, high)
            seconds[at] = self._along(curve, context_tokens[at])
        return seconds

    @staticmethod
    def _along(curve: _Curve, context_tokens: Array) -> Array:
        return np.interp(context_tokens, curve.nodes, curve.values_s)

    def _filled(self, key: Key, low: float, high: float) -> _Curve:
        curve = self._curve(key)
        missing = curve.missing(low, high)
        if missing:
            self._fill(key, missing)
        return curve

    def _curve(self, key: Key) -> _Curve:
        curve = self._curves.get(key)
        if curve is None:
            nodes = _geometric(self._costs.context_kinks(key[1]))
            curve = self._curves[key] = _Curve(nodes, np.full(len(nodes), np.nan), nodes.tolist())
        return curve

    def _fill(self, key: Key, missing: list[int]) -> None:
        """Ask for the missing nodes of a composition, and of those with a few more drafts, in one call."""
        wanted = [(key, i) for i in missing]
        sequences, drafted, drafts = key
        length = drafts // drafted if drafted else 0
        if 0 < drafted < sequences and drafts == length * drafted:
            low, high = self._curves[key].nodes[missing[0]], self._curves[key].nodes[missing[-1]]
            for more in range(drafted + 1, min(drafted + _NEIGHBOURS, sequences)):
                other = (sequences, more, more * length)
                wanted += [(other, i) for i in self._curve(other).missing(low, high)]
        rows = np.array([(*k, self._curves[k].nodes[i]) for k, i in wanted], dtype=float)
        none = np.zeros(len(rows))
        cells = Compositions(rows[:, 0], rows[:, 1], rows[:, 2], rows[:, 3], none, none, none)
        seconds = self._costs.seconds(cells)
        self.num_evaluated += len(rows)
        for (k, i), value in zip(wanted, seconds.tolist(), strict=True):
            self._curves[k].values_s[i] = value

    def mixed_s(self, key: Key, context_tokens: float, prompt_tokens: int, seen_tokens: float, finished: int) -> float:
        """Seconds of a step with prompt rows beside decode rows; `finished` prompts end in it.

        `context_tokens` is the mean of the decode rows, `seen_tokens` how many tokens a prompt row attends to.
        """
        nodes = self._curve(key).node_list
        exact = key[0] + key[2] + prompt_tokens <= self._exact_below  # padding to captured sizes jumps in between
        prompts = _single(prompt_tokens) if exact else _around(self._prompt_nodes, prompt_tokens)
        contexts = _around(nodes, context_tokens) if key[0] else _single(1.0)
        seen = _around(self._seen_nodes, seen_tokens)
        known, total = self._mixed, 0.0
        for (n, a), (c, b), (s, d) in product(prompts, contexts, seen):
            cell = (key, finished, n, c, s)
            if cell not in known:
                self._ask(key, finished, [node for node, _ in prompts], contexts, seen)
            total += a * b * d * known[cell]
        return total

    def _ask(self, key: Key, finished: int, prompts: list[float], contexts: _Weights, seen: _Weights) -> None:
        """Ask for all corners around a composition in one call."""
        corners = [(n, c, s) for n, (c, _), (s, _) in product(prompts, contexts, seen)]
        prompt, context, before = np.array(corners).T
        rows, drafted, drafts, done = (np.full(len(corners), float(value)) for value in (*key, finished))
        seconds = self._costs.seconds(Compositions(rows, drafted, drafts, context, prompt, before, done))
        self.num_evaluated += len(corners)
        self._mixed.update(zip(((key, finished, *corner) for corner in corners), seconds.tolist(), strict=True))


def _geometric(kinks: list[float]) -> Array:
    """1, 16, 32, 64, ... tokens, and the kinks."""
    return np.unique([1.0, *(2.0**j for j in range(4, _LARGEST_EXPONENT + 1)), *kinks])


def _prompt_nodes() -> list[float]:
    nodes = [1.0]
    while nodes[-1] < 2.0**_LARGEST_EXPONENT:
        nodes.append(max(nodes[-1] + 1.0, round(nodes[-1] * _PROMPT_NODE_RATIO)))
    return nodes


def _single(value: float) -> _Weights:
    return [(float(value), 1.0)]


def _around(nodes: list[float], value: float) -> _Weights:
    """The nodes on both sides of `value` with their weights; one where it is a node itself or beyond the ends."""
    high = bisect_left(nodes, value)
    if high == 0 or high == len(nodes):
        return [(nodes[min(high, len(nodes) - 1)], 1.0)]
    above, below = nodes[high], nodes[high - 1]
    if above == value:
        return [(above, 1.0)]
    share = (value - below) / (above - below)
    return [(below, 1.0 - share), (above, share)]
