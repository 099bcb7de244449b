"""How commands that talk to a server end under each fault of the misbehaving one of the tests: docs/reliability.md."""

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calibration.readers.read import read_evidence
from hwmodel.errors import DraftcastError
from validate.client.target import Target
from validate.measure.load_run import Files, LoadRun, Plan
from validate.measure.prompts import Prompt, PromptSet
from validate.measure.settings import Limits, Load

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from fault_server import FaultServer  # type: ignore[import-not-found]
from loopback import cut_short, endless, redirect  # type: ignore[import-not-found]

USERS, REQUESTS, EVERY = 2, 60, 10
SLOW_S = 8.0  # what takes longer is said
PROMPTS = PromptSet((Prompt(text="a"), Prompt(text="b")), "benchmark", "0" * 64)
LIMITS = Limits(1e-9, 4, REQUESTS, 30.0, 5.0, 0.0, 0.05, 0.2, 1.0)
Prepare = Callable[[Any], None]


@dataclass(frozen=True, slots=True)
class Case:
    """A fault, and how the server is told to have it."""

    name: str
    prepare: Prepare


def each(fault: str) -> Prepare:
    """Every tenth request has the fault."""
    return lambda server: server.faults.extend((["ok"] * (EVERY - 1) + [fault]) * (2 * REQUESTS // EVERY))


def later(change: Prepare, requests: int = REQUESTS // 2) -> Prepare:
    """From some request on, the server is another one."""

    def prepare(server: Any) -> None:
        server.after.append(lambda owner: change(owner) if len(owner.bodies) == requests else None)

    return prepare


def setting(**values: Any) -> Prepare:
    """Attributes of the server."""

    def prepare(server: Any) -> None:
        for name, value in values.items():
            setattr(server, name, value)

    return prepare


def gone(server: Any) -> None:
    """Nobody listens any more, and every connection is dropped."""
    server.always = "drop"
    threading.Thread(target=server.http.shutdown).start()


CASES = (
    Case("none", setting()),
    Case("cut inside a chunk, 1 in 10", each("cut")),
    Case("cut inside a character, 1 in 10", each("cut_utf8")),
    Case("connection reset, 1 in 10", each("reset")),
    Case("cut, 1 in 30", lambda server: server.faults.extend((["ok"] * 29 + ["cut"]) * 4)),
    Case("garbage between events, 1 in 10", each("garbage")),
    Case("a line of 9 MB, 1 in 10", each("huge")),
    Case("one byte at a time, 1 in 10", each("bytes")),
    Case("429 with Retry-After: 0, 1 in 10", each("429:0")),
    Case("503, 1 in 10", each("503")),
    Case("500, 1 in 10", each("500")),
    Case("401 from the middle on", later(setting(always="401"))),
    Case("404 from the middle on", later(setting(always="404"))),
    Case("error event, from the middle on", later(setting(always="error"))),
    Case("server gone in the middle", later(gone)),
    Case("server restarted in the middle", later(lambda server: server.restart())),
    Case("another user in the middle", later(lambda server: server.foreign(3, 200))),
    Case("no usage and no token ids", setting(ids=False, usage=False)),
    Case("usage at the end only", setting(refused_fields=("return_token_ids", "continuous_usage_stats"))),
    Case("three steps in one chunk", setting(join=3)),
    Case("a proxy that holds answers back", setting(bunch=True)),
    Case("/metrics absent", setting(metrics="absent")),
    Case("/metrics frozen", setting(metrics="frozen")),
    Case("/metrics cut in half", setting(metrics="half")),
    Case("/metrics of another program", setting(metrics="other")),
    Case("another user from the start", setting(extra_running=1)),
    Case("503 while it loads", setting(ready=False)),
)


def row(case: Case, folder: str) -> str:
    """One line of the table."""
    path = str(Path(folder) / f"{time.monotonic_ns()}.json")
    with FaultServer(k=3, tokens_per_step=2, pace_s=0.002) as server:
        case.prepare(server)
        load = Load((USERS,), output_tokens=41)
        run = LoadRun(Plan(Target(server.url), load, LIMITS, PROMPTS, Files(path)))
        try:
            run.run()
            said = run.stopped or ""
        except DraftcastError as error:
            said = str(error)
    if not run.cells:
        return f"| {case.name} | 0 | 0 | no cell | {said} |"
    cell = run.cells[0]
    read = read_evidence([path])
    used = "used" if read.cells else "refused"
    tpot = f", TPOT from the {cell['tpot_from']}, steps from the {cell['step_from']}" if read.cells else ""
    reason = cell["refused_reason"] or cell["joined_chunks"] or cell["server_reason"] or ""
    return f"| {case.name} | {cell['num_requests']} | {cell['num_failed']} | {used}{tpot} | {said or reason} |"


def status(code: int, **headers: str) -> Prepare:
    """Every GET is answered with this status."""

    def page(handler: Any) -> None:
        handler.reply(code, {"error": {"message": f"status {code}"}}, **headers)

    return lambda server: server.pages.update({"*": page})


def hang(handler: Any) -> None:
    """Answers nothing for longer than anybody waits."""
    time.sleep(25)


def closed(server: Any) -> None:
    """Nobody listens."""
    server.http.shutdown()
    server.http.server_close()


def on(path: str, answer: Any) -> Prepare:
    """What a GET of one path gets."""
    return lambda server: server.pages.update({path: answer})


LOOKS = (
    Case("none", setting()),
    Case("connection refused", closed),
    Case("503 while it loads", setting(ready=False)),
    Case("429 with Retry-After: 5", status(429, Retry_After="5")),
    Case("401", setting(key="another")),
    Case("404 everywhere", status(404)),
    Case("500 everywhere", status(500)),
    Case("a redirect to another host", on("*", redirect("http://127.0.0.1:9/"))),
    Case("silence", on("*", hang)),
    Case("an answer without end", on("*", endless)),
    Case("an answer cut in the middle", on("*", cut_short)),
    Case("another program's page", on("*", "<html>hello</html>")),
    Case("/metrics absent", setting(metrics="absent")),
    Case("/metrics cut in half", setting(metrics="half")),
    Case("/metrics of another program", setting(metrics="other")),
    Case("/metrics silent", on("/metrics", hang)),
    Case("a line of 9 MB in /metrics", on("/metrics", "vllm:x{a=\"" + "b" * 9_000_000 + "\"} 1\n")),
    Case("/metrics of vLLM's V0 engine", on("/metrics", "vllm:num_requests_running 1.0\nvllm:num_requests_swapped 0\n"
         "vllm:spec_decode_draft_acceptance_rate 0.5\n")),
)  # fmt: skip
CARDS = ("--gpu", "h200", "--model", "qwen3-30b-a3b-bf16")
COMMANDS = (
    ("predict", *CARDS, "--set", "speculation.method=eagle3", "--draws", "100"),
    ("inspect", "--url"),
    ("watch", *CARDS, "--method", "eagle3", "--interval", "0.2", "--count", "2", "--draws", "100"),
)


def ended(arguments: tuple[str, ...], url: str) -> str:
    """Exit code and last words of a command, marked where it ends with a trace."""
    program = "import sys; from draftcast.start import main; sys.exit(main())"
    given = ["inspect", "--url", url] if arguments[0] == "inspect" else [arguments[0], url, *arguments[1:]]
    start_s = time.monotonic()
    command = [sys.executable, "-c", program, *given, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    took = f", {time.monotonic() - start_s:.0f} s" if time.monotonic() - start_s > SLOW_S else ""
    if "Traceback" in done.stderr:
        return "TRACE"
    words = done.stderr.strip().splitlines()[-1:] if done.returncode else said(arguments[0], done.stdout)
    return f"{done.returncode}{took}: {' '.join(words).replace(url, 'URL').removeprefix('Error: ')}"


def said(command: str, stdout: str) -> list[str]:
    """What a command that went well has to say about the server."""
    if command == "watch":
        lines = [json.loads(line) for line in stdout.splitlines()]
        return list(dict.fromkeys(f"{line['status']} ({line['reason']})" for line in lines))
    result = json.loads(stdout)
    return [f"speedup {result['speedup']['p50']:.2f}" if command == "predict" else f"{len(result['launches'])} launch"]


def look(case: Case) -> str:
    """One line of the table of the commands that only look."""
    with FaultServer(k=3) as server:
        server.work(conditional=(0.8, 0.7, 0.6), step_s=0.02)
        case.prepare(server)
        try:
            return f"| {case.name} | {' | '.join(ended(arguments, server.url) for arguments in COMMANDS)} |"
        finally:
            if case.prepare is closed:
                server.http.shutdown = server.http.server_close = lambda: None


def main() -> int:
    """Exit code: 0."""
    if "--looks" in sys.argv:
        print("| fault | predict URL | inspect --url | watch URL |", "|---|---|---|---|", sep="\n")
        for case in LOOKS:
            print(look(case), flush=True)
        return 0
    print("| fault | answers | lost | the cell is | what is said |")
    print("|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for case in CASES:
            print(row(case, folder), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
