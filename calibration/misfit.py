"""Signs that description, measurements and model do not go together (docs/calibration.md, "Warnings")."""

import math
from collections.abc import Container, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from calibration.cross_validation import LeftOut, surprises
from calibration.fit_result import FitResult
from calibration.oddities import physics_residuals
from calibration.plan import Fitted, Plan
from calibration.questions import Question
from hwmodel.percent import percent
from simulator.closed_form import capacity
from simulator.misfit import Misfit

Array = NDArray[np.float64]

_FEWEST_GROUPS = 2  # of loads that predict each other
_LARGE = 3.0  # standard deviations of one measurement
_MOVED = 2.0  # prior standard deviations of a parameter
_CONFLICT = 2.5  # widths of an earlier profile
_RUN = 4  # loads in a row on one side of the model
_RUN_NOISES = 1.5
_FEWEST_LEFT_OUT, _LEAST_COVERAGE = 5, 0.7  # 90 % is meant; of ten, seven inside has a chance of 1 %
_SCATTER = 1.3  # times the stated noise
_AS_GOOD = 2.0  # of the objective
_RAISED = 1.5  # times the usual model error: what every answer must say


def warnings(plan: Plan, fitted: Fitted, kv_cache_tokens: float | None = None) -> list[str]:
    """One sentence each, most serious first; `kv_cache_tokens` is what the engine logged."""
    if not plan.questions:
        return []
    found = [
        *_cliff(fitted),
        *_outliers(plan, fitted),
        *_runs(plan, fitted),
        *_bounds(plan, fitted),
        *_moved(plan, fitted),
        *_conflicts(plan, fitted.usual),
        *_shares(plan, fitted),
        *_coverage(fitted),
        *_capacity(plan, kv_cache_tokens),
        *_fit_quality(fitted.fit),
    ]
    return list(dict.fromkeys(found))


def misfit_of(plan: Plan, fitted: Fitted) -> Misfit | None:
    """What the measurements miss, where the model error had to be raised; None where it did not."""
    usual, found = plan.prior_tau, fitted.tau
    past = fitted.cliff.past if fitted.cliff else ()
    if not plan.questions or found.effective < _RAISED * usual.effective:
        return None
    from_others, from_priors = (_surprises(plan, fitted.usual, past, alone=alone) for alone in (False, True))
    blind = len({q.group for q in plan.questions}) < _FEWEST_GROUPS
    conflict = blind or _farthest(from_priors)[1] > _farthest(from_others)[1]
    items = from_priors if conflict else from_others
    worst = items[_farthest(items)[0]]
    place = next(i for i, q in enumerate(plan.questions) if q.label == worst.label)
    question = plan.questions[place]
    loads = _loads(plan) if blind else ()
    return Misfit(
        num_measurements=len(items),
        num_inside=sum(item.inside for item in items),
        from_priors=conflict,
        worst=question.label,
        error=question.natural(worst.predicted) / question.natural(worst.observed) - 1.0,
        usual_error=usual.value,
        found_error=min(found.value, 1.0),
        loads=loads,
        carried=_carried(plan, fitted, loads),
    )


def _loads(plan: Plan) -> tuple[float, ...]:
    """The one load that was measured, then the deployment's others."""
    measured = plan.questions[0].requests
    return (measured, *(c for c in map(float, plan.system.deployment.workload.concurrency) if c != measured))


def _carried(plan: Plan, fitted: Fitted, loads: Sequence[float]) -> tuple[float, ...]:
    """By what share the baseline's step at each load differs from the model at the fitted parameters."""
    residual = fitted.forward.parameters(fitted.fit.mode[None, :]).residual
    if residual is None or not loads:
        return ()
    requests = np.maximum(np.array(loads) / plan.system.batch_divisor, 1.0)
    return tuple((residual.factor(requests, requests)[0] - 1.0).tolist())


def _surprises(plan: Plan, fit: FitResult, past: Container[int], *, alone: bool) -> list[LeftOut]:
    """The measurements as predicted by those of other loads, or by the priors alone, with the usual model error."""
    groups = [q.group for q in plan.questions]
    found = surprises(fit, ["all"] * len(groups) if alone else groups, fit.coordinates.factor, fit.noise)
    return [item for i, item in enumerate(found) if i not in past]


def _farthest(items: Sequence[LeftOut]) -> tuple[int, float]:
    """Place and size of the largest error in standard deviations."""
    sizes = [abs(item.standardised) for item in items]
    return int(np.argmax(sizes)), max(sizes)


def _cliff(fitted: Fitted) -> Iterator[str]:
    if fitted.cliff is not None:
        jump = math.expm1(fitted.cliff.log_jump)
        yield (
            f"between {fitted.cliff.before_rows:g} and {fitted.cliff.after_rows:g} rows a step gets"
            f" {percent(jump)} longer"
            " than the model says, and stays so: a graph limit, a KV limit or another kernel. The loads past it are not"
            " fitted; their times are kept for every step of so many rows. Check engine.cudagraph_capture_sizes"
        )


def _outliers(plan: Plan, fitted: Fitted) -> Iterator[str]:
    for i, factor in fitted.softened.items():
        q, left = plan.questions[i], fitted.left_out[i]
        if q.quantity == "allreduce_share":
            yield _wrong_share(q, left.predicted)
            continue
        yield (
            f"{q.label} ({q.source}) is {_percent(left.observed - left.predicted)} from what all other measurements say"
            f" of it; it counts with {percent(1.0 / factor**2)} of its weight: measure it again"
        )
    past = fitted.cliff.past if fitted.cliff else ()
    for i, (q, residual) in enumerate(zip(plan.questions, fitted.fit.residuals, strict=True)):
        if abs(residual) > _LARGE and i not in past:
            yield f"{q.label} ({q.source}) misses the fit by {abs(residual):.1f} times its noise"


def _percent(log_ratio: float) -> str:
    return percent(math.expm1(log_ratio), signed=True)


def _runs(plan: Plan, fitted: Fitted) -> Iterator[str]:
    """Several loads in a row on one side of the model: what is missing has a shape."""
    left = physics_residuals(fitted.forward, fitted.fit)
    past = fitted.cliff.past if fitted.cliff else ()
    sweep = [i for i, q in enumerate(plan.questions) if _is_sweep(q) and i not in past and i not in fitted.softened]
    sweep.sort(key=lambda i: plan.questions[i].requests)
    run: list[int] = []
    for i in [*sweep, None]:
        clear = i is not None and abs(left[i]) > _RUN_NOISES * fitted.fit.noise[i]
        if i is not None and clear and (not run or left[i] * left[run[-1]] > 0):
            run.append(i)
            continue
        loads = [plan.questions[j].requests for j in run]
        if len(set(loads)) >= _RUN:
            yield (
                f"from C={loads[0]:.3g} to C={loads[-1]:.3g} every step is"
                f" {'longer' if left[run[0]] > 0 else 'shorter'} than the model alone says, by"
                f" {_percent(float(np.mean(np.abs(left[run])))).lstrip('+')} on average:"
                " the profile keeps it as a residual; a wrong AllReduce class, backend or graph setting looks like this"
            )
        run = [i] if i is not None and clear else []


def _is_sweep(question: Question) -> bool:
    return not question.drafts and question.quantity != "allreduce_share"


def _bounds(plan: Plan, fitted: Fitted) -> Iterator[str]:
    fit = fitted.usual
    for i, prior in enumerate(plan.system.priors.priors):
        if fit.at_bound[i]:
            side = "low" if fit.mode[i] - fit.coordinates.low[i] < fit.coordinates.high[i] - fit.mode[i] else "high"
            bound = prior.low if side == "low" else prior.high
            yield (
                f"{prior.name} ends at its {side}est possible value, {bound:g}: something else than the model knows"
                f" acts in its place; {_consequence(fitted, i)}"
            )


def _consequence(fitted: Fitted, index: int) -> str:
    if fitted.fit.at_bound[index]:
        return "its interval is from refits"
    return "the model error was raised for it"


def _moved(plan: Plan, fitted: Fitted) -> Iterator[str]:
    fit = fitted.usual
    for i, prior in enumerate(plan.system.priors.priors):
        if prior.spread and abs(fit.mode[i]) > _MOVED and not fit.at_bound[i]:
            stays = abs(fitted.fit.mode[i]) > _MOVED
            yield (
                f"{prior.name} {'ends' if stays else 'would end'} {fit.mode[i]:+.1f} standard deviations from its prior"
                f"{'' if stays else ' with the usual model error'}: the deployment may run otherwise than stated"
                " (attention backend, AllReduce class, graphs)"
            )


def _conflicts(plan: Plan, fit: FitResult) -> Iterator[str]:
    """Where new data contradict an earlier profile, by its own account of how sure it was."""
    if plan.earlier is None:
        return
    old = plan.earlier.posterior
    moves = set(plan.earlier.system.priors.priors) & set(plan.system.priors.priors)  # coordinates of one meaning
    spread = np.sqrt(np.sum(old.factor**2, axis=1))
    for i, prior in enumerate(plan.system.priors.priors):
        shift = (fit.mode[i] - old.mode[i]) / spread[i]
        if abs(shift) > _CONFLICT and prior in moves and prior.name != "model_error":
            yield (
                f"the new measurements move {prior.name} by {abs(shift):.1f} of the earlier profile's widths: the"
                " machine or its settings changed in between, or one of the measurements is wrong"
            )


def _shares(plan: Plan, fitted: Fitted) -> Iterator[str]:
    rows = zip(plan.questions, fitted.fit.residuals, fitted.fit.predicted, strict=True)
    for q, residual, predicted in (row for i, row in enumerate(rows) if i not in fitted.softened):
        if q.quantity == "allreduce_share" and abs(residual) > _MOVED:
            yield _wrong_share(q, float(predicted))


def _wrong_share(question: Question, predicted: float) -> str:
    return (
        f"AllReduce takes {percent(question.value)} of the profiled step at C={question.requests:.3g}, all else says"
        f" {percent(question.natural(predicted))}: check the interconnect and what the profiler counted"
    )


def _coverage(fitted: Fitted) -> Iterator[str]:
    left = fitted.left_out
    inside = sum(item.inside for item in left)
    if len(left) >= _FEWEST_LEFT_OUT and inside < _LEAST_COVERAGE * len(left):
        yield (
            f"of {len(left)} measurements predicted from the other concurrencies, {inside} lie in their 90 % interval:"
            " intervals at loads that were not measured are too narrow"
        )


def _capacity(plan: Plan, kv_cache_tokens: float | None) -> Iterator[str]:
    held = capacity(plan.system, 0, kv_cache_tokens).max_running
    most = max((q.requests for q in plan.questions if not q.drafts and q.kind == "cell"), default=0.0)
    if held and most > held:
        yield (
            f"{most:g} requests ran at once, the model says {held} fit into the KV cache: state kv_cache_tokens, or the"
            " concurrency is what was asked for and not what ran"
        )


def _fit_quality(fit: FitResult) -> Iterator[str]:
    if fit.noise_scale > _SCATTER:
        yield f"the measurements scatter {fit.noise_scale:.1f} times as much as their noise says; intervals are widened"
    close = [cost for cost in fit.other_minima if cost < fit.objective + _AS_GOOD]
    if close:
        yield "another set of parameters fits nearly as well; single parameters say little, predictions may still hold"
