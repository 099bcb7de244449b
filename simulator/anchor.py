"""A running server that speculates, timed: what it says about the parameters, as `[[measured]]` does of a baseline."""

import numpy as np
from numpy.typing import NDArray

from hwmodel.records import dataclass
from simulator.closed_form import Load, arm, baseline_step, prefill_cost, speculative_step
from simulator.knowledge import Knowledge
from simulator.posterior import Observation, conditioned

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class DraftedFact:
    """TPOT of one load with draft length k > 0, and what was counted beside it.

    The acceptance is not what this is evidence of: it is counted, and the time is read at what was counted.
    """

    num_speculative_tokens: int
    concurrency: float
    context_tokens: float | None  # mean while decoding; None: the workload's
    draft_probability: float  # drafts per (request, decode step)
    tokens_per_step: float
    tpot_s: float
    relative_noise: float


def anchored(known: Knowledge, fact: DraftedFact) -> Knowledge:
    """`known` narrowed by the measured time; its draws are moved to agree with it (docs/watch.md, eq. W1)."""
    system = known.system
    load = Load(np.array([fact.concurrency]), np.array([fact.concurrency]), ("concurrency",))
    sequences = load.sequences(system)
    context = system.context_tokens if fact.context_tokens is None else fact.context_tokens
    lengths, share = np.array([fact.num_speculative_tokens]), np.array([[fact.draft_probability]])

    def predict(coordinates: Array) -> Array:
        p = known.parameters(coordinates)
        step = speculative_step(system, p, lengths, sequences, share, context)
        alone = baseline_step(system, p, sequences, context, detail=False)
        prefill = prefill_cost(system, p, sequences, alone.total_s)
        return np.log(arm(system, step, prefill, fact.tokens_per_step, load).tpot_s)

    observed = Observation(f"TPOT at k={fact.num_speculative_tokens}", float(np.log(fact.tpot_s)), fact.relative_noise)
    return known._replace(posterior=conditioned(known.posterior, predict, [observed]), agree=predict)
