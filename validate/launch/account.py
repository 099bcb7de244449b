"""The full account of one launch: engine, version, final argument list, settings, effective speculation, findings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hwmodel.engine.clients import effects_on_clients
from hwmodel.engine.versions import Version, parse_version, resolve_version
from hwmodel.errors import InputError
from hwmodel.gpus import load_gpu
from hwmodel.specs import Gpu
from validate.launch.arguments import Arguments, parse_vllm
from validate.launch.config_file import with_config_file
from validate.launch.engine_facts import Case, EngineFacts, engine_facts, engine_method
from validate.launch.findings import WARNING, Finding, Launch
from validate.launch.json_value import UNKNOWN, holds_unknown, is_unresolved
from validate.launch.known import NOTHING, Known
from validate.launch.model_facts import ModelFacts, model_facts
from validate.launch.performance import add_performance_findings
from validate.launch.program import SGLANG, EngineCall, engine_call, image_version
from validate.launch.redaction import is_secret_option, redact, redact_argv, redact_text, secret_values
from validate.launch.refusals import add_refusals
from validate.launch.settings import Settings, vllm_settings
from validate.launch.sglang_arguments import parse_sglang, sglang_settings, sglang_speculation
from validate.launch.speculative import Speculation, vllm_speculation
from validate.launch.unshelled import unshelled_findings

SERVER = "server"  # the kind of an account that a running server gave, which knows no argument list
# Variables that change how an engine runs; the others of an environment are nobody's business here.
RELEVANT_PREFIXES = ("VLLM_", "SGLANG_", "NCCL_", "CUDA_", "HIP_", "ROCR_", "TORCH_", "PYTORCH_", "FLASHINFER_", "RAY_")


@dataclass(slots=True)
class Account:
    """What a launch starts, credentials hidden. `speculation` is None when off or broken, `version` when not known.

    `speculation_written` is the same without the engine's defaults, None where `speculation` is; values that only the
    environment knows are left out of both. `stated_version` is what the launch itself says, `options` are the options
    that take effect by their full names, `inferred` says of a fact why it is taken for one.
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
    stated_version: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    facts: EngineFacts | None = None
    model: ModelFacts = field(default_factory=ModelFacts)
    inferred: dict[str, str] = field(default_factory=dict)
    server: dict[str, Any] | None = None  # the state of a running one: cache, load, acceptance counters


@dataclass(slots=True)
class _Reading:
    """What the words of one engine came to."""

    settings: Settings
    speculation: dict[str, Any] | None
    written: dict[str, Any]
    options: dict[str, Any]
    facts: EngineFacts | None = None


def account_for(launch: Launch, known: Known = NOTHING) -> Account:
    """The account of a launch whose argument list starts an engine; `known` is what the user says beside it."""
    call = engine_call(launch.argv)
    assert call is not None  # `sources.find_launches` yields nothing else
    stated = launch.version or image_version(launch.image)
    version_text = known.version or stated
    version, notes = facts_version(call.engine, version_text)
    if known.version and stated and known.version != stated:
        notes = (*notes, f"the launch itself says {call.engine} {stated}; {known.version} is taken as stated")
    findings = [*launch.findings, *unshelled_findings(launch)]
    argv = with_config_file(launch, call, version if version_text else None, findings)
    words = argv[call.program_words :]
    if call.engine == SGLANG:
        model = ModelFacts()
        reading = _sglang(words, version, findings)
    else:
        gpu = known.gpu or _cpu_of(version_text)
        case = Speculation(launch.place, version, version_text is not None, Settings(), gpu=gpu)
        reading = _vllm(words, call, case, launch, known)
        findings += case.findings
        model = case.model
    findings += _client_findings(call.engine, version, reading)
    secrets = secret_values(argv, launch.environment) + launch.secrets
    findings += _secrets_in_argv(argv)
    return Account(
        name=launch.name,
        kind=launch.kind,
        engine=call.engine,
        version=version_text,
        argv=redact_argv(argv, secrets),
        settings=reading.settings,
        speculation=_shown(reading.speculation, secrets),
        findings=[_redacted(finding, secrets) for finding in dict.fromkeys(findings)],
        speculation_written=None if reading.speculation is None else _known(reading.written, secrets),
        notes=[redact_text(note, secrets) for note in dict.fromkeys((*launch.notes, *notes))],
        secrets=secrets,
        stated_version=stated,
        options=_without_secrets(reading.options, secrets),
        environment=_relevant(launch.environment, secrets),
        facts=reading.facts,
        model=model,
        inferred=_unread_speculation(reading),
    )


def _cpu_of(version: str | None) -> Gpu | None:
    """The CPU card for a build that says that it is one (`0.32.0+cpu`): graphs, runner and scheduling are a CPU's."""
    return load_gpu("cpu-2core") if (version or "").strip().lower().endswith("+cpu") else None


def _unread_speculation(reading: _Reading) -> dict[str, str]:
    """Why there is no speculative configuration although the launch gives one; empty where it is simply off."""
    text = reading.options.get("speculative-config")
    if reading.speculation is not None or not isinstance(text, str):
        return {}
    if is_unresolved(text):
        return {"speculative_config": "unknown: only the environment knows the value of --speculative-config"}
    return {"speculative_config": "unusable: what reaches the engine is no configuration, see the findings"}


def facts_version(engine: str, text: str | None) -> tuple[Version, tuple[str, ...]]:
    """(version whose facts apply, notes where that is an assumption); a text that is no version counts as none."""
    try:
        if text is not None:
            parse_version(text)
        return resolve_version(engine, text)
    except InputError:
        return resolve_version(engine, None)


def _vllm(words: Sequence[str], call: EngineCall, case: Speculation, launch: Launch, known: Known) -> _Reading:
    arguments = parse_vllm(words, case.version, is_serve=call.is_serve_command, place=launch.place)
    settings = vllm_settings(arguments, launch.environment, case.version)
    case.settings, case.options = settings, arguments.options
    case.model = model_facts(settings.model, known.model, launch.folder, launch.root)
    case.findings += [*arguments.findings, *settings.findings]
    config = vllm_speculation(case, arguments)
    if config is not None:
        add_performance_findings(case, config)
        add_refusals(case, config)
    case.findings += _missing_model(settings, call, arguments, launch)
    return _Reading(settings, config, case.written, arguments.options, _facts(case, config))


def _facts(case: Speculation, config: dict[str, Any] | None) -> EngineFacts | None:
    method = engine_method(config)
    length = (config or {}).get("num_speculative_tokens")
    if method is None or (config is not None and not isinstance(length, int)):
        return None
    parallel = (config or {}).get("parallel_drafting") is True
    return engine_facts(Case(case.version, case.settings, method, length or 0, case.gpu, case.model.shape, parallel))


def _missing_model(settings: Settings, call: EngineCall, arguments: Arguments, launch: Launch) -> list[Finding]:
    if settings.model is not None or launch.kind == "value" or "config" in arguments.options:
        return []
    text = "no model is named: vLLM serves its default, Qwen/Qwen3-0.6B or facebook/opt-125m by version"
    return [
        Finding(WARNING, "model-missing", text, "vllm serve <model>" if call.is_serve_command else "--model <model>")
    ]


def _sglang(words: Sequence[str], version: Version, findings: list[Finding]) -> _Reading:
    arguments = parse_sglang(words)
    settings = sglang_settings(arguments)
    config = sglang_speculation(arguments, settings, version)
    findings += [*arguments.findings, *settings.findings]
    written = {key: value for key, value in (config or {}).items() if key == "model"}
    return _Reading(settings, config, written, arguments.options)


def _client_findings(engine: str, version: Version, reading: _Reading) -> list[Finding]:
    """What clients of the server notice of the speculation that is on."""
    method = engine_method(reading.speculation)
    if reading.speculation is None or method is None:
        return []
    runner = (reading.facts.model_runner if reading.facts else None) or "v1"
    given = reading.settings.max_num_seqs is not None
    return [
        Finding(effect.severity, effect.code, effect.text)
        for effect in effects_on_clients(engine, version, method, runner)
        if effect.code and not (given and effect.code == "client-running-requests")
    ]


def _secrets_in_argv(argv: Sequence[str]) -> list[Finding]:
    options = dict.fromkeys(word.split("=", 1)[0] for word in argv if is_secret_option(word))
    return [
        Finding(
            WARNING,
            "secret-in-argv",
            f"a credential stands on the command line, where every user of the machine can read it: {option}",
            "set it in the environment (VLLM_API_KEY, HF_TOKEN) instead",
        )
        for option in options
    ]


def _relevant(environment: Mapping[str, str], secrets: tuple[str, ...]) -> dict[str, str]:
    """The variables that change how the engine runs, credentials hidden."""
    kept = {name: value for name, value in sorted(environment.items()) if name.startswith(RELEVANT_PREFIXES)}
    redacted: dict[str, str] = redact(kept, secrets)
    return {name: value for name, value in redacted.items() if kept[name] not in secrets}


def _without_secrets(options: dict[str, Any], secrets: tuple[str, ...]) -> dict[str, Any]:
    redacted: dict[str, Any] = redact(
        {name: value for name, value in options.items() if not is_secret_option("--" + name)}, secrets
    )
    return redacted


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
