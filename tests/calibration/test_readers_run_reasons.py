"""A run file's own reason for a refused cell is read to its end: what it allows stands last."""

import pytest

from calibration.readers.run_file import read_run_file

REASON = (
    "others used the server meanwhile: 3 requests that are not ours, 200 generated tokens that are not ours; allowed: "
    "an idle server, or --force"
)


@pytest.mark.parametrize("name", ["refused", "refused_reason", "error"])
def test_a_long_reason_is_whole(name):
    run = {"server": {}, "cells": [{"concurrency": 4, "tpot_s": 0.01, name: REASON}]}
    assert [item.reason for item in read_run_file(run, "run.json").refused] == [REASON]


def test_a_hostile_reason_is_one_bounded_line():
    run = {"server": {}, "cells": [{"concurrency": 4, "refused_reason": "a\n\x1b[31m" * 10_000}]}
    reason = read_run_file(run, "run.json").refused[0].reason
    assert reason.isprintable()
    assert len(reason) <= 600
