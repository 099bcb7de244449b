"""Predicted against measured, cell by cell, and how much the machine's own noise allows to say."""

import math
from dataclasses import dataclass

from live.loop import CHECKED_LOADS, GROUNDS, LOADS, K, Loop, Record

from hwmodel.percent import percent

START_DRIFT = 0.08  # one cell after two starts of one server: 20 % apart at worst on an idle machine, about 2.5 sigma
SLOWER, FASTER = 0.9, 1.6  # speedup of the texts that were made for it, at one load at least
FORETOLD_FASTER = 1.5
TIMES_APART = (
    1.25  # client over server: where another process takes the processor, the last chunks of answers come late
)
SIGMAS = 2.0  # of the noise of a measured figure, before anything is held against a prediction


@dataclass(frozen=True, slots=True)
class Interval:
    """A 90 % interval with its median."""

    p05: float
    p50: float
    p95: float

    def holds(self, value: float, noise: float) -> bool:
        """Whether a measured value of that relative noise is compatible with it."""
        slack = math.exp(SIGMAS * noise)
        return self.p05 / slack <= value <= self.p95 * slack

    def __str__(self) -> str:
        return f"{self.p50:.3g} ({self.p05:.3g}-{self.p95:.3g})"


@dataclass(frozen=True, slots=True)
class Row:
    """One cell. Speedups are ratios of output tokens per second; `noise` is the relative error of the measured one."""

    ground: str
    concurrency: int
    speedup: Interval
    measured_speedup: float
    noise: float
    throughput: Interval  # tokens per second with drafts
    measured_throughput: float
    throughput_noise: float
    step_s: Interval
    measured_step_s: float
    tokens_per_step: float
    measured_tokens_per_step: float

    @property
    def clear(self) -> int:
        """1 clearly faster, -1 clearly slower, 0 within the noise, as measured."""
        log = math.log(self.measured_speedup)
        return 0 if abs(log) <= SIGMAS * self.noise else int(math.copysign(1, log))

    @property
    def outside(self) -> list[str]:
        """Figures that no interval holds, even with the noise."""
        held = {
            "speedup": self.speedup.holds(self.measured_speedup, self.noise),
            "step time": self.step_s.holds(self.measured_step_s, self.throughput_noise),
            "throughput": self.throughput.holds(self.measured_throughput, self.throughput_noise),
            "sign": not self.clear or (self.speedup.p50 > 1.0) is (self.clear > 0),
        }
        return [name for name, holds in held.items() if not holds]


def rows(loop: Loop) -> list[Row]:
    """All cells that were measured without and with drafts."""
    drift = drift_of(loop)
    return [_row(loop, ground, load, drift) for ground in GROUNDS for load in CHECKED_LOADS]


def spoilt(loop: Loop) -> list[str]:
    """What in a run may be the machine's doing: cells that did not run, sides that differ, figures outside."""
    cells = {(r, g, n): loop.cell(r, g, n) for r, loads in LOADS.items() for g in GROUNDS for n in loads}
    refused = [f"{r} {g} C={n} refused" for (r, g, n), cell in cells.items() if n in CHECKED_LOADS and refusal(cell)]
    if refused:
        return refused  # there may be no figures
    apart = [f"{r} {g} C={n} TPOT apart" for (r, g, n), cell in cells.items() if not sides_agree(cell)]
    outside = [f"{row.ground} C={row.concurrency} {name}" for row in rows(loop) for name in row.outside]
    return [*apart, *outside, *(why for ground in GROUNDS if (why := otherwise(loop, ground)))]


def refusal(cell: Record) -> str | None:
    """Why `measure` refused a cell."""
    reason: str | None = cell["refused_reason"]
    return reason


def sides_agree(cell: Record) -> bool:
    """Whether TPOT is about the same at the client and at the server."""
    return 1 / TIMES_APART < 1.0 + _apart(cell) < TIMES_APART


def otherwise(loop: Loop, ground: str) -> str | None:
    """Why a text is not as much slower or faster as it was made to be, or not foretold so; None where it is.

    At least one load of *wander* runs at 0.9 of the baseline or less, one of *loop* at 1.6 times or more; noise beyond
    that of an idle machine leaves more room.
    """
    room = math.exp(SIGMAS * (drift_of(loop) - START_DRIFT))
    speedups = [row.measured_speedup for row in rows(loop) if row.ground == ground]
    foretold = [loop.predicted[ground, n] for n in CHECKED_LOADS]
    best = loop.chosen[ground]["recommendation"]["num_speculative_tokens"]
    if ground == "wander":
        is_as_made = min(speedups) < SLOWER * room
        was_foretold = all(told["probability_faster"] < 0.5 for told in foretold) and best in (0, 1)
    else:
        is_as_made = max(speedups) > FASTER / room
        was_foretold = all(told["speedup"]["p50"] > FORETOLD_FASTER for told in foretold) and best in (3, 5)
    if is_as_made and was_foretold:
        return None
    measured = ", ".join(f"{speedup:.2f}" for speedup in speedups)
    predicted = ", ".join(f"{told['speedup']['p50']:.2f}" for told in foretold)
    return f"{ground} {measured} measured, {predicted} foretold, k={best} recommended"


def drift_of(loop: Loop) -> float:
    """Relative standard deviation of one cell from what the machine does between cells.

    The baseline's cells of both grounds do the same work at the same load, minutes apart: sd = |ln ratio| / sqrt(2),
    root mean square over the loads. It holds the difference in routing too, so it errs to the wide side. What a restart
    does is not in it: at least `START_DRIFT`.
    """
    logs = [math.log(_rate(loop, "before", "loop", n) / _rate(loop, "before", "wander", n)) for n in CHECKED_LOADS]
    return max(START_DRIFT, math.sqrt(sum(log * log for log in logs) / len(logs) / 2.0))


def _rate(loop: Loop, run: str, ground: str, load: int) -> float:
    rate: float = loop.cell(run, ground, load)["throughput_tokens_per_s"]
    return rate


def _row(loop: Loop, ground: str, load: int, drift: float) -> Row:
    predicted, before, after = (
        loop.predicted[ground, load],
        loop.cell("before", ground, load),
        loop.cell("after", ground, load),
    )
    own = [math.hypot(cell["relative_noise"], drift) for cell in (before, after)]
    drafted = predicted["speculative"]
    return Row(
        ground=ground,
        concurrency=load,
        speedup=_interval(predicted["speedup"]),
        measured_speedup=_rate(loop, "after", ground, load) / _rate(loop, "before", ground, load),
        noise=math.hypot(*own),
        throughput=_interval(drafted["throughput_tokens_per_s_interval"]),
        measured_throughput=_rate(loop, "after", ground, load),
        throughput_noise=own[1],
        step_s=_interval(loop.recorded[ground, load]["cells"][0]["speculative"]["intervals"]["step_s"]),
        measured_step_s=after["step_s"],
        tokens_per_step=drafted["tokens_per_step"],
        measured_tokens_per_step=after["tokens_per_step"],
    )


def _interval(statistics: dict[str, float]) -> Interval:
    return Interval(statistics["p05"], statistics["p50"], statistics["p95"])


def table(loop: Loop) -> list[str]:
    """The comparison as lines of text, 80 columns."""
    lines = [
        f"n-gram, k = {K}: predicted before the restart (median and 90 %), measured after it",
        "text    C  speedup             measured     step ms         measured  tokens/step",
    ]
    for row in rows(loop):
        step = Interval(*(1e3 * value for value in (row.step_s.p05, row.step_s.p50, row.step_s.p95)))
        lines.append(
            f"{row.ground:6} {row.concurrency:2}  {row.speedup!s:18}  {row.measured_speedup:4.2f}"
            f" +-{percent(row.noise):>5}  {step!s:14}  {1e3 * row.measured_step_s:8.0f}"
            f"  {row.tokens_per_step:.2f} ({row.measured_tokens_per_step:.2f})"
        )
    lines += ["baseline: tok/s " + _baseline(loop), *_both_sides(loop)]
    took = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in loop.took_s.items())
    ready = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in loop.start_s.items())
    return [*lines, f"noise of a cell between minutes: {percent(drift_of(loop))}; ready after: {ready}; took: {took}"]


def _baseline(loop: Loop) -> str:
    """Measured tokens per second of the baseline at each load, both grounds."""
    cells = [f"{g} C={n} {_rate(loop, 'before', g, n):.1f}" for g in GROUNDS for n in CHECKED_LOADS]
    return ", ".join(cells)


def _both_sides(loop: Loop) -> list[str]:
    """How far TPOT at the client lies from the server's in each cell, and every cell that was refused."""
    lines = []
    for run, loads in LOADS.items():
        cells = {(g, n): loop.cell(run, g, n) for g in GROUNDS for n in loads}
        apart = [f"{g} C={n} {percent(_apart(cell), 1, signed=True)}" for (g, n), cell in cells.items()]
        lines.append(f"TPOT, client against server, {run}: " + ", ".join(apart))
        lines += [f"refused: {run} {g}: {r}" for (g, _), cell in cells.items() if (r := refusal(cell))]
    return lines


def _apart(cell: Record) -> float:
    check: Record = next(check for check in cell["checks"] if check["name"] == "tpot_s")
    apart: float = check["client"] / check["server"] - 1.0
    return apart
