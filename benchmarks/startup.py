"""How long the program takes to start, beside what its imports alone take: `make bench`.

Runs are interleaved, so that a busy moment of the machine hits all of them. The ratio compares the fastest runs, by
wall time: importing numpy starts threads, whose waiting for work counts as processor time on an idle machine.
"""

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


def wall_s(command: tuple[str, ...]) -> float:
    """Wall time of one run of `command`, which must succeed."""
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> None:
    """Prints the table."""
    commands = {command for _, program, imports, _ in COMPARED for command in (program, imports)}
    times_s: dict[tuple[str, ...], list[float]] = {command: [] for command in commands}
    for _ in range(REPEATS):
        for command in commands:
            times_s[command].append(wall_s(command))
    print(f"{'':<26}{'median s':>10}{'fastest s':>11}{'ratio':>8}{'allowed':>9}")
    for name, program, imports, allowed in COMPARED:
        for label, command in ((name, program), ("  " + imports[-1], imports)):
            line = f"{label[:25]:<26}{statistics.median(times_s[command]):>10.3f}{min(times_s[command]):>11.3f}"
            if command is program:
                line += f"{min(times_s[program]) / min(times_s[imports]):>8.2f}{allowed:>9.1f}"
            print(line)


if __name__ == "__main__":
    main()
