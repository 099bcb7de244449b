"""vLLM's argument parser as far as a launch needs it: what argparse and FlexibleArgumentParser make of a list of words.

Source: vLLM 0.33 `utils/argparse_utils.py`; argparse of Python 3.12 (prefixes, `--x=y`, last value wins).
"""

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from hwmodel.engine.versions import Version, format_version
from validate.launch.findings import ERROR, INFO, SHELL, UNREAD, WARNING, Finding, Place
from validate.launch.json_value import corrected, is_unresolved, one_word, read_value
from validate.launch.systemd_words import excerpt
from validate.launch.vllm_options import (
    DOTTED_FIRST,
    FIRST,
    FLAG,
    KINDS,
    LEGACY,
    LEGACY_FLAGS,
    LEGACY_LAST,
    LIST,
    SHORT,
    VALUE,
)

_FLAG_LIKE = re.compile(r"(?:enable|disable|no|use|return|skip)-")
TYPO_LIKENESS = 0.88  # how alike an unknown option must be to a known one to be called a misspelling of it
_HUMAN = re.compile(r"(\d+(?:\.\d+)?)([kKmMgGtT]?)")
_DECIMAL = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_MAX_PATH = 50  # levels of a dotted argument; a configuration has three
_SPECULATIVE = "speculative-config"


@dataclass(slots=True)
class Arguments:
    """The options that take effect (name without dashes; text, True/False, or a list), positionals, and findings.

    `raw_dotted` says that the value of an option was put together from dotted arguments.
    """

    options: dict[str, Any] = field(default_factory=dict)
    positionals: list[str] = field(default_factory=list)
    legacy: dict[str, Any] = field(default_factory=dict)
    dotted: set[str] = field(default_factory=set)
    discarded_json: str | None = None  # a --speculative-config JSON that dotted arguments replaced
    findings: list[Finding] = field(default_factory=list)
    unrecognized: list[str] = field(default_factory=list)  # words that belong to nothing
    after_speculative: list[str] = field(default_factory=list)  # stray words right behind the value: split JSON
    speculative_texts: list[str] = field(default_factory=list)  # every value of --speculative-config, in order
    place: Place = SHELL  # where the words stand: decides how corrections are written


def human_readable_int(text: str) -> int | None:
    """The integer that vLLM reads from `128k` (128000), `128K` (131072) or `8192`, or None.

    >>> human_readable_int("25.6k"), human_readable_int("1K")
    (25600, 1024)
    """
    match = _HUMAN.fullmatch(text.strip())
    if match is None:
        return None
    number, suffix = match.groups()
    if suffix in _DECIMAL:
        return int(float(number) * _DECIMAL[suffix])
    return None if "." in number else int(number) * _BINARY.get(suffix, 1)


# From here on `vllm serve` puts the value of --model in the place of the positional; another one is then left over.
_MODEL_MOVES: Version = (0, 10, 0)


def parse_vllm(words: Sequence[str], version: Version, *, is_serve: bool, place: Place = SHELL) -> Arguments:
    """The effective options of the words after the program; `place` is where they stand, for corrections."""
    arguments = Arguments(place=place)
    processed = _merge_dotted([_normalised(word) for word in words], version, arguments)
    position = 0
    count: Counter[str] = Counter()
    previous = ""
    while position < len(processed):
        word = processed[position]
        if word == "--":
            position += 1
        elif _is_option(word):
            name, position = _option(processed, position, version, arguments)
            count[name] += 1
            previous = name
        else:
            _positional(word, previous, arguments, is_serve=is_serve)
            position += 1
    _repeated(count, arguments)
    if is_serve and "model" in arguments.options and version >= _MODEL_MOVES:
        _left_over(arguments)
    _unrecognized(arguments, is_serve=is_serve)
    return arguments


def _left_over(arguments: Arguments) -> None:
    """--model has taken the place of the positional: the word there is left over, unless a stray blank explains it."""
    if not any(finding.code == "escaped-blank" for finding in arguments.findings):
        arguments.unrecognized[:0] = arguments.positionals
    arguments.positionals.clear()


def _unrecognized(arguments: Arguments, *, is_serve: bool) -> None:
    """One finding for all words that argparse would list as unrecognised."""
    words = arguments.unrecognized
    if not words:
        return
    text = f"vLLM stops with 'unrecognized arguments: {excerpt(' '.join(words))}'"
    first_is_model = not is_serve and "model" not in arguments.options and len(words) == 1
    fix = f"--model {words[0]}" if first_is_model else None
    where = ": the server module takes the model as --model" if first_is_model else ""
    arguments.findings.append(Finding(ERROR, "unrecognized-argument", text + where, fix))


def _normalised(word: str) -> str:
    """Underscores of an option's name become dashes, up to the first dot; values stay."""
    if not word.startswith("--"):
        return word
    end = re.search(r"[=.\s]|$", word)
    cut = end.start() if end else len(word)
    return word[:cut].replace("_", "-") + word[cut:]


def _is_option(word: str) -> bool:
    """What argparse takes for an option: a leading dash, no number, and no blank inside unless in `=` form."""
    if not word.startswith("-") or len(word) == 1 or re.fullmatch(r"-\d+|-\d*\.\d+", word):
        return False
    return "=" in word or " " not in word


def _merge_dotted(words: list[str], version: Version, arguments: Arguments) -> list[str]:
    """The words without dotted ones, which come back merged into one JSON per option at the very end."""
    kept: list[str] = []
    merged: dict[str, dict[str, Any]] = {}
    position = 0
    while position < len(words):
        word = words[position]
        position += 1
        name, equals, value = word.partition("=")
        is_dotted = re.match(r"--?[A-Za-z]", name) is not None and 0 < name.count(".") <= _MAX_PATH
        if not is_dotted or " " in name:
            kept.append(word)
            continue
        if not equals:
            value = words[position] if position < len(words) else ""
            position += 1
        key, *path = name.removesuffix("+").split(".")
        _set_nested(merged.setdefault(key, {}), path, _dotted_value(value, name.endswith("+")))
    written = list(kept)
    for key, content in merged.items():
        _report_dotted(key, written, merged, version, arguments)
        kept += [key, json.dumps(content)]
        arguments.dotted.add(_canonical(key) or key.lstrip("-"))
    return kept


def _dotted_value(text: str, is_list: bool) -> Any:
    if is_list:
        return text.split(",")
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        number = human_readable_int(text)
        return text if number is None else number


def _set_nested(target: dict[str, Any], path: list[str], value: Any) -> None:
    for key in path[:-1]:
        inner = target.get(key)
        target[key] = inner if isinstance(inner, dict) else {}
        target = target[key]
    last = path[-1]
    if isinstance(value, list) and isinstance(target.get(last), list):
        target[last] = target[last] + value
    else:
        target[last] = value


def _report_dotted(
    key: str, kept: list[str], merged: dict[str, dict[str, Any]], version: Version, arguments: Arguments
) -> None:
    name = _canonical(key) or ""
    if version < DOTTED_FIRST:
        text = (
            f"dotted arguments ({key}.x) came with {format_version(DOTTED_FIRST)}; "
            f"{format_version(version)} refuses them"
        )
        arguments.findings.append(Finding(ERROR, "dotted-not-in-version", text, f"{key} '{json.dumps(merged[key])}'"))
    if name != _SPECULATIVE:
        return
    whole = [
        word for position, word in enumerate(kept) if _canonical(word.split("=", 1)[0]) == name and word.startswith("-")
    ]
    if whole:
        value = _value_of(kept, whole[-1])
        arguments.discarded_json = value
        text = (
            f"dotted {key}.* arguments do not merge with the JSON of "
            f"{whole[-1].split('=', 1)[0]}: they replace it, the JSON is discarded"
        )
        fix = _merged_fix(value, merged[key], arguments.place)
        arguments.findings.append(Finding(ERROR, "json-discarded-by-dotted", text, fix))
    others = [other for other in merged if other != key and _canonical(other) == name]
    if others and list(merged).index(key) == len(merged) - 1:
        text = f"{others[0]}.* and {key}.* are two groups: the last one, {key}.*, replaces the other"
        both: dict[str, Any] = {}
        for other in (*others, key):
            both |= merged[other]
        arguments.findings.append(Finding(ERROR, "dotted-groups-conflict", text, corrected(arguments.place, both)))


def _value_of(words: list[str], option: str) -> str:
    if "=" in option:
        return option.split("=", 1)[1]
    position = words.index(option)
    return words[position + 1] if position + 1 < len(words) else ""


def _merged_fix(value: str, dotted: dict[str, Any], place: Place) -> str | None:
    try:
        content = json.loads(value)
    except (ValueError, RecursionError):
        return None
    return corrected(place, content | dotted) if isinstance(content, dict) else None


def _canonical(option: str) -> str | None:
    """The option's full name without dashes for an exact name or alias, or None."""
    if option in SHORT:
        return SHORT[option]
    name = option[2:] if option.startswith("--") else ""
    return name if name in KINDS or name in LEGACY else None


def _resolve(option: str, version: Version, arguments: Arguments) -> tuple[str, str, bool]:
    """(name, kind, negated) of an option as written, prefixes resolved as argparse does; unknown ones by their look."""
    exact = _canonical(option)
    if exact is not None:
        return exact, KINDS.get(exact, FLAG if exact in LEGACY_FLAGS else VALUE), False
    name = option.lstrip("-")
    if name.startswith("no-") and KINDS.get(name[3:]) == FLAG:
        return name[3:], FLAG, True
    if option.startswith("--"):
        candidates = _prefixed(name, version)
        if len(candidates) == 1:
            return candidates[0], KINDS.get(candidates[0], VALUE), False
        if len(candidates) > 1 and all(_speculative_name(item) for item in candidates):
            text = (
                f"{option} is ambiguous: it could be "
                f"{', '.join('--' + item for item in candidates)}; argparse refuses it"
            )
            arguments.findings.append(Finding(ERROR, "ambiguous-option", text, "--" + candidates[0]))
            return name, VALUE, False
    _report_unknown(option, name, arguments)
    return name, FLAG if _FLAG_LIKE.match(name) else VALUE, False


def _speculative_name(name: str) -> bool:
    return name.startswith("spec")


def _prefixed(name: str, version: Version) -> list[str]:
    """Known options of that version that start with the name (argparse's abbreviation)."""
    if len(name) < 2:
        return []
    found = [known for known in KINDS if known.startswith(name) and version >= FIRST.get("--" + known, version)]
    return found + ([known for known in LEGACY if known.startswith(name)] if version <= LEGACY_LAST else [])


def _report_unknown(option: str, name: str, arguments: Arguments) -> None:
    near = get_close_matches(name, [*KINDS, *LEGACY], n=1, cutoff=TYPO_LIKENESS)
    speculative = name.startswith(("spec", "num-spec", "ngram"))
    if speculative:
        near = near or get_close_matches(
            name, [_SPECULATIVE, "spec-tokens", "spec-method", "spec-model"], n=1, cutoff=0
        )
        text = f"vLLM has no option {option}: it stops with 'unrecognized arguments'"
        arguments.findings.append(Finding(ERROR, "unrecognized-option", text, "--" + near[0]))
    elif near:
        text = (
            f"{option} is no option known here; did you mean --{near[0]}? vLLM stops at an option that it does not know"
        )
        arguments.findings.append(Finding(WARNING, "unknown-option", text, "--" + near[0]))
    else:
        arguments.findings.append(Finding(INFO, UNREAD, f"not known here and passed over: {option}"))


def _option(words: list[str], position: int, version: Version, arguments: Arguments) -> tuple[str, int]:
    """Take the option at the position with its value; returns (name, next position)."""
    written, equals, attached = words[position].partition("=")
    if written.startswith("-O") and len(written) > 2 and not written.startswith("--"):
        arguments.options["optimization-level"] = written[2:] + equals + attached
        return "optimization-level", position + 1
    name, kind, negated = _resolve(written, version, arguments)
    position += 1
    value: Any
    if kind == FLAG:
        value = not negated if not equals else attached.strip().lower() in ("true", "1")
    elif equals:
        value = [attached] if kind == LIST else attached
    elif kind == LIST:
        end = position
        while end < len(words) and not _is_option(words[end]):
            end += 1
        value, position = words[position:end], end
    elif position < len(words) and not _is_option(words[position]):
        value, position = words[position], position + 1
    else:
        value = None
        _missing_value(written, name, arguments)
    _store(written, name, value, version, arguments)
    return name, position


def _missing_value(written: str, name: str, arguments: Arguments) -> None:
    if name in KINDS or name in LEGACY:
        text = f"argument {written}: expected one argument, and none follows"
        arguments.findings.append(Finding(ERROR, "value-missing", text, f"{written} <value>"))


def _store(written: str, name: str, value: Any, version: Version, arguments: Arguments) -> None:
    first = FIRST.get(written) or FIRST.get("--" + name)
    if first is not None and version < first:
        text = (
            f"{written} came with {format_version(first)}; {format_version(version)} "
            "stops with 'unrecognized arguments'"
        )
        arguments.findings.append(Finding(ERROR, "option-not-in-version", text))
    if name in LEGACY:
        arguments.legacy[name] = value
        return
    if name == _SPECULATIVE:
        arguments.after_speculative.clear()
        arguments.speculative_texts += [value] if isinstance(value, str) else []
    if value is not None:
        arguments.options[name] = value


def _positional(word: str, previous: str, arguments: Arguments, *, is_serve: bool) -> None:
    """A word that belongs to no option: the model for `vllm serve`, else something argparse does not recognise."""
    behind_json = previous == _SPECULATIVE and not _is_complete(arguments.speculative_texts)
    if is_serve and not arguments.positionals and not behind_json and not word.startswith((" ", "--")):
        arguments.positionals.append(word)
        return
    if is_unresolved(word) or not word.strip():
        return
    flag = re.match(r"(--?[\w.\-]+)[ \t]+(\S.*)", word, re.DOTALL)
    if flag:
        text = f"option and value stand in one item, {excerpt(word)!r}: vLLM stops with 'unrecognized arguments'"
        arguments.findings.append(
            Finding(ERROR, "flag-and-value-in-one-item", text, one_word(arguments.place, flag[1], flag[2]))
        )
    elif word.lstrip().startswith("--"):
        text = (
            f"the item {word!r} starts with a blank, so it is no option (a trailing "
            "backslash in a folded text leaves one behind)"
        )
        arguments.findings.append(Finding(ERROR, "escaped-blank", text, word.strip()))
    elif behind_json:
        arguments.after_speculative.append(word)
    elif previous in KINDS or not previous:
        arguments.unrecognized.append(word)


def _is_complete(texts: list[str]) -> bool:
    """Whether the last value of --speculative-config is an object as it stands, so that no piece of it can follow."""
    return bool(texts) and read_value(texts[-1]).content is not None


def _repeated(count: Counter[str], arguments: Arguments) -> None:
    for name, times in count.items():
        if times > 1 and name in KINDS and KINDS[name] != LIST and name not in arguments.dotted:
            severity = WARNING if name == _SPECULATIVE else INFO
            text = f"--{name} is given {times} times: only the last one counts"
            arguments.findings.append(Finding(severity, "option-repeated", text))
