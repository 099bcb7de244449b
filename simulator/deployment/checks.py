"""Checks of several keys at once: each yields one-line problems (what, got, allowed); the first is raised."""

import json
import os
from collections.abc import Callable, Iterator

from hwmodel.errors import InputError
from hwmodel.units import MS
from simulator.deployment.acceptance_checks import acceptance_problems
from simulator.deployment.keys import short
from simulator.deployment.tables import LENGTH_DISTRIBUTIONS, Deployment, Measured

_FACTS = ("tpot_ms", "step_ms", "throughput_tokens_per_s", "allreduce_share", "kv_cache_tokens")
# Source: the choices of --kv-cache-dtype in vllm/config/cache.py and sglang/srt/server_args.py.
_KV_CACHE_DTYPES = (
    *("auto", "bfloat16", "bf16", "float16", "half", "float32", "fp8", "fp8_e4m3", "fp8_e5m2", "fp8_inc"),
    *("fp8_ds_mla", "int8", "nvfp4"),
)
_SGLANG_KV_CACHE_DTYPES = ("fp4_e2m1",)
# C users cannot receive more than C / TPOT tokens per second; beyond this slack a unit or a load is wrong.
_THROUGHPUT_SLACK = 1.25


def check(deployment: Deployment) -> None:
    """Nothing; raises InputError with the first problem that the tables have together."""
    for problems in _CHECKS:
        for problem in problems(deployment):
            raise InputError(problem)


def _launch_problems(deployment: Deployment) -> Iterator[str]:
    """A launch is expanded into keys before anything is checked: one that is still there would be ignored."""
    if deployment.engine.launch is not None:
        yield (
            f"engine.launch: got '{short(deployment.engine.launch)}' where no launch is read, "
            "allowed: the launch as DEPLOYMENT, or written in the deployment file"
        )


def _parallel_problems(deployment: Deployment) -> Iterator[str]:
    engine, num_gpus = deployment.engine, deployment.hardware.num_gpus
    if num_gpus is not None and deployment.num_gpus_used > num_gpus:
        yield (
            f"engine: TP {engine.tensor_parallel_size} x PP {engine.pipeline_parallel_size} x DP "
            f"{engine.data_parallel_size} = {deployment.num_gpus_used} GPUs, allowed: hardware.num_gpus = {num_gpus}; "
            f"fewer with --set engine.tensor_parallel_size=N, or more GPUs with --num-gpus {deployment.num_gpus_used}"
        )
    if engine.tensor_parallel_size % engine.decode_context_parallel_size:
        yield (
            f"engine.decode_context_parallel_size: got {engine.decode_context_parallel_size}, "
            f"allowed: a divisor of tensor_parallel_size = {engine.tensor_parallel_size}"
        )
    draft_tp = deployment.speculation.draft_tensor_parallel_size
    if draft_tp not in (None, 1, engine.tensor_parallel_size):  # vLLM config/speculative.py refuses the rest
        yield (
            f"speculation.draft_tensor_parallel_size: got {draft_tp}, "
            f"allowed: 1 or tensor_parallel_size = {engine.tensor_parallel_size}"
        )


def _engine_problems(deployment: Deployment) -> Iterator[str]:
    engine = deployment.engine
    known = _KV_CACHE_DTYPES + (_SGLANG_KV_CACHE_DTYPES if engine.name == "sglang" else ())
    if engine.kv_cache_dtype is not None and engine.kv_cache_dtype.lower() not in known:
        yield f"engine.kv_cache_dtype: got '{short(engine.kv_cache_dtype)}', allowed: one of: {', '.join(known)}"
    largest, sizes = engine.max_cudagraph_capture_size, engine.cudagraph_capture_sizes
    if largest is not None and engine.name == "sglang":
        yield "engine.max_cudagraph_capture_size: got it for engine sglang, allowed: engine.name = vllm"
    if largest is not None and sizes and largest != max(sizes):
        yield (
            f"engine.max_cudagraph_capture_size: got {largest} beside sizes up to {max(sizes)}, allowed: one of the "
            "two (vLLM refuses to start)"
        )


def _speculation_problems(deployment: Deployment) -> Iterator[str]:
    speculation = deployment.speculation
    low, high = speculation.lookup_range
    if low > high:
        yield f"speculation.prompt_lookup_min: got {low}, allowed: 1 to prompt_lookup_max = {high}"
    if speculation.policy == "schedule" and not speculation.schedule:
        yield "speculation.policy: got schedule without speculation.schedule, allowed: with [[lo, hi, k], ...]"
    if speculation.schedule and speculation.policy not in (None, "schedule"):
        yield f"speculation.policy: got {speculation.policy} beside a schedule, allowed: schedule"
    if deployment.engine.name != "sglang":
        yield from (
            f"speculation.{key}: got it for engine {deployment.engine.name}, allowed: engine.name = sglang"
            for key in ("sglang_topk", "sglang_num_draft_tokens")
            if getattr(speculation, key) is not None
        )
        if speculation.policy == "sglang-adaptive":
            yield f"speculation.policy: got sglang-adaptive for engine {deployment.engine.name}, allowed: sglang"
    yield from _schedule_problems(speculation.schedule or ())


def _launch_config_problems(deployment: Deployment) -> Iterator[str]:
    """The config goes into a flag as JSON, so it must be such."""
    config = deployment.speculation.launch_config
    try:
        json.dumps(config, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as problem:
        yield f"speculation.launch_config: {short(str(problem), 120)}, allowed: values as in JSON"


def _schedule_problems(schedule: tuple[tuple[int, int, int], ...]) -> Iterator[str]:
    """Inclusive ranges, sorted, apart, from 1 on: the rule of vLLM's num_speculative_tokens_per_batch_size."""
    previous = 0
    for low, high, k in schedule:
        if low > high:
            yield f"speculation.schedule: got [{low}, {high}, {k}], allowed: lo up to hi"
        if not previous and low != 1:
            yield f"speculation.schedule: first range starts at {low}, allowed: 1"
        if low <= previous:
            yield f"speculation.schedule: [{low}, {high}, {k}] starts within the range up to {previous}"
        previous = high


def _acceptance_problems(deployment: Deployment) -> Iterator[str]:
    if deployment.speculation.acceptance is not None:
        yield from acceptance_problems(deployment.speculation.acceptance)


def _workload_problems(deployment: Deployment) -> Iterator[str]:
    workload, limit = deployment.workload, deployment.engine.max_model_len
    twice = sorted({users for users in workload.concurrency if workload.concurrency.count(users) > 1})
    if twice:
        yield f"workload.concurrency: got {twice[0]} twice, allowed: each once"
    if workload.weights is not None:
        if len(workload.weights) != len(workload.concurrency):
            yield (
                f"workload.weights: got {len(workload.weights)}, "
                f"allowed: one for each of {len(workload.concurrency)} concurrencies"
            )
        if not sum(workload.weights) > 0:
            yield "workload.weights: all are 0, allowed: at least one above 0"
    total = workload.input_tokens + workload.output_tokens
    if limit is not None and total > limit:
        yield f"workload: input_tokens + output_tokens = {total}, allowed: up to engine.max_model_len = {limit}"


def _objective_problems(deployment: Deployment) -> Iterator[str]:
    goal = deployment.objective
    if goal.maximise == "goodput" and goal.tpot_ms_max is None and goal.ttft_ms_max is None:
        yield "objective.maximise: got goodput without a limit, allowed: with tpot_ms_max or ttft_ms_max"


def _measured_problems(deployment: Deployment) -> Iterator[str]:
    for index, fact in enumerate(deployment.measured):
        if all(getattr(fact, name) is None for name in _FACTS):
            yield f"measured[{index}]: no fact at concurrency {fact.concurrency}, allowed: any of {', '.join(_FACTS)}"
        yield from _throughput_problems(index, fact)


def _throughput_problems(index: int, fact: Measured) -> Iterator[str]:
    if fact.tpot_ms is None or fact.throughput_tokens_per_s is None:
        return
    most = fact.concurrency / (fact.tpot_ms * MS)
    if fact.throughput_tokens_per_s > most * _THROUGHPUT_SLACK:
        yield (
            f"measured[{index}]: throughput_tokens_per_s {fact.throughput_tokens_per_s:g} at concurrency "
            f"{fact.concurrency}, allowed: up to {most:.4g}, since tpot_ms is {fact.tpot_ms:g} (units?)"
        )


def _file_problems(deployment: Deployment) -> Iterator[str]:
    acceptance = deployment.speculation.acceptance
    paths = {
        "hardware.nccl_tests": deployment.hardware.nccl_tests,
        "hardware.topology": deployment.hardware.topology,
        "speculation.acceptance.replay": acceptance.replay if acceptance else None,
    }
    for key, path in paths.items():
        if path is not None and not os.path.isfile(path):
            yield f"{key}: no file '{short(path, 200)}', allowed: path of a file"
    lengths, key = deployment.workload.length_distribution, "workload.length_distribution"
    if lengths not in LENGTH_DISTRIBUTIONS and not os.path.isfile(lengths):
        yield f"{key}: no file '{short(lengths, 200)}', allowed: fixed, lognormal, or the path of a file"


_CHECKS: tuple[Callable[[Deployment], Iterator[str]], ...] = (
    _launch_problems,
    _parallel_problems,
    _engine_problems,
    _speculation_problems,
    _launch_config_problems,
    _acceptance_problems,
    _workload_problems,
    _objective_problems,
    _measured_problems,
    _file_problems,
)
