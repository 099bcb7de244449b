"""The page's small drawings, written at once: SVG without styles, in the colours of the report page."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from draftcast.render.numbers import factor, interval, milliseconds, probability, share
from hwmodel.units import MS
from simulator.explain import PART_WORDS
from validate.report.heat import LEAST_SPAN, MOST_SPAN
from validate.report.numbers import speedup_text
from validate.report.text import safe
from validate.report.theme import BASELINE, DIVERGING, GRID, INK, MUTED, ON_DARK, ON_LIGHT, SMALL, SPECULATIVE, spread

Json = Mapping[str, Any]
Place = Callable[[float], float]  # from a value to pixels
_WIDE, _NARROW, _HEIGHT = 700, 340, 250  # pixels
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 14, 12, 40  # around the plot
_MIDDLE = len(DIVERGING) // 2
_LETTER = 7  # pixels of a digit


def heat_rules() -> str:
    """The style rules of the heat map's colours, the ends with light text."""
    inks = [ON_DARK if i in (0, len(DIVERGING) - 1) else ON_LIGHT for i in range(len(DIVERGING))]
    rules = (
        f"td.h{i} {{ background: {color}; color: {ink}; }}"
        for i, (color, ink) in enumerate(zip(DIVERGING, inks, strict=True))
    )
    return "\n".join(rules) + "\n"


def heat_table(choice: Json, shown: int, load: int) -> str:
    """Draft lengths by concurrencies: the median, below it the interval; framed where it is as sure as asked."""
    cells = {(cell["num_speculative_tokens"], cell["concurrency"]): cell for cell in choice["grid"]}
    lengths, loads = sorted({k for k, _ in cells}), sorted({c for _, c in cells})
    asked = choice["inputs"]["deployment"]["objective"]["min_probability_faster"]
    medians = [cell["speedup"]["p50"] for cell in cells.values() if cell["speedup"]["p50"]]
    span = min(max([LEAST_SPAN, *(abs(math.log2(each)) for each in medians)]), MOST_SPAN)
    picked = choice["recommendation"]["num_speculative_tokens"]
    heads = "".join(f'<th scope="col"{_here(c == load)}>{c}</th>' for c in loads)
    rows = "".join(
        f'<tr><th scope="row"{_here(k == shown)}>{"use " if k == picked else ""}k = {k}</th>'
        + "".join(_heat_cell(cells[k, c], span, asked) for c in loads)
        + "</tr>"
        for k in lengths
    )
    return (
        '<div class="scroll" tabindex="0" role="region" aria-label="Speedup by draft length and concurrency">'
        f'<table class="heat"><thead><tr><th scope="col">concurrency</th>{heads}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _here(is_here: bool) -> str:
    return ' class="here"' if is_here else ""


def _heat_cell(cell: Json, span: float, asked: float) -> str:
    speedup, k = cell["speedup"], cell["num_speculative_tokens"]
    if not speedup["p50"]:
        return "<td>-</td>"
    place = _MIDDLE * math.log2(speedup["p50"]) / span
    shade = round(_MIDDLE + min(max(place, -_MIDDLE), _MIDDLE))
    sure = " sure" if k and cell["probability_faster"] >= asked else ""
    tip = f"k = {k}, concurrency {cell['concurrency']}: {speedup_text(speedup)}, "
    tip += f"P(faster) {probability(cell['probability_faster'])}, {milliseconds(cell['tpot_s'])} ms per token"
    band = f"<small>{interval(speedup)}</small>" if k else ""
    return f'<td class="h{shade}{sure}" title="{safe(tip)}">{factor(speedup["p50"])}{band}</td>'


def parts_table(prediction: Json) -> str:
    """The parts of a step of both arms, a pair of bars each, longest first; the whole step last."""
    arms = (prediction["baseline"], prediction["speculative"])
    names = [name for name in arms[1]["parts_s"] if any(arm["parts_s"].get(name) for arm in arms)]
    names.sort(key=lambda name: -max(arm["parts_s"].get(name, 0.0) for arm in arms))
    longest = max((arm["parts_s"].get(name, 0.0) for arm in arms for name in names), default=0.0)
    rows = [
        _part_row(PART_WORDS[name], [arm["parts_s"].get(name, 0.0) for arm in arms], arms, longest) for name in names
    ]
    rows.append(_part_row("whole step", [arm["step_s"] for arm in arms], arms, 0.0))
    return (
        '<div class="scroll" tabindex="0" role="region" aria-label="Parts of a step"><table class="parts"><thead><tr>'
        '<th scope="col" class="text">part of a step</th><th scope="col" class="bars"></th>'
        '<th scope="col" class="baseline">baseline ms</th><th scope="col" class="share"></th>'
        '<th scope="col" class="drafts">with drafts ms</th><th scope="col" class="share"></th></tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _part_row(name: str, values_s: Sequence[float], arms: Sequence[Json], longest: float) -> str:
    cells = "".join(
        f'<td>{value_s / MS:.2f}</td><td class="share">{share(value_s / arm["step_s"])}</td>'
        for value_s, arm in zip(values_s, arms, strict=True)
    )
    bars = f'<td class="bars">{_bars(values_s, longest)}</td>'
    return f'<tr><th scope="row" class="text">{safe(name)}</th>{bars}{cells}</tr>'


def _bars(values_s: Sequence[float], longest: float) -> str:
    if not longest:
        return ""
    low, high = (100 * value_s / longest for value_s in values_s)
    return (
        '<svg class="pair" viewBox="0 0 100 12" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect x="0" y="0" width="{low:.2f}" height="5" fill="{BASELINE}"/>'
        f'<rect x="0" y="6" width="{high:.2f}" height="5" fill="{SPECULATIVE}"/></svg>'
    )


def curve(choice: Json, prediction: Json, k: int) -> str:
    """The speedup of `k` against concurrency with its bands, wide and narrow, and the load looked into on it."""
    cells = sorted((c for c in choice["grid"] if c["num_speculative_tokens"] == k), key=lambda c: int(c["concurrency"]))
    known = [cell for cell in cells if cell["speedup"]["p50"] is not None]
    if not known or not k:
        return ""
    here = {"concurrency": prediction["inputs"]["concurrency"], **prediction}
    alt = f"Speedup with k = {k} over concurrency: " + ", ".join(
        f"{cell['concurrency']}: {speedup_text(cell['speedup'])}" for cell in known
    )
    drawn = (f'<div class="{name}">{_curve(known, here, alt, width)}</div>' for name, width in _SIZES)
    return f'<div class="drawing">{"".join(drawn)}</div>'


_SIZES = (("wide", _WIDE), ("narrow", _NARROW))


def _curve(cells: Sequence[Json], here: Json, alt: str, width: int) -> str:
    points = [*cells, here] if here["speedup"]["p50"] is not None else list(cells)
    x = _x_of([int(cell["concurrency"]) for cell in points], width)
    low = min(1.0, *(cell["speedup"]["p05"] for cell in points))
    high = max(1.0, *(cell["speedup"]["p95"] for cell in points))
    room = 0.06 * (high - low) or 0.1
    low, high = low - room, high + room

    def y(value: float) -> float:
        return float(_TOP + (high - value) / (high - low) * (_HEIGHT - _TOP - _BOTTOM))

    return (
        f'<svg viewBox="0 0 {width} {_HEIGHT}" role="img" aria-label="{safe(alt)}" font-size="{SMALL}">'
        + "".join((*_grid_lines(low, high, y, width), *_x_labels(points, x, width), *_lines(cells, here, x, y)))
        + "</svg>"
    )


def _x_of(loads: Sequence[int], width: int) -> Place:
    low, high = math.log(min(loads)), math.log(max(loads))
    room = width - _LEFT - _RIGHT - 2 * _RIGHT

    def x(load: float) -> float:
        part = (math.log(load) - low) / (high - low) if high > low else 0.5
        return float(_LEFT + _RIGHT + part * room)

    return x


def _grid_lines(low: float, high: float, y: Place, width: int) -> Iterator[str]:
    step = next(step for step in _STEPS if (high - low) / step <= 6)
    ticks = [i * step for i in range(math.ceil(low / step), math.floor(high / step) + 1)]
    for tick in ticks:
        yield f'<path d="M{_LEFT},{y(tick):.1f}H{width - _RIGHT}" stroke="{GRID}"/>'
        text = f"{tick:.{max(0, -math.floor(math.log10(step) + 1e-9))}f}x"
        yield f'<text x="{_LEFT - 5}" y="{y(tick) + 4:.1f}" text-anchor="end" fill="{MUTED}">{text}</text>'
    yield f'<path d="M{_LEFT},{y(1):.1f}H{width - _RIGHT}" stroke="{INK}" stroke-dasharray="5,4"/>'


_STEPS = tuple(digit * 10.0**power for power in range(-2, 4) for digit in (1, 2, 5))


def _x_labels(points: Sequence[Json], x: Place, width: int) -> Iterator[str]:
    loads = sorted({int(cell["concurrency"]) for cell in points})
    for load in spread(loads, (width - _LEFT) // (5 * _LETTER)):
        yield f'<text x="{x(load):.1f}" y="{_HEIGHT - 22}" text-anchor="middle" fill="{MUTED}">{load:,.0f}</text>'
    middle = (_LEFT + width) / 2
    yield f'<text x="{middle:.0f}" y="{_HEIGHT - 5}" text-anchor="middle" fill="{INK}">concurrency</text>'


def _lines(cells: Sequence[Json], here: Json, x: Place, y: Place) -> Iterator[str]:
    """Bands of 90 and 50 %, the median with a mark at each load, and where the page looks."""
    for low, high, opacity in (("p05", "p95", 0.15), ("p25", "p75", 0.25)):
        upper = [f"{x(cell['concurrency']):.1f},{y(cell['speedup'][high]):.1f}" for cell in cells]
        lower = [f"{x(cell['concurrency']):.1f},{y(cell['speedup'][low]):.1f}" for cell in reversed(cells)]
        yield f'<path d="M{"L".join(upper + lower)}Z" fill="{SPECULATIVE}" fill-opacity="{opacity}"/>'
    middle = [f"{x(cell['concurrency']):.1f},{y(cell['speedup']['p50']):.1f}" for cell in cells]
    yield f'<path d="M{"L".join(middle)}" fill="none" stroke="{SPECULATIVE}" stroke-width="2.5"/>'
    for cell in cells:
        yield _mark(cell, x, y, 3.5, f'fill="{SPECULATIVE}"')
    if here["speedup"]["p50"] is not None:
        yield _mark(here, x, y, 7, f'fill="none" stroke="{INK}" stroke-width="2"')


def _mark(cell: Json, x: Place, y: Place, size: float, look: str) -> str:
    tip = f"concurrency {cell['concurrency']}: {speedup_text(cell['speedup'])}, "
    tip += f"P(faster) {probability(cell['probability_faster'])}"
    place = f'cx="{x(cell["concurrency"]):.1f}" cy="{y(cell["speedup"]["p50"]):.1f}" r="{size}"'
    return f"<circle {place} {look}><title>{safe(tip)}</title></circle>"
