"""What every answer carries besides its figures: memory, notes, client effects, inputs, identity; checked questions."""

import hashlib
import json
from collections.abc import Sequence

from hwmodel.engine.clients import client_effects
from hwmodel.engine.methods import Finding, check_method
from hwmodel.errors import InputError
from hwmodel.percent import percent
from simulator import explain
from simulator.closed_form import Capacity, Cell, capacity
from simulator.deployment import Deployment
from simulator.deployment.speculation import MAX_DRAFT_TOKENS
from simulator.results import JsonObject
from simulator.study import Study
from simulator.summary import finite, quantiles

MODEL_VERSION = "1"  # changes whenever the same inputs give other figures
INTERVAL = ("p05", "p50", "p95")
_DEFAULT_DRAFT_TOKENS = 3  # where neither the file nor the caller says: the commonest published choice


def draft_length(
    deployment: Deployment, asked: int | None, concurrency: int | None = None
) -> tuple[int, tuple[str, ...]]:
    """The draft length in question and a note where it is assumed; k without a method is an error.

    What is asked wins over the file's schedule at this concurrency, and that over the file's static length.
    """
    speculation = deployment.speculation
    k = asked if asked is not None else speculation.num_speculative_tokens
    if asked is None and speculation.schedule and concurrency and speculation.effective_policy == "schedule":
        k = scheduled_length(speculation.schedule, concurrency)
    if k is not None and not 0 <= k <= MAX_DRAFT_TOKENS:
        raise InputError(f"num_speculative_tokens: got {k}, allowed 0 to {MAX_DRAFT_TOKENS}")
    if speculation.method == "none":
        if asked:
            raise InputError(
                f"num_speculative_tokens: got {k}, but speculation.method is none; name a method, e.g. --method eagle3"
            )
        return 0, ()
    if k is None:
        return _DEFAULT_DRAFT_TOKENS, (f"num_speculative_tokens is not given; {_DEFAULT_DRAFT_TOKENS} assumed",)
    return k, ()


def scheduled_length(schedule: Sequence[tuple[int, int, int]], batch: int) -> int:
    """The draft length that vLLM uses at a batch size: gaps and the tail carry the last range's length forward."""
    return next((k for low, _, k in reversed(schedule) if low <= batch), schedule[0][2])


def checked_concurrency(value: int) -> int:
    """A concurrency that can be asked about."""
    if not 1 <= value <= 100_000:
        raise InputError(f"concurrency: got {value}, allowed 1 to 100000")
    return value


_LIMITS = {
    "kv_cache": "the KV cache holds no more",
    "max_num_seqs": "max_num_seqs allows no more",
    "max_num_batched_tokens": "max_num_batched_tokens allows no more",
    "does_not_fit": "it does not fit in memory: hypothetical",
}


def plateau(study: Study, cap: Capacity) -> JsonObject:
    """The baseline's throughput when as many requests run as memory and max_num_seqs allow."""
    top = Cell(0, max(cap.max_running, 1))
    draws = study.grid([top], point=False).baseline
    point = study.grid([top], point=True).baseline
    error = study.model_error_factor[:, 0]
    interval = quantiles(draws.throughput_tokens_per_s[:, 0] * error)
    parts = explain.parts_at(point.parts_s, 0)
    total = sum(parts.values())
    largest = sorted(parts, key=lambda name: -parts[name])[:2]
    return {
        "concurrency": top.concurrency,
        "throughput_tokens_per_s": {name: interval[name] for name in INTERVAL},
        "limited_by": cap.limited_by,
        "largest_parts": {name: parts[name] / total for name in largest},
    }


def plateau_sentence(plateau: JsonObject) -> str:
    """The plateau in words: the band, how many requests run, and what limits them."""
    band = plateau["throughput_tokens_per_s"]
    parts = ", ".join(f"{name} {percent(share)} of the step" for name, share in plateau["largest_parts"].items())
    words = _LIMITS[plateau["limited_by"]]
    return (
        f"The baseline levels off at {band['p50']:.0f} tok/s (90 %: {band['p05']:.0f} to {band['p95']:.0f}) with"
        f" {plateau['concurrency']} requests running: {words}; there {parts}."
    )


def memory_report(study: Study, num_speculative_tokens: int) -> JsonObject:
    """The `memory` object of the contract; bytes over all GPUs of the deployment unless the key says otherwise."""
    system = study.system
    base = capacity(system, 0, study.kv_cache_tokens)
    spec = capacity(system, num_speculative_tokens, study.kv_cache_tokens) if num_speculative_tokens else base
    ranks = system.parallel.num_gpus
    return {
        "weights_bytes": base.memory.weight_bytes * ranks,
        "draft_bytes": spec.memory.draft_bytes * ranks,
        "weights_bytes_per_gpu": base.memory.weight_bytes,
        "reserve_bytes_per_gpu": max(base.memory.reserve_bytes, 0.0),
        "budget_bytes_per_gpu": base.memory.budget_bytes,
        "kv_cache_tokens_baseline": finite(base.memory.kv_cache_tokens * system.parallel.data),
        "kv_cache_tokens_speculative": finite(spec.memory.kv_cache_tokens * system.parallel.data),
        "max_concurrency_baseline": base.max_running,
        "max_concurrency_speculative": spec.max_running,
        "limited_by_baseline": base.limited_by,
        "limited_by_speculative": spec.limited_by,
        "does_not_fit_reason": base.reason or spec.reason or None,
        "fits": base.limited_by != "does_not_fit" and spec.limited_by != "does_not_fit",
    }


def collected_notes(study: Study, num_speculative_tokens: int, notes: Sequence[str]) -> tuple[str, ...]:
    """Everything that was assumed, refused or surprising, each once, most important first.

    What the engine refuses and what contradicts the user's own facts or launch, then what was assumed, then what the
    engine does by itself, and at the end where tables come from: a terminal shows the first ones.
    """
    system = study.system
    collected = [f.text for f in method_findings(study, num_speculative_tokens)]
    collected += _fit_notes(study, num_speculative_tokens)
    collected += explain.conflict_notes(study)
    rest = [
        *study.acceptance.notes,
        *notes,
        *study.notes,
        *system.notes,
        *system.mode(num_speculative_tokens).notes,
    ]
    collected += sorted(rest, key=lambda note: not note.startswith("launch: "))  # faults of the user's own launch first
    collected += [f"AllReduce curve: {system.machine.allreduce.source}"] if system.parallel.tensor > 1 else []
    collected += [f"{system.shape.name}: {text}" for text in system.shape.assumptions]
    return tuple(dict.fromkeys(collected))


def does_not_fit(study: Study) -> str:
    """A sentence to say first where the deployment does not fit as it runs today; empty where it does."""
    plan = capacity(study.system, 0, study.kv_cache_tokens)
    return f"It does not fit as it stands: {plan.reason}. " if plan.limited_by == "does_not_fit" else ""


def waiting_notes(study: Study, num_speculative_tokens: int, loads: Sequence[int]) -> list[str]:
    """That requests wait at some of the `loads`: the figures there are those of the requests that run at once."""
    plain, drafting = (capacity(study.system, k, study.kv_cache_tokens) for k in (0, num_speculative_tokens))
    least = min(plain, drafting, key=lambda plan: plan.max_running)
    waiting = [str(load) for load in loads if load > least.max_running]
    if not waiting or "does_not_fit" in (plain.limited_by, drafting.limited_by):
        return []
    other = f" with drafts, {plain.max_running} without" if drafting.max_running < plain.max_running else ""
    return [
        f"at concurrency {', '.join(waiting)} at most {least.max_running} requests run at once{other}, the others wait:"
        f" {_LIMITS[least.limited_by]}"
    ]


def _fit_notes(study: Study, num_speculative_tokens: int) -> list[str]:
    for name, k in (("the baseline", 0), ("speculation", num_speculative_tokens)):
        plan = capacity(study.system, k, study.kv_cache_tokens)
        if plan.limited_by == "does_not_fit":
            return [f"{name} does not fit: {plan.reason}; the figures assume that it did"]
    engine, shape = study.deployment.engine, study.system.shape
    held = capacity(study.system, num_speculative_tokens, study.kv_cache_tokens).memory.kv_cache_tokens
    if engine.name == "vllm" and engine.max_model_len is None and held < shape.max_position_embeddings:
        return [
            f"max_model_len is not given; the model's own {shape.max_position_embeddings:,} needs more KV cache than"
            f" the {held:,.0f} tokens that fit: vLLM would refuse to start without a smaller --max-model-len"
        ]
    return []


def method_findings(study: Study, num_speculative_tokens: int) -> list[Finding]:
    """What this engine version says to the method at this draft length; errors are refusals."""
    system = study.system
    deployment = system.deployment
    own = []
    if system.method == "mtp" and num_speculative_tokens and not system.shape.mtp_layers and not _names_drafter(study):
        own = [
            Finding(
                "error", "no-mtp-layer", f"{system.shape.name} has no MTP layer: method mtp needs one, or a draft_model"
            )
        ]
    return own + list(
        check_method(
            deployment.engine.name,
            system.mode(0).version,
            system.method,
            num_speculative_tokens,
            tensor_parallel_size=system.parallel.tensor,
            draft_tensor_parallel_size=deployment.speculation.draft_tensor_parallel_size,
            n_predict=system.n_predict,
            pipeline_parallel_size=system.parallel.pipeline,
        )
    )


def _names_drafter(study: Study) -> bool:
    return study.deployment.speculation.draft_model is not None


def effects_on_clients(study: Study, num_speculative_tokens: int) -> tuple[str, ...]:
    """What clients notice once the method is on; nothing at draft length 0."""
    if num_speculative_tokens == 0:
        return ()
    mode = study.system.mode(num_speculative_tokens)
    return client_effects(mode.engine, mode.version, study.system.method, mode.model_runner)


def recorded_inputs(study: Study, settings: JsonObject) -> JsonObject:
    """The `inputs` of an answer: the deployment, the question, and what was resolved from defaults."""
    deployment = study.deployment.to_dict()
    mode = study.system.mode(0)
    resolved = {
        "engine_version": ".".join(map(str, mode.version)),
        "interconnect": study.system.machine.interconnect,
        "attention_backend": mode.attention_backend,
        "max_num_seqs": mode.max_num_seqs,
        "max_num_batched_tokens": mode.max_num_batched_tokens,
    }
    profile = study.deployment.profile
    calibrated = {} if profile is None else {"profile": {"created": profile.created, "sha256": profile.sha256}}
    return {
        "deployment": deployment,
        "method": study.system.method,
        **settings,
        **calibrated,
        "resolved": resolved,
        "model_version": MODEL_VERSION,
    }


def prediction_identity(inputs: JsonObject) -> str:
    """The same question gets the same id: a hash of the inputs."""
    text = json.dumps(inputs, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
