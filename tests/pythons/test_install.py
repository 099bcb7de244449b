"""The wheel with its extra, installed from the package index as pipx does, on each Python that is found here."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from wheel import FIRST_HOUR, REPORT, Installed, build_wheel, with_files

MINORS = (11, 12, 13, 14)
_PYENV = Path.home() / ".pyenv" / "versions"


def _interpreters() -> dict[str, str]:
    """Paths of interpreters by version, such as "3.12": those on the PATH, then pyenv's."""
    found: dict[str, str] = {}
    for minor in MINORS:
        places = [shutil.which(f"python3.{minor}"), *sorted(_PYENV.glob(f"3.{minor}.*/bin/python"))]
        for place in filter(None, map(str, filter(None, places))):
            if _version(place) == f"3.{minor}":
                found.setdefault(f"3.{minor}", place)
    return found


def _version(python: str) -> str | None:
    """What the interpreter says that it is; None where it does not run, as a pyenv shim may not."""
    done = subprocess.run([python, "--version"], capture_output=True, text=True, check=False)
    match = re.match(r"Python (3\.\d+)", done.stdout)
    return match.group(1) if match and done.returncode == 0 else None


INTERPRETERS = _interpreters()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.mark.parametrize("version", [f"3.{minor}" for minor in MINORS])
def test_the_wheel_installs_and_does_the_work_of_the_first_hour(wheel: Path, tmp_path: Path, version: str) -> None:
    if version not in INTERPRETERS:
        pytest.skip(f"no Python {version} here")
    python = tmp_path / "environment" / "bin" / "python"
    subprocess.run([INTERPRETERS[version], "-m", "venv", str(python.parent.parent)], check=True)
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "--quiet"]
    subprocess.run([*pip, "install", f"{wheel}[report]"], check=True)
    subprocess.run([*pip, "check"], check=True)
    installed = Installed(python, with_files(tmp_path / "work"))
    for arguments in (*FIRST_HOUR, REPORT):
        done = installed.run(*arguments, PYTHONWARNINGS="default")
        assert done.returncode == 0, (arguments, done.stderr)
        assert "Warning" not in done.stderr, (arguments, done.stderr)
