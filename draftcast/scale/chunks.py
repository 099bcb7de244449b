"""What a worker gets and gives: a chunk of cells with the function over them, and the outcomes."""

import functools
import hashlib
import pickle
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from draftcast import __version__
from simulator.sweeps import Outcome, attempt

MAX_CHUNK_CELLS = 16  # 80 ms each: about a second between two words from a worker
_CHUNKS_PER_WORKER = 4  # enough to even out cells of unequal cost
_ROOMS = ("hwmodel", "simulator", "calibration", "validate", "draftcast")
_one_at_a_time = threading.Lock()  # a Dask worker may have several threads; the model's caches are not made for them


class Chunk(NamedTuple):
    """Cells, by their place in the sweep. `function` is pickled, and opened only by the same program."""

    program: str
    function: bytes
    places: tuple[int, ...]
    cells: tuple[Any, ...]


class Answer(NamedTuple):
    """The program that answered, and the outcomes, pickled; None where it is another program than asked."""

    program: str
    outcomes: bytes | None


def chunks(function: Callable[[Any], Any], cells: Sequence[Any], workers: int, first: int = 0) -> list[Chunk]:
    """The cells from `first` on, in chunks small enough that all workers end at about the same time."""
    size = min(max((len(cells) - first) // (workers * _CHUNKS_PER_WORKER), 1), MAX_CHUNK_CELLS)
    packed, mine = pickle.dumps(function), program()
    starts = range(first, len(cells), size)
    return [
        Chunk(mine, packed, tuple(range(start, min(start + size, len(cells)))), tuple(cells[start : start + size]))
        for start in starts
    ]


def singles(chunk: Chunk) -> list[Chunk]:
    """Every cell of a chunk by itself."""
    return [
        chunk._replace(places=(place,), cells=(cell,)) for place, cell in zip(chunk.places, chunk.cells, strict=True)
    ]


def run_chunk(chunk: Chunk) -> Answer:
    """In a worker: the outcomes of the cells; nothing is opened where the program differs."""
    mine = program()
    if chunk.program != mine:
        return Answer(mine, None)
    with _one_at_a_time:
        function = _function(chunk.function)
        return Answer(mine, pickle.dumps([attempt(function, cell) for cell in chunk.cells]))


def outcomes_of(answer: Answer) -> list[Outcome]:
    """The outcomes of an answer that has some."""
    assert answer.outcomes is not None
    found: list[Outcome] = pickle.loads(answer.outcomes)  # from our own program on a worker that the user named
    return found


@functools.lru_cache(maxsize=1)
def _function(packed: bytes) -> Callable[[Any], Any]:
    """The function, kept between chunks: what it has prepared serves the next ones as well."""
    function: Callable[[Any], Any] = pickle.loads(packed)
    return function


@functools.cache
def program() -> str:
    """This program in one text: its version and a digest of its sources, which tells two checkouts apart."""
    root, digest = Path(__file__).parent.parent.parent, hashlib.sha256()
    paths = sorted(
        path for room in _ROOMS for kind in ("*.py", "*.toml", "*.csv") for path in (root / room).rglob(kind)
    )
    for path in paths:
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return f"{__version__} ({digest.hexdigest()[:12]})"
