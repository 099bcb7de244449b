"""`draftcast measure` for a human reader."""

from collections.abc import Mapping, Sequence
from typing import Any

from draftcast.render.numbers import UNDEFINED, counted, duration, milliseconds, share, significant, whole
from draftcast.render.page import Page
from hwmodel.percent import percent

COLUMNS = ("concurrency", "requests", "TPOT ms", "+-", "step ms", "tok/step", "tok/s", "TTFT ms")
PASSIVE_COLUMNS = ("concurrency", "time", "tokens", "TPOT ms", "step ms", "tok/step", "TTFT ms")
NOT_USABLE = "!"


def render(result: Mapping[str, Any], page: Page) -> None:
    """The server, the table of cells, what agrees and what does not, what is not usable."""
    cells = result["cells"]
    page.headline(_headline(result))
    if "traffic" in result:
        _passive(result, page)
    elif cells:
        page.table(COLUMNS, [_row(cell) for cell in cells])
    page.section("Acceptance", [text for cell in cells if (text := _acceptance(cell))])
    page.section("Client against server", [text for cell in cells if (text := _agreement(cell))])
    page.section("Not to be used", [_refused(cell) for cell in cells if cell["refused_reason"]])
    page.section("Notes on cells", _cell_notes(cells))
    missing = result.get("not_measured")
    if missing:
        page.section(
            "Not measured", [f"concurrency {', '.join(map(str, missing))}: {result['stopped'] or 'not reached'}"]
        )


def _headline(result: Mapping[str, Any]) -> str:
    server = result["server"]
    engine = " ".join(str(server[name]) for name in ("engine", "engine_version") if server.get(name)) or "a server"
    k = server.get("num_speculative_tokens")
    method = server.get("method")
    if k == 0:
        drafts = "no speculation"
    elif k is None:
        drafts = "speculation not told"
    else:
        drafts = f"{k} draft tokens" + (f" ({method})" if method else "")
    usable = sum(1 for cell in result["cells"] if not cell["refused_reason"])
    return (
        f"{server.get('model') or 'model not known'} on {engine}, {drafts}: "
        f"{counted(usable, 'cell')} measured" + _left_out(len(result["cells"]) - usable)
    )


def _left_out(number: int) -> str:
    return f", {number} not to be used." if number else "."


def _row(cell: Mapping[str, Any]) -> list[str]:
    mark = NOT_USABLE if cell["refused_reason"] else ""
    return [
        f"{cell['concurrency']}{mark}",
        whole(cell["num_requests"]),
        milliseconds(_mean(cell["tpot_s"])),
        _half_width(cell["tpot_s"]),
        milliseconds(cell["step_s"]),
        _two(cell["tokens_per_step"]),
        significant(cell["throughput_tokens_per_s"]),
        milliseconds(_mean(cell["ttft_s"])),
    ]


def _mean(statistic: Mapping[str, Any] | None) -> float | None:
    return None if statistic is None else statistic["mean"]


def _half_width(statistic: Mapping[str, Any] | None) -> str:
    ends = (statistic or {}).get("ci95")
    if statistic is None or ends is None:
        return UNDEFINED
    return share((ends[1] - statistic["mean"]) / statistic["mean"])


def _two(value: float | None) -> str:
    return UNDEFINED if value is None else f"{value:.2f}"


def _acceptance(cell: Mapping[str, Any]) -> str | None:
    counts = cell["acceptance"]
    if counts is None:
        reason = cell.get("acceptance_reason")
        quiet = cell["num_speculative_tokens"] in (0, None) or cell["refused_reason"] or not reason
        return None if quiet else f"concurrency {_load(cell)}: {reason}"
    positions = " ".join(f"{value:.2f}" for value in counts["per_position"])
    drafted = counts["draft_probability"]
    often = "" if drafted is None else f", a draft on {share(drafted)} of the steps"
    length = f"{counts['mean_length']:.2f} tokens per drafted step"
    return f"concurrency {_load(cell)}: by position {positions}; {length}{often}"


def _load(cell: Mapping[str, Any]) -> str:
    load = cell["concurrency"]
    return str(load) if isinstance(load, int) else significant(load, 2)


def _agreement(cell: Mapping[str, Any]) -> str | None:
    """Sums exactly, times by their distance."""
    checks = {check["name"]: check for check in cell.get("checks", ())}
    parts = []
    for name in ("requests", "tokens", "steps"):
        check = checks.get(name)
        if check and check["client"] is not None and check["server"] is not None:
            sign = "=" if check["client"] == check["server"] else "against"
            parts.append(f"{whole(check['client'])} {sign} {whole(check['server'])} {name}")
    tpot = checks.get("tpot_s")
    if tpot and tpot["client"] and tpot["server"]:
        parts.append(f"TPOT {percent(tpot['client'] / tpot['server'] - 1, 1, signed=True)}")
    return f"concurrency {cell['concurrency']}: {', '.join(parts)}" if parts else None


def _refused(cell: Mapping[str, Any]) -> str:
    return f"concurrency {_load(cell)}: {cell['refused_reason']}"


def _cell_notes(cells: Sequence[Mapping[str, Any]]) -> list[str]:
    """Every note once, with the concurrencies that it is about."""
    found: dict[str, list[str]] = {}
    for cell in cells:
        for note in cell["notes"]:
            found.setdefault(note, []).append(_load(cell))
    return [f"concurrency {', '.join(loads)}: {note}" for note, loads in found.items()]


def _passive(result: Mapping[str, Any], page: Page) -> None:
    traffic = result["traffic"]
    page.text(
        f"Watched {counted(traffic['scrapes'], 'time')}: busy for {duration(traffic['busy_s'])}, idle for "
        f"{duration(traffic['idle_s'])}; the load changed within a look for {duration(traffic['uneven_s'])}."
    )
    if result["cells"]:
        page.table(PASSIVE_COLUMNS, [_passive_row(cell) for cell in result["cells"]])
    if result["deployment_toml"] is None:
        page.text(f"No tables for a deployment file: {result['deployment_reason']}.")
        return
    page.heading("For the deployment file")
    for line in result["deployment_toml"].splitlines():
        page.verbatim(line)


def _passive_row(cell: Mapping[str, Any]) -> list[str]:
    mark = NOT_USABLE if cell["refused_reason"] else ""
    return [
        f"{_load(cell)}{mark}",
        duration(cell["duration_s"]),
        share(cell["share_of_tokens"]),
        milliseconds(_mean(cell["tpot_s"])),
        milliseconds(cell["step_s"]),
        _two(cell["tokens_per_step"]),
        milliseconds(_mean(cell["ttft_s"])),
    ]
