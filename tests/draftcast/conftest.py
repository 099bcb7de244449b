from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from draftcast.cli import cli

REFERENCE_CASE = Path(__file__).parent.parent.parent / "examples" / "kimi-k2.5-8x-rtx-pro-6000.toml"

SMALL = """
[model]
config = "llama-3.2-1b-bf16"
[hardware]
gpu = "h100-sxm"
[engine]
version = "0.16.0"
[speculation]
method = "eagle3"
num_speculative_tokens = 3
acceptance = { conditional = [0.7] }
[workload]
concurrency = [4, 8]
input_tokens = 100
output_tokens = 50
"""

Run = Callable[..., Result]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the program in this process as on an 80-column terminal without colour: `run("predict", path, "--json")`."""
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("FORCE_COLOR", "DRAFTCAST_LEDGER"):
        monkeypatch.delenv(name, raising=False)
    return lambda *arguments: CliRunner().invoke(cli, [str(argument) for argument in arguments], catch_exceptions=False)


@pytest.fixture
def reference_case() -> Path:
    """The deployment file of the reference case."""
    return REFERENCE_CASE


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A deployment that simulates in milliseconds."""
    path = tmp_path / "small.toml"
    path.write_text(SMALL, encoding="utf-8")
    return path
