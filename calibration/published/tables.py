"""The published measurements that ship with the project: data/published/*.toml, one table a set."""

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from calibration.published.rows import GROUP_COLUMNS, PublishedRow, rows_of

_DATA = Path(__file__).parent.parent / "data" / "published"
_NEEDED = (*GROUP_COLUMNS, "k", "concurrency")  # absent where a source says nothing


def shipped_rows() -> list[PublishedRow]:
    """All shipped rows, in the order of the files; `text["role"]` says which sets are scored."""
    records = (record for path in sorted(_DATA.glob("*.toml")) for record in _records(path))
    return rows_of(records, "shipped measurements")


def _records(path: Path) -> Iterator[Mapping[str, Any]]:
    for table in tomllib.loads(path.read_text(encoding="utf-8"))["set"]:
        constant = {name: value for name, value in table.items() if name not in ("columns", "rows")}
        for row in table["rows"]:
            yield dict.fromkeys(_NEEDED, "") | constant | dict(zip(table["columns"], row, strict=True))


def shipped_roles() -> dict[str, str]:
    """The role of every set that ships."""
    return {row.text["set_id"]: row.text["role"] for row in shipped_rows()}
