"""vLLM log lines: means of length by version, batches that held still, single steps, several starts in one log."""

import json
from pathlib import Path

import pytest

from calibration.readers.read import read_evidence

SAMPLE = Path(__file__).parents[1] / "data" / "measurements" / "vllm_log_lines.txt"
INFO = "(APIServer pid=1) INFO 11-20 08:00:44 [loggers.py:248] "
LOAD = (
    "Engine {engine:03}: Avg prompt throughput: {prompt} tokens/s, Avg generation throughput: {tokens} tokens/s, "
    "Running: {running} reqs, Waiting: {waiting} reqs, GPU KV cache usage: 16.3%, Prefix cache hit rate: 0.6%"
)
SPEC = (
    "SpecDecoding metrics: Mean acceptance length: {length}, Accepted throughput: {rate} tokens/s, Drafted throughput: "
    "400.00 tokens/s, Accepted: 2000 tokens, Drafted: 4000 tokens, Per-position acceptance rate: 0.600, 0.400, "
    "Avg Draft acceptance rate: 50.0%"
)
START = (
    "(APIServer pid=1) INFO 11-20 08:00:00 [utils.py:253] non-default args: {'model': 'org/m', 'api_key': ['hunter2'], "
    "'speculative_config': {'method': 'mtp', 'num_speculative_tokens': 2}}",
    "(EngineCore_DP0 pid=2) INFO [core.py:93] Initializing a V1 LLM engine (v0.20.2) with config: model='org/m', "
    "speculative_config=SpeculativeConfig(method='mtp', model='org/m', num_spec_tokens=2), tokenizer='org/m'",
    "INFO [kv_cache_utils.py:578] GPU KV cache size: 399,104 tokens",
)


def _load(tokens=400.0, running=4, waiting=0, prompt=0.0, engine=0):
    return INFO + LOAD.format(tokens=tokens, running=running, waiting=waiting, prompt=prompt, engine=engine)


def _spec(length="2.00", rate="200.00"):
    return INFO + SPEC.format(length=length, rate=rate)


def _read(tmp_path, *lines):
    path = tmp_path / "server.log"
    path.write_text("\n".join(lines) + "\n")
    return read_evidence([path])


def test_the_shared_lines_are_understood():
    evidence = read_evidence([SAMPLE])
    counts = evidence.cells[0].acceptance
    assert counts.draft_tokens == 387 + 387 + 1488
    assert sum(counts.accepted_per_position) == pytest.approx(150 + 150 + 725, rel=0.005)
    assert evidence.cells[1].kv_cache_tokens == 399104
    step = evidence.steps[0]
    assert (step.tokens, step.requests, step.prefill_tokens, step.step_s) == (16, 4, 0, pytest.approx(0.01491))


def test_a_batch_that_held_still_is_a_cell(tmp_path):
    evidence = _read(tmp_path, *START, _load(), _load(), _load())
    cell = evidence.cells[0]
    assert (cell.concurrency, cell.throughput_tokens_per_s) == (4, 400)
    assert cell.tpot_s == pytest.approx(0.010)
    assert (cell.model, cell.method, cell.num_speculative_tokens) == ("org/m", "mtp", 2)
    assert (cell.engine_version, cell.kv_cache_tokens) == ("0.20.2", 399104)


def test_accepted_tokens_make_the_step_time(tmp_path):
    cell = _read(tmp_path, *START, _load(), _spec(), _load(), _spec()).cells[0]
    assert cell.tokens_per_step == pytest.approx(2.0)  # 400 tokens of which 200 were accepted drafts
    assert cell.step_s == pytest.approx(0.020)


@pytest.mark.parametrize("change", [{"running": 5}, {"waiting": 1}, {"prompt": 4000.0}])
def test_intervals_that_mix_loads_are_refused(tmp_path, change):
    evidence = _read(tmp_path, _load(), _load(**change))
    assert not evidence.cells
    assert "running requests changed, some waited, or much was prefilled" in evidence.refused[0].reason


def test_engines_of_data_parallelism_log_together(tmp_path):
    lines = [_load(engine=0), _load(engine=1), _load(engine=0), _load(engine=1)]
    cell = _read(tmp_path, *lines).cells[0]
    assert (cell.concurrency, cell.tpot_s) == (8, pytest.approx(0.010))


@pytest.mark.parametrize(("length", "noted"), [("1.00", True), ("2.00", False)])
def test_the_mean_length_of_old_versions_leaves_the_bonus_token_out(tmp_path, length, noted):
    cell = _read(tmp_path, _spec(length)).cells[0]
    assert cell.acceptance.drafts == 2000
    assert cell.acceptance.accepted_per_position == pytest.approx((1200, 800))
    assert any("leaves the bonus token out" in note for note in cell.notes) == noted


def test_a_mean_length_that_fits_nothing_is_refused(tmp_path):
    evidence = _read(tmp_path, _spec("3.70"))
    assert not evidence.cells
    assert "neither the sum of the positions" in evidence.refused[0].reason


def test_drafts_of_varying_length_are_recovered_from_the_positions(tmp_path):
    line = (
        "INFO SpecDecoding metrics: Mean acceptance length: 2.00, Accepted: 1000 tokens, Drafted: 2900 tokens, "
        "Per-position acceptance rate: 0.500, 0.300, 0.200, Avg Draft acceptance rate: 34.5%"
    )
    counts = _read(tmp_path, line).cells[0].acceptance
    assert counts.drafts == pytest.approx(1000)  # 2.9 tokens each, not 3


def test_a_restart_in_the_log_begins_new_cells(tmp_path):
    off = START[1].replace("SpeculativeConfig(method='mtp', model='org/m', num_spec_tokens=2)", "None")
    evidence = _read(tmp_path, *START, _load(), _load(), off, _load(tokens=200.0), _load(tokens=200.0))
    assert [cell.num_speculative_tokens for cell in evidence.cells] == [2, 0]
    assert [cell.tpot_s for cell in evidence.cells] == [pytest.approx(0.010), pytest.approx(0.020)]
    assert evidence.cells[1].step_s == pytest.approx(0.020)
    assert "from line 6" in evidence.cells[1].source


def _iteration(ms, tokens=12, context=0, tail=""):
    return (
        f"INFO Iteration(7): {1 if context else 0} context requests, {context} context tokens, 4 generation requests, "
        f"{tokens} generation tokens, iteration elapsed time: {ms} ms{tail}"
    )


def test_equal_steps_are_one_sample_without_outliers(tmp_path):
    lines = [_iteration(10), _iteration(11), _iteration(12), _iteration(400), _iteration(5, context=88)]
    lines += [_iteration(1, tail=" (dummy)"), _iteration(9).replace("Iteration(", "DraftIteration(")]
    steps = _read(tmp_path, *lines).steps
    assert [(step.tokens, step.prefill_tokens, step.count) for step in steps] == [(12, 0, 3), (100, 88, 1)]
    assert steps[0].step_s == pytest.approx(0.011)


def test_what_stands_before_a_line_does_not_matter(tmp_path):
    plain = [*START, _load(), _load()]
    journal = [f"Nov 20 08:00:44 box vllm[123]: {line}" for line in plain]
    coloured = [f"\x1b[36m(APIServer)\x1b[0;0m {line}" for line in plain]
    docker = [json.dumps({"log": line + "\n", "stream": "stderr", "time": "2026-01-01T00:00:00Z"}) for line in plain]
    for lines in (journal, coloured, docker):
        cell = _read(tmp_path, *lines).cells[0]
        assert (cell.concurrency, cell.num_speculative_tokens) == (4, 2)


def test_secrets_of_the_arguments_are_not_kept(tmp_path):
    assert "hunter2" not in repr(_read(tmp_path, *START, _load(), _load()))


def test_arguments_that_are_no_literal_still_tell_k(tmp_path):
    config = "{'method': 'ngram', 'num_speculative_tokens': 5}"
    line = f"INFO non-default args: {{'x': <Enum.A: 1>, 'speculative_config': {config}}}"
    cell = _read(tmp_path, line, _load(), _load()).cells[0]
    assert (cell.num_speculative_tokens, cell.method) == (5, "ngram")


def test_start_up_lines_alone_say_that_nothing_was_measured(tmp_path):
    evidence = _read(tmp_path, START[0])
    assert "nothing was measured" in evidence.refused[0].reason


def test_the_v0_engines_lines_are_read_as_far_as_they_go(tmp_path):
    load = INFO + (
        "Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 72.9 tokens/s, Running: 1 reqs, "
        "Swapped: 0 reqs, Pending: 0 reqs, GPU KV cache usage: 0.5%, CPU KV cache usage: 0.0%."
    )
    spec = INFO + "Speculative metrics: Draft acceptance rate: 0.567, System efficiency: 0.412, Number of ..."
    evidence = _read(tmp_path, load, spec, load)
    assert evidence.cells[0].tpot_s == pytest.approx(1 / 72.9)
    assert any("V0 engine" in item.reason for item in evidence.refused)
