"""Why a run differs from its prediction: only what the data prove, each with its evidence, and what they rule out."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from calibration.readers.values import mapping, number
from validate.outcome.assumptions_seen import acceptance_causes, length_causes
from validate.outcome.load_seen import load_causes
from validate.outcome.predicted import Studies
from validate.outcome.run_data import Run, release
from validate.outcome.scored import Cause, Scored
from validate.outcome.steps_seen import step_causes


def causes_of(run: Run, scored: Sequence[Scored], studies: Studies) -> list[Cause]:
    """All causes, of the whole run first, then by cell, the largest effect first."""
    found = [*_of_server(run, scored, studies), *_of_refused(run)]
    for cell in scored:
        own = [
            *acceptance_causes(cell, studies),
            *length_causes(cell, studies),
            *step_causes(cell),
            *load_causes(cell, studies),
        ]
        found += sorted(own, key=lambda cause: (not cause.matters, -abs(cause.effect or 0.0)))
    return found


def _of_server(run: Run, scored: Sequence[Scored], studies: Studies) -> Iterator[Cause]:
    """Where the server is not what was predicted for; another model or engine is not scored at all."""
    if not scored:
        return
    first = scored[0]
    identity = mapping(first.predicted.body.get("identity"))
    mode = studies.of(first.question.method).system.mode(0)
    predicted = identity.get("engine_version") or ".".join(map(str, mode.version))
    told = run.engine_version
    if told is not None and release(told) and release(told) != release(str(predicted)):
        yield Cause(
            "engine-version",
            f"predicted for engine version {predicted}, the server runs {told[:40]}: defaults and costs may differ; "
            f"--set engine.version={'.'.join(map(str, release(told)))}",
            None,
            {"predicted": predicted, "server": told[:80]},
        )
    stated, limit = studies.deployment.engine.max_model_len, number(run.server.get("max_model_len"))
    if stated is not None and limit and limit != stated:
        yield Cause(
            "max-model-len",
            f"predicted for max_model_len {stated}, the server has {limit:.0f}",
            None,
            {"predicted": stated, "server": limit},
        )
    yield from _of_temperature(run, studies)
    yield from _of_method(scored, studies)


def _of_method(scored: Sequence[Scored], studies: Studies) -> Iterator[Cause]:
    """Where the server drafted by another method, or another number of tokens, than the deployment says."""
    own, drafted = studies.deployment.speculation, [cell for cell in scored if cell.question.num_speculative_tokens]
    methods = sorted({cell.question.method for cell in drafted} - {own.method})
    if methods and own.method != "none":
        text = f"the deployment drafts by {own.method}, the server by {', '.join(methods)}"
        yield Cause("method", text, None, {"deployment": own.method, "server": methods})
    stated = own.num_speculative_tokens
    lengths = sorted({cell.question.num_speculative_tokens for cell in drafted} - {stated})
    if lengths and stated is not None and not own.schedule:
        text = f"the deployment drafts {stated} tokens, the server {', '.join(map(str, lengths))}"
        yield Cause("draft-length", text, None, {"deployment": stated, "server": lengths})


def _of_temperature(run: Run, studies: Studies) -> Iterator[Cause]:
    stated, sent = studies.deployment.workload.temperature, number(run.load.get("temperature"))
    if stated is not None and sent is not None and abs(stated - sent) > 1e-9:
        yield Cause(
            "temperature",
            f"predicted for temperature {stated:g}, the run sampled at {sent:g}: a higher one accepts fewer drafts",
            None,
            {"predicted": stated, "run": sent},
        )


def _of_refused(run: Run) -> Iterator[Cause]:
    """What the measurement itself found wrong with cells that are not scored."""
    for cell in run.cells:
        foreign = cell.record.get("foreign_traffic")
        if isinstance(foreign, str) and foreign:
            yield Cause("foreign-traffic", foreign[:300], cell.concurrency, {"foreign_traffic": foreign[:300]})


def load_differences(run: Run, baseline: Run) -> list[str]:
    """Where the baseline's run was sent another load: then a speedup compares two things."""
    names: Mapping[str, Any] = run.load
    return [
        f"{name}: {names[name]} against {baseline.load[name]}"
        for name in names
        if name in baseline.load and names[name] != baseline.load[name]
    ]
