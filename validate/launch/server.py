"""The account of a running server, from what it answers to GET requests: nothing is sent to be computed.

Some facts are told (/version, /v1/models, /server_info), others follow from the counters of /metrics; the latter are
marked as inferred. Sources: vLLM 0.8.5 ... 0.33 (entrypoints, v1/metrics), SGLang 0.5.5 and 0.5.23.
"""

from dataclasses import dataclass, field
from typing import Any

from calibration.readers.metrics_pairs import Window
from calibration.readers.vllm_metrics import kv_cache_tokens
from hwmodel.engine.versions import parse_version
from hwmodel.errors import InputError
from validate.client.connection import Connection, Reply
from validate.client.target import target_with
from validate.launch.account import SERVER, Account, facts_version
from validate.launch.counters import Drafting, drafting_of, has_series, inferred_speculation, metrics_of
from validate.launch.engine_facts import Case, engine_facts, engine_method
from validate.launch.findings import INFO, Finding
from validate.launch.known import API_KEY_VARIABLE, NOTHING, Known
from validate.launch.model_facts import model_facts
from validate.launch.program import SGLANG, VLLM
from validate.launch.redaction import redact
from validate.launch.server_info import Told, sglang_told, vllm_told
from validate.launch.settings import Settings

_MAX_DIGITS = 9
_NOT_THERE = (404, 405)  # an address that this server does not have: the others tell what it is
_INFO_TIMEOUT_S = 30.0  # vLLM collects facts about its machine on the first call


@dataclass(slots=True)
class _Server:
    """The answers of one server while they are put together."""

    url: str
    version: Reply
    models: Reply
    metrics: Window
    metrics_fault: str
    told: Told | None
    notes: list[str] = field(default_factory=list)


def account_of_server(url: str, api_key: str | None = None, known: Known = NOTHING) -> Account:
    """The account of the server at the URL; InputError where none answers, or one that is neither vLLM nor SGLang."""
    server = _asked(Connection(target_with(url, api_key)))
    engine = _engine(server)
    if engine is None:
        raise InputError(f"{server.url}: answers, but is neither vLLM nor SGLang by /v1/models and /metrics")
    version = known.version or _version(server)
    told = server.told or Told(Settings())
    settings, inferred = told.settings, dict(told.inferred)
    _model(server, settings)
    _cache(server.metrics, settings)
    _replicas(server.metrics, settings, inferred)
    drafting = drafting_of(server.metrics)
    speculation = told.speculation
    if not told.has_speculation:
        speculation, reasons = inferred_speculation(drafting, facts_version(engine, version)[0])
        inferred |= reasons
    account = Account(
        name=server.url,
        kind=SERVER,
        engine=engine,
        version=version,
        argv=[],
        settings=settings,
        speculation=redact(speculation),
        findings=[],
        speculation_written=None,
        notes=server.notes,
        stated_version=version,
        inferred=inferred,
        model=model_facts(settings.model, known.model, is_local=False),
        server=_snapshot(server.metrics, drafting, engine),
    )
    _judge(account, known, server.told is not None)
    return account


def _asked(connection: Connection) -> _Server:
    """What the server answers; InputError where it does not answer at all, or only with a refusal."""
    shown = connection.target.url
    models = connection.get("/v1/models")
    if models.fault is not None and models.status == 0:
        said = models.fault.message
        where = "" if shown in said else f"{shown}: "
        raise InputError(f"{where}{said}; allowed: the base URL of a running vLLM or SGLang server")
    version, metrics = connection.get("/version"), connection.get("/metrics")
    if models.is_unauthorized and not metrics.is_ok and not version.is_ok:
        raise InputError(
            f"{shown}: HTTP {models.status}, it tells nothing without its API key; allowed: the key in the environment "
            f"variable {API_KEY_VARIABLE}"
        )
    if models.fault is not None and models.status not in _NOT_THERE and not metrics.is_ok and not version.is_ok:
        raise InputError(f"{shown}: {models.fault.message}; allowed: a running vLLM or SGLang server")
    server = _Server(shown, version, models, metrics_of(metrics.text, shown), _fault(metrics), None)
    if models.is_unauthorized:
        server.notes.append(f"/v1/models answers HTTP {models.status}: without an API key the model is not told")
    server.told = _server_info(connection)
    if server.metrics_fault:
        server.notes.append(f"/metrics is not there ({server.metrics_fault}): what follows from counters is unknown")
    elif not server.metrics.last.samples:
        server.notes.append("/metrics answers, but holds no series of an engine")
    return server


def _fault(reply: Reply) -> str:
    if reply.fault is None:
        return ""
    return f"HTTP {reply.status}" if reply.status else reply.fault.message


def _server_info(connection: Connection) -> Told | None:
    """What a server in development mode (vLLM), or any SGLang, tells about its own configuration."""
    for path in ("/server_info?config_format=json", "/get_server_info"):
        content = connection.get(path, _INFO_TIMEOUT_S).json()
        if isinstance(content, dict) and "vllm_config" in content:
            return vllm_told(content)
        if isinstance(content, dict) and "model_path" in content:
            return sglang_told(content)
    return None


def _engine(server: _Server) -> str | None:
    if server.told is not None:
        return server.told.engine
    for engine in (VLLM, SGLANG):
        if has_series(server.metrics.last, f"{engine}:"):
            return engine
    owner = _model_entry(server).get("owned_by")
    if owner in (VLLM, SGLANG):
        return str(owner)
    answer = server.version.json()
    return VLLM if isinstance(answer, dict) and isinstance(answer.get("version"), str) else None


def _model_entry(server: _Server) -> dict[str, Any]:
    """The first model that /v1/models lists which is no adapter of another."""
    answer = server.models.json()
    entries = answer.get("data") if isinstance(answer, dict) else None
    found = [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    return next((entry for entry in found if not entry.get("parent")), found[0] if found else {})


def _version(server: _Server) -> str | None:
    if server.told is not None and server.told.version:
        return server.told.version
    answer = server.version.json()
    text = answer.get("version") if isinstance(answer, dict) else None
    try:
        return text if isinstance(text, str) and parse_version(text) else None
    except InputError:
        server.notes.append("/version answers with no version number")
        return None


def _model(server: _Server, settings: Settings) -> None:
    entry = _model_entry(server)
    name = entry.get("root") or entry.get("id")
    if settings.model is None and isinstance(name, str):
        settings.model = redact(name)
    length = entry.get("max_model_len")
    if settings.max_model_len is None and isinstance(length, int) and length > 0:
        settings.max_model_len = length


def _cache(metrics: Window, settings: Settings) -> None:
    """What the labels of vllm:cache_config_info say."""
    for pairs in list(metrics.last.labelled("vllm:cache_config_info"))[:1]:
        labels = dict(pairs)
        dtype = labels.get("cache_dtype")
        settings.kv_cache_dtype = settings.kv_cache_dtype or (dtype if dtype not in (None, "auto", "None") else None)
        block = labels.get("block_size", "")
        is_size = block.isascii() and block.isdigit() and 0 < len(block) < _MAX_DIGITS
        settings.block_size = settings.block_size or (int(block) if is_size else None) or None
        try:
            share = float(labels.get("gpu_memory_utilization", ""))
        except ValueError:
            continue
        settings.gpu_memory_utilization = settings.gpu_memory_utilization or (share if 0 < share <= 1 else None)


def _replicas(metrics: Window, settings: Settings, inferred: dict[str, str]) -> None:
    engines = metrics.by_label("vllm:num_requests_running", "engine")
    if settings.data_parallel_size is None and len(engines) > 1:
        settings.data_parallel_size = len(engines)
        inferred["data_parallel_size"] = f"{len(engines)} engines are counted in /metrics"


def _snapshot(metrics: Window, drafting: Drafting, engine: str) -> dict[str, Any]:
    """The state of the server that a deployment may need: its cache, its load, its acceptance since its start."""
    running = metrics.last.value(f"{engine}:num_requests_running")
    return {
        "kv_cache_tokens": kv_cache_tokens(metrics),
        "num_requests_running": metrics.last.value("sglang:num_running_reqs") if running is None else running,
        "num_requests_waiting": metrics.last.value(f"{engine}:num_requests_waiting"),
        "start_time_s": metrics.last.start_time_s,
        "acceptance_counters": drafting.counters(),
        "mean_accepted_length": drafting.mean_accepted_length,
    }


def _judge(account: Account, known: Known, tells_settings: bool) -> None:
    """Engine facts where the server tells the settings they follow from, and what it keeps to itself as findings."""
    if account.engine == VLLM and tells_settings:
        method = engine_method(account.speculation)
        length = (account.speculation or {}).get("num_speculative_tokens")
        if account.speculation is None and "speculative_config" not in account.inferred:
            length = 0
        if method is not None and (account.speculation is None or isinstance(length, int)):
            version = facts_version(VLLM, account.version)[0]
            shape = account.model.shape
            account.facts = engine_facts(Case(version, account.settings, method, length or 0, known.gpu, shape))
    if account.speculation is not None and account.speculation.get("method") is None:
        text = "the server does not tell the method of speculation; inferred from its counters: " + str(
            account.speculation.get("method_family")
        )
        fix = "VLLM_SERVER_DEV_MODE=1 makes it answer /server_info (not on a network that others can reach)"
        account.findings.append(Finding(INFO, "method-not-told", text, fix if account.engine == VLLM else None))
