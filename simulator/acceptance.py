"""Which drafted tokens are accepted, and how sure we are: draws of S_1..S_k and of the share of steps with a draft.

"Per-position acceptance" is always the pooled, unconditional, per-draft vector: the share of drafts whose position i
was accepted. It comes from what the deployment file states in any of its forms (`acceptance_evidence`), with an
interval from the data behind it, or from a wide prior by method and kind of text (`acceptance_priors`).
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from hwmodel.errors import InputError
from hwmodel.percent import percent
from hwmodel.records import dataclass
from hwmodel.specs import ModelShape
from simulator.acceptance_evidence import Evidence, evidence_of
from simulator.acceptance_priors import (
    ModelCurve,
    PriorDraws,
    as_tree,
    lookup_probability,
    lookup_survival,
    match_shape,
    method_curve,
    model_prior,
    priors,
)
from simulator.acceptance_shapes import (
    Array,
    constant_conditional,
    decaying_conditional,
    effective_trials,
    extended,
    scaled_match,
    share_draws,
    shared_normals,
    shares_by_length,
    unconditional,
)
from simulator.deployment.speculation import LOOKUP_METHODS, NGRAM_METHODS, Speculation
from simulator.deployment.tables import Workload
from simulator.summary import median

PARALLEL_METHODS = ("dflash", "dspark", "p_eagle")  # draft a block in one pass: nothing is known beyond the block
PARALLEL_BLOCK_TOKENS = 16  # largest published block (DFlash, arXiv 2602.06036)
_SEEDS = 2**62
ALWAYS_DRAFTING_VARIANT = "mrv2"  # vLLM's runner V2 fills missing n-gram drafts with the last token


@dataclass(frozen=True)
class AcceptanceDraws:
    """Acceptance of one method on one workload. Rows are equally likely; the point values stand beside them."""

    survival: Array  # (num_draws, k_max): unconditional S_1..S_k per draft, non-increasing, in [0, 1]
    draft_probability: Array  # (num_draws, 1): share of decode steps per request that carry a draft
    median_survival: Array  # (1, k_max) at the medians of the uncertain quantities
    median_draft_probability: float
    source: str  # one plain sentence
    is_prior: bool
    notes: tuple[str, ...]
    # Of text lookup, the same for drafts of 1, 2, ... k_max tokens, counted for each or by eq. L1: longer drafts are
    # rarer, because what they accept are the places where the next draft would have been.
    by_length: "tuple[AcceptanceDraws, ...]" = ()
    basis: str = ""  # what published figures it comes from, if any

    def for_length(self, num_speculative_tokens: int) -> "AcceptanceDraws":
        """The acceptance of drafts of that length: its own where lengths differ, else this one."""
        return self.by_length[num_speculative_tokens - 1] if 0 < num_speculative_tokens <= len(self.by_length) else self


@dataclass(frozen=True)
class _Asked:
    """What is asked for, in one piece."""

    speculation: Speculation
    workload: Workload
    k_max: int
    num_draws: int
    rng: np.random.Generator
    ngram_variant: str | None
    context_tokens: float
    target: ModelShape | None = None

    @property
    def always_drafts(self) -> bool:
        """Whether every decode step carries a draft by construction."""
        method = self.speculation.method
        return method not in LOOKUP_METHODS or (
            method in NGRAM_METHODS and self.ngram_variant == ALWAYS_DRAFTING_VARIANT
        )


def acceptance_draws(  # noqa: PLR0913 - the public question in its own words
    spec: Speculation,
    workload: Workload,
    *,
    k_max: int,
    num_draws: int,
    rng: np.random.Generator,
    ngram_variant: str | None,
    context_tokens: float,
    target: ModelShape | None = None,
) -> AcceptanceDraws:
    """Draws of the acceptance of `spec` on `workload` up to `k_max` drafted tokens, and its point values.

    Equal generators give comparable draws: a changed input shifts them, it does not shuffle them. `ngram_variant` is
    the engine's search (kmp, lps, gpu_v1, mrv2); `context_tokens` the mean context of a decode step; `target` the
    model, which a published drafter may only be a relative of. Raises InputError where a stated acceptance cannot be,
    and where a parallel drafter is asked beyond what is known of it.
    """
    asked = _Asked(spec, workload, k_max, num_draws, rng, ngram_variant, context_tokens, target)
    if spec.method == "none":
        nothing = PriorDraws(np.zeros((num_draws + 1, k_max)), np.zeros(num_draws + 1), ())
        return _result(asked, nothing, "no drafting", is_prior=False)
    if spec.acceptance is None:
        return _prior(asked)
    if spec.acceptance.published is not None:
        return _published(asked, spec.acceptance.published)
    evidence = evidence_of(spec.acceptance, spec, workload)
    _refuse_beyond_block(asked, evidence.at_k)
    notes = evidence.notes
    if evidence.variant not in (None, ngram_variant) and ngram_variant is not None:
        notes += (f"the replay is of the n-gram search {evidence.variant}, this engine's is {ngram_variant}",)
    seed = int(rng.integers(_SEEDS)) if evidence.replay and spec.method in LOOKUP_METHODS else None
    probability, note = _stated_probability(asked, evidence)
    known_at = _share_length(spec, evidence)
    wide = asked if seed is not None else _reaching(asked, known_at)
    rows = _vector_rows(wide, evidence) if evidence.conditional is not None else _scalar_rows(wide, evidence)
    draws = PriorDraws(rows, probability, notes + note)
    if seed is None:
        return _by_rule(asked, draws, known_at, lambda *_: evidence.source, is_prior=False)
    found = _result(asked, draws, evidence.source, is_prior=False)
    return replace(found, by_length=tuple(_by_length(asked, seed)))


def _share_length(spec: Speculation, evidence: Evidence) -> int:
    """The draft length that a lookup's share of steps with a draft belongs to.

    Its prior's own; that of the counts or of `measured_at_k`; of a vector and a share of the file, the file's, where
    the vector is shorter and held.
    """
    if evidence.draft_probability is None:
        return match_shape()[1]
    held = spec.acceptance is not None and spec.acceptance.form in ("per_position", "conditional")
    return max(evidence.at_k, spec.num_speculative_tokens or 0) if held else evidence.at_k


def _reaching(asked: _Asked, length: int) -> _Asked:
    """`asked`, for text lookup up to the draft length that its share of steps with a draft belongs to at least."""
    return replace(asked, k_max=max(asked.k_max, length)) if asked.speculation.method in LOOKUP_METHODS else asked


def _by_rule(
    asked: _Asked, draws: PriorDraws, known_at: int, source: Callable[[int, float, float], str], *, is_prior: bool
) -> AcceptanceDraws:
    """The answer; a lookup's share of steps with a draft, known at drafts of `known_at` tokens, follows the length.

    docs/model.md, eq. L1. `source` words a draft length, the tokens per draft, and the share.
    """

    def told(length: int, own: PriorDraws) -> str:
        return source(length, float(1.0 + own.survival[-1, :length].sum()), float(own.probability[-1]))

    k_max, probability = asked.k_max, draws.probability
    if asked.speculation.method not in LOOKUP_METHODS or not k_max or (probability >= 1.0).all():
        return _result(asked, draws, told(max(k_max, 1), draws), is_prior=is_prior)
    shares = shares_by_length(draws.survival, probability[:, None], known_at)
    each = []
    for length in range(1, k_max + 1):
        own = replace(draws, survival=draws.survival[:, :length], probability=shares[:, length - 1])
        each.append(_result(replace(asked, k_max=length), own, told(length, own), is_prior=is_prior))
    return replace(each[-1], by_length=tuple(each))


def _by_length(asked: _Asked, seed: int) -> Iterator[AcceptanceDraws]:
    """A replay's acceptance of drafts of 1 to k_max tokens; equal generators, so that lengths compare draw by draw."""
    spec = asked.speculation
    assert spec.acceptance is not None, "a replay is a stated acceptance"
    for length in range(1, asked.k_max + 1):
        own = replace(asked, k_max=length, rng=np.random.default_rng(seed))
        found = evidence_of(spec.acceptance, spec, asked.workload, length)
        probability, _ = _stated_probability(own, found)
        yield _result(own, PriorDraws(_vector_rows(own, found), probability, ()), found.source, is_prior=False)


def _prior(asked: _Asked) -> AcceptanceDraws:
    spec, workload, k = asked.speculation, asked.workload, asked.k_max
    _refuse_beyond_block(asked, 0)
    lookup, known_at = spec.method in LOOKUP_METHODS, match_shape()[1]
    if lookup:
        probability = lookup_probability(spec, workload, asked.context_tokens, asked.num_draws, asked.rng)
        rows = lookup_survival(spec, workload, max(k, known_at), asked.num_draws, asked.rng)
        draws = PriorDraws(rows, probability, ())
    else:
        curve = method_curve(spec.method)
        draws = _in_shape(asked, model_prior(curve, workload, max(k, 1), asked.num_draws, asked.rng))

    def source(length: int, tokens: float, share: float) -> str:
        what = f"prior for {spec.method} on {workload.kind} text: {tokens:.2f} tokens per draft at k = {length}"
        return f"{what}, a draft on {percent(share)} of the steps" if lookup else what

    return _by_rule(asked, draws, known_at, source, is_prior=True)


def _in_shape(asked: _Asked, chain: PriorDraws) -> PriorDraws:
    """The prior of a chain, or of a tree where the deployment drafts one."""
    topk = asked.speculation.sglang_topk or 1
    return chain if topk <= 1 else as_tree(chain, topk, asked.rng)


def _published(asked: _Asked, name: str) -> AcceptanceDraws:
    """The prior that the published figures of a drafter give (docs/options.md, eq. A1)."""
    from simulator.published_drafters import named_estimate  # only where one is named: start-up time

    spec = asked.speculation
    if spec.method in LOOKUP_METHODS:
        raise InputError(f"speculation.acceptance.published: {spec.method} has no head; allowed: replay, or measured")
    found, what = named_estimate(name, spec.method, asked.target)
    usual = method_curve(spec.method)
    _refuse_beyond_block(asked, 0)
    curve = ModelCurve(found.logit, found.logit_sd, found.decay or usual.decay, usual.decay_log_sd)
    draws = _in_shape(asked, model_prior(curve, asked.workload, max(asked.k_max, 1), asked.num_draws, asked.rng))
    length = 1 + draws.survival[-1].sum()
    source = (
        f"{what}: {length:.2f} tokens per draft at k = {max(asked.k_max, 1)} on"
        f" {asked.workload.kind} text ({found.text})"
    )
    return replace(_result(asked, draws, source, is_prior=True), basis=f"{what}: {found.text}")


def _result(asked: _Asked, draws: PriorDraws, source: str, *, is_prior: bool) -> AcceptanceDraws:
    """The answer; for the always-drafting n-gram search, misses become drafts that are rejected."""
    survival, probability, notes = draws.survival, draws.probability, draws.notes
    if asked.speculation.method in LOOKUP_METHODS and asked.always_drafts:
        if (probability < 1).any():
            notes += ("this engine drafts on every n-gram step: steps without a match count as rejected drafts",)
        survival, probability = survival * probability[:, None], np.ones_like(probability)
    return AcceptanceDraws(
        survival=survival[:-1, : asked.k_max],
        draft_probability=probability[:-1, None],
        median_survival=survival[-1:, : asked.k_max],
        median_draft_probability=float(probability[-1]),
        source=source,
        is_prior=is_prior,
        notes=notes,
    )


def _refuse_beyond_block(asked: _Asked, known: int) -> None:
    method = asked.speculation.method
    if method in PARALLEL_METHODS and asked.k_max > max(known, PARALLEL_BLOCK_TOKENS):
        raise InputError(
            f"speculation.num_speculative_tokens: got {asked.k_max} for {method}, allowed: to "
            f"{max(known, PARALLEL_BLOCK_TOKENS)} (it drafts one block; nothing is known beyond)"
        )


def _stated_probability(asked: _Asked, evidence: Evidence) -> tuple[Array, tuple[str, ...]]:
    """Share of steps with a draft, (num_draws + 1,), the point value last, and a note where it had to be assumed."""
    share = evidence.draft_probability
    if share is None and asked.always_drafts:
        return np.ones(asked.num_draws + 1), ()
    if share is None:
        drawn = lookup_probability(asked.speculation, asked.workload, asked.context_tokens, asked.num_draws, asked.rng)
        note = (
            f"acceptance is per draft; the share of steps with a draft is not stated: prior, about {percent(drawn[-1])}"
        )
        return drawn, (note,)
    if evidence.step_trials is not None:
        worth = np.full((asked.num_draws, 1), evidence.step_trials)
    elif share in (0.0, 1.0):
        return np.full(asked.num_draws + 1, share), ()
    else:
        trials = np.array([_drafts(asked, evidence) / share])
        worth = effective_trials(trials, _requests(evidence), _kappa(asked, evidence))
    drawn = share_draws(asked.rng, np.array([share]), worth, asked.rng.standard_normal((asked.num_draws, 1)))
    return np.append(drawn[:, 0], share), ()


def _requests(evidence: Evidence) -> float:
    return evidence.num_requests or float(priors()["spread"]["assumed_requests"])


def _drafts(asked: _Asked, evidence: Evidence) -> float:
    """Drafts behind the figures: as counted, else those of the requests at the workload's output length."""
    if evidence.num_drafts is not None:
        return evidence.num_drafts
    share = 1.0 if evidence.draft_probability is None else evidence.draft_probability
    steps = _requests(evidence) * asked.workload.output_tokens / (1.0 + share * evidence.accepted_per_draft())
    return max(steps * share, 1.0)


def _kappa(asked: _Asked, evidence: Evidence) -> Array:
    """Between-request concentration, (num_draws, 1): as stated, else its prior."""
    spread = priors()["spread"]
    normals = asked.rng.standard_normal((asked.num_draws, 1))
    if evidence.heterogeneity is not None:
        return np.full((asked.num_draws, 1), evidence.heterogeneity)
    return np.asarray(spread["kappa_median"] * np.exp(spread["kappa_log_sd"] * normals))


def _vector_rows(asked: _Asked, evidence: Evidence) -> Array:
    """S_1..S_k, (num_draws + 1, k), of a measured vector: sequential binomials, held at the last position beyond."""
    point, num_draws = evidence.vector(), asked.num_draws
    survival = unconditional(point)
    trials = _drafts(asked, evidence) * np.concatenate(([1.0], survival[:-1]))
    kappa, requests = _kappa(asked, evidence), _requests(evidence)
    if evidence.trials is not None:
        worth, typical = np.tile(evidence.trials, (num_draws, 1)), evidence.trials
    else:
        worth = effective_trials(trials, requests, kappa)
        typical = effective_trials(trials, requests, median(kappa)[None])[0]
    # What the sampling of requests adds moves all positions together; the binomial part does not.
    shared = 1.0 - np.divide(typical, trials, out=np.ones_like(trials), where=trials > 0)
    drawn = share_draws(asked.rng, point, worth, shared_normals(asked.rng, num_draws, shared))
    rows = np.concatenate((drawn, point[None, :]))
    return unconditional(extended(rows, asked.k_max, _further_steps(asked, len(point))))


def _further_steps(asked: _Asked, known: int) -> Array:
    """Changes of ln c per position beyond the `known` ones, (num_draws + 1, extra), the point value 0 last."""
    spread = priors()["spread"]
    wider = spread["parallel_extrapolation_factor"] if asked.speculation.method in PARALLEL_METHODS else 1.0
    steps = asked.rng.standard_normal((asked.num_draws, max(asked.k_max - known, 0)))
    return np.concatenate((spread["extrapolation_log_sd"] * wider * steps, np.zeros((1, steps.shape[1]))))


def _scalar_rows(asked: _Asked, evidence: Evidence) -> Array:
    """S_1..S_k, (num_draws + 1, k), of one measured scalar and an assumed shape.

    Models: constant conditional acceptance, in the draws with a slope over the measured positions that keeps the
    scalar, held beyond. Text lookup: the two-state match mixture, scaled.
    """
    at_k = evidence.at_k
    rate = evidence.accepted_per_draft() / at_k
    worth = effective_trials(np.array([_drafts(asked, evidence)]), _requests(evidence), _kappa(asked, evidence))
    ranks = asked.rng.standard_normal((asked.num_draws, 2))
    drawn = share_draws(asked.rng, np.array([rate]), worth, ranks[:, :1])[:, 0]
    accepted = np.append(drawn, rate) * at_k
    if asked.speculation.method in LOOKUP_METHODS:
        return scaled_match(accepted, at_k, match_shape()[0], asked.k_max)
    decay = np.exp(np.append(priors()["spread"]["shape_log_sd"] * ranks[:, 1], 0.0))
    conditional = decaying_conditional(constant_conditional(accepted, at_k, decay), decay, at_k)
    return unconditional(extended(conditional, asked.k_max, _further_steps(asked, at_k)))
