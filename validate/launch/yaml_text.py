"""Parse YAML into plain values that remember how a scalar was written; safe against alias bombs and deep nesting.

The one module that imports PyYAML: import it only once YAML has been met.
"""

import re
from typing import Any

import yaml

from validate.launch.findings import MalformedSourceError

MAX_NODES = 100_000  # a manifest has a few hundred; aliases count each time they are used
MAX_DEPTH = 60
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DOCUMENT_START = re.compile(r"(?m)^---(?=\s|$)")
_NESTING_CHARACTERS = 200  # flow brackets in a row that no launch text needs


class Plain(str):
    """A scalar that YAML reads as a number or boolean, not as a text: the text as written, and its tag."""

    __slots__ = ("tag",)
    tag: str

    def value(self) -> Any:
        """The number, boolean or None that YAML makes of it."""
        return yaml.safe_load(str(self))


def split_documents(text: str) -> list[str]:
    """The documents of a YAML stream as texts, so that one broken document does not hide the others."""
    return [document for document in _DOCUMENT_START.split(text) if _has_content(document)]


def _has_content(document: str) -> bool:
    return any(
        line.strip() and not line.lstrip().startswith(("#", "%")) and line.strip() != "..."
        for line in document.split("\n")
    )


def parse_document(text: str) -> Any:
    """The value of one YAML document: dict, list, str, `Plain`, or None when empty. A fault is a one-line error."""
    if re.search(rf"[\[{{]{{{_NESTING_CHARACTERS},}}", text):
        raise MalformedSourceError("yaml-too-deep", f"YAML nested more than {MAX_DEPTH} levels deep")
    try:
        node = yaml.compose(text, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        message = (
            "YAML error: "
            f"{place}{error.problem or error.context}{_hint(text, mark.line if mark else None, error.problem)}"
        )
        raise MalformedSourceError("yaml-error", message) from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise MalformedSourceError("yaml-error", f"YAML error: {' '.join(str(error).split())}") from None
    return None if node is None else _Builder().build(node, 0)


def _hint(text: str, line: int | None, problem: str | None) -> str:
    """What usually causes the fault in a launch text: unquoted JSON or a template's braces."""
    lines = text.split("\n")
    written = lines[line] if line is not None and line < len(lines) else ""
    if "{{" in written or "{%" in written:
        return " (a template's braces: render the template first)"
    if "{" in written and '"' in written:
        return " (quote the whole item: '--speculative-config={...}' in single quotes)"
    return ""


class _Builder:
    """Turns composed nodes into values, counting them."""

    def __init__(self) -> None:
        self.count = 0

    def build(self, node: Any, depth: int) -> Any:
        self.count += 1
        if self.count > MAX_NODES:
            raise MalformedSourceError(
                "yaml-too-large", f"YAML expands to more than {MAX_NODES} values (aliases included)"
            )
        if depth > MAX_DEPTH:
            raise MalformedSourceError("yaml-too-deep", f"YAML nested more than {MAX_DEPTH} levels deep")
        if isinstance(node, yaml.ScalarNode):
            return _scalar(node)
        if isinstance(node, yaml.SequenceNode):
            return [self.build(item, depth + 1) for item in node.value]
        return self._mapping(node, depth)

    def _mapping(self, node: Any, depth: int) -> dict[str, Any]:
        merged: dict[str, Any] = {}
        own: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if getattr(key_node, "tag", "") == "tag:yaml.org,2002:merge":
                sources = value_node.value if isinstance(value_node, yaml.SequenceNode) else [value_node]
                for source in reversed(sources):
                    value = self.build(source, depth + 1)
                    merged |= value if isinstance(value, dict) else {}
                continue
            key = self.build(key_node, depth + 1)
            own[str(key) if isinstance(key, str) else repr(key)] = self.build(value_node, depth + 1)
        return merged | own


def _scalar(node: Any) -> Any:
    kind = node.tag.rsplit(":", 1)[-1]
    if kind == "str" or node.style in ("'", '"', "|", ">"):
        return node.value
    if kind == "null":
        return None
    scalar = Plain(node.value)
    scalar.tag = kind
    return scalar


def json_like(value: Any) -> Any:
    """The value with numbers, booleans and nulls as YAML means them, for `json.dumps`."""
    if isinstance(value, Plain):
        return value.value() if value.tag in ("int", "float", "bool") else str(value)
    if isinstance(value, dict):
        return {key: json_like(item) for key, item in value.items()}
    if isinstance(value, list):
        return [json_like(item) for item in value]
    return value
