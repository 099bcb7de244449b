"""Expand shell words: braces, variables, arrays, a few harmless substitutions. What is not known stays as written."""

import ast
import itertools
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from validate.launch.files import read_beside
from validate.launch.findings import MalformedSourceError
from validate.launch.json_value import references
from validate.launch.shell_parameters import changed_text
from validate.launch.shell_words import ARITHMETIC, ARRAY, COMMAND, TEXT, VARIABLE, Command, Lexer, Part, Word

_PARAMETER = re.compile(
    r"(?P<length>#?)(?P<name>[A-Za-z_]\w*|[@*#?$!\-0-9])(?P<index>\[[^\]]*\])?(?P<rest>.*)", re.DOTALL
)
_DEFAULTS = re.compile(r"(:?)([-=+?])(.*)", re.DOTALL)
_ALL_ITEMS = ("@", "*")
_ARITHMETIC_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.floordiv,
    ast.Mod: operator.mod,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
}
_LARGEST_SHIFT = 63
_LARGEST_INTEGER = 2**63 - 1  # a shell's arithmetic is 64 bit
_MAX_COMMANDS = 20_000
_MAX_BRACES = 40  # {a,b} groups in one word; JSON that lost its quotes has a handful
_MAX_OPENINGS = 500  # opening braces in one word; JSON is nested, but not like that
_MAX_WORDS = 10_000  # more words than any command line holds
_MAX_CHARACTERS = 1_000_000  # more than a kernel accepts as one command line
_PRINTF = re.compile(r"%(?:%|-?[0-9.]*[sdiuqbf])")
Piece = tuple[str, bool]  # a text, and whether the shell may split it at blanks
UNRESOLVED = re.compile(r"\$(?:\{[^}]*\}|\([^)]*\)|\w+)")


@dataclass(slots=True)
class Scope:
    """What a script has set so far: variables, arrays and files, the working folder, and names nobody set."""

    variables: dict[str, str] = field(default_factory=dict)
    arrays: dict[str, list[str]] = field(default_factory=dict)
    maps: dict[str, dict[str, str]] = field(default_factory=dict)  # arrays with texts as keys, `declare -A`
    folder: Path | None = None
    braces: bool = True  # bash expands {a,b}; a plain sh does not
    unresolved: set[str] = field(default_factory=set)
    depth: int = 0
    files: dict[str, str] = field(default_factory=dict)
    functions: dict[str, list[Command]] = field(default_factory=dict)
    active: set[str] = field(default_factory=set)  # functions that are being read
    called: set[str] = field(default_factory=set)
    steps: list[int] = field(default_factory=lambda: [0])

    def count_command(self) -> None:
        """Counts a command that is read: loops and functions in each other could go on for ever."""
        self.steps[0] += 1
        if self.steps[0] > _MAX_COMMANDS:
            raise MalformedSourceError("too-many-commands", f"a script runs through more than {_MAX_COMMANDS} commands")

    def read(self, name: str) -> str | None:
        """The text of a file: as the script itself wrote it, else one beside the script."""
        written = self.files.get(name.rsplit("/", 1)[-1])
        return read_beside(name, self.folder) if written is None else written

    def deeper(self) -> "Scope":
        """The same scope one level further in, for texts inside texts: it shares everything but the depth."""
        return replace(self, depth=self.depth + 1)

    def items(self, name: str) -> list[str] | None:
        """The array of that name, a scalar as one item, or None when unset."""
        if name in self.maps:
            return list(self.maps[name].values())
        if name in self.arrays:
            return self.arrays[name]
        if name.isdigit() and name != "0" and "@" in self.arrays:
            return self.arrays["@"][int(name) - 1 : int(name)] or [""]
        return [self.variables[name]] if name in self.variables else None


def expand_word(word: Word, scope: Scope) -> list[str]:
    """The fields that one word becomes: none, one or several."""
    fields: list[str] = []
    for alternative in _braces(word) if scope.braces else [word]:
        fields += _fields(alternative, scope)
        if len(fields) > _MAX_WORDS:
            raise MalformedSourceError("too-many-words", f"a word expands to more than {_MAX_WORDS} words")
    return fields


def expand_text(word: Word, scope: Scope) -> str:
    """The one string that a word becomes where the shell does not split: assignments, defaults, here-documents."""
    text = " ".join("".join(piece for piece, _ in run) for run in _runs(word, scope))
    if len(text) > _MAX_CHARACTERS:
        raise MalformedSourceError("too-long", f"a shell value expands to more than {_MAX_CHARACTERS} characters")
    return text


def _fields(word: Word, scope: Scope) -> list[str]:
    """Field splitting: unquoted results of expansions split on blanks, everything else sticks together."""
    fields: list[str] = []
    for run in _runs(word, scope):
        current: str | None = None
        for text, splits in run:
            if not splits:
                current = (current or "") + text
                continue
            pieces = _split(text)
            for number, piece in enumerate(pieces):
                if number:
                    fields += [current] if current is not None else []
                    current = None
                if piece:
                    current = (current or "") + piece
        fields += [current] if current is not None else []
    return fields


def _split(text: str) -> list[str]:
    """The text split at blanks, but not inside a `$(...)` or `${...}` that nobody here can resolve."""
    pieces, position = [""], 0
    for start, end in [*references(text), (len(text), len(text))]:
        first, *others = re.split(r"[ \t\n]+", text[position:start])
        pieces[-1] += first
        pieces += others
        pieces[-1] += text[start:end]
        position = end
    return pieces


def _runs(word: Word, scope: Scope) -> list[list[Piece]]:
    """Pieces (text, may be split) per field that quoted arrays force apart; usually one run."""
    runs: list[list[Piece]] = [[]]
    for part in word:
        if part.kind == VARIABLE:
            values = _variable(part, scope)
            if len(values) == 0 and len(word) == 1:
                return []
            for number, pieces in enumerate(values):
                if number:
                    runs.append([])
                runs[-1] += pieces
        else:
            runs[-1].append(_plain(part, scope))
    return runs


def _plain(part: Part, scope: Scope) -> Piece:
    if part.kind == COMMAND:
        output = _substitution(part.text, scope)
        if output is None:
            scope.unresolved.add(f"$({part.text.strip()})")
            return f"$({part.text.strip()})", False
        return output.rstrip("\n"), not part.quoted
    if part.kind == ARITHMETIC:
        value = arithmetic(part.text, scope)
        if value is None:
            scope.unresolved.add(f"$(({part.text}))")
        return (f"$(({part.text}))", False) if value is None else (str(value), False)
    if part.kind == ARRAY:
        return " ".join(field for word in part.words for field in expand_word(word, scope)), False
    return part.text, False


def _variable(part: Part, scope: Scope) -> list[list[Piece]]:
    """The values of `${...}` in pieces: one, or an array's items when it is quoted as "${A[@]}"."""
    match = _PARAMETER.fullmatch(part.text)
    if match is None:
        return [[(_unknown(part.text, scope), not part.quoted)]]
    name, index, rest = match["name"], (match["index"] or "")[1:-1], match["rest"]
    if not match["length"] and (name in _ALL_ITEMS or index in _ALL_ITEMS):
        given = scope.arrays.get("@", []) if name in _ALL_ITEMS else _array_items(part, scope.items(name), index)
        items = _slice(given, rest, scope, first=1 if name in _ALL_ITEMS else 0)
        if items is None:
            return [[(_unknown(part.text, scope), not part.quoted)]]
        return [[(item, not part.quoted)] for item in items]
    if part.text == "#" and "@" in scope.arrays:
        return [[(str(len(scope.arrays["@"])), not part.quoted)]]
    items_or_none = scope.items(name)
    if match["length"] and items_or_none is None and index in _ALL_ITEMS:  # set by what is not read here (mapfile)
        return [[(_unknown(part.text, scope), not part.quoted)]]
    if match["length"]:
        length = len(items_or_none or []) if index in _ALL_ITEMS else len((items_or_none or [""])[0])
        return [[(str(length), not part.quoted)]]
    value = _indexed(name, index, scope)
    default = _DEFAULTS.fullmatch(rest)
    if default:
        return [_with_default(default, value, part, scope)]
    changed = changed_text(value, rest, lambda text: _operand(text, scope)) if value is not None and rest else value
    return [[(_unknown(part.text, scope) if changed is None else changed, not part.quoted)]]


def _operand(text: str, scope: Scope) -> str:
    """A pattern or a replacement inside `${...}`, expanded."""
    return "".join(piece for piece, _ in _nested(text, False, scope))


def _slice(items: list[str], rest: str, scope: Scope, *, first: int) -> list[str] | None:
    """`${@:2}`, `${A[@]:1:2}`: the items from a place on; the arguments count from 1. None for other operators."""
    if not rest:
        return items
    match = re.fullmatch(r":([^:?+=-][^:]*|\s+-[^:]*)(?::([^:]+))?", rest, re.DOTALL)
    if match is None:
        return None
    start = arithmetic(match[1], scope)
    count = len(items) if match[2] is None else arithmetic(match[2], scope)
    if start is None or count is None or count < 0:
        return None
    begin = start - first if start >= 0 else len(items) + start
    return items[max(begin, 0) :][: max(count, 0)] if begin >= 0 or first else []


def _array_items(part: Part, items: list[str] | None, index: str) -> list[str]:
    if items is None:
        # A script may well leave an argument array unset; bash then yields no word at all.
        return []
    if index == "*" and part.quoted:
        return [" ".join(items)]
    return list(items)


def _indexed(name: str, index: str, scope: Scope) -> str | None:
    """The item of an array, or the value itself where no index is given; None where it is not set."""
    if name in scope.maps:
        return scope.maps[name].get(index_text(index, scope))
    items = scope.items(name)
    if not items:
        return None if items is None else ""
    number = 0 if not index else arithmetic(index, scope)
    if number is None:
        number = arithmetic(index_text(index, scope), scope)
    return items[number] if number is not None and -len(items) <= number < len(items) else None


def index_text(index: str, scope: Scope) -> str:
    """The key that stands between the brackets of `M[...]`, expanded."""
    inner = scope.deeper()
    return expand_text(Lexer(index, inner.depth).word(), inner)


def _with_default(default: re.Match[str], value: str | None, part: Part, scope: Scope) -> list[Piece]:
    """`${X:-d}`, `${X:=d}`, `${X:+d}`, `${X:?d}` and their forms without the colon, in pieces."""
    colon, kind, text = default.groups()
    is_set = value is not None and (value != "" or not colon)
    if kind == "+":
        return _nested(text, part.quoted, scope) if is_set else [("", not part.quoted)]
    if is_set:
        return [(value or "", not part.quoted)]
    name = part.text.split(colon + kind, 1)[0]
    if kind == "?":
        return [(_unknown(name, scope), not part.quoted)]
    pieces = _nested(text, part.quoted, scope)
    if kind == "=":
        scope.variables[name] = "".join(piece for piece, _ in pieces)
    return pieces


def _nested(text: str, quoted: bool, scope: Scope) -> list[Piece]:
    """The text of a default, expanded: inside double quotes single quotes are literal, outside they protect blanks."""
    inner = scope.deeper()
    if quoted:
        plain = re.sub(r'(\\.)|"', lambda match: match[1] or "", text, flags=re.DOTALL)
        return [(expand_text(Lexer(f'"{plain}"', inner.depth).word(), inner), False)]
    lexer = Lexer(text, inner.depth)
    pieces: list[Piece] = []
    while lexer.position < len(text):
        for number, run in enumerate(_runs(lexer.word(), inner)):
            pieces += ([(" ", True)] if number else []) + run
        pieces.append((text[lexer.position : lexer.position + 1], True))
        lexer.position += 1
    return pieces


def _unknown(text: str, scope: Scope) -> str:
    """The reference as written: the environment that the script runs in may define it."""
    scope.unresolved.add(re.sub(r"\W.*", "", text, flags=re.DOTALL) or text)
    return "${" + text + "}"


def _substitution(text: str, scope: Scope) -> str | None:
    """What `$(...)` would print, for the few commands that only print their arguments; None for all others."""
    commands = Lexer(text, scope.depth + 1).commands()
    if len(commands) != 1:
        return None
    command = commands[0]
    words = [field for word in command.words for field in expand_word(word, scope.deeper())]
    return printed(words, command, scope.deeper())


def printed(words: list[str], command: Command, scope: Scope) -> str | None:
    """What a command that only prints its arguments or its input would print; None for all others."""
    program, arguments = words[0] if words else "", words[1:]
    if program == "echo":
        return " ".join(argument for number, argument in enumerate(arguments) if number or argument not in ("-n", "-e"))
    if program == "printf" and arguments:
        return _printf(arguments[0], arguments[1:])
    if program == "cat" and not arguments and command.document is not None:
        return document_text(command, scope)
    if program == "cat" and len(arguments) == 1:
        return scope.read(arguments[0])
    return None


def document_text(command: Command, scope: Scope) -> str:
    """The text of a here-document, with variables expanded unless its end word was quoted, or of a here-string."""
    if command.here_string:
        return expand_text(command.here_string, scope)
    document = command.document or ""
    if command.document_literal or not re.search(r"[$`\\]", document):
        return document
    quoted = re.sub(r'\\?"', lambda match: '\\\\\\"' if match[0][0] == "\\" else '\\"', document)
    return expand_text(Lexer(f'"{quoted}"', scope.depth + 1).word(), scope)


def _printf(form: str, arguments: list[str]) -> str | None:
    """printf with %s, %d and %%, the format reused while arguments remain as the shell does."""
    values = list(arguments)
    output: list[str] = []
    form = form.replace("\\n", "\n").replace("\\t", "\t").replace('\\"', '"').replace("\\\\", "\\")

    def value(match: re.Match[str]) -> str:
        if match[0] == "%%":
            return "%"
        return values.pop(0) if values else ""

    for _ in range(len(arguments) + 1):
        before = len(values)
        output.append(_PRINTF.sub(value, form))
        if not values or len(values) == before:
            break
    return "".join(output)


def arithmetic(text: str, scope: Scope) -> int | None:
    """The value of an integer expression of names and + - * / %, or None for anything else."""
    plain = re.sub(r"\$\{?(\w+)\}?", r"\1", text).strip()
    try:
        return _evaluate(ast.parse(plain, mode="eval").body, scope)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return None


def _evaluate(node: ast.expr, scope: Scope) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.Name):
        return int(scope.variables.get(node.id, "unset"))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_evaluate(node.operand, scope)
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC_OPERATORS:
        left, right = _evaluate(node.left, scope), _evaluate(node.right, scope)
        if isinstance(node.op, ast.LShift | ast.RShift) and not 0 <= right <= _LARGEST_SHIFT:
            raise ValueError("no shift of 64 bit")
        value = _ARITHMETIC_OPERATORS[type(node.op)](left, right)
        if abs(value) <= _LARGEST_INTEGER:
            return value
    raise ValueError("no integer arithmetic")


def _braces(word: Word, depth: int = 0) -> list[Word]:
    """Brace expansion of bash: unquoted `{a,b}` becomes two words, which is what happens to unquoted JSON."""
    if depth > _MAX_BRACES or (depth == 0 and _openings(word) > _MAX_OPENINGS):
        raise MalformedSourceError("too-many-words", f"more than {_MAX_BRACES} brace expansions in one word")
    characters = [
        (char, Part(TEXT, char, part.quoted)) if part.kind == TEXT and not part.quoted else ("", part)
        for part in word
        for char in (part.text if part.kind == TEXT and not part.quoted else "x")
    ]
    span = _brace_span([char for char, _ in characters])
    if span is None:
        return [word]
    start, commas, end = span
    results: list[Word] = []
    bounds = [start, *commas, end]
    for left, right in itertools.pairwise(bounds):
        pieces = [part for _, part in [*characters[:start], *characters[left + 1 : right], *characters[end + 1 :]]]
        results += _braces(tuple(pieces), depth + 1)
        if len(results) > _MAX_WORDS:
            raise MalformedSourceError("too-many-words", f"braces expand to more than {_MAX_WORDS} words")
    return results


def _openings(word: Word) -> int:
    return sum(part.text.count("{") for part in word if part.kind == TEXT and not part.quoted)


def _brace_span(characters: list[str]) -> tuple[int, list[int], int] | None:
    """(opening, commas, closing) of the outermost brace pair that holds a comma at its own level, leftmost first."""
    opened: list[tuple[int, list[int]]] = []
    best: tuple[int, list[int], int] | None = None
    for position, char in enumerate(characters):
        if char == "{":
            opened.append((position, []))
        elif char == "," and opened:
            opened[-1][1].append(position)
        elif char == "}" and opened:
            start, commas = opened.pop()
            if commas and (best is None or start < best[0]):
                best = start, commas, position
    return best
