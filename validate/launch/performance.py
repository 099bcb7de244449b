"""What speculation costs in this launch beyond its drafts: graphs lost or too small, token budget, host time per step.

The facts by version are those of `hwmodel.engine`, asked with and without speculation: what differs is its doing.
"""

from dataclasses import dataclass
from typing import Any

from hwmodel.engine import runners
from hwmodel.engine.flags import schedule_refusal
from hwmodel.engine.versions import Version
from validate.launch.engine_facts import Case, EngineFacts, engine_facts, engine_method, v2_refusal
from validate.launch.findings import ERROR, INFO, WARNING
from validate.launch.speculative import Speculation

_ASYNC_DEFAULT: Version = (0, 14, 0)
_SCHEDULE_FIRST: Version = (0, 24, 0)
_SMALL_BUDGET_TOKENS = 8192  # vllm/config/vllm.py warns about less with speculation
_NEARLY = 0.9  # sizes that differ by less differ by the rounding to whole requests alone
_GRAPHS = ("none", "piecewise", "full")  # from worst to best


@dataclass(frozen=True, slots=True)
class _Arms:
    """The launch as it runs with speculation and as it would without."""

    case: Speculation
    config: dict[str, Any]
    method: str
    rows: int  # tokens that a drafted request brings into a step: 1 + k
    drafting: EngineFacts
    baseline: EngineFacts


def add_performance_findings(case: Speculation, config: dict[str, Any]) -> None:
    """Add what the effective configuration means for speed at the load that the launch allows."""
    length = config.get("num_speculative_tokens")
    method = engine_method(config)
    if method is None or not isinstance(length, int):
        return
    parallel = config.get("parallel_drafting") is True
    drafting = Case(case.version, case.settings, method, length, case.gpu, case.model.shape, parallel)
    baseline = Case(case.version, case.settings, "none", 0, case.gpu, case.model.shape)
    arms = _Arms(case, config, method, 1 + length, engine_facts(drafting), engine_facts(baseline))
    refusal = v2_refusal(drafting)
    if refusal:
        case.add(ERROR, "model-runner-refused", refusal, "leave out VLLM_USE_V2_MODEL_RUNNER=1")
    _algorithm(arms)
    _scheduling(arms)
    _graphs(arms)
    _graph_coverage(arms)
    _budget(arms)
    _mtp_layers(arms)


def _algorithm(arms: _Arms) -> None:
    if arms.method in runners.NGRAM_METHODS and arms.drafting.model_runner == "v2":
        text = (
            f"{arms.case.label} takes the latest match and always drafts k tokens, padded with the last one (before "
            "0.32: the earliest match, or no draft)"
        )
        arms.case.add(INFO, "ngram-algorithm", text)


def _scheduling(arms: _Arms) -> None:
    case, asked = arms.case, arms.case.settings.async_scheduling
    layout = _layout_against_async(arms)
    if layout and case.version >= _ASYNC_DEFAULT and asked is not False:
        _report_layout(arms, layout)
    elif arms.drafting.refusal:
        text = f"{case.label} refuses --async-scheduling with {arms.method}"
        case.add(ERROR, "async-scheduling-refused", text, "leave out --async-scheduling")
    elif arms.config.get("disable_padded_drafter_batch") is True and arms.baseline.async_scheduling is not False:
        _unpadded(arms)
    elif asked is None and arms.baseline.async_scheduling and arms.drafting.async_scheduling is False:
        text = f"{case.label} turns asynchronous scheduling off with {arms.method}: each step also pays its host time"
        case.add(WARNING, "async-scheduling-off", text)


def _layout_against_async(arms: _Arms) -> str:
    """The option by which workers are laid out so that scheduling cannot overlap the step; empty where none is."""
    if arms.case.options.get("distributed-executor-backend") == "ray":
        return "--distributed-executor-backend ray"
    staged = (arms.case.settings.pipeline_parallel_size or 1) > 1
    return "--pipeline-parallel-size above 1" if staged and arms.drafting.model_runner == "v1" else ""


def _report_layout(arms: _Arms, layout: str) -> None:
    """Source: vllm/config/vllm.py `__post_init__`: refused where it is asked for, off where it is not."""
    case = arms.case
    if case.settings.async_scheduling:
        text = f"{case.label} refuses --async-scheduling with {layout}"
        case.add(ERROR, "async-scheduling-refused", text, "leave out --async-scheduling")
    else:
        case.add(WARNING, "async-scheduling-off", f"{case.label} turns asynchronous scheduling off with {layout}")


def _unpadded(arms: _Arms) -> None:
    case = arms.case
    if case.version < _ASYNC_DEFAULT and not case.settings.async_scheduling:
        return
    text = f"{case.label}: disable_padded_drafter_batch does not go with asynchronous scheduling"
    if case.settings.async_scheduling:
        case.add(ERROR, "async-scheduling-refused", f"{text}, which --async-scheduling asks for", "leave out one")
    else:
        case.add(WARNING, "async-scheduling-off", f"{text}: that goes off", "leave out disable_padded_drafter_batch")


def _graphs(arms: _Arms) -> None:
    case, settings = arms.case, arms.case.settings
    uniform, before = arms.drafting.uniform_decode_graph, arms.baseline.uniform_decode_graph
    if case.gpu is not None and case.gpu.sm_arch == "cpu":  # has none to lose
        _schedule(arms)
        return
    if settings.enforce_eager:
        text = "--enforce-eager: no CUDA graphs, so every step pays the launch of each kernel, drafted or not"
        case.add(WARNING, "enforce-eager", text, "leave out --enforce-eager")
    elif settings.cudagraph_mode in ("NONE", "PIECEWISE"):
        text = f"cudagraph_mode {settings.cudagraph_mode} keeps decode steps from replaying one full graph"
        case.add(WARNING, "full-graph-off", text, "leave out cudagraph_mode")
    elif uniform is not None and before is not None and _GRAPHS.index(uniform) < _GRAPHS.index(before):
        text = (
            f"{case.label}: decode steps of {arms.rows} tokens a request run {_kind(uniform)}, those of a launch "
            f"without speculation {_kind(before)}"
        )
        case.add(WARNING, "full-graph-lost", text)
    elif _needs_every_draft(arms):
        text = (
            f"{case.label}: a full graph needs k drafts in every request; steps in which {arms.method} finds none for "
            "some request, or for all, run piecewise ones, which the launch without speculation does not"
        )
        case.add(WARNING, "full-graph-needs-drafts", text)
    if arms.config.get("enforce_eager") is True:
        case.add(WARNING, "drafter-eager", "enforce_eager in the speculative config: the drafter runs without graphs")
    _schedule(arms)


def _kind(graph: str) -> str:
    return "without a graph" if graph == "none" else f"{'a full graph' if graph == 'full' else 'piecewise graphs'}"


def _needs_every_draft(arms: _Arms) -> bool:
    """Whether steps without a draft lose the full graph: full for uniform batches, something less for others."""
    runner, facts = arms.drafting.model_runner, arms.drafting
    if runner is None or not runners.has_variable_draft_length(arms.method, runner):
        return False
    return facts.uniform_decode_graph == "full" and facts.mixed_decode_graph != "full"


def _schedule(arms: _Arms) -> None:
    """num_speculative_tokens_per_batch_size: not followed at all, or at the price of full graphs."""
    case, runner = arms.case, arms.drafting.model_runner
    if not arms.config.get("num_speculative_tokens_per_batch_size") or case.version < _SCHEDULE_FIRST:
        return
    refusal = schedule_refusal("vllm", case.version, arms.method, runner, case.settings.data_parallel_size or 1)
    if refusal:
        case.add(WARNING, "schedule-ignored", f"{refusal}: the static length holds")
    elif runner == "v1":
        text = f"{case.label} on the V1 model runner forces piecewise CUDA graphs with a schedule by batch size"
        case.add(WARNING, "full-graph-off", text, "VLLM_USE_V2_MODEL_RUNNER=1")


def _graph_coverage(arms: _Arms) -> None:
    """Decode batches of 1 + k tokens a request that no captured graph covers."""
    case, rows, requests = arms.case, arms.rows, arms.drafting.max_num_seqs
    least, most = arms.drafting.captured_tokens
    if case.settings.enforce_eager or case.settings.cudagraph_mode == "NONE" or most == 0:
        return
    shown = f"{most} tokens" if least > _NEARLY * most else f"{least} to {most} tokens, by GPU"
    covered = f"{most // rows}" if least > _NEARLY * most else f"{least // rows} to {most // rows}"
    text = f"CUDA graphs end at {shown}: they cover {covered} requests of 1+k={rows} tokens"
    if requests is None:
        case.add(INFO, "cudagraph-limit", f"{text}; more of them at once run without")
    elif least < requests * rows:
        severity = WARNING if case.settings.max_num_seqs is not None else INFO
        text = f"{text}; max_num_seqs={requests} allows more, which then run without graphs"
        case.add(severity, "cudagraph-capture-too-small", text, f"--max-cudagraph-capture-size {requests * rows}")


def _budget(arms: _Arms) -> None:
    case, rows = arms.case, arms.rows
    budget, requests = arms.drafting.max_num_batched_tokens, arms.drafting.max_num_seqs
    if budget is None or requests is None:
        return
    stated = case.settings.max_num_batched_tokens is not None and case.settings.max_num_seqs is not None
    if budget < requests * rows and (stated or case.options.get("enable-lora") is True):
        text = (
            f"max_num_batched_tokens={budget} holds {budget // rows} requests of {rows} tokens, fewer than "
            f"max_num_seqs={requests}"
        )
        fix = f"--max-num-batched-tokens {requests * rows * 2}"
        if case.options.get("enable-lora") is True:
            case.add(ERROR, "token-budget-lora", f"{text}: with --enable-lora {case.label} stops at start", fix)
        else:
            case.add(WARNING, "token-budget-small", f"{text}: the others wait, prefill gets nothing", fix)
    elif case.settings.max_num_batched_tokens is not None and budget < _SMALL_BUDGET_TOKENS:
        text = (
            f"max_num_batched_tokens={budget}: at max_num_seqs={requests} drafts take {requests * rows} of them, the "
            f"rest is left for prefill; vLLM itself warns below {_SMALL_BUDGET_TOKENS}"
        )
        case.add(INFO, "token-budget-below-8192", text)


def _mtp_layers(arms: _Arms) -> None:
    layers = arms.case.model.num_mtp_layers
    if arms.method != "mtp" or layers is None:
        return
    if layers == 0:
        text = f"method mtp drafts with the checkpoint's own MTP layers, and {arms.case.model.source} has none"
        arms.case.add(WARNING, "mtp-layers-missing", text)
