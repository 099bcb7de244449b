"""A deployment file with a comment on every key, for people who write their first one."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hwmodel.gpus import load_gpu
from simulator.deployment.keys import MEASURED_ON, KeyInfo, known_keys
from simulator.deployment.tables import Deployment
from simulator.deployment.toml_text import key_text, value_text
from simulator.deployment.write import stated_tables, toml_text

_WIDTH = 98
# Keys that are offered where nothing is stated, each with a value as an example: what changes the answer most.
_SUGGESTED: dict[str, Any] = {
    "hardware.topology": "topo.txt",
    "engine.version": "0.16.0",
    "engine.tensor_parallel_size": 1,
    "engine.max_model_len": 32768,
    "speculation.num_speculative_tokens": 3,
    "speculation.acceptance": {"mean_length": 2.6, "measured_at_k": 3},
    "workload.temperature": 0.7,
    "objective.tpot_ms_max": 50,
    "restart.outage_min": 30,
    "measured.concurrency": 1,
    "measured.tpot_ms": 13.6,
    "measured.allreduce_share": 0.3,
}
# The load is part of every question: where nothing is stated, what is assumed stands in the file.
_ALWAYS = ("concurrency", "input_tokens", "output_tokens", "kind")
_MEASURED_ON = "What the measured facts describe, where that is another baseline than the file's:"
_VOCABULARIES = {
    "model.config": "models",
    "hardware.gpu": "gpus",
    "hardware.interconnect": "interconnects",
    "speculation.method": "methods",
}


def commented(deployment: Deployment, head: Sequence[str] = (), *, every_key: bool = False) -> str:
    """The TOML text of `deployment`: what it states, each key explained, and the next keys worth stating as comments.

    `head` are the sentences above it. With `every_key` the keys that hardly anybody needs are named as well.
    """
    tables = stated_tables(deployment)
    workload = tables.setdefault("workload", {})
    defaults = deployment.workload.to_dict()
    tables["workload"] = {key: workload.get(key, defaults.get(key)) for key in (*_ALWAYS, *workload)}
    suggested = _suggested(deployment)
    keys: dict[str, dict[str, KeyInfo]] = {}
    for info in known_keys():
        table, _, name = info.key.partition(".")
        if "." not in name:
            keys.setdefault(table, {})[name] = info
    blocks = [_comment(line) for line in head]
    blocks += [_table(name, keys[name], tables.get(name), suggested, every_key) for name in keys]
    if MEASURED_ON in tables:
        blocks.append(f"{_comment(_MEASURED_ON)}\n{toml_text({MEASURED_ON: tables[MEASURED_ON]}).rstrip()}")
    return "\n\n".join(block for block in blocks if block) + "\n"


def _suggested(deployment: Deployment) -> Mapping[str, Any]:
    """Examples by key; those of the hardware are what is assumed now."""
    usual = load_gpu(deployment.hardware.gpu).interconnect
    return {**_SUGGESTED, "hardware.num_gpus": deployment.num_gpus, "hardware.interconnect": usual}


def _table(name: str, keys: Mapping[str, KeyInfo], stated: Any, suggested: Mapping[str, Any], every_key: bool) -> str:
    """The text of one table; "" where there is nothing to say about it."""
    title = _comment(f"{_sentence(Deployment.fields[name].description)}:")
    if name == "parameters":
        lines = [f"{key_text(key)} = {value_text(value, f'{name}.{key}')}" for key, value in (stated or {}).items()]
        return "\n".join([title, "[parameters]", *lines]) if lines else ""
    if name == "measured" and stated:
        return "\n".join([title, *(line for entry in stated for line in ("[[measured]]", *_keys(keys, entry)))])
    lines = list(_keys(keys, stated or {}, suggested))
    if every_key:
        unnamed = (info for key, info in keys.items() if key not in (stated or {}) and info.key not in suggested)
        lines += [_comment(f"{info.key.partition('.')[2]}: {info.meaning}; {info.type}") for info in unnamed]
    bracketed = "#[[measured]]" if name == "measured" else f"[{name}]"
    return "\n".join([title, bracketed, *lines]) if lines else ""


def _keys(
    keys: Mapping[str, KeyInfo], stated: Mapping[str, Any], suggested: Mapping[str, Any] | None = None
) -> Iterator[str]:
    """The lines of a table: each stated key, and each worth stating as a comment with its example."""
    for name, info in keys.items():
        if name in stated:
            yield _comment(_meaning(info))
            yield f"{name} = {value_text(stated[name], info.key)}"
        elif suggested and info.key in suggested:
            yield _comment(_meaning(info))
            yield f"#{name} = {value_text(suggested[info.key], info.key)}"


def _meaning(info: KeyInfo) -> str:
    names = _VOCABULARIES.get(info.key)
    where = f" (draftcast list {names})" if names else ""
    choices = f"; {info.type}" if info.type.startswith("one of") and not names else ""
    return f"{info.meaning}{choices}{where}"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _comment(text: str) -> str:
    """The text as comment lines; one of several lines keeps them."""
    if "\n" in text:
        return "\n".join(f"# {line}" for line in text.split("\n"))
    return textwrap.fill(text, _WIDTH, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False)
