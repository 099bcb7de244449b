"""The full account of one launch: engine, version, final argument list, settings, effective speculation, findings."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hwmodel.engine.versions import Version, parse_version, resolve_version
from hwmodel.errors import InputError
from validate.launch.arguments import Arguments, parse_vllm
from validate.launch.files import read_beside
from validate.launch.findings import ERROR, WARNING, Finding, Launch, MalformedSourceError
from validate.launch.json_value import UNKNOWN, holds_unknown
from validate.launch.performance import add_performance_findings
from validate.launch.program import SGLANG, VLLM, EngineCall, engine_call, image_version
from validate.launch.redaction import is_secret_option, redact, redact_argv, redact_text, secret_values
from validate.launch.settings import Settings, vllm_settings
from validate.launch.sglang_arguments import parse_sglang, sglang_settings, sglang_speculation
from validate.launch.speculative import Speculation, vllm_speculation


@dataclass(slots=True)
class Account:
    """What a launch starts, credentials hidden. `speculation` is None when off or broken, `version` when not stated.

    `speculation_written` is the same without the engine's defaults, None where `speculation` is; values that only the
    environment knows are left out of both.
    """

    name: str
    kind: str
    engine: str
    version: str | None
    argv: list[str]
    settings: Settings
    speculation: dict[str, Any] | None
    findings: list[Finding]
    speculation_written: dict[str, Any] | None = None
    notes: list[str] = field(default_factory=list)
    secrets: tuple[str, ...] = ()


def account_for(launch: Launch, version_elsewhere: str | None = None) -> Account:
    """The account of a launch whose argument list starts an engine.

    `version_elsewhere` is the engine's version as the user states it, for a launch that names none.
    """
    call = engine_call(launch.argv)
    assert call is not None  # `sources.find_launches` yields nothing else
    stated = launch.version or image_version(launch.image)
    version_text = stated or version_elsewhere
    version, notes = _version(call.engine, version_text)
    findings = list(launch.findings)
    argv = _with_config_file(launch, call, version if version_text else None, findings)
    words = argv[call.program_words :]
    if call.engine == SGLANG:
        settings, speculation = _sglang(words, findings)
        written = {key: value for key, value in (speculation or {}).items() if key == "model"}
    else:
        case = Speculation(launch.kind, version, version_text is not None, Settings())
        settings, speculation = _vllm(words, call, case, launch, findings)
        written = case.written
    secrets = secret_values(argv, launch.environment) + launch.secrets
    findings += _secrets_in_argv(argv)
    return Account(
        launch.name,
        launch.kind,
        call.engine,
        stated,
        redact_argv(argv, secrets),
        settings,
        _shown(speculation, secrets),
        [_redacted(finding, secrets) for finding in dict.fromkeys(findings)],
        None if speculation is None else _known(written, secrets),
        [redact_text(note, secrets) for note in dict.fromkeys((*launch.notes, *notes))],
        secrets,
    )


def _version(engine: str, text: str | None) -> tuple[Version, tuple[str, ...]]:
    """(version whose facts apply, notes where that is an assumption)."""
    try:
        if text is not None:
            parse_version(text)
        return resolve_version(engine, text)
    except InputError:
        return resolve_version(engine, None)


def _vllm(
    words: Sequence[str], call: EngineCall, case: Speculation, launch: Launch, findings: list[Finding]
) -> tuple[Settings, dict[str, Any] | None]:
    arguments = parse_vllm(words, case.version, is_serve=call.is_serve_command)
    settings = vllm_settings(arguments, launch.environment)
    case.settings = settings
    config = vllm_speculation(case, arguments)
    if config is not None:
        add_performance_findings(case, config)
    findings += [*arguments.findings, *settings.findings, *case.findings]
    findings += _missing_model(settings, call, arguments, launch)
    return settings, config


def _missing_model(settings: Settings, call: EngineCall, arguments: Arguments, launch: Launch) -> list[Finding]:
    if settings.model is not None or launch.kind == "value" or "config" in arguments.options:
        return []
    text = "no model is named: vLLM serves its default, Qwen/Qwen3-0.6B or facebook/opt-125m by version"
    return [
        Finding(WARNING, "model-missing", text, "vllm serve <model>" if call.is_serve_command else "--model <model>")
    ]


def _sglang(words: Sequence[str], findings: list[Finding]) -> tuple[Settings, dict[str, Any] | None]:
    arguments = parse_sglang(words)
    settings = sglang_settings(arguments)
    config = sglang_speculation(arguments, settings, arguments.findings)
    findings += [*arguments.findings, *settings.findings]
    return settings, config


def _with_config_file(launch: Launch, call: EngineCall, version: Version | None, findings: list[Finding]) -> list[str]:
    """The argument list with `--config FILE` replaced by the words of the file, put before those already there."""
    argv = list(launch.argv)
    words = argv[call.program_words :]
    if call.engine != VLLM:
        return argv
    attached = next((word for word in words if word.startswith("--config=")), None)
    if attached is not None:
        text = (
            f"{attached}: vLLM reads the file only when it stands as a word of its "
            "own; like this it is silently ignored"
        )
        findings.append(Finding(ERROR, "config-file-ignored", text, attached.replace("=", " ", 1)))
    if "--config" not in words:
        return argv
    position = words.index("--config")
    name = words[position + 1] if position + 1 < len(words) else ""
    text_of_file = read_beside(name, launch.folder) if name else None
    if text_of_file is None:
        text = (
            f"the --config file {name!r} cannot be read here: what it sets is unknown"
            if name
            else "--config names no file"
        )
        findings.append(Finding(WARNING if name else ERROR, "config-file-unreadable", text))
        return argv
    # Imported here alone: PyYAML costs start-up time, and most launches need none.
    from validate.launch.vllm_config import config_words

    try:
        added, faults = config_words(text_of_file, version)
    except MalformedSourceError as error:
        findings.append(Finding(ERROR, "config-file-malformed", f"--config {name}: {error}"))
        return argv
    findings += faults
    rest = words[:position] + words[position + 2 :]
    # The model comes first for `vllm serve`; the file's words follow it, so that the command line wins.
    model = 1 if call.is_serve_command and rest[:1] and not rest[0].startswith("-") else 0
    return [*argv[: call.program_words], *rest[:model], *added, *rest[model:]]


def _secrets_in_argv(argv: Sequence[str]) -> list[Finding]:
    options = dict.fromkeys(word.split("=", 1)[0] for word in argv if is_secret_option(word))
    return [
        Finding(
            WARNING,
            "secret-in-argv",
            f"{option} puts a credential on the command line, where every user of the machine can read it",
            "set it in the environment (VLLM_API_KEY, HF_TOKEN) instead",
        )
        for option in options
    ]


def _shown(speculation: dict[str, Any] | None, secrets: tuple[str, ...]) -> dict[str, Any] | None:
    if speculation is None:
        return None
    return {
        key: redact_text(value, secrets) if isinstance(value, str) else value
        for key, value in speculation.items()
        if value != UNKNOWN
    }


def _known(written: dict[str, Any], secrets: tuple[str, ...]) -> dict[str, Any]:
    known = {key: value for key, value in written.items() if not holds_unknown(value)}
    redacted: dict[str, Any] = redact(known, secrets)
    return redacted


def _redacted(finding: Finding, secrets: tuple[str, ...]) -> Finding:
    fix = None if finding.fix is None else redact_text(finding.fix, secrets)
    return replace(finding, message=redact_text(finding.message, secrets), fix=fix)
