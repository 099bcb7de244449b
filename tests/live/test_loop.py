"""A real server, measured, foretold, restarted with drafts and measured again; the loop itself is `live/loop.py`.

Counts, tokens and acceptance are exact. Times are held against intervals, as far as the machine's own noise allows.
"""

import json

import pytest
from live.compare import Row, otherwise, refusal, rows, sides_agree
from live.loop import CHECKED_LOADS, GROUNDS, LOADS, LOOKUP_MAX, LOOKUP_MIN, SWEEP, K, Loop, Record

CELLS = [(run, ground, n) for run, loads in LOADS.items() for ground in GROUNDS for n in loads]
TIMES_APART = (
    1.25  # client over server: where another process takes the processor, the last chunks of answers come late
)


def outputs(loop: Loop, run: str, ground: str) -> list[Record]:
    """The recorded answers of a run."""
    return [json.loads(line) for line in (loop.folder / f"{run}-{ground}.jsonl").read_text().splitlines()]


def counted(loop: Loop, ground: str, name: str) -> float:
    """A counter of the speculating server, over all cells of a ground."""
    return sum(cell["acceptance"][name] for cell in loop.after[ground]["cells"])


def hidden_steps(loop: Loop, ground: str, concurrency: int) -> int:
    """Steps of the baseline that shared a chunk with another one, since the front end was busy: a step is one token."""
    chunks = (a["tokens_per_step"] for a in outputs(loop, "before", ground) if a["concurrency"] == concurrency)
    return sum(tokens - 1 for answer in chunks for tokens in answer)


@pytest.mark.parametrize(("run", "ground", "concurrency"), CELLS)
def test_client_and_server_agree_on_requests_tokens_and_steps(
    loop: Loop, run: str, ground: str, concurrency: int
) -> None:
    cell = loop.cell(run, ground, concurrency)
    assert (cell["complete"], cell["num_failed"]) == (True, 0)
    sides = {check["name"]: check for check in cell["checks"]}
    for name in ("requests", "tokens"):
        assert sides[name]["client"] == sides[name]["server"] > 0
    steps = sides["steps"]
    if run == "before":
        assert steps["client"] + hidden_steps(loop, ground, concurrency) == steps["server"]
    else:  # a chunk of two short steps looks like one longer step
        assert 0.98 * steps["server"] <= steps["client"] <= steps["server"]
    assert sides_agree(cell), sides["tpot_s"]


def test_the_loads_that_are_compared_did_run_and_others_are_refused_only_for_what_did_not_run(loop: Loop) -> None:
    refused = {(run, g, n): reason for run, g, n in CELLS if (reason := refusal(loop.cell(run, g, n)))}
    assert all(n not in CHECKED_LOADS and f"asked for {n} at once" in reason for (_, _, n), reason in refused.items())


def test_the_baseline_emits_one_token_a_step_and_drafts_nothing(loop: Loop) -> None:
    for ground in GROUNDS:
        assert loop.before[ground]["server"]["num_speculative_tokens"] == 0
        for cell in loop.before[ground]["cells"]:
            assert cell["tokens_per_step"] == pytest.approx(1.0, abs=0.01)
            assert cell["acceptance"] is None


@pytest.mark.parametrize("ground", GROUNDS)
def test_replay_of_the_speculating_servers_answers_counts_what_the_server_counted(loop: Loop, ground: str) -> None:
    (found,) = loop.replayed_after[ground]["results"]
    requests = counted(loop, ground, "num_requests")
    assert found["steps"] == counted(loop, ground, "steps")
    assert found["drafts"] == counted(loop, ground, "drafts")
    assert found["draft_tokens"] == counted(loop, ground, "draft_tokens")
    past_the_end = counted(loop, ground, "accepted_tokens") - found["accepted_tokens"]
    assert 0 <= past_the_end <= K * requests


@pytest.mark.parametrize("ground", GROUNDS)
def test_replay_before_the_restart_foretold_the_acceptance(loop: Loop, ground: str) -> None:
    foretold = next(r for r in loop.replayed_before[ground]["results"] if r["num_speculative_tokens"] == K)
    (found,) = loop.replayed_after[ground]["results"]
    spread = sum(max(r["tokens_per_step_ci95"]) - r["tokens_per_step"] for r in (foretold, found))
    # beside the intervals 5 %: the server's counters hold the shortened first answers as well
    tolerance = spread + 0.05 * found["tokens_per_step"]
    assert foretold["tokens_per_step"] == pytest.approx(found["tokens_per_step"], abs=tolerance)
    assert foretold["draft_probability"] == pytest.approx(found["draft_probability"], abs=0.05)


def test_the_loop_text_is_written_token_by_token_as_before(loop: Loop) -> None:
    before = {tuple(answer["prompt_token_ids"]): answer["token_ids"] for answer in outputs(loop, "before", "loop")}
    pairs = [(before.get(tuple(a["prompt_token_ids"])), a["token_ids"]) for a in outputs(loop, "after", "loop")]
    common = [(old, new) for old, new in pairs if old is not None]
    assert len(common) >= 8
    for old, new in common:
        shorter = min(len(old), len(new))
        assert old[:shorter] == new[:shorter]


@pytest.mark.parametrize("ground", GROUNDS)
def test_calibration_takes_every_cell_that_measure_did_not_refuse(loop: Loop, ground: str) -> None:
    used = {n for n in SWEEP if not refusal(loop.cell("before", ground, n))}
    assert len(loop.calibrated[ground]["refused"]) == len(SWEEP) - len(used)
    loads = {round(row["concurrency"]) for row in loop.calibrated[ground]["residuals"]}
    assert loads == used


def test_the_two_texts_use_the_experts_as_they_were_made_to(loop: Loop) -> None:
    told = {g: {row["tokens"]: row["counted"] for row in loop.counted[g]["fitted"]["rows"]} for g in GROUNDS}
    for tokens, uniform in ((1, 8.0), (4, 26.5), (6, 35.3), (24, 61.4)):  # 64 (1 - (7/8)^T): unrelated embeddings
        assert told["loop"][tokens] == pytest.approx(uniform, rel=0.06)
    assert told["wander"][24] < 0.6 * told["loop"][24]  # embeddings that share a part are routed alike


@pytest.mark.parametrize("ground", GROUNDS)
@pytest.mark.parametrize("concurrency", CHECKED_LOADS)
def test_the_sign_of_the_effect_was_foretold_where_it_exceeds_the_noise(
    loop: Loop, ground: str, concurrency: int
) -> None:
    row = row_of(loop, ground, concurrency)
    assert "sign" not in row.outside, row


@pytest.mark.parametrize("ground", GROUNDS)
@pytest.mark.parametrize("concurrency", CHECKED_LOADS)
def test_step_time_and_throughput_with_drafts_lie_in_the_stated_intervals(
    loop: Loop, ground: str, concurrency: int
) -> None:
    row = row_of(loop, ground, concurrency)
    assert not {"step time", "throughput"}.intersection(row.outside), row


@pytest.mark.parametrize("ground", GROUNDS)
@pytest.mark.parametrize("concurrency", CHECKED_LOADS)
def test_the_prediction_was_on_file_before_the_restart(loop: Loop, ground: str, concurrency: int) -> None:
    entry = loop.recorded[ground, concurrency]
    assert entry["prediction_id"] == loop.predicted[ground, concurrency]["prediction_id"]
    assert entry["recorded"] < loop.after[ground]["provenance"]["started"].replace("+00:00", "Z")
    assert (entry["cells"][0]["num_speculative_tokens"], entry["cells"][0]["concurrency"]) == (K, concurrency)


@pytest.mark.parametrize("ground", GROUNDS)
@pytest.mark.parametrize("concurrency", CHECKED_LOADS)
def test_the_speedup_lies_in_the_stated_interval(loop: Loop, ground: str, concurrency: int) -> None:
    row = row_of(loop, ground, concurrency)
    assert "speedup" not in row.outside, row


def test_low_acceptance_was_foretold_to_be_slower_and_is(loop: Loop) -> None:
    assert otherwise(loop, "wander") is None


def test_high_acceptance_was_foretold_to_be_about_twice_as_fast_and_is(loop: Loop) -> None:
    assert otherwise(loop, "loop") is None


def test_inspect_reads_the_running_process(loop: Loop) -> None:
    before, after = (loop.inspected[name]["pid"] for name in ("baseline", "speculative"))
    for found in (before, after):
        assert found["engine"] == "vllm"
        assert found["version"].startswith("0.32.0")
        assert not [f for f in found["findings"] if f["severity"] == "error"]
    assert before["speculative_config"] is None
    config = after["speculative_config"]
    assert (config["method"], config["num_speculative_tokens"]) == ("ngram", K)
    assert (config["prompt_lookup_min"], config["prompt_lookup_max"]) == (LOOKUP_MIN, LOOKUP_MAX)


def test_inspect_infers_from_the_counters_what_the_server_does_not_tell(loop: Loop) -> None:
    before, after = (loop.inspected[name]["url"] for name in ("baseline", "speculative"))
    assert (before["speculative_config"], before["version"]) == (None, "0.32.0")
    assert after["speculative_config"]["num_speculative_tokens"] == K
    assert "n-gram" in json.dumps(after) or "ngram" in json.dumps(after)


def test_watching_alone_finds_the_load_that_somebody_else_makes(loop: Loop) -> None:
    for run, loads in LOADS.items():
        found = loop.passive[run]
        measured = [cell for cell in found["cells"] if not cell["refused_reason"]]
        assert measured
        assert all(0.9 <= cell["measured_concurrency"] <= max(loads) + 0.5 for cell in measured)
    assert "[[measured]]" in loop.passive["before"]["deployment_toml"]
    assert "[[measured]]" not in loop.passive["after"]["deployment_toml"]
    assert "acceptance" in loop.passive["after"]["deployment_toml"]


def row_of(loop: Loop, ground: str, concurrency: int) -> Row:
    """The compared cell."""
    return next(row for row in rows(loop) if (row.ground, row.concurrency) == (ground, concurrency))


@pytest.mark.parametrize("ground", GROUNDS)
def test_validate_holds_each_cell_against_the_prediction_on_file(loop: Loop, ground: str) -> None:
    found = loop.validated[ground]
    assert [cell["concurrency"] for cell in found["cells"]] == list(CHECKED_LOADS)
    for cell in found["cells"]:
        assert cell["blind"]
        assert cell["prediction_id"] == loop.predicted[ground, cell["concurrency"]]["prediction_id"]
        row = row_of(loop, ground, cell["concurrency"])
        speedup = cell["quantities"]["speedup"]
        assert speedup["measured"] == pytest.approx(row.measured_speedup)
        assert speedup["predicted"]["p50"] == pytest.approx(row.speedup.p50)
    assert found["verdict"]


def test_the_track_record_counts_every_cell_once(loop: Loop) -> None:
    assert loop.track_record["predictions_scored"] == len(GROUNDS) * len(CHECKED_LOADS)
    assert loop.track_record["by_quantity"]["speedup"]["scored"] == len(GROUNDS) * len(CHECKED_LOADS)


def test_watch_keeps_the_draft_length_for_one_text_and_lowers_it_for_the_other(loop: Loop) -> None:
    best = {ground: {line["best_num_speculative_tokens"] for line in loop.watched[ground]} for ground in GROUNDS}
    assert all(line["num_speculative_tokens"] == K for lines in loop.watched.values() for line in lines)
    assert min(best["loop"]) >= 3
    assert min(best["wander"]) <= 1
