"""Which YAML it is: a compose file, Kubernetes manifests, a container fragment, or vLLM's own --config file."""

from pathlib import Path
from typing import Any

from validate.launch.compose import read_compose
from validate.launch.findings import Finding, Launch, MalformedSourceError
from validate.launch.kubernetes import read_kubernetes
from validate.launch.vllm_config import config_words
from validate.launch.yaml_text import parse_document, split_documents

# Keys that only a file of engine options has at its top level.
_OPTION_KEYS = frozenset(
    (
        "model", "speculative-config", "tensor-parallel-size", "max-model-len", "gpu-memory-utilization",
        "max-num-seqs", "served-model-name", "pipeline-parallel-size", "data-parallel-size",
        "max-num-batched-tokens", "kv-cache-dtype",
    )
)  # fmt: skip


def read_yaml(launches: list[Launch], findings: list[Finding], text: str, path: Path | None) -> None:
    """Add the launches of every document; a document that cannot be parsed adds a finding instead."""
    folder = path.parent if path else None
    others: list[Any] = []
    for piece in split_documents(text):
        try:
            document = parse_document(piece)
            if isinstance(document, dict) and isinstance(document.get("services"), dict):
                launches += read_compose(document, folder)
            elif _is_engine_config(document):
                launches.append(_config_launch(piece, path))
            else:
                others.append(document)
        except MalformedSourceError as error:
            findings.append(error.finding())
    launches += read_kubernetes(others, folder)


def _is_engine_config(document: Any) -> bool:
    if not isinstance(document, dict) or any(
        key in document for key in ("kind", "apiVersion", "image", "args", "command", "containers")
    ):
        return False
    return any(key.replace("_", "-") in _OPTION_KEYS for key in document)


def _config_launch(text: str, path: Path | None) -> Launch:
    words, findings = config_words(text, None)
    return Launch(
        path.name if path else "config",
        "config",
        ("vllm", "serve", *words),
        folder=path.parent if path else None,
        findings=tuple(findings),
    )
