"""The account of a source in the JSON shape of `inspect`: every launch in it, and what is wrong with each."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from validate.launch.account import SERVER, Account, account_for
from validate.launch.findings import ERROR, Finding
from validate.launch.known import NOTHING, Known
from validate.launch.redaction import redact
from validate.launch.sources import find_launches


@dataclass(slots=True)
class Accounts:
    """What a source holds: the accounts of its launches, and the faults of pieces that could not be parsed."""

    accounts: list[Account] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    @property
    def errors(self) -> list[Finding]:
        """Every finding that is an error, in order."""
        return [finding for finding in self.all_findings if finding.severity == ERROR]

    @property
    def all_findings(self) -> list[Finding]:
        """The findings of all launches, then those of the source itself."""
        return [finding for account in self.accounts for finding in account.findings] + self.findings

    @property
    def secrets(self) -> tuple[str, ...]:
        """The credentials of all launches."""
        return tuple(secret for account in self.accounts for secret in account.secrets)


def accounts_of(source: str | Path | Sequence[str], known: Known = NOTHING) -> Accounts:
    """The accounts of a path, a launch text, or an argument list; `known` is what the user says beside it."""
    found = find_launches(source)
    accounts = Accounts([account_for(launch, known) for launch in found.launches], list(found.findings))
    if not accounts.accounts and not accounts.findings:
        accounts.findings.append(Finding(ERROR, "no-launch-found", "nothing here starts vllm or sglang"))
    return accounts


def inspect_launch(source: str | Path | Sequence[str], known: Known = NOTHING) -> dict[str, Any]:
    """`launches[...]`, the first launch's keys again at top level, and `findings`; all credentials hidden.

    A malformed source has no launches and says why in `findings`; a file that cannot be read raises InputError.
    """
    return report(accounts_of(source, known))


def report(found: Accounts) -> dict[str, Any]:
    """The accounts in the shape of `inspect --json`."""
    launches = [launch_dict(account) for account in found.accounts]
    result: dict[str, Any] = dict(launches[0]) if launches else {"findings": []}
    result["launches"] = launches
    if found.findings:
        result["findings"] = [*result["findings"], *(finding_dict(finding) for finding in found.findings)]
    redacted: dict[str, Any] = redact(result, found.secrets)
    return redacted


def launch_dict(account: Account) -> dict[str, Any]:
    """One launch as `inspect` prints it; a value that is not known is None, with the reason beside it."""
    settings, facts = account.settings, account.facts
    usual = None if account.kind == SERVER else 1  # what a launch leaves out is 1; a server just does not tell
    result: dict[str, Any] = {
        "name": account.name,
        "source_kind": account.kind,
        "engine": account.engine,
        "version": account.version,
        "argv": account.argv,
        "model": settings.model,
        "speculative_config": account.speculation,
        "tensor_parallel_size": settings.tensor_parallel_size or usual,
        "pipeline_parallel_size": settings.pipeline_parallel_size or usual,
        "data_parallel_size": settings.data_parallel_size or usual,
        "expert_parallel": settings.expert_parallel if account.kind == SERVER else bool(settings.expert_parallel),
        "decode_context_parallel_size": settings.decode_context_parallel_size or usual,
        "max_model_len": settings.max_model_len,
        "max_num_seqs": settings.max_num_seqs or (facts.max_num_seqs if facts else None),
        "max_num_batched_tokens": settings.max_num_batched_tokens or (facts.max_num_batched_tokens if facts else None),
        "gpu_memory_utilization": settings.gpu_memory_utilization,
        "kv_cache_dtype": settings.kv_cache_dtype,
        "attention_backend": settings.attention_backend,
        "enforce_eager": settings.enforce_eager if account.kind == SERVER else bool(settings.enforce_eager),
        "async_scheduling": facts.async_scheduling if facts else settings.async_scheduling,
        "model_runner": facts.model_runner if facts else None,
        "uniform_decode_graph": facts.uniform_decode_graph if facts else None,
        "environment": account.environment,
    }
    result |= {f"{key}_reason": reason for key, reason in reasons(account, result).items()}
    if account.kind == SERVER:
        result["inferred"] = account.inferred
    if account.server is not None:
        result["server"] = account.server
    return result | {"findings": [finding_dict(finding) for finding in account.findings], "notes": account.notes}


_SIZES = (
    "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "expert_parallel",
    "decode_context_parallel_size", "enforce_eager",
)  # fmt: skip
_OPEN = {
    "version": "the launch names none, and none was stated",
    "max_model_len": "not set: the model's own",
    "max_num_seqs": "not set: the default depends on the GPU",
    "max_num_batched_tokens": "not set: the default depends on the GPU",
    "gpu_memory_utilization": "not set: the engine's default",
    "kv_cache_dtype": "not set: as the model's weights are computed",
    "attention_backend": "not set: the default depends on GPU and model",
    "async_scheduling": "depends on the model or the GPU",
    "model_runner": "depends on the model",
    "uniform_decode_graph": "depends on GPU and model",
}


def reasons(account: Account, shown: dict[str, Any]) -> dict[str, str]:
    """Why a value is None, by key; values that only the environment knows are made None here."""
    found: dict[str, str] = {}
    for key, text in account.settings.unresolved.items():
        if key in shown and key != "model":
            shown[key] = None
            found[key] = f"{text} is not set in this text"
    if account.speculation is None and "speculative_config" in account.inferred:
        found["speculative_config"] = account.inferred["speculative_config"]
    if account.kind == SERVER:
        return found | {key: "the server does not tell" for key in (*_OPEN, *_SIZES) if shown[key] is None}
    return {key: why for key, why in _OPEN.items() if shown[key] is None} | found


def finding_dict(finding: Finding) -> dict[str, str | None]:
    """A finding as `inspect` prints it."""
    return asdict(finding)
