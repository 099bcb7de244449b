"""What the run itself shows of its load: what ran at once, captured graphs, prompts, the baseline, its own noise."""

import math
from collections.abc import Iterator

from calibration.readers.values import mapping, number, positive
from hwmodel.engine.graphs import graph_limit_tokens
from hwmodel.percent import percent
from hwmodel.units import MS
from validate.outcome.figures import Z_90, figure_of
from validate.outcome.predicted import Studies
from validate.outcome.scored import Cause, Scored

_REACHED = 0.95  # of the users asked for
_FULL = 0.95  # of the KV cache
_PREFILL = 0.1  # share of the time between tokens
_SAME = 0.05  # of two such shares
_DISAGREE = 0.15  # log of a factor between two figures of one run


def load_causes(cell: Scored, studies: Studies) -> Iterator[Cause]:
    """All of them for one cell."""
    yield from _of_load(cell)
    yield from _of_graphs(cell, studies)
    yield from _of_prompts(cell)
    yield from _of_baseline(cell)
    yield from _of_agreement(cell)
    yield from _of_noise(cell)


def reached(cell: Scored) -> bool:
    """Whether as many requests were in flight as the cell asked for; what is not told counts as reached."""
    ran = positive(cell.record.get("measured_concurrency"))
    return ran is None or ran >= _REACHED * cell.concurrency


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
        full = f"the KV cache was {percent(usage or 0.0)} full"
        what = f"{preempted:.0f} requests were preempted" if preempted else full
        yield Cause("kv-limit", f"{what}: the KV cache limits what runs at once", asked, evidence)
    elif waited:
        text = f"up to {waited:.0f} requests waited in the server: max_num_seqs or the token budget limits what runs"
        yield Cause("queueing", text, asked, evidence)
    if ran is not None and not reached(cell):
        effect = ran / asked - 1.0
        text = (
            f"asked for {asked} at once, {ran:.3g} were in flight in the mean: that takes {percent(-effect)} off the "
            "tokens per second, and off the speedup, whatever speculation does"
        )
        yield Cause("concurrency-not-reached", text, asked, evidence, effect=math.log(ran / asked))
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
    text = f"{percent(share)} of the time between chunks is above the median gap: prompts of others, or uneven steps"
    if predicted is not None and abs(share - predicted) < _SAME:
        yield Cause(
            "prefill-share", f"{text}; predicted for prompts: as much", cell.concurrency, evidence, matters=False
        )
        return
    tail = "" if predicted is None else f"; {percent(predicted)} predicted for prompts"
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
        text += ": as predicted" + (", so a miss is of speculation itself" if reached(cell) else "")
        yield Cause("baseline", text, cell.concurrency, evidence, matters=False)
        return
    text += ": the prediction was off there already, without speculation"
    yield Cause("baseline", text, cell.concurrency, evidence, effect=figure.log_error)


def _of_noise(cell: Scored) -> Iterator[Cause]:
    """Where the distance is no larger than the run's own noise: then nothing can be told from it."""
    figure = cell.headline
    if figure.within_noise:
        text = (
            f"{figure.name}: off by {percent(abs(math.exp(figure.log_error) - 1))}, the run's own 90 % noise is "
            f"{percent(math.exp(Z_90 * figure.noise) - 1)}: no difference can be told"
        )
        evidence = {"log_error": figure.log_error, "relative_noise": figure.noise}
        yield Cause("noise", text, cell.concurrency, evidence)
