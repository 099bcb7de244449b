"""The client's figures against the server's, and what a difference means: others' traffic, joined chunks, a bad count.

The whole life of a cell is compared, from before its first request to after its last, when nothing of ours is under
way: then the identities hold exactly (model specification, correction 1). Times too: a machine that halts at an end of
the busy window makes one side count the halt and the other not. Only where requests were cut is that window compared.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hwmodel.percent import percent
from validate.client.answers import Answer
from validate.measure.client_side import ClientSide
from validate.measure.server_side import ServerSide, Totals
from validate.measure.users import Outcome

SLACK = 0.01  # of tokens or steps: usage and token ids differ by a held-back token at most
_TIMES_SLACK = 0.05  # of a mean time seen on both sides; beyond it the client or the network adds to it
_JOINED = 0.01
_SENTENCES = {
    "tokens": "generated tokens",
    "requests": "finished requests",
    "steps": "decode steps (chunks after the first)",
    "tpot_s": "TPOT",
    "ttft_s": "TTFT",
    "step_s": "step time (gap between chunks)",
}


@dataclass(frozen=True, slots=True)
class Check:
    """One figure on both sides; `agrees` is None where it cannot be told."""

    name: str
    client: float | None
    server: float | None
    agrees: bool | None
    words: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Whole:
    """Everything that the users of a cell did, from its start to its end."""

    completed: int
    unfinished: int  # cut, failed or refused after the server may have worked on them
    tokens: int | None  # None where an answer was not counted
    steps: int | None  # chunks after the first; None where chunks are not steps


def whole_of(outcomes: Sequence[Outcome]) -> Whole:
    """The sums over all requests of a cell."""
    answers = [item.answer for item in outcomes if item.answer is not None]
    faults = [item.fault for item in outcomes if item.fault is not None]
    unfinished = sum(fault.kind in ("broken", "stopped") for fault in faults)
    return Whole(len(answers), unfinished, _tokens(answers), _steps(answers))


def _tokens(answers: Sequence[Answer]) -> int | None:
    counts = [answer.output_tokens for answer in answers]
    return None if None in counts else sum(count for count in counts if count is not None)


def _steps(answers: Sequence[Answer]) -> int | None:
    """Only with token ids does a server send a chunk for every step, whatever its text."""
    if any(answer.counted_by != "token_ids" for answer in answers):
        return None
    return sum(len(answer.chunk_tokens) - 1 for answer in answers)


def checks_of(whole: Whole, totals: Totals, sides: tuple[ClientSide, ServerSide | None]) -> list[Check]:
    """All comparisons of a cell: sums over its life, times between two sides of one window."""
    client, server = sides
    sums = [
        _sum("requests", whole.completed, totals.finished, whole.unfinished),
        _sum("tokens", whole.tokens, totals.generated_tokens, whole.unfinished),
        _sum("steps", whole.steps, totals.steps, whole.unfinished),
    ]
    cell = server.cell if server is not None else None
    if cell is None:
        return sums
    gap_s = None if not client.chunks.gaps_s else sum(client.chunks.gaps_s) / len(client.chunks.gaps_s)
    tokens = client.tokens_per_chunk
    per_token_s = gap_s / tokens if gap_s and tokens else None
    per_step_s = cell.step_s / cell.tokens_per_step if cell.step_s and cell.tokens_per_step else None
    times = [_time("tpot_s", per_token_s, per_step_s), _time("step_s", gap_s, cell.step_s)]
    return [*sums, *times, _time("ttft_s", client.mean_of("ttft_s"), cell.ttft_s)]


def _sum(name: str, client: float | None, server: float | None, unfinished: int) -> Check:
    if client is None or server is None:
        return Check(name, client, server, None)
    slack = SLACK * max(client, 1.0) if name != "requests" else 0.0
    if abs(server - client) <= slack:
        return Check(name, client, server, True)
    if unfinished:
        return Check(name, client, server, None, f"{unfinished} requests were not finished: sums cannot be compared")
    more = "more" if server > client else "fewer"
    words = f"{_SENTENCES[name]}: the server counted {server:g}, the client {client:g}: {more} than ours"
    return Check(name, client, server, False, words)


def _time(name: str, client: float | None, server: float | None) -> Check:
    if not client or not server:
        return Check(name, client, server, None)
    if name == "ttft_s":  # the way to the server and back is in one of them only: told, never a disagreement
        return Check(name, client, server, None)
    apart = client / server - 1
    both = f"{client:.4g} s at the client, {server:.4g} s at the server ({percent(apart, 1, signed=True)})"
    slower = ": the server's front end, the network or this client adds time to each token" if apart > 0 else ""
    words = f"{_SENTENCES[name]}: {both}{slower}"
    return Check(name, client, server, abs(apart) <= _TIMES_SLACK, None if abs(apart) <= _TIMES_SLACK else words)


def foreign_traffic(checks: Sequence[Check], running_most: float | None, users: int) -> str | None:
    """What shows that others used the server during a cell; None where nothing does."""
    by_name = {check.name: check for check in checks}
    found = []
    for name in ("requests", "tokens"):
        check = by_name.get(name)
        if check is not None and check.agrees is False and (check.server or 0.0) > (check.client or 0.0):
            extra = (check.server or 0.0) - (check.client or 0.0)
            found.append(f"{extra:g} {'requests' if name == 'requests' else 'generated tokens'} that are not ours")
    unfinished = any(check.words and check.agrees is None for check in checks)  # given up here, still running there
    if running_most is not None and running_most > users and not unfinished:
        found.append(f"{running_most:g} requests running at once, ours are {users}")
    return "others used the server meanwhile: " + ", ".join(found) if found else None


def joined_chunks(client: ClientSide, k: int | None, checks: Sequence[Check]) -> str | None:
    """What shows that a chunk is not one engine step; None where nothing does."""
    share = client.joined(k)
    if share is not None and share > _JOINED:
        return (
            f"{percent(share)} of the chunks hold more tokens than the {1 + (k or 0)} of one step: the server"
            " joins steps (--stream-interval, or a client that reads too slowly), so gaps between chunks are no step"
            " times"
        )
    steps = next((check for check in checks if check.name == "steps"), None)
    if steps is not None and steps.agrees is False and (steps.client or 0) < (steps.server or 0):
        tokens = next((check for check in checks if check.name == "tokens"), None)
        if tokens is not None and tokens.agrees:
            return (
                f"{steps.client:g} chunks after the first for {steps.server:g} decode steps: the server or a proxy "
                "joins steps, so gaps between chunks are no step times"
            )
    return None
