"""What was taken for granted against what the run had: share of drafted steps, accepted tokens, lengths of requests."""

import math
from collections.abc import Callable, Iterator

from calibration.readers.values import mapping, number
from hwmodel.errors import InputError
from hwmodel.percent import percent
from simulator.deployment import apply_overrides
from simulator.forecast import at_acceptance
from simulator.study import build_study
from validate.outcome.predicted import Studies
from validate.outcome.scored import Cause, Scored
from validate.outcome.split import stated_band

_SMALL = 0.02  # log of a factor: what lies below it explains nothing
_DIFFERENT = 0.05  # relative: two shares or counts that are the same but for chance
_FEWEST_DRAFTS = 50.0
_SMALL_SHARE = 0.095  # below it a whole percent is too coarse
_LENGTHS = 0.1  # relative, of the mean context


def acceptance_causes(cell: Scored, studies: Studies) -> Iterator[Cause]:
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


def _share(value: float) -> str:
    """A share of the steps: where it is small, one decimal tells few drafts from none."""
    return percent(value, 0 if value == 0.0 or value >= _SMALL_SHARE else 1)


def _rate_cause(cell: Scored, assumed: float, measured: float, effect: float) -> Cause:
    band, drafts = stated_band(cell.predicted, "draft_probability"), _drafts(cell)
    differs = abs(measured - assumed) > max(_DIFFERENT * assumed, _error_of_share(measured, drafts))
    evidence = {"assumed": assumed, "assumed_interval": band, "measured": measured, "drafts": drafts}
    if not differs:
        text = f"the share of steps with a draft is as assumed: {_share(measured)}"
        return Cause("draft-rate", text, cell.concurrency, evidence, matters=False, effect=effect)
    text = f"{_share(measured)} of the steps carried a draft, {_share(assumed)} were assumed{_band_text(band, _share)}"
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
    text = f"{measured:.2f} tokens of a draft were accepted, {assumed:.2f} assumed{_band_text(band, '{:.2f}'.format)}"
    return Cause("acceptance", text + _effect_text(effect), cell.concurrency, evidence, abs(effect) > _SMALL, effect)


def _drafts(cell: Scored) -> float:
    found = cell.question.cell.measured
    return found.acceptance.drafts if found is not None and found.acceptance is not None else 0.0


def _error_of_share(share: float, drafts: float) -> float:
    """Three standard errors of a share of `drafts / share` steps, as if steps were independent."""
    steps = max(drafts / share if share > 0 else drafts, 1.0)
    return 3.0 * math.sqrt(max(share * (1.0 - share), 0.0) / steps)


def _band_text(band: tuple[float, float] | None, form: Callable[[float], str]) -> str:
    return "" if band is None else f" (90 %: {form(band[0])} to {form(band[1])})"


def _effect_text(effect: float) -> str:
    change = math.exp(effect) - 1.0
    if abs(change) < _SMALL:
        return ": no difference to the time per token"
    return f": that makes a token take {percent(abs(change))} {'longer' if change > 0 else 'less'}"


def length_causes(cell: Scored, studies: Studies) -> Iterator[Cause]:
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
