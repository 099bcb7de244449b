"""Random numbers that are a function of (seed, request, step), in whatever order and portions they are asked for.

Why: baseline and speculative runs, and runs under another policy, then share their randomness request by request, and
how many steps the engine takes at once cannot change a result. The generator is splitmix64, a counter hashed by two
multiplications (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, OOPSLA 2014).
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]
HalfWords = NDArray[np.uint32]

_MOST_CONSECUTIVE = 1024
_INCREMENT = np.uint64(0x9E3779B97F4A7C15)  # the constants of splitmix64
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))
_OFFSETS = np.arange(_MOST_CONSECUTIVE, dtype=np.uint64)[:, None] * _INCREMENT
_WORD = 2**64 - 1
HALF_RANGE = 2.0**32  # both halves of a word are uniform on 0 .. 2^32 - 1


def stream_salts(seed: int, num_streams: int) -> Words:
    """What tells independent sources of randomness apart, `(num_streams,)`."""
    return np.asarray(np.random.SeedSequence(seed).generate_state(num_streams, np.uint64), dtype=np.uint64)


def request_key(salt: int, number: int) -> int:
    """The key of a request, as the signed word that an integer column can hold."""
    word = (number * int(_INCREMENT) ^ salt) & _WORD
    word = (word ^ word >> int(_SHIFTS[0])) * int(_FIRST) & _WORD
    word = (word ^ word >> int(_SHIFTS[1])) * int(_SECOND) & _WORD
    word ^= word >> int(_SHIFTS[2])
    return word - (_WORD + 1) if word > _WORD >> 1 else word


def words(keys: Words, counters: Any) -> Words:
    """64 random bits for each (key, counter), shape as they broadcast."""
    return mixed(keys + (np.asarray(counters).astype(np.uint64) + np.uint64(1)) * _INCREMENT)


def consecutive_words(keys: Words, first: NDArray[np.int64], count: int) -> Words:
    """`words` of the counters first, first + 1, ... of each key, `(count, num_keys)`."""
    begin = keys + (first.view(np.uint64) + np.uint64(1)) * _INCREMENT
    return mixed(begin + _OFFSETS[:count])


def mixed(state: Words) -> Words:
    """The output function of splitmix64, element by element; `state` is used up."""
    state ^= state >> _SHIFTS[0]
    state *= _FIRST
    state ^= state >> _SHIFTS[1]
    state *= _SECOND
    state ^= state >> _SHIFTS[2]
    return state


def halves(bits: Words) -> tuple[HalfWords, HalfWords]:
    """The two halves of each word, same shape: uniform on 0 .. 2^32 - 1, independent of each other."""
    both = bits.view(np.uint32)
    return both[..., 0::2], both[..., 1::2]


def threshold(probability: Any) -> HalfWords:
    """The number below which a half falls with this probability, to 2^-32."""
    return np.minimum(np.round(np.asarray(probability, dtype=float) * HALF_RANGE), HALF_RANGE - 1.0).astype(np.uint32)
