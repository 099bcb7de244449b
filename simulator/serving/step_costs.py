"""Durations of engine steps, asked of `hwmodel`: many compositions of one kind in one call.

The same operators, modes and padding as `simulator.closed_form`, for any composition instead of the mean one.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwmodel.drafters import MODEL_FREE_METHODS, draft_time_s
from hwmodel.engine.graphs import graph_limit_tokens, padded_tokens
from hwmodel.parameters import Parameters, fitted_values
from hwmodel.step import Batch, StepMode, engine_parts
from simulator.closed_form import DCP_DRAFT_PASS_S
from simulator.system import System

Array = NDArray[np.float64]

_FREE_CHOICE_RUNNERS = ("v2", "sglang")  # capture uniform graphs for every draft length they may use


@dataclass(frozen=True, slots=True)
class Compositions:
    """Steps to be timed, arrays `(num_cells,)`. What decides the kind of step is the same in all cells.

    `drafts` are the drafted tokens of all rows, `finished` the prompts that end in the step (the drafter proposes for
    them too), `seen_tokens` the mean number of tokens that a prompt row attends to.
    """

    sequences: Array
    drafted: Array
    drafts: Array
    context_tokens: Array
    prompt_tokens: Array
    seen_tokens: Array
    finished: Array


@dataclass(frozen=True)
class StepCosts:
    """Durations for one arm at one set of parameters; `num_speculative_tokens` is what the engine is configured for."""

    system: System
    parameters: Parameters
    num_speculative_tokens: int

    def seconds(self, cells: Compositions) -> Array:
        """Seconds of each step, `(num_cells,)`; all cells have drafts or none, and prompt rows or none."""
        return np.asarray(self.draws(cells)[0])

    def draws(self, cells: Compositions) -> Array:
        """The same for every parameter draw, `(num_draws, num_cells)`."""
        batch, uniform = self._batch(cells)
        mode = self._step_mode(uniform, bool(cells.drafted[0]), bool(cells.prompt_tokens[0]))
        parts = engine_parts(self.system.work, self.system.machine, batch, self.parameters, mode)
        # The overhead of a token row was fitted to decode; prompt rows are not charged with it (docs/model.md, eq. S3).
        total = sum(parts.values()) - self.parameters.token_overhead_s * cells.prompt_tokens + self._drafter_s(cells)
        shape = (np.size(self.parameters.kernel_floor_s), len(cells.sequences))
        return np.asarray(np.broadcast_to(np.asarray(total, dtype=float), shape))

    def _batch(self, cells: Compositions) -> tuple[Batch, bool]:
        mode = self.system.mode(self.num_speculative_tokens)
        query = self.system.verified_rows(cells.drafts / np.maximum(cells.drafted, 1.0))
        tokens = cells.sequences + cells.drafted * (query - 1.0) + cells.prompt_tokens
        uniform = self.is_uniform(cells)
        rows = np.maximum(padded_tokens(mode, np.ceil(tokens), uniform, int(query[0])), tokens)
        before = cells.seen_tokens - 0.5 * cells.prompt_tokens
        budget = float(self.system.deployment.speculation.expert_budget or np.inf)
        batch = Batch(
            cells.sequences,
            cells.drafted,
            query,
            cells.context_tokens,
            rows,
            cells.prompt_tokens,
            before,
            budget if self.num_speculative_tokens else np.inf,
        )
        return batch, uniform

    def is_uniform(self, cells: Compositions) -> bool:
        """Whether every row has the number of tokens that full decode graphs were captured for."""
        if cells.prompt_tokens.any():
            return False
        if self.num_speculative_tokens == 0:
            return True
        length = cells.drafts / np.maximum(cells.sequences, 1.0)
        same = bool(np.all(cells.drafted == cells.sequences) and np.all(length == length[0]))
        mode = self.system.mode(self.num_speculative_tokens)
        if self.system.method == "suffix" and cells.drafted.any():
            return False  # its drafts are as long as the match: equal lengths by chance only
        if not same:
            free = mode.model_runner in _FREE_CHOICE_RUNNERS and not mode.variable_draft_length
            return free and not cells.drafted.any()
        return length[0] == self.num_speculative_tokens or mode.model_runner in _FREE_CHOICE_RUNNERS

    def _step_mode(self, uniform: bool, drafting: bool, prompt: bool) -> StepMode:
        baseline, mode = self.system.mode(0), self.system.mode(self.num_speculative_tokens)
        return StepMode(
            graph=mode.uniform_decode_graph if uniform else mode.mixed_decode_graph,
            graph_limit_tokens=float(graph_limit_tokens(mode)),
            baseline_graph=baseline.mixed_decode_graph if prompt else baseline.uniform_decode_graph,
            synchronous_baseline=not baseline.async_scheduling,
            speculation=self.num_speculative_tokens > 0,
            loses_async=baseline.async_scheduling and not mode.async_scheduling,
            rows_as_prefill=mode.multi_token_rows_as_prefill and drafting,
        )

    def _drafter_s(self, cells: Compositions) -> Any:
        """Seconds of proposing: for rows with a draft and prompts that end; a text search runs on every step."""
        if self.num_speculative_tokens == 0:
            return 0.0
        system, drafter = self.system, self.system.drafter
        if drafter.method in MODEL_FREE_METHODS:
            searching = replace(self._proposals(cells), query_tokens=np.full_like(cells.sequences, 2.0))
            return draft_time_s(drafter, searching, self.parameters)
        if not (cells.drafted.any() or cells.finished.any()):
            return 0.0
        extra = DCP_DRAFT_PASS_S if system.parallel.decode_context > 1 else 0.0
        return draft_time_s(drafter, self._proposals(cells), self.parameters, decode_context_extra_s=extra)

    def _proposals(self, cells: Compositions) -> Batch:
        drafted = cells.drafted + cells.finished
        own = np.where(cells.drafted > 0, cells.drafts / np.maximum(cells.drafted, 1.0), self.num_speculative_tokens)
        none = np.zeros_like(drafted)
        sequences = cells.sequences + cells.finished
        return Batch(sequences, drafted, self.system.verified_rows(own), cells.context_tokens, sequences, none, none)

    def context_kinks(self, drafted: int) -> list[float]:
        """Contexts at which the duration bends: cache windows, the attention ramp, the verify path's table."""
        fits, backend = fitted_values(), self.system.machine.attention_backend
        ramps = fits["attention_ramp"]
        kinks = [float(ramps.get(backend, ramps["default"])["full_at_tokens"])]
        works = [self.system.work, self.system.drafter.work]
        for cache in (cache for work in works if work is not None for cache in work.cache):
            kinks += [cache.window_tokens, cache.selected_tokens]
        if drafted and self.system.mode(self.num_speculative_tokens).multi_token_rows_as_prefill:
            kinks += [tokens / drafted for tokens in fits["verify_path"]["context_tokens"]]
        return [kink for kink in kinks if 0.0 < kink < np.inf]
