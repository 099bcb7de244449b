"""What changes for the engine between two launches: compared after defaults, so that spelling does not count.

A change that nothing in either launch states is a consequence of another one, such as asynchronous scheduling that
goes off with a method of speculation.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hwmodel.engine.limits import default_memory_share
from validate.launch.account import SERVER, Account, facts_version
from validate.launch.findings import first_error, one_line
from validate.launch.json_value import read_value
from validate.launch.vllm_options import FLAG, KINDS

_GROUPS = {
    "model": ("model",),
    "engine": ("engine", "version"),
    "parallelism": (
        "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "expert_parallel",
        "decode_context_parallel_size",
    ),
    "limits": ("max_model_len", "max_num_seqs", "max_num_batched_tokens"),
    "memory": ("gpu_memory_utilization", "kv_cache_dtype", "block_size"),
    "graphs": (
        "enforce_eager", "cudagraph_mode", "cudagraph_capture_sizes", "max_cudagraph_capture_size",
        "uniform_decode_graph", "mixed_decode_graph",
    ),
    "scheduling": ("async_scheduling", "model_runner", "attention_backend"),
}  # fmt: skip
_GROUP_OF = {key: group for group, keys in _GROUPS.items() for key in keys}
_DEFAULTS: dict[str, Any] = {
    "tensor_parallel_size": 1, "pipeline_parallel_size": 1, "data_parallel_size": 1, "expert_parallel": False,
    "decode_context_parallel_size": 1, "enforce_eager": False, "kv_cache_dtype": "auto",
}  # fmt: skip
_ENGINE_VARIABLES = ("VLLM_", "SGLANG_")
_DERIVED = frozenset(("uniform_decode_graph", "mixed_decode_graph", "async_scheduling", "model_runner"))
# Flags whose default is not "off": leaving one out is not the same as its --no- form.
_ON_BY_DEFAULT = frozenset(("enable-prefix-caching", "enable-chunked-prefill", "async-scheduling"))
# Options whose meaning is in the settings or the speculative configuration, which are compared themselves.
_COMPARED = frozenset(
    (
        "model", "config", "speculative-config", "spec-method", "spec-model", "spec-tokens", "tensor-parallel-size",
        "pipeline-parallel-size", "data-parallel-size", "enable-expert-parallel", "decode-context-parallel-size",
        "max-model-len", "max-num-seqs", "max-num-batched-tokens", "gpu-memory-utilization", "kv-cache-dtype",
        "block-size", "enforce-eager", "async-scheduling", "attention-backend", "cudagraph-capture-sizes",
        "cuda-graph-sizes", "max-cudagraph-capture-size", "model-path", "context-length", "max-running-requests",
        "mem-fraction-static", "page-size", "disable-cuda-graph", "disable-overlap-schedule", "expert-parallel-size",
        "chunked-prefill-size", "cuda-graph-bs", "enable-ep-moe",
    )
)  # fmt: skip
_SHOWN_CHARACTERS = 120


@dataclass(frozen=True, slots=True)
class Change:
    """One difference for the engine. `old` and `new` are None for what is not set; `text` is the sentence."""

    launch: str
    group: str
    key: str
    old: Any
    new: Any
    is_consequence: bool
    text: str

    def to_dict(self) -> dict[str, Any]:
        """As `inspect` prints it."""
        return asdict(self)


def all_changes(old: Sequence[Account], new: Sequence[Account]) -> list[Change]:
    """The changes between two sources, launch by launch: matched by name, or the one of each."""
    pairs, gone, added = _pairs(list(old), list(new))
    found = [change for before, after in pairs for change in changes(before, after)]
    for account in gone:
        found.append(Change(account.name, "launch", "launch", account.name, None, False, f"{account.name} goes away"))
    for account in added:
        found.append(Change(account.name, "launch", "launch", None, account.name, False, f"{account.name} is new"))
    return found


def _pairs(
    old: list[Account], new: list[Account]
) -> tuple[list[tuple[Account, Account]], list[Account], list[Account]]:
    """(pairs, launches that go away, launches that come)."""
    names = {account.name for account in old} & {account.name for account in new}
    by_name = {account.name: account for account in old if account.name in names}
    pairs = [(by_name[account.name], account) for account in new if account.name in names]
    gone = [account for account in old if account.name not in names]
    added = [account for account in new if account.name not in names]
    if len(gone) == len(added) and (len(gone) == 1 or not names):
        return pairs + list(zip(gone, added, strict=True)), [], []
    return pairs, gone, added


def changes(old: Account, new: Account) -> list[Change]:
    """What is different for the engine, most important first."""
    found = list(_speculation(old, new))
    before, after = _settings(old, old.version or new.version), _settings(new, new.version or old.version)
    stated = _stated(old) | _stated(new)
    for key in [key for key in before if before[key] != after[key]]:
        open_end = before[key] is None or after[key] is None
        if open_end and (key in _DERIVED or SERVER in (old.kind, new.kind)):
            continue  # not known on one side, which is no difference
        if key == "version" and _is_same_release(before[key], after[key]):
            continue
        consequence = key not in stated and key not in ("engine", "version", "model")
        found.append(_change(new.name, _GROUP_OF[key], key, (before[key], after[key]), consequence))
    if SERVER not in (old.kind, new.kind):  # which tells neither its options nor its environment
        found += _mappings(new.name, "option", _options(old), _options(new))
        found += _mappings(new.name, "environment", *_environments(old, new))
    return found


def _environments(old: Account, new: Account) -> tuple[dict[str, str], dict[str, str]]:
    """The variables of both; a process also holds those of its image and session, which a launch text never names."""
    if (old.kind == "process") == (new.kind == "process"):
        return old.environment, new.environment
    own = {name for account in (old, new) if account.kind != "process" for name in account.environment}
    kept = [
        {
            name: value
            for name, value in account.environment.items()
            if name in own or name.startswith(_ENGINE_VARIABLES)
        }
        for account in (old, new)
    ]
    return kept[0], kept[1]


def _speculation(old: Account, new: Account) -> Iterator[Change]:
    before, after = old.speculation, new.speculation
    key = "speculative_config"
    if before is None and after is not None:
        text = f"speculation goes on: {described(after)}"
        yield Change(new.name, "speculation", key, None, after, False, text)
    elif before is not None and after is None:
        text = f"speculation goes off (it was {described(before)})"
        yield Change(new.name, "speculation", key, before, None, False, text)
    elif before is not None and after is not None:
        written = {**(old.speculation_written or {}), **(new.speculation_written or {})}
        for name in sorted({*before, *after}, key=lambda item: (item != "method", item)):
            pair = before.get(name), after.get(name)
            if None in pair and SERVER in (old.kind, new.kind):
                continue  # a server tells little of its method
            if pair[0] != pair[1]:
                yield _change(new.name, "speculation", f"{key}.{name}", pair, name not in written)


def _is_same_release(old: str | None, new: str | None) -> bool:
    """Whether both name one release: an image tag has a `v`, and only a build tells its own suffix (`+cpu`)."""
    if old is None or new is None:
        return False
    (before, _, build), (after, _, other) = (text.removeprefix("v").partition("+") for text in (old, new))
    return before == after and (build == other or not (build and other))


def _settings(account: Account, version: str | None) -> dict[str, Any]:
    """Every setting after defaults of the version, in order of the groups."""
    facts = account.facts
    values: dict[str, Any] = {"engine": account.engine, "version": account.version, "model": account.settings.model}
    for key in _GROUP_OF:
        if key in values:
            continue
        value = getattr(facts, key, None) if facts else None
        value = value if value is not None else getattr(account.settings, key, None)
        if key in account.settings.unresolved:
            value = account.settings.unresolved[key]
        values[key] = _DEFAULTS.get(key) if value is None and account.kind != SERVER else value
    if account.engine == "vllm" and account.kind != SERVER and values["gpu_memory_utilization"] is None:
        values["gpu_memory_utilization"] = default_memory_share("vllm", facts_version("vllm", version)[0])
    return {key: values[key] for key in _GROUP_OF}


def _stated(account: Account) -> set[str]:
    """Names of the settings that the launch itself sets."""
    return {key for key in _GROUP_OF if getattr(account.settings, key, None) is not None}


def _options(account: Account) -> dict[str, Any]:
    """The other options that take effect; JSON as what it says, flags that are off as if they were not there."""
    shown: dict[str, Any] = {}
    for name, value in account.options.items():
        off = value is False and KINDS.get(name) == FLAG and name not in _ON_BY_DEFAULT
        if name in _COMPARED or name.startswith("speculative-") or off:
            continue
        reading = read_value(value) if isinstance(value, str) and value.startswith("{") else None
        shown["--" + name] = value if reading is None or reading.content is None else reading.content
    return shown


def _mappings(launch: str, group: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Change]:
    for key in sorted({*old, *new}):
        if old.get(key) != new.get(key):
            yield _change(launch, group, key, (old.get(key), new.get(key)), False)


def _change(launch: str, group: str, key: str, pair: tuple[Any, Any], is_consequence: bool) -> Change:
    text = one_line(f"{key}: {_value(pair[0])} -> {_value(pair[1])}")
    return Change(launch, group, key, *pair, is_consequence, text)


def _value(value: Any) -> str:
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return "on" if value else "off"
    text = json.dumps(value) if isinstance(value, dict | list) else str(value)
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 1] + "…"


def described(config: Mapping[str, Any]) -> str:
    """A speculative configuration in a few words: "ngram, 5 draft tokens"."""
    length = config.get("num_speculative_tokens")
    method = config.get("method") or config.get("method_family") or "method not known"
    count = "an unknown number of" if length is None else length
    return f"{one_line(str(method))}, {count} draft token{'' if length == 1 else 's'}"


def verdict(old: Sequence[Account], new: Sequence[Account], found: Sequence[Change]) -> str:
    """One line: whether the restart does what was meant."""
    error = next((item for account in new if (item := first_error(account.findings))), None)
    if error is not None:
        return f"The restart does not do what is written: [{error.code}] {error.message}"
    if not found:
        return "The restart changes nothing for the engine: both launches say the same to it."
    before = next((item for account in old if (item := first_error(account.findings))), None)
    remark = f" (The old launch did not do what was written either: [{before.code}].)" if before else ""
    return f"{_speculation_sentence(old, new, found)} {_others_sentence(found)}{remark}"


def _speculation_sentence(old: Sequence[Account], new: Sequence[Account], found: Sequence[Change]) -> str:
    on_off = [change for change in found if change.key == "speculative_config"]
    if len(old) == len(new) == 1 and on_off:
        config = on_off[0].new
        return f"The restart switches speculation {f'on ({described(config)})' if config else 'off'}."
    changed = [change for change in found if change.group == "speculation"]
    if changed:
        by_hand = _listed([change for change in changed if not change.is_consequence])
        return f"The restart changes how speculation works: {by_hand or 'only its defaults'}."
    return f"Speculation stays {'as it is' if any(account.speculation for account in new) else 'off'}."


def _others_sentence(found: Sequence[Change]) -> str:
    others = [change for change in found if change.group != "speculation"]
    by_hand = _listed([change for change in others if not change.is_consequence])
    follows = _listed([change for change in others if change.is_consequence])
    if by_hand:
        return f"It also changes {by_hand}."
    return f"Nothing else is changed by hand; {follows} follows." if follows else "Nothing else changes."


def _listed(found: Sequence[Change]) -> str:
    names = [change.key.removeprefix("speculative_config.") for change in found]
    return one_line(", ".join(dict.fromkeys(names)))
