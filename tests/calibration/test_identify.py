"""What is still open, why, and what would tell: the linear design agrees with measuring in earnest."""

import functools
from typing import Any

import numpy as np
import pytest
from measured import measured_cells
from profiles import BOX, box

from calibration.calibrate import Calibration, calibrate
from calibration.identify import Identified, Worth, identify
from calibration.records import AcceptanceCounts, CollectivePoint, Evidence, MeasuredCell
from simulator.deployment import Deployment, load_deployment
from simulator.deployment.load import with_profile
from simulator.study import build_study
from simulator.system import build_system

NGRAM = load_deployment(
    {**BOX, "speculation": {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4}}
)


def asked(deployment: Deployment, *cells: MeasuredCell, **other: Any) -> tuple[Calibration, Identified]:
    """A calibration and what it leaves open."""
    found = calibrate(deployment, Evidence(cells, **other))
    return found, identify(found.plan, found.fitted, deployment, found.profile)


@functools.cache
def plain() -> tuple[Calibration, Identified]:
    """After one cell of the running baseline."""
    return asked(box(), *measured_cells(box(), loads=(1,)))


def worth(of: Identified) -> dict[str, Worth]:
    """The measurements by name."""
    return {item.name: item for item in of.measurements}


def test_every_measurement_narrows_or_leaves_the_answer_and_the_best_stands_first() -> None:
    items = plain()[1].measurements
    assert len(items) >= 5
    assert all(0.0 < item.spread_after <= item.spread_before * (1.0 + 1e-9) for item in items)
    assert [item.spread_after for item in items] == sorted(item.spread_after for item in items)
    assert len({item.spread_before for item in items}) == 1


def test_the_spread_before_is_that_of_the_draws() -> None:
    found, identified = plain()
    study = build_study(with_profile(box(), found.profile), k_max=3, num_draws=4000)
    drawn = np.std(np.log(study.speedup_draws(list(identified.cells))), axis=0)
    assert identified.measurements[0].spread_before == pytest.approx(float(np.sqrt(np.mean(drawn**2))), rel=0.15)
    parts = identified.parts
    assert np.sqrt(sum(value**2 for value in parts.values())) == pytest.approx(
        identified.measurements[0].spread_before, rel=1e-6
    )


def test_what_a_measurement_was_said_to_leave_is_what_it_leaves() -> None:
    # The proposed sweep, made in earnest: the spread afterwards agrees with the promise.
    _, identified = plain()
    promised = worth(identified)["wider sweep"].spread_after
    loads = (1, 2, 4, 8, 16, 32)
    cells = measured_cells(box(), loads=loads)
    _, after = asked(box(), *cells)
    assert after.measurements[0].spread_before == pytest.approx(promised, rel=0.25)


def test_a_run_with_drafts_is_worth_most_and_nccl_tests_little_since_they_cancel_in_a_ratio() -> None:
    items = worth(plain()[1])
    assert plain()[1].measurements[0].name == "speculative run"
    assert items["speculative run"].restarts == 1
    assert items["nccl-tests"].restarts == 0
    assert items["nccl-tests"].narrows < 0.5 * items["speculative run"].narrows
    assert "all_reduce_perf" in items["nccl-tests"].text


def test_what_has_been_measured_is_not_proposed_again() -> None:
    points = tuple(CollectivePoint("nccl.txt", float(2**i), 2e-5 + 2**i / 1e9, 2) for i in range(10, 25))
    share = MeasuredCell("trace", concurrency=1.0, num_speculative_tokens=0, allreduce_share=0.3)
    cells = measured_cells(box(), loads=(1, 2, 4, 8, 16, 32))
    names = set(worth(asked(box(), *cells, share, collectives=points)[1]))
    assert {"nccl-tests", "profiler", "wider sweep"} & names == set()
    assert "speculative run" in names


def test_text_lookup_can_be_replayed_and_its_synchronous_baseline_isolated() -> None:
    items = worth(asked(NGRAM, *measured_cells(NGRAM, loads=(1,)))[1])
    assert items["replay"].restarts == 0
    assert items["replay"].narrows > 0.1
    assert "--no-async-scheduling" in items["synchronous baseline"].text
    assert {"replay", "synchronous baseline"} & set(worth(plain()[1])) == set()


def test_a_known_acceptance_leaves_nothing_for_a_replay() -> None:
    counts = AcceptanceCounts(80_000.0, (40_000.0, 24_000.0, 15_000.0), 240_000.0, 400_000.0, 1500.0)
    counted = MeasuredCell("metrics", num_speculative_tokens=3, method="ngram", acceptance=counts)
    items = worth(asked(NGRAM, *measured_cells(NGRAM, loads=(1,)), counted)[1])
    assert items["replay"].narrows < 0.02


def test_one_rank_has_no_allreduce_to_measure() -> None:
    alone = box(engine={"tensor_parallel_size": 1})
    assert {"nccl-tests", "profiler"} & set(worth(asked(alone, *measured_cells(alone, loads=(1,)))[1])) == set()


def test_without_a_method_there_is_no_speedup_to_narrow() -> None:
    none = load_deployment({**BOX, "speculation": {"method": "none"}})
    _, identified = asked(none, *measured_cells(none, loads=(1, 8)))
    assert identified.measurements == ()
    assert identified.undetermined


# ---- why


def reasons(of: Identified) -> dict[str, str]:
    """The reason by parameter."""
    return {item.name: item.why for item in of.undetermined}


def test_a_parameter_that_nothing_touches_says_so_and_names_what_would_tell() -> None:
    why = reasons(plain()[1])
    assert why["draft_pass_ms"].startswith("nothing that was measured depends on it")
    assert "told by: nccl-tests" in why["allreduce_latency_scale"]


def test_a_confounded_parameter_names_its_companion() -> None:
    # One TPOT, everything else fixed: kernels and host time add up, and nothing tells them apart.
    free = ("kernel_floor_us", "host_step_ms")
    system = build_system(box())
    fixed = {p.name: p.center for p in system.priors.priors if p.name not in free and p.kind != "switch" and p.center}
    tables = {**BOX, "parameters": {**fixed, "host_step_ms": {"median": 1.5, "log_sd": 0.5}}}
    deployment = load_deployment(tables)
    _, identified = asked(deployment, *measured_cells(deployment, loads=(1,)))
    why = reasons(identified)
    assert "host_step_ms (correlation -" in why.get("kernel_floor_us", "") or (
        "kernel_floor_us (correlation -" in why.get("host_step_ms", "")
    )


def test_a_parameter_that_the_data_tell_is_not_called_open() -> None:
    points = tuple(CollectivePoint("nccl.txt", float(2**i), 2e-5 + 2**i / 1e9, 2) for i in range(10, 25))
    _, identified = asked(box(), *measured_cells(box()), collectives=points)
    left = {item.name: item.spread_left for item in identified.undetermined}
    assert all(value >= 0.75 for value in left.values())
    assert "model_error" not in left
    influence = [item.influence for item in identified.undetermined]
    assert influence == sorted(influence, reverse=True)
