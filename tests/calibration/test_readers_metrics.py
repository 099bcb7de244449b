"""/metrics of vLLM and SGLang: pairs found by content, resets and restarts refused, counters checked by identities."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibration.readers.prometheus_text import samples_of
from calibration.readers.read import read_evidence

DATA = Path(__file__).parents[1] / "data" / "measurements"
BEFORE, AFTER = DATA / "qwen_k5_metrics_before.txt", DATA / "qwen_k5_metrics_after.txt"


def _scrape(values, *, start=1000.0, engine="0", model="m", extra=""):
    """A scrape of the counters in `values`; a tuple is one value per position."""
    lines = [f"process_start_time_seconds {start}"] if start is not None else []
    for name, value in values.items():
        labels = f'engine="{engine}",model_name="{model}"'
        if isinstance(value, tuple):
            lines += [f'vllm:{name}{{{labels},position="{i}"}} {item}' for i, item in enumerate(value)]
        else:
            lines.append(f"vllm:{name}{{{labels}}} {value}")
    return "\n".join(lines) + "\n" + extra


def _counters(requests, drafts=None):
    """Counters after `requests` of 101 tokens in 50 decode steps of 20 ms each, four at a time, k = 2."""
    step_s, per_request, k, batch = 0.02, 101, 2, 4
    pairs = requests * 50
    drafts = pairs if drafts is None else drafts
    return {
        "generation_tokens_total": requests * per_request,
        "prompt_tokens_total": requests * 100,
        "time_to_first_token_seconds_count": requests,
        "time_to_first_token_seconds_sum": requests * 0.05,
        "inter_token_latency_seconds_count": pairs,
        "inter_token_latency_seconds_sum": pairs * step_s,
        "iteration_tokens_total_count": pairs / batch,
        "iteration_tokens_total_sum": requests * (per_request + 100),
        "spec_decode_num_drafts_total": drafts,
        "spec_decode_num_draft_tokens_total": drafts * k,
        "spec_decode_num_accepted_tokens_total": drafts,
        "spec_decode_num_accepted_tokens_per_pos_total": (drafts * 0.6, drafts * 0.4),
        "request_success_total": requests,
        "num_requests_running": 0,
    }


def _read(tmp_path, *scrapes, skip_bad=False):
    paths = []
    for index, text in enumerate(scrapes):
        paths.append(tmp_path / f"m{index}.txt")
        paths[-1].write_text(text)
    return read_evidence(paths, skip_bad=skip_bad)


@pytest.mark.parametrize("stamps", [("1700000000123", "1700000010123"), ("1700000000.123", "1700000010.123")])
def test_the_times_of_samples_tell_the_throughput_in_either_format(tmp_path, stamps):
    scrapes = [
        "\n".join(f"{line} {stamp}" for line in _scrape(_counters(requests)).splitlines())
        for requests, stamp in zip((10, 50), stamps, strict=True)
    ]
    (cell,) = _read(tmp_path, *scrapes).cells
    assert cell.duration_s == pytest.approx(10.0)
    assert cell.throughput_tokens_per_s == pytest.approx(404.0)


def test_a_real_servers_pair_in_either_order():
    for paths in ([BEFORE, AFTER], [AFTER, BEFORE]):
        cell = read_evidence(paths).cells[0]
        assert cell.concurrency == 1.0
        assert cell.tokens_per_step == pytest.approx((240 - 6) / 114)
        assert cell.step_s == pytest.approx(4.150660778 / 114)
        assert cell.tpot_s == pytest.approx(0.1064271994 / 6)
        assert cell.acceptance.drafts == 30
        assert cell.acceptance.steps == 114
        assert cell.acceptance.accepted_per_position == (30,) * 5
        assert cell.num_speculative_tokens == 5
        assert cell.kv_cache_tokens == 87296
        assert (cell.input_tokens, cell.output_tokens) == (9.5, 40)


def test_one_file_with_both_scrapes_is_a_pair(tmp_path):
    path = tmp_path / "both.txt"
    path.write_text("$ curl :8000/metrics\n" + BEFORE.read_text() + "\n$ curl :8000/metrics\n" + AFTER.read_text())
    assert read_evidence([path]).cells[0].acceptance.drafts == 30


def test_a_single_snapshot_tells_acceptance_but_no_times():
    evidence = read_evidence([DATA / "metrics_v0.20.2_ngram_k5_sparse.txt"])
    cell = evidence.cells[0]
    assert (cell.tpot_s, cell.step_s, cell.concurrency) == (None, None, None)
    assert cell.tokens_per_step == pytest.approx((6144 - 24) / 3675)
    assert cell.acceptance.accepted_per_position == (750, 578, 467, 369, 298)
    assert cell.draft_probability == pytest.approx(1242 / 3675)
    assert "give a second snapshot" in evidence.refused[0].reason


def test_versions_name_the_same_things_differently(tmp_path):
    old = {
        name.replace("inter_token_latency_seconds", "time_per_output_token_seconds"): value
        for name, value in _counters(40).items()
    }
    zero = {name: (0, 0) if isinstance(value, tuple) else 0 for name, value in old.items()}
    cell = _read(tmp_path, _scrape(zero), _scrape(old)).cells[0]
    assert cell.step_s == pytest.approx(0.02)
    assert cell.tokens_per_step == pytest.approx(2.0)


def test_the_v0_engine_counts_no_drafts(tmp_path):
    counters = {
        "generation_tokens_total": 4040,
        "time_to_first_token_seconds_count": 40,
        "time_per_output_token_seconds_count": 2000,
        "time_per_output_token_seconds_sum": 40.0,
        "spec_decode_num_accepted_tokens_total": 2000,
        "spec_decode_num_draft_tokens_total": 4000,
        "spec_decode_num_emitted_tokens_total": 4000,
        "spec_decode_draft_acceptance_rate": 0.5,
        "num_requests_swapped": 0,
    }
    zero = dict.fromkeys(counters, 0)
    evidence = _read(tmp_path, _scrape(zero), _scrape(counters))
    assert evidence.cells[0].acceptance is None
    assert evidence.cells[0].num_speculative_tokens is None
    assert evidence.cells[0].tokens_per_step == pytest.approx(2.0)
    assert any("counts no drafts" in item.reason for item in evidence.refused)


def test_without_speculation_there_are_no_counters_and_k_is_zero():
    cell = read_evidence([DATA / "metrics_v0.11.2_nospec.txt"]).cells[0]
    assert (cell.num_speculative_tokens, cell.acceptance, cell.tokens_per_step) == (0, None, 1.0)


def test_a_restart_between_the_snapshots_is_refused(tmp_path):
    evidence = _read(tmp_path, _scrape(_counters(40)), _scrape(_counters(80), start=2000.0))
    assert not evidence.cells
    assert "the server was restarted between them" in evidence.refused[0].reason
    assert "m0.txt" in evidence.refused[0].source
    assert "m1.txt" in evidence.refused[0].source


def test_a_counter_that_falls_was_reset(tmp_path):
    later = _counters(80) | {"spec_decode_num_drafts_total": 5}
    evidence = _read(tmp_path, _scrape(_counters(40)), _scrape(later))
    assert not evidence.cells
    assert "falls from 2000 to 5" in evidence.refused[0].reason


def test_two_servers_with_a_pair_each_are_two_cells(tmp_path):
    plain = {name: value for name, value in _counters(40).items() if "spec" not in name}
    twice = {name: 2 * value for name, value in plain.items()}
    files = [_scrape(_counters(80)), _scrape(plain, start=9.0), _scrape(_counters(40)), _scrape(twice, start=9.0)]
    cells = _read(tmp_path, *files).cells
    assert sorted(cell.num_speculative_tokens for cell in cells) == [0, 2]


def test_models_of_one_server_are_kept_apart(tmp_path):
    before = _scrape(_counters(10), model="a") + _scrape(_counters(20), model="b", start=None)
    after = _scrape(_counters(30), model="a") + _scrape(_counters(60), model="b", start=None)
    cells = {cell.model: cell for cell in _read(tmp_path, before, after).cells}
    assert (cells["a"].num_requests, cells["b"].num_requests) == (None, None)
    assert (cells["a"].acceptance.drafts, cells["b"].acceptance.drafts) == (1000, 2000)


def test_engines_of_data_parallelism_are_added_up(tmp_path):
    def both(requests):
        return _scrape(_counters(requests), engine="0") + _scrape(_counters(requests), engine="1", start=None)

    cell = _read(tmp_path, both(10), both(50)).cells[0]
    assert cell.concurrency == pytest.approx(8.0)  # four on each engine
    assert cell.step_s == pytest.approx(0.02)
    assert cell.acceptance.drafts == 2 * 40 * 50


def test_nothing_decoded_in_the_window_is_said(tmp_path):
    evidence = _read(tmp_path, _scrape(_counters(40)), _scrape(_counters(40), extra="# again\n"))
    assert "no token was decoded" in evidence.refused[0].reason


def test_statistics_off_is_said(tmp_path):
    text = _scrape({"num_requests_running": 1})
    assert "--disable-log-stats" in _read(tmp_path, text).refused[0].reason


def test_drafts_that_were_never_counted_are_told(tmp_path):
    sparse = _counters(80, drafts=800)
    sparse |= {"generation_tokens_total": 80 * 61}  # 50 steps and 10 accepted each, and the first
    cell = _read(tmp_path, _scrape(_counters(0, drafts=0)), _scrape(sparse)).cells[0]
    assert cell.draft_probability == pytest.approx(0.2)
    assert cell.tokens_per_step == pytest.approx(60 / 50)
    assert any("a draft on 20 % of the decode steps" in note for note in cell.notes)


def test_positions_and_total_are_one_number(tmp_path):
    wrong = _counters(80) | {"spec_decode_num_accepted_tokens_total": 5000}
    evidence = _read(tmp_path, _scrape(_counters(0)), _scrape(wrong))
    assert evidence.cells[0].acceptance is None
    assert evidence.cells[0].step_s == pytest.approx(0.02)
    assert "both are one number in one window" in evidence.refused[0].reason


def test_tokens_past_the_end_are_bounded_by_k_per_finished_request(tmp_path):
    labels = 'engine="0",model_name="m",finished_reason="length"'

    def end(requests, **changes):
        values = {name: value for name, value in _counters(requests).items() if name != "request_success_total"}
        return _scrape(values | changes, extra=f"vllm:request_success_total{{{labels}}} {requests}\n")

    # 80 requests: 4000 steps, 4000 accepted and 8000 emitted after the first; two past each end would be 160
    within = _read(tmp_path, end(0), end(80, generation_tokens_total=80 * 101 - 160)).cells[0]
    assert not any("cover exactly one window" in note for note in within.notes)
    beyond = _read(tmp_path, end(0), end(80, generation_tokens_total=80 * 101 - 400)).cells[0]
    assert any("decode steps + accepted - decode tokens is 400" in note for note in beyond.notes)


def test_a_changing_load_makes_the_cell_noisy(tmp_path):
    busy = _counters(80) | {"num_requests_running": 64}
    cell = _read(tmp_path, _scrape(_counters(0)), _scrape(busy)).cells[0]
    assert cell.relative_noise >= 0.1
    assert any("64 requests ran at an end" in note for note in cell.notes)


def test_many_snapshots_of_one_server_are_consecutive_windows(tmp_path):
    cells = _read(tmp_path, *(_scrape(_counters(count)) for count in (30, 10, 20))).cells
    assert [cell.acceptance.drafts for cell in cells] == [500, 500]


def test_sample_times_give_the_throughput(tmp_path):
    def timed(requests, time_ms):
        return "".join(f"{line} {time_ms}\n" for line in _scrape(_counters(requests)).splitlines())

    cell = _read(tmp_path, timed(0, 1_000), timed(40, 11_000)).cells[0]
    assert cell.throughput_tokens_per_s == pytest.approx(404)


def _sglang_pair():
    text = (DATA / "sglang_metrics.txt").read_text()
    later = text.replace("59757.0", "63797.0").replace("410.2", "450.2").replace("59700.0", "63700.0")
    return text, later


def test_ranks_of_one_sglang_engine_repeat_its_requests(tmp_path):
    labels = 'engine_type="unified",model_name="org/m",moe_ep_rank="0",pp_rank="0",tp_rank="1"'
    pair = [f"{text}sglang:num_running_reqs{{{labels}}} 4.0\n" for text in _sglang_pair()]
    assert _read(tmp_path, *pair).cells[0].concurrency == 4.0


def test_sglangs_latency_is_per_token_and_a_pair_is_a_cell(tmp_path):
    cell = _read(tmp_path, *_sglang_pair()).cells[0]
    assert cell.engine == "sglang"
    assert cell.tpot_s == pytest.approx(40.0 / 4000)
    assert cell.tokens_per_step == pytest.approx(2.8)
    assert cell.step_s == pytest.approx(0.028)
    assert (cell.concurrency, cell.num_speculative_tokens) == (4.0, 3)


NOISE = """HTTP/1.1 200 OK\r
content-type: text/plain\r
\r
  % Total    % Received % Xferd  Average Speed   Time    Time     Time  Current\r
# HELP vllm:generation_tokens_total Number of generation tokens processed.\r
vllm:generation_tokens_total{engine="0",model_name="a \\"b\\" {x}\\n",} 5.0\r
vllm:generation_tokens_created{engine="0"} 1.7e9\r
vllm:time_to_first_token_seconds_bucket{le="0.001"} 3\r
vllm:broken{engine="0" 7\r
vllm:not_a_number{engine="0"} NaN\r
vllm:cut{engi"""


def test_what_surrounds_a_scrape_is_passed_over():
    samples = list(samples_of(NOISE))
    assert samples == [("vllm:generation_tokens_total", (("engine", "0"), ("model_name", 'a "b" {x}\n')), 5.0, None)]


@given(st.text(alphabet='vllm:_{}="\\, \n0123456789.eE+-#naNInf\t', max_size=300))
def test_no_text_breaks_the_parser(text):
    for name, _, value, _ in samples_of("vllm:" + text):
        assert name.startswith("vllm:")
        assert value == value


@given(st.text(max_size=20), st.floats(allow_nan=False, allow_infinity=False))
def test_a_printed_sample_is_read_back(label, value):
    escaped = label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    line = f'vllm:x_total{{model_name="{escaped}"}} {value!r}'
    assert [(labels[0][1], found) for _, labels, found, _ in samples_of(line)] == [(label, value)]
