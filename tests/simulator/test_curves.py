"""What stands behind an answer, over load: the same figures as `predict`, and the curves between them."""

from pathlib import Path

import pytest

from draftcast import api
from simulator.curves import curves

REFERENCE_CASE = Path(__file__).parent.parent.parent / "examples" / "kimi-k2.5-8x-rtx-pro-6000.toml"
FEW = {"num_draws": 200, "seed": 0}


@pytest.fixture(scope="module")
def reference() -> dict[str, object]:
    """The curves of the reference case."""
    return curves(api.load(REFERENCE_CASE), num_speculative_tokens=5, **FEW)


def test_each_cell_is_what_predict_says_of_it(reference: dict) -> None:
    alone = api.predict(api.load(REFERENCE_CASE), num_speculative_tokens=5, concurrency=16, **FEW).to_dict()
    cell = next(cell for cell in reference["cells"] if cell["concurrency"] == 16)
    assert cell["speedup"] == pytest.approx(alone["speedup"])
    for arm in ("baseline", "speculative"):
        assert cell[arm]["step_s"] == pytest.approx(alone[arm]["step_s"])
        assert cell[arm]["parts_s"] == pytest.approx(alone[arm]["parts_s"])


def test_the_loads_are_the_deployments_and_the_powers_of_two_between(reference: dict) -> None:
    assert [cell["concurrency"] for cell in reference["cells"]] == [1, 2, 4, 8, 16, 32, 64, 128]


def test_acceptance_never_rises_with_the_position(reference: dict) -> None:
    rates = [row["rate"] for row in reference["acceptance"]["per_position"]]
    assert len(rates) == 5
    assert rates == sorted(rates, reverse=True)
    assert all(row["p05"] <= row["p50"] <= row["p95"] for row in reference["acceptance"]["per_position"])


def test_a_stated_acceptance_comes_back_as_it_was_stated() -> None:
    overrides = ["speculation.method=eagle3", "speculation.acceptance={per_position=[0.8, 0.6, 0.5]}"]
    found = curves(api.load(REFERENCE_CASE, overrides), num_speculative_tokens=3, **FEW)
    rates = [row["rate"] for row in found["acceptance"]["per_position"]]
    assert rates == pytest.approx([0.8, 0.6, 0.5], rel=0.02)
    assert not found["acceptance"]["is_prior"]


def test_more_tokens_read_more_experts_and_never_more_than_there_are(reference: dict) -> None:
    points = reference["experts"]["points"]
    for point in points:
        assert point["tokens"] == 6 * point["requests"]
        assert point["baseline"] < point["speculative"] <= reference["experts"]["num_experts"]
    assert [p["speculative"] for p in points] == sorted(p["speculative"] for p in points)


def test_the_steps_lie_on_the_allreduce_curve(reference: dict) -> None:
    found = reference["allreduce"]
    sizes = {(p["arm"], p["concurrency"]): p["bytes"] for p in found["points"]}
    assert sizes["baseline", 1] == 7168 * 2  # hidden size of Kimi K2.5 in BF16
    assert sizes["speculative", 4] == 24 * 7168 * 2
    for point in found["points"]:
        around = [row for row in found["curve"] if point["bytes"] / 2 <= row["bytes"] <= point["bytes"] * 2]
        assert min(r["time_s"] for r in around) <= point["time_s"] <= max(r["time_s"] for r in around)


def test_allreduce_of_a_step_is_what_its_part_of_the_step_says(reference: dict) -> None:
    found, cell = reference["allreduce"], reference["cells"][0]
    time_s = next(p["time_s"] for p in found["points"] if p["arm"] == "baseline" and p["concurrency"] == 1)
    step_s = found["allreduces_per_step"] * (time_s + found["skew_s"])
    assert step_s == pytest.approx(cell["baseline"]["parts_s"]["allreduce"], rel=0.02)


def test_what_a_deployment_does_not_have_is_null_with_a_reason() -> None:
    dense = {
        "model": {"config": "llama-3.2-1b-bf16"},
        "hardware": {"gpu": "h100-sxm"},
        "speculation": {"method": "eagle3", "num_speculative_tokens": 3},
        "workload": {"concurrency": [4]},
    }
    found = curves(api.load(dense), num_speculative_tokens=0, **FEW)
    for name in ("acceptance", "experts", "allreduce"):
        assert found[name] is None
        assert found[f"{name}_reason"]
    assert found["cells"][0]["speedup"]["p50"] == 1.0
