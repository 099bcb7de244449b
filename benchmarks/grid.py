"""What one cell of a grid costs: `choose` in a warm process, over draft lengths, concurrencies and parameter draws.

Prints, for both shipped examples, the time of a whole answer and of its grid alone, and the time per cell and draw.
"""

import statistics
import time
from collections.abc import Callable
from functools import partial

from draftcast import choose, load
from simulator.closed_form import Cell
from simulator.study import build_study

LENGTHS = tuple(range(9))
LOADS = (1, 2, 4, 8, 16, 32, 64, 128)
DRAWS = 2000
REPEATS = 7
EXAMPLES = ("examples/kimi-k2.5-8x-rtx-pro-6000.toml", "examples/kimi-k2.6-8x-rtx-pro-6000-switch.toml")


def median_seconds(run: Callable[[], object]) -> float:
    """Median wall time of a few calls after one that warms the caches."""
    run()
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main() -> None:
    """Measure and print."""
    cells = [Cell(k, c) for k in LENGTHS for c in LOADS]
    print(f"{len(cells)} cells, {DRAWS} draws, median of {REPEATS}")
    print(f"{'example':<32}{'answer, ms':>12}{'grid, ms':>12}{'cell, us':>12}{'cell and draw, ns':>20}")
    for path in EXAMPLES:
        deployment = load(path)
        study = build_study(deployment, k_max=max(LENGTHS), num_draws=DRAWS)
        answer = median_seconds(partial(choose, deployment, num_speculative_tokens=LENGTHS, concurrency=LOADS))
        grid = median_seconds(partial(study.grid, cells, point=False))
        cell = grid / len(cells)
        name = path.removeprefix("examples/").removesuffix(".toml")[:30]
        print(f"{name:<32}{answer * 1e3:>12.1f}{grid * 1e3:>12.1f}{cell * 1e6:>12.0f}{cell / DRAWS * 1e9:>20.0f}")


if __name__ == "__main__":
    main()
