"""How an engine of a given version runs a deployment: `engine_mode` and the padding of its steps."""

from hwmodel.engine import backends, graphs, limits, runners
from hwmodel.engine.graphs import graph_limit_tokens, padded_tokens
from hwmodel.engine.methods import canonical_method
from hwmodel.engine.names import unknown_name
from hwmodel.engine.records import EngineMode, EngineRequest
from hwmodel.engine.sglang import sglang_mode
from hwmodel.engine.versions import Version, check_engine, format_version, resolve_version
from hwmodel.errors import InputError

__all__ = ["EngineMode", "EngineRequest", "engine_mode", "graph_limit_tokens", "padded_tokens"]

ATTENTION_KINDS = ("mla", "gqa", "hybrid", "sparse")


def engine_mode(request: EngineRequest) -> EngineMode:
    """What the engine does with the request: explicit values first, then that version's defaults.

    Raises InputError for values that no version accepts. What a version would refuse is in the notes, and as findings
    in `methods.check_method`.
    """
    engine = check_engine(request.name)
    _check(request)
    version, notes = resolve_version(engine, request.version)
    if engine == "sglang":
        return sglang_mode(request, version, notes)
    return _vllm_mode(request, version, notes)


def _check(request: EngineRequest) -> None:
    canonical_method(request.method)
    if request.attention_kind not in ATTENTION_KINDS:
        raise unknown_name("attention kind", request.attention_kind, ATTENTION_KINDS)
    if request.num_speculative_tokens < 0:
        raise InputError(f"num_speculative_tokens: got {request.num_speculative_tokens}, allowed are 0 and more")
    for name in ("max_num_seqs", "max_num_batched_tokens", "data_parallel_size", "tensor_parallel_size"):
        value = getattr(request, name)
        if value is not None and value < 1:
            raise InputError(f"{name}: got {value}, allowed are whole numbers of at least 1")


def _vllm_mode(request: EngineRequest, version: Version, notes: tuple[str, ...]) -> EngineMode:
    k, method = request.draft_tokens, request.effective_method
    runner, runner_notes = runners.model_runner(request, version)
    backend = _backend(request, version)
    uniform, mixed, graph_notes = _graphs(request, version, runner, backend)
    overlap, overlap_notes = runners.async_scheduling(request, version, runner)
    variant, variant_notes = runners.ngram_variant(method, version, runner)
    defaults = limits.default_limits(request, version, runner)
    max_num_seqs = request.max_num_seqs or defaults.max_num_seqs
    max_tokens = request.max_num_batched_tokens or defaults.max_num_batched_tokens
    sizes = graphs.capture_sizes(request, (uniform, mixed), runner, version, (max_num_seqs, max_tokens))
    as_prefill = k > 0 and backends.multi_token_rows_as_prefill(backend, version)
    variable = runners.has_variable_draft_length(method, runner)
    return EngineMode(
        engine="vllm",
        version=version,
        model_runner=runner,
        attention_backend=backend,
        async_scheduling=overlap,
        uniform_decode_graph=uniform,
        mixed_decode_graph=mixed,
        capture_sizes=sizes,
        multi_token_rows_as_prefill=as_prefill,
        variable_draft_length=variable,
        ngram_variant=variant,
        lookahead_slots=runners.lookahead_slots(method, k),
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_tokens,
        block_size=backends.block_size_tokens(backend),
        notes=(
            *notes,
            *runner_notes,
            *graph_notes,
            *overlap_notes,
            *variant_notes,
            *_row_notes(version, backend, as_prefill, variable and uniform != mixed),
            *_limit_notes(request, version, sizes, max_num_seqs),
        ),
    )


def _backend(request: EngineRequest, version: Version) -> str:
    if request.attention_backend is not None:
        return request.attention_backend.strip().upper()
    return backends.default_backend(request.attention_kind, request.sm_arch, version)


def _graphs(request: EngineRequest, version: Version, runner: str, backend: str) -> tuple[str, str, tuple[str, ...]]:
    """The V0 engine captures whole decode steps of one token a row; its other steps run eagerly."""
    if runner != "v0":
        return graphs.graph_kinds(request, version, backend)
    full = not request.enforce_eager and request.draft_tokens == 0 and request.sm_arch != "cpu"
    return ("full" if full else "none"), "none", ()


def _row_notes(version: Version, backend: str, as_prefill: bool, loses_full_graph: bool) -> tuple[str, ...]:
    number = format_version(version)
    notes: tuple[str, ...] = ()
    if as_prefill:
        notes += (
            f"vLLM {number}: {backend} takes one token a row, so rows with drafts go through its prefill branch, whose "
            f"cost grows with context",
        )
    if loses_full_graph:
        notes += (
            f"vLLM {number}: a full graph needs a draft of k tokens in every row, so steps with an undrafted row, even "
            f"without any draft, lose the full graph that the baseline had",
        )
    return notes


def _limit_notes(
    request: EngineRequest, version: Version, sizes: tuple[int, ...], max_num_seqs: int
) -> tuple[str, ...]:
    query_len = 1 + request.draft_tokens
    if not sizes or query_len == 1 or sizes[-1] >= max_num_seqs * query_len:
        return ()
    return (
        f"vLLM {format_version(version)}: captured graphs end at {sizes[-1]} tokens, {sizes[-1] // query_len} requests "
        f"of {query_len} tokens; larger decode batches run without a graph (max_num_seqs is {max_num_seqs})",
    )
