"""The run file that `draftcast measure -o` writes, by its contract: `cells[...]` and `server{}`.

Keys are ours: `concurrency`, `tpot_s{}`, `step_s`, `tokens_per_step`, `throughput_tokens_per_s`, `ttft_s{}`,
`acceptance{}`. A statistic is a number or an object with `mean` (else `p50`); added keys are ignored.
"""

from collections.abc import Mapping
from typing import Any

from calibration.readers.acceptance import Counted, counts_of
from calibration.readers.runs import PLAUSIBLE_TIME_S, draft_probability, mean_context
from calibration.readers.values import at, count, first, mapping, number, numbers, positive, sentence, text
from calibration.records import AcceptanceCounts, Evidence, MeasuredCell, Refused
from simulator.deployment.speculation import MAX_DRAFT_TOKENS

_CELL_KEYS = ("tpot_s", "step_s", "throughput_tokens_per_s")
_REASONS = ("refused", "refused_reason", "error")
_MEANS = ("mean", "value", "p50", "median")
_NUMBERS = ("input_tokens", "output_tokens", "context_tokens", "allreduce_share", "num_requests", "prefill_share")


def is_run_file(record: Any) -> bool:
    """Whether `record` is what `draftcast measure` wrote."""
    found = mapping(record)
    cells = found.get("cells")
    return isinstance(cells, list) and ("server" in found or any("concurrency" in mapping(cell) for cell in cells))


def read_run_file(record: Mapping[str, Any], path: str) -> Evidence:
    """Cells of a run; those that the measurement itself marked as not to be used are refused with its reason."""
    server = mapping(record.get("server"))
    evidence = Evidence()
    for index, item in enumerate(record["cells"]):
        evidence += _read_cell(mapping(item), server, f"{path} cells[{index}]")
    if not record["cells"]:
        return Evidence(refused=(Refused(path, "a run without a cell"),))
    return evidence


def _read_cell(item: Mapping[str, Any], server: Mapping[str, Any], source: str) -> Evidence:
    reason = _unusable(item)
    if reason:
        return Evidence(refused=(Refused(source, reason),))
    k = _num_speculative_tokens(item, server)
    counts, refused, notes = _acceptance(mapping(item.get("acceptance")), source, k)
    tpot_s, step_s = _statistic(item.get("tpot_s")), _statistic(item.get("step_s"))
    per_step = positive(item.get("tokens_per_step"))
    fields = {name: number(item.get(name)) for name in _NUMBERS}
    if fields["context_tokens"] is None:
        fields["context_tokens"] = mean_context(fields["input_tokens"], fields["output_tokens"])
    cell = MeasuredCell(
        source=source,
        concurrency=_in_flight(item),
        num_speculative_tokens=k,
        method=_either(item, server, "method"),
        tpot_s=tpot_s,
        step_s=first(step_s, tpot_s if k == 0 else None),
        ttft_s=_statistic(item.get("ttft_s")),
        throughput_tokens_per_s=_statistic(item.get("throughput_tokens_per_s")),
        tokens_per_step=first(per_step, 1.0 if k == 0 else None),
        relative_noise=_noise(item),
        kv_cache_tokens=first(number(item.get("kv_cache_tokens")), number(server.get("kv_cache_tokens"))),
        acceptance=counts,
        engine=_either(item, server, "engine") or text(server.get("name")),
        engine_version=_either(item, server, "engine_version") or text(server.get("version")),
        model=_either(item, server, "model"),
        notes=notes,
        duration_s=positive(item.get("duration_s")),
        draft_probability=first(draft_probability(counts), number(at(item, "acceptance", "draft_probability"))),
        **fields,
    )
    return Evidence((cell,), refused=refused)


def _unusable(item: Mapping[str, Any]) -> str | None:
    stated = next((found for name in _REASONS if (found := sentence(item.get(name)))), None)
    if stated:
        return stated
    if item.get("complete") is False or item.get("partial") is True:
        return "the measurement of this cell was not finished"
    if positive(item.get("concurrency")) is None:
        return "no concurrency"
    if not any(_statistic(item.get(name)) for name in _CELL_KEYS):
        return "no time and no throughput"
    low, high = PLAUSIBLE_TIME_S
    for name in ("tpot_s", "step_s"):
        time = _statistic(item.get(name))
        if time is not None and not low <= time <= high:
            return f"{name} = {time:.3g} s is none that a server has ({low:g} to {high:g} s)"
    return None


def _in_flight(item: Mapping[str, Any]) -> float | None:
    """Requests at once: as measured, else as asked for. One user is one request, though it pauses between two."""
    found = first(positive(item.get("measured_concurrency")), positive(item.get("concurrency")))
    return None if found is None else max(found, 1.0)


def _statistic(value: Any) -> float | None:
    """A number, or the mean of an object of statistics."""
    if isinstance(value, Mapping):
        return next((found for name in _MEANS if (found := positive(value.get(name))) is not None), None)
    return positive(value)


def _noise(item: Mapping[str, Any]) -> float | None:
    """Relative standard error: stated, or of the TPOT statistics."""
    stated = positive(item.get("relative_noise"))
    tpot = mapping(item.get("tpot_s"))
    centre, error = _statistic(tpot), first(positive(tpot.get("stderr")), positive(tpot.get("standard_error")))
    return first(stated, error / centre if error and centre else None)


def _num_speculative_tokens(item: Mapping[str, Any], server: Mapping[str, Any]) -> int | None:
    places = (
        item.get("num_speculative_tokens"),
        server.get("num_speculative_tokens"),
        at(server, "speculative_config", "num_speculative_tokens"),
    )
    k = next((found for place in places if (found := count(place)) is not None), None)
    if k is None and "speculative_config" in server and not server["speculative_config"]:
        return 0
    return k if k is None or k <= MAX_DRAFT_TOKENS else None


def _either(item: Mapping[str, Any], server: Mapping[str, Any], name: str) -> str | None:
    return text(item.get(name)) or text(server.get(name)) or text(at(server, "speculative_config", name))


def _acceptance(
    given: Mapping[str, Any], source: str, k: int | None
) -> tuple[AcceptanceCounts | None, tuple[Refused, ...], tuple[str, ...]]:
    """Counts, under our names or vLLM's."""
    drafts = first(number(given.get("drafts")), number(given.get("num_drafts")))
    positions = numbers(given.get("accepted_per_position")) or numbers(given.get("num_accepted_tokens_per_pos"))
    shares = numbers(given.get("per_position"))
    if drafts and positions is None and shares is not None:
        positions = [share * drafts for share in shares]
    if not drafts or not positions:
        return None, (), ()
    counts, reason, notes = counts_of(
        Counted(
            drafts,
            tuple(positions),
            first(number(given.get("accepted_tokens")), number(given.get("num_accepted_tokens"))),
            first(number(given.get("draft_tokens")), number(given.get("num_draft_tokens"))),
            first(number(given.get("steps")), number(given.get("decode_steps"))),
            number(given.get("decode_tokens")),
            number(given.get("num_requests")),
        )
    )
    if counts is not None and k is not None and len(positions) > k:
        return None, (Refused(source, f"acceptance: {len(positions)} positions with k = {k}"),), ()
    return counts, (Refused(source, reason),) if reason else (), notes
