"""Which draft lengths may be compared: those that can be asked, and those that the engine version accepts."""

from collections.abc import Sequence
from dataclasses import replace

from hwmodel.errors import InputError
from simulator.answers import draft_length, method_findings
from simulator.decision import Scores
from simulator.deployment import Deployment
from simulator.study import Study

NO_METHOD = (
    "speculation.method: got none, but there is a choice only for a method; allowed: --method ngram, which needs no"
    " drafter, or another of `draftcast list methods`; `draftcast options` sets all methods side by side"
)


def checked_lengths(deployment: Deployment, lengths: Sequence[int]) -> list[int]:
    """The draft lengths of a grid, ascending, 0 among them; `InputError` for what cannot be asked."""
    if deployment.speculation.method == "none" and any(lengths):
        raise InputError(NO_METHOD)
    for k in lengths:
        draft_length(deployment, k)
    if not lengths:
        raise InputError("num_speculative_tokens: got an empty list, allowed 0 to 64")
    return sorted({0, *lengths})


def only_accepted_lengths(study: Study, scores: Scores) -> Scores:
    """Scores without the draft lengths that the engine version refuses."""
    refused = [k for k in scores.lengths if any(f.severity == "error" for f in method_findings(study, k))]
    allowed = scores.allowed.copy()
    for i, k in enumerate(scores.lengths):
        if k in refused:
            allowed[i] = False
    return replace(scores, allowed=allowed)
