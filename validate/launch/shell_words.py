"""Read shell text into commands, words and parts, with quoting kept so that expansion can follow the shell's rules.

A subset of sh and bash: what launch scripts use. Nothing is ever run. Source: POSIX.1-2017 XCU 2.2, 2.3; bash(1).
"""

import bisect
import re
from dataclasses import dataclass, field

from validate.launch.findings import MalformedSourceError
from validate.launch.systemd_words import excerpt

TEXT = "text"  # literal characters
VARIABLE = "variable"  # text is what stands between ${ and }, or the bare name
COMMAND = "command"  # text is the script inside $( ) or backquotes
ARITHMETIC = "arithmetic"  # text is the expression inside $(( ))
ARRAY = "array"  # words of NAME=( ... )

MAX_DEPTH = 20  # nested substitutions; a launch script has two or three
_BLANKS = " \t"
_PLAIN = re.compile(r"[^\\'\"$`\s;&|()<>]+|[^\\'\"$`]")
_OPERATOR = re.compile(r"&&|\|\||;;&|;;|;&|\|&|[;&|()\n]")
_REDIRECTION = re.compile(r"\d*(?:<<<|<<-?|>>|<>|&>>|&>|>\||[<>]&?)")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BACKQUOTED = re.compile(r"`((?:[^`\\]|\\.)*)`", re.DOTALL)
_FUNCTION_END = re.compile(r"\s*\)[ \t]*")
_FUNCTION_NAME = re.compile(r"[A-Za-z_][\w\-.:]*")
_SPECIAL = "@*#?$!-0123456789"
_ARRAY_START = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_ANSI_ESCAPES = {"n": "\n", "t": "\t", "\\": "\\", "'": "'", '"': '"', "r": "\r", "a": "\a", "e": "\x1b"}


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a word: its kind, its text, whether quotes protect it, and for an array its words."""

    kind: str
    text: str
    quoted: bool = False
    words: tuple["Word", ...] = ()


Word = tuple[Part, ...]


@dataclass(slots=True)
class Command:
    """A simple command: words, the operator before it, its line, a here-document given to it, the file it writes."""

    words: list[Word] = field(default_factory=list)
    operator: str = "\n"
    line: int = 1
    document: str | None = None
    document_literal: bool = False
    here_string: Word = ()  # of `<<<`, to be expanded
    output: Word = ()
    appends: bool = False
    defines: str = ""  # the function that this begins to define


class Lexer:
    """Splits shell text into commands. One use: `Lexer(text).commands()`."""

    def __init__(self, text: str, depth: int = 0) -> None:
        """Take the text; `depth` counts the substitutions around it."""
        if depth > MAX_DEPTH:
            raise MalformedSourceError("nested-too-deep", f"shell substitutions nested more than {MAX_DEPTH} deep")
        self.text = text
        self.position = 0
        self.depth = depth
        self._newlines = [match.start() for match in re.finditer("\n", text)]
        self._documents: list[tuple[Command, str, bool, bool]] = []  # (command, end word, literal, tabs stripped)

    def commands(self) -> list[Command]:
        """The simple commands in order of the text."""
        found: list[Command] = []
        command = Command()
        while self.position < len(self.text):
            self._skip_blanks()
            operator = _OPERATOR.match(self.text, self.position)
            redirection = _REDIRECTION.match(self.text, self.position)
            if redirection:
                self.position = redirection.end()
                self._redirect(command, redirection[0].lstrip("0123456789"))
            elif operator:
                self.position = operator.end()
                if operator[0] == "(" and self._defines(command):
                    found.append(command)
                    command = Command(operator="(", line=self._line())
                    continue
                found += [command] if command.words else []
                if operator[0] == "\n":
                    self._read_documents()
                # A line break after an operator only continues it; so does an empty command between two of them.
                kept = command.operator if operator[0] == "\n" and not command.words else operator[0]
                command = Command(operator=kept, line=self._line())
            elif self.position < len(self.text):
                command.line = command.line if command.words else self._line()
                command.words.append(self.word())
        return [*found, command] if command.words else found

    def _defines(self, command: Command) -> bool:
        """Whether the command so far is the head of a function, `NAME ( )`; then it is marked as such."""
        end = _FUNCTION_END.match(self.text, self.position)
        names = ["".join(part.text for part in word) for word in command.words]
        names = names[1:] if names[:1] == ["function"] else names
        if end is None or len(names) != 1 or not _FUNCTION_NAME.fullmatch(names[0]):
            return False
        self.position = end.end()
        command.defines = names[0]
        return True

    def _line(self) -> int:
        return bisect.bisect_left(self._newlines, self.position) + 1

    def _skip_blanks(self) -> None:
        while self.position < len(self.text):
            if self.text[self.position] in _BLANKS or self.text.startswith("\r\n", self.position):
                self.position += 1
            elif self.text.startswith("\\\n", self.position):
                self.position += 2
            elif self.text[self.position] == "#":
                end = self.text.find("\n", self.position)
                self.position = len(self.text) if end < 0 else end
            else:
                return

    def _redirect(self, command: Command, operator: str) -> None:
        self._skip_blanks()
        if self.position >= len(self.text) or _OPERATOR.match(self.text, self.position):
            return
        target = self.word()
        if operator in ("<<", "<<-"):
            literal = any(part.quoted for part in target)
            self._documents.append((command, "".join(part.text for part in target), literal, operator == "<<-"))
        elif operator in (">", ">>", ">|"):
            command.output, command.appends = target, operator == ">>"
        elif operator == "<<<":
            command.document, command.here_string = "", target

    def _read_documents(self) -> None:
        for command, end_word, literal, strip_tabs in self._documents:
            lines: list[str] = []
            while self.position < len(self.text):
                end = self.text.find("\n", self.position)
                end = len(self.text) if end < 0 else end
                line = self.text[self.position : end]
                self.position = end + 1
                line = line.lstrip("\t") if strip_tabs else line
                if line == end_word:
                    break
                lines.append(line)
            command.document, command.document_literal = "\n".join(lines), literal
        self._documents.clear()

    def word(self) -> Word:
        """The word at the position."""
        parts: list[Part] = []
        while self.position < len(self.text):
            char = self.text[self.position]
            if char in _BLANKS or _OPERATOR.match(self.text, self.position):
                if char == "(" and len(parts) == 1 and not parts[0].quoted and _ARRAY_START.fullmatch(parts[0].text):
                    self.position += 1
                    parts.append(Part(ARRAY, "", words=tuple(self._array())))
                    continue
                break
            if char in "<>":
                break
            self._piece(parts)
        return _joined(parts)

    def _array(self) -> list[Word]:
        words: list[Word] = []
        while True:
            self._skip_blanks()
            if self.position >= len(self.text):
                raise MalformedSourceError("unbalanced-quote", "a ( of an array is never closed in the script")
            if self.text[self.position] == ")":
                self.position += 1
                return words
            if self.text[self.position] in "\n;&|<>(":
                self.position += 1
                continue
            words.append(self.word())

    def _piece(self, parts: list[Part]) -> None:
        """Append the quoted, substituted or plain piece at the position."""
        char = self.text[self.position]
        if char == "\\":
            following = self.text[self.position + 1 : self.position + 2]
            self.position += 2
            parts += [] if following == "\n" else [Part(TEXT, following or "\\", quoted=True)]
        elif char == "'":
            parts.append(Part(TEXT, self._until_quote("'"), quoted=True))
        elif char == '"':
            self.position += 1
            self._double_quoted(parts)
        elif char == "$":
            self._dollar(parts, quoted=False)
        elif char == "`":
            parts.append(self._backquoted(quoted=False))
        else:
            plain = _PLAIN.match(self.text, self.position)
            assert plain is not None  # every other character was handled above
            self.position = plain.end()
            parts.append(Part(TEXT, plain[0]))

    def _until_quote(self, quote: str) -> str:
        end = self.text.find(quote, self.position + 1)
        if end < 0:
            raise self._open_quote(quote, self.position)
        inside = self.text[self.position + 1 : end]
        self.position = end + 1
        return inside

    def _open_quote(self, quote: str, start: int) -> MalformedSourceError:
        line = bisect.bisect_left(self._newlines, start) + 1
        return MalformedSourceError(
            "unbalanced-quote", f"line {line}: {quote} is never closed: {excerpt(self.text[start:])}"
        )

    def _double_quoted(self, parts: list[Part]) -> None:
        pieces: list[str] = []
        start = self.position - 1
        parts.append(Part(TEXT, "", quoted=True))  # an empty "" is a word too
        while self.position < len(self.text):
            char = self.text[self.position]
            if char == '"':
                self.position += 1
                parts.append(Part(TEXT, "".join(pieces), quoted=True))
                return
            if char == "\\":
                following = self.text[self.position + 1 : self.position + 2]
                pieces.append({"\n": ""}.get(following, following) if following in '"\\$`\n' else char + following)
                self.position += 2
            elif char in "$`":
                parts.append(Part(TEXT, "".join(pieces), quoted=True))
                pieces = []
                if char == "$":
                    self._dollar(parts, quoted=True)
                else:
                    parts.append(self._backquoted(quoted=True))
            else:
                pieces.append(char)
                self.position += 1
        raise self._open_quote('"', start)

    def _dollar(self, parts: list[Part], *, quoted: bool) -> None:
        rest = self.text[self.position + 1 : self.position + 3]
        if rest.startswith("(("):
            parts.append(Part(ARITHMETIC, self._balanced(3, "(", ")", 2), quoted))
        elif rest.startswith("("):
            parts.append(Part(COMMAND, self._balanced(2, "(", ")", 1), quoted))
        elif rest.startswith("{"):
            parts.append(Part(VARIABLE, self._balanced(2, "{", "}", 1), quoted))
        elif rest.startswith("'") and not quoted:
            self.position += 1
            parts.append(Part(TEXT, self._ansi_quoted(), quoted=True))
        elif rest.startswith('"') and not quoted:
            self.position += 1
        else:
            name = _NAME.match(self.text, self.position + 1)
            text = name[0] if name else rest[:1] if rest[:1] and rest[0] in _SPECIAL else ""
            parts.append(Part(VARIABLE, text, quoted) if text else Part(TEXT, "$", quoted))
            self.position += 1 + len(text)

    def _ansi_quoted(self) -> str:
        pieces: list[str] = []
        position = self.position + 1
        while position < len(self.text):
            char = self.text[position]
            if char == "'":
                self.position = position + 1
                return "".join(pieces)
            if char == "\\":
                position += 1
                char = self.text[position : position + 1]
                char = _ANSI_ESCAPES.get(char, "\\" + char)
            pieces.append(char)
            position += 1
        raise self._open_quote("$'", self.position)

    def _backquoted(self, *, quoted: bool) -> Part:
        match = _BACKQUOTED.match(self.text, self.position)
        if match is None:
            raise self._open_quote("`", self.position)
        self.position = match.end()
        return Part(COMMAND, re.sub(r"\\([`\\$])", r"\1", match[1]), quoted)

    def _balanced(self, skip: int, opening: str, closing: str, count: int) -> str:
        """The text up to the bracket that closes; quotes inside protect brackets."""
        start = self.position + skip
        level, position, quote = count, start, ""
        while position < len(self.text):
            char = self.text[position]
            if char == "\\" and quote != "'":
                position += 1
            elif quote:
                quote = "" if char == quote else quote
            elif char in "'\"":
                quote = char
            elif char == opening and (opening == "(" or self.text[position - 1] == "$"):
                level += 1  # inside ${ } only another ${ nests: "${X:-{}}" is ${X:-{} and a brace, as in a shell
            elif char == closing:
                level -= 1
                if level == 0:
                    self.position = position + 1
                    return self.text[start : position + 1 - count]
            position += 1
        raise self._open_quote("$" + opening, self.position)


def _joined(parts: list[Part]) -> Word:
    """The parts without empty texts, but with one where quotes made an empty word or stand beside other parts."""
    kept = tuple(part for part in parts if part.kind != TEXT or part.text)
    emptied = any(part.kind == TEXT and part.quoted for part in parts) and not any(part.quoted for part in kept)
    return (*kept, Part(TEXT, "", quoted=True)) if emptied else kept


def literal_words(text: str) -> list[str]:
    """The words of a text without any expansion, as a POSIX shell quotes: for round trips and simple settings."""
    lexer = Lexer(text)
    words: list[str] = []
    for command in lexer.commands():
        words += ["".join(part.text for part in word) for word in command.words]
    return words
