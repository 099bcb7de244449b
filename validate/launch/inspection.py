"""The account of a source in the JSON shape of `inspect`: every launch in it, and what is wrong with each."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from validate.launch.account import Account, account_for
from validate.launch.findings import ERROR, Finding
from validate.launch.redaction import redact
from validate.launch.sources import find_launches


def inspect_launch(source: str | Path | Sequence[str]) -> dict[str, Any]:
    """`launches[...]`, the first launch's keys again at top level, and `findings`; all credentials hidden.

    `source` is a path, a launch text, or an argument list. A malformed source has no launches and says why in
    `findings`; a file that cannot be read raises InputError. Times and sizes do not occur.
    """
    found = find_launches(source)
    accounts = [account_for(launch) for launch in found.launches]
    findings = list(found.findings)
    if not accounts and not findings:
        findings.append(Finding(ERROR, "no-launch-found", "nothing here starts vllm or sglang"))
    launches = [launch_dict(account) for account in accounts]
    report: dict[str, Any] = dict(launches[0]) if launches else {"findings": []}
    report["launches"] = launches
    if findings:
        report["findings"] = [*report["findings"], *(finding_dict(finding) for finding in findings)]
    secrets = tuple(secret for account in accounts for secret in account.secrets)
    redacted: dict[str, Any] = redact(report, secrets)
    return redacted


def launch_dict(account: Account) -> dict[str, Any]:
    """One launch as `inspect` prints it."""
    settings = account.settings
    return {
        "name": account.name,
        "source_kind": account.kind,
        "engine": account.engine,
        "version": account.version,
        "argv": account.argv,
        "model": settings.model,
        "speculative_config": account.speculation,
        "tensor_parallel_size": settings.tensor_parallel_size or 1,
        "pipeline_parallel_size": settings.pipeline_parallel_size or 1,
        "data_parallel_size": settings.data_parallel_size or 1,
        "expert_parallel": bool(settings.expert_parallel),
        "max_model_len": settings.max_model_len,
        "max_num_seqs": settings.max_num_seqs,
        "max_num_batched_tokens": settings.max_num_batched_tokens,
        "findings": [finding_dict(finding) for finding in account.findings],
        "notes": account.notes,
    }


def finding_dict(finding: Finding) -> dict[str, str | None]:
    """A finding as `inspect` prints it."""
    return asdict(finding)
