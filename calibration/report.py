"""A calibration as the JSON object of `draftcast calibrate --json`: every figure that its report prints."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibration.calibrate import Calibration
from calibration.identify import Identified
from calibration.misfit import warnings
from calibration.oddities import physics_residuals
from hwmodel.parameters import si_name
from hwmodel.residual import NUM_ROW_KNOTS, REQUEST_KNOTS, ROW_KNOTS
from simulator.parameters import Prior

Array = NDArray[np.float64]
JsonObject = dict[str, Any]

_TAIL = 1.6448536269514722  # standard deviations to the 5th and 95th percentile
_CORRELATED = 0.3
_MOST_CORRELATIONS = 12


def report_of(calibration: Calibration, identified: Identified) -> JsonObject:
    """Parameters, residuals, warnings, what is open and what would tell it."""
    fit, plan, profile = calibration.fitted.fit, calibration.plan, calibration.profile
    return {
        "parameters": parameters_of(calibration),
        "correlations": _correlations(calibration),
        "residuals": _residuals(calibration),
        "warnings": [
            *([profile.misfit.sentence()] if profile.misfit else []),
            *calibration.findings,
            *warnings(plan, calibration.fitted, profile.kv_cache_tokens),
        ],
        "wider_reason": identified.wider or None,
        "fit": {
            "num_measurements": len(fit.observations),
            "num_concurrencies": len({q.group for q in plan.questions}),
            "chi_squared": float(fit.residuals @ fit.residuals),
            "objective": fit.objective,
            "noise_scale": fit.noise_scale,
            "num_refits": fit.num_refits,
        },
        "model_error": {
            "value": calibration.fitted.tau.value,
            "log_sd": calibration.fitted.tau.log_sd,
            "num_concurrencies": calibration.fitted.tau.num_groups,
            "before": plan.prior_tau.value,
        },
        "cross_validation": _cross_validation(calibration),
        "step_residual": _step_residual(calibration),
        "drafted_steps": _drafted(calibration),
        "undetermined": [
            {"name": u.name, "spread_left": u.spread_left, "influence": u.influence, "why": u.why}
            for u in identified.undetermined
        ],
        "measurements": [
            {
                "name": w.name,
                "what": w.text,
                "restarts": w.restarts,
                "log_speedup_sd_before": w.spread_before,
                "log_speedup_sd_after": w.spread_after,
                "narrows": w.narrows,
            }
            for w in identified.measurements
        ],
        "log_speedup_sd": identified.parts,
        "cells": [{"num_speculative_tokens": c.num_speculative_tokens, "concurrency": c.concurrency}
                  for c in identified.cells],
        "acceptance": [
            {
                "method": item.method,
                "num_speculative_tokens": item.num_speculative_tokens,
                "drafts": item.drafts,
                "accepted_per_position": list(item.accepted_per_position),
                "steps": item.steps,
                "num_requests": item.num_requests,
            }
            for item in profile.acceptance
        ],
        "kv_cache_tokens": profile.kv_cache_tokens,
        "allreduce": plan.system.machine.allreduce.source if plan.system.parallel.tensor > 1 else None,
        "allreduce_curve": None if profile.curve is None else {
            "num_sizes": len(profile.curve.sizes_bytes),
            "num_gpus": profile.curve.num_gpus,
            "source": profile.curve.source,
        },
        "settings": dict(profile.settings),
        "refused": [{"source": r.source, "reason": r.reason} for r in calibration.selected.refused],
        "files": {"given": calibration.num_files, "used": list(calibration.used_files)},
        "data": [dict(item) for item in profile.data],
        "notes": list(calibration.notes),
    }  # fmt: skip


def parameters_of(calibration: Calibration) -> JsonObject:
    """Every parameter by its file name, in file units: value, standard error, prior, whether it sits on a bound."""
    profile, fit = calibration.profile, calibration.fitted.fit
    spread = np.sqrt(np.diag(profile.covariance))
    found = {}
    for i, prior in enumerate(profile.priors):
        prior_spread = fit.coordinates.spread[i]
        found[prior.name] = {
            **_value(prior, float(profile.mode[i]), float(spread[i])),
            "prior": _prior(calibration.plan.system.priors.priors[i]),
            "at_bound": bool(fit.at_bound[i]) and prior.spread > 0.0,
            "moved": float(profile.mode[i]),
            "spread_left": float(spread[i] / prior_spread) if prior.spread and prior.kind != "switch" else None,
        }
    return found


def _value(prior: Prior, mode: float, spread: float) -> JsonObject:
    """Median, standard error (first order) and 90 % interval in file units."""
    if prior.kind == "switch":
        chance = prior.center
        return {"value": chance, "stderr": math.sqrt(chance * (1.0 - chance)), "p05": 0.0, "p95": 1.0}
    factor = si_name(prior.name)[1]
    low, value, high = (prior.values(np.array([mode - _TAIL * spread, mode, mode + _TAIL * spread])) / factor).tolist()
    slope = value * prior.spread if prior.kind == "lognormal" else prior.spread
    return {"value": value, "stderr": slope * spread, "p05": low, "p95": high}


def _prior(prior: Prior) -> JsonObject:
    """The prior as the deployment file would state it."""
    names = {"lognormal": ("median", "log_sd"), "normal": ("mean", "sd"), "switch": ("probability", None)}
    center, spread = names[prior.kind]
    stated: JsonObject = {center: prior.center}
    if spread is not None:
        stated[spread] = prior.spread
    return {**stated, "source": prior.source}


def _correlations(calibration: Calibration) -> list[JsonObject]:
    """The strongest correlations between parameters."""
    fit, size = calibration.fitted.fit, len(calibration.profile.priors)
    names = fit.coordinates.names
    matrix = fit.correlation[:size, :size]
    pairs = [(abs(matrix[i, j]), i, j) for i in range(size) for j in range(i)]
    pairs.sort(reverse=True)
    return [
        {"parameters": [names[j], names[i]], "correlation": float(matrix[i, j])}
        for strength, i, j in pairs[:_MOST_CORRELATIONS]
        if strength >= _CORRELATED
    ]


def _residuals(calibration: Calibration) -> list[JsonObject]:
    fitted = calibration.fitted
    fit, left = fitted.fit, fitted.left_out
    bare = physics_residuals(fitted.forward, fit) if fit.observations else np.zeros(0)
    past = fitted.cliff.past if fitted.cliff else ()
    rows = []
    for i, (q, predicted) in enumerate(zip(calibration.plan.questions, fit.predicted, strict=True)):
        weight = 0.0 if i in past else 1.0 / fitted.softened.get(i, 1.0) ** 2
        value = q.natural(float(predicted))
        rows.append(
            {
                "label": q.label,
                "source": q.source,
                "quantity": q.quantity if q.quantity != "throughput" else "throughput_tokens_per_s",
                "concurrency": q.requests,
                "num_speculative_tokens": q.setting.num_speculative_tokens,
                "context_tokens": q.context_tokens,
                "measured": q.value,
                "predicted": value,
                "error": value / q.value - 1.0,
                "standardised": float(fit.residuals[i]),
                "model_alone": float(bare[i]),
                "noise": q.noise,
                "weight": weight,
                "left_out_error": q.natural(left[i].predicted) / q.value - 1.0 if left else None,
                "left_out_inside_90": left[i].inside if left else None,
            }
        )
    return rows


def _cross_validation(calibration: Calibration) -> JsonObject:
    """How well each concurrency is predicted from the others."""
    left = calibration.fitted.left_out
    if not left:
        reason = "fewer than two concurrencies were measured"
        return {"num_measurements": 0, "inside_90": None, "rms_error": None, "reason": reason}
    questions = calibration.plan.questions
    errors = [q.natural(item.predicted) / q.value - 1.0 for q, item in zip(questions, left, strict=True)]
    return {
        "num_measurements": len(left),
        "inside_90": sum(item.inside for item in left) / len(left),
        "rms_error": float(np.sqrt(np.mean(np.square(errors)))),
    }


def _step_residual(calibration: Calibration) -> JsonObject:
    """The factors on the model's step by token rows and by requests."""
    first = len(calibration.profile.priors)
    mode, spread = calibration.profile.mode[first:], np.sqrt(np.diag(calibration.profile.covariance))[first:]
    factors = [_factor(float(m), float(s)) for m, s in zip(mode, spread, strict=True)]
    rows, requests = factors[:NUM_ROW_KNOTS], factors[NUM_ROW_KNOTS:-1]
    return {
        "by_rows": [{"tokens": float(x), **found} for x, found in zip(ROW_KNOTS, rows, strict=True)],
        "by_requests": [{"requests": float(x), **found} for x, found in zip(REQUEST_KNOTS, requests, strict=True)],
    }


def _drafted(calibration: Calibration) -> JsonObject:
    profile = calibration.profile
    spread = math.sqrt(profile.covariance[-1, -1])
    return {"method": profile.method, **_factor(float(profile.mode[-1]), spread)}


def _factor(mode: float, spread: float) -> JsonObject:
    return {"p05": math.exp(mode - _TAIL * spread), "p50": math.exp(mode), "p95": math.exp(mode + _TAIL * spread)}
