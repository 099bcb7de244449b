"""Sampled acceptance against what it was told, over whole runs.

Right: counters of a run (accepted at position i over drafts) within four standard errors of the given vector, although
requests differ; the spread of requests as the Beta distribution says; text lookup on its share of the steps; arrivals
with the moments of their distribution.
"""

import math
import sys
from collections.abc import Iterator
from itertools import chain

import numpy as np

from hwmodel.percent import percent
from simulator.deployment.tables import Workload
from simulator.serving.acceptance_sampling import SampledAcceptance
from simulator.serving.population import population
from simulator.serving.request import Request
from simulator.serving.running_batch import RunningBatch
from simulator.serving.workload import parse_arrivals, requests
from verification.checks import Check, report, strictest

STANDARD_ERRORS = 4.0
REQUESTS, OUTPUT_TOKENS, KAPPA = 2000, 400, 12.0
SURVIVAL = np.array([0.648, 0.419, 0.278])  # Kimi-K2.6 EAGLE-3, card of k-l-lambda/kimi-k2.6-eagle3-mla


def pooled(persistence: float, share: float) -> tuple[np.ndarray, float, np.ndarray]:
    """Counters of a run of unlike requests: accepted per position over drafts, share of drafts, and by request."""
    people = population(SURVIVAL, share, KAPPA, stretches=persistence > 0.0)
    acceptance = SampledAcceptance(people, share, persistence, seed=5)
    accepted, drafts, steps = np.zeros(len(SURVIVAL)), 0, 0
    tokens_per_step = []
    for number in range(REQUESTS):
        batch, request = RunningBatch(), Request(number, 0.0, 1, OUTPUT_TOKENS, generated=1)
        acceptance.enrol(request)
        batch.append(request)
        outcome = acceptance.outcomes(batch, OUTPUT_TOKENS, len(SURVIVAL))
        taken = int(np.searchsorted(np.cumsum(outcome.accepted[:, 0] + 1), OUTPUT_TOKENS - 1)) + 1
        drafted = np.broadcast_to(outcome.drafted, outcome.accepted.shape)[:taken, 0] > 0
        mine = outcome.accepted[:taken, 0]
        accepted += [(mine >= i).sum() for i in range(1, len(SURVIVAL) + 1)]
        drafts, steps = drafts + int(drafted.sum()), steps + taken
        tokens_per_step.append(1.0 + mine.mean())
    return accepted / drafts, drafts / steps, np.array(tokens_per_step)


def acceptance_checks() -> Iterator[Check]:
    """Pooled vectors and shares."""
    for persistence, share in ((0.0, 1.0), (0.0, 0.15), (0.9, 1.0), (0.9, 0.3)):
        found, drafted, tokens = pooled(persistence, share)
        drafts = REQUESTS * OUTPUT_TOKENS / tokens.mean() * share
        # Stretches make neighbouring drafts alike: fewer of them are independent.
        spread = np.sqrt(SURVIVAL * (1.0 - SURVIVAL) / drafts * (1.0 + persistence) / (1.0 - persistence))
        off = np.abs(found - SURVIVAL) / spread
        figures = ", ".join(f"{x:.4f}" for x in found)
        yield Check(
            f"pooled acceptance, persistence {persistence:g}, drafts on {percent(share)} of steps: {figures}"
            f" (given {', '.join(map(str, SURVIVAL))}; largest difference {off.max():.1f} standard errors)",
            float(off.max()),
            STANDARD_ERRORS,
        )
        error = math.sqrt(
            share * (1.0 - share) / (REQUESTS * OUTPUT_TOKENS) * (1.0 + persistence) / (1.0 - persistence)
        )
        text = f"    steps with a draft: {drafted:.4f}, given {share:g}"
        yield Check(text, drafted - share, max(6.0 * error, 1e-12))
    _, _, tokens = pooled(0.0, 1.0)
    arithmetic, harmonic = tokens.mean(), 1.0 / np.mean(1.0 / tokens)
    given = 1.0 + SURVIVAL.sum()
    yield Check(f"harmonic mean of requests {harmonic:.4f}, given {given:.4f}", harmonic / given - 1.0, 0.005)
    # At least 1 % above, so the other way round: what it must be above by must not exceed what it is above by.
    text = f"arithmetic mean of requests {arithmetic:.4f}: above it, as unlike requests must be"
    yield Check(text, 0.01 * given, arithmetic - given)


def arrival_checks() -> Iterator[Check]:
    """Moments of the gaps between arrivals."""
    for text, variation in (("poisson:3", 1.0), ("gamma:3:0.5", math.sqrt(2.0)), ("gamma:3:4", 0.5)):
        times = np.array([spec.arrival_s for spec in requests(parse_arrivals(text), Workload(), 200_000, 1)])
        gaps = np.diff(times)
        error = variation / math.sqrt(len(gaps))
        yield strictest(
            f"{text}: mean gap {gaps.mean():.5f} s (1/3), variation {gaps.std() / gaps.mean():.4f} ({variation:.4f})",
            (3.0 * gaps.mean() - 1.0, STANDARD_ERRORS * error),
            (gaps.std() / gaps.mean() / variation - 1.0, 0.02),
        )


def main() -> int:
    """1 when a check fails."""
    return report("serving_acceptance", chain(acceptance_checks(), arrival_checks()))


if __name__ == "__main__":
    sys.exit(main())
