"""Sentences that more than one command prints."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from draftcast.render.numbers import counted, duration, factor, interval, probability, storage, whole
from draftcast.render.page import Page

# Words for a probability of being faster. Between them the honest word is that it is open.
SURE, LIKELY = 0.95, 0.8


def verdict(probability_faster: float | None) -> str:
    """The word that a probability deserves.

    >>> verdict(0.97), verdict(0.85), verdict(0.5), verdict(0.1), verdict(0.01)
    ('Faster', 'Probably faster', 'Undecided', 'Probably slower', 'Slower')
    """
    if probability_faster is None:
        return "Undefined"
    if probability_faster >= SURE:
        return "Faster"
    if probability_faster >= LIKELY:
        return "Probably faster"
    if probability_faster > 1 - LIKELY:
        return "Undecided"
    return "Probably slower" if probability_faster > 1 - SURE else "Slower"


def speedup(cell: Mapping[str, Any]) -> str:
    """The median with its interval and probability: "1.23x (90 % interval 1.05-1.41, P(faster) 97 %)"."""
    return (
        f"{factor(cell['speedup'].get('p50'))} (90 % interval {interval(cell['speedup'])}, "
        f"P(faster) {probability(cell['probability_faster'])})"
    )


def memory_lines(memory: Mapping[str, Any]) -> list[str]:
    """What is stored, and how many tokens and requests that leaves room for, before and after."""
    fits = "" if memory.get("fits", True) else "DOES NOT FIT: "
    lines = [
        f"{fits}weights {storage(memory.get('weights_bytes_per_gpu'))} on each GPU"
        f" ({storage(memory.get('weights_bytes'))} in all, replicated parts counted),"
        f" drafter {storage(memory.get('draft_bytes'))} in all",
        f"KV cache {counted(memory.get('kv_cache_tokens_baseline'), 'token')} without speculation, "
        f"{whole(memory.get('kv_cache_tokens_speculative'))} with it",
    ]
    if memory.get("max_concurrency_baseline") is not None:
        lines.append(
            f"room for {counted(memory['max_concurrency_baseline'], 'request')} without speculation, "
            f"{whole(memory.get('max_concurrency_speculative'))} with it"
        )
    return lines


def restart_line(restart: Mapping[str, Any]) -> str:
    """What the restart costs, and when its gain has paid for it."""
    outage_s = restart.get("outage_s")
    outage = {None: "outage not stated", 0: "no outage"}.get(outage_s, f"outage {duration(outage_s)}")
    payback = restart.get("payback_s") or {}
    reason = restart.get("payback_reason")
    if payback.get("p50") is None:
        return f"{outage}; {reason or 'it is not paid back'}"
    late = duration(payback["p95"]) if payback.get("p95") is not None else "never"
    line = f"{outage}; paid back after {duration(payback['p50'])}"
    line += f" (90 % interval {duration(payback.get('p05'))} to {late})"
    return f"{line}; {reason}" if reason else line


def sentences(value: str | Sequence[str] | None) -> list[str]:
    """One sentence or several, as a list."""
    if not value:
        return []
    return [value] if isinstance(value, str) else list(value)


def joined(remarks: Iterable[str]) -> str:
    """Several remarks in one line, whether or not each ends as a sentence does.

    >>> joined(["It gains.", "full graphs"]), joined([])
    ('It gains; full graphs', '')
    """
    return "; ".join(remark.rstrip(". ") for remark in remarks)


def closing(result: Mapping[str, Any], page: Page) -> None:
    """Memory, reasons and effects on clients: the end of `predict` and `choose`."""
    if result.get("memory"):
        page.section("Memory", memory_lines(result["memory"]))
    page.section("Why", sentences(result.get("why")))
    effects = result.get("client_effects") or result.get("recommendation", {}).get("client_effects")
    page.section("What changes for clients", sentences(effects))
