from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from draftcast.cli import cli

REFERENCE_CASE = Path(__file__).parent.parent.parent / "examples" / "kimi-k2.5-8x-rtx-pro-6000.toml"

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
