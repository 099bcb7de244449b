"""What simulated serving costs: a step in bare SimPy events, growth with the number of requests, memory.

Times are CPU times, and every figure is a ratio of two measurements of one run of this script.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from pathlib import Path

import simpy

from simulator.deployment import Deployment, load_deployment
from simulator.serving.arms import Load, run_arm
from simulator.serving.metrics import Slo
from simulator.serving.task import Task, choose_policy
from simulator.serving.workload import parse_arrivals
from simulator.study import build_study

CASE = "examples/kimi-k2.6-8x-rtx-pro-6000-switch.toml"
LENGTHS = ("workload.input_tokens=1000", "workload.output_tokens=1000")
TIMEOUTS = 200_000
REPEATS = 5
# (concurrency, requests, most bare timeout events that a step may cost)
STEP_LIMITS = ((1, 100, 20.0), (64, 1920, 40.0))
FEW, MANY, MOST_TIME_RATIO = 400, 4000, 11.0
MEMORY_FEW, MEMORY_MANY, MOST_MEMORY_RATIO = 1000, 100_000, 1.3


def timeout_s() -> float:
    """Seconds of one bare timeout event: a process that does nothing but wait."""

    def waits(env: simpy.Environment) -> Generator[simpy.Event, None, None]:
        for _ in range(TIMEOUTS):
            yield env.timeout(1.0)

    env = simpy.Environment()
    env.process(waits(env))
    start = time.process_time()
    env.run()
    return (time.process_time() - start) / TIMEOUTS


def task(deployment: Deployment, concurrency: int, num_requests: int, length: int = 3) -> Task:
    """A closed loop of a deployment."""
    policy, _ = choose_policy(deployment, length, concurrency)
    study = build_study(deployment, k_max=length, num_draws=50)
    load = Load(parse_arrivals(f"closed:{concurrency}"), num_requests, seed=0)
    return Task(study, policy, load, Slo(), None, (1, 2))


def run_s(todo: Task, arm: str) -> tuple[float, int]:
    """CPU seconds and engine steps of one arm, its table of step times filled before."""
    arms = todo.arms()
    run_arm(arms[arm], todo.load, todo.slo)
    start = time.process_time()
    report = run_arm(arms[arm], todo.load, todo.slo)
    return time.process_time() - start, report.metrics.totals.steps


def steps(deployment: Deployment) -> None:
    """A simulated step in bare timeout events, measured before and after each run; the median of some runs."""
    for concurrency, num_requests, limit in STEP_LIMITS:
        for arm in ("baseline", "speculative"):
            ratios, times = [], []
            for _ in range(REPEATS):
                before = timeout_s()
                seconds, count = run_s(task(deployment, concurrency, num_requests), arm)
                event = 0.5 * (before + timeout_s())
                ratios.append(seconds / count / event)
                times.append(seconds / count)
            middle = statistics.median(ratios)
            print(
                f"{_verdict(middle <= limit)} step at C={concurrency}, {arm}: {middle:.1f} timeout events, allowed"
                f" {limit:g} ({min(times) * 1e6:.1f} us; {REPEATS} runs {min(ratios):.1f} to {max(ratios):.1f})"
            )


def _verdict(good: bool) -> str:
    return "PASS" if good else "FAIL"


def growth(deployment: Deployment) -> None:
    """Time for ten times the requests: one long run against as many short ones, so that both see the same machine."""
    ratios = []
    for _ in range(REPEATS):
        short = [run_s(task(deployment, 64, FEW), "speculative")[0] for _ in range(MANY // FEW)]
        ratios.append(run_s(task(deployment, 64, MANY), "speculative")[0] / statistics.mean(short))
    middle = statistics.median(ratios)
    print(
        f"{_verdict(middle <= MOST_TIME_RATIO)} {MANY} requests take {middle:.1f} times as long as {FEW}, allowed"
        f" {MOST_TIME_RATIO:g} ({REPEATS} runs {min(ratios):.1f} to {max(ratios):.1f})"
    )


def memory() -> None:
    """Peak memory with records streamed to a file, each run in a process of its own."""
    peaks = {}
    for count in (MEMORY_FEW, MEMORY_MANY):
        start = time.perf_counter()
        peaks[count] = peak_bytes(count)
        print(f"     {count} requests at C=256: peak {peaks[count] / 1e6:.0f} MB, {time.perf_counter() - start:.0f} s")
    ratio = peaks[MEMORY_MANY] / peaks[MEMORY_FEW]
    verdict, times = _verdict(ratio <= MOST_MEMORY_RATIO), MEMORY_MANY // MEMORY_FEW
    print(f"{verdict} {ratio:.2f} times the memory for {times} times the requests, allowed {MOST_MEMORY_RATIO:g}")


def peak_bytes(num_requests: int) -> float:
    """Peak resident memory of a run of the program."""
    code = (
        "import resource, sys; from draftcast.cli import cli; cli.main(sys.argv[1:], standalone_mode=False);"
        " print('PEAK', resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    with tempfile.TemporaryDirectory() as folder:
        arguments = ["simulate", CASE, "--arrivals", "closed:256", "--requests", str(num_requests), "--json"]
        arguments += ["--set", "workload.output_tokens=64", "--records", str(Path(folder) / "records.csv")]
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True, env=os.environ
        )
    return float(done.stdout.rpartition("PEAK")[2]) * 1024.0


def main() -> None:
    """Measure and print."""
    deployment = load_deployment(CASE, LENGTHS)
    print(f"bare SimPy timeout event: {timeout_s() * 1e6:.2f} us")
    steps(deployment)
    growth(deployment)
    if "--no-memory" not in sys.argv:
        memory()


if __name__ == "__main__":
    main()
