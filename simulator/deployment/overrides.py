"""Command-line values laid over the tables of a file: "hardware.num_gpus=4", "workload.concurrency=1,4,16"."""

import re
import tomllib
from collections.abc import Sequence
from typing import Any

from hwmodel.errors import InputError, UnknownNameError
from hwmodel.gpus import load_gpu
from hwmodel.interconnects import NVLINK_CLASSES
from hwmodel.records import dataclass
from simulator.deployment.keys import PARAMETERS, field_at, is_list, is_text, short, unknown_key
from simulator.deployment.speculation import FORMS
from simulator.deployment.tables import TABLES, Deployment

Tables = dict[str, Any]

_BARE_POINT = re.compile(r"[+-]?(\.[0-9]{1,20}|[0-9]{1,20}\.)")  # .6 and 1. are numbers to people, though not to TOML

# What describes the file's own drafter and nothing else; left out when another method is asked for.
_OWN_KEYS = (
    "acceptance",
    "prompt_lookup_min",
    "prompt_lookup_max",
    "draft_model",
    "draft_tensor_parallel_size",
    "draft_vocab_size",
    "launch_config",
    "sglang_topk",
    "sglang_num_draft_tokens",
)


# What describes how the file's GPUs are linked.
_LINK_KEYS = frozenset(
    {
        "interconnect",
        "nccl_tests",
        "topology",
        "allreduce_latency_us",
        "allreduce_busbw_gb_per_s",
        "allreduce_algorithm",
        "allreduce_one_shot_max_kib",
    }
)


_LAUNCH_CONFIG = ["speculation", "launch_config"]


@dataclass(frozen=True, slots=True)
class _Override:
    path: list[str]
    value: Any
    clears: bool  # "KEY=" puts the default back


def lay_over(tables: Tables, overrides: Sequence[str]) -> tuple[Tables, tuple[str, ...]]:
    """`tables` with `overrides` laid over in order, and notes about what was left out; `tables` is changed.

    What belongs to the file's value of an overridden key goes with it: the keys of the file's own method, the other
    acceptance forms, the launch's drafter, and the weights of the file's list of concurrencies.
    """
    parsed = [_parse(text) for text in overrides]
    notes: tuple[str, ...] = ()
    for item in parsed:
        if item.path == ["speculation", "method"] and not item.clears:
            notes += drop_own_keys(tables, item.value)
        elif item.path[:-1] == ["speculation", "acceptance"] and not item.clears:
            _drop_other_forms(tables, item.path[-1])
            notes += _drop_other_head(tables, item)
        elif item.path == ["speculation", "draft_model"]:
            drop_launched_drafter(tables)
        elif item.path == ["workload", "concurrency"]:
            _table(tables, ["workload"]).pop("weights", None)
    notes += _drop_other_link(tables, parsed)
    for item in parsed:
        _set(tables, item)
    return tables, notes


def check_keys(overrides: Sequence[str]) -> None:
    """`InputError` for a text that is no KEY=VALUE, or whose key is none of a deployment's."""
    for text in overrides:
        _parse(text)


def _drop_other_link(tables: Tables, parsed: Sequence[_Override]) -> tuple[str, ...]:
    """Takes the file's link out of `tables` where the overrides ask for a GPU that is never linked that way."""
    stated = {item.path[1]: item.value for item in parsed if len(item.path) == 2 and item.path[0] == "hardware"}
    hardware = _table(tables, ["hardware"])
    if "gpu" not in stated or _LINK_KEYS & set(stated) or not _LINK_KEYS & set(hardware):
        return ()
    try:
        usual, before = load_gpu(str(stated["gpu"])).interconnect, load_gpu(str(hardware.get("gpu"))).interconnect
    except InputError:
        return ()  # said where the card is used
    if (usual in NVLINK_CLASSES) == (before in NVLINK_CLASSES):
        return ()
    dropped = sorted(key for key in _LINK_KEYS if hardware.pop(key, None) is not None)
    return (f"{', '.join(dropped)} of [hardware] left out: they describe the file's GPUs, {stated['gpu']} has {usual}",)


def drop_own_keys(tables: Tables, method: str) -> tuple[str, ...]:
    """Notes about the keys of the file's own method that were taken out of `tables` because `method` is another."""
    speculation = _table(tables, ["speculation"])
    own = speculation.get("method")
    if own is None or own == method:
        return ()
    dropped = [key for key in _OWN_KEYS if speculation.pop(key, None) is not None]
    if not dropped:
        return ()
    return (f"{', '.join(dropped)} of [speculation] left out: stated for method {own}, not for {method}",)


def drop_launched_drafter(tables: Tables) -> None:
    """Takes the launch's name of its drafter out of `tables`: another one is stated."""
    launch_config = _table(tables, ["speculation"]).get("launch_config")
    if isinstance(launch_config, dict):
        launch_config.pop("model", None)


def _drop_other_head(tables: Tables, item: _Override) -> tuple[str, ...]:
    """Takes the launch's drafter out of `tables` where the override names another published head; a note on it."""
    if item.path[-1] != "published":
        return ()
    config, stated = _table(tables, ["speculation"]).get("launch_config"), str(item.value)
    launched = config.get("model") if isinstance(config, dict) else None
    if not isinstance(launched, str) or "/" not in stated or _last(launched) == _last(stated):
        return ()
    drop_launched_drafter(tables)
    return (f"the drafter is {short(stated)} as stated, not {short(launched)} as in the launch",)


def _last(name: str) -> str:
    """The name of a repository or folder without its owner: a local copy keeps it."""
    return name.rstrip("/").rsplit("/", 1)[-1].lower()


def _drop_other_forms(tables: Tables, key: str) -> None:
    acceptance = _table(tables, ["speculation"]).get("acceptance")
    if key in FORMS and isinstance(acceptance, dict):
        for form in FORMS:
            acceptance.pop(form, None)
        if key not in ("rate", "mean_length"):
            acceptance.pop("measured_at_k", None)


def _parse(text: str) -> _Override:
    key, equals, raw = text.partition("=")
    path = [part.strip() for part in key.strip().split(".")]
    if not equals or not all(path):
        raise InputError(f"got '{short(text)}', allowed: KEY=VALUE with a dotted key, such as hardware.num_gpus=4")
    declared = _without_index(path)
    if not _is_known(declared):
        raise UnknownNameError(unknown_key(declared))
    return _Override(path, _value(declared, raw.strip()), not raw.strip())


def _without_index(path: list[str]) -> list[str]:
    """measured.0.tpot_ms -> measured.tpot_ms, as the key is declared."""
    return path[:1] + path[2:] if path[0] == "measured" and path[1:] and path[1].isdecimal() else path


def _is_known(path: list[str]) -> bool:
    if path[0] == PARAMETERS or len(path) == 1:
        return path[0] in Deployment.fields
    in_free_table = path[:3] == ["speculation", "acceptance", "counters"] or path[:2] == _LAUNCH_CONFIG
    return path[0] in TABLES and (in_free_table or field_at(path) is not None)


def _value(path: list[str], raw: str) -> Any:
    field = field_at(path)
    if field and is_text(field) and not raw.startswith(("'", '"')):
        return raw
    if field and is_list(field) and not raw.startswith("["):
        return [_toml_or_text(part.strip()) for part in raw.split(",")]
    if raw.lower() in ("true", "false"):
        return raw.lower() == "true"
    return _toml_or_text(raw)


def _toml_or_text(raw: str) -> Any:
    """`raw` read as one TOML value; as bare text where it is none."""
    try:
        parsed = tomllib.loads(f"x = {raw}")
    except (ValueError, RecursionError):
        return float(raw) if _BARE_POINT.fullmatch(raw) else raw
    return parsed["x"] if list(parsed) == ["x"] else raw


def _table(tables: Tables, path: list[str]) -> Tables:
    """The table at `path` inside `tables`, made where it is absent."""
    here: Any = tables
    for part in path:
        here = _step(here, part, path)
    if not isinstance(here, dict):
        raise InputError(f"{'.'.join(path)}: got a value, allowed: table, so that its keys can be set")
    return here


def _step(here: Any, part: str, path: list[str]) -> Any:
    if isinstance(here, list):
        index = int(part) if part.isdecimal() else -1
        if not 0 <= index < len(here):
            raise InputError(f"{'.'.join(path)}: got entry {short(part)}, allowed: 0 to {len(here) - 1}")
        return here[index]
    if not isinstance(here, dict):
        raise InputError(f"{'.'.join(path)}: got a value, allowed: table, so that its keys can be set")
    if here.get(part) is None:
        here[part] = {}
    return here[part]


def _set(tables: Tables, item: _Override) -> None:
    path = item.path
    if path[0] == "measured" and len(path) > 1 and not path[1].isdecimal():
        path = ["measured", _only_measured(tables), *path[1:]]
    table = _table(tables, path[:-1])
    if item.clears:
        table.pop(path[-1], None)
    else:
        table[path[-1]] = item.value


def _only_measured(tables: Tables) -> str:
    """Index of the one `[[measured]]` entry, which may then be named without it."""
    entries = tables.setdefault("measured", [{}])
    if not isinstance(entries, list) or len(entries) != 1:
        count = len(entries) if isinstance(entries, list) else 0
        raise InputError(f"measured: {count} entries, so name one: measured.0.KEY to measured.{max(count - 1, 0)}.KEY")
    return "0"
