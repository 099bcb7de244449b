"""All draft lengths at all loads over the same draws: what controllers, contexts and experiments are judged with."""

from collections.abc import Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from hwmodel.errors import InputError
from hwmodel.records import dataclass
from simulator.answers import checked_concurrency
from simulator.closed_form import ArmResult, Cell, Grid, arm_columns
from simulator.decision import Scores, score
from simulator.deployment import Deployment
from simulator.draft_lengths import NO_METHOD, checked_lengths, only_accepted_lengths
from simulator.study import Study, build_study
from simulator.summary import median

Array = NDArray[np.float64]

LONGEST = 8  # draft tokens compared by default, as in `choose`
_MOST_CELLS = 10_000


@dataclass(frozen=True)
class Comparison:
    """A grid of draft lengths (0 first) and loads with both arms; columns are `lengths` x `loads`, loads fastest."""

    study: Study
    grid: Grid
    speedup: Array  # throughput over the baseline's with model error, (num_draws, num_cells)
    scores: Scores

    @property
    def lengths(self) -> tuple[int, ...]:
        """The draft lengths, ascending from 0."""
        return self.scores.lengths

    @property
    def loads(self) -> tuple[int, ...]:
        """The concurrencies, ascending."""
        return self.scores.loads

    @property
    def shape(self) -> tuple[int, int, int]:
        """(draws, lengths, loads)."""
        return len(self.speedup), len(self.lengths), len(self.loads)

    @property
    def gain(self) -> Array:
        """Throughput over the baseline's, `(num_draws, num_lengths, num_loads)`."""
        return self.speedup.reshape(self.shape)

    def of_arm(self, values: Array) -> Array:
        """Values of an arm's columns, `(num_draws, num_lengths, num_loads)`."""
        return np.broadcast_to(values, self.speedup.shape).reshape(self.shape)

    @property
    def baseline(self) -> ArmResult:
        """The baseline at the loads, arrays `(num_draws, num_loads)`."""
        return arm_columns(self.grid.baseline, np.arange(len(self.loads)))

    @property
    def best_static(self) -> int:
        """The allowed length (0: none) with the largest median objective over the traffic, shorter ones first."""
        medians = median(self.scores.overall)
        usable = [i for i, k in enumerate(self.lengths) if k == 0 or self.scores.allowed[i].all()]
        return self.lengths[max(usable, key=lambda i: (round(float(medians[i]), 6), -self.lengths[i]))]


def compare_lengths(
    deployment: Deployment,
    lengths: Sequence[int] | None = None,
    loads: Sequence[int] | None = None,
    *,
    num_draws: int,
    seed: int,
) -> Comparison:
    """Every draft length at every load; defaults: 0 to 8 and the file's own, and the file's concurrencies."""
    own = deployment.speculation.num_speculative_tokens or 0
    asked = {*range(LONGEST + 1), own} if lengths is None else {*lengths}
    if deployment.speculation.method == "none":
        raise InputError(NO_METHOD)
    ks = checked_lengths(deployment, sorted(asked))
    if ks == [0]:
        raise InputError("num_speculative_tokens: got 0 alone, allowed: at least one length from 1 to 64")
    where = sorted({checked_concurrency(c) for c in (deployment.workload.concurrency if loads is None else loads)})
    if not where or len(ks) * len(where) > _MOST_CELLS:
        raise InputError(f"grid: got {len(ks) * len(where)} cells, allowed 1 to {_MOST_CELLS}")
    return compared(build_study(deployment, k_max=max(ks), num_draws=num_draws, seed=seed), ks, where)


def compared(study: Study, lengths: Sequence[int], loads: Sequence[int]) -> Comparison:
    """The comparison of a study; `lengths` begin with 0, both are ascending."""
    cells = [Cell(k, c) for k, c in product(lengths, loads)]
    point, grid = study.grid(cells, point=True), study.grid(cells, point=False)
    speedup = study.with_model_error(grid)
    both = (point.baseline, point.speculative)
    scores = score(study.deployment, cells, grid.baseline, grid.speculative, speedup, both)
    return Comparison(study, grid, speedup, only_accepted_lengths(study, scores))
