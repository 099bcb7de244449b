"""The tables of a deployment file that a server's own traffic tells: `[workload]`, `[[measured]]`, `[speculation]`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hwmodel.units import MS
from validate.measure.server_side import ServerSide, acceptance_dict

_MAX_LOADS = 32
_DIGITS = 4


@dataclass(frozen=True, slots=True)
class Tables:
    """TOML to paste into a deployment file; None with the reason where the traffic tells too little."""

    text: str | None
    reason: str | None
    notes: tuple[str, ...] = ()


def deployment_tables(cells: Sequence[Mapping[str, Any]], total: ServerSide | None, k: int | None) -> Tables:
    """The tables of the traffic with draft length `k`, `total` being the sum of all of its windows."""
    if total is None or total.cell is None:
        return Tables(None, "no token was generated while it was watched")
    usable = [cell for cell in cells if cell["num_speculative_tokens"] == k and not cell["refused_reason"]]
    loads = _loads(usable)
    if not loads:
        return Tables(None, "no load held still for long enough; watch for longer")
    lines = ["# from /metrics of real traffic; weights are shares of the generated tokens", "[workload]"]
    lines += [f"concurrency = [{', '.join(map(str, loads))}]"]
    lines += [f"weights = [{', '.join(_number(sum(c['share_of_tokens'] for c in group)) for group in loads.values())}]"]
    lines += _lengths(total)
    notes: tuple[str, ...] = ()
    if k == 0:
        for load, group in loads.items():
            lines += _measured(load, group, total.cell.kv_cache_tokens)
    else:
        lines += _speculation(total, k)
        notes = ("the server speculates: its times are no baseline, so there is no [[measured]] table",)
    return Tables("\n".join(lines) + "\n", None, notes)


def _loads(cells: Sequence[Mapping[str, Any]]) -> dict[int, list[Mapping[str, Any]]]:
    """Cells by whole concurrency, the ones with most tokens kept where there are too many."""
    found: dict[int, list[Mapping[str, Any]]] = {}
    for cell in sorted(cells, key=lambda item: -item["share_of_tokens"])[:_MAX_LOADS]:
        found.setdefault(max(1, round(cell["concurrency"])), []).append(cell)
    return dict(sorted(found.items()))


def _lengths(total: ServerSide) -> list[str]:
    cell = total.cell
    assert cell is not None
    lines = []
    for name, value in (("input_tokens", cell.input_tokens), ("output_tokens", cell.output_tokens)):
        if value is not None and value >= 1:
            lines.append(f"{name} = {round(value)}")
    if total.totals.prefix_hit_share is not None:
        lines.append(f"prefix_cache_hit_share = {_number(total.totals.prefix_hit_share)}")
    return lines


def _measured(load: int, group: Sequence[Mapping[str, Any]], kv_cache_tokens: float | None) -> list[str]:
    """The facts at one load, of the cell with the most tokens: one time, since all its times say the same."""
    cell = max(group, key=lambda item: item["share_of_tokens"])
    values = {
        "tpot_ms": (cell["tpot_s"] or {}).get("mean") and cell["tpot_s"]["mean"] / MS,
        "context_tokens": cell["context_tokens"] and max(1, round(cell["context_tokens"])),
        "kv_cache_tokens": kv_cache_tokens,
        "relative_noise": cell["relative_noise"],
    }
    lines = ["", "[[measured]]", f"concurrency = {load}"]
    return lines + [f"{name} = {_number(value)}" for name, value in values.items() if value]


def _speculation(total: ServerSide, k: int | None) -> list[str]:
    """The counters, under the names that the deployment file takes; the method is for the user to say."""
    counts = acceptance_dict(total)
    if counts is None or k is None:
        return []
    positions = ", ".join(_number(value) for value in counts["accepted_per_position"])
    fields = [
        f"num_drafts = {_number(counts['drafts'])}",
        f"num_accepted_tokens = {_number(counts['accepted_tokens'])}",
        f"num_accepted_tokens_per_pos = [{positions}]",
    ]
    named = {
        "num_draft_tokens": counts["draft_tokens"],
        "generation_tokens": total.totals.generated_tokens,
        "itl_count": total.totals.steps,
        "ttft_count": total.totals.first_tokens,
    }
    fields += [f"{name} = {_number(value)}" for name, value in named.items() if value is not None]
    head = [
        "",
        "# method: as in the launch, /metrics does not tell it",
        "[speculation]",
        f"num_speculative_tokens = {k}",
    ]
    return [*head, f"acceptance = {{ counters = {{ {', '.join(fields)} }} }}"]


def _number(value: float) -> str:
    """A TOML number: whole numbers in full, others to a few digits."""
    return (
        str(int(value)) if float(value).is_integer() else f"{value:.{_DIGITS}g}" if abs(value) < 1e4 else f"{value:.1f}"
    )
