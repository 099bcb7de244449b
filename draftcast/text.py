"""Text that came from outside, made safe to print."""

import re

_GLUE = "\u00a0"  # a blank at which no line ends
_LOOSE = re.compile(r"(?:[<>] )?[\d.]+ %")  # a figure that reads as one word: "< 1 %"
MAX_TEXT_WIDTH = 100  # longer lines of prose are hard to read
MIN_WIDTH = 80  # below it tables would lose digits: a narrow terminal breaks their lines instead
MAX_CHARACTERS = 4000  # a name from a hostile file may be a megabyte long


def one_line(text: object) -> str:
    """`text` in one printable line: what came from a file can neither break the line nor drive the terminal."""
    line = " ".join("".join(c if c.isprintable() else " " for c in str(text)).split())
    return line if len(line) <= MAX_CHARACTERS else line[:MAX_CHARACTERS] + " …"


def wrapped(text: object, width: int, first: str = "", rest: str = "") -> str:
    """`text` made safe, in lines of at most `width` columns that begin with `first` and `rest`; figures stay whole.

    >>> wrapped("not below 12 % of it", 13).splitlines()
    ['not below', '12 % of it']
    """
    import textwrap

    line = _LOOSE.sub(lambda found: found[0].replace(" ", _GLUE), one_line(text))
    lines = textwrap.fill(
        line, width, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False, break_long_words=True
    )
    return lines.replace(_GLUE, " ")
