"""Numbers as text, with the digits that a prediction can carry; None (undefined) is a dash."""

import math
from collections.abc import Mapping

from hwmodel import percent
from hwmodel.units import GB, HOUR, KB, MB, MINUTE, MS, US

UNDEFINED = "-"
DIGITS = 3  # significant; parameters are known to a few percent at best
DAY = 24 * HOUR
# (at least this long, divided by, called), longest first.
DURATIONS = ((2 * DAY, DAY, "days"), (2 * HOUR, HOUR, "h"), (2 * MINUTE, MINUTE, "min"), (1.0, 1.0, "s"))


def significant(value: float | None, digits: int = DIGITS) -> str:
    """`value` to `digits` significant digits, thousands apart.

    >>> significant(13.6471), significant(1234.5), significant(0.01234), significant(None)
    ('13.6', '1,230', '0.0123', '-')
    """
    if value is None:
        return UNDEFINED
    if value == 0:
        return "0"
    decimals = digits - 1 - math.floor(math.log10(abs(value)))
    return f"{round(value, decimals):,.{max(decimals, 0)}f}"


def milliseconds(value_s: float | None) -> str:
    """A duration in ms, without its unit: the column's head names it."""
    return UNDEFINED if value_s is None else significant(value_s / MS)


def microseconds(value_s: float | None) -> str:
    """A duration in us, without its unit."""
    return UNDEFINED if value_s is None else significant(value_s / US)


def duration(value_s: float | None) -> str:
    """A time to wait, in the largest unit that gives at least 2.

    >>> duration(1800.0), duration(90000.0), duration(90.0), duration(0.25)
    ('30 min', '25 h', '90 s', '0.25 s')
    """
    if value_s is None:
        return UNDEFINED
    for at_least, unit_s, name in DURATIONS:
        if value_s >= at_least:
            return f"{round(value_s / unit_s):,} {name}"
    return f"{significant(value_s, 2)} s"


def share(value: float | None) -> str:
    """A part of a whole in percent.

    >>> share(0.515), share(0.0004), share(0.0)
    ('52 %', '0.04 %', '0 %')
    """
    if value is None:
        return UNDEFINED
    return percent.percent(value) if abs(value) >= percent.SMALLEST_SHARE else f"{significant(100 * value, 1)} %"


def probability(value: float | None) -> str:
    """A probability in percent; the ends say that draws cannot tell more.

    >>> probability(0.312), probability(0.0), probability(1.0)
    ('31 %', '< 1 %', '> 99 %')
    """
    if value is None:
        return UNDEFINED
    return percent.probability(value)


def factor(value: float | None) -> str:
    """A speedup such as 1.23x."""
    return UNDEFINED if value is None else f"{value:.2f}x"


def interval(speedup: Mapping[str, float | None]) -> str:
    """The 90 % interval of a speedup: "0.81-1.10"."""
    low, high = speedup.get("p05"), speedup.get("p95")
    return UNDEFINED if low is None or high is None else f"{low:.2f}-{high:.2f}"


def storage(value_bytes: float | None) -> str:
    """Bytes with a decimal unit.

    >>> storage(594.2e9), storage(70272.0), storage(0.0)
    ('594 GB', '70.3 kB', '0 GB')
    """
    return _scaled(value_bytes, DIGITS, ((GB, "GB"), (MB, "MB"), (KB, "kB")))


def parameters(count: float | None) -> str:
    """A number of parameters in billions, or less where it is less: an exact fact, so with one digit more.

    >>> parameters(1026408225280), parameters(874496)
    ('1,026 B', '874.5 k')
    """
    return _scaled(count, DIGITS + 1, ((1e9, "B"), (1e6, "M"), (1e3, "k")))


def _scaled(value: float | None, digits: int, scales: tuple[tuple[float, str], ...]) -> str:
    """`value` in the first unit of `scales` that it reaches; the last one for less, the first for nothing at all."""
    if value is None:
        return UNDEFINED
    unit, name = next((scale for scale in scales if value >= scale[0]), scales[-1] if value else scales[0])
    return f"{significant(value / unit, digits)} {name}"


def counted(count: float | None, noun: str) -> str:
    """A count with what is counted.

    >>> counted(1, "request"), counted(2000, "token"), counted(None, "row")
    ('1 request', '2,000 tokens', '- rows')
    """
    text = whole(count)
    return f"{text} {noun}" if text == "1" else f"{text} {noun}s"


def whole(count: float | None) -> str:
    """A count with its thousands apart; None is a dash."""
    return UNDEFINED if count is None else f"{round(count):,}"
