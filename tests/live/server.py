"""A real vLLM server in a process group of its own: started, waited for, stopped; its log kept."""

import os
import shlex
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

READY_S = 300.0  # a cold start imports 2 GB of libraries; warm it takes 30-40 s
STOP_S = 30.0
LOG_LINES = 40  # of a server that failed, for the report
FIRST_PORT = 8141
SERVED_NAME = "tiny"
MAX_MODEL_LEN = 2048
MAX_NUM_SEQS = 16


class ServerError(Exception):
    """The server did not come up, or died; one line, its log tells more."""


@dataclass(frozen=True, slots=True)
class Server:
    """A server that answers."""

    url: str
    pid: int
    command: tuple[str, ...]
    start_s: float  # until it was ready
    log: Path


def serve_command(vllm: str, model: Path, port: int, speculative_config: str | None = None) -> list[str]:
    """The launch, as an operator would write it."""
    command = [vllm, "serve", str(model), "--host", "127.0.0.1", "--port", str(port)]
    command += ["--served-model-name", SERVED_NAME, "--dtype", "float32", "--enforce-eager"]
    command += ["--max-model-len", str(MAX_MODEL_LEN), "--max-num-seqs", str(MAX_NUM_SEQS)]
    return command + (["--speculative-config", speculative_config] if speculative_config else [])


def free_port() -> int:
    """The first port from `FIRST_PORT` on that nobody listens on."""
    for port in range(FIRST_PORT, FIRST_PORT + 200):
        with socket.socket() as probe, suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return port
    raise ServerError(f"no free port from {FIRST_PORT} to {FIRST_PORT + 199}")


@contextmanager
def running(environment: Path, model: Path, log: Path, speculative_config: str | None = None) -> Iterator[Server]:
    """A server for the length of the block; whatever happens, its whole process group is gone afterwards."""
    port, begun = free_port(), time.monotonic()
    command = serve_command(str(environment / "bin" / "vllm"), model, port, speculative_config)
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=_environment(environment),
            start_new_session=True,
        )
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_until_ready(process, url, log)
        yield Server(url, process.pid, tuple(command), time.monotonic() - begun, log)
        if process.poll() is not None:
            raise ServerError(f"the server died (exit code {process.returncode}), see {log}")
    finally:
        _stop(process)


def tail(log: Path, lines: int = LOG_LINES) -> str:
    """The end of a log, long lines cut."""
    text = log.read_text(errors="replace").splitlines()
    return "\n".join(line[:200] for line in text[-lines:])


def _environment(environment: Path) -> dict[str, str]:
    """The caller's variables without those of vLLM, Torch and Python, and what the CPU build needs."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("VLLM_", "TORCH", "PYTHON", "VIRTUAL_ENV"))}
    openmp = environment / "lib" / "libiomp5.so"
    return kept | {
        "LD_PRELOAD": str(openmp) if openmp.is_file() else kept.get("LD_PRELOAD", ""),
        "PATH": f"{environment / 'bin'}{os.pathsep}{kept.get('PATH', '')}",
        "HF_HUB_OFFLINE": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "auto",
    }


def _wait_until_ready(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise ServerError(f"{shlex.join(process.args)} ended with {process.returncode}, see {log}")
        with suppress(OSError), urllib.request.urlopen(url + "/health", timeout=5) as answer:
            if answer.status == 200:
                return
        time.sleep(0.5)
    raise ServerError(f"the server was not ready after {READY_S:.0f} s, see {log}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    """SIGINT to the launcher, then SIGKILL to what is left of its group."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_S)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
