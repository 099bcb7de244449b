"""The loop is run once for all tests of this folder; its table stands at the end of pytest's output."""

import os
import shutil
from collections.abc import Iterator

import pytest
from live.compare import table
from live.loop import ROOT, Loop, run_loop
from live.server import tail

collect_ignore = ["install.py", "make_model.py"]  # scripts; the second runs where Torch is
ENVIRONMENT = ROOT / os.environ.get("DRAFTCAST_LIVE_ENVIRONMENT", ".venv-vllm")
FOLDER = ROOT / "out" / "live"
_KEY = pytest.StashKey[Loop]()


@pytest.fixture(scope="session")
def loop(request: pytest.FixtureRequest) -> Iterator[Loop]:
    """What the loop found."""
    if not (ENVIRONMENT / "bin" / "vllm").is_file():
        pytest.skip(f"no vLLM in {ENVIRONMENT.name}/: `make test-live` installs it")
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    reporter = request.config.pluginmanager.get_plugin("terminalreporter")
    found = run_loop(ENVIRONMENT, FOLDER, lambda text: reporter.write_line(f"live: {text}"))
    request.config.stash[_KEY] = found
    return found


def pytest_terminal_summary(terminalreporter, exitstatus, config) -> None:
    """The table; after a failure the ends of the servers' logs too."""
    found = config.stash.get(_KEY, None)
    if found is not None:
        terminalreporter.section("predicted against measured")
        for line in table(found):
            terminalreporter.write_line(line)
    if exitstatus:
        for log in sorted(FOLDER.glob("*.log")):
            terminalreporter.section(f"end of {log.relative_to(ROOT)}")
            terminalreporter.write_line(tail(log))
