"""The profile of a fit: what `predict --profile` needs of it, and what says where it comes from."""

import datetime
import importlib.metadata
import platform
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import scipy
from numpy.typing import NDArray

from calibration.misfit import misfit_of
from calibration.model_error import ModelError
from calibration.plan import Fitted, Plan
from calibration.records import Evidence
from calibration.selection import Selected, merged_acceptance
from calibration.structure import Switch
from hwmodel.residual import NUM_LOG_FACTORS
from simulator.calibrated import stated_sha256
from simulator.closed_form import baseline_step
from simulator.identity import identity_of
from simulator.parameters import PriorSet
from simulator.posterior import linearise
from simulator.profile import SCATTER_SHARE, Anchor, MeasuredCurve, Profile

Array = NDArray[np.float64]

_MOST_ANCHORS = 24


def profile_of(
    plan: Plan,
    fitted: Fitted,
    selected: Selected,
    evidence: Evidence,
    points: MeasuredCurve | None,
    old: Profile | None,
) -> Profile:
    """The profile; `points` is the AllReduce curve measured now, `old` the profile that this one continues."""
    size = len(plan.system.priors.priors)
    kept = size + NUM_LOG_FACTORS
    mode, covariance = fitted.fit.mode[:kept].copy(), fitted.fit.covariance[:kept, :kept].copy()
    priors = _with_switches(plan.system.priors, plan.switches)
    _set_model_error(priors, fitted.tau, mode, covariance)
    drafting = {q.setting.method for q in plan.questions if q.drafts}
    method = next(iter(drafting), "none")
    counted = old.acceptance if old and plan.earlier and plan.earlier.match.model else ()
    settings = dict(old.settings) if old and plan.earlier and plan.earlier.match.links else {}
    files = [{"path": f.path, "format": f.format, "sha256": f.sha256} for f in evidence.files]
    measured_since = plan.curve is not None
    return Profile(
        identity=identity_of(plan.system),
        priors=priors.priors,
        mode=mode,
        covariance=covariance,
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        versions=_versions(),
        model_error=fitted.tau.value,
        method=method,
        settings=settings | dict(plan.settings),
        stated_acceptance=stated_sha256(plan.system.deployment.speculation.acceptance),
        measurements=tuple(q.to_dict() for q in plan.questions),
        anchors=_anchors(plan, fitted),
        acceptance=merged_acceptance(counted, selected.acceptance),
        curve=points or (old.curve if old and measured_since else None),
        kv_cache_tokens=selected.kv_cache_tokens or (old.kv_cache_tokens if old else None),
        misfit=misfit_of(plan, fitted),
        data=(*(old.data if old else ()), *files),
        cells_sha256=(*(old.cells_sha256 if old else ()), *selected.cells_sha256),
        facts_sha256=(*(old.facts_sha256 if old else ()), *selected.facts_sha256),
    )


def _with_switches(priors: PriorSet, switches: Sequence[Switch]) -> PriorSet:
    changed = {}
    for switch in switches:
        prior = priors.priors[switch.index]
        changed[prior.name] = replace(prior, center=switch.probability)
    return priors.replaced(changed)


def _set_model_error(priors: PriorSet, tau: ModelError, mode: Array, covariance: Array) -> None:
    """The model error's own coordinate: what is left once the constant of drafted steps is one of its own."""
    index = [prior.name for prior in priors.priors].index("model_error")
    prior = priors.priors[index]
    if prior.kind != "lognormal" or prior.spread == 0.0:
        return
    mode[index] = np.log(SCATTER_SHARE * tau.value / prior.center) / prior.spread
    covariance[index, :], covariance[:, index] = 0.0, 0.0
    covariance[index, index] = max((tau.log_sd or prior.spread) / prior.spread, 0.05) ** 2


def _anchors(plan: Plan, fitted: Fitted) -> tuple[Anchor, ...]:
    """The baseline steps that were measured, each once."""
    past = fitted.cliff.past if fitted.cliff else ()
    places: dict[tuple[float, float], float] = {}
    for i, q in enumerate(plan.questions):
        if q.drafts or q.quantity == "allreduce_share" or i in past:
            continue
        key = (round(max(q.requests / plan.system.batch_divisor, 1.0), 2), round(q.context_tokens))
        places[key] = min(places.get(key, np.inf), float(fitted.fit.noise[i]))
    items = list(places.items())[:: max(len(places) // _MOST_ANCHORS, 1)]
    if not items:
        return ()
    sequences, context = np.array([key for key, _ in items], dtype=float).T

    def log_step(y: Array) -> Array:
        step = baseline_step(plan.system, fitted.forward.parameters(y), sequences, context, detail=False)
        return np.asarray(np.log(step.total_s))

    at_mode, jacobian = linearise(log_step, fitted.fit.mode)
    spread = np.sqrt(np.einsum("ai,ij,aj->a", jacobian, fitted.fit.linear_covariance, jacobian))
    return tuple(
        Anchor(float(s), float(c), float(np.exp(t)), noise, float(left))
        for s, c, t, left, (_, noise) in zip(sequences, context, at_mode, spread, items, strict=True)
    )


def _versions() -> dict[str, str]:
    try:
        own = importlib.metadata.version("draftcast")
    except importlib.metadata.PackageNotFoundError:
        own = "unknown"
    return {
        "draftcast": own,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
    }
