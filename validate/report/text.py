"""Text on its way into a page or a drawing."""

from html import escape

from simulator.deployment.keys import short

MAX_CHARACTERS = 4000  # a name from a hostile file may be a megabyte long


def safe(text: object) -> str:
    """`text` in one printable line, fit for an element or a quoted attribute of HTML and SVG.

    >>> safe('<b onclick="x">')
    '&lt;b onclick=&quot;x&quot;&gt;'
    """
    return escape(short(str(text), MAX_CHARACTERS))
