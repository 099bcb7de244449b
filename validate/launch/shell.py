"""Walk through a shell script without running it: assignments, arrays, simple tests; commands are handed out."""

import re
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from validate.launch.findings import MalformedSourceError
from validate.launch.shell_expand import UNRESOLVED, Scope, document_text, expand_text, expand_word, printed
from validate.launch.shell_words import ARRAY, MAX_DEPTH, TEXT, Command, Lexer, Part, Word

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\[[^\]]*\])?(\+?)=(.*)", re.DOTALL)
_DECLARATIONS = frozenset(("export", "declare", "typeset", "local", "readonly"))
_OPENING_KEYWORDS = frozenset(("then", "do", "!", "{", "time", "while", "until", "coproc"))
_MAX_NESTED_IFS = 100
_MAX_ITEMS = 10_000
_MAX_FILES = 100
_MAX_FILE_CHARACTERS = 1_000_000  # as large as a launch text may be


@dataclass(frozen=True, slots=True)
class Invocation:
    """One command that the script would start: its exact words, its variables, its line, and what it depends on."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    line: int
    conditional: bool = False
    unresolved: tuple[str, ...] = ()
    folder: Path | None = None
    files: Mapping[str, str] = field(default_factory=dict)  # written by the script before this command, by name


@dataclass(slots=True)
class _Branches:
    """The open `if`s of a script: for each, whether the branch being read is taken (True, False, None unknown)."""

    taken: list[bool | None] = field(default_factory=list)
    settled: list[bool] = field(default_factory=list)  # an earlier branch of this `if` was surely taken

    @property
    def skipping(self) -> bool:
        return False in self.taken

    @property
    def unsure(self) -> bool:
        return None in self.taken


def script_invocations(
    text: str, environment: Mapping[str, str], folder: Path | None = None, files: Mapping[str, str] | None = None
) -> list[Invocation]:
    """The commands of a script in order, expanded by what the script itself sets on top of the given environment.

    `files` are texts that stand for files of that name.
    """
    first = text.split("\n", 1)[0]
    plain_sh = re.match(r"#!\s*\S*?(?:/env\s+)?(?:sh|dash|ash)\b|#!.*/(?:sh|dash|ash)\b", first) is not None
    scope = Scope(dict(environment), folder=folder, braces=not plain_sh, files=dict(files or {}))
    return list(_walk(text, scope))


def _walk(text: str, scope: Scope) -> Iterator[Invocation]:
    if scope.depth > MAX_DEPTH:
        raise MalformedSourceError("nested-too-deep", f"shell texts nested more than {MAX_DEPTH} deep")
    branches = _Branches()
    previous: bool | None = True  # how the last command before && or || ended
    for command in Lexer(text, scope.depth).commands():
        words = _after_keywords(command.words, branches, scope)
        if branches.skipping or not words:
            continue
        if (command.operator == "&&" and previous is False) or (command.operator == "||" and previous is True):
            continue
        unsure = branches.unsure or (command.operator in ("&&", "||") and previous is None)
        previous = yield from _command(
            Command(words, command.operator, command.line, command.document), unsure, scope, command
        )


def _after_keywords(words: list[Word], branches: _Branches, scope: Scope) -> list[Word]:
    """The command's words without leading keywords; `if` and `elif` are judged here and leave no words."""
    while words:
        keyword = _plain_text(words[0])
        if keyword in ("if", "elif"):
            return _open_branch(keyword, words[1:], branches, scope)
        if keyword == "else" and branches.taken:
            state = branches.taken[-1]
            branches.taken[-1] = False if branches.settled[-1] else None if state is None else True
        elif keyword == "fi" and branches.taken:
            branches.taken.pop()
            branches.settled.pop()
        elif keyword == "for":
            _for_loop(words, scope)
            return []
        elif keyword == "function" or keyword in ("case", "}", "done", "esac", "in", "select"):
            return []
        elif keyword not in _OPENING_KEYWORDS and keyword not in ("else", "fi"):
            return words
        words = words[1:]
    return words


def _open_branch(keyword: str, condition: list[Word], branches: _Branches, scope: Scope) -> list[Word]:
    if keyword == "if":
        if len(branches.taken) >= _MAX_NESTED_IFS:
            raise MalformedSourceError("nested-too-deep", f"more than {_MAX_NESTED_IFS} nested ifs")
        verdict = None if branches.skipping else _test(condition, scope)
        branches.taken.append(verdict)
        branches.settled.append(verdict is True)
    elif branches.taken:
        verdict = False if branches.settled[-1] else _test(condition, scope)
        unknown_before = branches.taken[-1] is None
        branches.taken[-1] = None if unknown_before and verdict is True else verdict
        branches.settled[-1] = branches.settled[-1] or verdict is True
    return []


def _plain_text(word: Word) -> str:
    return word[0].text if len(word) == 1 and word[0].kind == TEXT and not word[0].quoted else ""


def _for_loop(words: list[Word], scope: Scope) -> None:
    """`for X in a b c`: the body is read once, with the first item."""
    name = _plain_text(words[1]) if len(words) > 1 else ""
    items = [item for word in words[3:] for item in expand_word(word, scope)]
    if name and items:
        scope.variables[name] = items[0]


def _command(
    command: Command, unsure: bool, scope: Scope, original: Command
) -> Generator[Invocation, None, bool | None]:
    """Apply or hand out one command; returns whether it surely succeeds (None: unknown)."""
    words = list(command.words)
    local: dict[str, str] = {}
    while words and (match := _assignment(words[0])):
        _assign(
            match, words[0], scope if len(command.words) == 1 or _all_assignments(command.words) else None, local, scope
        )
        words.pop(0)
    if not words:
        return True
    name = _plain_text(words[0])
    if name in _DECLARATIONS:
        _declare(words[1:], scope)
        return True
    if name in ("[", "[[", "test"):
        return _test(words, scope)
    scope.unresolved.clear()
    argv = [field for word in words for field in expand_word(word, scope)]
    if len(argv) > _MAX_ITEMS:
        raise MalformedSourceError("too-many-words", f"a command has more than {_MAX_ITEMS} words")
    if not argv:
        return True
    if argv[0] == "eval":
        yield from _walk(" ".join(argv[1:]), scope.deeper())
        return None
    _keep_file(argv, original, scope)
    if _builtin(argv, original, scope):
        return True
    known = scope.variables | local
    unresolved = tuple(sorted(scope.unresolved))
    yield Invocation(tuple(argv), dict(known), command.line, unsure, unresolved, scope.folder, dict(scope.files))
    return None


def _keep_file(argv: list[str], command: Command, scope: Scope) -> None:
    """Remember what `cat > FILE <<END`, `tee FILE <<END` or `echo ... > FILE` writes: a later command may read it."""
    copies = argv[0] == "tee" and len(argv) > 1
    if not (command.output or copies):
        return
    text = printed(["cat"] if copies else argv, command, scope.deeper())
    name = "" if text is None else (argv[-1] if copies else expand_text(command.output, scope)).rsplit("/", 1)[-1]
    if text is None or not name:
        return
    before = scope.files.get(name, "") if command.appends else ""
    if len(before) + len(text) > _MAX_FILE_CHARACTERS or len(scope.files) >= _MAX_FILES:
        raise MalformedSourceError("too-long", f"the script writes more than {_MAX_FILE_CHARACTERS} characters")
    scope.files[name] = before + text + ("" if text.endswith("\n") else "\n")


def _all_assignments(words: list[Word]) -> bool:
    return all(_assignment(word) for word in words)


def _assignment(word: Word) -> re.Match[str] | None:
    first = word[0] if word else None
    return None if first is None or first.kind != TEXT or first.quoted else _ASSIGNMENT.fullmatch(first.text)


def _assign(match: re.Match[str], word: Word, lasting: Scope | None, local: dict[str, str], scope: Scope) -> None:
    """NAME=value, NAME+=value, NAME=(...), NAME+=(...); before a command it holds for that command alone."""
    name, _, plus, start = match.groups()
    array = next((part for part in word if part.kind == ARRAY), None)
    if array is not None:
        items = [field for item in array.words for field in expand_word(item, scope)]
        before = (scope.items(name) or []) if plus else []
        if len(before) + len(items) > _MAX_ITEMS:
            raise MalformedSourceError("too-many-words", f"the array {name} grows beyond {_MAX_ITEMS} words")
        scope.arrays[name] = [*before, *items]
        scope.variables.pop(name, None)
        return
    value = expand_text((Part(TEXT, start), *word[1:]), scope)
    if lasting is None:
        local[name] = value
    elif plus and name in lasting.arrays:
        lasting.arrays[name][:1] = [lasting.arrays[name][0] + value] if lasting.arrays[name] else [value]
    else:
        lasting.variables[name] = (lasting.variables.get(name, "") if plus else "") + value
        lasting.arrays.pop(name, None)


def _declare(words: list[Word], scope: Scope) -> None:
    for word in words:
        match = _assignment(word)
        if match:
            _assign(match, word, scope, {}, scope)


def _builtin(argv: list[str], command: Command, scope: Scope) -> bool:
    """Apply a builtin that changes variables; whether the command was one."""
    program = argv[0]
    if program == "unset":
        for name in argv[1:]:
            scope.variables.pop(name, None)
            scope.arrays.pop(name, None)
    elif program == "set":
        if "--" in argv:
            scope.arrays["@"] = argv[argv.index("--") + 1 :]
    elif program in ("source", ".") and len(argv) > 1:
        text = scope.read(argv[1])
        if text is not None:
            list(_walk(text, scope.deeper()))
    elif program == "read" and command.document is not None:
        scope.variables[argv[-1]] = document_text(command, scope).strip()
    elif program == "cd" and len(argv) == 2 and scope.folder is not None and not Path(argv[1]).is_absolute():
        scope.folder = scope.folder / argv[1]
    else:
        return program in (
            "shift",
            "trap",
            "ulimit",
            "umask",
            "shopt",
            "read",
            "cd",
            "return",
            "exit",
            ":",
            "true",
            "wait",
        )
    return True


def _test(words: list[Word], scope: Scope) -> bool | None:
    """The verdict of `[ ... ]` on variables that the script sets itself, or None when it depends on anything else."""
    before = set(scope.unresolved)
    scope.unresolved.clear()
    fields = [item for word in words for item in (expand_word(word, scope) or [""])]
    unresolved = bool(scope.unresolved) or any(UNRESOLVED.search(item) for item in fields)
    scope.unresolved = before
    if not fields or fields[0] not in ("[", "[[", "test") or unresolved:
        return None
    body = fields[1:-1] if fields[0] != "test" else fields[1:]
    negate = body[:1] == ["!"]
    verdict = _verdict(body[1:] if negate else body)
    return verdict if verdict is None or not negate else not verdict


def _verdict(body: list[str]) -> bool | None:
    match body:
        case ["-n", value] | [value]:
            return value != ""
        case ["-z", value]:
            return value == ""
        case [left, "=" | "==", right]:
            return left == right
        case [left, "!=", right]:
            return left != right
        case [left, "-eq" | "-ne" | "-gt" | "-lt" | "-ge" | "-le" as kind, right] if left.isdigit() and right.isdigit():
            one, two = int(left), int(right)
            return {"-eq": one == two, "-ne": one != two, "-gt": one > two, "-lt": one < two, "-ge": one >= two}.get(
                kind, one <= two
            )
    return None
