"""`draftcast serve` over HTTP: the same answers as the commands, nobody else's questions, nothing left behind."""

import html
import json
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.message import Message
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from loopback import answered
from profiles import profile_of
from report_pages import DEPLOYMENT
from served import asked, serving_page, site_of, written

from draftcast.serve import answer as answers
from draftcast.serve import site as site_module
from draftcast.serve.answer import PREVIEW_DRAWS, Answers, Gone
from draftcast.serve.command_line import commands
from draftcast.serve.drawings import heat_rules
from draftcast.serve.source import Source
from draftcast.serve.state import State
from hwmodel.errors import InputError
from simulator.deployment import load_deployment
from validate.report.theme import DIVERGING
from validate.web import server

Run = Callable[..., Result]
PROGRAM = (sys.executable, "-c", "import sys; from draftcast.start import main; sys.exit(main())")
CHECKOUT = Path(__file__).parent.parent.parent
SETTINGS = {
    "speculation.method": "ngram",
    "speculation.num_speculative_tokens": "4",
    "speculation.acceptance.conditional": "0.7",
    "hardware.allreduce_latency_us": "30",
    "c": "4",
}
"""Settings of controls; `c` is the load that is looked into."""


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("serve"), DEPLOYMENT)


@pytest.fixture(scope="module")
def url(box: Path) -> Iterator[str]:
    with serving_page(site_of(box)) as found:
        yield found


def get(url: str, method: str = "GET", **headers: str) -> tuple[int, Message, str]:
    """Status, headers and text, whatever the status; redirections are not followed."""

    class Stay(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *_: Any) -> None:
            return None

    try:
        with urllib.request.build_opener(Stay).open(
            urllib.request.Request(url, headers=headers, method=method), timeout=30
        ) as reply:
            return reply.status, reply.headers, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read().decode()


def query(settings: dict[str, str] | list[tuple[str, str]]) -> str:
    return urllib.parse.urlencode(settings)


def command_line(settings: dict[str, str]) -> list[str]:
    return [word for key, value in settings.items() if key != "c" for word in ("--set", f"{key}={value}")]


def told_by(run: Run, *arguments: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(*arguments, "--draws", "200", "--json").stdout)
    return found


def test_the_answer_is_to_the_last_digit_that_of_the_commands(url: str, box: Path, run: Run) -> None:
    page = json.loads(get(f"{url}answer.json?{query(SETTINGS)}")[2])
    assert page["choose"] == told_by(run, "choose", box, *command_line(SETTINGS))
    assert page["predict"] == told_by(run, "predict", box, *command_line(SETTINGS), "-c", "4")


def test_the_commands_on_the_page_are_the_ones_to_type(url: str, box: Path, run: Run) -> None:
    page = json.loads(get(f"{url}answer.json?{query(SETTINGS)}&set=workload.kind%3Dchat")[2])
    for name, command in zip(("choose", "predict"), page["commands"], strict=True):
        program, *words = shlex.split(command)
        assert program == "draftcast"
        assert json.loads(run(*words, "--json").stdout) == page[name]


def test_the_exported_file_gives_the_answer_of_the_page(url: str, tmp_path: Path, run: Run) -> None:
    asked_for = query([*SETTINGS.items(), ("set", "engine.max_num_seqs=64"), ("set", "restart.outage_min=12")])
    page = json.loads(get(f"{url}answer.json?{asked_for}")[2])
    status, headers, text = get(f"{url}deployment.toml?{asked_for}")
    assert (status, headers["Content-Disposition"]) == (200, 'attachment; filename="deployment.toml"')
    file = tmp_path / "deployment.toml"
    file.write_text(text, encoding="utf-8")
    for name, more in (("choose", ()), ("predict", ("-c", "4"))):
        again = told_by(run, name, file, *more)
        for key in set(page[name]) - {"notes"}:  # what was left out of the first file is said of that one only
            assert again[key] == page[name][key], key


def test_a_profile_counts_on_the_page_as_in_the_commands(box: Path, tmp_path: Path, run: Run) -> None:
    profile = tmp_path / "profile.json"
    learned = profile_of(load_deployment(box), {"kernel_floor_us": 1.0})
    profile.write_text(json.dumps(learned.to_document()), encoding="utf-8")
    with serving_page(site_of(box, profile=str(profile))) as found:
        page = json.loads(get(f"{found}answer.json?c=8")[2])
        text = get(f"{found}deployment.toml?c=8")[2]
    file = tmp_path / "deployment.toml"
    file.write_text(text, encoding="utf-8")
    assert "# It needs the same --profile." in text
    again = told_by(run, "predict", file, "--profile", profile, "-c", "8")
    assert again["speedup"] == page["predict"]["speedup"]
    assert page["choose"] == told_by(run, "choose", box, "--profile", profile)
    assert page["predict"] == told_by(run, "predict", box, "--profile", profile, "-c", "8")
    assert f"--profile {profile}" in page["commands"][0]


def test_a_launch_text_is_a_deployment_too_and_its_credentials_stay_hidden(run: Run) -> None:
    launch = "vllm serve Qwen/Qwen3-30B-A3B --tensor-parallel-size 2 --api-key sk-verysecretindeed1"
    with serving_page(site_of(launch, gpu="h200", method="ngram")) as found:
        page = json.loads(get(f"{found}answer.json?set=engine.version%3D0.11.0")[2])
        text = get(found)[2] + get(f"{found}deployment.toml")[2]
    options = ("--gpu", "h200", "--method", "ngram", "--set", "engine.version=0.11.0")
    assert page["choose"] == told_by(run, "choose", launch, *options)
    assert "verysecret" not in text + json.dumps(page)
    assert "***" in text


def test_the_commands_of_a_launch_keep_its_quotes(run: Run) -> None:
    config = json.dumps({"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4})
    launch = f"vllm serve Qwen/Qwen3-30B-A3B \\\n  -tp 2 --speculative-config '{config}'"
    with serving_page(site_of(launch, gpu="h200")) as found:
        page = json.loads(get(f"{found}answer.json?c=2")[2])
    for name, command in zip(("choose", "predict"), page["commands"], strict=True):
        assert json.loads(run(*shlex.split(command)[1:], "--json").stdout) == page[name]


def test_the_file_is_read_once(tmp_path: Path) -> None:
    path = tmp_path / "box.toml"
    path.write_text(DEPLOYMENT, encoding="utf-8")
    with serving_page(site_of(path)) as found:
        path.unlink()
        assert get(f"{found}?c=8")[0] == 200


def test_the_page_without_scripts_is_complete(url: str) -> None:
    settings = query([*SETTINGS.items(), ("set", "workload.kind=chat")])
    status, headers, text = get(f"{url}?{settings}")
    assert status == 200
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    page = json.loads(get(f"{url}answer.json?{settings}")[2])
    speedup = page["predict"]["speedup"]
    assert f"{speedup['p50']:.2f}x (90 % interval {speedup['p05']:.2f}-{speedup['p95']:.2f}" in text
    assert 'name="hardware.allreduce_latency_us" inputmode="decimal" value="30" placeholder="-"' in text
    assert '<option value="ngram" selected>ngram</option>' in text
    assert re.search(r"<textarea[^>]*>workload\.kind=chat</textarea>", text)
    assert text.count('<td class="h') == len(page["choose"]["grid"])
    assert "<style" not in text
    assert not re.search(r"<script(?! src=\"page\.js\")", text)
    assert not re.search(r"<[^>]* (?:style|on[a-z]+)=", text)


def test_a_form_that_was_sent_is_led_to_the_address_of_its_state(url: str) -> None:
    status, headers, _ = get(f"{url}?speculation.method=&hardware.num_gpus=&set=&c=4")
    assert (status, headers["Location"]) == (303, "./?c=4")
    assert get(f"{url}?set=")[1]["Location"] == "./"
    assert get(f"{url}?c=4")[0] == 200


@pytest.mark.parametrize(
    ("settings", "status", "told"),
    [
        ("nonsense=1", 400, "the address: got 'nonsense', allowed: speculation.method"),
        ("model.config=/etc/passwd", 400, "model.config: got '/etc/passwd', allowed on the page: "),
        ("engine.tensor_parallel_size=4", 422, "engine: TP 4 x PP 1 x DP 1 = 4 GPUs, allowed: hardware.num_gpus = 2"),
        ("hardware.num_gpus=many", 422, 'hardware.num_gpus: got "many", allowed: integer from 1 to 16384'),
        ("set=parameters.nothing%3D1", 422, "no model parameter 'nothing'; `draftcast list parameters` has all"),
        ("%3Cscript%3E=1", 400, "the address: got '<script>', allowed: "),
    ],
)
def test_what_cannot_be_answered_is_one_line_everywhere(url: str, settings: str, status: int, told: str) -> None:
    page, changed, plain, file = (get(f"{url}{p}?{settings}") for p in ("", "change", "answer.json", "deployment.toml"))
    assert [page[0], changed[0], plain[0], file[0]] == [status, 200, status, status]
    assert json.loads(plain[2])["error"].startswith(told)
    assert json.loads(changed[2])["error"].startswith(told)
    assert json.loads(changed[2])["answer"] is None
    assert file[2].startswith(told)
    assert file[2].count("\n") == 1
    assert "<script>" not in page[2]
    assert f'role="alert">{html.escape(told)}' in page[2]


def test_the_preview_has_few_draws_and_says_so_and_the_same_deployment(box: Path) -> None:
    with serving_page(site_of(box, num_draws=1000)) as found:
        rough, full = (json.loads(get(f"{found}{path}?c=4")[2]) for path in ("preview", "change"))
    assert f"Preview of {PREVIEW_DRAWS} draws" in rough["answer"]
    assert "1,000 draws, seed 0: the commands below say exactly the same." in full["answer"]
    medians = [re.findall(r'data-fact="tpot">([^<]*)<', each["answer"]) for each in (rough, full)]
    assert medians[0] == medians[1] != []  # at the median of the parameters, whatever the draws


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "", "a b", "[x"]
)
def test_a_name_that_may_have_been_pointed_here_is_refused(url: str, host: str) -> None:
    assert get(url, Host=host)[0] == 421
    assert get(f"{url}page.js", Host=host)[0] == 421


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:9000", "127.0.0.1:1", "[::1]:8577", "10.0.0.7"])
def test_own_names_and_plain_addresses_are_answered_also_through_a_forwarded_port(url: str, host: str) -> None:
    assert get(f"{url}icon.svg", Host=host)[0] == 200


def test_other_sites_scripts_are_refused_but_a_link_from_there_is_not(url: str) -> None:
    for site in ("cross-site", "same-site"):
        assert get(f"{url}change", **{"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors"})[0] == 403
        assert get(url, **{"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate"})[0] == 200
    assert get(f"{url}change", **{"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"})[0] == 200


def test_every_answer_carries_the_policy_and_no_leave_for_other_origins(url: str) -> None:
    for path, options in (("", {}), ("change", {}), ("nowhere", {}), ("page.css", {}), ("", {"method": "POST"})):
        headers = get(f"{url}{path}", **options)[1]
        assert headers["Content-Security-Policy"].startswith("default-src 'none'; script-src 'self'; ")
        assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert headers["Access-Control-Allow-Origin"] is None


def test_only_reading_is_allowed_and_only_what_is_there(url: str) -> None:
    assert [get(url, method=name)[0] for name in ("POST", "PUT", "DELETE", "OPTIONS", "FOO")] == [405] * 5
    paths = ("etc/passwd", "..%2f..%2fetc/passwd", "page.js/", "a//", "index.html")
    assert [get(f"{url}{path}")[0] for path in paths] == [404] * 5
    status, headers, text = get(f"{url}page.css", method="HEAD")
    assert (status, text) == (200, "")
    assert int(headers["Content-Length"]) > 1000


def test_an_endless_or_senseless_request_is_answered_shortly(url: str) -> None:
    for sent in (b"<script>\r\n\r\n", b"GET /?a=" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n", b"\x16\x03\x01\r\n\r\n"):
        answer = answered(url, sent)
        assert len(answer) < 1000
        assert b"<script" not in answer


def test_hostile_texts_of_a_deployment_are_text_on_the_page(tmp_path: Path) -> None:
    hostile = "\"'></title></p><script>window.broken=1</script><img src=x onerror=window.broken=1>"
    path = tmp_path / "box.toml"
    path.write_text(DEPLOYMENT, encoding="utf-8")
    with serving_page(site_of(path, subject=hostile, overrides=(f"costs.currency={hostile[:16]}",))) as found:
        text = get(f"{found}?{query({'set': 'costs.currency=</textarea><b>'})}")[2]
    assert "<script>" not in text
    assert "<img" not in text
    assert "<b>" not in text
    assert "costs.currency=&lt;/textarea&gt;&lt;b&gt;" in text


def test_what_nobody_waits_for_is_not_computed(box: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[int | None] = []
    asked_about = Answers(Source(asked(box), None))
    monkeypatch.setattr(Answers, "_computed", lambda self, state, draws: computed.append(state.load))
    with pytest.raises(Gone):
        asked_about.answer(State({}, load=2), is_gone=lambda: True)
    asked_about.answer(State({}, load=3), is_gone=lambda: False)
    asked_about.answer(State({}, load=3), is_gone=lambda: True)  # is there already
    assert computed == [3]


def test_questions_whose_askers_have_gone_do_not_pile_up(box: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site, slow, computed = site_of(box), threading.Event(), []
    original = Answers._computed

    def held(self: Answers, state: State, num_draws: int) -> Any:
        computed.append(state.load)
        assert slow.wait(10)
        return original(self, state, num_draws)

    monkeypatch.setattr(Answers, "_computed", held)
    with serving_page(site) as found:
        host, port = found.strip("/").removeprefix("http://").split(":")
        first = threading.Thread(target=get, args=(f"{found}change?c=1",))
        first.start()
        while not computed:
            time.sleep(0.01)
        for load in (2, 3, 4):  # asked and given up while the first is computed
            with socket.create_connection((host, int(port)), timeout=5) as sock:
                sock.sendall(f"GET /change?c={load} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
                time.sleep(0.1)
        slow.set()
        first.join()
        assert json.loads(get(f"{found}change?c=5")[2])["error"] is None
    assert computed == [1, 5]


def test_answers_that_are_kept_are_bounded(box: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "_KEPT", 3)
    computed: list[int | None] = []
    asked_about = Answers(Source(asked(box), None))
    monkeypatch.setattr(Answers, "_computed", lambda self, state, draws: computed.append(state.load))
    for load in (1, 2, 3, 4, 4, 1):
        asked_about.answer(State({}, load=load))
    assert computed == [1, 2, 3, 4, 1]


def test_an_error_of_our_own_is_said_in_short_and_logged_in_full(
    box: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    site = site_of(box)
    monkeypatch.setattr(Answers, "_computed", lambda *_: 1 / 0)
    reply = site.reply("/change?c=77", {"host": "localhost"}, lambda: False)
    assert (reply.status, reply.text.count("\n")) == (500, 1)
    assert "division by zero" not in reply.text
    assert "ZeroDivisionError" in caplog.text


def test_a_running_servers_settings_stay_with_its_version(box: Path) -> None:
    source = Source(asked(box), None)
    source._is_fixed = False
    source._expanded = {None: next(iter(source._expanded.values())).__class__("http://h", {}, (), "server")}
    with pytest.raises(InputError, match=r"engine\.version: the server was asked as it runs"):
        source.deployment(["engine.version=0.11.0"])


def test_the_heat_map_has_the_colours_of_the_report(url: str) -> None:
    style = get(f"{url}page.css")[2]
    assert heat_rules() in style
    assert all(color in style for color in DIVERGING)


def test_it_needs_no_library_of_charts_and_loads_no_simulation(box: Path) -> None:
    script = (
        "import sys; sys.path.insert(0, 'tests'); sys.modules['vl_convert'] = None\n"
        f"from served import site_of; site = site_of({str(box)!r})\n"
        "reply = site.reply('/?c=4', {'host': 'localhost'}, lambda: False)\n"
        "print(reply.status, 'simpy' in sys.modules, 'requests' in sys.modules, 'scipy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=CHECKOUT)
    assert done.stdout == "200 False False False\n"


# The command itself


@contextmanager
def started(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [*PROGRAM, "serve", *map(str, arguments)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=CHECKOUT,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_prints_its_address_in_one_line_and_ctrl_c_ends_it_without_a_word(box: Path, number: signal.Signals) -> None:
    with started(box, "--port", "0", "--draws", "100") as process:
        assert process.stdout is not None
        address = process.stdout.readline()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\n", address)
        host, port = address.strip("/\n").removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=5) as sock:  # gone before the answer is written
            sock.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert get(address.strip())[0] == 200
        process.send_signal(number)
        rest, errors = process.communicate(timeout=30)
    assert (process.returncode, rest, errors) == (0, "", "")


def test_a_port_in_use_and_a_bad_address_are_one_line(box: Path, url: str, run: Run) -> None:
    port = url.strip("/").rpartition(":")[2]
    result = run("serve", box, "--port", port, "--draws", "100")
    assert result.exit_code == 1
    assert result.stderr == (
        f"Error: --port: cannot listen on 127.0.0.1:{port}: address already in use; allowed: a free port of this"
        " machine\n"
    )
    result = run("serve", box, "--host", "192.0.2.1", "--port", "0", "--draws", "100")
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert result.stderr.startswith("Error: --host: cannot listen on 192.0.2.1:0: ")
    assert result.stderr.endswith("; allowed: an address of this machine\n")
    assert run("serve", box, "--port", "99999").exit_code == 2


def test_what_is_wrong_with_the_deployment_is_said_before_a_page_is(box: Path, run: Run) -> None:
    result = run("serve", box, "--set", "engine.tensor_parallel_size=4", "--port", "0")
    assert result.exit_code == 1
    assert "4 GPUs, allowed: hardware.num_gpus = 2" in result.stderr
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


def test_it_warns_where_others_can_ask(box: Path) -> None:
    with started(box, "--port", "0", "--host", "0.0.0.0", "--draws", "100", "--json") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        address = json.loads(process.stdout.readline())
        assert process.stderr.readline() == (
            "note: any machine that reaches this address can ask, without a password\n"
        )
        port = address["url"].strip("/").rpartition(":")[2]
        assert get(f"http://127.0.0.1:{port}/icon.svg", Host=socket.gethostname())[0] == 200
        assert get(f"http://127.0.0.1:{port}/icon.svg", Host="evil.example")[0] == 421


def test_slow_and_surplus_connections_are_cut_off(box: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "REQUEST_S", 0.5)
    with serving_page(site_of(box)) as found:
        host, port = found.strip("/").removeprefix("http://").split(":")
        held = [socket.create_connection((host, int(port)), timeout=5) for _ in range(site_module._MAX_CLIENTS)]
        time.sleep(0.2)
        with socket.create_connection((host, int(port)), timeout=5) as surplus:
            assert surplus.recv(10) == b""
        assert [sock.recv(10) for sock in held] == [b""] * len(held)
        for sock in held:
            sock.close()


@pytest.mark.parametrize(
    ("source", "options"),
    [("", {"model": "qwen3-8b-bf16", "gpu": "h200"}), ("vllm serve Qwen/Qwen3-8B", {"gpu": "h200"})],
)
def test_names_and_a_launch_without_drafts_are_asked_about_the_same_as_in_choose(
    source: str, options: dict[str, str]
) -> None:
    found = Source(asked(source, **options), None)
    assert found.base.speculation.method == "ngram"
    other = found.deployment(["engine.version=0.11.0"])
    assert (other.engine.version, other.speculation.method) == ("0.11.0", "ngram")
    choose, predict = commands(found.request, found.method, State({}))
    assert ("''" in choose, "--method ngram" in predict) == (False, bool(source))
