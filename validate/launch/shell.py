"""Walk through a shell script without running it: assignments, arrays, simple tests; commands are handed out."""

import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from validate.launch.findings import MalformedSourceError
from validate.launch.shell_expand import (
    Scope,
    arithmetic,
    document_text,
    expand_text,
    expand_word,
    index_text,
    printed,
)
from validate.launch.shell_flow import (
    Branches,
    after_keywords,
    goes_round,
    group_body,
    loop_body,
    loop_items,
    plain_text,
    test,
)
from validate.launch.shell_words import ARRAY, MAX_DEPTH, TEXT, Command, Lexer, Part, Word

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\[[^\]]*\])?(\+?)=(.*)", re.DOTALL)
_KEY_AND_VALUE = re.compile(r"\[([^\]]+)\]=(.*)", re.DOTALL)
_PLAIN_SHELL = re.compile(r"#!\s*(?:\S*/)?(?:env\s+(?:-\S+\s+)*)?(?:\S*/)?(?:sh|dash|ash)(?:\s|$)")
_DECLARATIONS = frozenset(("export", "declare", "typeset", "local", "readonly"))
_MAX_ITEMS = 10_000
_MAX_ROUNDS = 50  # of a loop; a script that starts more engines than that is not met
_MAX_FILES = 100
_SHIFT_DIGITS = 6
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
    lost: tuple[tuple[int, str], ...] = ()  # (line, text) of what was meant to belong to it


def script_invocations(
    text: str,
    environment: Mapping[str, str],
    folder: Path | None = None,
    files: Mapping[str, str] | None = None,
    arguments: Sequence[str] | None = None,
) -> list[Invocation]:
    """The commands of a script in order, expanded by what the script itself sets on top of the given environment.

    `files` are texts that stand for files of that name; `arguments` are the script's own, None where none are told.
    """
    first = text.split("\n", 1)[0]
    plain_sh = _PLAIN_SHELL.match(first) is not None
    scope = Scope(dict(environment), folder=folder, braces=not plain_sh, files=dict(files or {}))
    if arguments is not None:
        scope.arrays["@"] = list(arguments)
    found = list(_walk(text, scope))
    for name in [name for name in scope.functions if name not in scope.called]:
        found += (replace(item, conditional=True) for item in _call([name], scope))  # called from elsewhere, if at all
    return _with_lost(found)


def _with_lost(found: list[Invocation]) -> list[Invocation]:
    """Lines that start with an option belonged to the command before: it ended too early, and they are lost."""
    result: list[Invocation] = []
    for item in found:
        if result and item.argv[0].startswith("--") and item.line > result[-1].line:
            result[-1] = replace(result[-1], lost=(*result[-1].lost, (item.line, " ".join(item.argv))))
        else:
            result.append(item)
    return result


def _walk(text: str, scope: Scope) -> Iterator[Invocation]:
    if scope.depth > MAX_DEPTH:
        raise MalformedSourceError("nested-too-deep", f"shell texts nested more than {MAX_DEPTH} deep")
    yield from _run(Lexer(text, scope.depth).commands(), scope)


def _run(commands: Sequence[Command], scope: Scope) -> Iterator[Invocation]:
    """The commands in order, loops and functions by their bodies, branches as far as they are decidable."""
    branches = Branches()
    previous: bool | None = True  # how the last command before && or || ended
    position = 0
    while position < len(commands):
        command = commands[position]
        position += 1
        scope.count_command()
        name, head = _definition(command)
        if name:
            body, position = group_body(commands, position, head)
            if not branches.skipping:
                scope.functions[name] = body
            continue
        words = after_keywords(command, branches, scope)
        loop = _LOOPS.get(plain_text(words[0])) if words else None
        if loop is not None:
            body, position = loop_body(commands, position)
            if not branches.skipping:
                yield from loop(words, body, scope)
            continue
        if not words or (branches.skipping and not branches.in_condition):
            continue
        if branches.in_condition and command.operator in ("&&", "||"):
            branches.combine(command.operator, test(words, scope))
            continue
        if (command.operator == "&&" and previous is False) or (command.operator == "||" and previous is True):
            continue
        unsure = branches.unsure or (command.operator in ("&&", "||") and previous is None)
        negated = plain_text(words[0]) == "!"
        previous = yield from _command(replace(command, words=words[1:] if negated else words), unsure, scope)
        previous = not previous if negated and previous is not None else previous


def _definition(command: Command) -> tuple[str, list[Command]]:
    """(function that the command defines, what of its body stands in the same command); an empty name for others."""
    if command.defines:
        return command.defines, []
    words = command.words
    if len(words) > 1 and plain_text(words[0]) == "function":
        return plain_text(words[1]), [replace(command, words=words[2:])] if len(words) > 2 else []
    return "", []


def _loop(words: list[Word], body: list[Command], scope: Scope) -> Iterator[Invocation]:
    """`for X in a b c`: the body once for each item, as far as they are known; else once."""
    name, items = loop_items(words, scope)
    if items is None:
        yield from _run(body, scope)
    for item in (items or [])[:_MAX_ROUNDS]:
        scope.variables[name] = item
        yield from _run(body, scope)


def _while(words: list[Word], body: list[Command], scope: Scope) -> Iterator[Invocation]:
    """`while TEST`, `until TEST`: rounds as long as the test surely holds and a round changes something; else one."""
    ends_at = plain_text(words[0]) == "until"
    condition = words[1:] or (list(body[0].words) if body else [])  # `while (( ... ))` reads as a command by itself
    for _ in range(_MAX_ROUNDS):
        verdict = goes_round(condition, scope)
        if verdict is ends_at:
            return
        before = dict(scope.variables), list(scope.arrays.get("@", ()))
        yield from _run(body, scope)
        if verdict is None or before == (scope.variables, scope.arrays.get("@", [])):
            return


_LOOPS = {"for": _loop, "while": _while, "until": _while}


def _call(argv: list[str], scope: Scope) -> Iterator[Invocation]:
    """A function of the script with its arguments as $1, $2, ...; one that calls itself is followed once."""
    name = argv[0]
    outer = scope.arrays.get("@")
    scope.active.add(name)
    scope.arrays["@"] = argv[1:]
    yield from _run(scope.functions[name], scope)
    scope.active.discard(name)
    scope.called.add(name)
    if outer is None:
        scope.arrays.pop("@", None)
    else:
        scope.arrays["@"] = outer


def _command(command: Command, unsure: bool, scope: Scope) -> Generator[Invocation, None, bool | None]:
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
    if plain_text(words[0]) in _DECLARATIONS:
        _declare(words[1:], scope)
        return True
    if plain_text(words[0]) in ("[", "[[", "test"):
        return test(words, scope)
    return (yield from _expanded(replace(command, words=words), unsure, local, scope))


def _expanded(
    command: Command, unsure: bool, local: dict[str, str], scope: Scope
) -> Generator[Invocation, None, bool | None]:
    """The command with its words expanded: followed where the script itself says what it is, else handed out."""
    scope.unresolved.clear()
    words = command.words
    argv = [field for word in words for field in expand_word(word, scope)]
    if len(argv) > _MAX_ITEMS:
        raise MalformedSourceError("too-many-words", f"a command has more than {_MAX_ITEMS} words")
    if not argv:
        return True
    if argv[0] == "eval":
        for inner in _walk(" ".join(argv[1:]), scope.deeper()):
            yield replace(inner, line=command.line)
        return None
    if argv[0] in scope.functions and argv[0] not in scope.active:
        yield from _call(argv, scope)
        return None
    _keep_file(argv, command, scope)
    if _builtin(argv, command, local.get("IFS", scope.variables.get("IFS")), scope):
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
    name, index, plus, start = match.groups()
    array = next((part for part in word if part.kind == ARRAY), None)
    if array is not None and _assign_map(name, array, scope):
        return
    if array is not None:
        items = [field for item in array.words for field in expand_word(item, scope)]
        before = (scope.items(name) or []) if plus else []
        if len(before) + len(items) > _MAX_ITEMS:
            raise MalformedSourceError("too-many-words", f"the array {name} grows beyond {_MAX_ITEMS} words")
        scope.arrays[name] = [*before, *items]
        scope.variables.pop(name, None)
        return
    value = expand_text((Part(TEXT, start), *word[1:]), scope)
    if index is not None:
        _assign_item(name, index[1:-1], value, scope)
    elif lasting is None:
        local[name] = value
    elif plus and name in lasting.arrays:
        lasting.arrays[name][:1] = [lasting.arrays[name][0] + value] if lasting.arrays[name] else [value]
    else:
        lasting.variables[name] = (lasting.variables.get(name, "") if plus else "") + value
        lasting.arrays.pop(name, None)


def _assign_map(name: str, array: Part, scope: Scope) -> bool:
    """`NAME=([key]=value ...)`; whether the array was written like that."""
    fields = [field for item in array.words for field in expand_word(item, scope)]
    pairs = [_KEY_AND_VALUE.fullmatch(text) for text in fields]
    if not pairs and name in scope.maps:
        scope.maps[name] = {}
        return True
    if not pairs or not all(pairs):
        return False
    scope.maps[name] = {match[1].strip("\"'"): match[2] for match in pairs if match}
    return True


def _assign_item(name: str, index: str, value: str, scope: Scope) -> None:
    """`NAME[key]=value`, and `NAME[0]=value` of an array that is no map."""
    number = None if name in scope.maps else arithmetic(index, scope)
    if number is None:
        scope.maps.setdefault(name, {})[index_text(index, scope)] = value
        return
    items = scope.arrays.setdefault(name, [])
    if 0 <= number < _MAX_ITEMS:
        items.extend([""] * (number + 1 - len(items)))
        items[number] = value


def _declare(words: list[Word], scope: Scope) -> None:
    if any(re.fullmatch(r"-[a-zA-Z]*A[a-zA-Z]*", plain_text(word)) for word in words):
        for name in (plain_text(word) for word in words):
            if re.fullmatch(r"[A-Za-z_]\w*", name):
                scope.maps.setdefault(name, {})
    for word in words:
        match = _assignment(word)
        if match:
            _assign(match, word, scope, {}, scope)


def _read(arguments: list[str], text: str, separator: str | None, scope: Scope) -> None:
    """`read`: an array with -a, else one variable a word and the rest in the last one; a line, unless -d says other."""
    flags = "".join(word[1:] for word in arguments if re.fullmatch(r"-[a-z]+", word))
    names = [word for word in arguments if re.fullmatch(r"[A-Za-z_]\w*", word)]
    whole = text.strip() if "d" in flags else text.strip("\n").split("\n", 1)[0].strip(" \t")
    pattern = r"\s+" if separator is None else f"[{re.escape(separator)}]" if separator else r"(?!)"
    if "a" in flags and names:
        scope.arrays[names[-1]] = [piece for piece in re.split(pattern, whole) if piece or separator]
        scope.variables.pop(names[-1], None)
        return
    pieces = re.split(pattern, whole, maxsplit=len(names) - 1) if len(names) > 1 else [whole]
    for number, name in enumerate(names):
        scope.variables[name] = pieces[number] if number < len(pieces) else ""


def _sets_variables(argv: list[str], command: Command, separator: str | None, scope: Scope) -> bool:
    """Apply `unset`, `printf -v` or `read <<END`; whether the command was one."""
    if argv[0] == "unset":
        for name in argv[1:]:
            for table in (scope.variables, scope.arrays, scope.maps):
                table.pop(name, None)
    elif argv[0] == "printf" and argv[1:2] == ["-v"] and len(argv) > 3:
        scope.variables[argv[2]] = printed(["printf", *argv[3:]], command, scope) or ""
    elif argv[0] == "read" and command.document is not None:
        _read(argv[1:], document_text(command, scope), separator, scope)
    else:
        return False
    return True


def _builtin(argv: list[str], command: Command, separator: str | None, scope: Scope) -> bool:
    """Apply a builtin that changes variables, arguments or the folder; whether the command was one."""
    program = argv[0]
    if _sets_variables(argv, command, separator, scope):
        return True
    if program == "set":
        if "--" in argv:
            scope.arrays["@"] = argv[argv.index("--") + 1 :]
    elif program in ("source", ".") and len(argv) > 1:
        text = scope.read(argv[1])
        if text is not None:
            list(_walk(text, scope.deeper()))
    elif program == "shift":
        if "@" in scope.arrays:
            count = int(argv[1]) if argv[1:] and argv[1].isdecimal() and len(argv[1]) < _SHIFT_DIGITS else 1
            scope.arrays["@"] = scope.arrays["@"][count:]
    elif program == "cd" and len(argv) == 2 and scope.folder is not None and not Path(argv[1]).is_absolute():
        scope.folder = scope.folder / argv[1]
    else:
        return program in (
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
