import subprocess
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from wheel import (
    CHECKOUT,
    FEW,
    FIRST_HOUR,
    LAUNCH,
    REPORT,
    ROOMS,
    Installed,
    build_wheel,
    install,
    with_files,
    without_network,
    wrapper_works,
)

NETWORK_OFF = without_network()
READ_ONLY = 'mount --bind {0} {0} && mount -o remount,ro,bind {0} && cd "$PWD" && exec "$@"'


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel with what it asks for and nothing else; without network where the machine lets us."""
    return replace(install(wheel, tmp_path_factory.mktemp("plain")), wrapper=NETWORK_OFF)


@pytest.fixture(scope="module")
def with_report(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel with its extra [report]."""
    return replace(install(wheel, tmp_path_factory.mktemp("report"), "report"), wrapper=NETWORK_OFF)


def files_of_the_rooms() -> set[str]:
    """Every file under the rooms but caches, as paths from the checkout."""
    paths = (path for room in ROOMS for path in (CHECKOUT / room).rglob("*") if path.is_file())
    return {path.relative_to(CHECKOUT).as_posix() for path in paths if "__pycache__" not in path.parts}


def test_the_wheel_holds_every_file_of_the_rooms_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        licence = [name for name in archive.namelist() if name.endswith("LICENSE")]
        assert archive.testzip() is None
    assert names == files_of_the_rooms()
    assert len(licence) == 1
    assert {Path(name).suffix for name in names} > {".py", ".toml"}


def test_the_installed_modules_are_those_of_the_wheel_and_no_checkout_is_in_reach(installed: Installed) -> None:
    code = "import sys, hwmodel, simulator, calibration, validate, draftcast as d; print(d.__file__); print(sys.path)"
    done = subprocess.run(
        [installed.python, "-c", code], cwd=installed.folder, capture_output=True, text=True, check=True, env={}
    )
    where, paths = done.stdout.splitlines()
    assert Path(where).is_relative_to(installed.python.parent.parent)
    assert str(CHECKOUT) not in paths


def test_every_command_of_the_first_hour_works_from_the_wheel_alone(installed: Installed) -> None:
    for arguments in FIRST_HOUR:
        done = installed.run(*arguments)
        assert done.returncode == 0, (arguments, done.stderr)
        assert "Traceback" not in done.stderr
        assert done.stdout.strip(), arguments


def test_a_page_needs_the_extra_and_says_how_to_get_it(installed: Installed) -> None:
    done = installed.run("choose", LAUNCH, "--gpu", "l40s", "--method", "ngram", *FEW, "--report", "page.html")
    assert done.returncode == 1
    assert [line for line in done.stderr.splitlines() if line.startswith("Error: ")] == done.stderr.splitlines()[-1:]
    assert "draftcast[report]" in done.stderr
    assert not (installed.folder / "page.html").exists()


def test_with_the_extra_the_page_is_written(with_report: Installed) -> None:
    made = with_report.run("init", LAUNCH, "--gpu", "l40s", "-o", "my.toml", "--force")
    assert made.returncode == 0, made.stderr
    done = with_report.run(*REPORT)
    assert done.returncode == 0, done.stderr
    page = (with_report.folder / "page.html").read_text(encoding="utf-8")
    assert page.lower().startswith("<!doctype html>")
    assert page.count("<svg") > 3


@pytest.mark.skipif(not NETWORK_OFF, reason="no network namespace can be made here: unshare -n is refused")
def test_these_commands_ran_without_any_network(installed: Installed) -> None:
    code = "import socket; socket.create_connection(('127.0.0.1', 9), 1)"
    done = subprocess.run(
        [*NETWORK_OFF, installed.python, "-c", code], capture_output=True, text=True, check=False, env={}
    )
    assert "Network is unreachable" in done.stderr
    asked = installed.run("measure", "http://127.0.0.1:9")
    assert (asked.returncode, asked.stderr.count("\n")) == (1, 1)


@pytest.mark.parametrize(
    "variables",
    [
        {"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"PYTHONIOENCODING": "utf-16"},
        {"PYTHONIOENCODING": "cp437:strict"},
        {"COLUMNS": "1"},
        {"COLUMNS": "0", "TERM": "dumb"},
        {"NO_COLOR": "1", "FORCE_COLOR": "1"},
        {"HOME": "/no/such/home"},
        {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONWARNINGS": "error"},
        {"TZ": "nowhere", "LANG": "xx_XX.nonsense"},
    ],
    ids=lambda variables: " ".join(f"{name}={value}" for name, value in variables.items()),
)
def test_an_odd_environment_changes_nothing_about_the_answer(installed: Installed, variables: dict[str, str]) -> None:
    arguments = ("choose", LAUNCH, "--gpu", "l40s", "--method", "ngram", "-c", "1,8", "-k", "3", *FEW)
    environment = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", **variables}
    command = [*installed.wrapper, str(installed.python.parent / "draftcast"), *arguments]
    done = subprocess.run(command, cwd=installed.folder, env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    encoding = variables.get("PYTHONIOENCODING", "utf-8").partition(":")[0]
    words = " ".join(done.stdout.decode(encoding).split())
    assert "ngram" in words
    assert "Traceback" not in done.stderr.decode(encoding)


def test_a_reader_that_stops_early_is_no_error(installed: Installed) -> None:
    program = str(installed.python.parent / "draftcast")
    done = subprocess.run(
        ["sh", "-c", f"'{program}' list keys | head -n 1"], capture_output=True, text=True, check=True, env={}
    )
    assert done.stdout.splitlines() == ["model.config"]
    assert done.stderr == ""


def test_on_a_read_only_disk_answers_come_and_files_are_a_stated_error(installed: Installed) -> None:
    mounts = next((words for words in (("unshare", "-m"), ("unshare", "-rm")) if wrapper_works(*words)), None)
    root = installed.python.parent.parent.parent
    read_only = (*(mounts or ()), "sh", "-c", READ_ONLY.format(root), "sh")
    if mounts is None or not wrapper_works(*read_only):
        pytest.skip("no file system can be mounted read-only here")
    inside = replace(installed, wrapper=read_only, folder=with_files(root / "work"))
    home = str(root / "work")
    done = inside.run("choose", LAUNCH, "--gpu", "l40s", "--method", "ngram", *FEW, HOME=home)
    assert done.returncode == 0, done.stderr
    refused = inside.run("init", "-o", "new.toml", HOME=home)
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    assert "Read-only file system" in refused.stderr
    recorded = inside.run(
        "predict", LAUNCH, "--gpu", "l40s", "--method", "ngram", *FEW, "-k", "3", "--record", HOME=home
    )
    assert recorded.returncode == 1
    assert "Traceback" not in recorded.stderr
    assert "ngram" in recorded.stdout
