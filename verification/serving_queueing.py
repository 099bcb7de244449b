"""The serving engine against queueing theory: M/D/1, M/M/1, and Little's law.

One seat and steps of a fixed duration make the engine a single server. Right: the mean time in the system agrees with
theory within four standard errors (batch means), which themselves must be below 4 %. Little's law, L = lambda W, with
L counted by a process that looks at random moments: within 2 %.
"""

import sys
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import simpy
from numpy.typing import NDArray

from hwmodel.percent import percent
from simulator.serving import clients
from simulator.serving.acceptance_sampling import NoDrafts
from simulator.serving.decode_blocks import DecodePlanner
from simulator.serving.engine import Engine
from simulator.serving.kv_blocks import BlockPool
from simulator.serving.metrics import ArmMetrics, Counting, Slo
from simulator.serving.policies import StaticLength
from simulator.serving.request import Request, RequestSpec
from simulator.serving.scheduler import Limits, Scheduler
from verification.checks import Check, report, strictest
from verification.plots import BAND, RIGHT, WRONG, draw

STANDARD_ERRORS, MOST_ERROR, LITTLE_TOLERANCE = 4.0, 0.04, 0.02
BATCHES = 20
CURVES_INCHES = (8.0, 6.0)
STEP_S = 0.001
NUM_REQUESTS = 40_000
FIXED_TOKENS = 100
MEAN_TOKENS = 400  # of a geometric output: nearly exponential service


class FixedTimes:
    """Every step takes 1 ms."""

    def decode_s(self, sequences: int, drafted: Any, drafts: Any, context_tokens: Any) -> NDArray[np.float64]:
        """So many steps."""
        return np.full(len(context_tokens), STEP_S)

    def mixed_s(self, key: Any, context_tokens: float, prompt_tokens: int, seen_tokens: float, finished: int) -> float:
        """One step."""
        return STEP_S


@dataclass
class Watch:
    """Times in the system by request, and the number in the system at random moments."""

    e2e_s: list[float] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)

    def request_done(self, request: Request) -> None:
        """Note the time."""
        self.e2e_s.append(request.e2e_s)

    def steps(self, starts_s: Any, ends_s: Any, facts: dict[str, int]) -> None:
        """Of no interest."""

    def looks(self, engine: Engine, rng: np.random.Generator, gap_s: float) -> Generator[simpy.Event, None, None]:
        """Counts the requests at random moments."""
        while True:
            yield engine.env.timeout(rng.exponential(gap_s))
            totals = engine.metrics.totals
            self.numbers.append(totals.arrived - totals.finished)


def run(outputs: NDArray[np.int64], rate_per_s: float, seats: int, seed: int) -> Watch:
    """Poisson arrivals at an engine with so many seats."""
    rng = np.random.default_rng(seed)
    times = np.cumsum(rng.exponential(1.0 / rate_per_s, len(outputs)))
    env = simpy.Environment()
    scheduler = Scheduler(Limits(max_num_seqs=seats, max_num_batched_tokens=10_000), BlockPool(10**9, 16))
    metrics = ArmMetrics(Slo(), Counting(0, len(outputs), until_closed=False))
    planner = DecodePlanner(env, scheduler, FixedTimes(), NoDrafts(), StaticLength(0), metrics)  # type: ignore[arg-type]
    watch = Watch()
    engine = Engine(env, scheduler, planner, metrics, (watch,))
    specs = (RequestSpec(i, t, 1, n) for i, (t, n) in enumerate(zip(times.tolist(), outputs.tolist(), strict=True)))
    env.process(watch.looks(engine, rng, 3.0 / rate_per_s))
    env.run(until=env.process(clients.open_loop(engine, specs)))
    return watch


class Point(NamedTuple):
    """Mean time in the system at a load: simulated, with its standard error, and by theory."""

    queue: str
    load: float
    found_s: float
    error_s: float
    expected_s: float

    def check(self) -> Check:
        """Simulation against theory, and its standard error against what it may be."""
        off_s = self.found_s - self.expected_s
        text = f"{self.queue} at load {self.load:g}: {self.found_s:.4f} s, theory {self.expected_s:.4f} s"
        return strictest(
            f"{text} ({percent(off_s / self.expected_s, 1, signed=True)}, standard error"
            f" {percent(self.error_s / self.expected_s, 1)})",
            (off_s, STANDARD_ERRORS * self.error_s),
            (self.error_s, MOST_ERROR * self.expected_s),
        )


def point(queue: str, load: float, watch: Watch) -> Point:
    """What a run gave, without its first twentieth; the error from batch means."""
    values = np.array(watch.e2e_s[len(watch.e2e_s) // 20 :])
    means = np.array([batch.mean() for batch in np.array_split(values, BATCHES)])
    error_s = float(means.std(ddof=1) / np.sqrt(BATCHES))
    return Point(queue, load, float(values.mean()), error_s, THEORY_S[queue](load))


def fixed_theory_s(load: float) -> float:
    """Mean time in an M/D/1 system (Pollaczek-Khinchine), in seconds."""
    service = FIXED_TOKENS * STEP_S
    return service + load * service / (2.0 * (1.0 - load))


def geometric_theory_s(load: float) -> float:
    """Mean time in seconds where service is a geometric number of steps: nearly M/M/1 (Pollaczek-Khinchine)."""
    mean = MEAN_TOKENS * STEP_S
    second = (2.0 * MEAN_TOKENS**2 - MEAN_TOKENS) * STEP_S**2
    return mean + load / mean * second / (2.0 * (1.0 - load))


THEORY_S = {"M/D/1": fixed_theory_s, "M/M/1": geometric_theory_s}


def queue_checks(points: list[Point]) -> Iterator[Check]:
    """M/D/1 and M/M/1 at several loads; Pollaczek-Khinchine gives the exact mean for whole steps. Fills `points`."""
    rng = np.random.default_rng(1)
    for load in (0.3, 0.6, 0.8):
        rate = load / (FIXED_TOKENS * STEP_S)
        points.append(point("M/D/1", load, run(np.full(NUM_REQUESTS, FIXED_TOKENS), rate, 1, seed=int(10 * load))))
        yield points[-1].check()
    for load in (0.3, 0.6):
        outputs = rng.geometric(1.0 / MEAN_TOKENS, NUM_REQUESTS)
        mean = MEAN_TOKENS * STEP_S
        points.append(point("M/M/1", load, run(outputs, load / mean, 1, seed=int(100 * load))))
        yield points[-1].check()
        exact, limit = points[-1].expected_s, mean / (1.0 - load)
        text = f"M/M/1 at load {load:g}: {exact:.4f} s with whole steps, {limit:.4f} s = 1 / (mu - lambda)"
        yield Check(text, exact / limit - 1.0, 0.01)


def little_checks() -> Iterator[Check]:
    """L = lambda W with batching: requests are counted at random moments."""
    for seats, load in ((4, 0.5), (16, 0.8)):
        outputs = np.random.default_rng(seats).geometric(1.0 / 50, NUM_REQUESTS)
        rate = load * seats / (50 * STEP_S)
        watch = run(outputs, rate, seats, seed=seats)
        expected, counted = rate * float(np.mean(watch.e2e_s)), float(np.mean(watch.numbers))
        off = counted / expected - 1.0
        text = f"Little's law, {seats} seats: L {counted:.3f}, lambda W {expected:.3f} ({percent(off, 1, signed=True)})"
        yield Check(text, off, LITTLE_TOLERANCE)


def paint(figure: Any, points: list[Point]) -> None:
    """Time over load, theory a line, and below it the difference, where the band of allowed errors shows."""
    loads = np.linspace(0.0, 0.85, 100)
    figure.suptitle(
        f"Line: theory. Dots: simulated, bars of {STANDARD_ERRORS:g} standard errors.\n"
        "Right: above, the line crosses every bar; below, every dot in the band. A failed check is a cross."
    )
    rows = figure.subplots(2, len(THEORY_S), sharex=True, height_ratios=(2, 1))
    for (queue, theory_s), (times, differences) in zip(THEORY_S.items(), rows.T, strict=True):
        times.plot(loads, [theory_s(load) for load in loads], color="black")
        differences.axhspan(-STANDARD_ERRORS, STANDARD_ERRORS, **BAND)
        differences.axhline(0.0, color="black")
        for p in (p for p in points if p.queue == queue):
            look = {"linestyle": "", "capsize": 3, **(RIGHT if p.check().passed else WRONG)}
            times.errorbar(p.load, p.found_s, STANDARD_ERRORS * p.error_s, **look)
            differences.errorbar(p.load, (p.found_s - p.expected_s) / p.error_s, **look)
        times.set(title=queue, ylabel="mean time in the system, s", ylim=0)
        differences.set(xlabel="load", ylabel="difference, standard errors")
        differences.margins(y=0.2)


def main() -> int:
    """1 when a check fails."""
    points: list[Point] = []
    code = report("serving_queueing", chain(queue_checks(points), little_checks()))
    draw("serving_queueing_curves", CURVES_INCHES, lambda figure: paint(figure, points))
    return code


if __name__ == "__main__":
    sys.exit(main())
