"""What compose and Kubernetes share: entrypoint and command of a container become one argument list."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from validate.launch.findings import ERROR, Finding, Launch
from validate.launch.program import engine_call, image_engine, image_entrypoint
from validate.launch.unwrap import resolve


def container_launches(launch: Launch, entrypoint: Sequence[str] | None, command: Sequence[str] | None) -> list[Launch]:
    """The engine launches of a container; `entrypoint` and `command` override the image's when not None.

    An image without a known engine counts when its command alone looks like an engine's arguments.
    """
    words = tuple(command or ())
    if entrypoint is None:
        start = image_entrypoint(launch.image)
        if not start and engine_call(words) is None and looks_like_vllm_arguments(words):
            start = ("vllm", "serve")
    else:
        start = tuple(entrypoint)
    found = resolve(replace(launch, argv=(*start, *words)))
    if not found and entrypoint is None and words and image_engine(launch.image):
        found = resolve(replace(launch, argv=words))
    return found


def looks_like_vllm_arguments(words: Sequence[str]) -> bool:
    """Whether words are clearly vLLM options, as in a chart's `extraArgs`."""
    return any(word.split("=", 1)[0].replace("_", "-") in _TELLING for word in words)


_TELLING = frozenset(
    (
        "--speculative-config", "-sc", "--tensor-parallel-size", "--max-model-len", "--gpu-memory-utilization", "--max-num-seqs",
        "--served-model-name", "--enable-prefix-caching", "--max-num-batched-tokens", "--spec-method", "--kv-cache-dtype",
    )
)  # fmt: skip


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
