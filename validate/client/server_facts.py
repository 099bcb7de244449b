"""What a server says about itself without being asked to compute anything."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from calibration.readers.metrics_pairs import Window, windows_of
from calibration.readers.sglang_metrics import num_steps
from calibration.readers.values import at, count, mapping, number, text
from calibration.readers.vllm_metrics import kv_cache_tokens, num_speculative_tokens
from hwmodel.errors import InputError
from simulator.deployment.keys import short
from validate.client.connection import Connection, Reply
from validate.client.faults import FaultError
from validate.client.scrapes import Counted

_MAX_NAMED = 8
# What makes two servers different for a measurement; where a run goes on, these must be the same.
IDENTITY = ("engine", "engine_version", "model", "num_speculative_tokens", "method", "kv_cache_tokens")


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """None: the server does not tell."""

    url: str
    model: str
    engine: str | None = None
    engine_version: str | None = None
    models: tuple[str, ...] = ()
    max_model_len: int | None = None
    num_speculative_tokens: int | None = None
    method: str | None = None
    kv_cache_tokens: float | None = None
    num_engines: int | None = None  # of data parallelism
    prefix_caching: bool | None = None
    start_time_s: float | None = None  # of its process, since 1970
    metrics_reason: str | None = None  # why there are no counters

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self) | {"models": list(self.models)}

    def differences(self, other: Mapping[str, Any]) -> list[str]:
        """Where a server told of earlier differs from this one in what matters for a measurement."""
        mine = self.to_dict()
        return [
            f"{name} was {other[name]}, is {mine[name]}"
            for name in IDENTITY
            if other.get(name) is not None and mine[name] is not None and other[name] != mine[name]
        ]


def read_facts(connection: Connection, counted: Counted, served_model: str | None) -> ServerFacts:
    """The facts; an `InputError` for a model that is not served, `FaultError` where the server does not answer."""
    models = connection.get("/v1/models")
    if models.fault is not None and models.status != 404:
        raise FaultError(models.fault)
    facts = _with_models(ServerFacts(connection.target.url, ""), models, served_model)
    facts = _with_version(facts, connection)
    return _with_counters(facts, counted)


def _with_models(facts: ServerFacts, reply: Reply, wanted: str | None) -> ServerFacts:
    listed = at(reply.json(), "data")
    items = [item for item in listed if isinstance(mapping(item).get("id"), str)] if isinstance(listed, list) else []
    base = [item for item in items if not item.get("parent")] or items
    names = tuple(item["id"] for item in items)
    if wanted is None and not names:
        raise InputError(f"{facts.url} lists no model, allowed: a server with /v1/models, or --served-model NAME")
    if wanted is not None and names and wanted not in names:
        shown = ", ".join(short(name) for name in names[:_MAX_NAMED])
        raise InputError(f"--served-model: got '{short(wanted)}', the server has: {shown}")
    chosen = next((item for item in items if item["id"] == wanted), base[0] if base and wanted is None else {})
    engine = {"vllm": "vllm", "sglang": "sglang"}.get(str(chosen.get("owned_by")))
    return replace(
        facts,
        model=wanted or chosen["id"],
        models=names[:_MAX_NAMED],
        engine=engine,
        max_model_len=count(chosen.get("max_model_len")),
    )


def _with_version(facts: ServerFacts, connection: Connection) -> ServerFacts:
    """vLLM's /version; SGLang's server info, with its settings of speculation."""
    version = text(at(connection.get("/version").json(), "version"))
    if version is not None and facts.engine != "sglang":
        return replace(facts, engine=facts.engine or "vllm", engine_version=version)
    for path in ("/server_info", "/get_server_info"):
        info = mapping(connection.get(path).json())
        if "speculative_algorithm" in info or "tp_size" in info:
            algorithm = text(info.get("speculative_algorithm"))
            return replace(
                facts,
                engine="sglang",
                engine_version=text(info.get("version")),
                method="none" if algorithm is None else algorithm.lower(),
                num_speculative_tokens=_sglang_k(info, algorithm),
            )
    return facts


def _sglang_k(info: Mapping[str, Any], algorithm: str | None) -> int | None:
    """Draft tokens of a chain; None for a tree."""
    if algorithm is None:
        return 0
    return count(info.get("speculative_num_steps")) if info.get("speculative_eagle_topk") in (None, 1) else None


def _with_counters(facts: ServerFacts, counted: Counted) -> ServerFacts:
    if counted.scrape is None:
        return replace(facts, metrics_reason=counted.reason)
    windows, _ = windows_of([counted.scrape])
    window = next((item for item in windows if item.model == facts.model), windows[0] if windows else None)
    facts = replace(facts, start_time_s=counted.scrape.start_time_s, engine=facts.engine or counted.engine)
    if window is None:
        return facts
    if window.engine == "sglang":
        told = facts.method is not None  # by the server's settings; of a tree these tell no k, and no counter does
        return facts if told else replace(facts, num_speculative_tokens=num_steps(window))
    k = num_speculative_tokens(window)
    return replace(
        facts,
        num_speculative_tokens=k,
        method="none" if k == 0 else facts.method,
        kv_cache_tokens=kv_cache_tokens(window),
        num_engines=_num_engines(window),
        prefix_caching=_prefix_caching(window),
    )


def _num_engines(window: Window) -> int | None:
    engines = window.by_label("vllm:generation_tokens_total", "engine")
    return len(engines) or None


def _prefix_caching(window: Window) -> bool | None:
    configs = [dict(labels) for labels in window.last.labelled("vllm:cache_config_info")]
    told = [config["enable_prefix_caching"] for config in configs if "enable_prefix_caching" in config]
    return told[0] == "True" if told else None


def kv_cache_of(facts: Mapping[str, Any]) -> float | None:
    """The size of the KV cache as told."""
    return number(facts.get("kv_cache_tokens"))
