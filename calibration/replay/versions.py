"""What the version of vLLM decides about a replay: the n-gram search, what the scheduler trims, who gets no drafts."""

from dataclasses import dataclass

import numpy as np

from calibration.replay.recording import Batch, Ints
from hwmodel.engine.runners import ngram_variant
from hwmodel.engine.versions import Rows, Version, at_version, check_engine, format_version, resolve_version
from hwmodel.errors import InputError, UnknownNameError

VARIANTS = ("kmp", "lps", "gpu_v1", "mrv2")
METHODS = ("ngram", "ngram_gpu", "suffix")
DEFAULT_VARIANT = {"ngram": "lps", "ngram_gpu": "gpu_v1"}
_V2_NGRAM: Version = (0, 32, 0)  # from here Model Runner V2 serves n-gram (config/vllm.py)
_V1_ONLY: Version = (0, 9, 0)  # before, speculation falls back to the V0 engine unless VLLM_USE_V1=1
_FIRST = {"ngram": (0, 0, 0), "ngram_gpu": (0, 18, 0), "suffix": (0, 11, 2)}
# Tokens of the context window that the scheduler keeps free beyond those scheduled (v1/core/sched/scheduler.py).
_KEPT_FREE: Rows[int] = [(None, (0, 8, 99), 0), (None, None, 1)]
_TRIMS_AT_MAX_TOKENS: Version = (0, 11, 2)  # this version only: no drafts past prompt + max_tokens
_LAST_WITHOUT_SAMPLING: Version = (0, 13, 99)  # up to here some sampling parameters silently turn drafts off


@dataclass(frozen=True, slots=True)
class EngineRules:
    """What one version does beside searching; without a version nothing."""

    version: Version | None = None
    max_model_len: int | None = None

    def room(self, batch: Batch) -> Ints | None:
        """Draft tokens that the scheduler accepts at each decode position, (num_positions,); None: any number.

        A step schedules the newest token and the drafts: max_model_len - kept free - (tokens computed before) at most.
        """
        if self.version is None:
            return None
        limits = []
        if self.max_model_len is not None:
            limits.append(self.max_model_len - batch.context - at_version(_KEPT_FREE, self.version))
        if self.version == _TRIMS_AT_MAX_TOKENS:
            ends = [_end(len(item.prompt), item.max_tokens) for item in batch.recordings]
            limits.append(np.array(ends, np.int64)[batch.request] - batch.context - 1)
        return np.maximum(np.minimum.reduce(limits), 0) if limits else None

    @property
    def needs_plain_sampling(self) -> bool:
        """Whether requests with penalties, min_p or logprobs get no drafts."""
        return self.version is not None and self.version <= _LAST_WITHOUT_SAMPLING


def _end(prompt_tokens: int, max_tokens: int | None) -> int:
    return np.iinfo(np.int64).max // 2 if max_tokens is None else prompt_tokens + max_tokens


def check_variant(variant: str) -> str:
    """The name of a search, or an error that lists them."""
    if variant not in VARIANTS:
        raise UnknownNameError(f"--variant: no search '{variant}'; known: {', '.join(VARIANTS)}")
    return variant


def engine_version(engine: str, text: str | None) -> tuple[Version | None, tuple[str, ...]]:
    """The version whose rules apply, None where none is given, and notes; only vLLM's searches can be replayed."""
    if check_engine(engine) != "vllm":
        raise InputError(
            f"--engine: got {engine}, whose n-gram drafts are trees from a cache of all requests; allowed: vllm"
        )
    if text is None:
        return None, ()
    return resolve_version("vllm", text)


def variant_of(method: str, version: Version | None) -> tuple[str | None, tuple[str, ...]]:
    """The search behind `method` in that version, None for suffix, and notes on what is assumed."""
    if version is not None and version < _FIRST[method]:
        raise InputError(
            f"--method: vLLM {format_version(version)} has no {method}; allowed: "
            f"{format_version(_FIRST[method])} and later, or {_older(version)}"
        )
    if method == "suffix":
        return None, ()
    if version is None:
        return DEFAULT_VARIANT[method], ()
    runner = "v2" if version >= _V2_NGRAM else "v1"
    variant, notes = ngram_variant(method, version, runner)
    if version < _V1_ONLY:
        notes += (
            f"vLLM {format_version(version)} drafts like this with VLLM_USE_V1=1; its V0 engine searches otherwise",
        )
    return variant or DEFAULT_VARIANT[method], notes


def _older(version: Version) -> str:
    return ", ".join(name for name, first in _FIRST.items() if first <= version)
