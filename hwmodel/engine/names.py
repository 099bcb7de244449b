"""The one way in which a name that is in no vocabulary is refused."""

from collections.abc import Iterable

from hwmodel.errors import UnknownNameError

_SHOWN_CHARACTERS = 60


def unknown_name(what: str, got: str, known: Iterable[str]) -> UnknownNameError:
    """The error to raise, one line: what, what was given, what is known, and the nearest known name.

    >>> str(unknown_name("engine name", "vlm", ["sglang", "vllm"]))
    "engine name: got 'vlm', known: sglang, vllm, did you mean 'vllm'?"
    """
    from difflib import get_close_matches  # slow to import, and only a mistake needs it

    names = list(known)
    by_plain_form = {name.lower(): name for name in names}
    near = get_close_matches(got[:_SHOWN_CHARACTERS].lower().replace("-", "_"), list(by_plain_form), n=1)
    hint = f", did you mean {by_plain_form[near[0]]!r}?" if near else ""
    return UnknownNameError(f"{what}: got {got[:_SHOWN_CHARACTERS]!r}, known: {', '.join(names)}{hint}")
