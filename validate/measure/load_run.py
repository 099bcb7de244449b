"""A whole run of load: the server looked at, its dialect found, one cell after the other, each kept when it is done."""

import platform
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from hwmodel.errors import InputError
from validate.client.connection import Connection
from validate.client.faults import FaultError
from validate.client.scrapes import Counters, window_between
from validate.client.server_facts import ServerFacts, read_facts
from validate.client.target import Target
from validate.measure.cell import cell_dict
from validate.measure.cell_run import Budget, CellRun, Progress
from validate.measure.client_side import request_records
from validate.measure.dialect import Dialect, find_dialect
from validate.measure.lock import locked
from validate.measure.outputs import OutputFile
from validate.measure.prompts import Prompt, PromptSet
from validate.measure.run_file import FORMAT, kept_cells, read_run, write_run
from validate.measure.server_side import prefix_hit_share
from validate.measure.settings import Limits, Load
from validate.measure.users import Work

_WAIT_POLL_S = 1.0
_NONCE_BYTES = 4
_PACKAGES = ("draftcast", "requests", "urllib3")

Note = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Files:
    """Where results go; `fresh` measures again what the run file already has."""

    run: str | None = None
    outputs: str | None = None
    fresh: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that a run is asked to do."""

    target: Target
    load: Load
    limits: Limits
    prompts: PromptSet
    files: Files = Files()
    wait_s: float = 0.0
    force: bool = False
    method: str | None = None  # as the user names it, where the server does not tell


@dataclass(frozen=True, slots=True)
class RunProgress:
    """A cell's progress within the run; `run_left_s` is an estimate for all cells that are left."""

    cell: Progress
    cells_done: int
    cells: int
    run_left_s: float | None


@dataclass(slots=True)
class LoadRun:
    """A run under way. `result` is whole at any time; `stopped` says why cells are missing."""

    plan: Plan
    report: Callable[[RunProgress], None] = field(default=lambda progress: None)
    waiting: Note = field(default=lambda text: None)
    cells: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    facts: ServerFacts | None = None
    dialect: Dialect | None = None
    stopped: str | None = None  # a fault, or others' traffic: the command ends with it
    limited: str | None = None  # a limit that was set
    interrupted: bool = False
    _connection: Connection = field(init=False)
    _counters: Counters = field(init=False)
    _started: datetime = field(init=False)
    _nonce: str = field(init=False)
    _outputs: OutputFile | None = None
    _lengths_s: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Nothing is sent yet."""
        self._connection = Connection(self.plan.target)
        self._counters = Counters(self._connection)
        self._started = datetime.now(UTC)
        self._nonce = secrets.token_hex(_NONCE_BYTES)

    def run(self) -> None:
        """Runs all cells; what can be said before the first request is an error, later faults end the run.

        Ctrl-C ends it with the cells that there are, the one under way among them, marked as not finished.
        """
        with locked(self.plan.files.run, self.plan.files.outputs):
            try:
                self._run()
            except KeyboardInterrupt:
                self.interrupted = True
                if not self.cells:
                    raise

    def _run(self) -> None:
        self._prepare()
        assert self.facts is not None
        budget = Budget(time.monotonic() + self.plan.limits.total_s, float(self.plan.limits.total_tokens))
        prompts = self.plan.prompts.order(self.plan.load.seed)
        self._find_dialect(prompts[0], budget)
        for users in self._missing():
            self.limited = budget.spent()
            if self.limited or self.stopped:
                break
            self._cell(users, prompts, budget)

    def result(self) -> dict[str, Any]:
        """The run as it stands, in the shape of the run file."""
        return {
            "format": FORMAT,
            "server": self._server(),
            "cells": sorted(self.cells, key=lambda cell: int(cell["concurrency"])),
            "load": self._load(),
            "limits": self.plan.limits.to_dict(),
            "prompts": self.plan.prompts.to_dict(),
            "not_measured": self._missing(),
            "stopped": self.stopped or self.limited or ("interrupted" if self.interrupted else None),
            "notes": self.notes,
            "provenance": self._provenance(),
        }

    def _prepare(self) -> None:
        """Looks at the server and the run file, before anything is loaded."""
        self._wait()
        counted = self._counters.take()
        self.facts = read_facts(self._connection, counted, self.plan.load.served_model)
        if self.plan.method and self.facts.method is None:
            self.facts = replace(self.facts, method=self.plan.method)
        if counted.scrape is None:
            self.notes.append(f"{counted.reason}: the client's figures stand alone, and others' traffic is not seen")
        self._keep_cells()
        if self._missing():
            self._look_for_others()

    def _wait(self) -> None:
        """Until the server answers, for as long as asked; a `FaultError` after that."""
        until_s = time.monotonic() + self.plan.wait_s
        while True:
            reply = self._connection.get("/v1/models")
            if reply.fault is None or reply.status == 404:
                return
            fault = reply.fault
            if fault.kind == "fatal" or time.monotonic() >= until_s:
                hint = (
                    ""
                    if fault.kind == "fatal" or self.plan.wait_s
                    else "; --wait SECONDS waits for a server that starts"
                )
                raise FaultError(replace(fault, message=fault.message + hint))
            self.waiting(fault.message)
            time.sleep(_WAIT_POLL_S)

    def _keep_cells(self) -> None:
        """Cells that the run file already has of this server and load."""
        assert self.facts is not None
        path = self.plan.files.run
        old = read_run(path) if path is not None and not self.plan.files.fresh else None
        if old is not None:
            other = self.facts.differences(old.get("server") or {})
            if other:
                raise InputError(
                    f"the run file is of another server ({'; '.join(other)}); allowed: another file, or --fresh"
                )
            self.cells = kept_cells(old, self._load(), self.plan.load.concurrencies)
        kept = [int(cell["concurrency"]) for cell in self.cells]
        if kept:
            self.notes.append(
                f"concurrency {', '.join(map(str, sorted(kept)))}: kept from the run file, not measured again"
            )
        if self.plan.files.outputs is not None:
            self._outputs = OutputFile(self.plan.files.outputs, kept)

    def _look_for_others(self) -> None:
        """Refuses a server that works for others, unless told to load it."""
        first = self._counters.take()
        if first.scrape is None:
            return
        time.sleep(self.plan.limits.observe_s)
        second = self._counters.take()
        busy = max((first.running or 0) + (first.waiting or 0), (second.running or 0) + (second.waiting or 0))
        grown = (second.generated or 0.0) - (first.generated or 0.0)
        if not busy and grown <= 0:
            return
        what = f"{busy:g} requests are running or waiting" if busy else f"{grown:g} tokens were generated just now"
        if not self.plan.force:
            raise InputError(f"the server is serving others ({what}); allowed: an idle server, or --force")
        self.notes.append(f"the server is serving others ({what}): loaded all the same, as --force says")

    def _find_dialect(self, prompt: Prompt, budget: Budget) -> None:
        assert self.facts is not None
        if not self._missing():
            return
        load = self.plan.load
        unique = f"{self._nonce}-probe"
        self.dialect, answer, learnt = find_dialect(self._connection, self.facts.model, load, prompt, unique)
        self.notes += learnt
        budget.tokens -= answer.output_tokens or 0
        self._check_salt(prompt)
        prefix = {
            "salt": "every request has a cache salt of its own, so none finds another's prompt in the prefix cache",
            "random text": "every prompt begins with a random word, so none finds another's in the prefix cache",
            "none": "prompts come again, so the prefix cache may hold them (--prefix-cache allow)",
        }[self.dialect.prefix]
        self.notes.append(prefix)
        if answer.counted_by == "final usage":
            self.notes.append("the server tells tokens at the end of an answer only: tokens of a chunk are not known")

    def _check_salt(self, prompt: Prompt) -> None:
        """Sends the first prompt once more: where the server finds it in spite of another salt, salts do nothing.

        A salt whose effect cannot be seen is not relied on.
        """
        dialect = self.dialect
        if dialect is None or dialect.prefix != "salt":
            return
        before = self._counters.take()
        share = None
        if before.scrape is not None:
            self._connection.stream(dialect.path, dialect.body(prompt, f"{self._nonce}-again", 1))
            window, _ = window_between(before, self._counters.take(), dialect.model)
            share = None if window is None else prefix_hit_share(window)
        if share != 0.0:
            self.dialect = replace(dialect, salt=False)
        if share:
            self.notes.append("the server takes cache salts without a word, but they have no effect")

    def _cell(self, users: int, prompts: Sequence[Prompt], budget: Budget) -> None:
        """Measures one cell and keeps it."""
        assert self.dialect is not None
        limits = self.plan.limits
        work = Work(
            self.plan.target,
            self.dialect,
            prompts,
            f"{self._nonce}-{users}",
            limits.request_s,
            self._outputs is not None,
        )
        k = self.facts.num_speculative_tokens if self.facts else None
        started, started_s = datetime.now(UTC), time.monotonic()
        warmup_s = 0.0 if self._lengths_s else limits.warmup_s
        cell = CellRun(work, users, self._counters, limits, budget, k, warmup_s, self._reporter(started_s))
        try:
            cell.run()
        except KeyboardInterrupt:
            self._keep(cell, started, started_s)
            raise
        self._lengths_s.append(time.monotonic() - started_s)
        self._keep(cell, started, started_s)

    def _keep(self, cell: CellRun, started: datetime, started_s: float) -> None:
        """Adds the cell to the results and writes them."""
        measured = cell.measured()
        record = cell_dict(measured)
        record["method"] = self.facts.method if self.facts else None
        record["started"] = started.isoformat(timespec="milliseconds")  # a cell may be kept by a later run
        record["requests"] = request_records(cell.outcomes, measured.client.window, started_s)
        self.cells = [kept for kept in self.cells if kept["concurrency"] != cell.users] + [record]
        if record["foreign_traffic"] and not self.plan.force:
            self.stopped = f"{record['foreign_traffic']}; allowed: an idle server, or --force"
        if cell.failure is not None or (record["refused_reason"] and "restart" in record["refused_reason"]):
            self.stopped = record["refused_reason"]
        if self._outputs is not None and cell.finished:
            self._outputs.add(cell.users, cell.outcomes)
        self.write()

    def write(self) -> None:
        """The run file as of now; an `InputError` where that fails: what was measured is still in `result`."""
        if self.plan.files.run is not None and (self.cells or self.facts is not None):
            write_run(self.plan.files.run, self.result())

    def _reporter(self, started_s: float) -> Callable[[Progress], None]:
        def report(progress: Progress) -> None:
            rest = max(0, len(self._missing()) - 1)
            left_s = progress.left_s
            length_s = max([*self._lengths_s, time.monotonic() - started_s + (left_s or 0.0)])
            run_left_s = None if left_s is None else left_s + rest * length_s
            self.report(RunProgress(progress, len(self.cells), len(self.plan.load.concurrencies), run_left_s))

        return report

    def _missing(self) -> list[int]:
        """Concurrencies without a finished cell, in the order asked for."""
        done = {cell["concurrency"] for cell in self.cells}
        return [users for users in self.plan.load.concurrencies if users not in done]

    def _server(self) -> dict[str, Any]:
        return self.facts.to_dict() if self.facts is not None else {"url": self.plan.target.url}

    def _load(self) -> dict[str, Any]:
        return self.plan.load.to_dict() | {"prompts_sha256": self.plan.prompts.sha256}

    def _provenance(self) -> dict[str, Any]:
        dialect = self.dialect
        return {
            "started": self._started.isoformat(timespec="seconds"),
            "written": datetime.now(UTC).isoformat(timespec="seconds"),
            "api": None if dialect is None else dialect.path,
            "prefix": None if dialect is None else dialect.prefix,
            "nonce": self._nonce,
            "versions": {name: found for name in _PACKAGES if (found := _version(name)) is not None},
            "python": platform.python_version(),
            "platform": platform.platform(terse=True),
        }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
