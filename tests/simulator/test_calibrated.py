"""A profile in use: what it says where it holds, what carries over to another machine, and whose word counts."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from profiles import BOX, box, profile_of

from hwmodel.errors import InputError
from hwmodel.residual import NUM_LOG_FACTORS, NUM_ROW_KNOTS, ROW_KNOTS
from simulator.calibrated import pooled, stated_sha256
from simulator.closed_form import Cell
from simulator.deployment import Deployment, apply_overrides, load_deployment, with_method
from simulator.deployment.load import with_profile
from simulator.facts import fact_sha256
from simulator.misfit import Misfit
from simulator.predict import predict, whatif
from simulator.profile import CONSTANT_SHARE, SCATTER_SHARE, Anchor, MeasuredCurve, PooledAcceptance, Profile
from simulator.serving.run import simulate
from simulator.study import Study, build_study


def study(deployment: Deployment, profile: Profile | None, num_draws: int = 400) -> Study:
    """The study of a deployment with a profile."""
    return build_study(with_profile(deployment, profile), k_max=3, num_draws=num_draws)


def value(of: Study, name: str) -> float:
    """A parameter at the posterior median, SI units."""
    return float(np.ravel(getattr(of.point_parameters, name))[0])


def step_s(of: Study, k: int, concurrency: int) -> float:
    """The step at the posterior median."""
    grid = of.grid([Cell(k, concurrency)], point=True)
    return float((grid.speculative if k else grid.baseline).step_s[0, 0])


def notes(of: Study) -> str:
    """All notes of the study."""
    return " | ".join(of.notes)


def test_parameters_of_the_profile_replace_the_priors() -> None:
    plain, found = study(box(), None), study(box(), profile_of(box(), {"host_step_ms": 2.0}))
    assert value(found, "host_step_s") == pytest.approx(value(plain, "host_step_s") * np.exp(0.6 * 2.0))
    spread = np.std(np.log(found.parameters.host_step_s)) / np.std(np.log(plain.parameters.host_step_s))
    assert spread == pytest.approx(0.1, rel=0.2)
    assert "parameters from a profile of 2026-01-02" in notes(found)


MISFIT = Misfit(3, 0, False, "TPOT at C=4, context 1500", -0.79, 0.05, 0.6, 9.8)


def test_what_the_measurements_missed_is_said_by_every_answer_where_it_holds() -> None:
    profile = profile_of(box(), misfit=MISFIT)
    deployment = with_profile(box(), profile)
    assert MISFIT.sentence() in predict(deployment, num_draws=100).notes
    assert whatif(deployment, {"workload.input_tokens": [100, 200]}, num_draws=100).notes == (MISFIT.sentence(),)
    elsewhere = whatif(deployment, {"hardware.interconnect": ["pcie-root"]}, num_draws=100)
    assert elsewhere.notes == ()  # neither the residual nor its error holds there
    for said in (
        "0 of 3 lie",
        "that the other loads leave them",
        "predicted -79 %",
        "60 % instead of 5 %",
        "9.8 times",
    ):
        assert said in MISFIT.sentence()


def test_a_profile_at_the_priors_changes_no_point_value() -> None:
    plain, found = study(box(), None), study(box(), profile_of(box()))
    for cell in (0, 1), (3, 1), (3, 8):
        assert step_s(found, *cell) == pytest.approx(step_s(plain, *cell), rel=1e-9)


def test_residual_at_t_rows_lengthens_every_step_of_t_rows_drafted_or_not() -> None:
    factors = np.zeros(NUM_LOG_FACTORS)
    factors[list(ROW_KNOTS).index(32)] = 0.1
    plain, found = study(box(), None), study(box(), profile_of(box(), log_factors=factors))
    assert step_s(found, 0, 32) == pytest.approx(step_s(plain, 0, 32) * np.exp(0.1), rel=1e-6)
    assert step_s(found, 0, 8) == pytest.approx(step_s(plain, 0, 8), rel=1e-9)
    parts = plain.grid([Cell(3, 8)], point=True).speculative.parts_s
    own = sum(float(parts[name][0, 0]) for name in ("speculation_overhead", "verify_path", "drafter"))
    expected = (step_s(plain, 3, 8) - own) * np.exp(0.1) + own  # 8 requests with 3 drafts are 32 rows
    assert step_s(found, 3, 8) == pytest.approx(expected, rel=1e-6)


def test_factor_of_drafted_steps_leaves_the_baseline_alone() -> None:
    factors = np.zeros(NUM_LOG_FACTORS)
    factors[-1] = 0.2
    plain, found = study(box(), None), study(box(), profile_of(box(), log_factors=factors, method="eagle3"))
    assert step_s(found, 0, 8) == pytest.approx(step_s(plain, 0, 8), rel=1e-9)
    drafter = float(plain.grid([Cell(3, 8)], point=True).speculative.parts_s["drafter"][0, 0])
    expected = (step_s(plain, 3, 8) - drafter) * np.exp(0.2) + drafter
    assert step_s(found, 3, 8) == pytest.approx(expected, rel=1e-6)


def test_parts_still_add_up_to_the_step() -> None:
    found = study(box(), profile_of(box(), log_factors=0.05, method="eagle3"))
    arm = found.grid([Cell(3, 8)], point=True).speculative
    assert sum(float(part[0, 0]) for part in arm.parts_s.values()) == pytest.approx(float(arm.step_s[0, 0]))


def test_what_was_learned_of_one_method_is_unlearned_for_another() -> None:
    factors = np.zeros(NUM_LOG_FACTORS)
    factors[-1] = 0.2
    other, _ = with_method(box(), "mtp")
    found = study(other, profile_of(box(), log_factors=factors, method="eagle3"), 4000)
    assert found.residual is not None
    assert found.residual.drafted.mean() == pytest.approx(0.0, abs=0.01)
    assert found.residual.drafted.std() == pytest.approx(CONSTANT_SHARE * 0.05, rel=0.1)
    assert "does not hold for mtp" in notes(found)


def test_without_runs_that_draft_constant_and_scatter_add_up_to_the_model_error() -> None:
    assert pytest.approx(1.0) == CONSTANT_SHARE**2 + SCATTER_SHARE**2


def test_draws_agree_with_the_measured_steps_as_well_as_the_fit_says() -> None:
    # Each parameter alone is known to 60 % of its prior; together they were measured to 1 % at one load.
    base = step_s(study(box(), None), 0, 1)
    profile = profile_of(box())
    wide = replace(profile, covariance=36.0 * profile.covariance)
    loose = study(box(), wide)
    tight = study(box(), replace(wide, anchors=(Anchor(1.0, 1500.0, base, 0.02, 0.01),)))
    drawn = [np.log(s.grid([Cell(0, 1)], point=False).baseline.step_s[:, 0]) for s in (loose, tight)]
    assert drawn[0].std() > 0.1
    assert drawn[1].std() == pytest.approx(0.01, rel=0.3)
    assert np.median(drawn[1]) == pytest.approx(np.log(base), abs=0.004)
    spread = np.std(tight.parameters.kernel_floor_s) / np.std(loose.parameters.kernel_floor_s)
    assert 0.5 < spread < 1.1  # the parameters stay as open as they were


def test_kv_cache_size_of_the_profile_counts_unless_a_fact_states_one() -> None:
    profile = profile_of(box(), kv_cache_tokens=12_345.0)
    assert study(box(), profile).kv_cache_tokens == 12_345.0
    told = load_deployment({**BOX, "measured": [{"concurrency": 1, "kv_cache_tokens": 99_000}]})
    assert study(told, profile).kv_cache_tokens == 99_000.0


# ---- what was measured elsewhere


@pytest.mark.parametrize(
    ("change", "kept", "lost"),
    [
        ({"engine": {"tensor_parallel_size": 4}}, ("stickiness", "kernel_floor_us"), ("allreduce_skew_us",)),
        ({"engine": {"kv_cache_dtype": "fp8"}}, ("stickiness", "allreduce_skew_us"), ("model_error",)),
        ({"engine": {"attention_backend": "TRITON_ATTN"}}, ("kernel_floor_us",), ("attention_latency_us",)),
        ({"model": {"config": "qwen3-8b-bf16"}}, ("kernel_floor_us", "allreduce_skew_us"), ("stickiness",)),
        ({"hardware": {"gpu": "l40s"}}, ("stickiness",), ("kernel_floor_us", "allreduce_skew_us")),
        ({"engine": {"name": "sglang", "version": None}}, ("stickiness",), ("host_step_ms", "allreduce_skew_us")),
        ({"hardware": {"interconnect": "pcie-root"}}, ("kernel_floor_us",), ("allreduce_skew_us",)),
    ],
)
def test_each_parameter_carries_over_with_what_it_describes(
    change: dict[str, Any], kept: tuple[str, ...], lost: tuple[str, ...]
) -> None:
    names = (*kept, *lost)
    profile = profile_of(box(), dict.fromkeys(names, 1.0))
    other = box(**{table: {key: v for key, v in keys.items()} for table, keys in change.items()})
    found = study(other, profile)
    place = {prior.name: i for i, prior in enumerate(found.system.priors.priors)}
    assert [float(found.posterior.mode[place[name]]) for name in kept] == [1.0] * len(kept)
    assert [float(found.posterior.mode[place[name]]) for name in lost] == [0.0] * len(lost)
    assert found.residual is None
    assert "measured elsewhere" in notes(found)


def test_another_version_of_the_engine_keeps_everything_but_the_residual() -> None:
    profile = profile_of(box(), {"host_step_ms": 1.0}, log_factors=0.1, kv_cache_tokens=9_999.0)
    found = study(box(engine={"version": "0.17.0"}), profile)
    assert found.residual is None
    assert found.kv_cache_tokens == 9_999.0
    assert "engine version 0.17.0 instead of 0.16.0" in notes(found)


def test_another_machine_and_another_model_are_refused_in_one_line() -> None:
    other = box(hardware={"gpu": "h100-sxm", "interconnect": "nvswitch"}, model={"config": "qwen3-8b-bf16"})
    with pytest.raises(InputError, match="allowed: a profile of the same model, or of the same GPU") as caught:
        study(other, profile_of(box()))
    assert "h100-sxm" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_whatif_keeps_the_profile_for_the_variants_it_holds_for() -> None:
    profile = profile_of(box(), log_factors=0.1)
    rows = whatif(with_profile(box(), profile), {"workload.output_tokens": [500, 1000]}, num_draws=100).rows
    assert all(row.prediction is not None for row in rows)
    plain = predict(apply_overrides(box(), ["workload.output_tokens=500"]), num_draws=100)
    assert rows[0].prediction is not None
    assert rows[0].prediction.baseline.step_s == pytest.approx(
        plain.baseline.step_s * np.exp(0.2), rel=1e-6
    )  # by rows, by requests


# ---- whose word counts


def test_a_parameter_that_the_deployment_states_is_the_deployments() -> None:
    profile = profile_of(box(), {"host_step_ms": 2.0})
    stated = load_deployment({**BOX, "parameters": {"host_step_ms": 0.7}})
    found = study(stated, profile)
    assert value(found, "host_step_s") == pytest.approx(0.7e-3)
    assert "host_step_ms: as the deployment states" in notes(found)


def test_a_parameter_that_was_stated_already_when_the_profile_was_made_is_the_profiles() -> None:
    stated = load_deployment({**BOX, "parameters": {"host_step_ms": {"median": 0.7, "log_sd": 0.5}}})
    found = study(stated, profile_of(stated, {"host_step_ms": 1.0}))
    assert value(found, "host_step_s") == pytest.approx(0.7e-3 * np.exp(0.5))
    assert "as the deployment states" not in notes(found)


def test_facts_that_the_profile_has_seen_are_not_counted_again() -> None:
    told = load_deployment({**BOX, "measured": [{"concurrency": 1, "tpot_ms": 30.0}]})
    seen = profile_of(told, facts_sha256=tuple(fact_sha256(fact) for fact in told.measured))
    assert step_s(study(told, seen), 0, 1) == pytest.approx(step_s(study(box(), None), 0, 1), rel=1e-9)


def test_a_fact_stated_since_narrows_what_the_profile_leaves_open() -> None:
    prior = step_s(study(box(), None), 0, 1)
    told = load_deployment({**BOX, "measured": [{"concurrency": 1, "tpot_ms": 1.1e3 * prior}]})
    found = study(told, profile_of(box()))
    assert 1.02 * prior < step_s(found, 0, 1) < 1.1 * prior
    before = study(box(), profile_of(box()))
    assert np.linalg.slogdet(found.posterior.factor)[1] < np.linalg.slogdet(before.posterior.factor)[1]


def test_counted_acceptance_replaces_the_prior_and_what_was_stated_before_it() -> None:
    counted = PooledAcceptance("eagle3", 3, 5000.0, (4000.0, 3200.0, 2560.0), 5000.0, 40.0)
    unstated = load_deployment({**BOX, "speculation": {"method": "eagle3", "num_speculative_tokens": 3}})
    assert study(unstated, profile_of(unstated, acceptance=(counted,))).acceptance.median_survival[0] == pytest.approx(
        [0.8, 0.64, 0.512]
    )
    stated = box().speculation.acceptance
    known = profile_of(box(), acceptance=(counted,), stated_acceptance=stated_sha256(stated))
    assert study(box(), known).acceptance.median_survival[0, 0] == pytest.approx(0.8)


def test_acceptance_stated_after_the_profile_is_the_deployments() -> None:
    counted = PooledAcceptance("eagle3", 3, 5000.0, (4000.0, 3200.0, 2560.0), 5000.0, 40.0)
    found = study(box(), profile_of(box(), acceptance=(counted,)))
    assert found.acceptance.median_survival[0, 0] == pytest.approx(0.6)
    assert "acceptance as the deployment states it" in notes(found)


def test_acceptance_of_another_method_is_left_alone() -> None:
    counted = PooledAcceptance("mtp", 3, 5000.0, (4000.0, 3200.0, 2560.0), 5000.0, 40.0)
    assert study(box(), profile_of(box(), acceptance=(counted,))).acceptance.median_survival[0, 0] == pytest.approx(0.6)


def test_counts_of_several_draft_lengths_are_pooled_by_position() -> None:
    # k = 1: 80 of 100; k = 3: 40 of 100, then half, then half. Position 1 from both, the others from k = 3.
    one = PooledAcceptance("eagle3", 1, 100.0, (80.0,), 100.0, 5.0)
    three = PooledAcceptance("eagle3", 3, 100.0, (40.0, 20.0, 10.0), 100.0, 5.0)
    both = pooled([one, three])
    assert both.accepted_per_position == pytest.approx((120.0, 60.0, 30.0))
    assert (both.drafts, both.steps, both.num_requests) == (200.0, 200.0, 10.0)
    assert pooled([one, replace(three, steps=None)]).steps is None


def test_lookup_counts_of_several_draft_lengths_are_pooled_at_the_longest() -> None:
    # 900 steps without a draft, and 300 tokens of drafted steps: as 100 drafts of three that accept 2 each, or, in
    # another run, as 150 drafts of one that all are accepted.
    three = PooledAcceptance("ngram", 3, 100.0, (100.0, 60.0, 40.0), 1000.0, 5.0)
    one = PooledAcceptance("ngram", 1, 150.0, (150.0,), 1050.0, 5.0)
    both = pooled([one, three])
    assert sum(both.accepted_per_position) / both.drafts == pytest.approx(2.0)
    assert both.drafts / (both.steps or 0.0) == pytest.approx(0.1)
    assert pooled([three]).steps == pytest.approx(1000.0)


def test_the_measured_curve_replaces_the_table_and_its_priors() -> None:
    curve = MeasuredCurve((1024.0, 1048576.0), (30e-6, 300e-6), 2, "nccl.txt")
    with_curve = study(box(), profile_of(box(), curve=curve))
    assert with_curve.system.machine.allreduce.kind == "user"
    assert float(with_curve.system.machine.allreduce.time_s(1024.0)) == pytest.approx(30e-6)
    four = study(box(engine={"tensor_parallel_size": 4}), profile_of(box(), curve=curve))
    assert four.system.machine.allreduce.kind != "user"


def test_settings_of_the_profile_hold_where_the_deployment_says_nothing() -> None:
    found = study(box(), profile_of(box(), settings={"allreduce_algorithm": "one-shot"}))
    assert found.deployment.hardware.allreduce_algorithm == "one-shot"
    assert "one-shot" in found.system.machine.allreduce.algorithms
    stated = box(hardware={"allreduce_algorithm": "nccl"})
    other = study(stated, profile_of(stated, settings={"allreduce_algorithm": "one-shot"}))
    assert other.deployment.hardware.allreduce_algorithm == "nccl"
    assert "fitted with another allreduce_algorithm" in notes(other)


def test_a_changed_cost_model_is_noticed() -> None:
    now = step_s(study(box(), None), 0, 1)
    anchors = (Anchor(1.0, 1500.0, now, 0.01, 0.01),)
    assert "another version of the cost model" not in notes(study(box(), profile_of(box(), anchors=anchors)))
    moved = (Anchor(1.0, 1500.0, now * 1.1, 0.01, 0.01),)
    assert "another version of the cost model" in notes(study(box(), profile_of(box(), anchors=moved)))


# ---- every command


def test_the_answer_says_which_profile_it_used() -> None:
    profile = replace(profile_of(box()), sha256="abc")
    plain, found = predict(box(), num_draws=100), predict(with_profile(box(), profile), num_draws=100)
    assert found.inputs["profile"] == {"created": "2026-01-02T03:04:05+00:00", "sha256": "abc"}
    assert "profile" not in plain.inputs
    assert found.prediction_id != plain.prediction_id


def test_overrides_and_methods_keep_the_profile() -> None:
    profile = profile_of(box())
    deployment = with_profile(box(), profile)
    assert apply_overrides(deployment, ["workload.output_tokens=500"]).profile is profile
    assert with_method(deployment, "mtp")[0].profile is profile
    assert box().profile is None


def test_a_simulated_run_takes_the_residual_at_the_median_and_by_draw() -> None:
    factors = np.zeros(NUM_LOG_FACTORS)
    factors[:NUM_ROW_KNOTS] = 0.2
    quick: dict[str, Any] = {"arrivals": "closed:2", "num_requests": 8, "num_speculative_tokens": 3}
    small = box(workload={"input_tokens": 1, "output_tokens": 50})
    calibrated = with_profile(small, profile_of(small, log_factors=factors))
    plain, slow = simulate(small, **quick).to_dict(), simulate(calibrated, **quick).to_dict()
    assert slow["baseline"]["step_s"] == pytest.approx(plain["baseline"]["step_s"] * np.exp(0.2), rel=1e-3)
    drawn = simulate(calibrated, num_draws=4, **quick).to_dict()
    assert drawn["inputs"]["profile"]["created"].startswith("2026")
