"""Text that came from outside, made safe to print."""

MAX_TEXT_WIDTH = 100  # longer lines of prose are hard to read
MIN_WIDTH = 80  # below it tables would lose digits: a narrow terminal breaks their lines instead
MAX_CHARACTERS = 4000  # a name from a hostile file may be a megabyte long


def one_line(text: object) -> str:
    """`text` in one printable line: what came from a file can neither break the line nor drive the terminal."""
    line = " ".join("".join(c if c.isprintable() else " " for c in str(text)).split())
    return line if len(line) <= MAX_CHARACTERS else line[:MAX_CHARACTERS] + " …"


def note_lines(text: object, width: int) -> str:
    """A note as it stands on the terminal: what came from outside made safe, in lines of at most `width` columns."""
    import textwrap

    return textwrap.fill(
        one_line(text),
        width,
        initial_indent="note: ",
        subsequent_indent="  ",
        break_on_hyphens=False,
        break_long_words=False,
    )
