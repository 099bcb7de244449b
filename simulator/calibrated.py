"""What is known of a deployment that a profile was given for: which of its findings hold here, and draws of them.

A parameter carries over where what it describes is the same: routing with the model, kernels and host with GPU and
engine, AllReduce with the links as well. The residual holds only where everything is the same, engine version included.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hwmodel.allreduce_curve import AllReduceCurve, Provenance, curve_from_points
from hwmodel.errors import InputError
from hwmodel.parameters import prior_table
from hwmodel.percent import percent
from hwmodel.residual import NUM_LOG_FACTORS
from simulator.closed_form import baseline_step, logged_kv_cache_tokens
from simulator.deployment import Deployment
from simulator.deployment.speculation import LOOKUP_METHODS, Acceptance, Speculation
from simulator.facts import fact_sha256, facts_predictor, observations_of
from simulator.identity import differences, identity_of
from simulator.knowledge import ROUTING, Knowledge
from simulator.parameters import Prior, PriorSet
from simulator.posterior import Posterior, conditioned, linearise
from simulator.profile import CONSTANT_SHARE, MeasuredCurve, PooledAcceptance, Profile
from simulator.system import System, build_system

Array = NDArray[np.float64]

LINKS = frozenset({"allreduce_latency_scale", "allreduce_size_scale", "allreduce_skew_us"})
ATTENTION = frozenset(
    {"attention_latency_us", "kv_read_scale", "verify_kv_share", "verify_path_scale", "verify_path_applies"}
)
_STALE = 0.02  # relative change of a measured step at the same parameters that means another cost model


class _Match(NamedTuple):
    """Which findings of a profile hold for a system."""

    model: bool  # same geometry: routing
    machine: bool  # same GPU and engine: kernels, host
    attention: bool  # the backend as well
    links: bool  # machine, and the same ranks on the same links
    everything: bool  # all but the engine's version
    version: bool
    different: tuple[str, ...]

    def holds(self, name: str) -> bool:
        """Whether the finding on this parameter does."""
        if name in ROUTING:
            return self.model
        if name == "model_error":
            return self.everything and self.version
        if name in LINKS:
            return self.links
        return self.attention if name in ATTENTION else self.machine


class CarriedOver(NamedTuple):
    """A system with the profile's priors, and the posterior over its parameters (residuals last where they hold)."""

    system: System
    posterior: Posterior
    match: _Match
    notes: tuple[str, ...]
    own_priors: PriorSet  # what the deployment has without the profile

    @property
    def same(self) -> bool:
        """Whether the profile was measured on this very deployment, so that its residual holds."""
        return len(self.posterior.mode) > len(self.system.priors.priors)


def calibrated_knowledge(deployment: Deployment, profile: Profile) -> Knowledge:
    """What the profile says of the deployment; `InputError` where it is about something else altogether."""
    system, joint, match, notes, _ = carried_over(deployment, profile)
    joint, agree = _narrowed(joint, system, profile, match)
    speculation, more = _speculation(deployment, profile, match)
    files = len(profile.data)
    source = f"{files} file{'' if files == 1 else 's'}" if files else "[[measured]] facts"
    notes += (
        *more,
        *_misfit(profile, match),
        *_stale(profile, joint, match),
        f"parameters from a profile of {profile.created[:10]} ({source})",
    )
    logged = logged_kv_cache_tokens(system)
    measured = profile.kv_cache_tokens if match.everything else None
    return Knowledge(system, speculation, joint, agree, logged or measured, notes)


def carried_over(deployment: Deployment, profile: Profile, curve: AllReduceCurve | None = None) -> CarriedOver:
    """The findings of the profile that hold for the deployment; `curve` is an AllReduce measured since."""
    system = build_system(deployment, curve)
    match = _match(profile, system)
    if not (match.model or match.machine):
        raise InputError(
            f"profile: measured on {profile.identity.gpu} with {profile.identity.engine} and {profile.identity.model},"
            f" but the deployment has {system.gpu.name} with {deployment.engine.name} and {system.shape.name}; allowed:"
            " a profile of the same model, or of the same GPU and engine"
        )
    notes = _match_notes(match)
    if match.links and (profile.settings or profile.curve):
        system, more = _resettled(deployment, profile, system, curve)
        notes += more
    joint, narrowed, more = _carried(profile, system, match)
    return CarriedOver(narrowed, joint, match, notes + more, system.priors)


def _match(profile: Profile, system: System) -> _Match:
    ours, theirs = identity_of(system), profile.identity
    machine = (ours.gpu, ours.engine) == (theirs.gpu, theirs.engine)
    ranks = (ours.interconnect, ours.tensor, ours.decode_context)
    links = machine and ranks == (theirs.interconnect, theirs.tensor, theirs.decode_context)
    return _Match(
        model=ours.geometry == theirs.geometry,
        machine=machine,
        attention=machine and ours.attention_backend == theirs.attention_backend,
        links=links,
        everything=replace(ours, engine_version=theirs.engine_version) == theirs,
        version=ours.engine_version == theirs.engine_version,
        different=differences(ours, theirs),
    )


def _match_notes(match: _Match) -> tuple[str, ...]:
    if not match.different:
        return ()
    kept = [
        text
        for text, holds in (
            ("routing", match.model),
            ("kernels and host time", match.machine),
            ("attention", match.attention),
            ("AllReduce", match.links),
            ("KV cache size", match.everything),
        )
        if holds
    ]
    return (
        f"the profile was measured elsewhere ({'; '.join(match.different)}): only its {', '.join(kept)} carry over,"
        " its residual does not",
    )


def measured_curve(curve: MeasuredCurve) -> AllReduceCurve:
    """The AllReduce curve of a profile."""
    points = dict(zip(curve.sizes_bytes, curve.times_s, strict=True))
    return curve_from_points(points, "nccl", Provenance(curve.source, "user", curve.num_gpus))


def with_settings(deployment: Deployment, settings: dict[str, object]) -> Deployment:
    """The deployment with keys of [hardware] laid over, the rest as it was."""
    return deployment.changed(hardware=deployment.hardware.changed(**settings))


def _resettled(
    deployment: Deployment, profile: Profile, system: System, curve: AllReduceCurve | None
) -> tuple[System, tuple[str, ...]]:
    """The system with the AllReduce curve and algorithm of the profile, as far as the deployment does not say."""
    hardware, notes = deployment.hardware, []
    stated = {key for key in profile.settings if key in hardware.stated}
    changed = {key: value for key, value in profile.settings.items() if key not in stated}
    other = sorted(key for key in stated if getattr(hardware, key) != profile.settings[key])
    if other:
        notes.append(
            f"the profile was fitted with another {', '.join(other)} than the deployment states: calibrate again"
        )
    if curve is None and profile.curve is not None:
        curve = measured_curve(profile.curve)
    if not changed and curve is None:
        return system, tuple(notes)
    return build_system(with_settings(deployment, changed), curve), tuple(notes)


def _carried(profile: Profile, system: System, match: _Match) -> tuple[Posterior, System, tuple[str, ...]]:
    """The joint posterior in the order of the system's priors, residuals last (none where they do not hold)."""
    place = {prior.name: i for i, prior in enumerate(profile.priors)}
    found: list[int | None] = []
    changes: dict[str, Prior] = {}
    own: list[str] = []
    for prior in system.priors.priors:
        at = place.get(prior.name)
        holds = at is not None and match.holds(prior.name)
        if holds and at is not None and not _same(prior, profile.priors[at]):
            if _is_stated(prior):
                own.append(prior.name)
                holds = False
            else:
                changes[prior.name] = profile.priors[at]
        found.append(at if holds else None)
    residual = match.everything and match.version
    if residual:
        found += range(len(place), len(place) + NUM_LOG_FACTORS)
    mode, factor = _block(profile, found)
    drafted = profile.method in ("none", system.method)
    if residual and not drafted:
        mode, factor = _unlearned(mode, factor, CONSTANT_SHARE * profile.model_error)
    none = np.zeros(0)
    joint = Posterior(mode, factor, none, (), none, np.zeros((0, len(mode))), none)
    notes: tuple[str, ...] = (f"{', '.join(own)}: as the deployment states, not as the profile found",) if own else ()
    if residual and not drafted and system.method != "none":
        notes += (f"what the profile learned of runs with {profile.method} does not hold for {system.method}",)
    return joint, replace(system, priors=system.priors.replaced(changes)), notes


def _same(ours: Prior, theirs: Prior) -> bool:
    return (ours.center, ours.spread, ours.kind) == (theirs.center, theirs.spread, theirs.kind)


def _is_stated(prior: Prior) -> bool:
    """Whether the deployment says it, rather than the tables."""
    return bool(prior.source != prior_table()[prior.name]["source"])


def _block(profile: Profile, found: list[int | None]) -> tuple[Array, Array]:
    """Mode and factor of some coordinates of the profile; None stands for a coordinate at its prior."""
    keep = [i for i, at in enumerate(found) if at is not None]
    at = [place for place in found if place is not None]
    mode, covariance = np.zeros(len(found)), np.eye(len(found))
    mode[keep] = profile.mode[at]
    covariance[np.ix_(keep, keep)] = profile.covariance[np.ix_(at, at)]
    return mode, np.asarray(np.linalg.cholesky(covariance), dtype=np.float64)


def _unlearned(mode: Array, factor: Array, spread: float) -> tuple[Array, Array]:
    """The last coordinate, of drafted steps, back at its prior: it was learned about another method."""
    mode, factor = mode.copy(), factor.copy()
    mode[-1], factor[-1] = 0.0, 0.0
    factor[-1, -1] = spread
    return mode, factor


def _narrowed(
    joint: Posterior, system: System, profile: Profile, match: _Match
) -> tuple[Posterior, Callable[[Array], Array] | None]:
    """The posterior with the facts that the profile has not seen, and what its draws are moved to agree with."""
    deployment = system.deployment
    own = deployment.measured if deployment.measured_on is deployment else ()
    facts = [fact for fact in own if observations_of(fact) and fact_sha256(fact) not in profile.facts_sha256]
    known = Knowledge(system, deployment.speculation, joint, None, None)
    if facts:
        predict = facts_predictor(system, facts)
        observations = [o for fact in facts for o in observations_of(fact)]
        joint = conditioned(joint, lambda y: predict(known.parameters(y)), observations)
    if not profile.anchors or not match.everything:
        return joint, None
    sequences = np.array([anchor.sequences for anchor in profile.anchors])
    context = np.array([anchor.context_tokens for anchor in profile.anchors])

    def agree(y: Array) -> Array:
        step = baseline_step(system, known.parameters(y), sequences, context, detail=False)
        return np.asarray(np.log(step.total_s))

    at_mode, jacobian = linearise(agree, joint.mode)
    noise, spread = (np.array([getattr(a, name) for a in profile.anchors]) for name in ("noise", "spread"))
    linear = np.sqrt(np.sum((jacobian @ joint.factor) ** 2, axis=1))
    kept = np.minimum(spread / np.maximum(linear, 1e-9), 1.0)
    return replace(joint, at_mode=at_mode, jacobian=jacobian, noise=noise, kept=kept), agree


def _misfit(profile: Profile, match: _Match) -> tuple[str, ...]:
    """What the measurements missed, where the error that follows from it holds."""
    holds = profile.misfit is not None and match.everything and match.version
    return (profile.misfit.sentence(),) if profile.misfit is not None and holds else ()


def _stale(profile: Profile, joint: Posterior, match: _Match) -> tuple[str, ...]:
    """A note where the same parameters give other steps than they did when the profile was made."""
    if not (match.everything and match.version and profile.anchors):
        return ()
    change = np.exp(joint.at_mode) / np.array([anchor.step_s for anchor in profile.anchors]) - 1.0
    worst = float(change[np.argmax(np.abs(change))])
    if abs(worst) <= _STALE or len(joint.labels):  # further facts move the mode
        return ()
    return (
        "the profile was made by another version of the cost model: steps that it measured now come out"
        f" {percent(worst, signed=True)}"
        " off at worst; calibrate again",
    )


def stated_sha256(acceptance: Acceptance | None) -> str:
    """What identifies a stated acceptance; empty for none."""
    if acceptance is None:
        return ""
    text = json.dumps(acceptance.to_dict(), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def pooled(counted: list[PooledAcceptance]) -> PooledAcceptance:
    """Counts of several draft lengths as one: position i from all runs that drafted that far."""
    length = max(len(item.accepted_per_position) for item in counted)
    drafts = sum(item.drafts for item in counted)
    accepted: list[float] = []
    for i in range(length):
        far = [item for item in counted if len(item.accepted_per_position) > i]
        before = sum(item.accepted_per_position[i - 1] if i else item.drafts for item in far)
        share = sum(item.accepted_per_position[i] for item in far) / before if before else 0.0
        accepted.append((accepted[-1] if accepted else drafts) * share)
    steps = _pooled_steps(counted, sum(accepted) / drafts if drafts else 0.0)
    known = [item.num_requests for item in counted if item.num_requests is not None]
    requests = sum(known) if len(known) == len(counted) else None
    return PooledAcceptance(counted[0].method, length, drafts, tuple(accepted), steps, requests)


def _pooled_steps(counted: list[PooledAcceptance], accepted_per_draft: float) -> float | None:
    """Steps behind the pooled drafts, None where not all were counted.

    Longer drafts of a text lookup are fewer (docs/model.md, eq. L1): each run's are taken to the pooled length, where a
    draft has `accepted_per_draft` tokens, before their share of the steps is.
    """
    known = [(item, item.steps) for item in counted if item.steps is not None]
    if len(known) < len(counted):
        return None
    if counted[0].method not in LOOKUP_METHODS:
        return sum(steps for _, steps in known)
    drafted = [(i.drafts + sum(i.accepted_per_position)) / (1.0 + accepted_per_draft) for i, _ in known]
    missed = sum(max(steps - item.drafts, 0.0) for item, steps in known)
    drafts = sum(item.drafts for item in counted)
    return drafts * (1.0 + missed / sum(drafted)) if sum(drafted) else sum(steps for _, steps in known)


def acceptance_of(counted: PooledAcceptance) -> Acceptance:
    """The counts in the form that a deployment file states them in."""
    counters: dict[str, object] = {
        "num_drafts": counted.drafts,
        "num_accepted_tokens": sum(counted.accepted_per_position),
        "num_accepted_tokens_per_pos": list(counted.accepted_per_position),
    }
    if counted.steps is not None:
        counters["itl_count"] = counted.steps
    requests = None if counted.num_requests is None else max(round(counted.num_requests), 1)
    return Acceptance(counters=counters, num_requests=requests)


def _speculation(deployment: Deployment, profile: Profile, match: _Match) -> tuple[Speculation, tuple[str, ...]]:
    """The speculation with the acceptance that was counted, unless the deployment has said another since."""
    spec = deployment.speculation
    counted = [item for item in profile.acceptance if item.method == spec.method and item.drafts > 0]
    if not counted or not match.model:
        return spec, ()
    drafts = sum(item.drafts for item in counted)
    if spec.acceptance is not None and stated_sha256(spec.acceptance) != profile.stated_acceptance:
        return spec, (
            f"acceptance as the deployment states it, not as the profile counted it ({drafts:.0f} drafts);"
            " leave speculation.acceptance out for that",
        )
    return spec.changed(acceptance=acceptance_of(pooled(counted))), ()
