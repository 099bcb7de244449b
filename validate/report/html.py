"""The page itself: one HTML file that needs nothing else, not even scripts.

Every text passes `safe`; the style sheet and the only script are allowed by their hashes and nothing else is, so that
markup which should ever slip through stays inert.
"""

import base64
import hashlib
import json
from collections.abc import Iterable, Sequence
from importlib.resources import files
from itertools import groupby

from simulator.deployment.keys import short
from validate.report.chart import MAX_TABLE_ROWS, Block, Cell, Chart, Document, Json, Table
from validate.report.draw import inline_svg
from validate.report.numbers import text_of
from validate.report.text import safe

_WORDY = 40  # characters: a cell with more may break its line


def page(document: Document) -> str:
    """The whole page as text."""
    style = _resource("page.css") + _switch_rules(document.charts)
    script = _resource("page.js")
    lead, rest = _apart(document.blocks)
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; base-uri 'none'; "
        "form-action 'none'"
    )
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{safe(policy)}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f'<meta name="generator" content="{safe(document.program)}">',
            f"<title>{safe(document.title)}</title>",
            f"<style>{style}</style>",
            "</head>",
            "<body>",
            *_header(document),
            "<main>",
            *map(_block, lead),
            *_figures(document.charts),
            *_blocks(rest),
            "</main>",
            *_footer(document),
            f'<script type="application/json" id="result">{embedded(document.result)}</script>',
            f"<script>{script}</script>",
            "</body>",
            "</html>",
            "",
        ]
    )


def _apart(blocks: Sequence[Block]) -> tuple[list[Block], list[Block]]:
    """What follows the answer at once, and all from the first section or table on; headlines are in neither."""
    told = [block for block in blocks if block.kind != "headline"]
    first = next((i for i, block in enumerate(told) if block.kind in ("heading", "table")), len(told))
    return told[:first], told[first:]


def embedded(result: Json) -> str:
    """JSON that cannot end the element it stands in, nor a line of script: only ASCII, without angle brackets."""
    text = json.dumps(result, allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _resource(name: str) -> str:
    return files("validate.report").joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _switch_rules(charts: Sequence[Chart]) -> str:
    """The rules by which the n-th choice of a switch shows the n-th of its figures."""
    most = max((len(list(members)) for group, members in groupby(charts, lambda c: c.group) if group), default=0)
    selectors = [
        f".switch > input:nth-of-type({n}):checked ~ .panels > figure:nth-child({n})" for n in range(1, most + 1)
    ]
    return ",\n".join(selectors) + " { display: block; }\n" if selectors else ""


def _header(document: Document) -> list[str]:
    headlines = [block.text for block in document.blocks if block.kind == "headline"]
    facts = [f"<div><dt>{safe(label)}</dt><dd>{safe(value)}</dd></div>" for label, value in document.facts]
    return [
        "<header>",
        f'<p class="eyebrow">{safe(document.subtitle)}</p>',
        f"<h1>{safe(' '.join(headlines) or document.title)}</h1>",
        *(['<dl class="facts">', *facts, "</dl>"] if facts else []),
        "</header>",
    ]


def _figures(charts: Sequence[Chart]) -> Iterable[str]:
    """Charts in their order; neighbours of one group share a title and a switch."""
    for number, (_, members) in enumerate(groupby(enumerate(charts), lambda item: item[1].group or str(item[0]))):
        group = [chart for _, chart in members]
        yield f"<section>\n<h2>{safe(group[0].title)}</h2>"
        if len(group) == 1:
            yield _figure(group[0], f"c{number}-")
        else:
            yield from _switch(group, number)
        yield "</section>"


def _switch(group: Sequence[Chart], number: int) -> Iterable[str]:
    chosen = next((i for i, chart in enumerate(group) if chart.selected), 0)
    yield '<fieldset class="switch"><legend class="legend">Show</legend>'
    for i, chart in enumerate(group):
        checked = " checked" if i == chosen else ""
        yield f'<input type="radio" name="s{number}" id="s{number}-{i}" autocomplete="off"{checked}>'
        yield f'<label for="s{number}-{i}">{safe(chart.label)}</label>'
    yield '<div class="panels">'
    yield from (_figure(chart, f"c{number}-{i}-") for i, chart in enumerate(group))
    yield "</div></fieldset>"


def _figure(chart: Chart, prefix: str) -> str:
    """One chart in both sizes, what to see in it, and its values."""
    return (
        f'<figure data-chart="{safe(chart.name)}"><p class="finding">{safe(chart.finding)}</p><div class="drawing">'
        f'<div class="wide">{inline_svg(chart.wide, prefix + "w", chart.alt)}</div>'
        f'<div class="narrow">{inline_svg(chart.narrow, prefix + "n", chart.alt)}</div></div>'
        f"<details><summary>Values</summary>{_table(chart.table)}</details></figure>"
    )


def _blocks(blocks: Sequence[Block]) -> Iterable[str]:
    """The command's own text; its tables are folded away, since the charts above have shown what matters in them."""
    heading = ""
    for block in blocks:
        if heading and block.kind == "table":
            yield _folded(block, heading)
        else:
            yield (f"<h2>{safe(heading)}</h2>" if heading else "") + _block(block)
        heading = block.text if block.kind == "heading" else ""


def _block(block: Block) -> str:
    text = safe(block.text)
    if block.kind in ("text", "verbatim"):
        tag = "p" if block.kind == "text" else "pre"
        return f"<{tag}>{text}</{tag}>"
    if block.kind == "bullets" and block.items:
        return "<ul>" + "".join(f"<li>{safe(item)}</li>" for item in block.items) + "</ul>"
    if block.kind == "definitions":
        return "<dl>" + "".join(f"<dt>{safe(a)}</dt><dd>{safe(b)}</dd>" for a, b in block.pairs) + "</dl>"
    return _folded(block, "") if block.kind == "table" else ""


def _called(table: Table) -> str:
    """What a table without a heading is called: by its columns and the first of its lines."""
    columns = ", ".join(filter(None, table.columns[:3]))
    first = f" ({short(str(table.rows[0][0]), _WORDY)}, ...)" if table.rows else ""
    return f"Table: {columns}, ...{first}"


def _folded(block: Block, heading: str) -> str:
    assert block.table is not None
    summary = safe(heading or _called(block.table))
    return f'<details class="more"><summary>{summary}</summary>{_table(block.table)}</details>'


def _table(table: Table) -> str:
    shown = table.rows[:MAX_TABLE_ROWS]
    kinds = [' class="text"' if i < table.num_texts else "" for i in range(len(table.columns))]
    head = "".join(f'<th scope="col"{kind}>{safe(text)}</th>' for text, kind in zip(table.columns, kinds, strict=True))
    body = "".join(f"<tr>{''.join(map(_cell, row, kinds))}</tr>" for row in shown)
    rest = len(table.rows) - len(shown)
    note = f"<p>{rest:,} further rows stand in the JSON.</p>" if rest else ""
    return (
        '<div class="scroll" tabindex="0" role="region" aria-label="Table of values"><table><thead><tr>'
        f"{head}</tr></thead><tbody>{body}</tbody></table></div>{note}"
    )


def _cell(value: Cell, kind: str) -> str:
    text = text_of(value)
    kind = ' class="words"' if kind and len(text) > _WORDY else kind
    return f"<td{kind}>{safe(text)}</td>"


def _footer(document: Document) -> list[str]:
    return [
        "<footer>",
        f"<p>Made by {safe(document.program)}, <time>{safe(document.made_at)}</time>. The page opens without a"
        " network and holds the whole JSON result.</p>",
        "</footer>",
    ]
