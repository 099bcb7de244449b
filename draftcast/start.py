"""The console script: Ctrl-C ends the program quietly from its first moment on, while the imports still run."""

import gc
import os
import signal
from types import FrameType

INTERRUPTED_EXIT_CODE = 130  # 128 + SIGINT, as shells report it
COMPLETE_VARIABLE = "_DRAFTCAST_COMPLETE"  # set while a shell completes: what it asks for


def main() -> int:
    """The process's exit code, as of `draftcast.cli.main`."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # not where the parent has it ignored, as nohup and `&` do
        signal.signal(signal.SIGINT, _end)
    from draftcast.cli import main as run  # here, where it can be interrupted without a trace

    try:
        signal.signal(signal.SIGINT, before)
        return run()
    except KeyboardInterrupt:
        return INTERRUPTED_EXIT_CODE
    finally:
        gc.freeze()  # else Python looks for garbage among all that is loaded once more as it ends: 25 ms


def _end(number: int, frame: FrameType | None) -> None:
    """Nothing has been opened or written yet: there is nothing to tidy up."""
    os._exit(INTERRUPTED_EXIT_CODE)
