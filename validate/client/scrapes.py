"""/metrics of a live server, taken at a moment that is known; what is no whole answer is told and not used."""

import time
from dataclasses import dataclass

from calibration.readers.metrics_pairs import Window, windows_of
from calibration.readers.prometheus_text import Scrape, scrapes_of
from calibration.readers.sglang_metrics import gauge
from validate.client.connection import Connection

RUNNING = ("vllm:num_requests_running", "sglang:num_running_reqs")
_COUNTERS = ("_total", "_count", "_sum")
_NOT_FOUND = 404
_FINAL = ("not there", "no word from")  # asked once more, the answer would be the same, or as long in coming
ENGINES = ("vllm", "sglang")


@dataclass(frozen=True, slots=True)
class Counted:
    """One scrape, or why there is none; `time_s` is monotonic, in the middle between question and answer."""

    time_s: float
    scrape: Scrape | None = None
    reason: str | None = None

    @property
    def engine(self) -> str | None:
        """Whose counters these are."""
        return None if self.scrape is None else engine_of(self.scrape)

    def gauge(self, *names: str) -> float | None:
        """The first of these gauges that is there, engines added up."""
        return None if self.scrape is None else gauge_of(self.scrape, *names)

    @property
    def running(self) -> float | None:
        """Requests that the engine works on."""
        return self.gauge(*RUNNING)

    @property
    def waiting(self) -> float | None:
        """Requests in its queue."""
        return self.gauge("vllm:num_requests_waiting", "sglang:num_queue_reqs")

    @property
    def kv_usage(self) -> float | None:
        """Share of the KV cache in use."""
        return self.gauge("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "sglang:token_usage")

    @property
    def generated(self) -> float | None:
        """Tokens generated since the server's start."""
        return self.gauge("vllm:generation_tokens_total", "sglang:generation_tokens_total")


def engine_of(scrape: Scrape) -> str | None:
    """The engine whose names a scrape holds."""
    return next((engine for engine in ENGINES if any(name.startswith(f"{engine}:") for name in scrape.samples)), None)


def gauge_of(scrape: Scrape, *names: str) -> float | None:
    """The first of these gauges that is there: engines added up, ranks that repeat one engine's counted once."""
    found = (gauge(scrape, name) if name.startswith("sglang:") else scrape.value(name) for name in names)
    return next((value for value in found if value is not None), None)


class Counters:
    """Scrapes one server, and remembers which series it has shown: a later answer without them was cut short."""

    def __init__(self, connection: Connection) -> None:
        """Nothing is asked yet."""
        self._connection = connection
        self._known: frozenset[str] = frozenset()
        self._start_s: float | None = None

    def take(self, *, tries: int = 2) -> Counted:
        """A scrape of now; a broken answer is asked for once more."""
        taken = self._take()
        for _ in range(tries - 1):
            if taken.scrape is not None or any(words in (taken.reason or "") for words in _FINAL):
                break
            taken = self._take()
        return taken

    def _take(self) -> Counted:
        reply = self._connection.get("/metrics")
        middle_s = (reply.sent_s + reply.received_s) / 2 or time.monotonic()
        if reply.fault is not None:
            if reply.status == _NOT_FOUND:
                return Counted(middle_s, reason="/metrics is not there (HTTP 404)")
            return Counted(middle_s, reason=f"/metrics cannot be read ({reply.fault.message})")
        text = reply.text
        scrapes = scrapes_of(text, "/metrics")
        if len(scrapes) != 1 or engine_of(scrapes[0]) is None:
            what = "holds no counters of vLLM or SGLang (statistics off?)" if not scrapes or len(scrapes) == 1 else (
                "holds every counter more than once"
            )  # fmt: skip
            return Counted(middle_s, reason=f"/metrics {what}")
        return self._checked(scrapes[0], middle_s, whole=text.endswith("\n"))

    def _checked(self, scrape: Scrape, middle_s: float, *, whole: bool) -> Counted:
        names = frozenset(name for name in scrape.samples if name.endswith(_COUNTERS))
        restarted = self._start_s is not None and scrape.start_time_s not in (None, self._start_s)
        if not whole or (self._known - names and not restarted):
            return Counted(middle_s, reason="/metrics was cut short")
        self._known = names if restarted else self._known | names
        self._start_s = scrape.start_time_s
        scrape.time_s = middle_s
        scrape.source = "/metrics"
        return Counted(middle_s, scrape)


def window_between(before: Counted, after: Counted, model: str | None = None) -> tuple[Window | None, str | None]:
    """(the window between two scrapes of one server, for the served model; or why there is none)."""
    for taken in (before, after):
        if taken.scrape is None:
            return None, taken.reason
    assert before.scrape is not None
    assert after.scrape is not None
    starts = (before.scrape.start_time_s, after.scrape.start_time_s)
    if None not in starts and starts[0] != starts[1]:
        return None, "the server was restarted meanwhile: another process answers now"
    windows, refused = windows_of([before.scrape, after.scrape])
    if refused:
        return None, refused[0].reason
    paired = [window for window in windows if window.first is not None]
    if any((window.elapsed_s or 0.0) < 0 for window in paired):
        return None, "counters fell between two looks at /metrics: the server was restarted or they were reset"
    named = [window for window in paired if model and window.model == model]
    if named or len(paired) == 1:
        return (named or paired)[0], None
    if not paired:
        return None, "the two scrapes of /metrics have nothing in common"
    return (
        None,
        f"/metrics counts several models ({', '.join(window.model for window in paired[:4])}), none of them ours",
    )
