"""Which rows are scored, and what may be looked at to predict them: three protocols.

Informed: every baseline of the group, its accepted lengths (else the acceptance fitted on a few rows, which are not
scored). Cold: no baseline either. Anchored: as informed, and one speculative row, which is not scored.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from calibration.published.cells import leading_number
from calibration.published.prediction import Seen
from calibration.published.rows import PublishedRow, checked, csv_records
from hwmodel.errors import InputError
from simulator.deployment.keys import short

PROTOCOLS = ("informed", "cold", "anchored")
USABLE_ROLE = "usable"


@dataclass(frozen=True, slots=True)
class Task:
    """One group ready to be predicted: its usable rows, what may be seen of them, and which are scored.

    `seen` and `scored` hold positions in `rows`; `baselines` are all rows of the group with a baseline, usable or not.
    """

    rows: tuple[PublishedRow, ...]
    baselines: tuple[PublishedRow, ...]
    seen: Seen
    scored: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SkippedRow:
    """A row that is not scored, and why."""

    row: PublishedRow
    reason: str


def read_roles(path: str) -> dict[str, str]:
    """The role of each set, from a CSV with the columns `set_id` and `role`; others are not read."""
    roles: dict[str, str] = {}
    for record in checked(csv_records(path, "sets"), ("set_id", "role"), path):
        name, role = (str(record[column] or "").strip() for column in ("set_id", "role"))
        if roles.setdefault(name, role) != role:
            raise InputError(
                f"sets: '{short(name)}' is both '{short(roles[name])}' and '{short(role)}', allowed: one role a set"
            )
    return roles


def with_roles(rows: Sequence[PublishedRow], roles: Mapping[str, str]) -> list[PublishedRow]:
    """The rows with the roles of their sets; a row whose set is not among them keeps its own."""
    return [replace(row, text={**row.text, "role": roles.get(row.text["set_id"], row.text["role"])}) for row in rows]


def skip_reason(row: PublishedRow) -> str | None:
    """Why a row cannot be scored, None if it can."""
    role = row.text["role"].lower()
    if row.text["skip_reason"]:
        return row.text["skip_reason"]
    if role and role != USABLE_ROLE:
        return f"role {role}"
    if (leading_number(row.text["sglang_topk"]) or 1.0) > 1.0 or "tree" in row.text["method"].lower():
        return "tree"
    if "adaptive" in f"{row.text['k']} {row.text['method']}".lower():
        return "adaptive draft length"
    if row.fault:
        return row.fault
    for value, reason in (
        (row.num_speculative_tokens, "no draft length"),
        (row.concurrency, "no concurrency"),
        (row.speedup, "no speedup"),
    ):
        if value is None:
            return reason
    return None


def prepare(group: Sequence[PublishedRow], protocol: str) -> tuple[Task | None, list[SkippedRow]]:
    """The task of one group under a protocol, None where nothing is left to score, and the rows that are not."""
    skipped = [SkippedRow(row, reason) for row in group if (reason := skip_reason(row))]
    rows = tuple(row for row in group if not skip_reason(row))
    baselines = tuple(row for row in group if row.baseline_step_s and row.concurrency and not row.fault)
    seen = _seen(rows)
    used = {i for at in seen.calibration.values() for i in at}
    unscored = dict.fromkeys(used, "calibrates acceptance")
    if protocol == "anchored" and rows:
        anchor = _anchor(rows)
        seen = Seen(seen.lengths, seen.calibration, () if anchor in used else (anchor,))
        unscored[anchor] = "anchor"
    scored = tuple(i for i in range(len(rows)) if i not in unscored)
    skipped += [SkippedRow(rows[i], why) for i, why in sorted(unscored.items())]
    return (Task(rows, baselines, seen, scored) if scored else None), skipped


def _seen(rows: Sequence[PublishedRow]) -> Seen:
    lengths: dict[int, list[int]] = {}
    calibration: dict[int, list[int]] = {}
    for k in sorted({row.num_speculative_tokens or 0 for row in rows}):
        of_length = [i for i, row in enumerate(rows) if row.num_speculative_tokens == k]
        told = [i for i in of_length if _possible(rows[i])]
        if told:
            lengths[k] = told
        else:
            calibration[k] = _calibrating(rows, of_length)
    return Seen(lengths, calibration)


def _possible(row: PublishedRow) -> bool:
    """Whether a row tells an accepted length that its draft length allows."""
    length = row.mean_accepted_length
    return length is not None and length <= (row.num_speculative_tokens or 0) + 1.0


def _calibrating(rows: Sequence[PublishedRow], of_length: Sequence[int]) -> list[int]:
    """The rows of the shortest context with the lower half (rounded up) of the concurrencies."""
    shortest = min(rows[i].context_tokens or 0.0 for i in of_length)
    short = [i for i in of_length if (rows[i].context_tokens or 0.0) == shortest]
    loads = sorted({rows[i].concurrency or 0.0 for i in short})
    lower = set(loads[: (len(loads) + 1) // 2])
    return [i for i in short if (rows[i].concurrency or 0.0) in lower]


def _anchor(rows: Sequence[PublishedRow]) -> int:
    """The row of the lowest concurrency, the smallest draft length, the shortest context."""

    def order(i: int) -> tuple[float, int, float]:
        row = rows[i]
        return row.concurrency or 0.0, row.num_speculative_tokens or 0, row.context_tokens or 0.0

    return min(range(len(rows)), key=order)
