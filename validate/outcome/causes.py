"""Why a run differs from its prediction: only what the data prove, each with its evidence, and what they rule out."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from calibration.readers.values import mapping, number, positive
from hwmodel.engine.graphs import graph_limit_tokens
from hwmodel.errors import InputError
from hwmodel.units import MS
from simulator.deployment import apply_overrides
from simulator.forecast import at_acceptance
from simulator.study import build_study
from validate.outcome.figures import Z_90, figure_of
from validate.outcome.predicted import Studies
from validate.outcome.run_data import Run, RunCell, release
from validate.outcome.scored import Cause, Scored
from validate.outcome.split import stated_band
from validate.outcome.steps_seen import step_causes

_SMALL = 0.02  # log of a factor: what lies below it explains nothing
_DIFFERENT = 0.05  # relative: two shares or lengths that are the same but for chance
_FEWEST_DRAFTS = 50.0
_REACHED = 0.95  # of the users asked for
_FULL = 0.95  # of the KV cache
_PREFILL = 0.1  # share of the time between tokens
_DISAGREE = 0.15  # log of a factor between two figures of one run
_LENGTHS = 0.1  # relative, of the mean context


def causes_of(run: Run, scored: Sequence[Scored], studies: Studies) -> list[Cause]:
    """All causes, of the whole run first, then by cell, the largest effect first."""
    found = [*_of_server(run, scored, studies), *_of_refused(run)]
    for cell in scored:
        own = [
            *_of_acceptance(cell, studies),
            *_of_lengths(cell, studies),
            *step_causes(cell),
            *_of_load(cell),
            *_of_graphs(cell, studies),
            *_of_prompts(cell),
            *_of_baseline(cell),
            *_of_agreement(cell),
            *_of_noise(cell),
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


def _of_acceptance(cell: Scored, studies: Studies) -> Iterator[Cause]:
    """Share of drafted steps, then accepted tokens per draft; their effects add up to the acceptance part."""
    split = cell.split
    if split is None:
        return
    study, point = studies.of(cell.question.method), cell.question.point
    assumed, measured = split.predicted, split.measured
    between = at_acceptance(study, point, assumed.per_position, measured.draft_probability)["tpot_s"]
    before = at_acceptance(study, point, assumed.per_position, assumed.draft_probability)["tpot_s"]
    rate_effect = math.log(between / before)
    rest = math.log(split.factors["tpot_s"]) - rate_effect
    yield _rate_cause(cell, assumed.draft_probability, measured.draft_probability, rate_effect)
    yield _accepted_cause(cell, sum(assumed.per_position), sum(measured.per_position), rest)


def _rate_cause(cell: Scored, assumed: float, measured: float, effect: float) -> Cause:
    band, drafts = stated_band(cell.predicted, "draft_probability"), _drafts(cell)
    differs = abs(measured - assumed) > max(_DIFFERENT * assumed, _error_of_share(measured, drafts))
    evidence = {"assumed": assumed, "assumed_interval": band, "measured": measured, "drafts": drafts}
    if not differs:
        text = f"the share of steps with a draft is as assumed: {measured:.0%}"
        return Cause("draft-rate", text, cell.concurrency, evidence, matters=False, effect=effect)
    text = f"{measured:.0%} of the steps carried a draft, {assumed:.0%} were assumed{_band_text(band, '.0%')}"
    return Cause("draft-rate", text + _effect_text(effect), cell.concurrency, evidence, abs(effect) > _SMALL, effect)


def _accepted_cause(cell: Scored, assumed: float, measured: float, effect: float) -> Cause:
    band, drafts = stated_band(cell.predicted, "accepted_per_draft"), _drafts(cell)
    evidence = {"assumed": assumed, "assumed_interval": band, "measured": measured, "drafts": drafts}
    if drafts < _FEWEST_DRAFTS:
        text = f"only {drafts:.0f} drafts were counted: the acceptance of a draft is hardly known"
        return Cause("acceptance", text, cell.concurrency, evidence, matters=False, effect=effect)
    differs = abs(measured - assumed) > max(_DIFFERENT * assumed, 3.0 * measured / math.sqrt(drafts))
    if not differs:
        text = f"a draft got as many tokens accepted as assumed: {measured:.2f}"
        return Cause("acceptance", text, cell.concurrency, evidence, matters=False, effect=effect)
    text = f"{measured:.2f} tokens of a draft were accepted, {assumed:.2f} assumed{_band_text(band, '.2f')}"
    return Cause("acceptance", text + _effect_text(effect), cell.concurrency, evidence, abs(effect) > _SMALL, effect)


def _drafts(cell: Scored) -> float:
    found = cell.question.cell.measured
    return found.acceptance.drafts if found is not None and found.acceptance is not None else 0.0


def _error_of_share(share: float, drafts: float) -> float:
    """Three standard errors of a share of `drafts / share` steps, as if steps were independent."""
    steps = max(drafts / share if share > 0 else drafts, 1.0)
    return 3.0 * math.sqrt(max(share * (1.0 - share), 0.0) / steps)


def _band_text(band: tuple[float, float] | None, form: str) -> str:
    return "" if band is None else f" (90 %: {band[0]:{form}} to {band[1]:{form}})"


def _effect_text(effect: float) -> str:
    change = math.exp(effect) - 1.0
    if abs(change) < _SMALL:
        return ": no difference to the time per token"
    return f": that makes a token take {abs(change):.0%} {'longer' if change > 0 else 'less'}"


def _of_lengths(cell: Scored, studies: Studies) -> Iterator[Cause]:
    """Prompts and outputs of other lengths than predicted for: the prediction computed again at the run's."""
    found = cell.question.cell.measured
    assert found is not None
    if not found.input_tokens or not found.output_tokens:
        return
    study = studies.of(cell.question.method)
    workload = mapping(mapping(cell.predicted.body.get("deployment")).get("workload"))
    own = study.deployment.workload
    prompt = number(workload.get("input_tokens")) or float(own.input_tokens)
    output = number(workload.get("output_tokens")) or float(own.output_tokens)
    before, after = prompt + output / 2, found.input_tokens + found.output_tokens / 2
    evidence = {
        "predicted_for": {"input_tokens": prompt, "output_tokens": output, "context_tokens": before},
        "run": {"input_tokens": found.input_tokens, "output_tokens": found.output_tokens, "context_tokens": after},
    }
    if abs(math.log(after / before)) < _LENGTHS:
        text = f"prompts and outputs are as long as predicted for: {after:.0f} tokens of context in the mean"
        yield Cause("lengths", text, cell.concurrency, evidence, matters=False)
        return
    effect = _effect_of_lengths(cell, studies, (prompt, output), (found.input_tokens, found.output_tokens))
    text = (
        f"predicted for {prompt:.0f} tokens in and {output:.0f} out, the run had {found.input_tokens:.0f} and "
        f"{found.output_tokens:.0f}: {after:.0f} tokens of context in the mean instead of {before:.0f}"
    )
    matters = effect is None or abs(effect) > _SMALL
    tail = "" if effect is None else _effect_text(effect)
    yield Cause("lengths", text + tail, cell.concurrency, evidence, matters, effect)


def _effect_of_lengths(
    cell: Scored, studies: Studies, before: tuple[float, float], after: tuple[float, float]
) -> float | None:
    """Log of the factor on the time per token that the model expects of the run's lengths; None where it cannot."""
    times = []
    acceptance = cell.split.predicted if cell.split is not None else None
    k = cell.question.num_speculative_tokens
    for prompt, output in (before, after):
        lengths = [f"workload.input_tokens={max(1, round(prompt))}", f"workload.output_tokens={max(2, round(output))}"]
        try:
            changed = apply_overrides(studies.of(cell.question.method).deployment, lengths)
            study = build_study(changed, k_max=max(k, 1), num_draws=1)
            positions = acceptance.per_position if acceptance else (0.0,) * max(k, 1)
            share = acceptance.draft_probability if acceptance else 0.0
            if k and acceptance is None:
                return None
            times.append(at_acceptance(study, cell.question.point, positions, share)["tpot_s"])
        except InputError:
            return None
    return math.log(times[1] / times[0])


def _of_load(cell: Scored) -> Iterator[Cause]:
    """Whether as many requests ran as were asked for, and what held the others back."""
    gauges, asked = mapping(cell.record.get("gauges")), cell.concurrency
    ran = positive(cell.record.get("measured_concurrency"))
    waited, usage = number(gauges.get("waiting_max")), number(gauges.get("kv_usage_max"))
    totals = mapping(mapping(cell.record.get("server")).get("totals"))
    preempted = number(totals.get("preemptions"))
    evidence = {
        "asked": asked,
        "in_flight": ran,
        "waiting_max": waited,
        "kv_usage_max": usage,
        "preemptions": preempted,
    }
    if preempted or (usage is not None and usage >= _FULL):
        what = f"{preempted:.0f} requests were preempted" if preempted else f"the KV cache was {usage:.0%} full"
        yield Cause("kv-limit", f"{what}: the KV cache limits what runs at once", asked, evidence)
    elif waited:
        text = f"up to {waited:.0f} requests waited in the server: max_num_seqs or the token budget limits what runs"
        yield Cause("queueing", text, asked, evidence)
    if ran is not None and ran < _REACHED * asked:
        text = f"asked for {asked} at once, {ran:.3g} were in flight in the mean"
        yield Cause("concurrency-not-reached", text, asked, evidence)
    elif ran is not None and not waited and not preempted:
        text = f"{ran:.3g} of {asked} requests were in flight, none waited"
        yield Cause("concurrency-not-reached", text, asked, evidence, matters=False)


def _of_graphs(cell: Scored, studies: Studies) -> Iterator[Cause]:
    """Whether a step in which every request drafts is larger than the largest captured graph."""
    k = cell.question.num_speculative_tokens
    system = studies.of(cell.question.method).system
    limit = graph_limit_tokens(system.mode(k))
    rows = math.ceil(cell.concurrency / system.parallel.data) * (1 + k)
    if not limit or rows <= limit:
        return
    text = (
        f"{cell.concurrency} requests of {1 + k} tokens are {rows} rows, captured graphs end at {limit}: such steps "
        "run without a graph (cudagraph_capture_sizes); the prediction takes it into account"
    )
    yield Cause("beyond-captured-graph", text, cell.concurrency, {"rows": rows, "largest_captured": limit})


def _of_prompts(cell: Scored) -> Iterator[Cause]:
    """How far the mean gap between chunks is above the median one: the prompts of others, or uneven steps."""
    share = number(cell.record.get("prefill_share"))
    arm = mapping(cell.predicted.forecast.get("speculative"))
    step_s, with_prompts_s = positive(arm.get("step_s")), positive(arm.get("step_with_prompts_s"))
    predicted = max(0.0, 1.0 - step_s / with_prompts_s) if step_s and with_prompts_s else None
    if share is None or share < _PREFILL:
        return
    evidence = {"measured": share, "predicted": predicted}
    text = f"{share:.0%} of the time between chunks is above the median gap: prompts of others, or uneven steps"
    if predicted is not None and abs(share - predicted) < _DIFFERENT:
        yield Cause(
            "prefill-share", f"{text}; predicted for prompts: as much", cell.concurrency, evidence, matters=False
        )
        return
    tail = "" if predicted is None else f"; {predicted:.0%} predicted for prompts"
    yield Cause("prefill-share", text + tail, cell.concurrency, evidence)


def _of_agreement(cell: Scored) -> Iterator[Cause]:
    """Whether the run's own figures fit together: step time = time per token * tokens per step."""
    found = cell.question.cell.measured
    if found is None or not (found.tpot_s and found.step_s and found.tokens_per_step):
        return
    from_steps_s = found.step_s / found.tokens_per_step
    apart = math.log(found.tpot_s / from_steps_s)
    if abs(apart) <= max(_DISAGREE, Z_90 * cell.question.cell.noise):
        return
    text = (
        f"the run's own figures differ: {found.tpot_s / MS:.3g} ms a token over its requests, "
        f"{from_steps_s / MS:.3g} by its steps; it is too short for such long requests: measure for longer "
        "(--cell-seconds)"
    )
    yield Cause("run-disagrees", text, cell.concurrency, {"tpot_s": found.tpot_s, "by_steps_s": from_steps_s})


def _of_baseline(cell: Scored) -> Iterator[Cause]:
    """Whether the server without speculation was where it was predicted: else the miss is not of speculation."""
    base, band = cell.baseline_cell, mapping(mapping(cell.predicted.forecast.get("baseline")).get("intervals"))
    if base is None or base.measured is None or not cell.question.num_speculative_tokens:
        return
    figure = figure_of("tpot_s", mapping(band.get("tpot_s")), base.measured.tpot_s, base.noise)
    if figure is None:
        return
    evidence = figure.to_dict()
    text = f"the baseline took {figure.measured / MS:.3g} ms a token, {figure.middle / MS:.3g} predicted"
    if figure.inside:
        text += ": as predicted, so a miss is of speculation itself"
        yield Cause("baseline", text, cell.concurrency, evidence, matters=False)
        return
    text += ": the prediction was off there already, without speculation"
    yield Cause("baseline", text, cell.concurrency, evidence, effect=figure.log_error)


def _of_noise(cell: Scored) -> Iterator[Cause]:
    """Where the distance is no larger than the run's own noise: then nothing can be told from it."""
    figure = cell.headline
    if figure.within_noise:
        text = (
            f"{figure.name}: off by {abs(math.exp(figure.log_error) - 1):.0%}, the run's own 90 % noise is "
            f"{math.exp(Z_90 * figure.noise) - 1:.0%}: no difference can be told"
        )
        evidence = {"log_error": figure.log_error, "relative_noise": figure.noise}
        yield Cause("noise", text, cell.concurrency, evidence)


def load_differences(run: Run, baseline: Run) -> list[str]:
    """Where the baseline's run was sent another load: then a speedup compares two things."""
    names: Mapping[str, Any] = run.load
    return [
        f"{name}: {names[name]} against {baseline.load[name]}"
        for name in names
        if name in baseline.load and names[name] != baseline.load[name]
    ]


def milliseconds(cell: RunCell) -> str:
    """A cell's step in words."""
    found = cell.measured
    return "-" if found is None or found.step_s is None else f"{found.step_s / MS:.3g} ms"
