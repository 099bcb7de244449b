"""Runs made from known figures against predictions on file: what is scored, how the error splits, what is proven."""

import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from outcome_runs import BEFORE, cell, record, run_record, write_run

from hwmodel.errors import InputError
from simulator.closed_form import Cell
from simulator.deployment import Deployment, apply_overrides, load_deployment
from simulator.forecast import forecast_cells
from simulator.study import build_study
from validate.ledger.store import Ledger
from validate.ledger.track import track_record
from validate.outcome.entries import outcome_entries
from validate.outcome.figures import Figure
from validate.outcome.refit import refit
from validate.outcome.run_data import read_run, run_of
from validate.outcome.validation import Question, Validation, validate

REFERENCE = Path(__file__).parent.parent.parent / "examples" / "kimi-k2.5-8x-rtx-pro-6000.toml"
DEPLOYMENT = load_deployment(REFERENCE)


def validated(
    *cells: dict, ledger: Path | None = None, deployment: Deployment = DEPLOYMENT, baseline: dict | None = None, **more
) -> Validation:
    prediction = more.pop("prediction", None)
    base = None if baseline is None else run_of(run_record(baseline), "base.json")
    question = Question(deployment, run_of(run_record(*cells, **more), "run.json"), base, prediction, num_draws=200)
    if ledger is None:
        return validate(question, None)
    with Ledger(ledger) as opened:
        return validate(question, opened)


def forecast(k: int, concurrency: int, deployment: Deployment = DEPLOYMENT) -> dict:
    return forecast_cells(build_study(deployment, k_max=max(k, 1), num_draws=200), [Cell(k, concurrency)])[0]


def causes(validation: Validation, code: str) -> list:
    return [cause for cause in validation.causes if cause.code == code]


# Figures


def test_a_measurement_is_judged_by_both_uncertainties_by_hand() -> None:
    exact = Figure("tpot_s", 0.9, 1.0, 1.2, 1.3, 0.0)
    assert not exact.inside
    assert exact.tolerance == pytest.approx((0.9, 1.2))
    noisy = Figure("tpot_s", 0.9, 1.0, 1.2, 1.3, 0.15)
    assert noisy.tolerance[1] == pytest.approx(math.exp(math.hypot(math.log(1.2), 1.6448536 * 0.15)))
    assert noisy.inside
    assert not noisy.within_noise, "1.3 is more than 1.645 x 15 % away from 1"
    assert noisy.to_dict()["error"] == pytest.approx(0.3)


@given(st.floats(0.1, 1.0), st.floats(1.0, 10.0), st.floats(0.01, 100.0), st.floats(0.0, 1.0))
def test_noise_only_widens_what_is_allowed_and_the_median_is_always_inside(
    down: float, up: float, measured: float, noise: float
) -> None:
    figure = Figure("x", down, 1.0, up, measured, noise)
    low, high = figure.tolerance
    assert low <= down * (1 + 1e-12)
    assert high >= up * (1 - 1e-12)
    assert Figure("x", down, 1.0, up, 1.0, noise).inside
    if figure.within_noise:
        assert figure.inside
    assert figure.log_error == pytest.approx(math.log(measured))


# The split


@settings(max_examples=25)
@given(st.floats(0.003, 0.1), st.floats(1.01, 4.0), st.sampled_from([1, 4, 64]))
def test_acceptance_and_cost_part_add_up_to_the_error_of_every_figure(
    tpot_s: float, tokens: float, concurrency: int
) -> None:
    measured = cell(concurrency, tpot_s=tpot_s, tokens_per_step=tokens)
    result = validated(measured, baseline=cell(concurrency, 0, 0.0136)).to_dict()
    (scored,) = result["cells"]
    assert {"speedup", "tpot_s", "step_s", "tokens_per_step"} <= set(scored["quantities"])
    for item in scored["quantities"].values():
        assert item["acceptance_part"] + item["cost_part"] == pytest.approx(item["log_error"], abs=1e-12)


def test_a_run_with_the_predicted_acceptance_has_no_acceptance_error_and_all_cost() -> None:
    assumed = forecast(5, 1)
    acceptance, arm = assumed["acceptance"], assumed["speculative"]
    share, drafts = acceptance["draft_probability"], 1e7
    counted = {
        "drafts": drafts,
        "accepted_per_position": [s * drafts for s in acceptance["per_position"]],
        "steps": drafts / share,
    }
    slow = cell(tpot_s=1.3 * arm["tpot_s"], tokens_per_step=arm["tokens_per_step"], acceptance=counted)
    item = validated(slow).to_dict()["cells"][0]["quantities"]["tpot_s"]
    assert item["acceptance_part"] == pytest.approx(0.0, abs=1e-6)
    ratio = slow["tpot_s"]["mean"] / arm["intervals"]["tpot_s"]["p50"]
    assert item["cost_part"] == pytest.approx(math.log(ratio), abs=1e-6)


def test_a_run_at_the_predicted_cost_but_with_better_acceptance_has_acceptance_error_alone() -> None:
    better = apply_overrides(
        DEPLOYMENT, ["speculation.acceptance={per_position=[0.9,0.85,0.8,0.75,0.7],draft_probability=0.6}"]
    )
    truth = forecast(5, 1, better)["speculative"]
    counted = {"drafts": 6e6, "steps": 1e7, "accepted_per_position": [5.4e6, 5.1e6, 4.8e6, 4.5e6, 4.2e6]}
    run = cell(tpot_s=truth["tpot_s"], tokens_per_step=truth["tokens_per_step"], acceptance=counted)
    found = validated(run)
    item = found.to_dict()["cells"][0]["quantities"]["tpot_s"]
    point, middle = forecast(5, 1)["speculative"]["tpot_s"], item["predicted"]["p50"]
    assert item["acceptance_part"] == pytest.approx(math.log(truth["tpot_s"] / point), abs=1e-6)
    assert item["cost_part"] == pytest.approx(math.log(point / middle), abs=1e-6), "median of draws against the point"
    effects = [cause.effect for cause in found.causes if cause.code in ("draft-rate", "acceptance")]
    assert sum(effects) == pytest.approx(item["acceptance_part"])
    assert "60 % of the steps carried a draft" in causes(found, "draft-rate")[0].text


def test_without_counted_drafts_the_error_is_not_split_and_says_why() -> None:
    (scored,) = validated(cell(acceptance=None)).to_dict()["cells"]
    assert scored["acceptance"] is None
    assert scored["quantities"]["tpot_s"]["cost_part"] is None
    assert "counted no drafts" in scored["split_reason"]


# What is scored


def test_a_cell_is_held_against_the_newest_prediction_that_is_older(tmp_path: Path) -> None:
    path = tmp_path / "l.sqlite"
    record(path, DEPLOYMENT)
    newest = record(path, DEPLOYMENT)
    found = validated(cell(), ledger=path)
    (scored,) = found.to_dict()["cells"]
    assert found.scored[0].predicted.entry is not None
    assert found.scored[0].predicted.entry.sequence == newest.sequence
    assert (scored["blind"], scored["prediction_id"]) == (True, newest.prediction_id)


def test_of_two_texts_on_one_system_the_one_with_the_deployments_acceptance_is_meant(tmp_path: Path) -> None:
    path = tmp_path / "l.sqlite"
    own = record(path, DEPLOYMENT)
    record(path, apply_overrides(DEPLOYMENT, ["speculation.acceptance={per_position=[0.1,0,0,0,0]}"]))
    entry = validated(cell(), ledger=path).scored[0].predicted.entry
    assert entry is not None
    assert entry.sequence == own.sequence


def test_a_prediction_that_is_younger_than_the_run_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / "l.sqlite"
    row = record(path, DEPLOYMENT)
    old = cell(started=BEFORE)
    found = validated(old, ledger=path)
    assert found.scored[0].predicted.entry is None
    assert any("not a blind prediction" in note for note in found.notes)
    named = validated(old, ledger=path, prediction=row.prediction_id[:6])
    assert named.scored[0].predicted.entry is not None
    assert not named.scored[0].predicted.blind
    assert any("younger than the run" in note for note in named.notes)


@pytest.mark.parametrize(
    "other",
    [
        ["model.config=deepseek-v3-fp8"],
        ["engine.version=0.20.0"],
        ["hardware.interconnect=pcie-switch"],
        ["engine.kv_cache_dtype=fp8"],
    ],
)
def test_a_prediction_of_another_system_is_not_used(tmp_path: Path, other: list[str]) -> None:
    path = tmp_path / "l.sqlite"
    record(path, apply_overrides(DEPLOYMENT, other))
    assert validated(cell(), ledger=path).scored[0].predicted.entry is None


def test_another_draft_length_load_or_method_is_another_prediction(tmp_path: Path) -> None:
    path = tmp_path / "l.sqlite"
    for question in ({"num_speculative_tokens": 3}, {"concurrency": 4}, {"method": "suffix"}):
        record(path, DEPLOYMENT, **question)
    assert validated(cell(), ledger=path).scored[0].predicted.entry is None


def test_the_deployments_own_workload_wins_over_a_newer_prediction_for_another(tmp_path: Path) -> None:
    path = tmp_path / "l.sqlite"
    own = record(path, DEPLOYMENT)
    other = record(path, apply_overrides(DEPLOYMENT, ["workload.input_tokens=9000"]))
    found = validated(cell(), ledger=path).scored[0].predicted.entry
    assert found is not None
    assert found.sequence == own.sequence
    changed = apply_overrides(DEPLOYMENT, ["workload.input_tokens=50"])
    again = validated(cell(), ledger=path, deployment=changed)
    assert again.scored[0].predicted.entry is not None
    assert again.scored[0].predicted.entry.sequence == other.sequence
    assert any("another workload" in note for note in again.notes)


def test_a_named_prediction_without_the_runs_cells_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "l.sqlite"
    row = record(path, DEPLOYMENT, concurrency=16)
    with pytest.raises(InputError, match=r"holds no cell of this run \(ngram k=5 at 1\)"):
        validated(cell(), ledger=path, prediction=row.prediction_id)


def test_a_run_that_does_not_tell_its_time_cannot_be_shown_to_be_blind(tmp_path: Path) -> None:
    path = tmp_path / "l.sqlite"
    record(path, DEPLOYMENT)
    run = read_run(str(write_run(tmp_path / "run.json", cell(started=None), started=None)))
    with Ledger(path) as ledger:
        found = validate(Question(DEPLOYMENT, run, num_draws=200), ledger)
    assert found.scored[0].predicted.entry is not None
    assert not found.scored[0].predicted.blind
    assert any("does not tell when" in note for note in found.notes)


def test_refused_cells_are_not_scored_and_say_why() -> None:
    foreign = cell(4, refused_reason="others used the server meanwhile: 3 requests", foreign_traffic="others used it")
    result = validated(cell(), foreign, cell(16, complete=False)).to_dict()
    assert [item["concurrency"] for item in result["cells"]] == [1]
    reasons = {item["concurrency"]: item["reason"] for item in result["not_scored"]}
    assert reasons[4].startswith("others used the server")
    assert "not finished" in reasons[16]
    assert [cause["code"] for cause in result["causes"] if cause["concurrency"] == 4] == ["foreign-traffic"]
    assert "(2 more cannot be scored)" in result["verdict"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"engine": "sglang"}, "measured on sglang"),
        ({"model": "deepseek-ai/DeepSeek-V3"}, "measured with model"),
        ({"step_s": 16.5}, "is the unit right"),
    ],
)
def test_a_cell_that_calibrate_refuses_is_not_scored_either(change: dict, reason: str) -> None:
    result = validated(cell(**change)).to_dict()
    assert result["cells"] == []
    assert reason in result["not_scored"][0]["reason"]
    assert result["verdict"].startswith("no cell can be scored: ")


def test_a_baseline_cell_is_held_against_the_baseline() -> None:
    (scored,) = validated(cell(k=0, tpot_s=0.0136)).to_dict()["cells"]
    assert (scored["num_speculative_tokens"], scored["quantity"]) == (0, "throughput_tokens_per_s")
    assert "speedup" not in scored["quantities"]
    assert "tokens_per_step" not in scored["quantities"]
    assert scored["inside_interval"]


def test_a_baseline_on_file_under_any_method_speaks_for_a_run_without_speculation(tmp_path: Path) -> None:
    path = tmp_path / "l.sqlite"
    row = record(path, DEPLOYMENT)
    (scored,) = validated(cell(k=0, tpot_s=0.0136), ledger=path).to_dict()["cells"]
    assert scored["prediction_id"] == row.prediction_id
    assert scored["quantities"]["tpot_s"]["predicted"]["p50"] == pytest.approx(0.0136, rel=0.05)


# Speedup


def test_the_speedup_is_that_of_the_baseline_run_at_the_same_load() -> None:
    result = validated(cell(tpot_s=0.0125), baseline=cell(k=0, tpot_s=0.0150)).to_dict()
    (scored,) = result["cells"]
    assert scored["quantity"] == "speedup"
    assert scored["measured"] == pytest.approx(1.2)
    assert scored["quantities"]["speedup"]["relative_noise"] == pytest.approx(math.hypot(0.02, 0.02))
    assert (scored["baseline"], scored["speedup_by"]) == ("base.json", "throughput_tokens_per_s")
    assert "speculation is 1.20x faster, predicted 0.9" in result["verdict"]


def test_without_a_baseline_run_the_measured_fact_at_that_load_is_the_baseline() -> None:
    one, four = validated(cell(1, tpot_s=0.017), cell(4, tpot_s=0.02)).to_dict()["cells"]
    assert one["measured"] == pytest.approx(13.6 / 17)
    assert (one["baseline"], one["speedup_by"]) == ("measured[0] of the deployment", "tpot_s")
    assert four["quantity"] == "throughput_tokens_per_s"


def test_at_a_mean_load_that_is_no_whole_number_times_count_and_throughput_does_not() -> None:
    (scored,) = validated(cell(2.6, tpot_s=0.02), baseline=cell(3, 0, 0.018)).to_dict()["cells"]
    assert (scored["concurrency"], scored["speedup_by"]) == (3, "tpot_s")
    assert scored["measured"] == pytest.approx(0.9)
    assert "throughput_tokens_per_s" not in scored["quantities"]


def test_facts_of_another_baseline_are_not_used_for_the_speedup() -> None:
    changed = load_deployment(REFERENCE, ["engine.max_model_len=4096"])
    (scored,) = validated(cell(), deployment=changed).to_dict()["cells"]
    assert scored["baseline"] is None


def test_a_baseline_run_that_speculates_is_an_error() -> None:
    with pytest.raises(InputError, match="has no cell without speculation"):
        validated(cell(), baseline=cell())


# Causes


def test_a_miss_within_the_noise_of_the_run_is_said_to_be_none() -> None:
    middle = forecast(5, 1)["speculative"]["intervals"]["tpot_s"]["p50"]
    noisy = cell(tpot_s=middle * 1.1, relative_noise=0.2, throughput_tokens_per_s=None)
    found = validated(noisy, deployment=load_deployment(REFERENCE, ["engine.max_model_len=4096"]))
    assert "no difference can be told" in causes(found, "noise")[0].text
    assert found.to_dict()["cells"][0]["within_noise"]
    exact = validated(cell(tpot_s=middle * 1.1, relative_noise=0.001))
    assert not causes(exact, "noise")


def test_other_lengths_are_a_cause_with_what_the_model_expects_of_them() -> None:
    (cause,) = causes(validated(cell(16, input_tokens=60_000)), "lengths")
    assert cause.matters
    assert cause.effect is not None
    assert cause.effect > 0.1, "a longer context takes longer"
    (same,) = causes(validated(cell(16)), "lengths")
    assert not same.matters


def test_a_server_of_another_version_is_a_cause() -> None:
    (cause,) = causes(validated(cell(), engine_version="0.32.0+cpu"), "engine-version")
    assert "predicted for engine version 0.16.0, the server runs 0.32.0+cpu" in cause.text
    assert not causes(validated(cell(), engine_version="0.16.0rc1.dev3"), "engine-version")


def test_a_server_that_drafts_otherwise_than_the_deployment_says_is_a_cause() -> None:
    (method,) = causes(validated(cell(method="suffix")), "method")
    assert "the deployment drafts by ngram, the server by suffix" in method.text
    (length,) = causes(validated(cell(k=3)), "draft-length")
    assert length.evidence == {"deployment": 5, "server": [3]}
    assert not [item for code in ("method", "draft-length") for item in causes(validated(cell()), code)]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"measured_concurrency": 2.9}, "concurrency-not-reached"),
        ({"gauges": {"waiting_max": 3.0}}, "queueing"),
        ({"gauges": {"kv_usage_max": 0.99, "waiting_max": 1.0}}, "kv-limit"),
        ({"server": {"totals": {"preemptions": 2.0}}}, "kv-limit"),
        ({"prefill_share": 0.4}, "prefill-share"),
    ],
)
def test_what_the_server_says_of_its_load_is_a_cause(change: dict, code: str) -> None:
    (cause,) = causes(validated(cell(4, **change)), code)
    assert cause.matters
    assert not [item for item in causes(validated(cell(4)), code) if item.matters]


def test_a_batch_beyond_the_largest_captured_graph_is_a_cause() -> None:
    (cause,) = causes(validated(cell(128, tpot_s=0.07)), "beyond-captured-graph")
    assert cause.evidence == {"rows": 768, "largest_captured": 512}
    assert not causes(validated(cell(64, tpot_s=0.05)), "beyond-captured-graph")


def test_a_baseline_as_predicted_leaves_the_miss_to_speculation_and_one_that_is_off_does_not() -> None:
    (right,) = causes(validated(cell(), baseline=cell(k=0, tpot_s=0.0136)), "baseline")
    assert not right.matters
    (off,) = causes(validated(cell(), baseline=cell(k=0, tpot_s=0.0200)), "baseline")
    assert off.matters
    assert "20 ms a token, 13.6 predicted" in off.text


def test_a_run_whose_own_figures_differ_is_told_to_be_too_short() -> None:
    (cause,) = causes(validated(cell(tpot_s=0.0138, step_s=0.0250)), "run-disagrees")
    assert cause.evidence["by_steps_s"] == pytest.approx(0.0250 / 1.2)
    assert not causes(validated(cell()), "run-disagrees")


def test_the_causes_of_acceptance_are_within_its_part_of_the_error() -> None:
    found = validated(cell(tpot_s=0.011, tokens_per_step=1.7))
    parts = found.to_dict()["cells"][0]["quantities"]["tpot_s"]
    assert sum(c.effect for c in found.causes if c.code in ("draft-rate", "acceptance")) == pytest.approx(
        parts["acceptance_part"]
    )


def chunks(draftless_s: float, drafted_s: float = 0.020) -> dict:
    """One user's chunks: 3,000 steps without a draft, 1,000 with one, of which half are rejected at once."""
    single_s = (3000 * draftless_s + 500 * drafted_s) / 3500
    gaps, counts = {"1": single_s, "3": drafted_s}, {"1": 3500, "3": 500}
    accepted = {"drafts": 1000.0, "steps": 4000.0, "accepted_per_position": [500.0, 500.0, 0.0, 0.0, 0.0]}
    return {"client": {"gap_by_tokens_s": gaps, "tokens_of_chunks": counts}, "acceptance": accepted}


def test_a_step_without_a_draft_is_found_behind_the_rejected_drafts() -> None:
    base = cell(k=0, tpot_s=0.0136)
    (same,) = causes(validated(cell(**chunks(0.0136)), baseline=base), "draftless-step")
    assert same.evidence["draftless_step_s"] == pytest.approx(0.0136)
    assert not same.matters
    (longer,) = causes(validated(cell(**chunks(0.0170)), baseline=base), "draftless-step")
    assert longer.evidence["draftless_step_s"] == pytest.approx(0.0170)
    assert longer.matters
    assert "25 % longer" in longer.text


def test_steps_without_a_draft_are_not_judged_where_the_data_do_not_tell() -> None:
    base = cell(k=0, tpot_s=0.0136)
    assert not causes(validated(cell(**chunks(0.017))), "draftless-step"), "no baseline run"
    assert not causes(validated(cell(), baseline=base), "draftless-step"), "no chunks"
    together = validated(cell(4, **chunks(0.017)), baseline=cell(4, 0, 0.0136))
    assert not causes(together, "draftless-step"), "others' drafts are in every step"


def requests(slope_s: float, tokens_per_step: float, count: int = 30) -> list[dict]:
    """Requests of 200 to 6,000 tokens of context whose step grows by `slope_s` a token, with some scatter."""
    found = []
    for i in range(count):
        context, output = 200.0 + 200.0 * i, 201
        step_s = 0.013 + slope_s * context + 1e-4 * (-1) ** i
        number = round(200 / tokens_per_step) + 1
        found.append(
            {
                "input_tokens": context - output / 2,
                "output_tokens": output,
                "chunks": number,
                "tpot_s": step_s * (number - 1) / (output - 1),
                "in_window": True,
            }
        )
    return found


def test_drafted_steps_that_grow_with_context_more_than_the_baselines_are_a_cause() -> None:
    counted = {"drafts": 4000.0, "steps": 4000.0, "accepted_per_position": [2000.0, 800.0, 400.0, 200.0, 100.0]}
    base = cell(k=0, tpot_s=0.0136, requests=requests(1e-7, 1.0))
    steep = cell(acceptance=counted, requests=requests(2e-6, 2.0))
    (cause,) = causes(validated(steep, baseline=base), "drafted-step-context")
    assert cause.matters
    assert cause.evidence["drafted_step_s_per_token"] == pytest.approx(2e-6, rel=0.05)
    level = cell(acceptance=counted, requests=requests(1e-7, 2.0))
    (cause,) = causes(validated(level, baseline=base), "drafted-step-context")
    assert not cause.matters
    sparse = cell(requests=requests(2e-6, 2.0))
    assert not causes(validated(sparse, baseline=base), "drafted-step-context"), "not every step drafts"


def test_a_server_that_can_force_acceptance_is_named_with_the_keys_to_add() -> None:
    newer = apply_overrides(DEPLOYMENT, ["engine.version=0.32.0"])
    steps = validated(cell(acceptance=None), deployment=newer, engine_version="0.32.0").to_dict()["next"]
    assert any('"rejection_sample_method": "synthetic", "synthetic_acceptance_rates": [' in step for step in steps)
    older = validated(cell(acceptance=None)).to_dict()["next"]
    assert not any("synthetic" in step for step in older), "0.16.0 has no such key"
    middle = validated(cell(acceptance=None), engine_version="0.19.1").to_dict()["next"]
    assert any('"synthetic_acceptance_rate": 0.' in step for step in middle), "what the server tells counts"


# Ledger and profile


def test_the_outcome_is_one_entry_for_each_prediction_and_counts_in_the_track_record(tmp_path: Path) -> None:
    path = tmp_path / "l.sqlite"
    first, second = record(path, DEPLOYMENT), record(path, DEPLOYMENT, concurrency=4)
    found = validated(cell(), cell(4, tpot_s=0.02), ledger=path, baseline=cell(k=0, tpot_s=0.0136))
    entries = outcome_entries(found, found.to_dict(), "1")
    assert {entry.prediction_id for entry in entries} == {first.prediction_id, second.prediction_id}
    with Ledger(path, writable=True) as ledger:
        for entry in entries:
            ledger.append(entry)
        summary = track_record(ledger.rows())
    assert (summary["predictions_scored"], summary["runs_scored"]) == (2, 1)
    assert summary["by_quantity"]["tpot_s"]["scored"] == 2
    assert summary["by_quantity"]["speedup"]["scored"] == 1


def test_a_fresh_prediction_is_no_track_record(tmp_path: Path) -> None:
    found = validated(cell())
    with Ledger(tmp_path / "l.sqlite", writable=True) as ledger:
        for entry in outcome_entries(found, found.to_dict(), "1"):
            ledger.append(entry)
        summary = track_record(ledger.rows())
    assert (summary["outcomes_not_blind"], summary["predictions_scored"]) == (1, 0)


def test_the_profile_that_has_seen_the_run_predicts_it_better(tmp_path: Path) -> None:
    found = validated(cell(tpot_s=0.0200), baseline=cell(k=0, tpot_s=0.0136))
    path = tmp_path / "profile.json"
    fitted = refit(found, str(path))
    fitted.answer.write(str(path))
    (row,) = fitted.to_dict(found)["cells"]
    assert abs(math.log(row["after"]["p50"] / row["measured"])) < abs(math.log(row["before"]["p50"] / row["measured"]))
    assert path.is_file()


# What is not known apart, and loads that were not reached


def test_a_cost_that_is_not_known_apart_from_acceptance_is_not_blamed() -> None:
    counted = cell(16, tpot_s=0.2)
    uncounted = counted | {"acceptance": None}
    for record_, blamed in ((counted, True), (uncounted, False)):
        steps = " ".join(validated(record_).to_dict()["next"])
        assert ("the cost of a step was off: -o" in steps) is blamed
        assert ("is not known" in steps) is not blamed


def test_requests_that_were_not_in_flight_explain_a_low_throughput() -> None:
    found = validated(cell(16, measured_concurrency=8.0), baseline=cell(16, 0, tpot_s=0.03))
    (cause,) = causes(found, "concurrency-not-reached")
    assert cause.effect == pytest.approx(math.log(0.5))
    assert "50 %" in cause.text
    assert not any("slower at concurrency" in step for step in found.to_dict()["next"])
    assert all("of speculation itself" not in item.text for item in causes(found, "baseline"))


def test_a_small_share_of_drafted_steps_is_told_from_none() -> None:
    acceptance = cell()["acceptance"] | {"drafts": 20.0, "draft_probability": 0.005}
    acceptance["accepted_per_position"] = [10, 6, 4, 3, 2]
    found = validated(cell(tokens_per_step=1.006, acceptance=acceptance))
    assert "0.5 % of the steps" in causes(found, "draft-rate")[0].text
