"""Shares, probabilities and loads as text, the same everywhere: a space before the sign, an honest word at the ends."""

# A share of a few thousand draws says nothing below one percent.
SMALLEST_SHARE, LARGEST_SHARE = 0.01, 0.99


def percent(share: float, decimals: int = 0, *, signed: bool = False) -> str:
    """A part of a whole, or a relative change where `signed`.

    >>> percent(0.515), percent(0.0213, 1), percent(-0.07, signed=True), percent(0.07, signed=True)
    ('52 %', '2.1 %', '-7 %', '+7 %')
    """
    return f"{100.0 * share:{'+' if signed else ''}.{decimals}f} %"


def load_text(requests: float) -> str:
    """Requests at once, which need not be a whole number in the mean.

    >>> load_text(3.873), load_text(128.0), load_text(4096.0)
    ('3.87', '128', '4,096')
    """
    return f"{requests:.3g}" if requests < 100 else f"{requests:,.0f}"


def probability(value: float) -> str:
    """A probability that was counted in draws: the ends say that they cannot tell more.

    >>> probability(0.312), probability(0.0), probability(1.0), probability(0.99)
    ('31 %', '< 1 %', '> 99 %', '99 %')
    """
    if value < SMALLEST_SHARE:
        return f"< {percent(SMALLEST_SHARE)}"
    return f"> {percent(LARGEST_SHARE)}" if value > LARGEST_SHARE else percent(value)
