"""Any change of a deployment, computed against the baseline that runs today: the same draws for every option.

Today's baseline is the deployment without speculation. Every option is a list of overrides, evaluated by the same
study as `predict` and `choose`; equal seeds give the parameters and the acceptance the same draws, so that options are
compared draw by draw.
"""

from collections.abc import Sequence
from functools import cached_property
from itertools import product

import numpy as np
from numpy.typing import NDArray

from hwmodel.errors import DraftcastError
from hwmodel.records import dataclass
from simulator.choose import only_accepted_lengths
from simulator.closed_form import ArmResult, Capacity, Cell, Grid, arm_columns, capacity
from simulator.decision import Pick, RestartValue, Scores, pick_static, restart_value, score
from simulator.deployment import Deployment, apply_overrides
from simulator.deployment.load import changes_baseline
from simulator.study import Study, build_study

Array = NDArray[np.float64]

LENGTHS = tuple(range(1, 9))
NO_METHOD = ("speculation.method=none",)
_ERROR_STREAM = 7  # apart from the streams of a study, which are spawned


@dataclass(frozen=True)
class Situation:
    """The deployment that runs today and the loads it is asked about; `lengths` are the draft lengths compared."""

    deployment: Deployment
    loads: tuple[int, ...]
    num_draws: int
    seed: int
    lengths: tuple[int, ...] = LENGTHS

    @cached_property
    def today(self) -> "Today":
        """Both the study and the baseline's figures of what runs now."""
        deployment = apply_overrides(self.deployment, NO_METHOD)
        study = build_study(deployment, k_max=1, num_draws=self.num_draws, seed=self.seed)
        cells = [Cell(0, load) for load in self.loads]
        return Today(study, study.grid(cells, point=False), study.grid(cells, point=True))

    @cached_property
    def cross_error_z(self) -> Array:
        """Standard normals, `(num_draws, 1)`: the model's error between two baselines, one a draw."""
        return np.random.default_rng([self.seed, _ERROR_STREAM]).standard_normal((self.num_draws, 1))

    def own_notes(self, *notes: Sequence[str]) -> tuple[str, ...]:
        """Notes, each once, without those about what the comparison itself laid over the deployment."""
        laid_over = set(self.today.study.deployment.notes) - set(self.deployment.notes)
        return tuple(dict.fromkeys(note for group in notes for note in group if note not in laid_over))

    def outcome(self, changes: Sequence[str], lengths: Sequence[int] | None = None) -> "Outcome":
        """The deployment with `changes` at every draft length (0 included) and load; InputError where it cannot be."""
        changed = apply_overrides(self.deployment, changes)
        drafted = [] if changed.speculation.method == "none" else list(self.lengths if lengths is None else lengths)
        asked = sorted({0, *drafted})
        study = build_study(changed, k_max=max(asked), num_draws=self.num_draws, seed=self.seed)
        cells = [Cell(k, load) for k, load in product(asked, self.loads)]
        grid, point = study.grid(cells, point=False), study.grid(cells, point=True)
        moved = changes_baseline(changes)
        speedup = self._against_today(study, grid, moved=moved)
        scores = score(
            changed,
            cells,
            self.today.columns(self.today.draws, cells),
            grid.speculative,
            speedup,
            (self.today.columns(self.today.point, cells), point.speculative),
        )
        scores = only_accepted_lengths(study, scores)
        return Outcome(self, tuple(changes), study, tuple(cells), point, speedup, scores)

    def possible(self, changes: Sequence[str], lengths: Sequence[int] | None = None) -> "Outcome | str":
        """The outcome, or in one line why there is none."""
        try:
            return self.outcome(changes, lengths)
        except DraftcastError as error:
            return str(error)

    def _against_today(self, study: Study, grid: Grid, *, moved: bool) -> Array:
        """Throughput over today's, `(num_draws, num_cells)`, with the model's error for drafting and for the move."""
        base = self.today.columns(self.today.draws, grid.cells).throughput_tokens_per_s
        ratio = grid.speculative.throughput_tokens_per_s / base
        drafting = np.array([cell.num_speculative_tokens > 0 for cell in grid.cells])
        error = np.where(drafting, study.model_error_factor, 1.0)
        if moved:
            error = error * np.exp(study.parameters.model_error * self.cross_error_z)
        return np.asarray(ratio * error)


@dataclass(frozen=True)
class Today:
    """The baseline that runs: one cell a load, for every draw and at the median parameters."""

    study: Study
    draws: Grid
    point: Grid

    @cached_property
    def capacity(self) -> Capacity:
        """Memory and the number of requests that run at once."""
        return capacity(self.study.system, 0, self.study.kv_cache_tokens)

    def columns(self, grid: Grid, cells: Sequence[Cell]) -> ArmResult:
        """The baseline's arm with one column for each of `cells`, by load."""
        place = {cell.concurrency: i for i, cell in enumerate(self.draws.cells)}
        index = np.array([place[cell.concurrency] for cell in cells])
        return arm_columns(grid.baseline, index)

    def throughput(self, weights: Array) -> float:
        """Tokens a second over the traffic, at the median parameters."""
        return float(self.point.baseline.throughput_tokens_per_s[0] @ weights)


@dataclass(frozen=True)
class Outcome:
    """A changed deployment against today's baseline; `speedup` is `(num_draws, num_cells)` with model error in it."""

    situation: Situation
    changes: tuple[str, ...]
    study: Study
    cells: tuple[Cell, ...]
    point: Grid
    speedup: Array
    scores: Scores

    @cached_property
    def pick(self) -> Pick:
        """The best draft length over the traffic."""
        return pick_static(self.scores, self.study.deployment.objective.min_probability_faster)

    def column(self, k: int, load: int) -> int:
        """Place of one cell."""
        return self.cells.index(Cell(k, load))

    def traffic_speedup(self, k: int) -> Array:
        """Draws of the throughput gain at draft length `k` over the traffic, `(num_draws,)`."""
        columns = [self.column(k, load) for load in self.scores.loads]
        return np.asarray(self.speedup[:, columns] @ self.scores.weights)

    def traffic_gain(self, k: int) -> Array:
        """The same of the objective."""
        return np.asarray(self.scores.overall[:, self.scores.lengths.index(k)])

    def restart_value(self, k: int) -> RestartValue:
        """What the restart into draft length `k` costs and when it is paid back."""
        served = self.situation.today.throughput(self.scores.weights)
        return restart_value(self.situation.deployment, self.traffic_speedup(k), served)

    @property
    def fits(self) -> bool:
        """Whether the changed deployment starts at all, without drafts."""
        return capacity(self.study.system, 0, self.study.kv_cache_tokens).limited_by != "does_not_fit"
