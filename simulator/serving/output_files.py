"""The files that a run writes, and what observes an arm for them."""

from collections.abc import Callable
from types import TracebackType

from simulator.files import WholeFile
from simulator.perfetto import TraceWriter
from simulator.serving.arms import Progress, ProgressObserver
from simulator.serving.engine import Observer
from simulator.serving.records import RecordWriter
from simulator.serving.serving_trace import ArmTrace

_JSON_LINES = (".jsonl", ".ndjson")


class OutputFiles:
    """Records and trace of both arms; they appear when both are complete, or not at all."""

    def __init__(self, records: str | None, trace: str | None, progress: Progress | None) -> None:
        """Opens the files; `InputError` where one cannot be written."""
        self._files: list[WholeFile] = []
        self._makers: list[Callable[[str, int], Observer]] = []
        self._trace: TraceWriter | None = None
        self._arms = 0
        try:
            if records is not None:
                self._add_records(records)
            if trace is not None:
                self._add_trace(trace)
        except Exception:
            self.discard()
            raise
        if progress is not None:
            self._makers.append(lambda arm, count: ProgressObserver(arm, count, progress))

    def _add_records(self, path: str) -> None:
        file = self._open(path)
        writer = RecordWriter(file.file, as_json=path.endswith(_JSON_LINES))
        self._makers.append(lambda arm, count: writer.of(arm))

    def _add_trace(self, path: str) -> None:
        writer = self._trace = TraceWriter(self._open(path).file)
        self._makers.append(lambda arm, count: ArmTrace(writer, self._arms, arm))

    def _open(self, path: str) -> WholeFile:
        self._files.append(WholeFile(path))
        return self._files[-1]

    def observers(self, arm: str, num_requests: int) -> tuple[Observer, ...]:
        """Who watches this arm."""
        self._arms += 1
        return tuple(make(arm, num_requests) for make in self._makers)

    def discard(self) -> None:
        """The run was not completed: no file is left."""
        for file in self._files:
            file.discard()
        self._files = []

    def __enter__(self) -> "OutputFiles":
        """Ready to write."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Completes the files, or leaves none."""
        if kind is not None:
            self.discard()
            return
        if self._trace is not None and self._files:
            self._trace.close()
        for file in self._files:
            file.complete()
