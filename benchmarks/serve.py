"""How long the page of `draftcast serve` waits for an answer: requests over loopback, each of other settings.

Prints, for both shipped examples, the time of a preview (while a slider moves), of the full answer (when it is let go)
and of one that is kept, by wall time and by processor time of the whole process, and the size of what is sent.
"""

import statistics
import time
import urllib.request
from pathlib import Path

from draftcast.options import Request
from draftcast.serve.answer import Answers
from draftcast.serve.site import Site, listen, own_names
from draftcast.serve.source import Source
from validate.web.server import LOOPBACK, Address

REPEATS = 15
EXAMPLES = ("examples/kimi-k2.5-8x-rtx-pro-6000.toml", "examples/kimi-k2.6-8x-rtx-pro-6000-switch.toml")
KEY = "hardware.allreduce_latency_us"


def site_of(path: str) -> Site:
    """The page of an example, with the draws of the commands."""
    unstated = dict.fromkeys(("gpu", "model", "num_gpus", "launch", "profile"))
    request = Request(source=path, overrides=(), num_draws=2000, seed=0, as_json=False, **unstated)
    return Site(Answers(Source(request, None)), None, own_names(LOOPBACK), Path(path).stem)


def asked(url: str) -> tuple[float, float, int]:
    """Wall time and processor time of one request, in seconds, and the bytes of its answer."""
    wall, used = time.perf_counter(), time.process_time()
    with urllib.request.urlopen(url, timeout=60) as reply:
        size = len(reply.read())
    return time.perf_counter() - wall, time.process_time() - used, size


def measured(urls: list[str]) -> str:
    """Median wall time, the fastest, median processor time and size."""
    rows = [asked(url) for url in urls]
    walls, used, sizes = zip(*rows, strict=True)
    return (
        f"{statistics.median(walls) * 1e3:>10.0f}{min(walls) * 1e3:>10.0f}{statistics.median(used) * 1e3:>10.0f}"
        f"{statistics.median(sizes) / 1e3:>10.0f}"
    )


def main() -> None:
    """Measure and print."""
    print(f"{'example':<34}{'answer':<10}{'median ms':>10}{'fastest':>10}{'cpu ms':>10}{'kB':>10}")
    for path in EXAMPLES:
        listener = listen(site_of(path), Address(LOOPBACK, 0))
        try:
            questions = {
                "preview": [f"{listener.url}/preview?{KEY}={20 + i}" for i in range(REPEATS)],
                "full": [f"{listener.url}/change?{KEY}={20 + i}" for i in range(REPEATS)],
                "kept": [f"{listener.url}/change?{KEY}={20 + i}" for i in range(REPEATS)],
            }
            for kind, urls in questions.items():
                print(f"{Path(path).stem[:32]:<34}{kind:<10}{measured(urls)}")
        finally:
            listener.close()


if __name__ == "__main__":
    main()
