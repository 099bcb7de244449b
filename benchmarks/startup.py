"""How long the program takes to start, beside what its imports alone take: `make bench`.

`python benchmarks/startup.py PROGRAM...` measures other installations, such as wheels on several Pythons: each PROGRAM
is the path of a `draftcast` beside its `python`. Runs are interleaved, so that a busy moment of the machine hits all of
them. The ratio compares the fastest runs, by wall time: importing numpy starts threads, whose waiting for work counts
as processor time on an idle machine. On a busy one the processor time says more; with OPENBLAS_NUM_THREADS=1 there are
no such threads. Below stand the modules that cost most to import, from one more run.
"""

import re
import resource
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

LOADS = "1,2,4,8,16,32,64,128"  # with the default draft lengths 0 to 8 and 2,000 draws
REPEATS = 15
CASE = Path(__file__).parent.parent / "examples" / "kimi-k2.5-8x-rtx-pro-6000.toml"
PROGRAM = Path(sys.executable).parent / "draftcast"
SHOWN_MODULES = 8
CHOOSE = ("choose", str(CASE), "-c", LOADS, "--json")
_IMPORTED = re.compile(r"import time:\s+(\d+) \|\s+(\d+) \|(\s+)(\S+)")
MICROSECOND_S = 1e-6


@dataclass(frozen=True, slots=True)
class Compared:
    """A command, the imports that it is compared with, and the most that the ratio of their times should be."""

    name: str
    command: tuple[str, ...]
    imports: tuple[str, ...]
    allowed: float

    @property
    def both(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The command and the imports, as they are run."""
        return self.command, self.imports


Times = dict[tuple[str, ...], list[tuple[float, float]]]  # of each command: wall and processor time of every run


def compared(program: Path) -> list[Compared]:
    """What is measured of one installation."""
    python, everything = str(program.parent / "python"), "import numpy, pydantic, click"
    return [
        Compared("draftcast --help", (str(program), "--help"), (python, "-c", "import click"), 2.0),
        Compared("draftcast choose --json", (str(program), *CHOOSE), (python, "-c", everything), 3.0),
        Compared("draftcast choose", (str(program), *CHOOSE[:-1]), (python, "-c", everything), 3.0),
    ]


def times_of(command: tuple[str, ...]) -> tuple[float, float]:
    """Wall time and processor time, in seconds, of one run of `command`, which must succeed."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wall_s, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall_s, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def import_costs_s(program: Path) -> list[tuple[float, str]]:
    """Seconds of importing each module without what it imports in turn, the most costly first."""
    done = subprocess.run(
        [str(program.parent / "python"), "-X", "importtime", str(program), *CHOOSE],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    found = (_IMPORTED.match(line) for line in done.stderr.splitlines())
    return sorted(((int(item[1]) * MICROSECOND_S, item[4]) for item in found if item), reverse=True)


def show(rows: list[Compared], times_s: Times) -> None:
    """Prints the table of one installation."""
    print(f"{'':<26}{'median s':>10}{'fastest s':>11}{'ratio':>8}{'processor s':>13}{'ratio':>8}{'allowed':>9}")
    for row in rows:
        fastest = {command: [min(column) for column in zip(*times_s[command], strict=True)] for command in row.both}
        ratios = [mine / theirs for mine, theirs in zip(fastest[row.command], fastest[row.imports], strict=True)]
        for label, command in ((row.name, row.command), ("  " + row.imports[-1], row.imports)):
            median_s = statistics.median(wall_s for wall_s, _ in times_s[command])
            said = [f"{ratio:>8.2f}" if command is row.command else " " * 8 for ratio in ratios]
            line = f"{label[:25]:<26}{median_s:>10.3f}{fastest[command][0]:>11.3f}{said[0]}"
            line += f"{fastest[command][1]:>13.3f}{said[1]}"
            print(line + (f"{row.allowed:>9.1f}" if command is row.command else ""))


def main() -> None:
    """Prints the tables."""
    programs = [Path(text).absolute() for text in sys.argv[1:]] or [PROGRAM]
    tables = {program: compared(program) for program in programs}
    commands = {command for rows in tables.values() for row in rows for command in row.both}
    times_s: Times = {command: [] for command in commands}
    for _ in range(REPEATS):
        for command in commands:
            times_s[command].append(times_of(command))
    for program, rows in tables.items():
        version = subprocess.run([program.parent / "python", "--version"], capture_output=True, text=True, check=True)
        print(f"{version.stdout.strip()}, {program}")
        show(rows, times_s)
        costs_s = import_costs_s(program)
        named = ", ".join(f"{name} {cost_s:.3f}" for cost_s, name in costs_s[:SHOWN_MODULES])
        print(f"imports of choose --json, {sum(cost for cost, _ in costs_s):.3f} s with the clock running: {named}\n")


if __name__ == "__main__":
    main()
