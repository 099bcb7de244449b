"""Which decode positions become decode steps: a step skips the positions of the tokens that it accepted."""

import numpy as np
from numpy.typing import NDArray

from calibration.replay.grams import Flags
from calibration.replay.recording import Ints


def accepting_steps(right: NDArray[np.integer]) -> Ints:
    """Decode positions of the steps that accept something, ascending, when every step starts where the last one ended.

    `right` (num_positions,) holds the tokens that a step at each position accepts; it never reaches the next request.
    All positions that accept nothing are passed one by one, so only the others need walking.

    >>> accepting_steps(np.array([0, 2, 1, 0, 1, 3, 0, 0, 0])).tolist()
    [1, 4]
    """
    places = np.flatnonzero(right)
    after = np.searchsorted(places, places + 1 + right[places]).tolist()
    visited, index, end = [], 0, len(after)
    while index < end:
        visited.append(index)
        index = after[index]
    return places[visited]


def step_positions(right: NDArray[np.integer], accepting: Ints) -> Flags:
    """Whether each decode position is where a step starts, (num_positions,)."""
    lengths = right[accepting].astype(np.int64)
    total = int(lengths.sum())
    within = np.arange(total) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    steps = np.ones(len(right), np.bool_)
    steps[np.repeat(accepting + 1, lengths) + within] = False
    return steps
