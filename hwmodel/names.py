"""How an error names what would have been right: all of a short vocabulary, the nearest of a long one."""

from collections.abc import Iterable, Sequence

MOST_CHARACTERS = 200  # some lines of a terminal: what is longer is looked up in a list of its own
_MOST_NEAR = 3
_LIKENESS = 0.5
_SHOWN_CHARACTERS = 100


def nearest(got: str, known: Iterable[str], most: int = _MOST_NEAR, likeness: float = _LIKENESS) -> list[str]:
    """The names that look most like `got`, the best first; none where none does."""
    from difflib import get_close_matches  # not needed on the way of a run that succeeds, and slow to import

    by_plain_form = {name.lower(): name for name in known}
    close = get_close_matches(got[:_SHOWN_CHARACTERS].lower(), list(by_plain_form), n=most, cutoff=likeness)
    return [by_plain_form[name] for name in close]


def did_you_mean(near: Sequence[str]) -> str:
    """What follows the name that is not known.

    >>> did_you_mean(["a", "b"]), did_you_mean([])
    (", did you mean 'a' or 'b'?", ';')
    """
    return f", did you mean {' or '.join(map(repr, near))}?" if near else ";"


def vocabulary(what: str, known: Iterable[str], all_by: str) -> str:
    """The names where they are few, else where they all stand: `all_by` is a command.

    >>> vocabulary("links", ["ring", "tree"], "list x"), vocabulary("links", ["a-name"] * 50, "list x")
    ('known links: ring, tree', '`draftcast list x` has all 50 links')
    """
    names = list(known)
    listed = f"known {what}: {', '.join(names)}"
    return listed if len(listed) <= MOST_CHARACTERS else f"`draftcast {all_by}` has all {len(names)} {what}"
