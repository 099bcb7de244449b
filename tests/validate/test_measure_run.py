"""Whole runs against a server on loopback: what it counts is what the client sees, and every fault ends in a line."""

import json
import threading
import time

import pytest
from fault_server import FaultServer

from calibration.readers.read import read_evidence
from hwmodel.errors import InputError
from validate.client.faults import FaultError
from validate.client.target import Target
from validate.measure.load_run import Files, LoadRun, Plan
from validate.measure.prompts import Prompt, PromptSet
from validate.measure.settings import Limits, Load

PROMPTS = PromptSet(
    tuple(Prompt(text=f"{kind} {i}", kind=kind) for kind in ("a", "b") for i in range(3)), "test", "0" * 64
)
TOKENS = 41  # 1 + 20 steps of 2
LIMITS = {
    "precision": 1.0,
    "min_requests": 4,
    "cell_s": 5.0,
    "warmup_s": 0.0,
    "observe_s": 0.02,
    "gauge_s": 0.05,
    "settle_s": 1.0,
}


@pytest.fixture
def server():
    with FaultServer(k=3, tokens_per_step=2, pace_s=0.003) as running:
        yield running


def plan(server, concurrencies=(2,), files=Files(), force=False, wait_s=0.0, load=None, **limits):  # noqa: B008
    loaded = Load(concurrencies, output_tokens=TOKENS, **(load or {}))
    return Plan(Target(server.url), loaded, Limits(**LIMITS | limits), PROMPTS, files, wait_s, force)


def run(server, *arguments, **options):
    """The result of a run, as JSON gives it back."""
    found = LoadRun(plan(server, *arguments, **options))
    found.run()
    return json.loads(json.dumps(found.result(), allow_nan=False))


def checks_of(cell):
    return {check["name"]: check for check in cell["checks"]}


def test_client_and_server_count_the_same_and_the_figures_are_those_of_the_server(server):
    result = run(server)
    cell = result["cells"][0]
    assert (result["server"]["num_speculative_tokens"], result["not_measured"], result["stopped"]) == (3, [], None)
    for name in ("requests", "tokens", "steps"):
        check = checks_of(cell)[name]
        assert check["agrees"], name
        assert check["client"] == check["server"] > 0
    assert cell["tokens_per_step"] == pytest.approx(2.0, rel=0.05)  # windows cut requests: first tokens at their ends
    assert cell["client"]["tokens_per_chunk"] == 2.0
    assert cell["tpot_s"]["mean"] == pytest.approx(cell["step_s"] / 2, rel=0.5)
    assert cell["output_tokens"] == TOKENS
    assert 1.5 < cell["measured_concurrency"] <= 2.05
    assert cell["client"]["counted_by"] == "token_ids"
    assert cell["complete"]


def test_a_halt_at_the_edge_of_the_busy_window_is_no_difference_between_client_and_server(server):
    """The server counts the halted steps before the look that opens the window, the client sees them after it."""
    server.pace_s, halted = 0.03, []

    def halting(handler):
        if len(server.bodies) > 4 and not halted:
            halted.append(True)
            server.pace_s = 0.6
            time.sleep(0.1)
            server.pace_s = 0.03
            time.sleep(0.65)
        handler.reply(200, server.metrics_text())

    server.pages["/metrics"] = halting
    cell = run(server)["cells"][0]
    assert halted
    assert checks_of(cell)["tpot_s"]["agrees"]
    assert checks_of(cell)["step_s"]["agrees"]
    assert cell["server"]["step_s"] < 0.9 * cell["client"]["chunk_gap_s"]["mean"]  # in the window itself


def test_acceptance_is_that_of_the_counters_and_holds_the_identities(server):
    counts = run(server)["cells"][0]["acceptance"]
    # Two tokens a step: the first position always accepted, the others never.
    assert counts["per_position"] == [1.0, 0.0, 0.0]
    assert counts["accepted_tokens"] == counts["drafts"] == counts["steps"]
    assert counts["draft_tokens"] == 3 * counts["drafts"]
    assert 0 <= counts["steps"] + counts["accepted_tokens"] - counts["decode_tokens"] <= 3 * counts["num_requests"]


def test_the_run_file_is_read_back_as_evidence(server, tmp_path):
    path = tmp_path / "run.json"
    result = run(server, (1, 2), Files(str(path)))
    evidence = read_evidence([path])
    assert len(evidence.cells) + len(evidence.refused) == 2
    usable = [cell for cell in result["cells"] if cell["refused_reason"] is None]
    assert len(evidence.cells) == len(usable)
    for cell, found in zip(usable, evidence.cells, strict=True):
        assert found.concurrency == max(1.0, cell["measured_concurrency"])  # one user pauses between two requests
        assert found.tpot_s == cell["tpot_s"]["mean"]
        assert (found.step_s, found.tokens_per_step) == (cell["step_s"], cell["tokens_per_step"])
        assert (found.num_speculative_tokens, found.engine, found.engine_version) == (3, "vllm", "0.32.0")
        assert found.acceptance.drafts == cell["acceptance"]["drafts"]
        assert found.acceptance.accepted_per_position == tuple(cell["acceptance"]["accepted_per_position"])
        assert found.kv_cache_tokens == 16000.0
        assert found.relative_noise == cell["relative_noise"]


def test_without_speculation_a_step_is_a_token(server):
    with FaultServer(pace_s=0.004) as plain:
        cell = run(plain)["cells"][0]
    assert cell["num_speculative_tokens"] == 0
    assert cell["acceptance"] is None
    assert cell["acceptance_reason"] == "the server does not speculate"
    assert cell["tokens_per_step"] == pytest.approx(1.0, rel=0.05)


@pytest.mark.parametrize("style", ["reasoning", "reasoning_content", "tools"])
def test_thoughts_and_tool_calls_are_tokens_like_others(server, style):
    server.style = style
    cell = run(server)["cells"][0]
    assert checks_of(cell)["tokens"]["agrees"]
    assert cell["client"]["with_tool_calls" if style == "tools" else "with_reasoning"] == cell["num_requests"] > 0


def test_first_requests_are_cut_to_different_lengths_and_are_not_in_the_window(server):
    run(server, (4,))
    firsts = sorted(body["max_tokens"] for body in server.bodies if body["max_tokens"] not in (1, 8))[:4]
    assert firsts == [10, 20, 31, 41]


def test_every_request_has_a_salt_of_its_own_and_cells_have_the_same_prompts(server):
    result = run(server, (1, 2))
    salts = [body["cache_salt"] for body in server.bodies]
    assert len(set(salts)) == len(salts)
    numbers = [[record["number"] for record in cell["requests"]] for cell in result["cells"]]
    assert all(sorted(found) == list(range(len(found))) for found in numbers)
    assert any("cache salt" in note for note in result["notes"])


def test_a_salt_without_effect_is_noticed_and_random_words_are_used(server):
    server.cached = set()
    result = run(server)
    assert any("no effect" in note for note in result["notes"])
    assert all("cache_salt" not in body for body in server.bodies[2:])
    assert result["cells"][0]["prefix_hit_share"] == 0.0
    assert result["provenance"]["prefix"] == "random text"


def test_allowing_the_prefix_cache_is_said_with_what_it_held(server):
    server.cached = set()
    result = run(server, load={"prefix_cache": "allow"})
    cell = result["cells"][0]
    assert cell["prefix_hit_share"] > 0
    assert any("found in the prefix cache" in note for note in cell["notes"])


# Counting.


def test_usage_on_every_chunk_counts_as_well_as_token_ids(server):
    server.ids = False
    cell = run(server)["cells"][0]
    assert cell["client"]["counted_by"] == "usage"
    assert cell["client"]["tokens_per_chunk"] == 2.0
    assert checks_of(cell)["tokens"]["agrees"]


def test_usage_at_the_end_gives_times_per_token_and_the_server_the_steps(server):
    server.refused_fields = ("return_token_ids", "continuous_usage_stats")
    result = run(server)
    cell = result["cells"][0]
    assert cell["client"]["counted_by"] == "final usage"
    assert (cell["tpot_from"], cell["step_from"]) == ("client", "server")
    assert checks_of(cell)["tokens"]["agrees"]
    assert any("at the end of an answer only" in note for note in result["notes"])


def test_without_usage_and_ids_the_counters_of_the_server_stand_in(server):
    server.ids = server.usage = False
    cell = run(server)["cells"][0]
    assert cell["client"]["counted_by"] == "nothing"
    assert cell["tpot_from"] == "server"
    assert cell["tpot_s"]["mean"] == pytest.approx(cell["step_s"] / cell["tokens_per_step"])


def test_usage_at_the_end_without_counters_tells_no_steps(server):
    server.refused_fields = ("return_token_ids", "continuous_usage_stats")
    server.metrics = "absent"
    cell = run(server)["cells"][0]
    assert cell["tpot_s"]["mean"] > 0
    assert cell["step_s"] is None
    assert cell["tokens_per_step"] is None
    assert "may be several steps" in cell["step_s_reason"] == cell["tokens_per_step_reason"]


def test_without_any_count_the_cell_is_refused_and_says_why(server):
    server.ids = server.usage = False
    server.metrics = "absent"
    cell = run(server)["cells"][0]
    assert cell["tpot_s"] is None
    assert "tells no number of tokens" in cell["refused_reason"]


def test_joined_steps_are_noticed_and_the_steps_are_the_servers(server):
    server.join = 3
    cell = run(server)["cells"][0]
    assert "joins steps" in cell["joined_chunks"]
    assert cell["step_from"] == "server"
    assert cell["tokens_per_step"] == pytest.approx(2.0, rel=0.05)
    assert max(int(tokens) for tokens in cell["client"]["tokens_of_chunks"]) == 6


def test_answers_that_arrive_at_once_have_the_times_of_the_server(server):
    server.bunch = True
    cell = run(server)["cells"][0]
    assert cell["tpot_from"] == "server"
    assert cell["tpot_s"]["mean"] > 0.001
    assert any("arrive in bunches" in note for note in cell["notes"])
    assert cell["prefill_share"] is None


# /metrics.


@pytest.mark.parametrize(
    ("how", "words"),
    [("absent", "not there"), ("other", "holds no counters"), ("half", "cut short"), ("twice", "more than")],
)
def test_without_usable_counters_the_clients_figures_stand_alone(server, how, words):
    server.metrics = how
    result = run(server)
    cell = result["cells"][0]
    assert words in result["server"]["metrics_reason"]
    assert words in cell["server_reason"]
    assert (cell["tpot_from"], cell["step_from"]) == ("client", "client")
    assert cell["tokens_per_step"] == 2.0
    assert cell["acceptance"] is None
    assert words in cell["acceptance_reason"]
    assert result["provenance"]["prefix"] == "random text"  # whether a salt works cannot be seen
    assert any("others' traffic is not seen" in note for note in result["notes"])


def test_frozen_counters_are_noticed(server):
    server.metrics = "frozen"
    cell = run(server)["cells"][0]
    assert "do not move" in cell["server_reason"]
    assert cell["checks"] == []
    assert cell["step_from"] == "client"
    assert cell["gauges"]["samples"] == 0


def test_a_restart_within_a_cell_refuses_it_and_ends_the_run(server):
    server.after = [lambda owner: owner.restart() if len(owner.bodies) == 8 else None]
    result = run(server, (2, 1))
    assert "restart" in result["cells"][0]["refused_reason"]
    assert "restart" in result["stopped"]
    assert result["not_measured"] == [1]


# Others.


@pytest.mark.parametrize("sign", ["running", "tokens"])
def test_a_server_that_serves_others_is_refused_without_a_request(server, sign):
    def grown(handler):
        server.foreign()
        handler.reply(200, server.metrics_text())

    if sign == "running":
        server.extra_running = 2
    else:
        server.pages["/metrics"] = grown
    with pytest.raises(InputError, match=r"is serving others .*allowed: an idle server, or --force"):
        run(server)
    assert server.bodies == []


def test_others_who_come_in_the_middle_are_noticed_and_end_the_run(server):
    server.after = [lambda owner: owner.foreign(requests=3, tokens=500) if len(owner.bodies) == 7 else None]
    result = run(server, (2, 1))
    cell = result["cells"][0]
    assert "3 requests that are not ours" in cell["foreign_traffic"]
    assert cell["refused_reason"] == cell["foreign_traffic"]
    assert cell["step_from"] == "client"
    assert cell["acceptance"] is None
    assert "allowed: an idle server, or --force" in result["stopped"]
    assert result["not_measured"] == [1]


def test_with_force_a_busy_server_is_loaded_and_its_cells_are_not_used(server):
    server.extra_running = 2
    result = run(server, (1, 2), force=True)
    assert result["stopped"] is None
    assert [cell["concurrency"] for cell in result["cells"]] == [1, 2]
    assert all("running at once" in cell["refused_reason"] for cell in result["cells"])


def test_a_server_that_runs_fewer_than_asked_is_not_used(server):
    server.extra_running = -2  # the gauge tells what really runs
    cell = run(server, (4,), cell_s=1.5, precision=0.0001)["cells"][0]
    assert "asked for 4 at once, but the server never ran more than 2" in cell["refused_reason"]


# Faults.


def test_no_server_is_one_line_and_nothing_is_written(tmp_path):
    with FaultServer() as gone:
        pass
    with pytest.raises(FaultError, match=r"refuses the connection.*--wait SECONDS"):
        run(gone, files=Files(str(tmp_path / "run.json")))
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_starts_slowly_is_waited_for(server):
    server.ready = False
    threading.Timer(1.2, lambda: setattr(server, "ready", True)).start()
    with pytest.raises(FaultError, match="HTTP 503, not ready to serve: loading the model"):
        run(server)
    told = []
    found = LoadRun(plan(server, wait_s=30.0), waiting=told.append)
    found.run()
    assert found.result()["cells"][0]["num_requests"] > 0
    assert "loading the model" in told[0]


@pytest.mark.parametrize("fault", ["cut", "cut_utf8", "reset", "garbage", "huge", "500", "429:0", "503", "drop"])
def test_a_single_fault_costs_one_request_at_most(server, fault):
    server.faults.extend(["ok", "ok", "ok", "ok", "ok", fault])  # two for finding out, then the third of the cell
    result = run(server, min_requests=24)
    cell = result["cells"][0]
    lost = fault in ("cut", "cut_utf8", "reset", "500")
    assert result["stopped"] is None
    assert cell["complete"]
    assert cell["num_failed"] <= lost
    assert cell["num_requests"] >= 20


def test_many_faults_refuse_the_cell_with_their_share(server):
    server.faults.extend(["ok"] * 6 + ["400", "ok", "ok"] * 20)
    cell = run(server, min_requests=20)["cells"][0]
    assert "requests failed: the load they took is in no figure" in cell["refused_reason"]
    assert cell["client"]["faults"] == {"HTTP 400: status 400": cell["num_failed"]}


@pytest.mark.parametrize(
    ("fault", "words"),
    [("500", "failed one after the other: HTTP 500"), ("cut", "the stream was cut"), ("401", "wants an API key"),
     ("404", "no such model"), ("400", "HTTP 400: status 400")],
)  # fmt: skip
def test_a_server_that_fails_for_good_ends_the_run_with_what_there_is(server, fault, words, tmp_path):
    def fail(owner):
        if len(owner.bodies) >= 12:
            owner.always = fault

    server.after = [fail]
    path = tmp_path / "run.json"
    result = run(server, (2, 1), Files(str(path)), precision=0.0001)
    cell = result["cells"][0]
    assert words in result["stopped"]
    assert words in cell["refused_reason"]
    assert not cell["complete"]
    assert cell["num_requests"] > 0
    assert result["not_measured"] == [1]
    assert words[:20] in str(read_evidence([path]).refused)


def test_a_server_that_goes_away_ends_the_run_with_what_there_is():
    with FaultServer(k=1, pace_s=0.002) as server:
        found = LoadRun(plan(server, (1,), precision=0.0001, cell_s=60.0))
        thread = threading.Thread(target=found.run)
        thread.start()
        while len(server.bodies) < 8:
            time.sleep(0.01)
        server.always = "drop"
    thread.join()
    assert found.stopped
    assert found.result()["cells"][0]["num_requests"] > 0


# Limits.


def test_a_cell_ends_when_it_is_precise_and_not_before_enough_requests(server):
    cell = run(server, precision=1.0, min_requests=6)["cells"][0]
    assert cell["ended_by"] == "precision"
    assert cell["num_requests"] >= 6


def test_a_cell_ends_with_its_time_or_its_requests(server):
    endless, few = {"cell_s": 0.3, "max_requests": 10**6}, {"cell_s": 600.0, "max_requests": 7}  # one end in reach
    assert "--cell-seconds" in run(server, precision=1e-9, **endless)["cells"][0]["ended_by"]
    cell = run(server, precision=1e-9, **few)["cells"][0]
    assert "--max-requests" in cell["ended_by"]
    assert len(cell["requests"]) >= 7


def test_the_run_ends_with_its_tokens_and_names_what_is_left(server):
    result = run(server, (1, 2, 3), total_tokens=300, precision=1e-9)
    assert "--max-tokens" in result["stopped"]
    assert result["not_measured"] == [2, 3]
    tokens = sum(record["output_tokens"] for record in result["cells"][0]["requests"])
    assert 250 <= tokens <= 300 + 2 * TOKENS


def test_the_run_ends_with_its_time_and_names_what_is_left(server):
    result = run(server, (1, 2), total_s=0.5, precision=1e-9)
    assert "--max-minutes" in result["stopped"]
    assert 2 in result["not_measured"]


def test_the_clock_of_the_day_may_jump(server, monkeypatch):
    real, jumped = time.time, []
    monkeypatch.setattr(time, "time", lambda: real() - (3600.0 if jumped else 0.0))
    server.after = [lambda owner: jumped.append(1) if len(owner.bodies) == 7 else None]
    cell = run(server)["cells"][0]
    assert any("-3600.0 s" in note for note in cell["notes"])
    assert cell["tpot_s"]["mean"] > 0
    assert cell["duration_s"] > 0


# Going on.


def test_an_earlier_run_is_continued_and_not_measured_again(server, tmp_path):
    path, outputs = tmp_path / "run.json", tmp_path / "out.jsonl"
    files = Files(str(path), str(outputs))
    first = run(server, (1,), files)
    assert first["cells"][0]["refused_reason"] is None
    with outputs.open("a") as file:
        file.write('{"token_ids": [1, 2')  # torn by a crash
    asked = len(server.bodies)
    second = run(server, (1, 2), files)
    assert second["cells"][0] == first["cells"][0]
    assert [cell["concurrency"] for cell in second["cells"]] == [1, 2]
    assert any("concurrency 1: kept" in note for note in second["notes"])
    assert len(server.bodies) > asked
    records = [json.loads(line) for line in outputs.read_text().splitlines()]
    assert {record["concurrency"] for record in records} == {1, 2}
    asked = len(server.bodies)
    assert run(server, (1, 2), files)["cells"] == second["cells"]
    assert len(server.bodies) == asked  # nothing was left to do
    assert run(server, (1,), Files(str(path), None, fresh=True))["cells"][0] != first["cells"][0]


def test_a_cell_that_was_refused_is_measured_again(server, tmp_path):
    files = Files(str(tmp_path / "run.json"))
    server.after = [lambda owner: owner.foreign(requests=9) if len(owner.bodies) == 6 else None]
    assert run(server, (1,), files)["cells"][0]["refused_reason"]
    server.after = []
    cells = run(server, (1,), files)["cells"]
    assert [cell["refused_reason"] for cell in cells] == [None]


def test_a_run_of_another_load_or_server_is_not_continued(server, tmp_path):
    files = Files(str(tmp_path / "run.json"))
    run(server, (1,), files)
    with pytest.raises(InputError, match=r"another load \(temperature was None, is 0.5\); allowed: .* --fresh"):
        run(server, (1,), files, load={"temperature": 0.5})
    with FaultServer(k=1) as other, pytest.raises(InputError, match="num_speculative_tokens was 3, is 1"):
        run(other, (1,), files)


@pytest.mark.parametrize("content", ["{", "[1]", '{"cells": []}', "\x00", '{"cells": [], "server": {}}'])
def test_a_file_that_is_no_run_is_not_overwritten(server, tmp_path, content):
    path = tmp_path / "run.json"
    path.write_text(content)
    with pytest.raises(InputError, match="is no run file; allowed: a new file, or an earlier run's"):
        run(server, (1,), Files(str(path)))
    assert path.read_text() == content


def test_outputs_are_what_replay_reads(server, tmp_path):
    path = tmp_path / "out.jsonl"
    run(server, (1,), Files(None, str(path)))
    record = json.loads(path.read_text().splitlines()[0])
    assert len(record["token_ids"]) == TOKENS
    assert record["tokens_per_step"] == [1] + [2] * 20
    assert record["text"] == " wört" * TOKENS


def test_first_answers_that_are_cut_to_start_the_loop_are_marked(server, tmp_path):
    path = tmp_path / "out.jsonl"
    run(server, (2,), Files(None, str(path)))
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert [len(record["token_ids"]) < TOKENS for record in records] == [record["shortened"] for record in records]
    assert sum(record["shortened"] for record in records) == 1  # the second user's first one is whole


def test_progress_is_reported_with_the_time_that_is_left(server):
    seen = []
    LoadRun(plan(server, (1, 2)), seen.append).run()
    assert {item.cell.phase for item in seen} == {"warming up", "measuring", "finishing"}
    measuring = [item for item in seen if item.cell.phase == "measuring"]
    assert all(0 <= item.cell.left_s <= item.run_left_s for item in measuring)
