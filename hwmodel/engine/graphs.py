"""Which steps replay a CUDA graph, and the token counts that are captured.

A step that fits a captured size runs that many rows; one beyond the largest size runs eagerly, a cliff.
Sources: vllm/config/vllm.py (`_set_cudagraph_sizes`), config/compilation.py, v1/worker/gpu/cudagraph_utils.py.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from hwmodel.engine import backends
from hwmodel.engine.names import unknown_name
from hwmodel.engine.records import EngineMode, EngineRequest
from hwmodel.engine.versions import Rows, Version, at_version, format_version
from hwmodel.errors import InputError

if TYPE_CHECKING:
    import numpy as np

CUDAGRAPH_MODES = ("NONE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE")
_DEFAULT_MODE: Rows[str] = [(None, (0, 10, 99), "PIECEWISE"), (None, None, "FULL_AND_PIECEWISE")]  # 0.10.2 / 0.11.0
# Largest default size in tokens: 512; SM100 1024 since 0.28.0.
_CEILING_TOKENS = 512
_CEILING_SM100: Rows[int] = [(None, (0, 27, 99), _CEILING_TOKENS), (None, None, 1024)]
_COUNTS_DRAFTS: Rows[bool] = [(None, (0, 12, 99), False), (None, None, True)]  # factor 1 + k since 0.13.0
_COARSE_STEP: Rows[int] = [(None, (0, 12, 99), 8), (None, None, 16)]  # stride from 256 on: 0.11.0 / 0.13.0
_ROUNDS_UNIFORM: Rows[bool] = [(None, (0, 11, 1), False), (None, None, True)]  # to multiples of 1 + k, 0.11.2
_APPENDS_UNIFORM: Rows[bool] = [(None, (0, 28, 99), False), (None, None, True)]  # sizes n * (1 + k), 0.29.0
_V2_ROUNDS_IN_PLACE_LAST: Version = (0, 24, 99)  # afterwards full graphs are rounded apart from piecewise ones


def graph_kinds(request: EngineRequest, version: Version, backend: str) -> tuple[str, str, tuple[str, ...]]:
    """(uniform decode, mixed) graph kinds after vLLM's own downgrades by the backend's support, and notes on them."""
    if request.enforce_eager or request.sm_arch == "cpu":
        return "none", "none", ()
    asked = _asked_mode(request, version)
    if asked == "NONE":
        return "none", "none", ()
    level = backends.graph_support(backend, request.sm_arch, request.attention_kind, version)
    notes: tuple[str, ...] = ()
    if level is None:
        level = backends.UNIFORM
        notes = (f"attention backend {backend} is not known here: full graphs for uniform batches are assumed",)
    if asked == "FULL" and level < backends.ALWAYS:
        asked = "FULL_AND_PIECEWISE"
    needed = backends.UNIFORM if request.draft_tokens else backends.SINGLE
    if asked != "PIECEWISE" and level < needed:
        asked = "PIECEWISE"
        notes += (_downgrade_note(request, version, backend),)
    elif asked != "PIECEWISE" and _fails_at_capture(request, version, backend):
        asked = "PIECEWISE"
        notes += (_crash_note(version, backend),)
    uniform = "piecewise" if asked == "PIECEWISE" else "full"
    mixed = {"FULL": "full", "FULL_DECODE_ONLY": "none"}.get(asked, "piecewise")
    return uniform, mixed, notes


def _asked_mode(request: EngineRequest, version: Version) -> str:
    if request.cudagraph_mode is None:
        return at_version(_DEFAULT_MODE, version)
    name = request.cudagraph_mode.strip().upper()
    if name not in CUDAGRAPH_MODES:
        raise unknown_name("cudagraph_mode", name, CUDAGRAPH_MODES)
    return name


def _downgrade_note(request: EngineRequest, version: Version, backend: str) -> str:
    cause = f" with {1 + request.draft_tokens} tokens a row" if request.draft_tokens else ""
    return f"vLLM {format_version(version)}: {backend} has no full graph{cause}, decode steps run piecewise graphs"


def _fails_at_capture(request: EngineRequest, version: Version, backend: str) -> bool:
    """Whether the backend promises full graphs for drafted batches but decodes one token a row.

    Triton MLA 0.22 ... 0.25 (vllm PR 47144) and FlashMLA 0.10.2 ... 0.11.0: `build_for_cudagraph_capture` asserts.
    """
    return request.draft_tokens > 0 and backends.multi_token_rows_as_prefill(backend, version)


def _crash_note(version: Version, backend: str) -> str:
    return (
        f"vLLM {format_version(version)} fails an assertion at start when it captures {backend} with drafts: set "
        f"cudagraph_mode PIECEWISE, which is what is modelled"
    )


def default_sizes(
    limits: tuple[int, int], query_len: int, version: Version, sm100: bool, stated: int | None = None
) -> list[int]:
    """Captured token counts, ascending, before rounding; `limits` are requests and tokens of a step.

    `stated` is max_cudagraph_capture_size: the largest as asked for, and then no size is added for whole batches.
    """
    max_num_seqs, max_num_batched_tokens = limits
    factor = query_len if at_version(_COUNTS_DRAFTS, version) else 1
    ceiling = at_version(_CEILING_SM100, version) if sm100 else _CEILING_TOKENS
    largest = stated or min(max_num_seqs * factor * 2, ceiling)
    uniform = set[int]() if stated else _uniform_sizes(max_num_seqs, query_len, largest, ceiling)
    largest = min(largest, max_num_batched_tokens)
    sizes = _strided(largest, at_version(_COARSE_STEP, version))
    if at_version(_APPENDS_UNIFORM, version):
        if max_num_batched_tokens <= largest:
            sizes.add(max_num_batched_tokens)
        sizes |= {size for size in uniform if size <= max_num_batched_tokens}
    return sorted(sizes)


def _strided(largest: int, coarse_step: int) -> set[int]:
    """1, 2, 4, multiples of 8 below 256, then multiples of the coarse step, up to the largest."""
    fine = [1, 2, 4, *range(8, 256, 8)]
    return {size for size in [*fine, *range(256, largest + 1, coarse_step)] if size <= largest}


def _uniform_sizes(max_num_seqs: int, query_len: int, largest: int, ceiling: int) -> set[int]:
    if query_len == 1:
        return {max_num_seqs} if max_num_seqs <= largest else set()
    most = min(max_num_seqs, ceiling)
    counts = _strided(most, 16) | {most}
    return {count * query_len for count in counts if count * query_len <= largest}


def capture_sizes(
    request: EngineRequest, mode: tuple[str, str], runner: str, version: Version, limits: tuple[int, int]
) -> tuple[int, ...]:
    """Token counts that are captured; `mode` is (uniform, mixed) graph kinds, `limits` (requests, tokens) of a step."""
    if mode == ("none", "none"):
        return ()
    query_len = 1 + request.draft_tokens
    if request.cudagraph_capture_sizes is not None:
        sizes = sorted({size for size in _checked(request.cudagraph_capture_sizes) if size <= limits[1]})
    else:
        sm100, stated = request.sm_arch.startswith("10."), request.max_cudagraph_capture_size
        sizes = default_sizes(limits, query_len, version, sm100, stated)
    in_place = runner == "v1" or version <= _V2_ROUNDS_IN_PLACE_LAST
    if mode[0] == "full" and mode[1] != "full" and query_len > 1 and in_place and at_version(_ROUNDS_UNIFORM, version):
        sizes = rounded_sizes(sizes, query_len)
    return tuple(sizes)


def _checked(sizes: Iterable[int]) -> Iterable[int]:
    for size in sizes:
        if size < 1:
            raise InputError(f"cudagraph_capture_sizes: got {size}, allowed are whole numbers of at least 1")
        yield size


def rounded_sizes(sizes: Iterable[int], query_len: int) -> list[int]:
    """Sizes rounded up to whole requests of `query_len` tokens, none above the largest given."""
    ascending = sorted(sizes)
    if not ascending:
        return []
    largest = ascending[-1]
    rounded = {-(-size // query_len) * query_len for size in ascending}
    kept = sorted(size for size in rounded if size <= largest)
    return kept or ([query_len] if query_len <= largest else [])


def _sizes_for(mode: EngineMode, uniform: bool, query_len: int) -> list[int]:
    kind = mode.uniform_decode_graph if uniform else mode.mixed_decode_graph
    if kind == "none":
        return []
    if not (uniform and kind == "full") or query_len == 1:
        return list(mode.capture_sizes)
    if mode.engine == "vllm" and not at_version(_ROUNDS_UNIFORM, mode.version):
        return list(mode.capture_sizes)
    return rounded_sizes(mode.capture_sizes, query_len)


def padded_tokens(mode: EngineMode, num_tokens: "np.ndarray", uniform: bool, query_len: int) -> "np.ndarray":
    """Rows that run in a step of `num_tokens` tokens, same shape: the next captured size, or as many above the largest.

    `uniform` says that every request has exactly `query_len` tokens; full graphs then hold whole requests.
    """
    import numpy as np  # slow to import, and not every command pads

    tokens = np.asarray(num_tokens, dtype=np.int64)
    sizes = np.asarray(_sizes_for(mode, uniform, query_len), dtype=np.int64)
    if sizes.size == 0:
        return tokens
    index = np.searchsorted(sizes, tokens)
    padded = sizes[np.minimum(index, sizes.size - 1)]
    return np.where((index < sizes.size) & (tokens > 0), padded, tokens)


def graph_limit_tokens(mode: EngineMode) -> int:
    """Largest captured token count; 0 without graphs. A larger step runs without one."""
    return mode.capture_sizes[-1] if mode.capture_sizes else 0
