"""What a stated `acceptance` says, whatever its form: shares, how much data is behind them, and in which words."""

from collections.abc import Iterator
from dataclasses import replace
from math import ceil

import numpy as np

from hwmodel.drafters import NGRAM_METHODS
from hwmodel.errors import InputError
from hwmodel.percent import percent
from hwmodel.records import dataclass
from simulator.acceptance_replay import Counted, Replayed, read_replay
from simulator.acceptance_shapes import Array, conditional_of, unconditional
from simulator.deployment.counters import Counters, read_counters
from simulator.deployment.keys import short
from simulator.deployment.speculation import LOOKUP_METHODS, MAX_DRAFT_TOKENS, Acceptance, Speculation
from simulator.deployment.tables import Workload

_VARIABLE_LENGTH = 0.01  # relative distance of tokens per draft from a whole number that is not rounding
_SAME_CONTEXT = 2.0  # factor between contexts up to which a replay is taken as of the workload
_DRAFTS_EVERY_STEP = 0.98  # model drafters below this share of steps were switched off part of the time


@dataclass(frozen=True, slots=True)
class Evidence:
    """Measured acceptance: a vector `conditional`, or one scalar `accepted` tokens per draft at `at_k`."""

    source: str
    conditional: Array | None = None  # (k,)
    accepted: float | None = None
    at_k: int = 0
    num_drafts: float | None = None  # None: not counted
    draft_probability: float | None = None
    num_requests: float | None = None
    heterogeneity: float | None = None
    trials: Array | None = None  # (k,) independent trials behind each c_i, where the source says; else from requests
    step_trials: float | None = None  # the same of the draft probability
    replay: str | None = None  # path of the replay, which also tells how drafts change with their length
    variant: str | None = None  # the n-gram search that was replayed
    notes: tuple[str, ...] = ()

    def vector(self) -> Array:
        """c_1..c_k, (k,); only where the evidence is a vector."""
        assert self.conditional is not None, "the evidence is a scalar"
        return self.conditional

    def accepted_per_draft(self) -> float:
        """Mean accepted tokens of a draft, the bonus token left out."""
        if self.conditional is not None:
            return float(unconditional(self.conditional).sum())
        return self.accepted or 0.0


def evidence_of(
    acceptance: Acceptance, speculation: Speculation, workload: Workload, draft_length: int | None = None
) -> Evidence:
    """The evidence that `acceptance` states, its traps handled; InputError where it cannot mean what it says.

    `draft_length` asks a replay about drafts of another length than the deployment's.
    """
    form, method = acceptance.form, speculation.method
    if form in ("per_position", "conditional"):
        found = _from_vector(acceptance)
    elif form == "mean_length":
        length = acceptance.mean_length or 1.0
        found = _from_scalar(acceptance, length - 1, f"mean length {length:g} per draft")
    elif form == "rate":
        found = _from_rate(acceptance, method)
    elif form == "counters":
        found = _from_counters(read_counters(acceptance.counters or {}), speculation, workload)
    else:
        found = _from_replay(acceptance.replay or "", speculation, workload, draft_length)
    return _completed(found, acceptance, method)


def _completed(found: Evidence, acceptance: Acceptance, method: str) -> Evidence:
    """`found` with what the other keys of `acceptance` state, and with the note that text lookup needs."""
    probability, notes = found.draft_probability, found.notes
    # What the user says about the requests wins over what a replay found about them.
    stated = acceptance.num_requests is not None or acceptance.heterogeneity is not None
    if acceptance.draft_probability is not None:
        probability = acceptance.draft_probability
    elif method not in LOOKUP_METHODS:
        if probability is not None and probability < _DRAFTS_EVERY_STEP:
            notes += (
                f"only {percent(probability)} of the measured steps carried a draft; predicted with one on every step",
            )
        probability = None
    return Evidence(
        source=found.source,
        conditional=found.conditional,
        accepted=found.accepted,
        at_k=found.at_k,
        num_drafts=found.num_drafts,
        draft_probability=probability,
        num_requests=acceptance.num_requests or found.num_requests,
        heterogeneity=acceptance.heterogeneity,
        trials=None if stated else found.trials,
        step_trials=None if stated else found.step_trials,
        replay=found.replay,
        variant=found.variant,
        notes=notes,
    )


def _from_vector(acceptance: Acceptance) -> Evidence:
    if acceptance.per_position is not None:
        conditional = conditional_of(np.array(acceptance.per_position))
        shown = acceptance.per_position
        what = "per-position acceptance"
    else:
        shown = acceptance.conditional or ()
        conditional, what = np.array(shown), "conditional acceptance"
    return Evidence(f"{what} of the file, {_numbers(shown)}", conditional=conditional, at_k=len(shown))


def _from_scalar(acceptance: Acceptance, accepted: float, what: str) -> Evidence:
    at_k = acceptance.measured_at_k or 1
    return Evidence(f"{what} at k = {at_k}, of the file", accepted=accepted, at_k=at_k)


def _from_rate(acceptance: Acceptance, method: str) -> Evidence:
    """accepted / drafted is the mean of S_1..S_k only where every draft has k tokens."""
    if method == "suffix":
        raise InputError(
            "speculation.acceptance.rate: got it for suffix, whose drafts vary in length; "
            "allowed: mean_length, counters, replay or per_position"
        )
    rate, at_k = acceptance.rate or 0.0, acceptance.measured_at_k or 1
    return _from_scalar(acceptance, rate * at_k, f"acceptance rate {rate:g} of drafted tokens")


def _from_counters(counters: Counters, speculation: Speculation, workload: Workload) -> Evidence:
    counted = Counted(
        counters.num_drafts,
        counters.num_accepted_tokens_per_pos or (),
        counters.decode_steps,
        counters.ttft_count or None,
        "counters of the file",
    )
    if counted.survivors:
        return _from_counted(counted, workload)
    length = counters.mean_draft_tokens or 0.0
    at_k = max(1, ceil(length * (1 - _VARIABLE_LENGTH)))
    if at_k > MAX_DRAFT_TOKENS:
        raise InputError(
            f"speculation.acceptance.counters: {length:g} tokens per draft, allowed: to {MAX_DRAFT_TOKENS}"
        )
    notes: tuple[str, ...] = ()
    if abs(length - at_k) > _VARIABLE_LENGTH * at_k:
        at_k = max(at_k, speculation.num_speculative_tokens or 0)
        notes = (f"drafts of {length:.2f} tokens on average, so of varying length; read as drafts of up to {at_k}",)
    accepted = counters.num_accepted_tokens / counters.num_drafts
    return Evidence(
        f"counters of the file ({counters.num_drafts:g} drafts), without positions",
        accepted=accepted,
        at_k=at_k,
        num_drafts=counters.num_drafts,
        draft_probability=_probability(counted),
        num_requests=counted.num_requests or _requests(counted, accepted, workload),
        notes=notes,
    )


def _from_replay(path: str, speculation: Speculation, workload: Workload, draft_length: int | None) -> Evidence:
    counted = read_replay(path, draft_length or speculation.num_speculative_tokens)
    if not counted.drafts and speculation.method not in LOOKUP_METHODS:
        raise InputError(f"speculation.acceptance.replay: no draft in '{short(path)}', allowed: at least one")
    _refuse_other_method(counted, speculation, path)
    notes = tuple(_differences(counted, speculation, workload))
    if (draft_length or speculation.num_speculative_tokens or 0) > len(counted.survivors):
        notes += (
            f"the replay counted drafts of up to {len(counted.survivors)} tokens; acceptance of further ones is held at"
            " its last value: replay with a larger -k",
        )
    return replace(_from_counted(counted, workload), replay=path, notes=notes)


def _refuse_other_method(counted: Counted, speculation: Speculation, path: str) -> None:
    """InputError where the replay is of a method that drafts from something else: its counts say nothing here."""
    theirs, ours = (counted.replayed or Replayed()).method, speculation.method
    same_search = theirs in NGRAM_METHODS and ours in NGRAM_METHODS
    if theirs in (None, ours) or ours == "none" or same_search:
        return
    raise InputError(
        f"speculation.acceptance.replay: '{short(path)}' is a replay of {short(theirs or '')}, the deployment drafts"
        f" with {ours}; allowed: a replay of {ours}, --method {short(theirs or '')} with --set"
        " speculation.acceptance.replay=FILE, or no acceptance"
    )


def _differences(counted: Counted, speculation: Speculation, workload: Workload) -> Iterator[str]:
    """Where the replay was of something else than the deployment."""
    replayed = counted.replayed or Replayed()
    if replayed.method not in (None, speculation.method):
        yield f"the replay is of {replayed.method}, the deployment drafts with {speculation.method}"
    elif replayed.lookup_range not in (None, speculation.lookup_range):
        low, high = replayed.lookup_range or (0, 0)
        ours = "{} to {}".format(*speculation.lookup_range)
        yield f"the replay is of matches of {low} to {high} tokens, the deployment's are of {ours}"
    mean = workload.input_tokens + workload.output_tokens / 2
    if counted.context_tokens and not 1 / _SAME_CONTEXT <= mean / counted.context_tokens <= _SAME_CONTEXT:
        yield (
            f"the replay's steps had {counted.context_tokens:,.0f} tokens of context on average, the workload's have "
            f"{mean:,.0f}: drafts are found more often in longer contexts"
        )


def _from_counted(counted: Counted, workload: Workload) -> Evidence:
    survival = np.array(counted.survivors) / (counted.drafts or 1.0)
    return Evidence(
        f"{counted.source} ({counted.drafts:g} drafts), {_numbers(tuple(survival))} by position",
        conditional=conditional_of(survival),
        at_k=len(survival),
        num_drafts=counted.drafts,
        draft_probability=_probability(counted),
        num_requests=counted.num_requests or _requests(counted, float(survival.sum()), workload),
        trials=None if counted.trials is None else np.array(counted.trials),
        step_trials=counted.step_trials,
        variant=counted.replayed.variant if counted.replayed else None,
    )


def _probability(counted: Counted) -> float | None:
    return min(1.0, counted.drafts / counted.steps) if counted.steps else None


def _requests(counted: Counted, accepted: float, workload: Workload) -> float:
    """Requests that the counts came from, if they were of the workload's output length."""
    tokens = (counted.steps or counted.drafts) + accepted * counted.drafts
    return max(1.0, tokens / workload.output_tokens)


def _numbers(shares: tuple[float, ...]) -> str:
    return short(" ".join(f"{share:.3f}" for share in shares))
