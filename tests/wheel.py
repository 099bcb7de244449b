"""The wheel of this checkout, environments that hold it and what it asks for alone, and what a user does first."""

import importlib.metadata
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement

CHECKOUT = Path(__file__).parent.parent
ROOMS = ("hwmodel", "simulator", "calibration", "validate", "draftcast")
_BUILT_FROM = ("setup.cfg", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE")
_CACHES = shutil.ignore_patterns("__pycache__", "*.pyc")

# What a user does in the first hour, each command in a folder where the ones before it have run.
LAUNCH = "vllm serve Qwen/Qwen3-30B-A3B --tensor-parallel-size 2 --max-model-len 8192"
RECORDED = '{"prompt_token_ids": [1, 2, 3, 4, 5, 6], "token_ids": [7, 1, 2, 3, 4, 5, 6, 8, 1, 2, 3, 4, 5]}\n' * 8
MEASURED = "concurrency,tpot_ms\n1,7.5\n4,9.0\n16,13.0\n"
FEW = ("--draws", "200")
FIRST_HOUR: tuple[tuple[str, ...], ...] = (
    ("--version",),
    ("list", "models"),
    ("list", "drafters", "--json"),
    ("model", "gpt-oss-120b-mxfp4"),
    ("allreduce", "--gpu", "h200", "--num-gpus", "8"),
    ("inspect", LAUNCH),
    ("choose", LAUNCH, "--gpu", "l40s", "--method", "ngram", *FEW),
    ("init", "-o", "reference.toml"),
    ("choose", "reference.toml", *FEW),
    ("init", LAUNCH, "--gpu", "l40s", "--set", "workload.concurrency=1,4", "-o", "my.toml"),
    ("replay", "recorded.jsonl", "-k", "1-4", "-o", "replay.json"),
    ("predict", "my.toml", "-k", "3", "--set", "speculation.acceptance.replay=replay.json", "--record", "--ledger",
     "ledger.sqlite", *FEW),
    ("ledger", "list", "--ledger", "ledger.sqlite"),
    ("calibrate", "my.toml", "--data", "measured.csv", "-o", "profile.json"),
    ("choose", "my.toml", "--profile", "profile.json", "--json", *FEW),
    ("whatif", "my.toml", "--vary", "speculation.num_speculative_tokens=1,3", "--jobs", "2", *FEW),
    ("options", "my.toml", *FEW),
    ("step", "my.toml", "-k", "3"),
    ("simulate", "my.toml", "-k", "3", "--requests", "8"),
    ("backtest", "rows.csv"),
)  # fmt: skip
REPORT = ("report", "my.toml", "-o", "page.html", *FEW)
_ROWS = """set_id,model,quantization,gpu,gpu_count,tp,method,k,concurrency,baseline,speedup,metric,mean_accepted_len
a,qwen3-8b,bf16,h100-sxm,1,1,eagle3,3,1,120,1.6,output_tok_s,2.6
a,qwen3-8b,bf16,h100-sxm,1,1,eagle3,3,4,420,1.5,output_tok_s,2.6
"""


def build_wheel(folder: Path) -> Path:
    """The wheel of this checkout, built from a copy of it, without network; its path in `folder`."""
    source = folder / "source"
    for room in ROOMS:
        shutil.copytree(CHECKOUT / room, source / room, ignore=_CACHES)
    for name in _BUILT_FROM:
        if (CHECKOUT / name).exists():
            shutil.copy(CHECKOUT / name, source)
    build = "import sys; from setuptools import build_meta; print(build_meta.build_wheel(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", build, str(folder)], cwd=source, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder / done.stdout.split()[-1]


@dataclass(frozen=True, slots=True)
class Installed:
    """An environment, and a folder to work in; `wrapper` is what a command is started through."""

    python: Path
    folder: Path
    wrapper: tuple[str, ...] = ()

    def run(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """The program as a user of a fresh machine starts it: no PYTHONPATH, no home, no locale but C."""
        environment = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "LC_ALL": "C", "COLUMNS": "80", **variables}
        return subprocess.run(
            [*self.wrapper, str(self.python.parent / "draftcast"), *arguments],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            encoding="utf-8",
            check=False,
        )


def with_files(folder: Path) -> Path:
    """`folder` with the files that `FIRST_HOUR` reads."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (("recorded.jsonl", RECORDED), ("measured.csv", MEASURED), ("rows.csv", _ROWS)):
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def install(wheel: Path, folder: Path, extra: str | None = None) -> Installed:
    """An environment with the wheel and, linked from this one, the distributions that it asks for: no others."""
    environment = folder / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    python = environment / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "--python", str(python)]
    subprocess.run([*pip, "install", "--no-index", "--no-deps", str(wheel)], check=True)
    site = next((environment / "lib").glob("python*/site-packages"))
    for name in _needed(wheel_requirements(site), extra):
        _link(name, site)
    return Installed(python, with_files(folder / "work"))


def wheel_requirements(site: Path) -> list[str]:
    """What the wheel installed in `site` says that it needs."""
    [own] = importlib.metadata.distributions(name="draftcast", path=[str(site)])
    return own.requires or []


def _needed(requirements: list[str], extra: str | None) -> set[str]:
    """Names of the distributions behind the requirements, and behind theirs."""
    found: set[str] = set()
    waiting = [(text, extra) for text in requirements]
    while waiting:
        text, wanted = waiting.pop()
        requirement = Requirement(text)
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": wanted or ""}):
            continue
        if requirement.name not in found:
            found.add(requirement.name)
            waiting += [(more, None) for more in importlib.metadata.requires(requirement.name) or ()]
    return found


def _link(name: str, site: Path) -> None:
    """Links what the distribution installed here into `site`."""
    distribution = importlib.metadata.distribution(name)
    for top in {file.parts[0] for file in distribution.files or () if file.parts[0] not in ("..", "__pycache__")}:
        if not (site / top).exists():
            (site / top).symlink_to(Path(str(distribution.locate_file(top))))


def wrapper_works(*wrapper: str) -> bool:
    """Whether a command can be started through `wrapper` on this machine."""
    try:
        return subprocess.run([*wrapper, "true"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def without_network() -> tuple[str, ...]:
    """What starts a command in a network of its own that has no interface up; () where that is not allowed."""
    for wrapper in (("unshare", "-n"), ("unshare", "-rn")):
        if os.name == "posix" and wrapper_works(*wrapper):
            return wrapper
    return ()
