"""Bars and sparklines of block characters, for terminals that can show them."""

from collections.abc import Sequence
from itertools import pairwise

FULL, SHADED = "█", "▒"
LEVELS = "▁▂▃▄▅▆▇█"


def compared(before: float, after: float, most: float, width: int) -> str:
    """A bar of `before`, continued in grey by what `after` adds to it; `most` fills the width.

    >>> compared(2.0, 3.0, 4.0, 8), compared(3.0, 2.0, 4.0, 8), compared(0.0, 1.0, 4.0, 8)
    ('████▒▒', '██████', '▒▒')
    """
    if most <= 0:
        return ""
    old, new = (round(width * value / most) for value in (before, after))
    return FULL * old + SHADED * max(new - old, 0)


def sparkline(values: Sequence[float | None], width: int, most: float | None = None) -> str:
    """The values over time, each cell of the line the mean of its share of them; `most` is a full block.

    >>> sparkline([0, 1, 2, 3, 4, 5, 6, 7], 8), sparkline([1, 1, 3, 3], 2, most=3), sparkline([], 5)
    ('▁▂▃▄▅▆▇█', '▃█', '')
    """
    known = [value or 0.0 for value in values]
    top = max(known, default=0.0) if most is None else most
    if not known or top <= 0:
        return ""
    cells = min(width, len(known))
    edges = [round(i * len(known) / cells) for i in range(cells + 1)]
    means = [sum(known[a:b]) / (b - a) for a, b in pairwise(edges)]
    return "".join(LEVELS[min(round(mean / top * (len(LEVELS) - 1)), len(LEVELS) - 1)] for mean in means)
