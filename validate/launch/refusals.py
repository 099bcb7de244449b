"""Options that cannot stand beside speculation: vLLM stops at start.

Source: vllm/config/vllm.py, config/speculative.py and v1/sample/logits_processor of 0.10.2 ... 0.33.0.
"""

from typing import Any

from validate.launch.engine_facts import engine_method
from validate.launch.findings import ERROR, WARNING
from validate.launch.speculative import Speculation

_EAGLE_FAMILY = frozenset(("eagle", "eagle3", "mtp", "p_eagle", "dflash", "dspark"))


def add_refusals(case: Speculation, config: dict[str, Any]) -> None:
    """Add what this launch's other options make of its speculation."""
    options = case.options
    if options.get("enable-dbo") is True:
        text = f"{case.label} has no dual-batch overlap with speculation: it stops at start"
        case.add(ERROR, "dbo-with-speculation", text, "leave out --enable-dbo")
    if options.get("kv-sharing-fast-prefill") is True and engine_method(config) in _EAGLE_FAMILY:
        text = f"{case.label} refuses --kv-sharing-fast-prefill with {config.get('method')}"
        case.add(ERROR, "kv-sharing-with-speculation", text, "leave out --kv-sharing-fast-prefill")
    if options.get("logits-processors"):
        text = f"{case.label} refuses custom logits processors with speculation"
        case.add(ERROR, "logits-processors-with-speculation", text, "leave out --logits-processors")
    if config.get("enable_adaptive_verification") is True:
        _adaptive_verification(case)


def _adaptive_verification(case: Speculation) -> None:
    """It needs full graphs, no LoRA, and one pipeline stage."""
    against = [
        ("--enable-lora", case.options.get("enable-lora") is True),
        ("--pipeline-parallel-size", (case.settings.pipeline_parallel_size or 1) > 1),
        ("--enforce-eager", bool(case.settings.enforce_eager)),
    ]
    for option, given in against:
        if given:
            text = f"enable_adaptive_verification does not go with {option}"
            case.add(WARNING, "adaptive-verification", text, f"leave out {option}")
