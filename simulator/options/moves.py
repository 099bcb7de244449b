"""Changes of engine, machine or model: what each is worth by itself, and where it moves the best drafter."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from simulator.options.build import (
    Words,
    drafter_name,
    ends,
    load_gains,
    option_of,
    payback_of,
    weights_needs,
    with_length,
)
from simulator.options.record import NextBest, Option
from simulator.options.situation import NO_METHOD, Outcome, Situation
from simulator.summary import quantiles, share_above

Changes = tuple[str, ...]
NOTABLE = 0.01  # a gain of throughput that is worth a line, alone or with the best drafter
SCREENED = 5  # drafters that are tried again after every change, besides those that the engine refuses today


class Today(NamedTuple):
    """The drafters worth trying after a change, and the gain of the best one as things are (1: none is faster)."""

    drafters: tuple[Changes, ...]
    gain: float


def drafters_today(candidates: Sequence[Changes], options: Mapping[Changes, Option]) -> Today:
    """The best drafters of today by their `options`, and the candidates that cannot run today, hence have none."""
    refused = [changes for changes in candidates if changes not in options]
    ranked = sorted(options, key=lambda changes: -options[changes].value)
    best = max([1.0, *(option.value for option in options.values())])
    return Today((*ranked[:SCREENED], *refused), best)


def lengths_of(situation: Situation, changes: Changes) -> tuple[int, ...]:
    """The draft lengths to compare: the one that the overrides fix, else all."""
    key = "speculation.num_speculative_tokens="
    fixed = [int(change.removeprefix(key)) for change in changes if change.startswith(key)]
    return tuple(fixed) or situation.lengths


def move_option(situation: Situation, changes: Changes, today: Today, words: Words) -> Option | None:
    """The option of a change without drafts, and the best drafter after it; None where neither gains."""
    outcome = situation.possible((*changes, *NO_METHOD))
    if isinstance(outcome, str) or not outcome.fits:
        return None
    option = option_of(outcome, 0, words)
    after = best_after(situation, changes, today, words)
    together = 0.0 if after is None else (after.gain["p50"] or 0.0) / today.gain
    if max(option.gain["p50"] or 0.0, together) < 1.0 + NOTABLE:
        return None
    return option._replace(changes=changes, best_after=after)


def best_after(situation: Situation, changes: Changes, today: Today, words: Words) -> NextBest | None:
    """The best drafter once `changes` are in place, against today's baseline; None where none gains anything."""
    best = None
    for drafter in today.drafters:
        found = situation.screened((*changes, *drafter), lengths_of(situation, drafter))
        drafting = found is not None and found.num_speculative_tokens and found.gain > found.undrafted_gain
        if found is not None and drafting and (best is None or found.gain > best.gain):
            best = found
    if best is None:
        return None
    outcome = situation.possible(best.changes, [best.num_speculative_tokens])
    return None if isinstance(outcome, str) else next_best(outcome, best.num_speculative_tokens, words)


def next_best(outcome: Outcome, k: int, words: Words) -> NextBest:
    """The figures of a change and a drafter together."""
    gain = outcome.traffic_gain(k)
    payback, _ = payback_of(outcome.restart_value(k), words.needs)
    return NextBest(
        method=outcome.study.system.method,
        drafter=drafter_name(outcome),
        num_speculative_tokens=k,
        speedup=ends(quantiles(outcome.traffic_speedup(k))),
        gain=ends(quantiles(gain)),
        probability_faster=share_above(gain, 1.0),
        payback_s=payback,
        changes=with_length(outcome.changes, k),
        by_load=load_gains(outcome, k),
        needs=weights_needs(outcome),
    )
