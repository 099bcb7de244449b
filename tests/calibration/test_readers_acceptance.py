"""Counters that cannot be of one window are refused, each with the identity that they break."""

import pytest

from calibration.readers.acceptance import Counted, counts_of

GOOD = {"drafts": 100.0, "accepted_per_position": (60.0, 40.0, 25.0), "accepted": 125.0, "draft_tokens": 300.0}


def test_counters_of_one_window_are_taken() -> None:
    counts, reason, _ = counts_of(Counted(**GOOD, steps=150.0))  # type: ignore[arg-type]
    assert reason is None
    assert counts is not None
    assert counts.accepted_per_position == (60.0, 40.0, 25.0)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"accepted_per_position": (60.0, 70.0, 25.0)}, "a position is accepted only after the one before"),
        ({"accepted": 150.0}, "1 + accepted per position / drafts is 2.250, but 1 + accepted / drafts is 2.500"),
        ({"draft_tokens": 100.0}, "more tokens accepted than the 100 drafted"),
        ({"draft_tokens": 320.0}, "320 tokens drafted, possible in 100 drafts: 300"),
        ({"steps": 90.0}, "100 drafts in 90 decode steps"),
        ({"drafts": 0.0}, "nothing was drafted"),
    ],
)
def test_misread_counters_are_refused(change: dict[str, object], said: str) -> None:
    counts, reason, _ = counts_of(Counted(**(GOOD | change)))  # type: ignore[arg-type]
    assert counts is None
    assert reason is not None
    assert said in reason
