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
        "cred",
        "creds",
        "signature",
        "sig",
        "auth",
        "pass",
        "pwd",
        "pat",
    )
)
# Of two words at least, so that "key: value" of any text stays: `api_key`, `accessKey`, `x-account-key`.
_KEY_WORDS = frozenset(("key", "keys"))
_NOT_SECRET = frozenset(("--dataset-key", "--routing-key", "--session-key"))
_NO_CREDENTIALS = frozenset(("PWD",))  # every shell's folder
# argparse accepts any unambiguous beginning of an option, so `--api-k` is `--api-key` too.
_ABBREVIATIONS = re.compile(r"--(api-k(e(y)?)?|hf-t(o(k(e(n)?)?)?)?)")
# Shapes that are credentials anywhere: Hugging Face, OpenAI-like, NVIDIA, GitHub, GitLab, Slack, Groq, npm, PyPI, AWS,
# Google, JSON web tokens.
_TOKEN_SHAPES = re.compile(
    r"\b(?:hf_|sk-|nvapi-|gh[oprsu]_|github_pat_|glpat-|xox[abeprs]-|xapp-|gsk_|npm_|pypi-)[A-Za-z0-9_\-]{8,}"
    r"|\b(?:AKIA|ASIA)[0-9A-Z]{12,}|\bAIza[A-Za-z0-9_\-]{30,}|\beyJ[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-]+\.[A-Za-z0-9_\-]+"
)
_HEADER = re.compile(r"(?i)\b(authorization\s*[:=]\s*[\"']?\s*(?:bearer|basic|token)?\s*|bearer\s+)([^\s\"',}*]+)")
# Up to the last @ of the authority: a password may hold one. A user alone is often a token (`https://TOKEN@host`).
_URL_USER = re.compile(r"(?<=://)(?:([^/\s:@]*):([^/\s\"']+)|[^/\s:@\"',]+)@(?!sha256:)")
_OPTION_VALUE = re.compile(r"(--[A-Za-z][\w\-]*)(\s+)([^\s\-]\S*)")
_ASSIGNMENT = re.compile(
    rf"(?i)(?<![\w-])((?:--)?((?:[a-z][\w\-.]{{0,99}}?)?(?:{'|'.join(sorted(_SECRET_WORDS))})[_\-\d]*)"
    r"\\?[\"']?\s*[=:]\s*)(\"[^\"]*\"|'[^']*'|\\\"[^\"]*\"|[^\s\"',;}]+)"
)
_WORD_ENDS = re.compile(r"[_\-.]+|(?<=[a-z0-9])(?=[A-Z])")


def is_secret_option(option: str) -> bool:
    """Whether the option (`--api-key`, `--hf_token`, ...) carries a credential."""
    name = option.split("=", 1)[0].replace("_", "-").lower()
    if not name.startswith("--") or name in _NOT_SECRET:
        return False
    return name.split("-")[-1] in _SECRET_WORDS or _ABBREVIATIONS.fullmatch(name) is not None


def is_secret_variable(name: str) -> bool:
    """Whether an environment variable of this name (`HF_TOKEN`, `VLLM_API_KEY_2`, ...) carries a credential."""
    words = _words(name)
    return bool(words) and words[-1] in _SECRET_WORDS and name not in _NO_CREDENTIALS


def is_secret_key(name: str) -> bool:
    """Whether a key of JSON or a name in any text (`authToken`, `aws_secret_access_key`) carries a credential."""
    words = _words(name)
    if "--" + "-".join(words) in _NOT_SECRET:
        return False
    return is_secret_variable(name) and (words[-1] not in _KEY_WORDS or len(words) > 1)


def _words(name: str) -> list[str]:
    """Lower-case words of a name in any spelling; numbers at its end do not count.

    >>> _words("clientSecret"), _words("VLLM_API_KEY_2"), _words("x-auth-token")
    (['client', 'secret'], ['vllm', 'api', 'key'], ['x', 'auth', 'token'])
    """
    words = [word.lower() for word in _WORD_ENDS.split(name) if word]
    while words and words[-1].isdigit():
        words.pop()
    return words


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
        found.update(_assigned(word))
    usable = (value for value in found if value and not value.startswith("$") and value != HIDDEN)
    return tuple(sorted(usable, key=lambda value: (-len(value), value)))


def _assigned(word: str) -> list[str]:
    """Credentials inside one word: values of JSON or of `NAME=value`."""
    return [match[3].strip("\\\"'") for match in _ASSIGNMENT.finditer(word) if is_secret_key(match[2])]


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
    text = _URL_USER.sub(lambda match: f"{HIDDEN}@" if match[2] is None else f"{match[1]}:{HIDDEN}@", text)
    text = _OPTION_VALUE.sub(_hide_option_value, text)
    return _ASSIGNMENT.sub(_hide_assignment, text)


def _hide_option_value(match: re.Match[str]) -> str:
    return match[1] + match[2] + HIDDEN if is_secret_option(match[1]) and match[3][0] != "$" else match[0]


def _hide_assignment(match: re.Match[str]) -> str:
    option = "--" + match[2]
    plain = is_secret_option(option) if match[1].startswith("--") else is_secret_key(match[2])
    value = match[3]
    return match[0] if not plain or value.startswith(("$", HIDDEN)) else match[1] + HIDDEN


def redact(value: Any, secrets: Iterable[str] = ()) -> Any:
    """The same structure of dicts, lists and strings with every string redacted."""
    secrets = tuple(secrets)
    if isinstance(value, str):
        return redact_text(value, secrets)
    if isinstance(value, dict):
        return {
            key: HIDDEN if isinstance(item, str) and is_secret_key(str(key)) else redact(item, secrets)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [redact(item, secrets) for item in value]
    return value
