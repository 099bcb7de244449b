"""`draftcast model` for a human reader."""

from collections.abc import Mapping
from typing import Any

from draftcast.render.numbers import parameters, storage
from draftcast.render.page import Page

OUTSIDE_TOTAL = ("mtp", "vision")  # listed, but not part of the published total


def render(result: Mapping[str, Any], page: Page) -> None:
    """Totals in a sentence, components in a table, what was assumed below."""
    counts, weights = result["parameters"], result["weight_bytes"]
    page.headline(
        f"{result['inputs']['model']}: {parameters(counts['total'])} parameters, {parameters(counts['active'])} active "
        f"per token; weights {storage(weights['total'])}; KV cache {storage(result['kv_bytes_per_token'])} per token "
        "at BF16."
    )
    rank = result.get("per_rank", {})
    if rank.get("tensor_parallel_size", 1) > 1:
        page.text(f"Each of {rank['tensor_parallel_size']} ranks holds {storage(rank['weight_bytes'])} of the weights.")
    rows = [
        (
            name.replace("_", " ") + (" (not in the total)" if name in OUTSIDE_TOTAL else ""),
            parameters(count),
            storage(weights["by_component"].get(name)),
        )
        for name, count in counts["by_component"].items()
        if count or weights["by_component"].get(name)
    ]
    page.table(("component", "parameters", "weights"), rows)
    page.section("Assumed", result["assumptions"])
