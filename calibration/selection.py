"""From evidence to questions: which measurements the fit may use, under what conditions they were taken, and why not.

A measurement is refused where it belongs to something else (another engine, model, group size) or where its load or
draft length is not told. Times of one cell say the same thing, so one of them is used.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import accumulate

import numpy as np

from calibration.questions import Quantity, Question, Setting
from calibration.records import AcceptanceCounts, Evidence, MeasuredCell, Refused
from hwmodel.models import model_names
from hwmodel.units import MS
from simulator.acceptance import ALWAYS_DRAFTING_VARIANT
from simulator.closed_form import baseline_step, capacity
from simulator.deployment.speculation import LOOKUP_METHODS, METHODS, NGRAM_METHODS
from simulator.facts import TIME_NOISE, fact_sha256, share_noise
from simulator.profile import PooledAcceptance
from simulator.system import System

# Relative standard errors of a mean time, by requests behind it (docs/model.md, spec section 7).
_USUAL_NOISE, _USUAL_REQUESTS, _LEAST_NOISE, _MOST_NOISE = 0.02, 200.0, 0.01, 0.06
_UNKNOWN_NOISE = 0.03
_FLOOR_NOISE = 0.005  # the same server measured again differs by more, whatever the standard error says
_REMEDY = (  # for a trace without annotations
    ": give it as FILE@concurrency=N, or the share in a CSV with concurrency,allreduce_share"
)
_FEWEST_DRAFTS, _EVERY_STEP = 100.0, 0.98  # of counters that show a draft on every step
_SAME_CACHE = 2.0  # factor between cache sizes up to which memory settings explain it
_SPECULATES = 1.02  # tokens per step that no baseline has
_ONE_USER = 0.8  # in flight on average: one user leaves gaps between requests; below, the server idles
_ROUNDED = 1.02  # a mean of requests at once may be a little above the most that run
_LONGEST_S = 600.0
_PLAUSIBLE = 50.0  # a step further from the model than this factor is another machine, or a slip of unit


@dataclass
class Selected:
    """What the evidence comes to."""

    questions: list[Question] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    acceptance: list[PooledAcceptance] = field(default_factory=list)
    kv_cache_tokens: float | None = None
    cells_sha256: list[str] = field(default_factory=list)
    facts_sha256: list[str] = field(default_factory=list)
    used: list[str] = field(default_factory=list)  # sources of acceptance and cache sizes


def select(
    system: System, evidence: Evidence, draft_probability: Callable[[str, int], float], known: Iterable[str] = ()
) -> Selected:
    """The questions of `evidence` and of the deployment's facts; `known` are hashes that an earlier profile has used.

    `draft_probability` gives the share of steps with a draft of a method and draft length that nobody counted.
    """
    chosen, seen = Selected(), set(known)
    untold: list[str] = []
    repeated: list[str] = []
    for cell in evidence.cells:
        sha256 = cell_sha256(cell)
        if sha256 in seen:
            repeated.append(cell.source)
            continue
        seen.add(sha256)
        chosen.cells_sha256.append(sha256)
        reason = _refusal(system, cell)
        if reason:
            chosen.refused.append(Refused(cell.source, reason))
            continue
        _take_cell(system, cell, chosen, draft_probability)
        if cell.num_speculative_tokens is None and not draft_tokens(cell) and cell.concurrency is not None:
            untold.append(cell.source)
    for sources, text in (
        (untold, "whether requests drafted is not told; taken as the baseline"),
        (_unknown_models(system, evidence.cells), f"is that {system.shape.name}? its served name matches no card"),
        (_other_versions(system, evidence.cells), "another engine version than the deployment states"),
        (
            _always_drafting(system, evidence.cells),
            f"a draft on every step, which {system.method} does not have: is it a run of {system.method}?",
        ),
        (repeated, "counted already; a measurement counts once"),
    ):
        if sources:
            more = f" and {len(sources) - 1} more" if len(sources) > 1 else ""
            chosen.notes.append(f"{sources[0]}{more}: {text}")
    chosen.notes += _strange_cache(system, chosen.kv_cache_tokens)
    _take_facts(system, chosen, seen)
    chosen.acceptance = _pooled(chosen.acceptance)
    return chosen


def _unknown_models(system: System, cells: Sequence[MeasuredCell]) -> list[str]:
    """Cells whose served name matches no card: an operator's own name for this model, or another model."""
    names = {cell.model for cell in cells if cell.model}
    known = {_plain(name.rsplit("-", 1)[0]) for name in model_names()}
    strange = {name for name in names if not _longest_start(_plain(name.rsplit("/", 1)[-1]), known)}
    return [f"{cell.source} ({cell.model[:60]})" for cell in cells if cell.model in strange and cell.model]


def _always_drafting(system: System, cells: Sequence[MeasuredCell]) -> list[str]:
    """Cells without a method whose counters show a draft on every step, where the deployment's n-gram needs a match."""
    if system.method not in NGRAM_METHODS or system.mode(1).ngram_variant == ALWAYS_DRAFTING_VARIANT:
        return []
    counted = [(cell.source, cell.acceptance) for cell in cells if cell.method is None and cell.acceptance is not None]
    return [
        source
        for source, counts in counted
        if counts.steps and counts.drafts >= _FEWEST_DRAFTS and counts.drafts > _EVERY_STEP * counts.steps
    ]


def _strange_cache(system: System, logged_tokens: float | None) -> list[str]:
    """A note where the server's KV cache is far from what this model leaves room for on this machine."""
    held = capacity(system, 0).memory.kv_cache_tokens * system.parallel.data
    if logged_tokens is None or held <= 0.0 or 1.0 / _SAME_CACHE <= logged_tokens / held <= _SAME_CACHE:
        return []
    return [
        f"the server logged a KV cache of {logged_tokens:,.0f} tokens, the model expects {held:,.0f}: is it this"
        " machine and model, with this gpu_memory_utilization?"
    ]


def _other_versions(system: System, cells: Sequence[MeasuredCell]) -> list[str]:
    """Cells of another release than the deployment states: kernels, graphs and scheduling may differ."""
    stated = system.deployment.engine.version
    if stated is None:
        return []
    engine = system.deployment.engine.name
    return [
        f"{cell.source} ({engine} {cell.engine_version[:20]})"
        for cell in cells
        if cell.engine_version and cell.engine in (None, engine) and _release(cell.engine_version) != _release(stated)
    ]


def _release(version: str) -> list[str]:
    """Major and minor number."""
    return version.lstrip("vV").replace("+", ".").split(".")[:2]


def cell_sha256(cell: MeasuredCell) -> str:
    """What identifies a measurement whatever file it stands in: the hash of its numbers."""
    numbers = {name: value for name, value in asdict(cell).items() if name not in ("source", "notes")}
    return hashlib.sha256(json.dumps(numbers, sort_keys=True).encode()).hexdigest()


def _refusal(system: System, cell: MeasuredCell) -> str:
    """Why a cell must not be used; empty where it may."""
    engine = system.deployment.engine.name
    if cell.engine is not None and cell.engine != engine:
        return f"measured on {cell.engine}, the deployment runs {engine}"
    if cell.model is not None and _another_model(cell.model, system.shape.name):
        return f"measured with model {cell.model[:60]}, the deployment serves {system.shape.name}"
    times = (cell.tpot_s, cell.step_s, cell.throughput_tokens_per_s)
    if any(time is not None for time in times) or cell.allreduce_share is not None:
        return _unusable(cell, system)
    return ""


def _unusable(cell: MeasuredCell, system: System) -> str:
    if cell.concurrency is None or cell.concurrency < _ONE_USER:
        return "the source does not tell how many requests ran at once" + _REMEDY * (cell.allreduce_share is not None)
    if any(time is not None and not 0.0 < time < _LONGEST_S for time in (cell.tpot_s, cell.step_s)):
        return f"a time outside 0 to {_LONGEST_S:g} s"
    if wrong := _more_than_run(cell.concurrency, system) or _slip_of_unit(cell, system):
        return wrong
    speculates = (cell.tokens_per_step or 1.0) > _SPECULATES or cell.acceptance is not None
    if cell.num_speculative_tokens is None and speculates and not _told_length(cell):
        return "requests drafted, but the source does not tell how many tokens"
    if draft_tokens(cell) and _method(cell, system) not in METHODS[1:]:
        return "requests drafted, but neither source nor deployment tells the method"
    return ""


def _more_than_run(concurrency: float, system: System) -> str:
    """Why so many requests cannot have run at once; empty where they may."""
    most = system.mode(0).max_num_seqs * system.parallel.data
    if concurrency <= most * _ROUNDED:
        return ""
    return (
        f"{concurrency:g} requests at once, of which the engine runs {most} at most (max_num_seqs): the others waited;"
        " state engine.max_num_seqs if it is another"
    )


def _step_s(cell: MeasuredCell) -> float | None:
    """Seconds of a step as the cell tells them, by its throughput where it tells no time."""
    tokens = cell.tokens_per_step or 1.0
    if cell.step_s or cell.tpot_s:
        return cell.step_s or (cell.tpot_s or 0.0) * tokens
    rate = cell.throughput_tokens_per_s
    return cell.concurrency * tokens / rate if cell.concurrency and rate else None


def _slip_of_unit(cell: MeasuredCell, system: System) -> str:
    """Why a time cannot be one of this machine, whatever its parameters; empty where it may."""
    step_s = _step_s(cell)
    if step_s is None or cell.concurrency is None:
        return ""
    p = system.priors.parameters(system.priors.medians())
    sequences = np.array([max(cell.concurrency / system.batch_divisor, 1.0)])
    expected_s = float(baseline_step(system, p, sequences, cell.context_tokens or system.context_tokens).total_s[0, 0])
    if expected_s / _PLAUSIBLE <= step_s <= expected_s * _PLAUSIBLE:
        return ""
    return (
        f"a step of {step_s / MS:.3g} ms, where the model expects about {expected_s / MS:.3g} ms: is the unit right,"
        " and is it this machine?"
    )


def _another_model(named: str, ours: str) -> bool:
    """Whether a served name is that of another shipped card; a name of the operator's own says nothing."""
    bases = {_plain(name.rsplit("-", 1)[0]) for name in model_names()}
    theirs = _longest_start(_plain(named.rsplit("/", 1)[-1]), bases)
    own = _longest_start(_plain(ours), bases)
    return bool(theirs and own and theirs != own)


def _plain(name: str) -> str:
    return "".join(character for character in name.lower() if character.isalnum())


def _longest_start(name: str, bases: set[str]) -> str:
    return max((base for base in bases if name.startswith(base)), key=len, default="")


def _told_length(cell: MeasuredCell) -> int | None:
    """The draft length as stated, else as the counted positions show."""
    if cell.num_speculative_tokens is not None:
        return cell.num_speculative_tokens
    return len(cell.acceptance.accepted_per_position) if cell.acceptance else None


def draft_tokens(cell: MeasuredCell) -> int:
    """The draft length of a cell; 0 where nothing suggests drafts."""
    return _told_length(cell) or 0


def _method(cell: MeasuredCell, system: System) -> str:
    return cell.method or system.method


def _take_cell(
    system: System, cell: MeasuredCell, chosen: Selected, draft_probability: Callable[[str, int], float]
) -> None:
    """Adds a cell's questions, its acceptance and its cache size."""
    k = draft_tokens(cell)
    if cell.kv_cache_tokens and not k:
        chosen.kv_cache_tokens = cell.kv_cache_tokens
        chosen.used.append(cell.source)
    if k and cell.acceptance is not None:
        chosen.acceptance.append(_counted(_method(cell, system), k, cell.acceptance))
        chosen.used.append(cell.source)
    if cell.concurrency is None:
        return
    base = _asked(system, cell, k, draft_probability)
    time = _time_of(cell, known_tokens=base.tokens_per_step is not None)
    if time is not None:
        quantity, value = time
        if cell.prefill_share is not None and quantity != "throughput":
            value, base = value * (1.0 - cell.prefill_share), replace(base, with_prompts=False)
        chosen.questions.append(replace(base, quantity=quantity, value=value))
    if cell.allreduce_share and not k:
        _take_share(system, base, cell.allreduce_share, cell.relative_noise, chosen)


def _asked(system: System, cell: MeasuredCell, k: int, draft_probability: Callable[[str, int], float]) -> Question:
    """The conditions of a cell, the workload's where the source does not tell."""
    workload, method = system.deployment.workload, _method(cell, system)
    inputs = max(round(cell.input_tokens), 1) if cell.input_tokens else workload.input_tokens
    outputs = max(round(cell.output_tokens), 2) if cell.output_tokens else max(workload.output_tokens, 2)
    context = cell.context_tokens
    if context is None:
        context = inputs + 0.5 * outputs if cell.input_tokens else system.context_tokens
    tokens, share = 1.0 if not k else _tokens_per_step(cell, method), 1.0
    if k and method in LOOKUP_METHODS:
        share = _draft_share(cell) or draft_probability(method, k)
    requests = max(cell.concurrency or 1.0, 1.0)
    return Question(
        source=cell.source,
        quantity="tpot",
        value=0.0,
        noise=_noise(cell),
        setting=Setting(method if k else system.method, k, inputs, outputs),
        requests=requests,
        context_tokens=max(context, 1.0),
        tokens_per_step=tokens,
        draft_probability=min(max(share, 0.0), 1.0),
        with_prompts=requests > 1,
    )


def _tokens_per_step(cell: MeasuredCell, method: str) -> float | None:
    """Tokens that a request emits per step; None where nothing tells."""
    if cell.tokens_per_step is not None:
        return max(cell.tokens_per_step, 1.0)
    if cell.tpot_s and cell.step_s:
        return max(cell.step_s / cell.tpot_s, 1.0)
    counts = cell.acceptance
    if counts is None or not counts.drafts:
        return None
    steps = counts.steps or (counts.drafts if method not in LOOKUP_METHODS else None)
    return 1.0 + sum(counts.accepted_per_position) / steps if steps else None


def _draft_share(cell: MeasuredCell) -> float | None:
    if cell.draft_probability is not None:
        return cell.draft_probability
    counts = cell.acceptance
    return counts.drafts / counts.steps if counts and counts.steps else None


def _time_of(cell: MeasuredCell, *, known_tokens: bool) -> tuple[Quantity, float] | None:
    """The time of a cell that the model answers most directly; the others say the same again."""
    if cell.step_s is not None and not known_tokens:
        return "step", cell.step_s
    if cell.tpot_s is not None:
        return "tpot", cell.tpot_s
    if cell.step_s is not None:
        return "step", cell.step_s
    if cell.throughput_tokens_per_s is not None:
        return "throughput", cell.throughput_tokens_per_s
    return None


def _noise(cell: MeasuredCell) -> float:
    if cell.relative_noise is not None:
        return max(cell.relative_noise, _FLOOR_NOISE)
    if cell.num_requests:
        usual = _USUAL_NOISE * (_USUAL_REQUESTS / cell.num_requests) ** 0.5
        return float(min(max(usual, _LEAST_NOISE), _MOST_NOISE))
    return _UNKNOWN_NOISE


def _take_share(system: System, base: Question, share: float, noise: float | None, chosen: Selected) -> None:
    if system.parallel.tensor == 1:
        chosen.refused.append(Refused(base.source, "a share of AllReduce, but tensor_parallel_size is 1"))
    elif not 0.0 < share < 1.0:
        chosen.refused.append(Refused(base.source, f"AllReduce share {share:g}, allowed: above 0 and below 1"))
    else:
        question = replace(base, quantity="allreduce_share", value=share, noise=share_noise(share, noise))
        chosen.questions.append(question)


def _take_facts(system: System, chosen: Selected, seen: set[str]) -> None:
    """The `[[measured]]` tables of the deployment file, as `simulator.facts` reads them."""
    deployment = system.deployment
    workload = deployment.workload
    if deployment.measured_on is not deployment:
        chosen.notes.append("the [[measured]] facts describe the deployment before the overrides; they are left out")
        return
    for i, fact in enumerate(deployment.measured):
        if fact.kv_cache_tokens:
            chosen.kv_cache_tokens = chosen.kv_cache_tokens or float(fact.kv_cache_tokens)
        sha256 = fact_sha256(fact)
        if sha256 in seen:
            chosen.notes.append(f"measured[{i}]: counted already; it counts once")
            continue
        seen.add(sha256)
        chosen.facts_sha256.append(sha256)
        running = capacity(system, 0, fact.kv_cache_tokens).running(fact.concurrency)[0]
        base = Question(
            source=f"deployment file, measured[{i}]",
            quantity="tpot",
            value=0.0,
            noise=fact.relative_noise or TIME_NOISE,
            setting=Setting(system.method, 0, workload.input_tokens, max(workload.output_tokens, 2)),
            requests=float(running),
            context_tokens=float(fact.context_tokens or system.context_tokens),
            with_prompts=running > 1,
            kind="fact",
        )
        times: list[tuple[Quantity, float | None]] = [
            ("tpot", fact.tpot_ms and fact.tpot_ms * 1e-3),
            ("step", fact.step_ms and fact.step_ms * 1e-3),
            ("throughput", fact.throughput_tokens_per_s),
        ]
        stated = [(quantity, value) for quantity, value in times if value]
        if stated:
            chosen.questions.append(replace(base, quantity=stated[0][0], value=stated[0][1]))
        if fact.allreduce_share:
            _take_share(system, base, fact.allreduce_share, fact.relative_noise, chosen)


def _counted(method: str, k: int, counts: AcceptanceCounts) -> PooledAcceptance:
    positions = tuple(accumulate((counts.drafts, *counts.accepted_per_position[:k]), min))[1:]
    steps = max(counts.steps, counts.drafts) if counts.steps is not None else None
    return PooledAcceptance(method, k, counts.drafts, positions, steps, counts.num_requests)


def _pooled(counted: list[PooledAcceptance]) -> list[PooledAcceptance]:
    """The counts of equal method and draft length added up."""
    total: dict[tuple[str, int], PooledAcceptance] = {}
    for item in counted:
        key = (item.method, item.num_speculative_tokens)
        total[key] = _added(total[key], item) if key in total else item
    return list(total.values())


def _added(a: PooledAcceptance, b: PooledAcceptance) -> PooledAcceptance:
    length = min(len(a.accepted_per_position), len(b.accepted_per_position))
    positions = tuple(a.accepted_per_position[i] + b.accepted_per_position[i] for i in range(length))
    steps = a.steps + b.steps if a.steps is not None and b.steps is not None else None
    requests = a.num_requests + b.num_requests if a.num_requests is not None and b.num_requests is not None else None
    return replace(a, drafts=a.drafts + b.drafts, accepted_per_position=positions, steps=steps, num_requests=requests)


def merged_acceptance(old: Iterable[PooledAcceptance], new: Iterable[PooledAcceptance]) -> tuple[PooledAcceptance, ...]:
    """The counts of an earlier profile and the new ones together."""
    return tuple(_pooled([*old, *new]))
