"""Whether short and long requests want different draft lengths, and whether it pays to serve them apart."""

from collections.abc import Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from hwmodel.errors import InputError
from hwmodel.percent import probability
from hwmodel.records import dataclass
from simulator.comparison import Comparison, compared
from simulator.decision import SCHEDULE_MARGIN
from simulator.deployment.tables import MAX_TOKENS, Workload
from simulator.serving.workload import Arrivals, requests
from simulator.study import with_workload
from simulator.summary import median, share_above

Array = NDArray[np.float64]

_QUANTILES = (0.1, 0.5, 0.9)
_SAMPLE = 4096  # requests behind the quantiles of a spread-out workload
_MOST_CONTEXTS = 16


@dataclass(frozen=True)
class ContextPoint:
    """The best draft length (0: none) at one mean context, and what it gains over the one chosen for the whole.

    `gain` is over the baseline at that context, `over_static` over the whole traffic's best static length there.
    """

    context_tokens: int
    num_speculative_tokens: int
    gain: Array
    over_static: Array

    @property
    def probability_better(self) -> float:
        """Of being better than the best static length of the whole traffic; 0 where it is the same."""
        return share_above(self.over_static, 1.0) if (self.over_static != 1.0).any() else 0.0


@dataclass(frozen=True)
class ContextSplit:
    """The best lengths by context, whether a split is worth it, and what to do in words."""

    basis: str
    points: tuple[ContextPoint, ...]
    recommended: bool
    text: str


def contexts_of(workload: Workload) -> tuple[str, tuple[int, ...]]:
    """Where contexts come from, and a short, a middle and a long one: 10 %, 50 % and 90 % of the requests have less.

    Requests of one fixed length do not differ: then it is the start, the middle and the end of an answer.
    """
    if workload.length_distribution == "fixed":
        ends = (workload.input_tokens, workload.context_tokens, workload.input_tokens + workload.output_tokens)
        return "start, middle and end of an answer, since all requests are alike", _whole(ends)
    drawn = islice(requests(Arrivals("closed", users=1), workload, _SAMPLE, 0), _SAMPLE)
    sizes = np.array([r.input_tokens + r.output_tokens / 2 for r in drawn])
    return "10th, 50th and 90th percentile of the requests", _whole(np.quantile(sizes, _QUANTILES).tolist())


def _whole(contexts: Sequence[float]) -> tuple[int, ...]:
    return tuple(sorted({max(round(c), 1) for c in contexts}))


def split_by_context(comparison: Comparison, contexts: Sequence[int] | None, min_probability: float) -> ContextSplit:
    """The best static length at each context; `contexts` in place of the workload's own."""
    study = comparison.study
    workload = study.deployment.workload
    basis, found = contexts_of(workload) if contexts is None else ("as asked", _checked(contexts))
    chosen = comparison.best_static
    points = tuple(_point(comparison, context, chosen) for context in found)
    different = [
        p
        for p in points
        if p.num_speculative_tokens != chosen
        and float(median(p.over_static)) >= 1.0 + SCHEDULE_MARGIN
        and p.probability_better >= min_probability
    ]
    apart = contexts is not None or workload.length_distribution != "fixed"
    return ContextSplit(basis, points, bool(different) and apart, _text(chosen, points, different, apart))


def _checked(contexts: Sequence[int]) -> tuple[int, ...]:
    if not contexts or len(contexts) > _MOST_CONTEXTS or not all(1 <= c <= MAX_TOKENS for c in contexts):
        raise InputError(
            f"contexts: got {', '.join(map(str, contexts)) or 'nothing'}, allowed 1 to {_MOST_CONTEXTS} token counts"
            f" from 1 to {MAX_TOKENS}"
        )
    return tuple(sorted(set(contexts)))


def _point(comparison: Comparison, context_tokens: int, chosen: int) -> ContextPoint:
    workload = comparison.study.deployment.workload
    if round(workload.context_tokens) == context_tokens:
        there = comparison
    else:
        there = compared(
            with_workload(comparison.study, _at_context(workload, context_tokens)), comparison.lengths, comparison.loads
        )
    overall = there.speedup.reshape(there.shape) @ there.scores.weights
    best = there.best_static
    ours, static = overall[:, there.lengths.index(best)], overall[:, there.lengths.index(chosen)]
    return ContextPoint(context_tokens, best, ours, ours / static)


def _at_context(workload: Workload, context_tokens: int) -> Workload:
    """The workload with this mean context: the prompt is longer or shorter, and the answer only if it has to be."""
    output = min(workload.output_tokens, 2 * (context_tokens - 1)) if context_tokens > 1 else 1
    return workload.changed(
        input_tokens=max(round(context_tokens - output / 2), 1),
        output_tokens=max(output, 1),
        length_distribution="fixed",
    )


def _text(chosen: int, points: Sequence[ContextPoint], different: Sequence[ContextPoint], apart: bool) -> str:
    named = "; ".join(f"{_length(p.num_speculative_tokens)} at {p.context_tokens:,} tokens" for p in points)
    if not different:
        return f"One draft length serves every context ({named}): no difference is both above 2 % and sure enough."
    gains = "; ".join(
        f"at {p.context_tokens:,} tokens {_length(p.num_speculative_tokens)} instead of {_length(chosen)} is"
        f" {float(median(p.over_static)):.2f}x (P(better) {probability(p.probability_better)})"
        for p in different
    )
    if not apart:
        return (
            f"The best length changes within an answer ({gains}), but no engine switches by context and every request"
            " passes through all of it: keep one length."
        )
    return (
        f"Split by context: {gains}. No engine switches the length by context, so serve them apart: a second deployment"
        " with its own num_speculative_tokens, and a router that sends requests there by prompt length; with one"
        " deployment keep the length of the traffic as a whole."
    )


def _length(k: int) -> str:
    return f"k={k}" if k else "no drafts"
