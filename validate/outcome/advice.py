"""The verdict in one line, and what to do next."""

import json
import math
from collections.abc import Sequence
from typing import Any

from hwmodel.engine.keys import accepted_keys
from simulator.deployment import Deployment
from validate.outcome.figures import Z_90, Figure
from validate.outcome.load_seen import reached
from validate.outcome.predicted import Studies
from validate.outcome.run_data import Run, release
from validate.outcome.scored import Scored

JsonObject = dict[str, Any]

_FLAT = 0.03  # a speedup nearer to 1 is neither faster nor slower
_SHOWN_DIGITS = 3
_UNITS = {"throughput_tokens_per_s": (1.0, "tok/s"), "tpot_s": (1e3, "ms a token"), "step_s": (1e3, "ms a step")}


def verdict(run: Run, scored: Sequence[Scored]) -> str:
    """How many cells are where they were predicted, and what speculation does to the speed."""
    if not scored:
        reason = next((cell.refused for cell in run.cells if cell.refused), "the prediction has no figure for it")
        return f"no cell can be scored: {reason}"
    inside = sum(cell.headline.inside for cell in scored)
    cells = f"{inside} of {len(scored)} cell{'' if len(scored) == 1 else 's'} inside the 90 % interval"
    skipped = len(run.cells) - len(scored)
    left = f" ({skipped} more cannot be scored)" if skipped else ""
    return f"{cells}{left}; {_outcome(scored)}{'' if all(c.predicted.blind for c in scored) else ' (not blind)'}"


def _outcome(scored: Sequence[Scored]) -> str:
    speedups = [cell.figures["speedup"] for cell in scored if "speedup" in cell.figures]
    if speedups:
        measured = _together([figure.measured for figure in speedups])
        words = "faster" if measured > 1 + _FLAT else "as fast" + (" (slower)" if measured < 1 - _FLAT else "")
        mean = "" if len(speedups) == 1 else f"in the mean of {len(speedups)} cells "
        band = f"{_together([f.low for f in speedups]):.2f}-{_together([f.high for f in speedups]):.2f}"
        predicted = f"{_together([f.middle for f in speedups]):.2f}x ({band})"
        return f"{mean}speculation is {measured:.2f}x {words}, predicted {predicted}"
    figure = scored[0].headline
    return f"{_in_units(figure)} at concurrency {scored[0].concurrency}{_no_speedup(scored)}"


def _no_speedup(scored: Sequence[Scored]) -> str:
    drafted = any(cell.question.num_speculative_tokens for cell in scored)
    return "; whether it is faster is not known without a baseline" if drafted else ""


def _in_units(figure: Figure) -> str:
    factor, unit = _UNITS[figure.name]
    low, middle, high, measured = (
        _digits(x * factor) for x in (figure.low, figure.middle, figure.high, figure.measured)
    )
    return f"{measured} {unit} measured, {middle} ({low}-{high}) predicted"


def _digits(value: float) -> str:
    return f"{value:.{_SHOWN_DIGITS}g}" if value < 1000 else f"{value:,.0f}"


def _together(values: Sequence[float]) -> float:
    """Geometric mean: the errors of the cells of a run go together, so their intervals do not narrow."""
    return math.exp(sum(map(math.log, values)) / len(values))


def next_steps(run: Run, scored: Sequence[Scored], studies: Studies, *, refitted: bool) -> list[str]:
    """What helps the next prediction, most useful first."""
    steps = []
    if not scored:
        return ["measure again: draftcast measure URL -o run.json tells why a cell must not be used"]
    drafted = [cell for cell in scored if cell.question.num_speculative_tokens]
    if drafted and not any("speedup" in cell.figures for cell in drafted):
        steps.append(
            "to know the speedup: --baseline-run FILE, a run of the server without speculation under the same load, "
            "or a [[measured]] table at the same concurrency"
        )
    steps += _after_acceptance(drafted)
    steps += _after_cost(scored, studies.deployment, refitted=refitted)
    steps += _synthetic(drafted, studies, release(run.engine_version or ""))
    slower = [cell for cell in drafted if _is_slower(cell) and reached(cell)]
    if slower:
        loads = ", ".join(str(cell.concurrency) for cell in slower)
        steps.append(
            f"slower at concurrency {loads}: take speculation off there; draftcast choose says which k, if any"
        )
    if not all(cell.predicted.blind for cell in scored):
        steps.append(
            "nothing was on file for all of this run: record the next prediction before the restart, "
            "draftcast predict DEPLOYMENT --record"
        )
    return steps


def _is_slower(cell: Scored) -> bool:
    figure = cell.figures.get("speedup")
    return figure is not None and figure.measured * math.exp(Z_90 * figure.noise) < 1.0


def _parts(cell: Scored) -> tuple[float, float] | None:
    """(acceptance part, cost part) of the time per token's error; None where there is no split."""
    return cell.split.parts(cell.time) if cell.split is not None and cell.time is not None else None


def _after_acceptance(drafted: Sequence[Scored]) -> list[str]:
    """The counted acceptance as a line of the deployment file, where acceptance is a part of an error that shows."""
    for cell in drafted:
        parts = _parts(cell)
        if parts is None or cell.split is None or cell.time is None:
            continue
        if abs(parts[0]) > max(_FLAT, Z_90 * cell.time.noise):
            counted = cell.split.measured
            positions = ", ".join(f"{share:.4g}" for share in counted.per_position)
            return [
                "acceptance was off: put what was counted into [speculation] of the deployment: acceptance = "
                f"{{ per_position = [{positions}], draft_probability = {counted.draft_probability:.4g} }}"
            ]
    return []


def _after_cost(scored: Sequence[Scored], deployment: Deployment, *, refitted: bool) -> list[str]:
    """A profile, where the cost is a part of an error that shows."""
    if refitted:
        return ["give the profile to the next prediction: draftcast choose DEPLOYMENT --profile FILE"]
    more = " (it continues the one given)" if deployment.profile is not None else ""
    unsplit = False
    for cell in scored:
        parts = _parts(cell)
        if abs(cell.headline.log_error if parts is None else parts[1]) <= max(_FLAT, Z_90 * cell.headline.noise):
            continue
        if parts is not None or not cell.question.num_speculative_tokens:
            return [f"the cost of a step was off: -o profile.json fits it to this run{more}, for --profile"]
        unsplit = True
    told = "whether acceptance or the cost of a step was off is not known: -o profile.json fits the cost to this run"
    return [f"{told}{more}, for --profile"] if unsplit else []


def _synthetic(drafted: Sequence[Scored], studies: Studies, told: tuple[int, ...]) -> list[str]:
    """How to measure the cost alone, where this server can force the acceptance and the two are not apart yet."""
    wanted = [cell for cell in drafted if cell.split is None or not cell.headline.inside]
    if not wanted:
        return []
    cell = wanted[0]
    mode = studies.of(cell.question.method).system.mode(cell.question.num_speculative_tokens)
    version = told if len(told) == len(mode.version) else mode.version
    keys = accepted_keys((version[0], version[1], version[2])) if mode.engine == "vllm" else frozenset()
    k = cell.question.num_speculative_tokens
    stated = cell.predicted.forecast.get("acceptance")
    positions = stated.get("per_position") if isinstance(stated, dict) else None
    if "rejection_sample_method" not in keys or not isinstance(positions, list) or len(positions) < k:
        return []
    config: JsonObject = {"rejection_sample_method": "synthetic"}
    if "synthetic_acceptance_rates" in keys:
        config["synthetic_acceptance_rates"] = [round(float(share), 4) for share in positions[:k]]
    elif "synthetic_acceptance_rate" in keys:
        config["synthetic_acceptance_rate"] = round(float(sum(positions[:k])) / k, 4)
    else:
        return []
    return [
        "to measure the cost alone, restart once with these keys added to --speculative-config: "
        f"{json.dumps(config)}; drafts are then accepted as predicted, whatever they hold (the answers are not usable)"
    ]
