"""How long the program takes to start, beside what its imports alone take: `make bench`.

Runs are interleaved, so that a busy moment of the machine hits all of them. The ratios compare the fastest runs: their
wall time, which is what is allowed, and their processor time, which a busy machine disturbs less.
"""

import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

LOADS = "1,2,4,8,16,32,64,128"  # with the default draft lengths 0 to 8 and 2,000 draws
REPEATS = 15
CASE = Path(__file__).parent.parent / "examples" / "kimi-k2.5-8x-rtx-pro-6000.toml"
PROGRAM = str(Path(sys.executable).parent / "draftcast")
# (what, its command, the command that it is compared with, the most that the ratio should be)
COMPARED = (
    ("draftcast --help", (PROGRAM, "--help"), (sys.executable, "-c", "import click"), 2.0),
    (
        "draftcast choose --json",
        (PROGRAM, "choose", str(CASE), "-c", LOADS, "--json"),
        (sys.executable, "-c", "import numpy, pydantic, click"),
        3.0,
    ),
    (
        "draftcast choose",
        (PROGRAM, "choose", str(CASE), "-c", LOADS),
        (sys.executable, "-c", "import numpy, pydantic, click"),
        3.0,
    ),
)


def run_s(command: tuple[str, ...]) -> tuple[float, float]:
    """Wall and processor time of one run of `command`, which must succeed."""
    start, used = time.perf_counter(), children_s()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - start, children_s() - used


def children_s() -> float:
    """Processor time of all commands so far."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    """Prints the table."""
    commands = {command for _, program, imports, _ in COMPARED for command in (program, imports)}
    runs: dict[tuple[str, ...], list[tuple[float, float]]] = {command: [] for command in commands}
    for _ in range(REPEATS):
        for command in commands:
            runs[command].append(run_s(command))
    walls_s = {command: [wall for wall, _ in runs[command]] for command in commands}
    fastest = {command: min(walls_s[command]) for command in commands}
    processor = {command: min(used for _, used in runs[command]) for command in commands}
    print(f"{'':<26}{'median s':>10}{'fastest s':>11}{'ratio':>8}{'allowed':>9}{'of processor time':>20}")
    for name, program, imports, allowed in COMPARED:
        for label, command in ((name, program), ("  " + imports[-1], imports)):
            line = f"{label[:25]:<26}{statistics.median(walls_s[command]):>10.3f}{fastest[command]:>11.3f}"
            if command is program:
                line += f"{fastest[program] / fastest[imports]:>8.2f}{allowed:>9.1f}"
                line += f"{processor[program] / processor[imports]:>20.2f}"
            print(line)


if __name__ == "__main__":
    main()
