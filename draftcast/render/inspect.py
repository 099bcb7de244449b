"""`draftcast inspect` for a human reader."""

import json
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from draftcast.render.numbers import UNDEFINED, counted
from draftcast.render.page import Page

_RANK = {"error": 0, "warning": 1, "info": 2}
_SETTINGS = (
    ("tensor_parallel_size", "TP"), ("pipeline_parallel_size", "PP"), ("data_parallel_size", "DP"),
    ("expert_parallel", "expert parallel"), ("decode_context_parallel_size", "DCP"),
    ("max_model_len", "max_model_len"), ("max_num_seqs", "max_num_seqs"),
    ("max_num_batched_tokens", "max_num_batched_tokens"), ("gpu_memory_utilization", "gpu_memory_utilization"),
    ("kv_cache_dtype", "KV cache"), ("attention_backend", "attention backend"), ("enforce_eager", "enforce_eager"),
    ("async_scheduling", "asynchronous scheduling"), ("model_runner", "model runner"),
    ("uniform_decode_graph", "graph of a decode step"),
)  # fmt: skip
_USUAL = {"pipeline_parallel_size": 1, "data_parallel_size": 1, "expert_parallel": False,
          "decode_context_parallel_size": 1, "enforce_eager": False}  # fmt: skip
_CLIENTS = "client-"


def render(result: Mapping[str, Any], page: Page) -> None:
    """The answer in a sentence; with NEW what changes; then launch by launch what reaches the engine."""
    if "changes" in result:
        _comparison(result, page)
    launches = result["launches"]
    if not launches:
        page.headline("No launch could be read.")
        _findings(result["findings"], page)
        return
    if "changes" not in result:
        page.headline(_sentence(launches))
    for launch in launches:
        if len(launches) > 1 or "changes" in result:
            page.heading(f"{launch['name']}{' (new)' if 'changes' in result else ''}")
        _launch(launch, page)
    inside = sum(len(launch["findings"]) for launch in launches[:1])
    _findings(result["findings"][inside:], page)


def _sentence(launches: list[Mapping[str, Any]]) -> str:
    if len(launches) == 1:
        return f"{_engine(launches[0])}: {_state(launches[0])}."
    return f"{len(launches)} launches. " + " ".join(f"{launch['name']}: {_state(launch)}." for launch in launches)


def _engine(launch: Mapping[str, Any]) -> str:
    return f"{launch['engine']} {launch['version'] or '(version not told)'}"


def _state(launch: Mapping[str, Any]) -> str:
    """Whether it speculates, and whether it starts at all."""
    broken = next((finding for finding in launch["findings"] if finding["severity"] == "error"), None)
    if broken:
        return f"not as it is written ({broken['code']})"
    config = launch["speculative_config"]
    if config is None:
        reason = launch.get("speculative_config_reason", "")
        return "speculation is not known" if reason.startswith("unknown") else "speculation is off"
    method = config.get("method") or config.get("method_family") or "a method that is not told"
    return f"speculation is on, {method} with {counted(config.get('num_speculative_tokens'), 'draft token')}"


def _comparison(result: Mapping[str, Any], page: Page) -> None:
    page.headline(result["verdict"])
    if not result["changes"]:
        return
    several = len({change["launch"] for change in result["changes"]}) > 1
    rows = [
        (
            f"{change['launch']}: {change['key']}" if several else change["key"],
            _shown(change["old"]),
            _shown(change["new"]) + (" (follows)" if change["is_consequence"] else ""),
        )
        for change in result["changes"]
    ]
    page.words(("what changes for the engine", "now", "after the restart"), rows)


def _launch(launch: Mapping[str, Any], page: Page) -> None:
    page.text(f"model {launch['model'] or 'not named'}; read as {launch['source_kind']}")
    if launch["argv"]:
        page.text("What reaches the engine:")
        page.verbatim(shlex.join(launch["argv"]))
    rows = [(title, _setting(launch, key)) for key, title in _SETTINGS if _is_shown(launch, key)]
    rows += [(f"${name}", str(value)) for name, value in launch["environment"].items()]
    page.words(("setting", "value"), rows)
    _speculation(launch, page)
    _server(launch.get("server"), page)
    findings = launch["findings"]
    _findings([finding for finding in findings if not finding["code"].startswith(_CLIENTS)], page)
    clients = [finding["message"] for finding in findings if finding["code"].startswith(_CLIENTS)]
    page.section("What changes for clients", clients)


def _is_shown(launch: Mapping[str, Any], key: str) -> bool:
    """Settings that are known and say something, and those whose value only the environment knows."""
    value = launch[key]
    if value is None:
        return "$" in launch.get(f"{key}_reason", "")
    return key not in _USUAL or value != _USUAL[key]


def _setting(launch: Mapping[str, Any], key: str) -> str:
    value = launch[key]
    text = launch.get(f"{key}_reason", UNDEFINED) if value is None else _shown(value)
    why = launch.get("inferred", {}).get(key)
    return f"{text} (inferred: {why})" if why else text


def _speculation(launch: Mapping[str, Any], page: Page) -> None:
    config = launch["speculative_config"]
    inferred = launch.get("inferred", {})
    if config is None:
        why = launch.get("speculative_config_reason")
        page.section("Speculation", [why] if why else [])
        return
    rows = []
    for key, value in config.items():
        why = inferred.get(f"speculative_config.{key}")
        rows.append((key, f"{_shown(value)} (inferred: {why})" if why else _shown(value)))
    page.words(("speculative config", "after defaults"), rows)


def _server(state: Mapping[str, Any] | None, page: Page) -> None:
    """What a running server shows of its load and its acceptance."""
    if not state:
        return
    lines = []
    if state.get("kv_cache_tokens"):
        lines.append(f"KV cache {counted(state['kv_cache_tokens'], 'token')}")
    if state.get("num_requests_running") is not None:
        waiting = state.get("num_requests_waiting")
        lines.append(f"{state['num_requests_running']:.0f} requests running, {waiting or 0:.0f} waiting")
    if state.get("mean_accepted_length"):
        drafts = state["acceptance_counters"]["num_drafts"]
        lines.append(f"{state['mean_accepted_length']:.2f} tokens per draft over {drafts:,.0f} drafts since its start")
    page.section("The server now", lines)


def _findings(findings: Iterable[Mapping[str, Any]], page: Page) -> None:
    ordered = sorted(findings, key=lambda finding: _RANK[finding["severity"]])
    if not ordered:
        return
    page.heading("Findings")
    for finding in ordered:
        page.bullets([f"{finding['severity']} [{finding['code']}]: {finding['message']}"])
        if finding["fix"]:
            page.verbatim(f"write: {finding['fix']}")


def _shown(value: Any) -> str:
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return "on" if value else "off"
    return json.dumps(value) if isinstance(value, dict | list) else str(value)
