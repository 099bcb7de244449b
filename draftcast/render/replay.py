"""`draftcast replay` for a human reader."""

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from draftcast.render.numbers import UNDEFINED, counted, share, whole
from draftcast.render.page import Page

SHOWN_POSITIONS = 8  # more do not fit into 80 columns beside the other figures
# A draft length is worth naming while each further token adds at least this much to the tokens per step.
NOTABLE_GAIN = 0.01


def render(result: Mapping[str, Any], page: Page) -> None:
    """One row per draft length, what it means, and what to do with it."""
    rows = result["results"]
    page.headline(_headline(rows))
    page.text(f"{_what(result['inputs'])}; {_recorded(result)}.")
    page.table(
        ("k", "drafts", "tokens/step", "95 %", "accepted by position"),
        [(str(row["num_speculative_tokens"]), *_figures(row)) for row in rows],
    )
    page.section("Draft probability by tokens of context", _contexts(rows[-1]))
    page.section("Runs", _runs(rows[-1]))
    page.section("Warnings", result["warnings"])
    _show_next(result, page)


def _headline(rows: Sequence[Mapping[str, Any]]) -> str:
    best = _best(rows)
    if best is None:
        return "Nothing to replay: no output has two tokens."
    if not any(row["accepted_tokens"] for row in rows):
        return "No drafted token would have been accepted: this method cannot make these outputs faster."
    tokens = best["tokens_per_step"]
    return (
        f"With k = {best['num_speculative_tokens']} a decode step would have emitted {tokens:.3f} tokens: faster only "
        f"if such a step takes less than {tokens:.2f} times as long as one without drafts."
    )


def _best(rows: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The shortest draft length that emits nearly as much as the most: longer ones only cost."""
    known = [row for row in rows if row["tokens_per_step"] is not None]
    if not known:
        return None
    most = max(row["tokens_per_step"] for row in known)
    return next(row for row in known if row["tokens_per_step"] >= most - NOTABLE_GAIN)


def _what(inputs: Mapping[str, Any]) -> str:
    if inputs["method"] == "suffix":
        search = f"suffix decoding, {whole(inputs['suffix_max_cached_requests'])} requests cached"
    else:
        low, high = inputs["prompt_lookup_min"], inputs["prompt_lookup_max"]
        tokens = f"{low}" if low == high else f"{low} to {high}"
        search = f"{inputs['method']} ({inputs['variant']}), matches of {tokens} tokens"
    version = inputs["engine_version"]
    return search if version is None else f"{search}, vLLM {version}"


def _recorded(result: Mapping[str, Any]) -> str:
    return (
        f"{counted(result['num_requests'], 'request')}, {counted(result['output_tokens'], 'output token')}, "
        f"{counted(result['prompt_tokens'], 'prompt token')}"
    )


def _figures(row: Mapping[str, Any]) -> tuple[str, ...]:
    low, high = row["tokens_per_step_ci95"]
    tokens = row["tokens_per_step"]
    positions = [_digits(value) for value in row["acceptance_per_position"][:SHOWN_POSITIONS]]
    if row["num_speculative_tokens"] > SHOWN_POSITIONS:
        positions.append("…")
    return (
        share(row["draft_probability"]),
        UNDEFINED if tokens is None else f"{tokens:.3f}",
        UNDEFINED if low is None else f"{low:.3f}-{high:.3f}",
        " ".join(positions),
    )


def _digits(value: float | None) -> str:
    """Two digits without the zero before the point: .57; 1.0 for one."""
    if value is None:
        return UNDEFINED
    text = f"{value:.2f}"
    return text.removeprefix("0") if value < 1 and text != "1.00" else "1.0"


def _contexts(row: Mapping[str, Any]) -> list[str]:
    k = row["num_speculative_tokens"]
    found = []
    for part in row["draft_probability_by_context"]:
        end = part["context_tokens_below"]
        place = f"from {whole(part['context_tokens_from'])}" + ("" if end is None else f" to {whole(end - 1)}")
        found.append(
            f"{place}: {share(part['draft_probability'])} of {counted(part['steps'], 'step')}, "
            f"{part['tokens_per_step']:.2f} tokens per step at k = {k}"
        )
    return found


def _runs(row: Mapping[str, Any]) -> list[str]:
    drafted, accepted = row["runs"]["drafted_steps"], row["runs"]["accepted_tokens"]
    if not drafted["runs"]:
        return []
    found = [
        f"drafted steps come in runs of {drafted['mean']:.1f} on average, 90 % of them up to {drafted['p90']}, "
        f"the longest {drafted['max']}"
    ]
    if accepted["runs"]:
        found.append(
            f"accepted tokens come in runs of {accepted['mean']:.1f} on average, 90 % of them up to {accepted['p90']}, "
            f"the longest {accepted['max']}"
        )
    return found


def _show_next(result: Mapping[str, Any], page: Page) -> None:
    """The command that uses the result, to copy."""
    path = result["inputs"]["output"]
    page.heading("Next")
    if path is None:
        page.text("Write the result with -o FILE: `draftcast predict` and `choose` take it as the acceptance.")
        return
    page.text("Whether these tokens per step pay for the longer steps on your machine:")
    acceptance = f"speculation.acceptance={{replay={json.dumps(path)}}}"
    page.verbatim(f"draftcast choose DEPLOYMENT --method {result['inputs']['method']} --set {shlex.quote(acceptance)}")
