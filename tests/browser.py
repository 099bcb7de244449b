"""A headless Chromium, driven over its debugging pipe: no driver program, no port, no package."""

import contextlib
import itertools
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
    " --disable-component-update --disable-sync --disable-dev-shm-usage --remote-debugging-pipe about:blank"
)
PATIENCE_S = 60.0  # a busy machine
Json = dict[str, Any]


def find_browser() -> str:
    """The browser's path; the test is skipped where there is none, but not in continuous integration."""
    path = next((found for found in map(shutil.which, NAMES) if found), None)
    if path is None:
        message = "no Chromium: apt-get install chromium"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    return path


class Browser:
    """One browser process with one page in it; `events` holds what it has reported of the page."""

    def __init__(self, path: str, profile: str) -> None:
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()

        def pipes() -> None:  # Chromium reads commands on 3 and answers on 4
            commands, answers = os.dup(to_read), os.dup(to_write)
            os.dup2(commands, 3)
            os.dup2(answers, 4)

        self.process = subprocess.Popen(
            [path, f"--user-data-dir={profile}", *_FLAGS.split()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=pipes,
            close_fds=False,
        )
        os.close(to_read)
        os.close(to_write)
        self._ids, self._rest = itertools.count(1), b""
        self._session: str | None = None
        self.events: list[Json] = []
        targets = self.call("Target.getTargets")["targetInfos"]
        target = next(info["targetId"] for info in targets if info["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> Json:
        """The result of one command of the DevTools protocol."""
        number = next(self._ids)
        message: Json = {"id": number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                result: Json = answer["result"]
                return result
            self.events.append(answer)

    def _next(self) -> Json:
        """The next message; messages end in a zero byte."""
        until = time.monotonic() + PATIENCE_S
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._read], [], [], max(0.0, until - time.monotonic()))
            assert ready, "the browser does not answer"
            piece = os.read(self._read, 1 << 20)
            assert piece, "the browser is gone"
            self._rest += piece
        line, _, self._rest = self._rest.partition(b"\0")
        message: Json = json.loads(line)
        return message

    def open(self, page: Path | str) -> None:
        """Loads the file or the address and waits until it is there; only what this page reports is kept."""
        self.events.clear()
        self.call("Page.navigate", url=page if isinstance(page, str) else page.resolve().as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page, or of the promise that it is; works with scripts off."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def settle(self) -> None:
        """Waits until what was set off, such as scrolling, has been drawn."""
        self.evaluate("new Promise(r => requestAnimationFrame(() => requestAnimationFrame(() => r(0))))")

    def complaints(self) -> list[str]:
        """What the page wrote on the console, exceptions, and what its own policy refused."""
        self.evaluate("0")  # reports that are on their way come first
        kinds = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        return [json.dumps(event["params"]) for event in self.events if event.get("method") in kinds]

    def requests(self) -> list[str]:
        """What the page asked for, itself included."""
        sent = [event for event in self.events if event.get("method") == "Network.requestWillBeSent"]
        return [event["params"]["request"]["url"] for event in sent]

    def close(self) -> None:
        """Ends the process."""
        with contextlib.suppress(OSError):
            os.close(self._write)  # Chromium leaves when its pipe closes
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self._read)


@contextlib.contextmanager
def opened_browser() -> Iterator[Browser]:
    """A browser with a profile of its own, gone afterwards."""
    path = find_browser()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Browser(path, profile)
        try:
            yield browser
        finally:
            browser.close()
