"""Any change of a deployment, computed against the baseline that runs today: the same draws for every option.

Today's baseline is the deployment without speculation. Every option is a list of overrides, evaluated by the same
study as `predict` and `choose`; equal seeds give the parameters and the acceptance the same draws, so that options are
compared draw by draw.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hwmodel.engine.methods import PIPELINE
from hwmodel.errors import DraftcastError
from hwmodel.records import dataclass
from simulator.answers import method_findings
from simulator.closed_form import ArmResult, Capacity, Cell, Grid, arm_columns, capacity
from simulator.decision import Pick, RestartValue, Scores, load_weights, pick_static, restart_value, score
from simulator.deployment import Deployment, apply_overrides
from simulator.study import Study, build_study
from simulator.summary import median

Array = NDArray[np.float64]

LENGTHS = tuple(range(1, 9))
NO_METHOD = ("speculation.method=none",)
_REFUSES = "refuses to start"  # in the words of the engine modes' notes
_SCREEN_DRAWS = 100  # for a median that only says what to look at closely
_ERROR_STREAM = 7  # apart from the streams of a study, which are spawned


@dataclass(frozen=True)
class Situation:
    """The deployment that runs today and the loads it is asked about; `lengths` are the draft lengths compared."""

    deployment: Deployment
    loads: tuple[int, ...]
    num_draws: int
    seed: int
    lengths: tuple[int, ...] = LENGTHS
    replays: Mapping[str, str] = field(default_factory=dict)  # replay files of text lookup by method

    @cached_property
    def today(self) -> "Today":
        """Both the study and the baseline's figures of what runs now."""
        return self._today(self.num_draws)

    @cached_property
    def today_screened(self) -> "Today":
        """The same with as many draws as a screening takes."""
        return self._today(_SCREEN_DRAWS)

    def _today(self, num_draws: int) -> "Today":
        deployment = apply_overrides(self.deployment, NO_METHOD)
        study = build_study(deployment, k_max=1, num_draws=num_draws, seed=self.seed)
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
        speedup = self._against_today(study, grid, self.moved_share(study, point))
        scores = score(
            changed,
            cells,
            self.today.columns(self.today.draws, cells),
            grid.speculative,
            speedup,
            (self.today.columns(self.today.point, cells), point.speculative),
        )
        scores = _without_refused(study, scores)
        return Outcome(self, tuple(changes), study, tuple(cells), point, speedup, scores)

    def screened(self, changes: Sequence[str], lengths: Sequence[int] = ()) -> "Screened | None":
        """The best draft length and its median gain from few draws: a fraction of an outcome's time.

        None where it cannot be built, does not start or is refused.
        """
        try:
            changed = apply_overrides(self.deployment, changes)
            asked = sorted({0, *lengths}) if changed.speculation.method != "none" else [0]
            study = build_study(changed, k_max=max(asked), num_draws=_SCREEN_DRAWS, seed=self.seed)
            if capacity(study.system, 0, study.kv_cache_tokens).limited_by == "does_not_fit":
                return None
            asked = [k for k in asked if not refused(study, k)]
            if 0 not in asked:
                return None
            cells = [Cell(k, load) for k, load in product(asked, self.loads)]
            draws = study.grid(cells, point=False)
        except DraftcastError:
            return None
        today = self.today_screened
        base = today.columns(today.draws, cells).throughput_tokens_per_s
        ratio = draws.speculative.throughput_tokens_per_s / base
        gain = ratio.reshape(_SCREEN_DRAWS, len(asked), len(self.loads)) @ load_weights(changed, self.loads)
        gains = dict(zip(asked, median(gain).tolist(), strict=True))
        best = max(gains, key=lambda k: (gains[k], -k))
        return Screened(tuple(changes), best, gains[best], gains[0])

    def possible(self, changes: Sequence[str], lengths: Sequence[int] | None = None) -> "Outcome | str":
        """The outcome, or in one line why there is none."""
        try:
            return self.outcome(changes, lengths)
        except DraftcastError as error:
            return str(error)

    def moved_share(self, study: Study, point: Grid) -> Array:
        """How much of the baseline's step is another than today's, `(1, num_cells)`: 0 unchanged, 1 all of it.

        Formula: sum |part - part today| / max(step, step today), 1 on another machine, engine, model or layout. Scales
        the model's error between two baselines: what did not change cannot be off (docs/options.md, eq. O2).
        """
        ours, theirs = study.system, self.today.study.system
        same = (ours.gpu, ours.shape, ours.parallel, ours.mode(0).engine) == (
            theirs.gpu,
            theirs.shape,
            theirs.parallel,
            theirs.mode(0).engine,
        )
        if not same:
            return np.ones((1, len(point.cells)))
        before, after = arm_columns(self.today.point.baseline, self._loads(point.cells)), point.baseline
        moved = sum(np.abs(after.parts_s[name] - before.parts_s[name]) for name in after.parts_s)
        return np.asarray(np.minimum(moved / np.maximum(after.step_s, before.step_s), 1.0))

    def _loads(self, cells: Sequence[Cell]) -> NDArray[np.int_]:
        return np.array([self.loads.index(cell.concurrency) for cell in cells])

    def _against_today(self, study: Study, grid: Grid, moved: Array) -> Array:
        """Throughput over today's, `(num_draws, num_cells)`, with the model's error for drafting and for the move."""
        base = self.today.columns(self.today.draws, grid.cells).throughput_tokens_per_s
        ratio = grid.speculative.throughput_tokens_per_s / base
        drafting = np.array([cell.num_speculative_tokens > 0 for cell in grid.cells])
        error = np.where(drafting, study.model_error_factor, 1.0)
        error = error * np.exp(study.parameters.model_error * self.cross_error_z * moved)
        return np.asarray(ratio * error)


def refusals(study: Study, k: int) -> list[str]:
    """Why the engine would not start with the method and draft length `k`, or is not known to."""
    return [each.text for each in method_findings(study, k) if each.severity == "error" or each.code == PIPELINE]


def refused(study: Study, k: int) -> bool:
    """Whether the engine would not start with draft length `k`, or is not known to: the method, or the whole launch."""
    return bool(refusals(study, k)) or any(_REFUSES in note for note in study.system.mode(k).notes)


def _without_refused(study: Study, scores: Scores) -> Scores:
    """Scores in which the draft lengths that the engine refuses are not allowed."""
    allowed = scores.allowed.copy()
    for i, k in enumerate(scores.lengths):
        allowed[i] &= not refused(study, k)
    return replace(scores, allowed=allowed)


class Screened(NamedTuple):
    """A change, from few draws: the best draft length (0: none) with its median gain, and the gain without drafts."""

    changes: tuple[str, ...]
    num_speculative_tokens: int
    gain: float
    undrafted_gain: float


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
        held = capacity(self.study.system, 0, self.study.kv_cache_tokens)
        return held.limited_by != "does_not_fit" and not refused(self.study, 0)
