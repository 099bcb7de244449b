"""`draftcast measure`: what it prints, what it writes, and how it ends."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fault_server import FaultServer

from calibration.readers.read import read_evidence

CHECKOUT = Path(__file__).parents[2]
FAST = ("--output-tokens", "21", "--warmup-seconds", "0", "--precision", "1")
SECRET = "sk-verysecretkey123456"


@pytest.fixture
def server():
    with FaultServer(k=2, tokens_per_step=2, pace_s=0.003) as running:
        yield running


def started(url, *arguments, **options):
    """The program in a process of its own."""
    program = "import sys; from draftcast.start import main; sys.exit(main())"
    command = [sys.executable, "-c", program, "measure", url, *map(str, arguments)]
    return subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def wait_for(condition, seconds=60.0):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_json_is_one_object_with_the_contracts_keys_and_reads_back(server, run, tmp_path):
    path = tmp_path / "run.json"
    done = run("measure", server.url, "-c", "1,2", *FAST, "--json", "-o", path, "--method", "mtp")
    assert done.exit_code == 0
    result = json.loads(done.stdout)
    assert [cell["concurrency"] for cell in result["cells"]] == [1, 2]
    for name in ("tpot_s", "step_s", "tokens_per_step", "throughput_tokens_per_s", "ttft_s", "acceptance"):
        assert all(cell[name] is not None for cell in result["cells"]), name
    assert result["server"]["method"] == "mtp"
    assert result["inputs"]["concurrencies"] == [1, 2]
    assert result["inputs"]["url"] == server.url
    assert json.loads(path.read_text())["cells"] == result["cells"]
    assert read_evidence([path]).files[0].format == "draftcast run file"


def test_the_table_fits_80_columns_and_tells_both_sides(server, run):
    done = run("measure", server.url, "-c", "2", *FAST)
    assert done.exit_code == 0
    assert max(map(len, done.stdout.splitlines())) <= 80
    words = " ".join(done.stdout.split())
    assert "toy on vllm 0.32.0, 2 draft tokens: 1 cell measured" in words
    assert "by position 1.00 0.00; 2.00 tokens per drafted step, a draft on 100 % of the steps" in words
    assert "requests, " in words
    assert " steps, TPOT " in words
    assert "cache salt" in done.stderr


def test_a_cell_that_must_not_be_used_is_marked_with_its_reason(server, run):
    server.always = None
    server.after = [lambda owner: owner.foreign(requests=2, tokens=90) if len(owner.bodies) == 6 else None]
    done = run("measure", server.url, "-c", "1,2", *FAST)
    assert done.exit_code == 1
    words = " ".join(done.stdout.split())
    assert "1!" in words
    assert "2 requests that are not ours" in words
    assert "Not measured - concurrency 2" in words
    assert done.stderr.splitlines()[-1].startswith("Error: others used the server meanwhile")


def test_a_watch_prints_the_tables_for_the_deployment_file(server, run):
    done = run("measure", server.url, "--passive", "0.05", "--interval", "0.5")
    assert done.exit_code == 0
    assert "No tables for a deployment file: no token was generated while it was watched." in " ".join(
        done.stdout.split()
    )
    result = json.loads(run("measure", server.url, "--passive", "0.05", "--interval", "0.5", "--json").stdout)
    assert result["cells"] == []
    assert result["deployment_toml"] is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("-c", "0"), "got 0, allowed: 1 to 512"),
        (("-c", "1,9999"), "got 9999, allowed: 1 to 512"),
        (("--prompts", "/no/such/file"), "cannot read /no/such/file"),
        (("-o", "/no/such/folder/run.json"), "no such folder"),
        (("-o", "x", "--outputs", "x"), "allowed: a file of its own"),
        (("--api-key-env", "NO_SUCH_VARIABLE"), "NO_SUCH_VARIABLE is empty or not set"),
        (("--served-model", "other"), "got 'other', the server has: toy"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_sends_nothing(server, run, monkeypatch, tmp_path, arguments, words):
    monkeypatch.chdir(tmp_path)
    done = run("measure", server.url, *arguments)
    assert done.exit_code == 1
    assert done.stdout == ""
    assert words in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert server.bodies == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("url", ["localhost:8000", "http://user:pass@host", "http://127.0.0.1:1"])
def test_a_url_without_a_server_is_one_line(run, url):
    done = run("measure", url)
    assert done.exit_code == 1
    assert len(done.stderr.strip().splitlines()) == 1
    assert "pass@" not in done.stderr


@pytest.mark.parametrize("option", ["--precision=0", "--cell-seconds=-1", "--api=grpc", "--passive=0", "-c=x"])
def test_values_out_of_their_range_are_wrong_usage(server, run, option):
    assert run("measure", server.url, option).exit_code == 2


def test_the_key_is_nowhere_but_in_the_requests(server, run, monkeypatch, tmp_path):
    server.key = SECRET
    monkeypatch.setenv("THE_KEY", SECRET)
    path = tmp_path / "run.json"
    good = run("measure", server.url, "-c", "1", *FAST, "--api-key-env", "THE_KEY", "-o", path, "--json")
    assert good.exit_code == 0
    monkeypatch.setenv("THE_KEY", SECRET + "x")
    bad = run("measure", server.url, "-c", "1", "--api-key-env", "THE_KEY")
    assert bad.exit_code == 1
    assert "wants an API key" in bad.stderr
    for text in (good.output, path.read_text(), bad.output):
        assert SECRET not in text


def test_prompts_of_a_file_are_what_is_sent(server, run, tmp_path):
    path = tmp_path / "traffic.jsonl"
    path.write_text('{"body": {"messages": [{"role": "user", "content": "from the file"}], "max_tokens": 12}}\n')
    done = run(
        "measure", server.url, "-c", "1", "--prompts", path, "--warmup-seconds", "0", "--precision", "1", "--json"
    )
    assert done.exit_code == 0
    assert {body["messages"][0]["content"] for body in server.bodies} == {"from the file"}
    assert max(body["max_tokens"] for body in server.bodies) == 12
    assert json.loads(done.stdout)["prompts"]["prompts"] == 1


def test_ctrl_c_prints_and_keeps_what_was_measured(server, tmp_path):
    path = tmp_path / "run.json"
    process = started(server.url, "-c", "1,2", *FAST, "--json", "-o", path)
    wait_for(lambda: path.exists() and json.loads(path.read_text())["cells"])
    asked = len(server.bodies)
    server.pace_s = 0.05  # the second cell now takes its time
    wait_for(lambda: len(server.bodies) > asked + 1)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted" in stderr
    assert "Traceback" not in stderr
    result = json.loads(stdout)
    assert [cell["complete"] for cell in result["cells"]] == [True, False]
    assert json.loads(path.read_text())["cells"] == result["cells"]
    assert not list(tmp_path.glob("*.part"))
    wait_for(lambda: server.counters.running == 0)  # no request is left behind


def test_ctrl_c_before_the_first_cell_leaves_nothing(server, tmp_path):
    server.ready = False
    path = tmp_path / "run.json"
    process = started(server.url, "--wait", "600", "-o", path)
    wait_for(lambda: server.headers)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stdout) == (130, "")
    assert stderr.strip().splitlines()[-1] == "Error: interrupted; nothing was written"
    assert list(tmp_path.iterdir()) == []


def test_kill_9_loses_the_cell_under_way_and_the_run_goes_on_from_there(server, run, tmp_path):
    path = tmp_path / "run.json"
    arguments = ("-c", "1,2", *FAST, "--outputs", tmp_path / "out.jsonl", "-o", path)
    process = started(server.url, *arguments)
    wait_for(lambda: path.exists() and json.loads(path.read_text())["cells"])
    server.pace_s = 0.05
    process.kill()
    process.communicate(timeout=60)
    kept = json.loads(path.read_text())["cells"]
    assert [cell["concurrency"] for cell in kept] == [1]
    server.pace_s = 0.003
    wait_for(lambda: server.counters.running == 0)
    done = run("measure", server.url, *arguments, "--json")
    assert done.exit_code == 0
    cells = json.loads(done.stdout)["cells"]
    if kept[0]["refused_reason"] is None:
        assert cells[0] == kept[0]
    assert [cell["concurrency"] for cell in cells] == [1, 2]
    records = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    numbers = [(record["concurrency"], record["number"]) for record in records]
    assert len(set(numbers)) == len(numbers)


@pytest.mark.skipif(not hasattr(resource, "RLIMIT_FSIZE"), reason="no limits on file sizes here")
def test_a_full_disk_ends_the_run_with_one_line_and_the_results_on_stdout(server, tmp_path):
    """A limit on file sizes stands in for a disk without room: both fail while writing."""
    path = tmp_path / "run.json"

    def limited():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))

    process = started(server.url, "-c", "1,2", *FAST, "--json", "-o", path, preexec_fn=limited, env=_without_bytecode())
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "cannot write" in stderr.splitlines()[-1]
    assert "Traceback" not in stderr
    assert [cell["concurrency"] for cell in json.loads(stdout)["cells"]] == [1]
    assert list(tmp_path.iterdir()) == []


def _without_bytecode():
    return os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
