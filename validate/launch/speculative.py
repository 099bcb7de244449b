"""The speculative configuration that vLLM of that version ends up with, and what is wrong with what was written."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from hwmodel.engine.keys import KEYS
from hwmodel.engine.versions import Version, format_version
from hwmodel.specs import Gpu
from validate.launch.arguments import Arguments
from validate.launch.findings import ERROR, WARNING, Finding, Place
from validate.launch.json_value import UNKNOWN, Reading, corrected, is_expanded, is_unresolved, read_value
from validate.launch.model_facts import ModelFacts, bundled_speculation
from validate.launch.settings import Settings
from validate.launch.speculative_defaults import fill_defaults
from validate.launch.speculative_keys import ALIASES, HYPHENS_FIRST, IGNORED_KEYS, INTERNAL_KEYS, USED_BY
from validate.launch.speculative_values import check_values
from validate.launch.systemd_words import excerpt
from validate.launch.vllm_options import FIRST, LEGACY, LEGACY_LAST

_OPTION = "speculative-config"
BUNDLED_FIRST: Version = (0, 10, 2)  # vllm/engine/arg_utils.py: maybe_override_with_speculators
_SPECULATOR_NAME = re.compile(r"speculator", re.IGNORECASE)


@dataclass(slots=True)
class Speculation:
    """The case while it is judged: where it was written, for which version, and the findings so far."""

    place: Place  # decides how a correction is written
    version: Version
    version_stated: bool
    settings: Settings
    findings: list[Finding] = field(default_factory=list)
    written: dict[str, Any] = field(default_factory=dict)  # as given: keys as the engine names them, no defaults
    options: Mapping[str, Any] = field(default_factory=dict)  # the other options of the launch
    gpu: Gpu | None = None
    model: ModelFacts = field(default_factory=ModelFacts)

    def add(self, severity: str, code: str, message: str, fix: str | None = None) -> None:
        """Record one finding."""
        self.findings.append(Finding(severity, code, message, fix))

    @property
    def label(self) -> str:
        """The version for messages, with a word when it is assumed."""
        return f"vLLM {format_version(self.version)}" + (
            "" if self.version_stated else " (assumed: the launch names no version)"
        )


def vllm_speculation(case: Speculation, arguments: Arguments) -> dict[str, Any] | None:
    """The effective configuration with that version's defaults, or None when off or when the value is broken."""
    bundled = _bundled(case, arguments)
    if bundled is not None:
        case.written = bundled
        return fill_defaults(case, bundled)
    written = _legacy(case, arguments)
    text = arguments.options.get(_OPTION)
    if isinstance(text, str):
        written = _json(case, text, arguments)
        if written is None and not _aliases_given(arguments):
            return None
    aliases = _with_aliases(case, dict(written or {}), arguments)
    if aliases is None:
        return None
    config = _normalised_keys(case, aliases)
    case.written = dict(config)
    _check_keys(case, config)
    check_values(case, config)
    return fill_defaults(case, config)


def _bundled(case: Speculation, arguments: Arguments) -> dict[str, Any] | None:
    """The speculation that the model's repository brings along; it takes the place of whatever the launch says."""
    name = case.settings.model
    if name is None or case.version < BUNDLED_FIRST:
        return None
    found = bundled_speculation(case.model.config, name)
    if found is None:
        if _SPECULATOR_NAME.search(name) and not case.model.config:
            text = (
                f"{name} looks like a speculators repository: its config.json then names the model that is served and "
                "switches speculation on by itself; give it with --model-config to be sure"
            )
            case.add(WARNING, "model-may-bring-speculation", text, "vllm serve <the model to be served>")
        return None
    text = (
        f"speculators_config in the config.json of {name} switches speculation on: {found.verifier} is served and "
        f"{name} drafts {found.config['num_speculative_tokens']} tokens with {found.config['method']}"
    )
    if _OPTION in arguments.options or _aliases_given(arguments):
        case.add(ERROR, "speculative-config-replaced", f"{text}; what the launch says about speculation is discarded")
    else:
        case.add(WARNING, "model-brings-speculation", text)
    case.settings.model = found.verifier
    return found.config


def _aliases_given(arguments: Arguments) -> bool:
    return any(name in arguments.options for name in ALIASES)


def _json(case: Speculation, text: str, arguments: Arguments) -> dict[str, Any] | None:
    """The object in the value of --speculative-config; findings say why there is none."""
    if text.strip() in ("", "None", "null"):
        case.add(
            ERROR,
            "speculative-config-empty",
            f"--speculative-config is {text!r}: vLLM reads that as none, speculation is silently off",
        )
        return None
    if is_unresolved(text):
        case.add(WARNING, "unresolved-variable", f"--speculative-config is {text}: its value is not known here")
        return None
    reading = read_value(text, arguments.after_speculative)
    if reading.content is None:
        pieces = arguments.speculative_texts
        if len(pieces) > 1 and all(is_expanded(piece) for piece in pieces):
            reading = read_value(pieces[0], pieces[1:])  # one unquoted {a,b} that the shell made several options of
        _broken(case, text, reading)
        return None
    if reading.unresolved:
        case.add(
            WARNING,
            "unresolved-variable",
            "the value of --speculative-config holds a variable that is not set in this text",
        )
    for name in reading.duplicates:
        case.add(WARNING, "json-duplicate-key", f"the key {name} stands twice in the JSON: the last one counts")
    if not reading.content and not _aliases_given(arguments):
        case.add(
            ERROR,
            "speculative-config-empty",
            "--speculative-config is {}: no speculation, or a refusal, but no drafting",
        )
        return None
    return reading.content


def _broken(case: Speculation, text: str, reading: Reading) -> None:
    fix = corrected(case.place, reading.meant) if reading.meant else None
    message = (
        f"--speculative-config reaches the engine as `{excerpt(text)}`: {reading.explanation}; vLLM stops at start"
    )
    case.add(ERROR, reading.code, message, fix)


def _legacy(case: Speculation, arguments: Arguments) -> dict[str, Any] | None:
    """The options of the first engine as today's keys; from 0.8.3 on they are unrecognised arguments."""
    if not arguments.legacy:
        return None
    config: dict[str, Any] = {}
    for name, value in arguments.legacy.items():
        key = LEGACY[name]
        if key is not None and value is not None:
            config[key] = int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else value
    if config.get("model") in ("[ngram]", "ngram"):
        config = {"method": "ngram"} | {key: value for key, value in config.items() if key != "model"}
    if case.version > LEGACY_LAST:
        names = ", ".join("--" + name for name in arguments.legacy)
        message = f"{case.label} stops at {names}: these options ended with 0.8.2, one JSON takes their place"
        case.add(ERROR, "legacy-option", message, corrected(case.place, config))
    return config


def _with_aliases(case: Speculation, config: dict[str, Any], arguments: Arguments) -> dict[str, Any] | None:
    """The configuration with --spec-method, --spec-model, --spec-tokens; None when there is nothing at all."""
    for option, key in ALIASES.items():
        if option not in arguments.options:
            continue
        value: Any = arguments.options[option]
        if key in config and case.version >= FIRST["--" + option]:
            message = f"--{option} and --speculative-config['{key}'] are mutually exclusive: {case.label} stops"
            case.add(ERROR, "spec-alias-conflict", message, f"leave out --{option}")
        if key == "num_speculative_tokens" and isinstance(value, str):
            value = int(value) if value.isascii() and value.isdigit() else UNKNOWN if "$" in value else value
        config[key] = value
    return config or None


def _normalised_keys(case: Speculation, config: dict[str, Any]) -> dict[str, Any]:
    """Hyphens in key names become underscores from 0.26 on; before, such a key is unknown."""
    result: dict[str, Any] = {}
    for key, value in config.items():
        name = key.replace("-", "_")
        if name != key and case.version < HYPHENS_FIRST and name in KEYS:
            message = (
                f"{case.label} knows no key '{key}': hyphens in keys are accepted from "
                f"{format_version(HYPHENS_FIRST)} on"
            )
            case.add(ERROR, "hyphenated-key", message, f'"{name}"')
        result[name] = value
    return result


def _check_keys(case: Speculation, config: dict[str, Any]) -> None:
    for key in config:
        if key == "tensor_parallel_size":
            message = (
                "'tensor_parallel_size' is not a valid argument in the speculative_config: "
                "pass 'draft_tensor_parallel_size'"
            )
            case.add(ERROR, "tensor-parallel-size-key", message, '"draft_tensor_parallel_size"')
        elif key in INTERNAL_KEYS:
            case.add(ERROR, "internal-key", f"'{key}' is set by the engine itself and cannot be given")
        elif key not in KEYS:
            _unknown_key(case, key, config)
        else:
            _version_of_key(case, key)
            _use_of_key(case, key, config)


def _unknown_key(case: Speculation, key: str, config: dict[str, Any]) -> None:
    legacy = LEGACY.get(key.replace("_", "-"))
    near = [legacy] if legacy else get_close_matches(key, KEYS, n=1)
    hint = f"; did you mean '{near[0]}'?" if near else ""
    fixed = {near[0] if near and name == key else name: value for name, value in config.items()}
    case.add(
        ERROR,
        "unknown-key",
        f"'{key[:60]}' is no key of the speculative config: {case.label} stops with "
        f"'Unexpected keyword argument'{hint}",
        corrected(case.place, fixed) if near else None,
    )


def _version_of_key(case: Speculation, key: str) -> None:
    first, last = KEYS[key]
    if first is not None and case.version < first:
        # A version read from an image tag is no proof: vendors and nightly images carry the next release's changes.
        near = case.version[:2] == (first[0], first[1] - 1)
        unless = ", unless the image carries later changes" if near else ""
        message = (
            f"'{key}' came with {format_version(first)}: {case.label} stops with 'Unexpected keyword argument'{unless}"
        )
        case.add(WARNING if near else ERROR, "key-not-in-version", message, f"leave out '{key}'")
    if last is not None and case.version > last:
        message = (
            f"'{key}' was removed after {last[0]}.{last[1]}: {case.label} stops with 'Unexpected keyword argument'"
        )
        case.add(ERROR, "key-not-in-version", message, f"leave out '{key}'")
    elif key in IGNORED_KEYS and case.version >= IGNORED_KEYS[key][0]:
        case.add(WARNING, "key-ignored", f"'{key}' is accepted and ignored by {case.label}: {IGNORED_KEYS[key][1]}")


def _use_of_key(case: Speculation, key: str, config: dict[str, Any]) -> None:
    users = USED_BY.get(key)
    method = config.get("method")
    if users and isinstance(method, str) and method not in users:
        case.add(
            WARNING,
            "key-ignored",
            f"'{key}' has no effect with method '{method[:40]}' (it belongs to {', '.join(sorted(users))})",
        )
