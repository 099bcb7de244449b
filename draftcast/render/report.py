"""`draftcast report` for a human reader: the answer of `choose`; the charts are in the file."""

from draftcast.render.choose import render

__all__ = ["render"]
