"""Why a --speculative-config value is no JSON object any more: what quoting did to it, and what was meant."""

import json
import math
import re
import shlex
from dataclasses import dataclass
from typing import Any

from validate.launch.findings import Place
from validate.launch.systemd_words import excerpt

_SMART = str.maketrans({"“": '"', "”": '"', "„": '"', "‘": "'", "’": "'", "«": '"', "»": '"'})
_BARE_WORD = re.compile(r"""(?<=[\[{,:])\s*([^\s"'\[\]{},:][^"\[\]{},:]*)(?=\s*[\]},:])""")
_PYTHON_WORDS = {"True": "true", "False": "false", "None": "null"}
_JSON_WORDS = frozenset(("true", "false", "null"))
_REFERENCE = re.compile(r"\$(?:[{(]|[A-Za-z_]\w*)")
_MAX_REFERENCES = 200  # in one value
_LONGEST_REFERENCE = 10_000  # characters
_CLOSING = {"{": "}", "(": ")"}
UNKNOWN = "__unknown__"  # stands for a value that only the environment knows


@dataclass(frozen=True, slots=True)
class Reading:
    """What became of the value: the object, or a code and an explanation, with what was meant if that shows."""

    content: dict[str, Any] | None
    code: str = ""
    explanation: str = ""
    meant: dict[str, Any] | None = None
    duplicates: tuple[str, ...] = ()
    unresolved: bool = False


def read_value(text: str, stray: list[str] | None = None) -> Reading:
    """The reading of a value that reached the engine; `stray` words followed it and belong to no option."""
    duplicates: list[str] = []
    content = _load(text, duplicates)
    if content is None and references(text):
        filled = _load(_fill(text), duplicates)
        if isinstance(filled, dict):
            return Reading(filled, unresolved=True)
    if isinstance(content, dict) and not stray:
        return Reading(content, duplicates=tuple(duplicates))
    if content is not None and not isinstance(content, dict):
        return _not_an_object(text, content)
    code, explanation = _diagnosis(text, stray or [])
    return Reading(None, code, explanation, _meant(" ".join([text, *(stray or [])])))


def _load(text: str, duplicates: list[str] | None = None) -> Any:
    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in items]
        if duplicates is not None:
            duplicates.extend(sorted({name for name in names if names.count(name) > 1}))
        return dict(items)

    try:
        return json.loads(text, object_pairs_hook=pairs, parse_constant=str, parse_float=_number)
    except (ValueError, RecursionError):
        return None


def references(text: str) -> list[tuple[int, int]]:
    """(start, end) of every `$NAME`, `${...}` and `$(...)` that only the environment can resolve, brackets balanced."""
    spans: list[tuple[int, int]] = []
    position = tried = 0
    while tried < _MAX_REFERENCES and (match := _REFERENCE.search(text, position)):
        tried += 1
        end = match.end()
        if match[0][-1] in _CLOSING:
            end = _closed(text, match.end() - 1)
        if end < 0:
            position = match.end()
            continue
        spans.append((match.start(), end))
        position = end
    return spans


def _closed(text: str, start: int) -> int:
    """The position behind the bracket that closes the one at the start, -1 where none does."""
    opening, level = text[start], 0
    for position in range(start, min(len(text), start + _LONGEST_REFERENCE)):
        if text[position] == opening:
            level += 1
        elif text[position] == _CLOSING[opening]:
            level -= 1
            if level == 0:
                return position + 1
    return -1


def _number(text: str) -> float | str:
    """The number, or its text where it is too large for one: nothing here may become infinite."""
    value = float(text)
    return value if math.isfinite(value) else text


def is_unresolved(text: str) -> bool:
    """Whether the whole value is one reference that only the environment can resolve."""
    return references(text.strip()) == [(0, len(text.strip()))] and bool(text.strip())


def holds_unknown(value: object) -> bool:
    """Whether the value, or one inside it, is text that only the environment can complete."""
    if isinstance(value, dict):
        return any(holds_unknown(item) for item in value.values())
    if isinstance(value, list):
        return any(holds_unknown(item) for item in value)
    return isinstance(value, str) and (UNKNOWN in value or bool(references(value)))


def _fill(text: str) -> str:
    """The text with placeholders as values: inside quotes a text, outside one too."""
    pieces: list[str] = []
    inside, position = False, 0
    for start, end in references(text):
        before = text[position:start]
        inside ^= before.count('"') % 2 == 1
        pieces += [before, UNKNOWN if inside else f'"{UNKNOWN}"']
        position = end
    return "".join([*pieces, text[position:]])


def _not_an_object(text: str, content: Any) -> Reading:
    inner = _load(content) if isinstance(content, str) else None
    if isinstance(inner, dict):
        return Reading(
            None, "json-double-encoded", "the value is a JSON text that holds the object as a quoted text", inner
        )
    kind = "a list" if isinstance(content, list) else f"{excerpt(text)}"
    return Reading(None, "json-not-an-object", f"the value is {kind}; a JSON object with keys is needed")


def _diagnosis(text: str, stray: list[str]) -> tuple[str, str]:
    """(code, explanation) of the first cause that fits what survived."""
    shown = text.strip()
    checks = (
        (
            shown[:1] == "'" and shown[-1:] == "'",
            "json-literal-quotes",
            "the single quotes are part of the value: something quoted it twice",
        ),
        (
            bool(re.search("[“”„‘’«»]", shown)),
            "json-smart-quotes",
            "typographic quotes (copied from a page) are no JSON quotes",
        ),
        (
            "{{" in shown or "{%" in shown,
            "json-template-braces",
            "doubled template braces reached the engine: the template did not undo them",
        ),
        (
            re.search(r'\\["{,]', shown) is not None,
            "json-double-escaped",
            "backslashes before the quotes reached the engine: it was escaped twice",
        ),
        (
            _is_split(shown, stray),
            "json-word-split",
            "the JSON was split at its blanks: only the first piece is the value",
        ),
        (
            shown.startswith("{") and '"' in shown and _load(_completed(shown)) is not None,
            "json-incomplete",
            "a closing bracket is missing at its end",
        ),
        (
            is_expanded(shown),
            "json-quotes-lost",
            "the shell expanded the unquoted braces into several words"
            + ("" if '"' in shown else " and ate the quotes"),
        ),
        (
            shown.startswith("{") and '"' not in shown and "'" in shown,
            "json-python-quotes",
            "single quotes inside: Python's spelling, not JSON",
        ),
        (
            shown.startswith("{") and '"' not in shown,
            "json-quotes-lost",
            "the double quotes were eaten: the value was not protected by single quotes",
        ),
        (
            _load(_without_commas(shown)) is not None,
            "json-trailing-comma",
            "JSON allows no comma before a closing bracket",
        ),
        (
            _load(_pythonic(shown)) is not None,
            "json-python-literal",
            "True, False and None are Python; JSON has true, false and null",
        ),
    )
    for applies, code, explanation in checks:
        if applies:
            return code, explanation
    return "json-invalid", _parser_message(shown)


def _is_split(text: str, stray: list[str]) -> bool:
    is_open = text.startswith("{") and text.count("{") > text.count("}")
    return is_open and (bool(stray) or text.endswith((":", ",", "{")))


def is_expanded(text: str) -> bool:
    """Whether the value is one piece, `key:value`, of a brace expression that a shell expanded."""
    return re.fullmatch(r"[\w\-]+:[^{}\"]*|\"[\w\-]+\":[^{}]*", text) is not None


def _parser_message(text: str) -> str:
    try:
        json.loads(text)
    except ValueError as error:
        return f"no valid JSON: {error}"
    except RecursionError:
        return "no valid JSON: nested too deeply"
    return "more words follow the JSON"


def _without_commas(text: str) -> str:
    return re.sub(r",(\s*[}\]])", r"\1", text)


def _completed(text: str) -> str:
    """The text with the brackets that are still open closed."""
    return text + "]" * max(text.count("[") - text.count("]"), 0) + "}" * max(text.count("{") - text.count("}"), 0)


def _pythonic(text: str) -> str:
    return re.sub(r"\b(True|False|None)\b", lambda match: _PYTHON_WORDS[match[0]], text)


def _meant(text: str) -> dict[str, Any] | None:
    """The object that the mangled text was, as far as it can be told: each step undoes one kind of damage."""
    candidate = text.strip().strip("'").translate(_SMART)
    candidate = re.sub(r"\\(.)", r"\1", candidate)
    candidate = re.sub(r"^\{\{(.*)\}\}$", r"{\1}", candidate, flags=re.DOTALL)
    if re.fullmatch(r"\"?[\w\-]+\"?:\S+(?: \"?[\w\-]+\"?:\S+)*", candidate):
        candidate = "{" + ",".join(candidate.split()) + "}"
    candidate = _without_commas(_pythonic(candidate))
    for attempt in (candidate, candidate.replace("'", '"'), _quoted(candidate), _completed(candidate)):
        content = _load(attempt)
        if isinstance(content, dict):
            return content
    return None


def _quoted(text: str) -> str:
    """Bare words of `{method:ngram,num_speculative_tokens:5}` with quotes again; numbers and literals stay."""

    def word(match: re.Match[str]) -> str:
        bare = match[1].strip()
        return bare if bare in _JSON_WORDS or re.fullmatch(r"-?\d+(\.\d+)?", bare) else json.dumps(bare)

    return _BARE_WORD.sub(word, text)


def corrected(place: Place, content: dict[str, Any]) -> str:
    """The option as it must stand in that place so that exactly this object reaches the engine."""
    value = json.dumps({name: item for name, item in content.items() if item != UNKNOWN})
    words = f"--speculative-config {shlex.quote(value)}"
    if place.kind == "systemd":
        return _for_systemd(words) if place.in_text else f"--speculative-config '{_for_systemd(value, quotes=chr(39))}'"
    if place.kind == "compose":
        return words.replace("$", "$$") if place.in_text else _yaml_item(value).replace("$", "$$")
    if place.in_text:
        return words
    if place.kind == "kubernetes":
        return _yaml_item(value).replace("$(", "$$(")
    if place.kind == "config":  # as a text: a mapping is read from 0.16.0 on only
        return "speculative-config: '" + value.replace("'", "''") + "'"
    if place.kind == "ray":
        return f"speculative_config: {value}"
    if place.kind in ("dockerfile", "nix"):
        comma, text = ("," if place.kind == "dockerfile" else ""), json.dumps(value)
        return f'"--speculative-config"{comma} {text if comma else text.replace("${", chr(92) + "${")}'
    return words


def _yaml_item(value: str) -> str:
    return "- " + _yaml_text(f"--speculative-config={value}")


def _yaml_text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def one_word(place: Place, option: str, value: str) -> str:
    """An option and its value as the one item or word of that place that argparse takes: `--x=value`."""
    word = f"{option}={_unquoted(value)}"
    if place.kind in ("compose", "kubernetes") and not place.in_text:
        return "- " + _yaml_text(word.replace("$", "$$") if place.kind == "compose" else word)
    if place.kind in ("dockerfile", "nix"):
        return json.dumps(word)
    if place.kind == "systemd" and not place.in_text:
        return f"'{_for_systemd(word, quotes=chr(39))}'"
    return f"{option}={shlex.quote(_unquoted(value))}"


def _unquoted(value: str) -> str:
    """The value without the quotes around it, which a list item would pass on."""
    text = value.strip()
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text


def _for_systemd(text: str, quotes: str = "'\"") -> str:
    """The text as systemd reads it back inside quotes: C escapes, specifiers and variables undone."""
    escaped = text.replace("\\", "\\\\").replace("%", "%%").replace("$", "$$")
    for quote in quotes:
        escaped = escaped.replace(quote, "\\" + quote)
    return escaped
