"""Which parts of a shell script are read: branches of `if` and `case` that can be decided, loops, functions."""

import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass, field

from validate.launch.findings import MalformedSourceError
from validate.launch.shell_expand import UNRESOLVED, Scope, expand_text, expand_word
from validate.launch.shell_words import TEXT, Command, Word

_OPENING_KEYWORDS = frozenset(("then", "do", "{", "time", "coproc"))
_OWN_ARGUMENTS = frozenset(("#", "@", "*", "1"))
_LOOPS = frozenset(("for", "while", "until", "select"))
_MAX_NESTED = 100
_CASE_ENDS = (";;", ";&", ";;&")


@dataclass(slots=True)
class _Case:
    """An open `case`: its subject (None where only the environment knows it) and the patterns before a `)`."""

    subject: str | None
    patterns: list[str] = field(default_factory=list)
    in_pattern: bool = True


@dataclass(slots=True)
class Branches:
    """The open `if`s and `case`s: for each, whether the branch being read is taken (True, False, None unknown)."""

    taken: list[bool | None] = field(default_factory=list)
    settled: list[bool] = field(default_factory=list)  # an earlier branch of it was surely taken
    cases: list[_Case] = field(default_factory=list)
    in_condition: bool = False  # between `if` and `then`

    @property
    def skipping(self) -> bool:
        """Whether the commands here surely do not run."""
        return False in self.taken

    @property
    def unsure(self) -> bool:
        """Whether it depends on the environment if the commands here run."""
        return None in self.taken

    def open(self, verdict: bool | None) -> None:
        """A new level, whose first branch has this verdict."""
        if len(self.taken) >= _MAX_NESTED:
            raise MalformedSourceError("nested-too-deep", f"more than {_MAX_NESTED} nested conditions")
        self.taken.append(verdict)
        self.settled.append(verdict is True)

    def close(self) -> None:
        """The end of the innermost level."""
        if self.taken:
            self.taken.pop()
            self.settled.pop()

    def otherwise(self, verdict: bool | None) -> None:
        """The next branch of the innermost level, which is read only if none before it surely was."""
        if not self.taken:
            return
        before = self.taken[-1]
        result = False if self.settled[-1] else verdict
        self.taken[-1] = None if before is None and result is True else result
        self.settled[-1] = self.settled[-1] or verdict is True

    def combine(self, operator: str, verdict: bool | None) -> None:
        """`if A && B`, `if A || B`: the verdict so far with that of the next command."""
        if not self.taken:
            return
        first = self.taken[-1]
        if operator == "&&":
            self.taken[-1] = False if False in (first, verdict) else None if None in (first, verdict) else True
        else:
            self.taken[-1] = True if True in (first, verdict) else None if None in (first, verdict) else False
        self.settled[-1] = self.taken[-1] is True


def after_keywords(command: Command, branches: Branches, scope: Scope) -> list[Word]:
    """The command's words without what directs the flow, which is applied; nothing where it was all of that."""
    words = _after_case(command, branches, scope)
    while words:
        keyword = plain_text(words[0])
        if keyword == "if":
            branches.in_condition = True
            branches.open(None if branches.skipping else test(words[1:], scope))
            return []
        if keyword == "elif":
            branches.in_condition = True
            branches.otherwise(test(words[1:], scope))
            return []
        if keyword == "case":
            _open_case(words, branches, scope)
            return []
        if keyword == "then":
            branches.in_condition = False
        elif keyword == "else":
            branches.otherwise(True)
        elif keyword == "fi":
            branches.close()
        elif keyword in ("function", "}", "done", "in", "select"):
            return []
        elif keyword not in _OPENING_KEYWORDS:
            return words
        words = words[1:]
    return words


def _open_case(words: list[Word], branches: Branches, scope: Scope) -> None:
    before = set(scope.unresolved)
    scope.unresolved.clear()
    subject = expand_text(words[1], scope) if len(words) > 1 else ""
    known = not scope.unresolved and not UNRESOLVED.search(subject)
    scope.unresolved = before
    branches.open(False)
    branches.cases.append(_Case(subject if known else None, [_pattern(word, scope) for word in words[3:]]))


def _after_case(command: Command, branches: Branches, scope: Scope) -> list[Word]:
    """Reads patterns and ends of an open `case`; the words that are left are a command of its body."""
    words = list(command.words)
    if not branches.cases:
        return words
    case = branches.cases[-1]
    if command.operator in _CASE_ENDS:
        case.in_pattern, case.patterns = True, []
        branches.taken[-1:] = [False]
    if words and plain_text(words[0]) == "esac":
        branches.cases.pop()
        branches.close()
        return words[1:]
    if not case.in_pattern:
        return words
    if command.operator == ")" and case.patterns:
        case.in_pattern = False
        branches.otherwise(_matches(case))
        return words
    case.patterns += [_pattern(word, scope) for word in words]
    return []


def _pattern(word: Word, scope: Scope) -> str:
    """A pattern for `fnmatch`: what is quoted stands for itself."""
    pieces: list[str] = []
    for part in word:
        text = part.text if part.kind == TEXT else expand_text((part,), scope)
        pieces.append("".join(f"[{char}]" if char in "*?[" else char for char in text) if part.quoted else text)
    return "".join(pieces)


def _matches(case: _Case) -> bool | None:
    if case.subject is None:
        return None
    return any(fnmatch.fnmatchcase(case.subject, pattern) for pattern in case.patterns)


def plain_text(word: Word) -> str:
    """The text of a word without quotes and expansions, else an empty text."""
    return word[0].text if len(word) == 1 and word[0].kind == TEXT and not word[0].quoted else ""


def loop_body(commands: Sequence[Command], position: int) -> tuple[list[Command], int]:
    """(commands of the loop whose head stands before the position, position after its `done`)."""
    depth = 0
    body: list[Command] = []
    for index in range(position, len(commands)):
        for word in _leading(commands[index]):
            if word in _LOOPS:
                depth += 1
            elif word == "done":
                depth -= 1
        if depth < 0:
            return body, index + 1
        body.append(commands[index])
    return body, len(commands)


def group_body(commands: Sequence[Command], position: int, head: list[Command]) -> tuple[list[Command], int]:
    """(commands of the `{ }` group at the position, position after its end); `head` are those that stand before it."""
    depth = 0
    body: list[Command] = []
    for index in range(position - len(head), len(commands)):
        command = head[index - position + len(head)] if index < position else commands[index]
        for word in _leading(command):
            depth += {"{": 1, "}": -1}.get(word, 0)
        if depth <= 0 and body:
            return body, index + 1
        body.append(command)
        if depth <= 0:
            return body, index + 1  # a body without braces: one command, such as a subshell's
    return body, len(commands)


def _leading(command: Command) -> list[str]:
    """The keywords that a command starts with."""
    found: list[str] = []
    for word in command.words:
        text = plain_text(word)
        if text not in _OPENING_KEYWORDS and text not in _LOOPS and text not in ("done", "}", "else", "fi"):
            break
        found.append(text)
        if text in _LOOPS:
            break
    return found


def loop_items(words: list[Word], scope: Scope) -> tuple[str, list[str] | None]:
    """(variable, items) of `for NAME in ITEMS`; None where they are not known, as the script's own arguments."""
    name = plain_text(words[1]) if len(words) > 1 else ""
    before = set(scope.unresolved)
    scope.unresolved.clear()
    items = [item for word in words[3:] for item in expand_word(word, scope)]
    known = not scope.unresolved and len(words) > 3
    scope.unresolved |= before
    return name, items if known or items else None


def goes_round(words: list[Word], scope: Scope) -> bool | None:
    """Whether a `while` with this condition goes round; None where only the environment knows.

    A loop over the script's own arguments does not where nothing says what they are: it is read as started without.
    """
    verdict = test(words, scope)
    if verdict is not None or "@" in scope.arrays:
        return verdict
    before = set(scope.unresolved)
    scope.unresolved.clear()
    for word in words:
        expand_text(word, scope)
    asked, scope.unresolved = set(scope.unresolved), before
    of_arguments = bool(asked) and asked <= _OWN_ARGUMENTS
    return False if of_arguments or (words and plain_text(words[0]) == "getopts") else None


def test(words: list[Word], scope: Scope) -> bool | None:
    """The verdict of `[ ... ]` on variables that the script sets itself, or None when it depends on anything else."""
    before = set(scope.unresolved)
    scope.unresolved.clear()
    if (
        words and plain_text(words[-1 if len(words) == 1 else int(plain_text(words[0]) == "!")]) == "[["
    ):  # where the shell does not split at blanks
        fields = [expand_text(word, scope) for word in words]
    else:
        fields = [item for word in words for item in (expand_word(word, scope) or [""])]
    unresolved = bool(scope.unresolved) or any(UNRESOLVED.search(item) for item in fields)
    scope.unresolved = before
    negate = fields[:1] == ["!"]
    fields = fields[1:] if negate else fields
    if not fields or fields[0] not in ("[", "[[", "test") or unresolved:
        return None
    if fields[0] != "test" and fields[-1] != {"[": "]", "[[": "]]"}[fields[0]]:
        return None  # `[[ A && B ]]` in pieces
    body = fields[1:-1] if fields[0] != "test" else fields[1:]
    negate ^= body[:1] == ["!"]
    verdict = _verdict(body[1:] if body[:1] == ["!"] else body, fields[0] == "[[")
    return verdict if verdict is None or not negate else not verdict


def _verdict(body: list[str], globs: bool) -> bool | None:
    match body:
        case ["-n", value] | [value]:
            return value != ""
        case ["-z", value]:
            return value == ""
        case [left, "=" | "==", right]:
            return fnmatch.fnmatchcase(left, right) if globs else left == right
        case [left, "!=", right]:
            return not fnmatch.fnmatchcase(left, right) if globs else left != right
        case [left, "-eq" | "-ne" | "-gt" | "-lt" | "-ge" | "-le" as kind, right] if left.isdigit() and right.isdigit():
            one, two = int(left), int(right)
            return {"-eq": one == two, "-ne": one != two, "-gt": one > two, "-lt": one < two, "-ge": one >= two}.get(
                kind, one <= two
            )
    return None
