"""Two sources side by side: what runs, and what would run after the restart."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from validate.launch.changes import Change, all_changes, verdict
from validate.launch.findings import first_error
from validate.launch.inspection import Accounts
from validate.launch.known import Known

Read = Callable[[Known], Accounts]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Both sides, the changes between them (None where one side cannot be read), and a sentence about the restart."""

    old: Accounts
    new: Accounts
    changes: list[Change] | None
    verdict: str
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The keys that `inspect OLD NEW` adds."""
        if self.changes is None:
            return {"changes": None, "changes_reason": self.verdict, "verdict": self.verdict}
        return {"changes": [change.to_dict() for change in self.changes], "verdict": self.verdict}


def compare(read_old: Read, read_new: Read, known: Known) -> Comparison:
    """The comparison of two sources; where only one of them tells its engine's version, it holds for both."""
    old, new = read_old(known), read_new(known)
    note = ""
    before, after = _version(old), _version(new)
    if known.version is None and (before is None) != (after is None) and _engines(old) == _engines(new):
        version = before or after
        note = f"only one side tells the engine's version: {version} is taken for both"
        stated = replace(known, version=version)
        old, new = (old, read_new(stated)) if after is None else (read_old(stated), new)
    for side, name in ((old, "old"), (new, "new")):
        if not side.accounts:
            error = first_error(side.findings)
            why = f"the {name} source holds no launch: {error.message if error else 'nothing starts an engine'}"
            return Comparison(old, new, None, why, note)
    changes = all_changes(old.accounts, new.accounts)
    return Comparison(old, new, changes, verdict(old.accounts, new.accounts, changes), note)


def _version(found: Accounts) -> str | None:
    """The one version that all launches tell, or None."""
    versions = {account.version for account in found.accounts}
    return versions.pop() if len(versions) == 1 else None


def _engines(found: Accounts) -> set[str]:
    return {account.engine for account in found.accounts}
