"""The simulated links against every scored published table (verification/data/allreduce_tables.toml)."""

import tomllib

import pytest

from verification.allreduce_tables import TABLES, TOLERANCE, compare

SETS = [entry for entry in tomllib.loads(TABLES.read_text(encoding="utf-8"))["set"] if entry.get("scored", True)]


@pytest.mark.parametrize("entry", SETS, ids=lambda entry: entry["name"])
def test_allreduce_is_within_a_fifth_of_the_published_times(entry):
    for kib, measured, simulated in compare(entry):
        assert simulated == pytest.approx(measured, rel=TOLERANCE), f"{kib} KiB"


def test_every_set_that_the_steps_rest_on_is_scored():
    names = {entry["name"] for entry in SETS}
    assert {"8x RTX PRO 6000 Server, NCCL", "8x L40S, NCCL", "8x H200 NVSwitch, NCCL"} <= names
    assert sum(len(entry["time_us"]) for entry in SETS) > 80
