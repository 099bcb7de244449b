"""Hours of real traffic read from /metrics: cells by load, and tables for a deployment file. No load of its own."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from calibration.readers.values import first
from hwmodel.errors import InputError
from hwmodel.units import MINUTE
from validate.client.connection import Connection
from validate.client.faults import Fault, FaultError
from validate.client.scrapes import Counted, Counters, window_between
from validate.client.server_facts import ServerFacts, read_facts
from validate.client.target import Target
from validate.measure.lock import locked
from validate.measure.passive_tables import deployment_tables
from validate.measure.run_file import FORMAT, read_run, write_run
from validate.measure.server_side import acceptance_dict, worth_saying
from validate.measure.traffic import LoadGroup, Traffic

DEFAULT_INTERVAL_S = 10.0
MIN_WINDOWS = 3  # of one load, for a cell that may be used
_LATE = 2.5  # intervals between two scrapes: beyond it the load in between is not known
_WRITE_S = 60.0
_POLL_S = 0.5


@dataclass(frozen=True, slots=True)
class PassivePlan:
    """What to watch, for how long, and where the run goes."""

    target: Target
    minutes: float
    interval_s: float = DEFAULT_INTERVAL_S
    served_model: str | None = None
    method: str | None = None
    run_path: str | None = None
    fresh: bool = False


@dataclass(slots=True)
class PassiveRun:
    """A watch under way; `result` is whole at any time."""

    plan: PassivePlan
    report: Callable[[float, float, float], None] = field(default=lambda gone_s, all_s, tokens: None)
    traffic: Traffic = field(default_factory=Traffic)
    facts: ServerFacts | None = None
    notes: list[str] = field(default_factory=list)
    interrupted: bool = False
    _gaps: dict[str, int] = field(default_factory=dict)  # reason -> windows that were lost by it
    _scrapes: int = 0
    _started: datetime = field(default_factory=lambda: datetime.now(UTC))

    def run(self) -> None:
        """Watches until the time is over; Ctrl-C ends it earlier, with what there is."""
        with locked(self.plan.run_path):
            self._run()

    def _run(self) -> None:
        if self.plan.run_path is not None and not self.plan.fresh and read_run(self.plan.run_path) is not None:
            raise InputError(f"{self.plan.run_path} holds an earlier run; allowed: a new file, or --fresh")
        connection = Connection(self.plan.target)
        counters = Counters(connection)
        before = counters.take()
        if before.scrape is None:
            raise FaultError(Fault("fatal", f"{before.reason}; allowed: a server whose /metrics can be read"))
        self.facts = read_facts(connection, before, self.plan.served_model)
        if self.plan.method and self.facts.method is None:
            self.facts = replace(self.facts, method=self.plan.method)
        try:
            self._watch(counters, before)
        except KeyboardInterrupt:
            self.interrupted = True
        self.write()

    def _watch(self, counters: Counters, before: Counted) -> None:
        start_s = time.monotonic()
        end_s = start_s + self.plan.minutes * MINUTE
        written_s, turn = start_s, 1
        while True:
            due_s = min(start_s + turn * self.plan.interval_s, end_s)
            self._sleep_until(due_s, start_s, end_s)
            before = self._turn(counters, before)
            now_s = time.monotonic()
            if now_s >= end_s:
                return
            turn = max(turn + 1, int((now_s - start_s) / self.plan.interval_s) + 1)  # after a suspend, no haste
            if now_s - written_s >= _WRITE_S:
                self.write()
                written_s = now_s

    def _sleep_until(self, due_s: float, start_s: float, end_s: float) -> None:
        while (left_s := due_s - time.monotonic()) > 0:
            tokens = sum(group.side().totals.generated_tokens or 0.0 for group in self.traffic.total.values())
            self.report(time.monotonic() - start_s, end_s - start_s, tokens)
            time.sleep(min(left_s, _POLL_S))

    def _turn(self, counters: Counters, before: Counted) -> Counted:
        """One scrape; the window since the last good one is sorted in. Returns the scrape to go on from."""
        taken = counters.take()
        if taken.scrape is None:
            self._lose(taken.reason or "no scrape")
            return before
        self._scrapes += 1
        model = self.facts.model if self.facts is not None else None
        window, reason = window_between(before, taken, model)
        if window is None:
            self._lose(reason or "no window")
        elif (window.elapsed_s or 0.0) > _LATE * self.plan.interval_s:
            self._lose("too long since the scrape before")
        elif window.elapsed_s:
            self.traffic.add(window)
        return taken

    def _lose(self, reason: str) -> None:
        self._gaps[reason] = self._gaps.get(reason, 0) + 1

    def result(self) -> dict[str, Any]:
        """The run as it stands, in the shape of the run file, with the tables of a deployment file."""
        tokens = sum(self._tokens(group) for group in self.traffic.groups.values())
        cells = [self._cell(group, tokens) for _, group in sorted(self.traffic.groups.items(), key=_by_load)]
        total = self._main_total()
        tables = deployment_tables(cells, total.side() if total is not None else None, total.k if total else None)
        return {
            "format": FORMAT,
            "server": self.facts.to_dict() if self.facts is not None else {"url": self.plan.target.url},
            "cells": cells,
            "load": {"passive_minutes": self.plan.minutes, "interval_s": self.plan.interval_s},
            "traffic": {
                "idle_s": self.traffic.idle_s,
                "uneven_s": self.traffic.uneven_s,
                "busy_s": sum(group.length_s for group in self.traffic.total.values()),
                "scrapes": self._scrapes,
                "lost_windows": self._gaps,
            },
            "deployment_toml": tables.text,
            "deployment_reason": tables.reason,
            "stopped": "interrupted" if self.interrupted else None,
            "notes": [*self.notes, *tables.notes, *self._gap_notes()],
            "provenance": {
                "started": self._started.isoformat(timespec="seconds"),
                "written": datetime.now(UTC).isoformat(timespec="seconds"),
            },
        }

    def write(self) -> None:
        """The run file as of now."""
        if self.plan.run_path is not None:
            write_run(self.plan.run_path, self.result())

    def _main_total(self) -> LoadGroup | None:
        """The draft length that most tokens were generated with."""
        return max(self.traffic.total.values(), key=self._tokens, default=None)

    @staticmethod
    def _tokens(group: LoadGroup) -> float:
        return group.side().totals.generated_tokens or 0.0

    def _gap_notes(self) -> list[str]:
        return [f"{count} of the windows were lost: {reason}" for reason, count in self._gaps.items()]

    def _cell(self, group: LoadGroup, all_tokens: float) -> dict[str, Any]:
        side = group.side()
        found, tokens = side.cell, side.totals.generated_tokens or 0.0
        refused = next((reason for reason in side.refused if "acceptance" not in reason), None)
        if group.windows < MIN_WINDOWS and refused is None:
            refused = f"this load was seen in {group.windows} windows only, allowed: from {MIN_WINDOWS}"
        noise = first(found.relative_noise if found else None, 0.0) or 0.0
        return {
            "concurrency": found.concurrency if found else None,
            "measured_concurrency": found.concurrency if found else None,
            "num_speculative_tokens": group.k,
            "method": self.facts.method if self.facts is not None else None,
            "complete": True,
            "refused_reason": refused,
            "tpot_s": {"mean": found.tpot_s} if found and found.tpot_s else None,
            "ttft_s": {"mean": found.ttft_s} if found and found.ttft_s else None,
            "step_s": found.step_s if found else None,
            "tokens_per_step": found.tokens_per_step if found else None,
            "throughput_tokens_per_s": found.throughput_tokens_per_s if found else None,
            "input_tokens": found.input_tokens if found else None,
            "output_tokens": found.output_tokens if found else None,
            "context_tokens": found.context_tokens if found else None,
            "acceptance": acceptance_dict(side),
            "acceptance_reason": _no_acceptance(side.refused, group.k),
            "relative_noise": min(1.0, max(noise, group.scatter or 0.0)) or None,
            "num_requests": side.totals.finished,
            "duration_s": group.length_s,
            "windows": group.windows,
            "share_of_tokens": tokens / all_tokens if all_tokens else 0.0,
            "prefix_hit_share": side.totals.prefix_hit_share,
            "server": side.to_dict(),
            "notes": worth_saying(found),
        }


def _no_acceptance(refused: tuple[str, ...], k: int | None) -> str | None:
    if k == 0:
        return "the server does not speculate"
    return next((reason for reason in refused if "acceptance" in reason), None)


def _by_load(item: tuple[tuple[int | None, int], LoadGroup]) -> tuple[int, int]:
    (k, load), _ = item
    return (-1 if k is None else k, load)
