"""The serving engine against queueing theory: M/D/1, M/M/1, and Little's law.

One seat and steps of a fixed duration make the engine a single server. Right: the mean time in the system agrees with
theory within four standard errors (batch means), which themselves must be below 4 %. Little's law, L = lambda W, with
L counted by a process that looks at random moments: within 2 %.
"""

import sys
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import simpy
from numpy.typing import NDArray

from simulator.serving import clients
from simulator.serving.acceptance_sampling import NoDrafts
from simulator.serving.decode_blocks import DecodePlanner
from simulator.serving.engine import Engine
from simulator.serving.kv_blocks import BlockPool
from simulator.serving.metrics import ArmMetrics, Counting, Slo
from simulator.serving.policies import StaticLength
from simulator.serving.request import Request, RequestSpec
from simulator.serving.scheduler import Limits, Scheduler

Check = tuple[bool, str]
STANDARD_ERRORS, MOST_ERROR, LITTLE_TOLERANCE = 4.0, 0.04, 0.02
BATCHES = 20
STEP_S = 0.001
NUM_REQUESTS = 40_000
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


def against(name: str, watch: Watch, expected_s: float) -> Check:
    """Mean time in the system against theory."""
    values = np.array(watch.e2e_s[len(watch.e2e_s) // 20 :])
    means = np.array([batch.mean() for batch in np.array_split(values, BATCHES)])
    error = means.std(ddof=1) / np.sqrt(BATCHES)
    off = values.mean() - expected_s
    good = abs(off) <= STANDARD_ERRORS * error and error < MOST_ERROR * expected_s
    text = f"{name}: {values.mean():.4f} s, theory {expected_s:.4f} s ({off / expected_s:+.1%},"
    return good, f"{text} standard error {error / expected_s:.1%})"


def queue_checks() -> Iterator[Check]:
    """M/D/1 and M/M/1 at several loads; Pollaczek-Khinchine gives the exact mean for whole steps."""
    rng = np.random.default_rng(1)
    for load in (0.3, 0.6, 0.8):
        tokens = 100
        service = tokens * STEP_S
        wait = load * service / (2.0 * (1.0 - load))
        fixed = run(np.full(NUM_REQUESTS, tokens), load / service, 1, seed=int(10 * load))
        yield against(f"M/D/1 at load {load:g}", fixed, service + wait)
    for load in (0.3, 0.6):
        outputs = rng.geometric(1.0 / MEAN_TOKENS, NUM_REQUESTS)
        mean = MEAN_TOKENS * STEP_S
        second = (2.0 * MEAN_TOKENS**2 - MEAN_TOKENS) * STEP_S**2  # of a geometric number of steps
        rate = load / mean
        exact = mean + rate * second / (2.0 * (1.0 - load))
        watch = run(outputs, rate, 1, seed=int(100 * load))
        yield against(f"M/M/1 at load {load:g}", watch, exact)
        limit = mean / (1.0 - load)
        good = abs(exact / limit - 1.0) < 0.01
        yield good, f"M/M/1 at load {load:g}: {exact:.4f} s with whole steps, {limit:.4f} s = 1 / (mu - lambda)"


def little_checks() -> Iterator[Check]:
    """L = lambda W with batching: requests are counted at random moments."""
    for seats, load in ((4, 0.5), (16, 0.8)):
        outputs = np.random.default_rng(seats).geometric(1.0 / 50, NUM_REQUESTS)
        rate = load * seats / (50 * STEP_S)
        watch = run(outputs, rate, seats, seed=seats)
        expected, counted = rate * float(np.mean(watch.e2e_s)), float(np.mean(watch.numbers))
        off = counted / expected - 1.0
        yield (
            abs(off) < LITTLE_TOLERANCE,
            f"Little's law, {seats} seats: L {counted:.3f}, lambda W {expected:.3f} ({off:+.1%})",
        )


def main() -> int:
    """1 when a check fails."""
    failed = 0
    for good, text in (*queue_checks(), *little_checks()):
        print("PASS" if good else "FAIL", text)
        failed += not good
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
