"""A launch text as keys of the deployment file, so that `predict` and `choose` can take one in its place."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from hwmodel.errors import InputError, UnknownNameError
from hwmodel.models import repository_of_card
from validate.launch.account import Account, account_for
from validate.launch.findings import UNREAD, WARNING, Finding, Launch, first_error, one_line
from validate.launch.known import Known
from validate.launch.model_names import card_for, local_config
from validate.launch.redaction import redact, redact_text
from validate.launch.sources import find_launches, looks_like_launch, names_of
from validate.launch.speculative_keys import MTP_ALIASES

_ENGINE_KEYS = (
    "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "expert_parallel",
    "decode_context_parallel_size", "max_model_len", "max_num_seqs", "max_num_batched_tokens",
    "gpu_memory_utilization", "block_size", "kv_cache_dtype", "attention_backend", "cudagraph_mode",
    "cudagraph_capture_sizes", "max_cudagraph_capture_size", "async_scheduling", "model_runner", "enforce_eager",
)  # fmt: skip


@dataclass(slots=True)
class LaunchKeys:
    """`tables` holds the keys by table of the deployment file; what could not be filled in is said in `notes`."""

    tables: dict[str, dict[str, object]] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    model_name: str | None = None
    name: str = ""


def deployment_from_launch(
    text_or_path: str | Sequence[str], name: str | None = None, version: str | None = None
) -> LaunchKeys:
    """The keys that a launch sets; its warnings are among the notes. An error finding is raised as InputError.

    Several launches need `name`. `version` is the engine's where the launch does not state it.
    """
    launch = _chosen(text_or_path, name)
    return keys_of_account(account_for(launch, Known(version=version)), launch)


def keys_of_account(account: Account, launch: Launch | None = None) -> LaunchKeys:
    """The keys that an account stands for; `launch` says where a local checkpoint would lie."""
    error = first_error(account.findings)
    if error is not None:
        fix = f"; write {error.fix}" if error.fix else ""
        raise InputError(one_line(f"launch '{account.name}' [{error.code}]: {error.message}{fix}"))
    keys = LaunchKeys(
        findings=account.findings, notes=_notes(account), model_name=account.settings.model, name=account.name
    )
    keys.tables["engine"] = _engine(account)
    keys.tables["speculation"] = _speculation(account, keys)
    model = _model(launch, account, keys)
    if model:
        keys.tables["model"] = {"config": model}
    keys.tables = redact(keys.tables, account.secrets)
    keys.notes = [redact_text(note, account.secrets) for note in keys.notes]
    keys.model_name = keys.model_name and redact_text(keys.model_name, account.secrets)
    return keys


def _notes(account: Account) -> list[str]:
    """What to say about the launch: the assumptions behind its account, then its warnings."""
    told = (finding for finding in account.findings if _is_told(finding))
    return [*account.notes, *(f"launch: {finding.message}" for finding in told)]


def _is_told(finding: Finding) -> bool:
    """Warnings and options that were not read; what the prediction itself says (clients, SGLang's 48) is left to it."""
    own = finding.code.startswith("client-") or finding.code == "running-requests-lowered"
    return (finding.severity == WARNING or finding.code == UNREAD) and not own


def _chosen(source: str | Sequence[str], name: str | None) -> Launch:
    found = find_launches(source)
    malformed = first_error(found.findings)
    if malformed is not None and not found.launches:
        raise InputError(redact_text(f"launch text [{malformed.code}]: {malformed.message}"))
    if not found.launches:
        raise InputError("nothing in the launch text starts vllm or sglang")
    if name is not None:
        for launch in found.launches:
            if launch.name == name:
                return launch
        near = get_close_matches(name, [launch.name for launch in found.launches], n=1)
        hint = f"; did you mean '{near[0]}'?" if near else ""
        raise UnknownNameError(f"no launch '{name[:80]}' in this source; known: {names_of(found.launches)}{hint}")
    if len(found.launches) > 1:
        raise InputError(
            f"{len(found.launches)} launches in this source, choose one with --launch NAME: {names_of(found.launches)}"
        )
    return found.launches[0]


def _engine(account: Account) -> dict[str, object]:
    table: dict[str, object] = {"name": account.engine}
    if account.stated_version:
        table["version"] = account.stated_version
    for key in _ENGINE_KEYS:
        value = getattr(account.settings, key)
        if value is not None:
            table[key] = value
    return table


def _speculation(account: Account, keys: LaunchKeys) -> dict[str, object]:
    config = account.speculation
    if config is None:
        return {"method": "none"}
    table: dict[str, object] = {} if config.get("method") is None else {"method": _method(config)}
    lookup = table.get("method") in ("ngram", "ngram_gpu")
    for source, key in (
        ("num_speculative_tokens", "num_speculative_tokens"),
        ("prompt_lookup_min", "prompt_lookup_min" if lookup else ""),
        ("prompt_lookup_max", "prompt_lookup_max" if lookup else ""),
        ("draft_tensor_parallel_size", "draft_tensor_parallel_size"),
        ("num_speculative_tokens_per_batch_size", "schedule"),
        ("eagle_topk", "sglang_topk"),
        ("num_draft_tokens", "sglang_num_draft_tokens"),
    ):
        if key and config.get(source) is not None:
            table[key] = config[source]
    if account.speculation_written:
        table["launch_config"] = account.speculation_written
    if config.get("num_speculative_tokens") is None:
        keys.notes.append("num_speculative_tokens is not known from the launch text: give it with -k")
    if config.get("adaptive"):
        table["policy"] = "sglang-adaptive"
    draft = config.get("model")
    if isinstance(draft, str) and table.get("method") != "mtp":
        card = card_for(draft)
        if card:
            table["draft_model"] = card
        else:
            keys.notes.append(
                f"the draft model {draft} is no model known here: the usual head for the method is assumed"
            )
    return table


def _method(config: dict[str, Any]) -> str:
    method = str(config["method"])
    if method in MTP_ALIASES:
        return "mtp"
    return "p_eagle" if method == "eagle3" and config.get("parallel_drafting") is True else method


def _model(launch: Launch | None, account: Account, keys: LaunchKeys) -> str | None:
    """The `config` key: a local checkpoint with a config.json, or the shipped card that fits the repository's name."""
    name = account.settings.model
    if name is None:
        return None
    local = local_config(name, launch.folder, launch.root) if launch else None
    if local:
        return local
    card = card_for(name)
    if card is None:
        keys.notes.append(f"the model {name} is no card known here: name one with --model")
    elif (repository_of_card(card) or "").lower() != name.lower():
        keys.notes.append(f"launch: the model {name} is taken as the card {card}; --model names another one")
    return card


__all__ = ["LaunchKeys", "deployment_from_launch", "looks_like_launch"]
