"""Who runs in the next step, as vLLM V1 decides it: running requests first, then waiting ones, under one token budget.

Chunked prefill, KV blocks with lookahead slots, preemption by recomputation (the last admitted goes first), prefix
cache hits as a share of the prompt. Source: vllm/v1/core/sched/scheduler.py of 0.16.0; docs/model.md, serving.
"""

from collections import deque
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from simulator.serving.kv_blocks import BlockPool
from simulator.serving.request import NEVER, Request
from simulator.serving.running_batch import RunningBatch

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Limits:
    """What one step and one request may take at most."""

    max_num_seqs: int
    max_num_batched_tokens: int
    lookahead_slots: int = 0  # KV slots reserved beyond the scheduled tokens
    longest_draft: int = 0
    max_model_len: int | None = None
    prefix_cache_hit_share: float = 0.0


@dataclass(frozen=True, slots=True)
class Chunk:
    """Tokens of one prompt in one step."""

    request: Request
    tokens: int

    @property
    def finishes(self) -> bool:
        """Whether the prompt is complete after this step."""
        return self.request.computed + self.tokens >= self.request.known_tokens


@dataclass(slots=True)
class Scheduler:
    """The queue, the prompts in progress, the decoding batch and the blocks that they hold."""

    limits: Limits
    pool: BlockPool
    waiting: deque[Request] = field(default_factory=deque)
    prefilling: list[Request] = field(default_factory=list)
    batch: RunningBatch = field(default_factory=RunningBatch)
    num_preempted: int = 0
    longest_request: int = 0  # prompt and output of the longest request so far

    @property
    def num_running(self) -> int:
        """Requests that hold blocks."""
        return len(self.batch) + len(self.prefilling)

    @property
    def has_work(self) -> bool:
        """Whether there is any request in the system."""
        return bool(self.batch.requests or self.prefilling or self.waiting)

    def refusal(self, request: Request) -> str:
        """Why a request can never run; empty if it can."""
        tokens = request.input_tokens + request.output_tokens
        self.longest_request = max(self.longest_request, tokens)
        longest = self.limits.max_model_len
        if longest is not None and tokens > longest:
            return f"longer than max_model_len = {longest} tokens"
        held = self.pool.blocks_for(tokens + self.limits.longest_draft + self.limits.lookahead_slots)
        if held > self.pool.total:
            return f"longer than the KV cache of {self.pool.total * self.pool.block_size} tokens"
        return ""

    def fit_decode(self, drafted: Ints, scheduled: NDArray[np.bool_]) -> NDArray[np.bool_] | None:
        """Blocks for one more step of the decoding rows with these drafts; last admitted requests give way.

        Returns which rows are left where rows were preempted, else None. Rows that are not `scheduled` keep what they
        hold.
        """
        batch = self.batch
        needed = self.slots_blocks(batch.context + drafted)
        extra = np.where(scheduled, np.maximum(needed - batch.blocks, 0), 0)
        while self.prefilling and int(extra.sum()) > self.pool.free:
            self._preempt(self.prefilling.pop())
        keep = len(batch)
        while int(extra[:keep].sum()) > self.pool.free + int(batch.blocks[keep:].sum()):
            keep -= 1
        left = None
        if keep < len(batch):
            left = np.arange(len(batch)) < keep
            for request in reversed(batch.remove(~left)):
                self._preempt(request)
        self.pool.take(int(extra[:keep].sum()))
        self.batch.blocks[:] += extra[:keep]
        return left

    def slots_blocks(self, tokens: Ints) -> Ints:
        """Blocks for rows whose cache will hold so many tokens, lookahead slots included."""
        return np.asarray(self.pool.blocks_for(tokens + self.limits.lookahead_slots))

    def chunks(self, budget: int, *, admit: bool) -> list[Chunk]:
        """Prompt chunks within the budget: prompts in progress first, then, with `admit`, from the queue."""
        found: list[Chunk] = []
        for request in list(self.prefilling):
            if request not in self.prefilling:
                break  # preempted for one before it
            tokens = min(request.known_tokens - request.computed, budget)
            if tokens <= 0:
                break
            if not self._grow(request, request.computed + tokens):
                admit = False
                break
            found.append(Chunk(request, tokens))
            budget -= tokens
        while admit and self.waiting and budget > 0 and self.num_running < self.limits.max_num_seqs:
            chunk = self._admit(budget)
            if chunk is None:
                break
            found.append(chunk)
            budget -= chunk.tokens
        return found

    def can_admit(self, longest_draft: int) -> bool:
        """Whether the first in the queue may start in the next step. While this is False, only a finish changes it."""
        if not self.waiting or self.num_running >= self.limits.max_num_seqs:
            return False
        request = self.waiting[0]
        cached = self._cached_tokens(request)
        budget = max(self.limits.max_num_batched_tokens - len(self.batch) * (1 + longest_draft), 1)
        tokens = min(request.known_tokens - cached, budget)
        return int(self.pool.blocks_for(cached + tokens + self.limits.lookahead_slots)) <= self.pool.free

    def _grow(self, request: Request, tokens: int) -> bool:
        """Blocks for a prompt in progress; those admitted after it give way, in the end it does itself."""
        wanted = int(self.pool.blocks_for(tokens + self.limits.lookahead_slots)) - request.blocks
        while wanted > self.pool.free:
            victim = self.prefilling.pop()
            self._preempt(victim)
            if victim is request:
                return False
        self._hold(request, max(wanted, 0))
        return True

    def _admit(self, budget: int) -> Chunk | None:
        """The first in the queue starts with a chunk, if its blocks are free; nobody overtakes."""
        request = self.waiting[0]
        cached = self._cached_tokens(request)
        tokens = min(request.known_tokens - cached, budget)
        wanted = int(self.pool.blocks_for(cached + tokens + self.limits.lookahead_slots))
        if wanted > self.pool.free:
            return None
        self.waiting.popleft()
        self._hold(request, wanted)
        request.computed = request.cached = cached
        self.prefilling.append(request)
        return Chunk(request, tokens)

    def _cached_tokens(self, request: Request) -> int:
        """Prompt tokens found in the prefix cache: whole blocks, and never the whole prompt."""
        share = self.limits.prefix_cache_hit_share
        if share <= 0.0:
            return 0
        blocks = int(share * request.input_tokens) // self.pool.block_size
        return min(blocks * self.pool.block_size, request.input_tokens - 1)

    def _hold(self, request: Request, blocks: int) -> None:
        self.pool.take(blocks)
        request.blocks += blocks

    def _preempt(self, request: Request) -> None:
        """Back to the head of the queue: its cache is lost, its tokens are kept and computed again."""
        self.release(request)
        request.computed = 0
        request.preemptions += 1
        self.num_preempted += 1
        self.waiting.appendleft(request)

    def release(self, request: Request) -> None:
        """Its blocks are free again."""
        self.pool.give_back(request.blocks)
        request.blocks = 0

    def computed(self, chunk: Chunk) -> bool:
        """Book a chunk that has been computed; True when the prompt is complete and the request decodes from now on."""
        chunk.request.computed += chunk.tokens
        if chunk.request.computed < chunk.request.known_tokens:
            return False
        self.prefilling.remove(chunk.request)
        return True

    def drop_all(self) -> list[Request]:
        """Everything in the system, in order of arrival, after the engine failed; all blocks are free."""
        everyone = [*self.batch.remove(np.ones(len(self.batch), dtype=bool)), *self.prefilling, *self.waiting]
        for request in everyone:
            self.release(request)
        self.prefilling.clear()
        self.waiting.clear()
        return sorted(everyone, key=lambda request: (request.arrival_s, request.number))

    def check(self) -> None:
        """Blocks are conserved: every one is free or held by exactly one request (docs/invariants.md, 3)."""
        held = int(self.batch.blocks.sum()) + sum(r.blocks for r in self.prefilling)
        assert held == self.pool.used, f"KV blocks: {held} held, {self.pool.used} in use"
        assert all(r.blocks == 0 for r in self.waiting), "a waiting request holds blocks"
        assert all(r.start_s != NEVER for r in self.batch.requests), "a request decodes that was never started"
