"""Regular expressions from users' files, compiled only when they are sure to end soon on a module name.

Python's matcher backtracks: a short hostile expression can run for years. `compiled` counts what it could try.
"""

import re
from math import comb

_MAX_CHARS = 5_000
_MAX_STEPS = 1_000_000  # about 20 ms for one name at worst
_NAME_CHARS = 60  # module names are about this long


class PatternError(ValueError):
    """A pattern that is too long, malformed or could take too long; the message is one line."""


def compiled(expression: str) -> re.Pattern[str]:
    """*expression* compiled for `match`, after a check that no name can make it try too much."""
    if len(expression) > _MAX_CHARS:
        raise PatternError(f"a module pattern of {len(expression)} characters; allowed: up to {_MAX_CHARS}")
    if worst_steps(expression) > _MAX_STEPS:
        raise PatternError(f"module pattern {expression[:60]!r} could take too long; allowed: fewer loops, none nested")
    try:
        return re.compile(expression)
    except (re.error, OverflowError, RecursionError, ValueError) as error:
        raise PatternError(f"module pattern {expression[:60]!r} is no regular expression ({error})") from None


def worst_steps(expression: str) -> float:
    """Bound on the ways that *expression* can be tried on one name: placements of its loops times its branches.

    A repeated group counts as endless, because its ways multiply with every turn.
    """
    loops, ways, branches = 0, 1, [1]
    closed_group = False
    position = 0
    while position < len(expression):
        mark = expression[position]
        if mark in "*+?{":
            if closed_group and (mark != "?"):
                return float("inf")
            lazy_or_flag = mark == "?" and position > 0 and expression[position - 1] in "(*+?}"
            loops += 0 if lazy_or_flag else 1
        closed_group = mark == ")"
        if mark == "(":
            branches.append(1)
        elif mark == "|":
            branches[-1] += 1
        elif mark == ")" and len(branches) > 1:
            ways *= branches.pop()
        position = _next(expression, position)
    for count in branches:
        ways *= count
    return float(comb(_NAME_CHARS + loops, loops) * ways)


def _next(expression: str, position: int) -> int:
    """Position of the next mark: an escape and a character class count as one."""
    if expression[position] == "\\":
        return position + 2
    if expression[position] != "[":
        return position + 1
    end = position + 1
    if expression[end : end + 1] == "^":
        end += 1
    end += 1  # a bracket that comes first is a member, not the end
    while end < len(expression) and expression[end] != "]":
        end += 2 if expression[end] == "\\" else 1
    return end + 1
