"""Text that came from outside, made safe to print."""

MAX_CHARACTERS = 4000  # a name from a hostile file may be a megabyte long


def one_line(text: object) -> str:
    """`text` in one printable line: what came from a file can neither break the line nor drive the terminal."""
    line = " ".join("".join(c if c.isprintable() else " " for c in str(text)).split())
    return line if len(line) <= MAX_CHARACTERS else line[:MAX_CHARACTERS] + " …"
