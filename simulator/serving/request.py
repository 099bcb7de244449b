"""One request: what was asked, and its time stamps and counts as they become known."""

from dataclasses import dataclass, field
from typing import Any

MAX_TIME_S = 1e8  # three years: beyond it float seconds no longer tell steps apart
NEVER = -1.0  # a time stamp that has not been set; simulated time starts at 0


@dataclass(frozen=True, slots=True)
class RequestSpec:
    """What a client asks for; the same in both arms."""

    number: int
    arrival_s: float  # in a closed loop: 0, the user sends it when the one before is done
    input_tokens: int
    output_tokens: int


@dataclass(slots=True)
class Request:
    """A request in the system. Counts are those of its last attempt where an outage made it start again."""

    number: int
    arrival_s: float
    input_tokens: int
    output_tokens: int
    level: int = 0  # its place in the population of acceptances
    key: int = 0  # of its random numbers, a signed 64-bit word
    computed: int = 0  # tokens of prompt (and output, after a preemption) whose cache is filled
    cached: int = 0  # of these, found in the prefix cache
    generated: int = 0
    from_prefill: int = 0  # of these, given by prompt steps: the first, and one after each preemption
    blocks: int = 0
    steps: int = 0  # decode steps
    drafts: int = 0
    draft_tokens: int = 0
    wasted: int = 0  # accepted beyond the last token that was asked for
    stretch: int = 0  # the step at which its present stretch of acceptance began
    preemptions: int = 0
    attempts: int = 1
    start_s: float = NEVER
    first_token_s: float = NEVER
    last_token_s: float = NEVER
    finish_s: float = NEVER
    rejected: str = ""
    done: Any = field(default=None, repr=False)  # the simpy event that its user waits for

    @property
    def known_tokens(self) -> int:
        """Prompt and generated tokens: what has to be in the cache before the next token can be made."""
        return self.input_tokens + self.generated

    @property
    def ttft_s(self) -> float:
        """Formula: first token - arrival."""
        return self.first_token_s - self.arrival_s

    @property
    def e2e_s(self) -> float:
        """Formula: last token - arrival."""
        return self.finish_s - self.arrival_s

    @property
    def tpot_s(self) -> float | None:
        """Formula: (e2e - ttft) / (output tokens - 1); None for a single token."""
        if self.output_tokens < 2:
            return None
        return (self.finish_s - self.first_token_s) / (self.output_tokens - 1)

    @property
    def accepted_tokens(self) -> int:
        """Accepted drafts as the engine's counters see them, those beyond the end included."""
        return self.generated - self.from_prefill + self.wasted - self.steps

    def restart(self) -> None:
        """Forget everything that a failed engine loses."""
        self.computed = self.cached = self.generated = self.from_prefill = self.blocks = 0
        self.steps = self.drafts = self.draft_tokens = self.wasted = self.stretch = 0
        self.start_s = self.first_token_s = self.last_token_s = NEVER
        self.attempts += 1
