"""Which measurements count, as what, with which weight, and which are refused with a reason."""

from typing import Any

import pytest
from profiles import BOX, box

from calibration.questions import Question
from calibration.records import AcceptanceCounts, Evidence, MeasuredCell, StepSample
from calibration.selection import Selected, cell_sha256, select
from calibration.step_selection import take_steps
from simulator.closed_form import capacity
from simulator.deployment import load_deployment
from simulator.facts import fact_sha256
from simulator.system import build_system

COUNTS = AcceptanceCounts(100.0, (60.0, 36.0, 20.0), 300.0, 100.0, 12.0)


def cell(**fields: Any) -> MeasuredCell:
    """A baseline cell at concurrency 4."""
    known: dict[str, Any] = {"source": "a.json", "concurrency": 4.0, "num_speculative_tokens": 0, "tpot_s": 0.02}
    return MeasuredCell(**{**known, **fields})


def chosen(*cells: MeasuredCell, deployment: Any = None, known: tuple[str, ...] = ()) -> Selected:
    """What is chosen of cells on the box."""
    system = build_system(deployment or box())
    return select(system, Evidence(cells=cells), lambda method, k: 0.3, known)


def only(*cells: MeasuredCell, **options: Any) -> Question:
    """The one question of cells."""
    questions = chosen(*cells, **options).questions
    assert len(questions) == 1
    return questions[0]


def refusal(one: MeasuredCell, **options: Any) -> str:
    """Why a cell is refused; it then asks nothing."""
    found = chosen(one, **options)
    assert found.questions == []
    return found.refused[0].reason


def test_a_baseline_cell_asks_for_its_time_under_its_own_conditions() -> None:
    asked = only(cell(input_tokens=2000.0, output_tokens=500.0, num_requests=200.0))
    assert (asked.quantity, asked.value, asked.requests, asked.noise) == ("tpot", 0.02, 4.0, 0.02)
    assert (asked.setting.input_tokens, asked.setting.output_tokens, asked.context_tokens) == (2000, 500, 2250.0)
    assert asked.with_prompts
    assert asked.tokens_per_step == 1.0


@pytest.mark.parametrize("running", [0.9999, 0.9])
def test_one_user_whose_requests_leave_gaps_is_one_request(running: float) -> None:
    asked = only(cell(concurrency=running))
    assert (asked.requests, asked.with_prompts) == (1.0, False)
    assert "how many requests" in refusal(cell(concurrency=0.0))


def test_what_the_source_does_not_tell_is_the_workloads() -> None:
    asked = only(cell())
    assert (asked.setting.input_tokens, asked.setting.output_tokens, asked.context_tokens) == (1000, 1000, 1500.0)
    assert only(cell(context_tokens=300.0)).context_tokens == 300.0


def test_times_of_one_cell_count_once_the_most_direct_first() -> None:
    assert only(cell(step_s=0.02, throughput_tokens_per_s=190.0)).quantity == "tpot"
    assert only(cell(tpot_s=None, step_s=0.02, throughput_tokens_per_s=190.0)).quantity == "step"
    assert only(cell(tpot_s=None, throughput_tokens_per_s=190.0)).quantity == "throughput"


def test_a_known_prefill_share_is_taken_off_the_time() -> None:
    asked = only(cell(prefill_share=0.1))
    assert asked.value == pytest.approx(0.018)
    assert not asked.with_prompts


def test_a_lone_request_meets_no_prompt_of_others() -> None:
    assert not only(cell(concurrency=1.0)).with_prompts


@pytest.mark.parametrize(
    ("fields", "noise"),
    [
        ({"relative_noise": 0.04}, 0.04),
        ({"relative_noise": 1e-4}, 0.005),
        ({"num_requests": 200.0}, 0.02),
        ({"num_requests": 800.0}, 0.01),
        ({"num_requests": 1e9}, 0.01),
        ({"num_requests": 2.0}, 0.06),
        ({}, 0.03),
    ],
)
def test_weight_follows_the_noise_stated_or_usual_for_so_many_requests(fields: dict[str, Any], noise: float) -> None:
    assert only(cell(**fields)).noise == pytest.approx(noise)


def test_a_share_of_allreduce_is_a_question_of_its_own() -> None:
    both = chosen(cell(allreduce_share=0.4)).questions
    assert [q.quantity for q in both] == ["tpot", "allreduce_share"]
    assert both[1].observation().value == pytest.approx(-0.4054651, abs=1e-6)
    assert both[1].natural(-0.4054651) == pytest.approx(0.4, abs=1e-6)
    alone = box(engine={"tensor_parallel_size": 1})
    assert "tensor_parallel_size is 1" in refusal(cell(tpot_s=None, allreduce_share=0.4), deployment=alone)
    assert "above 0" in refusal(cell(tpot_s=None, allreduce_share=1.0))


# ---- drafts


def test_a_drafted_cell_knows_its_length_and_tokens_per_step() -> None:
    asked = only(cell(num_speculative_tokens=3, method="eagle3", tokens_per_step=2.1))
    assert (asked.setting.method, asked.setting.num_speculative_tokens, asked.tokens_per_step) == ("eagle3", 3, 2.1)
    assert asked.draft_probability == 1.0


@pytest.mark.parametrize(
    ("fields", "tokens"),
    [
        ({"tokens_per_step": 2.1}, 2.1),
        ({"step_s": 0.05}, 2.5),
        ({"acceptance": COUNTS}, 2.16),
        ({"acceptance": AcceptanceCounts(100.0, (60.0, 36.0, 20.0))}, 2.16),
        ({}, None),
    ],
)
def test_tokens_per_step_come_from_whatever_tells_them(fields: dict[str, Any], tokens: float | None) -> None:
    asked = only(cell(num_speculative_tokens=3, method="eagle3", **fields))
    assert asked.tokens_per_step == (tokens if tokens is None else pytest.approx(tokens))


def test_where_tokens_per_step_are_unknown_the_step_says_more_than_tpot() -> None:
    asked = only(cell(num_speculative_tokens=3, method="eagle3", tpot_s=None, step_s=0.05))
    assert asked.quantity == "step"


def test_text_lookup_drafts_on_the_counted_share_of_steps() -> None:
    ngram = {"num_speculative_tokens": 3, "method": "ngram"}
    counts = AcceptanceCounts(20.0, (10.0, 5.0, 2.0), 60.0, 100.0)
    assert only(cell(**ngram, tokens_per_step=1.2)).draft_probability == 0.3  # nobody counted: as elsewhere known
    assert only(cell(**ngram, acceptance=counts)).draft_probability == pytest.approx(0.2)
    assert only(cell(**ngram, draft_probability=0.15, tokens_per_step=1.1)).draft_probability == 0.15
    assert only(cell(**ngram, acceptance=counts)).tokens_per_step == pytest.approx(1.17)
    uncounted = AcceptanceCounts(20.0, (10.0, 5.0, 2.0))
    assert only(cell(**ngram, acceptance=uncounted)).tokens_per_step is None


def test_counts_are_kept_pooled_by_method_and_length() -> None:
    drafted = {"num_speculative_tokens": 3, "method": "eagle3"}
    found = chosen(
        cell(**drafted, acceptance=COUNTS),
        cell(**drafted, concurrency=8.0, acceptance=COUNTS),
        cell(num_speculative_tokens=1, method="eagle3", acceptance=AcceptanceCounts(50.0, (30.0,))),
    ).acceptance
    assert [(a.num_speculative_tokens, a.drafts, a.steps) for a in found] == [(3, 200.0, 200.0), (1, 50.0, None)]
    assert found[0].accepted_per_position == (120.0, 72.0, 40.0)


def test_counts_without_a_time_or_a_load_are_kept_all_the_same() -> None:
    found = chosen(MeasuredCell("log", num_speculative_tokens=3, method="eagle3", acceptance=COUNTS))
    assert found.acceptance[0].drafts == 100.0
    assert found.questions == []
    assert found.refused == []


def test_counts_never_increase_even_where_scrapes_do_by_a_hair() -> None:
    uneven = AcceptanceCounts(100.0, (60.0, 60.4, 20.0))
    found = chosen(cell(num_speculative_tokens=3, method="eagle3", acceptance=uneven)).acceptance
    assert found[0].accepted_per_position == (60.0, 60.0, 20.0)


def test_the_draft_length_is_that_of_the_counted_positions_where_it_is_not_told() -> None:
    asked = only(cell(num_speculative_tokens=None, method="eagle3", acceptance=COUNTS))
    assert asked.setting.num_speculative_tokens == 3


def test_an_untold_draft_length_without_signs_of_drafts_is_the_baseline_and_said_once() -> None:
    found = chosen(*(cell(num_speculative_tokens=None, concurrency=float(c)) for c in (1, 2, 4)))
    assert [q.setting.num_speculative_tokens for q in found.questions] == [0, 0, 0]
    assert [note for note in found.notes if "taken as the baseline" in note] == [
        "a.json and 2 more: whether requests drafted is not told; taken as the baseline"
    ]


def test_as_many_requests_as_the_engine_runs_are_taken() -> None:
    assert only(cell(concurrency=1024.0, tpot_s=0.1)).requests == 1024.0
    two = box(engine={"data_parallel_size": 2}, hardware={"num_gpus": 4})
    assert only(cell(concurrency=2048.0, tpot_s=0.1), deployment=two).requests == 2048.0
    stated = box(engine={"max_num_seqs": 4})
    assert only(cell(), deployment=stated).requests == 4.0
    assert "runs 4 at most" in refusal(cell(concurrency=5.0), deployment=stated)


# ---- refused


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"concurrency": None}, "how many requests ran at once"),
        ({"concurrency": 0.2}, "how many requests ran at once"),
        ({"engine": "sglang"}, "measured on sglang, the deployment runs vllm"),
        ({"model": "meta-llama/Llama-3.1-8B-Instruct"}, "measured with model meta-llama/Llama-3.1-8B-Instruct"),
        ({"tpot_s": 1e4}, "a time outside 0 to 600 s"),
        ({"tpot_s": 15.0, "step_s": None}, "is the unit right, and is it this machine?"),
        ({"tpot_s": None, "throughput_tokens_per_s": 0.4}, "is the unit right, and is it this machine?"),
        ({"concurrency": 4096.0, "tpot_s": 0.2}, "of which the engine runs 1024 at most (max_num_seqs)"),
        ({"num_speculative_tokens": None, "tokens_per_step": 2.0}, "does not tell how many tokens"),
        ({"num_speculative_tokens": 3, "method": "magic", "tokens_per_step": 2.0}, "tells the method"),
    ],
)
def test_what_belongs_to_something_else_or_lacks_its_load_is_refused(fields: dict[str, Any], reason: str) -> None:
    assert reason in refusal(cell(**fields))


def test_a_served_name_that_matches_no_card_is_asked_about_once() -> None:
    found = chosen(*(cell(model="prod-chat", concurrency=float(c)) for c in (1, 2)))
    asked = [note for note in found.notes if "matches no card" in note]
    assert len(asked) == 1
    assert asked[0].startswith("a.json (prod-chat) and 1 more: is that qwen3-30b-a3b-bf16?")
    assert not [note for note in chosen(cell(model="Qwen/Qwen3-30B-A3B")).notes if "matches no card" in note]


def test_a_served_name_of_the_operators_own_is_no_reason_to_refuse() -> None:
    for name in ("prod-chat", "Qwen/Qwen3-30B-A3B", "Qwen3-30B-A3B-Instruct-2507", "/models/my-finetune"):
        assert chosen(cell(model=name)).refused == []


def test_drafts_without_a_method_anywhere_are_refused() -> None:
    none = load_deployment({**BOX, "speculation": {"method": "none"}})
    assert "tells the method" in refusal(cell(num_speculative_tokens=3, tokens_per_step=2.0), deployment=none)


# ---- once


def test_the_same_measurement_in_another_file_counts_once() -> None:
    found = chosen(cell(), cell(source="b.jsonl", notes=("other words",)))
    assert len(found.questions) == 1
    assert "b.jsonl: counted already" in found.notes[0]
    assert cell_sha256(cell()) == cell_sha256(cell(source="b.jsonl"))
    assert cell_sha256(cell()) != cell_sha256(cell(tpot_s=0.021))


def test_what_an_earlier_profile_has_seen_counts_no_more() -> None:
    found = chosen(cell(), known=(cell_sha256(cell()),))
    assert found.questions == []
    assert found.cells_sha256 == []


def test_facts_of_the_deployment_file_are_measurements_too() -> None:
    told = load_deployment({**BOX, "measured": [{"concurrency": 1, "tpot_ms": 10.0, "allreduce_share": 0.3}]})
    found = chosen(deployment=told)
    assert next((q.quantity, q.value, q.noise) for q in found.questions) == ("tpot", 0.01, 0.01)
    assert found.questions[1].quantity == "allreduce_share"
    assert found.facts_sha256 == [fact_sha256(told.measured[0])]
    again = chosen(deployment=told, known=tuple(found.facts_sha256))
    assert again.questions == []


def test_the_cache_size_is_the_engines_log_else_the_deployments() -> None:
    told = load_deployment({**BOX, "measured": [{"concurrency": 1, "kv_cache_tokens": 7_000}]})
    assert chosen(cell(kv_cache_tokens=9_000.0), deployment=told).kv_cache_tokens == 9_000.0
    assert chosen(deployment=told).kv_cache_tokens == 7_000.0
    drafted = cell(num_speculative_tokens=3, method="eagle3", tokens_per_step=2.0, kv_cache_tokens=5_000.0)
    assert chosen(drafted).kv_cache_tokens is None  # a drafter takes its share: not the baseline's


# ---- single iterations


def steps(*samples: tuple[float, float, float, float], deployment: Any = None) -> Selected:
    """What is chosen of iterations (tokens, requests, prompt tokens, seconds), each ten times."""
    found = Selected()
    given = [StepSample("log", *sample, count=10) for sample in samples]
    take_steps(build_system(deployment or box()), given, found)
    return found


def test_iterations_are_pooled_by_requests_and_rows() -> None:
    found = steps((4, 4, 0, 0.010), (4, 4, 0, 0.012), (64, 64, 0, 0.03))
    assert [(q.requests, q.setting.num_speculative_tokens) for q in found.questions] == [(4.0, 0), (64.0, 0)]
    assert found.questions[0].value == pytest.approx((0.010 * 0.012) ** 0.5, rel=1e-3)
    assert all(q.quantity == "step" and not q.with_prompts for q in found.questions)


def test_iterations_with_prompts_and_rare_ones_are_left_out_and_said() -> None:
    found = Selected()
    given = [
        StepSample("log", 500, 4, 496, 0.1, 10),
        StepSample("log", 4, 4, 0, 0.01, 10),
        StepSample("log", 9, 9, 0, 0.01),
    ]
    take_steps(build_system(box()), given, found)
    assert len(found.questions) == 1
    assert any("1 iterations with prompt rows" in note for note in found.notes)
    assert any("1 kinds of iteration occur less than 3 times" in note for note in found.notes)


def test_more_tokens_than_requests_are_drafts() -> None:
    found = steps((16, 4, 0, 0.02))
    assert [(q.setting.num_speculative_tokens, q.draft_probability) for q in found.questions] == [(3, 1.0)]
    ngram = load_deployment({**BOX, "speculation": {"method": "ngram", "num_speculative_tokens": 3}})
    some = steps((10, 4, 0, 0.02), (4, 4, 0, 0.01), deployment=ngram).questions
    assert [(q.setting.num_speculative_tokens, q.draft_probability) for q in some] == [(3, 0.5), (3, 0.0)]


def test_drafted_iterations_without_a_method_are_refused() -> None:
    none = load_deployment({**BOX, "speculation": {"method": "none"}})
    found = steps((16, 4, 0, 0.02), deployment=none)
    assert found.questions == []
    assert "names no method" in found.refused[0].reason


def test_the_slowest_and_the_fastest_tenth_do_not_count() -> None:
    found = Selected()
    times = [0.010] * 18 + [0.2, 0.0001]
    take_steps(build_system(box()), [StepSample("log", 4, 4, 0, t) for t in times], found)
    assert found.questions[0].value == pytest.approx(0.010, rel=1e-6)


def test_groups_left_out_together_are_quarters_of_an_octave() -> None:
    assert only(cell(concurrency=64.0)).group == "C=64"
    assert only(cell(concurrency=62.7)).group == "C=64"
    assert only(cell(concurrency=48.0)).group != "C=64"


def test_a_cache_of_another_size_than_the_model_expects_is_noted() -> None:
    held = capacity(build_system(box()), 0).memory.kv_cache_tokens
    for tokens, strange in ((0.9 * held, False), (1.9 * held, False), (0.3 * held, True), (3.0 * held, True)):
        notes = chosen(cell(kv_cache_tokens=tokens)).notes
        assert any("the server logged a KV cache of" in note for note in notes) is strange


def test_counters_with_a_draft_on_every_step_are_asked_about_where_the_lookup_needs_a_match() -> None:
    def notes(drafts: float, version: str) -> str:
        lookup = {"method": "ngram", "num_speculative_tokens": 3}
        engine = {**BOX["engine"], "version": version}
        counts = AcceptanceCounts(drafts, (600.0, 360.0, 200.0), 3.0 * drafts, 1000.0, 12.0)
        one = cell(num_speculative_tokens=3, method=None, acceptance=counts)
        deployment = load_deployment({**BOX, "speculation": lookup, "engine": engine})
        return " ".join(chosen(one, deployment=deployment).notes)

    assert "is it a run of ngram?" in notes(1000.0, "0.16.0")
    assert "is it a run" not in notes(700.0, "0.16.0")
    assert "is it a run" not in notes(1000.0, "0.32.0")  # runner V2 drafts on every step
