"""One cell of a run: the client's and the server's figures put together, and whether they may be used.

A value that two sides tell is taken from one of them, and the other stands beside it in `client` or `server`: TPOT from
the client (mean over requests), step time and tokens per step from the server's counters where these are ours alone.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from calibration.readers.runs import CONCURRENCY_RAN, MIN_OUTPUT_TOKENS, Run, judged, mean_context
from calibration.readers.values import first, mean, standard_deviation
from calibration.records import MeasuredCell
from hwmodel.percent import percent
from validate.measure.checks import Check, foreign_traffic, joined_chunks
from validate.measure.client_side import ClientSide, by_kind, median_gap_s
from validate.measure.gauges import Gauges
from validate.measure.server_side import ServerSide, acceptance_dict, acceptance_of_answers, worth_saying
from validate.measure.statistics import percentile
from validate.measure.users import Outcome

_HITS_WORTH_SAYING = 0.02
_TIMES = ("tpot_s", "step_s")  # checks whose sentence is a note; sums tell of foreign traffic and joined chunks
_MIN_SAMPLES, _MOST = 3, 0.75  # of the gauges
_AGREES = 2 / 3  # of the requests that the client sees decode; a gauge of one of two replicas tells half
_BUSY = 0.7  # of one processor: above it the client may be late


@dataclass(frozen=True, slots=True)
class Measured:
    """All that is known about a cell when it has ended."""

    client: ClientSide
    outcomes: Sequence[Outcome]
    k: int | None
    busy: ServerSide | None = None  # the window in which all users were busy
    whole: ServerSide | None = None  # from before the first request to after the last
    server_reason: str | None = None  # why a side of the server is missing
    checks: tuple[Check, ...] = ()
    gauges: Gauges = field(default_factory=Gauges)
    ended_by: str = "precision"
    failure: str | None = None  # what ended it before its time
    finished: bool = True
    client_busy: float | None = None  # processor time of the client over time
    notes: tuple[str, ...] = field(default=())


def cell_dict(measured: Measured) -> dict[str, Any]:
    """The cell as it stands in a run file."""
    client = measured.client
    foreign = foreign_traffic(measured.checks, max(measured.gauges.running, default=None), client.users)
    joined = joined_chunks(client, measured.k, measured.checks)
    server = measured.busy if foreign is None else None
    values = _values(measured, server, joined)
    judgement, refused = _judged(measured, values)
    refused = measured.failure or _restart(measured) or foreign or refused or _sent_away(measured)
    refused = refused or _gauge_refusal(measured)
    acceptance = (acceptance_dict(measured.whole) or acceptance_of_answers(client.answers)) if foreign is None else None
    return {
        "concurrency": client.users,
        "measured_concurrency": client.in_flight,
        "num_speculative_tokens": measured.k,
        "complete": measured.finished,
        "refused_reason": refused,
        "ended_by": measured.ended_by,
        **values,
        "acceptance": acceptance,
        "acceptance_reason": None if acceptance else _acceptance_reason(measured, foreign),
        "relative_noise": _noise(values, judgement),
        "prefill_share": judgement.prefill_share if judgement else None,
        "num_requests": len(client.answers),
        "num_failed": client.num_failed,
        "duration_s": client.window.length_s,
        "prefix_hit_share": measured.whole.totals.prefix_hit_share if measured.whole else None,
        "foreign_traffic": foreign,
        "joined_chunks": joined,
        "by_kind": by_kind(measured.outcomes, client.window),
        "client": client.to_dict() | {"processor_share": measured.client_busy},
        "server": measured.busy.to_dict() if measured.busy else None,
        "server_reason": measured.server_reason,
        "gauges": measured.gauges.to_dict(),
        "checks": [check.to_dict() for check in measured.checks],
        "notes": [*measured.notes, *([joined] if joined else []), *_notes(measured, judgement)],
    }


def _values(measured: Measured, server: ServerSide | None, joined: str | None) -> dict[str, Any]:
    """The figures of the contract, each from the side that knows it best."""
    client, counted = measured.client, server.cell if server is not None else None
    tpot = None if _is_held_back(measured) and counted is not None else client.tpot_dict()
    tpot_from = None if tpot is None else "client"
    if tpot is None and counted is not None and counted.tpot_s is not None:
        tpot, tpot_from = {"mean": counted.tpot_s}, "server"
    is_exact = joined is None and client.has_chunk_tokens
    gap_s = mean(client.chunks.gaps_s) if client.chunks.gaps_s and is_exact else None
    has_steps = counted is not None and counted.step_s is not None and counted.tokens_per_step is not None
    step_s = counted.step_s if has_steps and counted else gap_s
    per_step = counted.tokens_per_step if has_steps and counted else client.tokens_per_chunk if is_exact else None
    unknown = joined or "tokens of a chunk are not known, so a chunk may be several steps"
    inputs, outputs = client.mean_of("prompt_tokens"), client.mean_of("output_tokens")
    if counted is not None:
        inputs, outputs = first(inputs, counted.input_tokens), first(outputs, counted.output_tokens)
    throughput = first(client.throughput_tokens_per_s, counted.throughput_tokens_per_s if counted else None)
    return {
        "tpot_s": tpot,
        "tpot_from": tpot_from,
        "ttft_s": _ttft(client, counted, from_server=tpot_from == "server"),
        "step_s": step_s,
        "step_from": None if step_s is None else "server" if has_steps else "client",
        "step_s_reason": None if step_s is not None else unknown,
        "tokens_per_step": per_step,
        "tokens_per_step_reason": None if per_step is not None else unknown,
        "throughput_tokens_per_s": throughput,
        "input_tokens": inputs,
        "output_tokens": outputs,
        "context_tokens": mean_context(inputs, outputs),
    }


def _is_held_back(measured: Measured) -> bool:
    """Whether tokens reach the client faster than the server makes them: something holds them back, then lets go."""
    check = next((item for item in measured.checks if item.name == "tpot_s"), None)
    return check is not None and check.agrees is False and (check.client or 0.0) < (check.server or 0.0)


def _ttft(client: ClientSide, counted: MeasuredCell | None, *, from_server: bool) -> dict[str, Any] | None:
    if from_server and counted is not None and counted.ttft_s is not None:
        return {"mean": counted.ttft_s}
    return client.ttft_dict()


def _judged(measured: Measured, values: dict[str, Any]) -> tuple[MeasuredCell | None, str | None]:
    """(the cell by the rules that hold for every benchmark, why it must not be used)."""
    client, tpots = measured.client, measured.client.tpots_s
    tpot_s = (values["tpot_s"] or {}).get("mean")
    if not client.answers:
        return None, "no request was answered while all users were busy"
    outputs = values["output_tokens"]
    if tpot_s is None:
        short = outputs is not None and outputs < MIN_OUTPUT_TOKENS
        return None, f"outputs of {outputs:.3g} tokens: too short for a time per token" if short else _uncounted(client)
    has_gaps = bool(client.chunks.gaps_s) and client.has_chunk_tokens and not _is_held_back(measured)
    run = Run(
        source="",
        requested=float(client.users),
        num_completed=float(len(client.answers)),
        num_failed=float(client.num_failed),
        duration_s=client.window.length_s,
        tpot_s=tpot_s,
        tpot_median_s=(values["tpot_s"] or {}).get("p50"),
        tpot_sd_s=standard_deviation(tpots) if tpots else None,
        gap_s=mean(client.chunks.gaps_s) if has_gaps else None,
        # With one user nobody else's prompt stretches a gap: what the mean is above the median is scatter.
        gap_median_s=median_gap_s(client) if has_gaps and client.users > 1 else None,
        ttft_s=(values["ttft_s"] or {}).get("mean"),
        latency_s=client.mean_of("e2e_s"),
        input_tokens=values["input_tokens"],
        output_tokens=outputs,
        concurrency=client.in_flight,
        tokens_per_step=values["tokens_per_step"],
        num_speculative_tokens=measured.k,
        acceptance=measured.whole.acceptance if measured.whole else None,
        steady=True,
    )
    evidence = judged(run)
    reasons = [item.reason for item in evidence.refused]
    if evidence.cells:
        return evidence.cells[0], None
    return None, reasons[0] if reasons else "the figures do not fit together"


def _uncounted(client: ClientSide) -> str:
    if client.counted_by == "nothing":
        return "the server tells no number of tokens: neither token ids nor usage, and no counters in /metrics"
    return "answers of one chunk: no time per token can be had from them"


def _restart(measured: Measured) -> str | None:
    reason = measured.server_reason or ""
    return reason if "restart" in reason else None


def _sent_away(measured: Measured) -> str | None:
    """Why fewer requests were under way than there are users, where the server told some to come later."""
    client = measured.client
    later = sum(item.fault is not None and item.fault.kind == "later" for item in measured.outcomes)
    if not later or client.in_flight is None or client.in_flight >= CONCURRENCY_RAN * client.users:
        return None
    return (
        f"asked for {client.users} at once, but only {client.in_flight:.3g} were under way on average: the server told "
        f"users to come later {later} times (HTTP 429 or 503)"
    )


def _gauge_refusal(measured: Measured) -> str | None:
    """Model specification, section 7, rule 8: the running gauge must be the concurrency.

    Between two requests of a user the gauge stands one lower until the next prompt is through, on a busy machine at
    every look: such gaps alone are no limit. A limit shows in requests that wait, in a gauge far below what the client
    sees decode, or in a number that neither of them ever reaches.
    """
    running, client = measured.gauges.running, measured.client
    if len(running) < _MIN_SAMPLES:
        return None
    enough, waiting = CONCURRENCY_RAN * client.users, 0.0
    if percentile(measured.gauges.waiting or (0.0,), _MOST):  # not once, by chance
        waiting = max(measured.gauges.waiting)
    never = max(running) < enough
    most = max(running) if never else percentile(running, _MOST)
    if most >= enough or not (waiting or (never and not _ran_between_looks(client, running, enough))):
        return None
    why = f", up to {waiting:g} waited: max_num_seqs or the KV cache is full" if waiting else ""
    verb = "never" if never else "seldom"
    return f"asked for {client.users} at once, but the server {verb} ran more than {most:.3g}{why}"


def _ran_between_looks(client: ClientSide, running: Sequence[float], enough: float) -> bool:
    """Whether the client saw the number decode at once that no look at the gauge met, which else agrees with it."""
    return client.decoding_at_once >= enough and mean(running) >= _AGREES * (client.decoding or 0.0)


def _noise(values: dict[str, Any], judgement: MeasuredCell | None) -> float | None:
    """Relative standard error of the times: by the common rules, and at least what this cell's own scatter says."""
    tpot = values["tpot_s"] or {}
    own = tpot["stderr"] / tpot["mean"] if tpot.get("stderr") and tpot.get("mean") else 0.0
    stated = judgement.relative_noise if judgement is not None else None
    return None if stated is None else min(1.0, max(stated, own) if math.isfinite(own) else stated)


def _acceptance_reason(measured: Measured, foreign: str | None) -> str | None:
    """Why there is no acceptance; None where there is one."""
    if measured.k == 0:
        return "the server does not speculate"
    if foreign is not None:
        return foreign
    if measured.whole is None:
        return measured.server_reason or "no counters"
    return next((reason for reason in measured.whole.refused if "acceptance" in reason), "nothing was drafted")


def _notes(measured: Measured, judgement: MeasuredCell | None) -> list[str]:
    notes = [check.words for check in measured.checks if check.words and check.name in _TIMES and check.agrees is False]
    notes += list(judgement.notes) if judgement is not None else []
    if _is_held_back(measured):
        notes.append(
            "chunks arrive in bunches: a proxy or the network holds them back; the server's own times are used"
        )
    if measured.whole is not None:
        notes += worth_saying(measured.whole.cell)
        hits = measured.whole.totals.prefix_hit_share
        if hits is not None and hits > _HITS_WORTH_SAYING:
            notes.append(
                f"{percent(hits)} of the prompt tokens were found in the prefix cache: TTFT is shorter than without"
            )
    if measured.client_busy is not None and measured.client_busy > _BUSY:
        notes.append(
            f"this client kept a processor busy for {percent(measured.client_busy)} of the time: times may be too"
            " long; run it on another machine than the server, or with fewer users"
        )
    garbage = sum(answer.num_garbage for answer in measured.client.answers)
    if garbage:
        notes.append(f"{garbage} events in the streams could not be read and were left out")
    if any(answer.counts_differ for answer in measured.client.answers):
        notes.append("token ids and usage tell different numbers of tokens; the token ids are used")
    return list(dict.fromkeys(notes))
