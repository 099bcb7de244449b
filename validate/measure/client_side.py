"""What the users of a cell saw: times and tokens of the requests that ended while all of them were busy."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from calibration.readers.values import mean, median
from validate.client.answers import Answer
from validate.measure.statistics import described
from validate.measure.users import Outcome

_EXACT = ("token_ids", "usage")  # routes that tell the tokens of each chunk
_AT_ONCE_SHARE = 0.1  # of the window: more than a late last chunk that overlaps the next request's first


@dataclass(frozen=True, slots=True)
class Steady:
    """The window in which all users were busy: between two moments of the monotonic clock."""

    start_s: float
    end_s: float

    @property
    def length_s(self) -> float:
        """Its length."""
        return self.end_s - self.start_s

    def holds(self, time_s: float) -> bool:
        """Whether a moment lies in it."""
        return self.start_s < time_s <= self.end_s

    def overlap_s(self, start_s: float, end_s: float) -> float:
        """How much of a span lies in it."""
        return max(0.0, min(end_s, self.end_s) - max(start_s, self.start_s))


@dataclass(slots=True)
class Chunks:
    """Chunks that came in the window, each request's first left out: their gaps and tokens."""

    gaps_s: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)  # empty where not told
    all_tokens: int = 0  # first chunks included

    def gap_by_tokens_s(self) -> dict[str, float] | None:
        """Mean time before a chunk, by its tokens: with one user, its step; None where some are not told."""
        if len(self.gaps_s) != len(self.tokens):
            return None
        by_tokens: dict[int, list[float]] = {}
        for gap_s, tokens in zip(self.gaps_s, self.tokens, strict=True):
            by_tokens.setdefault(tokens, []).append(gap_s)
        return {str(tokens): mean(gaps_s) for tokens, gaps_s in sorted(by_tokens.items())}


@dataclass(frozen=True, slots=True)
class ClientSide:
    """The figures of the window; `answers` ended in it, in the order of their ends."""

    users: int
    window: Steady
    answers: tuple[Answer, ...]
    num_failed: int
    faults: dict[str, int]
    in_flight: float | None
    decoding: float | None
    decoding_at_once: int  # for a tenth of the window at least
    chunks: Chunks
    counted_by: str | None  # the weakest route among the answers

    @property
    def tpots_s(self) -> list[float]:
        """TPOT of each request that has one."""
        return [tpot for answer in self.answers if (tpot := answer.tpot_s) is not None]

    @property
    def has_chunk_tokens(self) -> bool:
        """Whether the tokens of each chunk are known."""
        return bool(self.chunks.tokens) and self.counted_by in _EXACT

    @property
    def tokens_per_chunk(self) -> float | None:
        """Tokens of a chunk after the first, mean."""
        return mean(self.chunks.tokens) if self.has_chunk_tokens else None

    @property
    def throughput_tokens_per_s(self) -> float | None:
        """Tokens that came in the window, per second; of the requests that ended in it where chunks tell none."""
        if not self.answers or self.window.length_s <= 0 or self.counted_by in (None, "nothing"):
            return None
        if self.has_chunk_tokens:
            return self.chunks.all_tokens / self.window.length_s
        return sum(answer.output_tokens or 0 for answer in self.answers) / self.window.length_s

    def mean_of(self, name: str) -> float | None:
        """Mean of a figure of the answers, over those that have it."""
        values = [float(value) for answer in self.answers if (value := getattr(answer, name)) is not None]
        return mean(values) if values else None

    def tpot_dict(self) -> dict[str, Any] | None:
        """Time per output token: mean over requests, percentiles, interval."""
        return described(self.tpots_s, self.users)

    def ttft_dict(self) -> dict[str, Any] | None:
        """Time to the first token: mean, percentiles, interval."""
        return described([ttft for answer in self.answers if (ttft := answer.ttft_s) is not None], self.users)

    def joined(self, k: int | None) -> float | None:
        """Share of chunks that hold more tokens than a step can yield: the server, or a proxy, joined steps."""
        if k is None or not self.has_chunk_tokens:
            return None
        return sum(tokens > k + 1 for tokens in self.chunks.tokens) / len(self.chunks.tokens)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "requests": len(self.answers),
            "failed": self.num_failed,
            "faults": self.faults,
            "counted_by": self.counted_by,
            "in_flight": self.in_flight,
            "decoding": self.decoding,
            "decoding_at_once": self.decoding_at_once,
            "tpot_s": self.tpot_dict(),
            "chunk_gap_s": described(self.chunks.gaps_s, len(self.chunks.gaps_s)) if self.chunks.gaps_s else None,
            "tokens_per_chunk": self.tokens_per_chunk,
            "tokens_of_chunks": _histogram(self.chunks.tokens) if self.has_chunk_tokens else None,
            "gap_by_tokens_s": self.chunks.gap_by_tokens_s() if self.has_chunk_tokens else None,
            "throughput_tokens_per_s": self.throughput_tokens_per_s,
            "with_reasoning": sum(answer.has_reasoning for answer in self.answers),
            "with_tool_calls": sum(answer.has_tool_calls for answer in self.answers),
            "unreadable_events": sum(answer.num_garbage for answer in self.answers),
            "finish_reasons": dict(Counter(str(answer.finish_reason) for answer in self.answers)),
        }


def client_side(outcomes: Sequence[Outcome], users: int, window: Steady) -> ClientSide:
    """The figures of one window out of everything that a cell's users did."""
    ended = [item for item in outcomes if window.holds(item.ended_s)]
    answers = tuple(item.answer for item in ended if item.answer is not None)
    failed = [item.fault for item in ended if item.fault is not None and item.fault.kind not in ("later", "stopped")]
    routes = [answer.counted_by for answer in answers]
    return ClientSide(
        users,
        window,
        answers,
        len(failed),
        dict(Counter(fault.message for fault in failed).most_common(5)),
        _mean_number(((item.sent_s, item.ended_s) for item in outcomes), window),
        _mean_number(_decoding(outcomes), window),
        _at_once(_decoding(outcomes), window),
        _chunks(outcomes, window),
        max(routes, key=("token_ids", "usage", "final usage", "nothing").index, default=None),
    )


def _mean_number(spans: Iterable[tuple[float, float]], window: Steady) -> float | None:
    """How many spans a moment of the window lies in, on average."""
    if window.length_s <= 0:
        return None
    return sum(window.overlap_s(start_s, end_s) for start_s, end_s in spans) / window.length_s


def _decoding(outcomes: Sequence[Outcome]) -> Iterable[tuple[float, float]]:
    for item in outcomes:
        if item.answer is not None and item.answer.chunk_times_s:
            yield item.answer.chunk_times_s[0], item.answer.chunk_times_s[-1]


def _at_once(spans: Iterable[tuple[float, float]], window: Steady) -> int:
    """The largest number of spans that lie over one another for `_AT_ONCE_SHARE` of the window, or longer."""
    inside = [span for span in spans if window.overlap_s(*span) > 0.0]
    edges = sorted(
        [(max(start_s, window.start_s), 1) for start_s, _ in inside]
        + [(min(end_s, window.end_s), -1) for _, end_s in inside]
    )
    lasted_s: defaultdict[int, float] = defaultdict(float)
    number, since_s = 0, window.start_s
    for time_s, step in edges:
        lasted_s[number] += time_s - since_s
        number, since_s = number + step, time_s
    reached_s = 0.0
    for number in sorted(lasted_s, reverse=True):
        reached_s += lasted_s[number]
        if reached_s >= _AT_ONCE_SHARE * window.length_s:
            return number
    return 0


def _chunks(outcomes: Sequence[Outcome], window: Steady) -> Chunks:
    found = Chunks()
    for item in outcomes:
        if item.answer is not None:
            _add_chunks(found, item.answer, window)
    return found


def _add_chunks(found: Chunks, answer: Answer, window: Steady) -> None:
    times_s, tokens = answer.chunk_times_s, answer.chunk_tokens
    before_s: float | None = None
    for index, time_s in enumerate(times_s):
        if window.holds(time_s):
            found.all_tokens += tokens[index] if tokens else 0
            if before_s is not None:
                found.gaps_s.append(time_s - before_s)
                found.tokens += tokens[index : index + 1]
        before_s = time_s


def _histogram(tokens: Sequence[int]) -> dict[str, int]:
    """Number of chunks by their tokens."""
    return {str(size): number for size, number in sorted(Counter(tokens).items())}


def median_gap_s(side: ClientSide) -> float | None:
    """The middle gap between chunks."""
    return median(side.chunks.gaps_s) if side.chunks.gaps_s else None


def by_kind(outcomes: Sequence[Outcome], window: Steady) -> list[dict[str, Any]]:
    """TPOT and tokens per chunk by kind of prompt, for the requests that ended in the window."""
    groups: dict[str, list[Answer]] = {}
    for item in outcomes:
        if item.answer is not None and window.holds(item.ended_s):
            groups.setdefault(item.kind, []).append(item.answer)
    return [_kind(kind, answers) for kind, answers in sorted(groups.items())]


def _kind(kind: str, answers: Sequence[Answer]) -> dict[str, Any]:
    tpots = [tpot for answer in answers if (tpot := answer.tpot_s) is not None]
    exact = [answer for answer in answers if len(answer.chunk_tokens) > 1]
    steps = sum(len(answer.chunk_tokens) - 1 for answer in exact)
    tokens = sum(answer.decode_tokens or 0 for answer in exact)
    return {
        "kind": kind,
        "requests": len(answers),
        "tpot_s": mean(tpots) if tpots else None,
        "tokens_per_step": tokens / steps if steps else None,
    }


def request_records(outcomes: Sequence[Outcome], window: Steady, origin_s: float) -> list[dict[str, Any]]:
    """One record for each request that was answered, times since `origin_s`; requests outside the window are marked."""
    return [
        {
            "number": item.number,
            "kind": item.kind,
            "sent_s": item.sent_s - origin_s,
            "ttft_s": item.answer.ttft_s,
            "tpot_s": item.answer.tpot_s,
            "e2e_s": item.answer.e2e_s,
            "input_tokens": item.answer.prompt_tokens,
            "output_tokens": item.answer.output_tokens,
            "chunks": len(item.answer.chunk_times_s),
            "in_window": window.holds(item.ended_s),
        }
        for item in outcomes
        if item.answer is not None
    ]
