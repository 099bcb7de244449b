import os
import signal
from collections.abc import Iterator

import pytest
from browser import Browser, opened_browser
from hypothesis import settings

# As the program does it: starting a pool of threads takes longer than all the small products together.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# A shell starts jobs of the background with Ctrl-C ignored; what a test starts and interrupts would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples in every run, and no deadline: a busy machine must not fail a test.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A headless Chromium with one page; tests that need it are skipped where there is none, except in CI."""
    with opened_browser() as opened:
        yield opened
