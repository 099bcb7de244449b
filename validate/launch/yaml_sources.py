"""Which YAML it is: a compose file, Kubernetes manifests, a container fragment, or vLLM's own --config file."""

import re
from pathlib import Path
from typing import Any

from validate.launch.compose import read_compose
from validate.launch.findings import ERROR, Finding, Launch, MalformedSourceError
from validate.launch.kubernetes import read_kubernetes
from validate.launch.program import text_version
from validate.launch.systemd_words import excerpt
from validate.launch.vllm_config import is_engine_options
from validate.launch.yaml_embedded import read_embedded
from validate.launch.yaml_text import parse_document, split_documents

_TEMPLATE = re.compile(r"(?<!\$)\{\{-?\s*[.$A-Za-z(][^{}\n]*\}\}|\{%-?\s*\w[^{}\n]*%\}")

_CONFIG_NAME = "config.yaml"  # stands for the file, whatever it is called


def read_yaml(launches: list[Launch], findings: list[Finding], text: str, path: Path | None) -> None:
    """Add the launches of every document; a document that cannot be parsed adds a finding instead."""
    folder = path.parent if path else None
    others: list[Any] = []
    for piece in split_documents(text):
        template = _TEMPLATE.search(piece)
        if template:
            message = (
                f"{excerpt(template[0])} is a template's: Helm or Jinja has not rendered it, so its value is unknown"
            )
            findings.append(Finding(ERROR, "template-not-rendered", message, "helm template ... | draftcast inspect -"))
        try:
            document = parse_document(piece)
            if isinstance(document, dict) and (isinstance(document.get("services"), dict) or "include" in document):
                launches += read_compose(document, path)
            elif is_engine_options(document):
                launches.append(_config_launch(piece, path))
            else:
                others.append(document)
        except MalformedSourceError as error:
            findings.append(error.finding())
    found = read_kubernetes(others, folder)
    if not found and not launches:
        outer = Launch(path.name if path else "yaml", "shell", (), folder=folder, version=text_version(text, "vllm"))
        found = [launch for document in others for launch in read_embedded(document, outer)]
    launches += found


def _config_launch(text: str, path: Path | None) -> Launch:
    """`vllm serve --config FILE` with this file: what it adds is read when the version is known, which decides it."""
    return Launch(
        path.name if path else "config",
        "config",
        ("vllm", "serve", "--config", _CONFIG_NAME),
        folder=path.parent if path else None,
        files={_CONFIG_NAME: text},
    )
