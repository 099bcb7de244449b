"""`draftcast watch`: what it prints, how it ends, and that nothing secret leaves it."""

import json
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest
from fault_server import FaultServer

CHECKOUT = Path(__file__).parents[2]
SECRET = "sk-verysecretkey123456"
TOLD = ("--gpu", "h200", "--model", "qwen3-30b-a3b-bf16", "--method", "eagle3", "--draws", "200")
FAST = ("--interval", "0.3", *TOLD)
POOR = {"conditional": (0.45, 0.3, 0.25), "step_s": 0.02}
CONTRACT = {"time", "num_speculative_tokens", "best_num_speculative_tokens", "speedup", "reason"}


@contextmanager
def traffic(server, **work):
    """Work is counted all the time."""
    stop = threading.Event()

    def go():
        while not stop.wait(0.05):
            server.work(**(POOR | work))

    thread = threading.Thread(target=go, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@pytest.fixture
def server():
    with FaultServer(k=3) as running:
        running.work(**POOR)
        yield running


def started(url, *arguments, **options):
    """The program in a process of its own."""
    program = "import sys; from draftcast.start import main; sys.exit(main())"
    command = [sys.executable, "-u", "-c", program, "watch", url, *map(str, arguments)]
    return subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def test_json_is_a_line_an_interval_with_the_contracts_keys(server, run):
    with traffic(server):
        done = run("watch", server.url, *FAST, "--count", "3", "--persist", "2", "--json")
    assert done.exit_code == 0
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(lines) == 3
    assert all(set(line) >= CONTRACT for line in lines)
    assert [line["num_speculative_tokens"] for line in lines] == [3, 3, 3]
    assert lines[-1]["best_num_speculative_tokens"] < 3
    assert set(lines[-1]["speedup"]) == {"p05", "p50", "p95"}
    assert lines[-1]["speedup"]["p50"] > 1.03
    assert [line["changed"] for line in lines].count(True) == 1


def test_it_sends_no_load(server, run):
    with traffic(server):
        run("watch", server.url, *FAST, "--count", "2")
    assert server.bodies == []


def test_the_table_fits_80_columns_and_says_the_change_once(server, run):
    with traffic(server):
        done = run("watch", server.url, *FAST, "--count", "4", "--persist", "2")
    assert done.exit_code == 0
    assert max(map(len, done.stdout.splitlines())) <= 80
    words = " ".join(done.stdout.split())
    assert "Watching toy on vllm 0.32.0 at" in words
    assert words.count("is better than the deployed k=3") == 2  # as it comes, and in the summary
    assert "Watched 4 intervals: 4 compared." in words


def test_silence_is_said_once_and_the_return_as_well(server, run):
    done = run("watch", server.url, *FAST, "--count", "4")
    assert " ".join(done.stdout.split()).count("idle: no traffic") == 1
    server.metrics = "half"
    threading.Timer(1.0, setattr, (server, "metrics", "ok")).start()
    with traffic(server):
        done = run("watch", server.url, *FAST, "--count", "8")
    words = " ".join(done.stdout.split())
    assert words.count("/metrics was cut short") <= 2  # at the start, and once in the table
    assert "figures again" in words or "another process" in words or "first look" in words


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "does not say hardware.gpu; allowed: --gpu NAME"),
        (("--gpu", "h200"), "is no card known here: name one with --model: the path of its config.json"),
        (("--gpu", "h200", "--model", "qwen3-30b-a3b-bf16"), "does not say speculation.method; allowed: --method"),
        ((*TOLD, "--listen", "nowhere"), "--listen: got 'nowhere', allowed: HOST:PORT"),
        ((*TOLD, "--served-model", "other"), "got 'other', the server has: toy"),
        ((*TOLD, "-k", "99"), "got 99, allowed 0 to 64"),
        (("/no/such.toml",), "no such file"),
        (("examples/kimi-k2.5-8x-rtx-pro-6000.toml", "--deployment", "x.toml"), "both given"),
        ((*TOLD, "--acceptance", "/no/such.json"), "no file '/no/such.json'"),
        ((*TOLD, "--api-key-env", "NO_SUCH_VARIABLE"), "NO_SUCH_VARIABLE is empty or not set"),
    ],
)
def test_what_cannot_be_done_is_one_line(server, run, arguments, words):
    done = run("watch", server.url, *arguments, "--count", "1", "--interval", "0.2")
    assert done.exit_code == 1, done.output
    assert done.stdout == ""
    assert words in done.stderr
    assert len([line for line in done.stderr.strip().splitlines() if not line.startswith("note:")]) == 1


@pytest.mark.parametrize("option", ["--interval=0", "--count=0", "--persist=0", "--min-probability=2", "-k=x"])
def test_values_out_of_their_range_are_wrong_usage(server, run, option):
    assert run("watch", server.url, option).exit_code == 2


def test_a_port_in_use_is_one_line(server, run):
    port = int(server.url.rpartition(":")[2])
    done = run("watch", server.url, *TOLD, "--listen", str(port))
    assert done.exit_code == 1
    assert done.stderr.strip().splitlines() == [
        f"Error: --listen: cannot listen on 127.0.0.1:{port}: address already in use; allowed: a free port of this "
        "machine"
    ]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_with_a_summary_and_no_trace_and_frees_the_port(server, number):
    port = free_port()
    with traffic(server):
        process = started(server.url, *FAST, "--listen", str(port))
        head = [process.stdout.readline() for _ in range(7)]
        assert any("load" in line for line in head)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as reply:
            assert "draftcast_watch_deployed_num_speculative_tokens 3" in reply.read().decode()
        process.send_signal(number)
        stdout, stderr = process.communicate(timeout=30)
    assert process.returncode == 0
    assert "Watched " in stdout
    assert "Traceback" not in stderr
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("127.0.0.1", port))


def test_ctrl_c_leaves_json_lines_whole_and_the_summary_on_stderr(server):
    process = started(server.url, *FAST, "--json")
    first = process.stdout.readline()
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=30)
    assert process.returncode == 0
    for line in [first, *stdout.splitlines()]:
        json.loads(line)
    assert "Watched " in stderr
    assert "Traceback" not in stderr


def test_the_key_is_nowhere_but_in_the_requests(server, run, monkeypatch):
    server.key = SECRET
    monkeypatch.setenv("THE_KEY", SECRET)
    with traffic(server):
        good = run("watch", server.url, *FAST, "--count", "1", "--api-key-env", "THE_KEY")
    assert good.exit_code == 0
    bad = run("watch", server.url, *FAST, "--count", "1")
    assert bad.exit_code == 1
    assert "wants an API key" in bad.stderr
    assert SECRET not in good.output + bad.output


def test_a_deployment_file_says_what_the_server_does_not(server, run, tmp_path):
    path = tmp_path / "d.toml"
    path.write_text(
        '[model]\nconfig = "qwen3-30b-a3b-bf16"\n[hardware]\ngpu = "h200"\n[speculation]\nmethod = "eagle3"\n'
    )
    for given in ((path,), ("--deployment", path)):
        with traffic(server):
            done = run("watch", server.url, *given, "--count", "1", "--interval", "0.3", "--draws", "200", "--json")
        assert json.loads(done.stdout)["status"] == "ok"


def test_a_baseline_uses_a_replay_for_what_would_be_accepted(run, tmp_path):
    path = tmp_path / "replay.json"
    recorded = tmp_path / "recorded.jsonl"
    ids = [1, 2, 3, 4, 5] * 40
    recorded.write_text(json.dumps({"prompt_token_ids": ids[:50], "token_ids": ids[50:]}) + "\n")
    assert run("replay", recorded, "--method", "ngram", "-k", "1-4", "-o", path).exit_code == 0
    told = ("--gpu", "h200", "--model", "qwen3-30b-a3b-bf16", "--method", "ngram", "--draws", "200")
    with FaultServer(k=0) as server, traffic(server, step_s=0.011):
        done = run("watch", server.url, *told, "--acceptance", path, "--count", "1", "--interval", "0.3", "--json")
    line = json.loads(done.stdout)
    assert line["acceptance_source"] == "the deployment's (replay)"
    assert line["interval_best_num_speculative_tokens"] > 0


def test_a_restart_in_between_is_one_line_and_the_watch_goes_on(server):
    with traffic(server):
        process = started(server.url, *FAST, "--json", "--count", "8")
        assert json.loads(process.stdout.readline())["status"] == "ok"
        server.k = 2
        server.restart()
        stdout, _ = process.communicate(timeout=60)
    lines = [json.loads(line) for line in stdout.splitlines()]
    assert [line["status"] for line in lines].count("restarted") == 1
    assert lines[-1]["status"] == "ok"
    assert lines[-1]["num_speculative_tokens"] == 2
    assert time.strptime(lines[-1]["time"][:19], "%Y-%m-%dT%H:%M:%S")


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_full_disk_under_its_output_is_one_line(server, options):
    program = "import sys; from draftcast.start import main; sys.exit(main())"
    command = [sys.executable, "-c", program, "watch", server.url, *FAST, "--count", "2", *options]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, cwd=CHECKOUT, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert "the output cannot be written" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_a_reader_that_goes_away_ends_it_quietly(server):
    with traffic(server):
        process = started(server.url, *FAST, "--json")
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(timeout=60) in (1, 141)  # click ends with 1 where a write fails, the last flush with 141
        assert "Traceback" not in process.stderr.read()
        process.stderr.close()


def test_kill_9_leaves_nothing_and_frees_the_port(server):
    port = free_port()
    process = started(server.url, *FAST, "--listen", str(port))
    assert "Watching" in process.stdout.readline()
    process.kill()
    process.communicate(timeout=30)
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("127.0.0.1", port))


def test_a_clock_that_is_set_changes_no_interval_and_no_health(server, monkeypatch):
    from validate.watch.exposition import Figures
    from validate.watch.record import Record

    figures = Figures(server.url, 30.0)
    figures.take(Record("t", "idle", "no traffic"), None, time.time())
    monkeypatch.setattr(time, "time", lambda: 4e9)
    assert figures.since_good_s < 5
