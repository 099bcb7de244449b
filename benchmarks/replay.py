"""What replaying a million output tokens costs, beside one numpy argsort of the same tokens: `make bench`.

Wall time of the whole job in this process, from JSON lines to the report, and its parts; several shapes, since short
requests cost by the request and long ones by the token. Every figure is the fastest of a few runs.
"""

import json
import resource
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from calibration.replay.sources.files import Reading
from calibration.replay.task import Options, replay_files

OUTPUT_TOKENS = 1_000_000
LENGTHS = tuple(range(1, 9))
REPEATS = 3
VOCABULARY = 100_000
COPIED_SHARE = 0.1  # of the places where a copied stretch may begin
NGRAM_TARGET_S = 3.0  # of a million output tokens at k = 1 to 8 and matches of 4 tokens


@dataclass(frozen=True)
class Shape:
    """So many requests of one size, with a million output tokens in all."""

    name: str
    prompt_tokens: int
    output_tokens: int
    copied_share: float = COPIED_SHARE


SHAPES = (
    Shape("10,000 short requests", 100, 100),
    Shape("1,000 requests", 500, 1_000),
    Shape("10 long requests", 1_000, 100_000),
    Shape("1,000 requests that copy a lot", 500, 1_000, 0.8),
)


def text(rng: np.random.Generator, size: int, copied_share: float) -> list[int]:
    """Token ids with the frequencies of text (Zipf), and stretches copied from before."""
    tokens = np.minimum(rng.zipf(1.3, size), VOCABULARY).astype(np.int64)
    place = 200
    while place < size - 80:
        if rng.random() < copied_share:
            length = int(rng.integers(8, 60))
            start = int(rng.integers(0, place - length))
            tokens[place : place + length] = tokens[start : start + length]
            place += length
        else:
            place += 20
    ids: list[int] = tokens.tolist()
    return ids


def write(path: Path, shape: Shape) -> None:
    """The recordings of a shape as JSON lines."""
    rng = np.random.default_rng(0)
    with path.open("w", encoding="utf-8") as file:
        for _ in range(OUTPUT_TOKENS // shape.output_tokens):
            whole = text(rng, shape.prompt_tokens + shape.output_tokens, shape.copied_share)
            row = {"prompt_token_ids": whole[: shape.prompt_tokens], "token_ids": whole[shape.prompt_tokens :]}
            file.write(json.dumps(row) + "\n")


def fastest_s(run: Callable[[], object], repeats: int = REPEATS) -> float:
    """Wall time of the fastest run."""
    times_s = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times_s.append(time.perf_counter() - start)
    return min(times_s)


def measure(path: Path, shape: Shape) -> None:
    """Prints one line."""
    recordings = list(Reading().recordings([str(path)]))
    tokens = np.concatenate([part for item in recordings for part in (item.prompt, item.output)])
    ngram = Options(num_speculative_tokens=LENGTHS, prompt_lookup_max=4)
    suffix = Options(method="suffix", num_speculative_tokens=LENGTHS)
    figures = (
        fastest_s(lambda: np.argsort(tokens, kind="stable")),
        fastest_s(lambda: list(Reading().recordings([str(path)]))),
        fastest_s(lambda: replay_files([str(path)], Reading(), ngram)),
        fastest_s(lambda: replay_files([str(path)], Reading(), suffix), 1),
    )
    peak_gb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"{shape.name:<32}" + "".join(f"{figure:>12.2f}" for figure in figures) + f"{peak_gb:>10.2f}")


def main() -> None:
    """Prints the table."""
    lengths = f"k = {LENGTHS[0]} to {LENGTHS[-1]}"
    print(f"{OUTPUT_TOKENS:,} output tokens, {lengths}, seconds (n-gram allowed: {NGRAM_TARGET_S})")
    print(f"{'':<32}{'argsort':>12}{'reading':>12}{'n-gram':>12}{'suffix':>12}{'peak, GB':>10}")
    with tempfile.TemporaryDirectory() as folder:
        for index, shape in enumerate(SHAPES):
            path = Path(folder) / f"{index}.jsonl"
            write(path, shape)
            measure(path, shape)


if __name__ == "__main__":
    main()
