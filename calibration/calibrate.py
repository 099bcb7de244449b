"""`calibrate`: measurements in, parameters with uncertainty out, and the profile that `predict --profile` reads.

The steps: choose what may be used, decide between descriptions (AllReduce algorithm, verify path), fit, estimate the
model error by leaving out concurrencies, set aside cliffs and outliers, fit again, and say what is still open.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from calibration.acceptance_book import AcceptanceBook
from calibration.fit import FitOptions
from calibration.plan import Fitted, Plan, fitted_plan, settled_plan, still_described
from calibration.profile_writer import profile_of
from calibration.questions import Question, question_of
from calibration.records import CollectivePoint, Evidence, Refused
from calibration.selection import Selected, select
from calibration.step_selection import take_steps
from calibration.used_files import used_files
from hwmodel.allreduce_curve import AllReduceCurve
from hwmodel.errors import InputError
from hwmodel.gpus import load_gpu
from simulator.calibrated import CarriedOver, carried_over, measured_curve
from simulator.deployment import Deployment
from simulator.profile import MeasuredCurve, Profile
from simulator.system import System, build_system

Array = NDArray[np.float64]

_FEWEST_POINTS = 2  # of an AllReduce curve
_GENERATIONS = frozenset(("ampere", "ada", "hopper", "blackwell", "rubin"))


@dataclass(frozen=True)
class Calibration:
    """Everything that came out of one calibration."""

    plan: Plan
    fitted: Fitted
    selected: Selected
    findings: tuple[str, ...]  # descriptions that were changed because they fit better
    notes: tuple[str, ...]
    profile: Profile
    num_files: int = 0  # given
    used_files: tuple[str, ...] = ()  # that a measurement of the fit comes from


def calibrate(
    deployment: Deployment,
    evidence: Evidence,
    *,
    num_draws: int = 2000,
    seed: int = 0,
) -> Calibration:
    """The parameters of `deployment` fitted to `evidence` and to its own `[[measured]]` facts.

    The profile that the deployment was loaded with is an earlier calibration: its posterior is the prior, and what it
    has seen is not counted again. Raises `InputError` where nothing can be used.
    """
    profile = deployment.profile
    num_files = len(evidence.files) + evidence.num_bad
    evidence, again = _unseen(evidence, profile)
    points, refused, notes = curve_of(evidence.collectives, deployment)
    curve = measured_curve(points) if points else None
    earlier = carried_over(deployment, profile, curve) if profile else None
    if curve is None and profile is not None and earlier is not None and earlier.match.links and profile.curve:
        curve = measured_curve(profile.curve)
    system = _system(deployment, curve, earlier)
    book = AcceptanceBook(system, num_draws, seed)
    selected = select(system, evidence, book.draft_probability, _known(profile))
    take_steps(system, evidence.steps, selected)
    by_use = [*selected.refused, *evidence.refused, *refused]
    selected.refused = [*evidence.refused, *refused, *selected.refused]
    selected.notes = [*evidence.notes, *again, *notes, *(earlier.notes if earlier else ()), *selected.notes]
    _check_usable(selected, points, num_files, by_use)
    sources = [*selected.used, *(q.source for q in selected.questions), *([points.source] if points else [])]
    before = _measured_before(profile) if profile and earlier and earlier.same else ()
    tau = profile.model_error if profile and earlier and earlier.same else None
    plan = Plan(system, (*before, *selected.questions), book, curve, earlier, earlier_error=tau)
    plan, fitted, findings = _fitted(plan, FitOptions(seed=seed))
    made = profile_of(plan, fitted, selected, evidence, points, profile)
    return Calibration(
        plan,
        fitted,
        selected,
        findings,
        tuple(dict.fromkeys(selected.notes)),
        made,
        num_files,
        used_files(evidence.files, sources),
    )


def _fitted(plain: Plan, options: FitOptions) -> tuple[Plan, Fitted, tuple[str, ...]]:
    """The plan with the description that fits best, its fit, and what was changed."""
    plan, findings = settled_plan(plain)
    fitted = fitted_plan(plan, options)
    if still_described(plain, plan, fitted.tau):
        return plan, fitted, findings
    plan, findings = settled_plan(plain, own=True)
    return plan, fitted_plan(plan, options), findings


def _system(deployment: Deployment, curve: AllReduceCurve | None, earlier: CarriedOver | None) -> System:
    """The system to fit: with the profile's priors where it was measured elsewhere, else with its own.

    An earlier profile of this very deployment is continued from its measurements, which is exact; one of another
    machine or version lends its posterior as the prior, as far as that carries over.
    """
    if earlier is None:
        return build_system(deployment, curve)
    return replace(earlier.system, priors=earlier.own_priors) if earlier.same else earlier.system


def _measured_before(profile: Profile) -> tuple[Question, ...]:
    try:
        return tuple(question_of(item, f"measurements[{i}]") for i, item in enumerate(profile.measurements))
    except InputError as error:
        raise InputError(f"profile: {error}") from None


def curve_of(
    collectives: Sequence[CollectivePoint], deployment: Deployment
) -> tuple[MeasuredCurve | None, list[Refused], list[str]]:
    """The AllReduce curve of the tensor-parallel group, what was refused, and notes."""
    ranks, title = deployment.engine.tensor_parallel_size, load_gpu(deployment.hardware.gpu).title
    refused: dict[Refused, None] = {}
    times: dict[float, list[float]] = {}
    sources: dict[str, None] = {}
    for p in collectives:
        if p.num_ranks not in (None, ranks):
            refused[Refused(p.source, f"AllReduce over {p.num_ranks} ranks, the deployment reduces over {ranks}")] = (
                None
            )
        elif _another_gpu(p.gpus, title):
            refused[Refused(p.source, f"measured on {', '.join(p.gpus)[:80]}, the deployment has {title}")] = None
        elif p.num_bytes > 0 and p.time_s > 0:
            times.setdefault(float(p.num_bytes), []).append(p.time_s)
            sources[p.source] = None
    if ranks == 1 or len(times) < _FEWEST_POINTS:
        return None, list(refused), ["AllReduce times: too few to make a curve of"] if times else []
    sizes = sorted(times)
    means = tuple(float(np.exp(np.mean(np.log(times[size])))) for size in sizes)
    stated = deployment.hardware.nccl_tests
    notes = ["hardware.nccl_tests: the AllReduce times of --data count instead"] if stated else []
    return MeasuredCurve(tuple(sizes), means, ranks, ", ".join(sources)), list(refused), notes


def _another_gpu(devices: Sequence[str], title: str) -> bool:
    """Whether device names share no model number with the GPU's title ("NVIDIA H200" and "RTX PRO 6000"), or no
    generation where both name one ("RTX 6000 Ada Generation")."""
    ours = _words(title)
    return any(
        _differ(ours, theirs, _is_model_number) or _differ(ours, theirs, _GENERATIONS.__contains__)
        for theirs in map(_words, devices)
    )


def _differ(ours: set[str], theirs: set[str], counts: Callable[[str], bool]) -> bool:
    """Whether both have words that count, and none in common."""
    left, right = set(filter(counts, ours)), set(filter(counts, theirs))
    return bool(left and right) and not left & right


def _is_model_number(word: str) -> bool:
    return any(map(str.isdigit, word)) and not word.endswith("gb")


def _words(name: str) -> set[str]:
    return set("".join(character if character.isalnum() else " " for character in name.lower()).split())


def _unseen(evidence: Evidence, profile: Profile | None) -> tuple[Evidence, list[str]]:
    """The evidence without what comes from files that the profile has read, as far as the sources tell."""
    seen = {item.get("sha256", "") for item in profile.data} if profile else set()
    again = [file.path for file in evidence.files if file.sha256 in seen]
    if not again:
        return evidence, []

    def fresh(source: str) -> bool:
        return not any(source == path or source.startswith((f"{path}:", f"{path} ")) for path in again)

    kept = replace(
        evidence,
        steps=tuple(s for s in evidence.steps if fresh(s.source)),
        collectives=tuple(c for c in evidence.collectives if fresh(c.source)),
        kernels=tuple(k for k in evidence.kernels if fresh(k.source)),
        cells=tuple(c for c in evidence.cells if fresh(c.source)),
        files=tuple(file for file in evidence.files if file.sha256 not in seen),
    )
    return kept, [f"{path}: the profile has counted this file already" for path in again]


def _known(profile: Profile | None) -> tuple[str, ...]:
    return (*profile.cells_sha256, *profile.facts_sha256) if profile else ()


def _check_usable(selected: Selected, curve: MeasuredCurve | None, num_files: int, refused: list[Refused]) -> None:
    """`InputError` where nothing at all is left to go by; of `refused`, the first reason tells best what to do."""
    if selected.questions or selected.acceptance or curve or selected.kv_cache_tokens:
        return
    if refused:
        first = refused[0]
        of = f"0 of {num_files} files used, " if num_files else ""
        raise InputError(f"calibrate: {of}no measurement can be used; {first.source}: {first.reason}")
    raise InputError("calibrate: got no new measurement; allowed: --data FILE, or [[measured]] in the deployment file")
