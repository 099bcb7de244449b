from pathlib import Path

import pytest

from simulator.closed_form import Cell
from simulator.deployment import load_deployment
from simulator.forecast import QUANTITIES, at_acceptance, forecast_cells
from simulator.predict import predict
from simulator.study import build_study

REFERENCE = Path(__file__).parent.parent.parent / "examples" / "kimi-k2.5-8x-rtx-pro-6000.toml"


@pytest.fixture(scope="module")
def cells() -> list[dict]:
    study = build_study(load_deployment(REFERENCE), k_max=5, num_draws=400)
    return forecast_cells(study, [Cell(k, c) for k in (0, 5) for c in (1, 16)])


def test_a_forecast_is_the_prediction_with_more_intervals(cells: list[dict]) -> None:
    answer = predict(load_deployment(REFERENCE), num_speculative_tokens=5, concurrency=1, num_draws=400).to_dict()
    cell = cells[2]
    assert cell["speedup"] == pytest.approx({name: answer["speedup"][name] for name in ("p05", "p50", "p95")})
    assert cell["probability_faster"] == answer["probability_faster"]
    for arm in ("baseline", "speculative"):
        assert cell[arm]["step_s"] == pytest.approx(answer[arm]["step_s"])
        assert cell[arm]["parts_s"] == pytest.approx(answer[arm]["parts_s"])
        band = cell[arm]["intervals"]["throughput_tokens_per_s"]
        assert band == pytest.approx(answer[arm]["throughput_tokens_per_s_interval"])


def test_every_interval_is_in_order_and_holds_what_it_is_about(cells: list[dict]) -> None:
    for cell in cells:
        for arm in ("baseline", "speculative"):
            for name in QUANTITIES:
                band = cell[arm]["intervals"][name]
                assert band["p05"] <= band["p50"] <= band["p95"]
                assert band["p05"] <= cell[arm][name] <= band["p95"], (name, cell["concurrency"])


def test_without_drafts_both_arms_are_one_and_tokens_per_step_is_one(cells: list[dict]) -> None:
    for cell in cells[:2]:
        assert cell["speculative"]["intervals"] == cell["baseline"]["intervals"]
        assert cell["speculative"]["intervals"]["tokens_per_step"] == {"p05": 1.0, "p50": 1.0, "p95": 1.0}
        assert cell["speedup"] == {"p05": 1.0, "p50": 1.0, "p95": 1.0}


def test_the_studys_own_acceptance_gives_its_own_point_values(cells: list[dict]) -> None:
    study = build_study(load_deployment(REFERENCE), k_max=5, num_draws=400)
    for cell in cells[2:]:
        assumed = cell["acceptance"]
        found = at_acceptance(
            study, Cell(5, cell["concurrency"]), assumed["per_position"], assumed["draft_probability"]
        )
        for name in QUANTITIES:
            assert found[name] == pytest.approx(cell["speculative"][name]), name


def test_more_accepted_tokens_make_a_token_quicker_and_leave_the_step_alone() -> None:
    study = build_study(load_deployment(REFERENCE), k_max=5, num_draws=100)
    few, many = (at_acceptance(study, Cell(5, 1), [share] * 5, 0.5) for share in (0.1, 0.9))
    assert many["tpot_s"] < few["tpot_s"]
    assert many["step_s"] == few["step_s"]
    assert many["tokens_per_step"] == pytest.approx(1 + 0.5 * 4.5)


def test_what_a_servers_counters_tell_of_a_step_has_the_prompts_of_others_in_it(cells: list[dict]) -> None:
    alone, together = cells[0]["baseline"], cells[1]["baseline"]
    assert alone["step_with_prompts_s"] == pytest.approx(alone["step_s"])
    assert together["step_with_prompts_s"] > together["step_s"]
