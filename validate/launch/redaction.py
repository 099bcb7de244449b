"""Hide credentials in everything that leaves the package: argument values, environment, and texts quoting them."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

HIDDEN = "***"

# The last word of an option's or variable's name says that its value is a credential. Whole words: `--spec-tokens` and
# `--return-tokens-as-token-ids` are none.
_SECRET_WORDS = frozenset(
    (
        "key",
        "keys",
        "apikey",
        "token",
        "secret",
        "secrets",
        "password",
        "passwd",
        "passphrase",
        "credential",
        "credentials",
    )
)
_NOT_SECRET = frozenset(("--dataset-key", "--routing-key", "--session-key"))
# argparse accepts any unambiguous beginning of an option, so `--api-k` is `--api-key` too.
_ABBREVIATIONS = re.compile(r"--(api-k(e(y)?)?|hf-t(o(k(e(n)?)?)?)?)")
# Shapes that are credentials anywhere: Hugging Face, OpenAI-like, NVIDIA, GitHub, GitLab, Slack, AWS, JSON web tokens.
_TOKEN_SHAPES = re.compile(
    r"\b(?:hf_|sk-|nvapi-|ghp_|gho_|github_pat_|glpat-|xox[abprs]-)[A-Za-z0-9_\-]{8,}"
    r"|\bAKIA[0-9A-Z]{12,}|\beyJ[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-]+\.[A-Za-z0-9_\-]+"
)
_HEADER = re.compile(r"(?i)\b(authorization\s*[:=]\s*[\"']?\s*(?:bearer|basic|token)?\s*|bearer\s+)([^\s\"',}*]+)")
_URL_PASSWORD = re.compile(r"(?<=://)([^/\s:@]*):([^/\s@]+)@")
_OPTION_VALUE = re.compile(r"(--[A-Za-z][\w\-]*)(\s+)([^\s\-]\S*)")
_ASSIGNMENT = re.compile(
    r"(?i)(?<![\w-])((?:--)?[a-z0-9_\-]*(?:api[_-]?key|token|secret|password|passwd|passphrase|credentials?)[\"']?\s*[=:]\s*)"
    r"(\"[^\"]*\"|'[^']*'|[^\s\"',;}]+)"
)


def is_secret_option(option: str) -> bool:
    """Whether the option (`--api-key`, `--hf_token`, ...) carries a credential."""
    name = option.split("=", 1)[0].replace("_", "-").lower()
    if not name.startswith("--") or name in _NOT_SECRET:
        return False
    return name.split("-")[-1] in _SECRET_WORDS or _ABBREVIATIONS.fullmatch(name) is not None


def is_secret_variable(name: str) -> bool:
    """Whether an environment variable of this name (`HF_TOKEN`, `VLLM_API_KEY`, ...) carries a credential."""
    return name.lower().replace("-", "_").split("_")[-1] in _SECRET_WORDS


def secret_values(argv: Sequence[str], environment: Mapping[str, str]) -> tuple[str, ...]:
    """The credentials in an argument list and its environment, longest first.

    An option takes every word up to the next option: newer vLLM accepts several `--api-key` values in a row.
    """
    found = {value for name, value in environment.items() if is_secret_variable(name)}
    inside = False
    for word in argv:
        if word.startswith("-"):
            inside = is_secret_option(word)
            if inside and "=" in word:
                found.add(word.split("=", 1)[1])
                inside = False
        elif inside:
            found.add(word)
    usable = (value for value in found if value and not value.startswith("$") and value != HIDDEN)
    return tuple(sorted(usable, key=lambda value: (-len(value), value)))


def redact_argv(argv: Sequence[str], secrets: Iterable[str] = ()) -> list[str]:
    """The argument list with every credential replaced by `***`, positions kept."""
    secrets = tuple(secrets)
    shown: list[str] = []
    inside = False
    for word in argv:
        if word.startswith("-") and is_secret_option(word):
            inside = "=" not in word
            shown.append(word if inside else word.split("=", 1)[0] + "=" + HIDDEN)
        elif inside and not word.startswith("-"):
            shown.append(HIDDEN)
        else:
            inside = inside and not word.startswith("-")
            shown.append(redact_text(word, secrets))
    return shown


def redact_text(text: str, secrets: Iterable[str] = ()) -> str:
    """The text without the given credentials and without anything that has the shape of one."""
    for secret in secrets:
        # A short value such as "1" would blank out half of every text; the option's own value is hidden by position.
        if len(secret) >= len(HIDDEN):
            text = text.replace(secret, HIDDEN)
    text = _TOKEN_SHAPES.sub(HIDDEN, text)
    text = _HEADER.sub(lambda match: match[1] + HIDDEN, text)
    text = _URL_PASSWORD.sub(lambda match: f"{match[1]}:{HIDDEN}@", text)
    text = _OPTION_VALUE.sub(_hide_option_value, text)
    return _ASSIGNMENT.sub(_hide_assignment, text)


def _hide_option_value(match: re.Match[str]) -> str:
    return match[1] + match[2] + HIDDEN if is_secret_option(match[1]) and match[3][0] != "$" else match[0]


def _hide_assignment(match: re.Match[str]) -> str:
    name = match[1].rstrip(" =:\"'")
    plain = is_secret_option(name) if name.startswith("--") else is_secret_variable(name)
    value = match[2]
    return match[0] if not plain or value.startswith(("$", HIDDEN)) else match[1] + HIDDEN


def redact(value: Any, secrets: Iterable[str] = ()) -> Any:
    """The same structure of dicts, lists and strings with every string redacted."""
    secrets = tuple(secrets)
    if isinstance(value, str):
        return redact_text(value, secrets)
    if isinstance(value, dict):
        return {key: redact(item, secrets) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [redact(item, secrets) for item in value]
    return value
