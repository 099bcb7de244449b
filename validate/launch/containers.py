"""What compose and Kubernetes share: entrypoint and command of a container become one argument list."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from validate.launch.findings import ERROR, Finding, Launch
from validate.launch.program import VLLM, engine_call, image_engine, image_entrypoint
from validate.launch.systemd_words import excerpt
from validate.launch.unwrap import launches_of_script, resolve
from validate.launch.variables import is_worker_image, worker_launch


def container_launches(launch: Launch, entrypoint: Sequence[str] | None, command: Sequence[str] | None) -> list[Launch]:
    """The engine launches of a container; `entrypoint` and `command` override the image's when not None.

    An image of unknown entrypoint counts when its command starts an engine, or alone looks like vLLM's arguments.
    """
    words = tuple(command or ())
    in_one_item = _command_in_one_item(launch, (*(entrypoint or ()), *words))
    if in_one_item:
        return in_one_item
    if is_worker_image(launch.image) and not entrypoint and not words:
        return [worker_launch(launch)]
    if entrypoint is not None:
        return resolve(replace(launch, argv=(*entrypoint, *words)))
    start = image_entrypoint(launch.image)
    if start:
        own = resolve(replace(launch, argv=words)) if words else []
        findings = (*launch.findings, _entrypoint_precedes(start, words, launch.kind)) if own else launch.findings
        return resolve(replace(launch, argv=(*start, *words), findings=findings))
    found = resolve(replace(launch, argv=words))
    if not found and (looks_like_vllm_arguments(words, launch.image is None) or image_engine(launch.image) == VLLM):
        found = resolve(replace(launch, argv=(VLLM, "serve", *words)))
    return found


def _command_in_one_item(launch: Launch, words: Sequence[str]) -> list[Launch]:
    """The launch of a command that stands whole in the first item of a list: no program has such a name."""
    if not words or not re.search(r"\s", words[0]) or ("vllm" not in words[0] and "sglang" not in words[0]):
        return []
    text = f"the whole command is one item, so a program named {excerpt(words[0])!r} is looked for, and not found"
    finding = Finding(ERROR, "command-in-one-item", text, "[sh, -c, '...'], or one item for each word")
    return launches_of_script(replace(launch, findings=(*launch.findings, finding)), words[0])


def _entrypoint_precedes(start: Sequence[str], words: Sequence[str], kind: str) -> Finding:
    starts = " ".join(start)
    text = f"the image already starts '{starts}': this runs '{starts} {' '.join(words[:2])} ...', not the command alone"
    key, rest = ("command", "args") if kind == "kubernetes" else ("entrypoint", "command")
    call = engine_call(words)
    program = list(words[: call.program_words if call else 2])
    return Finding(ERROR, "entrypoint-precedes-command", text, f"{key}: {program}, and {rest} without these words")


def looks_like_vllm_arguments(words: Sequence[str], bare: bool = False) -> bool:
    """Whether words are clearly vLLM options, as in a chart's `extraArgs`; `bare`: no image says otherwise."""
    names = {re.split(r"[=\s]", word, maxsplit=1)[0].replace("_", "-") for word in words}
    return not names.isdisjoint(_TELLING) or (bare and "--model" in names)


_TELLING = frozenset(
    (
        "--speculative-config", "-sc", "--tensor-parallel-size", "--max-model-len", "--gpu-memory-utilization",
        "--max-num-seqs", "--enable-prefix-caching", "--max-num-batched-tokens", "--spec-method", "--kv-cache-dtype",
    )
)  # fmt: skip


def item_text(item: object) -> str:
    """The text that stands for a list item: itself, or the JSON of a mapping that was meant as one text."""
    return _flat(item) if isinstance(item, Mapping) else str(item)


def not_a_text(place: str, item: object) -> Finding:
    """The finding for a list item that YAML does not read as a text."""
    kind = "a mapping" if isinstance(item, Mapping) else "a list" if isinstance(item, list) else f"{item!r}, not a text"
    return Finding(ERROR, "yaml-item-not-a-text", f"{place} holds {kind}: quote the whole item", f"- '{_flat(item)}'")


def _flat(item: object) -> str:
    if isinstance(item, Mapping):
        inside = ", ".join(f'"{key}": {_json(value)}' for key, value in item.items())
        return "{" + inside + "}"
    return str(item)


def _json(value: object) -> str:
    if isinstance(value, Mapping):
        return _flat(value)
    if isinstance(value, list):
        return "[" + ", ".join(_json(item) for item in value) + "]"
    return str(value) if type(value) is not str else f'"{value}"'
