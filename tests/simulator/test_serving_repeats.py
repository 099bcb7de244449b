"""Repeats of a simulation: the first is the run itself, each other one the run of its seed."""

import pickle
from pathlib import Path

import pytest

from hwmodel.errors import InputError
from simulator.deployment import Deployment, load_deployment
from simulator.serving.run import simulate
from simulator.sweeps import INTERRUPTED, Outcome, Swept, in_this_process

TABLES = {
    "model": {"config": "llama-3.2-1b-bf16"},
    "hardware": {"gpu": "h100-sxm"},
    "engine": {"version": "0.16.0"},
    "speculation": {
        "method": "eagle3",
        "num_speculative_tokens": 3,
        "acceptance": {"conditional": [0.7]},
    },
    "workload": {"concurrency": [4, 8], "input_tokens": 100, "output_tokens": 50},
}


def small() -> Deployment:
    return load_deployment(TABLES)


def test_every_row_of_runs_is_the_run_with_that_seed_alone() -> None:
    runs = simulate(small(), num_requests=60, seed=4, num_runs=3).to_dict()["runs"]
    assert [row["seed"] for row in runs["rows"]] == [4, 5, 6]
    for row in runs["rows"]:
        alone = simulate(small(), num_requests=60, seed=row["seed"]).to_dict()
        assert row["speedup"] == alone["speedup"]["p50"]
        assert row["speculative"]["tpot_s"] == alone["speculative"]["tpot_s"]
    assert (runs["done"], runs["total"]) == (3, 3)
    found = [row["speedup"] for row in runs["rows"]]
    assert runs["speedup"]["p50"] == sorted(found)[1]


def test_one_run_has_no_runs_and_more_change_nothing_else() -> None:
    one = simulate(small(), num_requests=60, num_draws=3).to_dict()
    two = simulate(small(), num_requests=60, num_draws=3, num_runs=2).to_dict()
    assert "runs" not in one
    for answer in (one, two):
        del answer["inputs"]["num_runs"]
    del two["runs"]
    assert one == two


def test_a_run_without_drafts_has_speedup_1_at_every_seed() -> None:
    runs = simulate(small(), num_requests=60, num_speculative_tokens=0, num_runs=2).to_dict()["runs"]
    assert [row["speedup"] for row in runs["rows"]] == [1.0, 1.0]


def test_the_function_over_repeats_can_be_sent_and_answers_the_same_there() -> None:
    def elsewhere(function, cells, tell):  # type: ignore[no-untyped-def]
        return in_this_process(pickle.loads(pickle.dumps(function)), cells, tell)

    here, there = (
        simulate(small(), num_requests=60, num_draws=3, num_runs=2, sweep=sweep).to_dict()
        for sweep in (in_this_process, elsewhere)
    )
    assert here == there


def test_repeats_that_fail_or_are_missing_are_said_and_the_others_count() -> None:
    def cut(function, cells, tell):  # type: ignore[no-untyped-def]
        found: list[Outcome | None] = list(in_this_process(function, cells, tell).outcomes)
        found[0], found[-1] = Outcome(None, "OSError: no"), None
        return Swept(found, INTERRUPTED)

    answer = simulate(small(), num_requests=60, num_draws=4, num_runs=3, sweep=cut).to_dict()
    assert answer["partial"] is True
    assert answer["notes"][:2] == [
        "interrupted after 5 of 6 repeats",
        "1 of 2 runs failed; the first: OSError: no",
    ]
    assert answer["runs"]["rows"][1] == {"seed": 1, "failed_reason": "OSError: no"}
    assert answer["speedup_basis"] == "parameter draws"


def test_runs_count_from_one(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="runs: got 0, allowed 1 to"):
        simulate(small(), num_runs=0)
