"""`vllm bench serve` results: what a time means, which load really ran, and what must be refused."""

import json
import math

import pytest
from recorded import RESULT, SPECULATIVE

from calibration.readers.read import read_evidence
from hwmodel.errors import InputError


def _read(tmp_path, *results, name="result.json", joined="\n"):
    path = tmp_path / name
    path.write_text(joined.join(json.dumps(result) for result in results))
    return read_evidence([path])


def _cell(tmp_path, **changes):
    evidence = _read(tmp_path, RESULT | changes)
    assert not evidence.refused
    return evidence.cells[0]


def _reason(tmp_path, **changes):
    evidence = _read(tmp_path, RESULT | changes)
    assert not evidence.cells
    assert len(evidence.refused) == 1
    assert "\n" not in evidence.refused[0].reason
    return evidence.refused[0].reason


def test_a_plain_result_is_a_cell_in_si_units(tmp_path):
    cell = _cell(tmp_path)
    assert (cell.concurrency, cell.tpot_s, cell.ttft_s) == (4, pytest.approx(0.010), pytest.approx(0.050))
    assert (cell.input_tokens, cell.output_tokens, cell.context_tokens) == (100, 101, 150.5)
    assert cell.throughput_tokens_per_s == 384.8
    assert (cell.engine, cell.model, cell.num_requests) == ("vllm", "org/m", 40)
    assert cell.num_speculative_tokens is None  # a file without counters may come from a server that speculates


def test_with_speculation_the_gap_between_chunks_is_the_step_and_tpot_is_not(tmp_path):
    cell = _cell(tmp_path, **SPECULATIVE)
    assert cell.tpot_s == pytest.approx(0.010)
    assert cell.step_s == pytest.approx(0.020)
    assert cell.tokens_per_step == pytest.approx(2.0)
    assert cell.num_speculative_tokens == 2
    assert cell.acceptance.accepted_per_position == pytest.approx((1200, 800))
    assert cell.acceptance.drafts == 2000
    assert cell.draft_probability == pytest.approx(1.0)


def test_the_shared_example_has_fewer_tokens_per_step_than_its_acceptance_length():
    cell = read_evidence(["tests/data/measurements/bench_serve_result_example.json"]).cells[0]
    assert cell.tokens_per_step == pytest.approx(1.67, abs=0.01)  # not the 2.98 of a drafted step
    assert cell.draft_probability == pytest.approx(0.34, abs=0.005)
    assert any("34 % of the decode steps" in note for note in cell.notes)
    assert cell.prefill_share is None  # gaps of two kinds: their median is no plain step


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"max_concurrent_requests": 2}, "at most 2 ever ran together"),
        ({"duration": 21.0}, "2 were in flight on average"),
        ({"num_prompts": 3, "completed": 3, "duration": 1.0}, "only 3 requests were made"),
        ({"mean_ttft_ms": 1000.0, "duration": 20.0}, "only 2 were decoding on average"),
        ({"failed": 10, "completed": 40, "num_prompts": 50}, "10 of 50 requests failed"),
        ({"completed": 0}, "no request completed"),
        ({"total_output_tokens": 40 * 4}, "outputs of 4 tokens"),
        ({"mean_tpot_ms": 0.0}, "no time per output token"),
        ({"mean_tpot_ms": math.nan}, "no time per output token"),
        ({"mean_tpot_ms": 1e-9}, "another unit?"),
        ({"median_itl_ms": 4.0}, "60 % of the time between tokens"),
    ],
)
def test_what_did_not_run_as_asked_is_refused_with_the_reason(tmp_path, changes, words):
    assert words in _reason(tmp_path, **changes)


def test_a_peak_at_the_asked_for_concurrency_proves_nothing(tmp_path):
    assert "in flight on average" in _reason(tmp_path, max_concurrent_requests=4, duration=21.0)


def test_an_old_result_without_the_failed_key_counts_the_prompts_that_did_not_complete(tmp_path):
    old = {key: value for key, value in RESULT.items() if key != "failed"} | {"num_prompts": 50}
    assert "10 of 50 requests failed" in _read(tmp_path, old).refused[0].reason


def test_arrivals_at_a_rate_give_the_concurrency_of_littles_law(tmp_path):
    cell = _cell(tmp_path, request_rate=4.0, max_concurrency=None)
    assert cell.concurrency == pytest.approx(40 * 1.05 / 10.5)
    assert any("arrivals at 4 per second" in note for note in cell.notes)
    assert cell.relative_noise > _cell(tmp_path).relative_noise


def test_requests_all_at_once_count_those_that_decode(tmp_path):
    cell = _cell(tmp_path, max_concurrency=None)
    assert cell.concurrency == pytest.approx(40 * 100 * 0.010 / 10.5)
    assert any("all requests sent at once" in note for note in cell.notes)


def test_prefill_between_the_tokens_is_told_and_makes_the_noise_larger(tmp_path):
    cell = _cell(tmp_path, median_itl_ms=8.0)
    assert cell.prefill_share == pytest.approx(0.2)
    assert cell.relative_noise > _cell(tmp_path).relative_noise


def test_few_requests_and_a_short_run_are_noisier(tmp_path):
    few = _cell(tmp_path, completed=4, num_prompts=4, duration=1.05, total_input_tokens=400, total_output_tokens=404)
    assert few.relative_noise > 1.5 * _cell(tmp_path).relative_noise


def test_chunks_of_several_steps_are_no_step_time(tmp_path):
    evidence = _read(tmp_path, RESULT | SPECULATIVE | {"mean_itl_ms": 60.0, "median_itl_ms": 60.0})
    assert evidence.cells[0].step_s is None
    assert evidence.cells[0].tpot_s == pytest.approx(0.010)
    assert any("more than the 3 of a step with k = 2" in item.reason for item in evidence.refused)


def test_counters_that_are_not_of_this_run_are_refused_and_the_times_kept(tmp_path):
    broken = SPECULATIVE | {"spec_decode_accepted_tokens": 3000}
    evidence = _read(tmp_path, RESULT | broken)
    assert evidence.cells[0].tpot_s == pytest.approx(0.010)
    assert evidence.cells[0].acceptance is None
    assert "both are one number in one window" in evidence.refused[0].reason


def test_more_drafts_than_decode_steps_are_other_traffic(tmp_path):
    busy = SPECULATIVE | {
        "spec_decode_num_drafts": 4000,
        "spec_decode_draft_tokens": 8000,
        "spec_decode_accepted_tokens": 4000,
    }
    evidence = _read(tmp_path, RESULT | busy)
    assert "other traffic" in evidence.refused[0].reason


def test_appended_results_are_read_line_by_line(tmp_path):
    second = RESULT | {"max_concurrency": 8, "duration": 5.25, "mean_tpot_ms": 10.1}
    evidence = _read(tmp_path, RESULT, second)
    assert [cell.concurrency for cell in evidence.cells] == [4, 8]
    assert evidence.cells[1].source.endswith("result.json line 2")


def test_the_same_result_twice_counts_once(tmp_path):
    assert len(_read(tmp_path, RESULT, RESULT).cells) == 1


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        ({"speculative_config.num_speculative_tokens": 3, "speculative_config.method": "mtp"}, (3, "mtp")),
        ({"speculative-config": '{"method": "ngram", "num_speculative_tokens": 5}'}, (5, "ngram")),
        ({"speculative_config": None}, (0, None)),
        ({"speculative_config": ""}, (0, None)),
        ({"spec_tokens": "2", "spec_method": "eagle3"}, (2, "eagle3")),
        ({"num_speculative_tokens": "4"}, (4, None)),
        ({"speculative_config.num_speculative_tokens_per_batch_size": [[1, 2, 5], [3, 64, 1]]}, (1, None)),
        ({"num_speculative_tokens": "many"}, (None, None)),
    ],
)
def test_settings_of_a_sweep_tell_the_speculation(tmp_path, extra, expected):
    cell = _cell(tmp_path, **extra)
    assert (cell.num_speculative_tokens, cell.method) == expected


def test_an_embedding_run_measures_no_decoding(tmp_path):
    result = {"completed": 1, "duration": 1.0, "request_throughput": 1.0, "input_sequence_throughput": 5.0}
    assert "embedding" in _read(tmp_path, result).refused[0].reason


def _detailed(tpots_ms, start_s, tokens=101, ttft_s=0.05, per_chunk=1):
    """A detailed result: one request per entry; lists as --save-detailed keeps them."""
    chunks = (tokens - 1) // per_chunk
    return {
        "input_lens": [100] * len(tpots_ms),
        "output_lens": [tokens] * len(tpots_ms),
        "ttfts": [ttft_s] * len(tpots_ms),
        "itls": [[tpot * per_chunk / 1e3] * chunks for tpot in tpots_ms],
        "latencies": [ttft_s + tpot * (tokens - 1) / 1e3 for tpot in tpots_ms],
        "start_times": start_s,
        "generated_texts": ["x"] * len(tpots_ms),
        "errors": [""] * len(tpots_ms),
    }


def test_details_give_the_exact_tokens_of_a_chunk(tmp_path):
    detailed = _detailed([10.0] * 40, [1.05 * (index // 4) for index in range(40)], per_chunk=2)
    cell = _cell(tmp_path, **detailed)
    assert cell.tokens_per_step == 2.0
    assert cell.step_s == pytest.approx(0.020)


def test_details_leave_ramp_and_tail_out_instead_of_refusing_the_run(tmp_path):
    tail = [1.05 * (index // 4) for index in range(36)] + [9 * 1.05 + 1.05 * index for index in range(4)]
    tpots = [10.0] * 36 + [5.0] * 4  # alone at the end, each twice as fast
    evidence = _read(tmp_path, RESULT | {"duration": 13.65} | _detailed(tpots, tail))
    cell = evidence.cells[0]
    assert cell.tpot_s == pytest.approx(0.010)
    assert cell.concurrency == 4
    assert cell.throughput_tokens_per_s is None  # the file's is over the tail as well
    assert any("36 of 40 requests" in note for note in cell.notes)


def test_a_cold_first_round_is_left_out(tmp_path):
    starts = [1.05 * (index // 4) for index in range(40)]
    cell = _cell(tmp_path, **_detailed([30.0] * 4 + [10.0] * 36, starts))
    assert cell.tpot_s == pytest.approx(0.010)
    assert any("left out as warm-up" in note for note in cell.notes)


def test_failed_requests_in_the_lists_are_passed_over(tmp_path):
    detailed = _detailed([10.0] * 40, [1.05 * (index // 4) for index in range(40)])
    detailed["output_lens"][7], detailed["itls"][7], detailed["ttfts"][7] = 0, [], 0.0
    cell = _cell(tmp_path, **(detailed | {"completed": 39, "failed": 1}))
    assert cell.tpot_s == pytest.approx(0.010)
    assert any("1 requests failed" in note for note in cell.notes)


def test_lists_of_different_lengths_are_not_used(tmp_path):
    detailed = _detailed([99.0] * 40, [0.0] * 40) | {"ttfts": [0.05] * 3}
    assert _cell(tmp_path, **detailed).tpot_s == pytest.approx(0.010)


@pytest.mark.parametrize("indent", [None, 2])
def test_results_one_after_the_other_are_read_each(tmp_path, indent):
    path = tmp_path / "all.json"
    results = [RESULT, RESULT | {"duration": 11.0}]
    path.write_text("".join(json.dumps(result, indent=indent) for result in results))
    cells = read_evidence([path]).cells
    assert [cell.duration_s for cell in cells] == [RESULT["duration"], 11.0]
    assert [cell.source for cell in cells] == [f"{path} record 1", f"{path} record 2"]


def test_results_one_after_the_other_of_which_the_last_is_cut_are_refused(tmp_path):
    path = tmp_path / "all.json"
    path.write_text(json.dumps(RESULT) + json.dumps(RESULT)[:-1])
    with pytest.raises(InputError, match="allowed: a whole file"):
        read_evidence([path])
