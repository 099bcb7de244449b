"""The serving run as a trace: a row of engine steps, counters, and the phases of every request, one group an arm."""

from typing import Any

from numpy.typing import NDArray

from simulator.perfetto import TraceWriter
from simulator.serving.request import NEVER, Request

MAX_EVENTS = 1_000_000  # some 150 MB: more than a browser opens with pleasure
_STEPS_ROW = 1


class ArmTrace:
    """Observes one arm and writes its group of rows."""

    def __init__(self, writer: TraceWriter, process: int, arm: str) -> None:
        """`process` tells the arms apart."""
        self._writer, self._process = writer, process
        writer.process(process, arm)
        writer.thread(process, _STEPS_ROW, "engine steps")

    @property
    def full(self) -> bool:
        """Whether no more events are written."""
        return self._writer.num_events >= MAX_EVENTS

    def steps(self, starts_s: NDArray[Any], ends_s: NDArray[Any], facts: dict[str, int]) -> None:
        """A bar for each step, and the counters at the end of the last one."""
        if self.full:
            return
        name = "prefill + decode" if facts["prompt_tokens"] and facts["decode"] else "decode"
        name = name if facts["decode"] else "prefill"
        shown = {"decode_requests": facts["decode"], "prompt_tokens": facts["prompt_tokens"]}
        for start, end in zip(starts_s.tolist(), ends_s.tolist(), strict=True):
            self._writer.slice((self._process, _STEPS_ROW), name, start, end, shown)
        counts = {"decoding": facts["decode"], "waiting": facts["waiting"]}
        self._writer.counter(self._process, "requests", float(ends_s[-1]), counts)
        self._writer.counter(self._process, "KV blocks", float(ends_s[-1]), {"used": facts["blocks"]})

    def request_done(self, request: Request) -> None:
        """Queue, prefill and decode of a finished request."""
        if self.full or request.finish_s == NEVER:
            return
        phases = (
            ("queue", request.arrival_s, request.start_s),
            ("prefill", request.start_s, request.first_token_s),
            ("decode", request.first_token_s, request.finish_s),
        )
        for name, start, end in phases:
            if end > start:
                self._writer.span(self._process, request.number, name, (start, end))
