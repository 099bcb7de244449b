"""Figures in the tables under the charts and in the texts that appear over their marks."""

from collections.abc import Mapping

from hwmodel import percent as texts
from validate.report.chart import Cell

UNDEFINED = "–"
DIGITS = 4  # significant
_WHOLE = 1000  # from here on fractions say nothing


def text_of(value: Cell, digits: int = DIGITS) -> str:
    """A cell as text: numbers to `digits` significant digits without trailing zeros, whole from 1,000 on, None a dash.

    >>> text_of(0.971426), text_of(1234567), text_of(12345.678), text_of(1.0), text_of(None), text_of("a")
    ('0.9714', '1,234,567', '12,346', '1', '–', 'a')
    """
    if value is None:
        return UNDEFINED
    if isinstance(value, str):
        return value
    if isinstance(value, int) or abs(value) >= _WHOLE:
        return f"{round(value):,}"
    text = f"{value:.{digits}g}"
    return text if "e" not in text else f"{value:.3e}"


def speedup_text(speedup: Mapping[str, float | None]) -> str:
    """The median and the 90 % interval: "0.97x (0.80 to 1.21)"."""
    low, mid, high = (speedup.get(key) for key in ("p05", "p50", "p95"))
    if mid is None:
        return UNDEFINED
    return f"{mid:.2f}x" + ("" if low is None or high is None else f" ({low:.2f} to {high:.2f})")


def percent(share: float | None) -> str:
    """A share in whole percent.

    >>> percent(0.39), percent(None)
    ('39 %', '–')
    """
    return UNDEFINED if share is None else texts.percent(share)


def odds(probability: float | None) -> str:
    """A probability that was counted in draws.

    >>> odds(0.39), odds(1.0), odds(None)
    ('39 %', '> 99 %', '–')
    """
    return UNDEFINED if probability is None else texts.probability(probability)
