"""The step as a Perfetto trace: one row per rank, one per link."""

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO

from simulator.perfetto import TraceWriter
from simulator.ranks.topology_graph import Box

_RANKS, _LINKS = 1, 2  # groups of rows


class StepTrace:
    """Writes spans of ranks and links to a file while the step runs."""

    def __init__(self, path: str, groups: Sequence[Sequence[int]], box: Box | None) -> None:
        """Names the rows; the file is opened on entering."""
        self._path = path
        self._ranks = sorted(rank for group in groups for rank in group)
        self._links = {name: row for row, name in enumerate(box.links)} if box else {}
        self._file: IO[str] | None = None
        self._writer: TraceWriter | None = None

    def __enter__(self) -> "StepTrace":
        """Opens the file; `OSError` where it cannot be written."""
        self._file = Path(self._path).open("w", encoding="utf-8")
        writer = self._writer = TraceWriter(self._file)
        writer.process(_RANKS, "ranks")
        for rank in self._ranks:
            writer.thread(_RANKS, rank, f"rank {rank}")
        if self._links:
            writer.process(_LINKS, "links")
        for name, row in self._links.items():
            writer.thread(_LINKS, row, name)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends the trace."""
        assert self._file is not None
        assert self._writer is not None
        self._writer.close()
        self._file.close()

    def rank(self, rank: int, what: str, category: str, start_s: float, end_s: float) -> None:
        """A span of a rank."""
        assert self._writer is not None
        self._writer.slice((_RANKS, rank), what, start_s, end_s, {"part": category})

    def link(self, name: str, start_s: float, end_s: float, label: str) -> None:
        """A message that occupies a link."""
        assert self._writer is not None
        self._writer.slice((_LINKS, self._links[name]), label, start_s, end_s, {})
