"""`draftcast list` for a human reader."""

from collections.abc import Mapping
from typing import Any

from draftcast.render.numbers import storage
from draftcast.render.page import Page


def render(result: Mapping[str, Any], page: Page) -> None:
    """Names one a line, with what they mean where there is something to say."""
    items = result["items"]
    if result["kind"] == "keys":
        page.definitions((item["key"], _key(item)) for item in items)
    elif result["kind"] == "gpus":
        page.words(
            ("name", "GPU", "memory", "interconnect"),
            ([item["name"], item["title"], storage(item["memory_bytes"]), item["interconnect"]] for item in items),
        )
    elif result["kind"] == "drafters":
        page.definitions((item["name"], _drafter(item)) for item in items)
    elif result["kind"] == "models":
        page.lines(item["name"] for item in items)
    else:
        page.words(("name", "meaning"), ([item["name"], item["meaning"]] for item in items))


def _drafter(item: Mapping[str, Any]) -> str:
    c1 = item["first_acceptance"]
    only = "" if item["weights_published"] else ", figures only"
    return (
        f"{item['method']} for {item['target']}{only}: first token accepted {c1['p50']:.2f} ({c1['p05']:.2f} to"
        f" {c1['p95']:.2f}) in mixed traffic, from {item['basis']}"
    )


def _key(item: Mapping[str, Any]) -> str:
    default = {"required": "; required", "-": ""}.get(item["default"], f"; default {item['default']}")
    return f"{item['meaning']} ({item['type']}{', ' * bool(item['unit'])}{item['unit']}{default})"
