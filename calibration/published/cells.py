"""Cells of published tables: people write `~1K`, `<=8192` or `128 per rank` where a number stands."""

import re
from collections.abc import Sequence

_LEADING_NUMBER = re.compile(
    r"\s*[~<>=≈≤≥±]*\s*"
    r"(\d{1,3}(?:,\d{3})+(?:\.\d{0,30})?|\d{1,30}(?:\.\d{0,30})?|\.\d{1,30})(?:[eE]([+-]?\d{1,2})(?!\d))?"
    r"\s*([kKM](?![a-zA-Z]))?"
)
_MULTIPLES = {"k": 1e3, "K": 1e3, "M": 1e6}
_LARGEST = 1e15  # beyond it a cell holds an identifier, no quantity
DECIMAL_COMMA = "a number with a decimal comma"
_GROUPED = re.compile(r"\d{1,3}(?:,\d{3})+(?![\d.])")
_NOTHING_SAID = frozenset(
    ("", "-", "?", "n/a", "na", "nan", "none", "null", "unknown", "unspecified", "unstated", "not stated", "not given")
)


def leading_number(text: str) -> float | None:
    """The number that a cell starts with, `None` without one.

    >>> leading_number("~1K"), leading_number("128 per rank"), leading_number("QPS=1")
    (1000.0, 128.0, None)
    """
    match = _LEADING_NUMBER.match(text)
    if match is None:
        return None
    value = float(f"{match[1].replace(',', '')}e{match[2] or 0}") * _MULTIPLES.get(match[3] or "", 1.0)
    return value if value <= _LARGEST else None


def fault_of(text: str) -> str | None:
    """Why a cell that should hold a quantity cannot: infinite, not a number, negative, too large, or with a comma where
    no thousands end; else None.

    >>> fault_of("-2"), fault_of("1e400"), fault_of("nan"), fault_of("~1K"), fault_of("1,234"), fault_of("-")
    ('negative', 'too large', 'not a number', None, None, None)
    >>> fault_of("1,41")
    'a number with a decimal comma'
    """
    cell = text.strip().lower().lstrip("~<>=≈≤≥± ")
    if re.match(r"[+-]?inf(inity)?\b", cell):
        return "infinite"
    if re.match(r"[+-]?nan\b", cell):
        return "not a number"
    if re.match(r"[-\u2212\u2013]\s*\.?\d", cell):
        return "negative"
    match = _LEADING_NUMBER.match(text)
    if match and (leading_number(text) is None or re.match(r"[eE][+-]?\d", text[match.end() :])):
        return "too large"
    if match and re.match(r",\d", text[match.end() :]):
        return DECIMAL_COMMA
    return None


def may_hold_a_decimal_comma(text: str) -> bool:
    """Whether a comma may end thousands or be a decimal one: `1,234`, but not `1,234.5`."""
    return _GROUPED.search(text) is not None


def says_nothing(text: str) -> bool:
    """Whether a cell is blank, or a word for blank.

    >>> says_nothing("n/a"), says_nothing("H100")
    (True, False)
    """
    return text.strip().lower() in _NOTHING_SAID


def survival_rates(cell: str) -> tuple[float, ...]:
    """Unconditional acceptance by position of an `a/b/c` cell; empty where it is none.

    >>> survival_rates("0.8/0.6/0.5")
    (0.8, 0.6, 0.5)
    """
    parts = [leading_number(part) for part in cell.split("/")] if cell else []
    rates = [part for part in parts if part is not None and part <= 1.0]
    return tuple(rates) if len(rates) == len(parts) else ()


def length_of(survival: Sequence[float], num_speculative_tokens: int) -> float | None:
    """Tokens a step that survival by position gives at a draft length, bonus included.

    Positions beyond the rates are held at the last conditional value.

    >>> length_of((0.5, 0.25), 3)
    1.875
    """
    if not survival:
        return None
    known = list(survival[:num_speculative_tokens])
    before = survival[-2] if len(survival) > 1 else 1.0
    conditional = min(survival[-1] / before, 1.0) if before else 0.0
    while len(known) < num_speculative_tokens:
        known.append(known[-1] * conditional)
    return 1.0 + sum(known)
