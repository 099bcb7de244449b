"""A replay from recordings to counts: every k in one pass over the data."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from calibration.replay.counts import Tally, context_bins
from calibration.replay.ngram import Lengths, Lookup, ngram_drafts
from calibration.replay.recording import Batch, Recording, batches
from calibration.replay.suffix import SuffixSettings, suffix_drafts
from calibration.replay.versions import EngineRules


class DraftsByLength(Protocol):
    """What would have been drafted at every decode position of a batch, for any k up to some k_max."""

    def at(self, k: int) -> tuple[Lengths, Lengths]:
        """Tokens drafted and, of these, right, both (num_positions,)."""


@dataclass(slots=True)
class Recorded:
    """What was replayed, counted while it passes."""

    requests: int = 0
    output_tokens: int = 0
    prompt_tokens: int = 0
    without_prompt: int = 0
    without_steps: int = 0
    sampled: int = 0  # at a temperature above 0
    undraftable: dict[str, int] = field(default_factory=dict)  # by the parameter that keeps them from drafting
    longest_context: int = 0
    cut: int = 0  # outputs that end at the engine's limit
    too_long: int = 0  # prompts that the engine would refuse

    def within(self, recordings: Iterable[Recording], max_model_len: int | None) -> Iterator[Recording]:
        """The recordings as an engine with that limit would have served them."""
        for item in recordings:
            room = None if max_model_len is None else max_model_len - len(item.prompt)
            if room is None or len(item.output) <= room:
                yield item
            elif room < 1:
                self.too_long += 1
            else:
                self.cut += 1
                yield replace(item, output=item.output[:room])

    def passing(self, recordings: Iterable[Recording]) -> Iterator[Recording]:
        """The same recordings, counted."""
        for item in recordings:
            self.requests += 1
            self.output_tokens += len(item.output)
            self.prompt_tokens += len(item.prompt)
            self.without_prompt += not item.has_prompt
            self.without_steps += len(item.output) < 2
            self.sampled += (item.temperature or 0) > 0
            self.longest_context = max(self.longest_context, item.num_tokens)
            if item.undraftable:
                self.undraftable[item.undraftable] = self.undraftable.get(item.undraftable, 0) + 1
            yield item


@dataclass(frozen=True, slots=True)
class Settings:
    """What is drafted, for which k, and what the engine's version adds."""

    drafter: Lookup | SuffixSettings
    lengths: tuple[int, ...]
    rules: EngineRules


@dataclass(frozen=True, slots=True)
class Counted:
    """The counts of a replay, a tally for every k asked for, and what was replayed."""

    tallies: tuple[Tally, ...]
    recorded: Recorded


def replay(recordings: Iterable[Recording], settings: Settings) -> Counted:
    """Walks every recording once for every k and counts.

    n-gram replay needs one batch at a time in memory; suffix decoding needs all recordings, as its tree does.
    """
    recorded = Recorded()
    tallies = tuple(Tally(k) for k in settings.lengths)
    served = recorded.within(recordings, settings.rules.max_model_len)
    for batch, drafts in _drafted(recorded.passing(served), settings):
        if not len(batch.token):
            continue
        bins, room = context_bins(batch), settings.rules.room(batch)
        mute = _mute(batch, settings.rules)
        for tally in tallies:
            drafted, right = drafts.at(tally.k)
            tally.add(batch, bins, (drafted, right) if mute is None else (drafted * mute, right * mute), room)
    return Counted(tallies, recorded)


def _drafted(recordings: Iterable[Recording], settings: Settings) -> Iterator[tuple[Batch, DraftsByLength]]:
    k_max = max(settings.lengths)
    if isinstance(settings.drafter, SuffixSettings):
        yield from suffix_drafts(list(recordings), settings.drafter, k_max)
        return
    for batch in batches(recordings):
        yield batch, ngram_drafts(batch, settings.drafter, k_max)


def _mute(batch: Batch, rules: EngineRules) -> Lengths | None:
    """0 at the decode positions of requests that this version does not draft for, else 1; None where all draft."""
    if not rules.needs_plain_sampling or not any(item.undraftable for item in batch.recordings):
        return None
    return np.array([not item.undraftable for item in batch.recordings], np.int8)[batch.request]
