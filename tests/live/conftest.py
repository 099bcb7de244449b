"""The loop is run once for all tests of this folder; its table stands at the end of pytest's output."""

import os
import shutil
import signal
import subprocess
from collections.abc import Callable

import pytest
from live.compare import spoilt, table
from live.loop import ROOT, CommandError, Loop, run_loop
from live.server import ServerError, tail

collect_ignore = ["install.py", "make_model.py", "count_experts.py"]  # scripts; the last two run where Torch is
ENVIRONMENT = ROOT / os.environ.get("DRAFTCAST_LIVE_ENVIRONMENT", ".venv-vllm")
FOLDER = ROOT / "out" / "live"
_KEY = pytest.StashKey[Loop]()


@pytest.fixture(scope="session")
def loop(request: pytest.FixtureRequest) -> Loop:
    """What the loop found; each part is told on the terminal as it ends."""
    if not (ENVIRONMENT / "bin" / "vllm").is_file():
        pytest.skip(f"no vLLM in {ENVIRONMENT.name}/: `make test-live` installs it")
    plugins = request.config.pluginmanager
    terminal, capture = plugins.get_plugin("terminalreporter"), plugins.get_plugin("capturemanager")

    def say(text: str) -> None:
        with capture.global_and_fixture_disabled():
            terminal.write_line(f"live: {text}")
            terminal.flush()

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # whoever ends the tests ends the server with them
    try:
        found = _run(say)
        if reasons := spoilt(found):  # once: what the machine did not do shows again
            for line in [*table(found), "the loop is run once more: " + "; ".join(reasons)]:
                say(line)
            found = _run(say)
    except (ServerError, CommandError, subprocess.TimeoutExpired) as error:
        pytest.fail(str(error), pytrace=False)
    request.config.stash[_KEY] = found
    return found


def _run(say: Callable[[str], None]) -> Loop:
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    return run_loop(ENVIRONMENT, FOLDER, say)


def pytest_terminal_summary(terminalreporter, exitstatus, config) -> None:
    """The table; after a failure the ends of the servers' logs too."""
    found = config.stash.get(_KEY, None)
    if found is not None:
        terminalreporter.section("predicted against measured")
        lines = table(found)
        (FOLDER / "table.txt").write_text("".join(f"{line}\n" for line in lines))
        for line in lines:
            terminalreporter.write_line(line)
    if exitstatus:
        for log in sorted(FOLDER.glob("*.log")):
            terminalreporter.section(f"end of {log.relative_to(ROOT)}")
            terminalreporter.write_line(tail(log))
