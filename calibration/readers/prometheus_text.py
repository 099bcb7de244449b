"""The text that /metrics answers with: one or more scrapes of it, line by line, noise around it left out.

Format: Prometheus text exposition 0.0.4, `name{label="value",...} value [timestamp in ms]`, and OpenMetrics, whose
timestamps are seconds. What users save has more in it: the progress meter of curl, HTTP heads, shell prompts, several
scrapes one after the other, a line cut in two. A line that is no sample is skipped; a series that comes again starts
the next scrape.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from hwmodel.units import MS

_LINE = re.compile(
    r"^\s*(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(?P<labels>.*)\})?\s+(?P<value>[^\s{}\"]+)(?:\s+(?P<time>-?\d+(?:\.\d+)?))?"
    r"\s*(?:#.*)?$"
)
_LABEL = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)')
_ESCAPES = {"\\n": "\n", '\\"': '"', "\\\\": "\\"}
_ESCAPE = re.compile(r'\\(?:n|"|\\)')
_FAMILIES = ("vllm:", "sglang:", "process_start_time_seconds")
_MAX_SCRAPES = 100_000

Labels = tuple[tuple[str, str], ...]


@dataclass(slots=True)
class Scrape:
    """One answer of /metrics: the engine's series and the start of its process; bucket and `_created` left out."""

    source: str
    samples: dict[str, dict[Labels, float]] = field(default_factory=dict)
    time_s: float | None = None  # of the samples, where they carry one

    def labelled(self, name: str) -> dict[Labels, float]:
        """Every series of `name`."""
        return self.samples.get(name, {})

    def value(self, name: str) -> float | None:
        """Sum over all series of `name`; None without one."""
        series = self.labelled(name)
        return math.fsum(series.values()) if series else None

    @property
    def start_time_s(self) -> float | None:
        """When the server's process started; None in multi-process mode, which leaves it out."""
        starts = self.labelled("process_start_time_seconds").values()
        return max(starts, default=None)


def is_metrics(content: str) -> bool:
    """Whether a text holds samples of a vLLM or SGLang server."""
    if "vllm:" not in content and "sglang:" not in content:
        return False  # the usual case of a large log, without taking it apart
    return any(name.startswith(("vllm:", "sglang:")) for name, _, _, _ in samples_of(content))


def scrapes_of(content: str, path: str) -> list[Scrape]:
    """The scrapes of a text in their order; a series named twice begins another one."""
    scrapes = [Scrape(path)]
    for name, labels, value, time_s in samples_of(content):
        current = scrapes[-1]
        if labels in current.labelled(name):
            if len(scrapes) >= _MAX_SCRAPES:
                break
            current = Scrape(f"{path} (scrape {len(scrapes) + 1})")
            scrapes.append(current)
        current.samples.setdefault(name, {})[labels] = value
        current.time_s = time_s if time_s is not None else current.time_s
    if len(scrapes) > 1:
        scrapes[0].source = f"{path} (scrape 1)"
    return [scrape for scrape in scrapes if scrape.samples]


def samples_of(content: str) -> Iterator[tuple[str, Labels, float, float | None]]:
    """(name, sorted labels, value, time in seconds) of every usable sample of an engine."""
    for line in content.split("\n"):  # of the format; other separators may stand in a label
        stripped = line.lstrip("\ufeff \t")
        if not stripped.startswith(_FAMILIES):
            continue
        found = _LINE.match(stripped)
        if found is None or found["name"].endswith(("_bucket", "_created")):
            continue
        labels, value = _labels(found["labels"] or ""), _number(found["value"])
        if labels is not None and value is not None:
            yield found["name"], labels, value, _time_s(found["time"])


def _time_s(text: str | None) -> float | None:
    """A sample's time: whole milliseconds, or (OpenMetrics) seconds with a fraction."""
    if not text:
        return None
    return float(text) if "." in text else int(text) * MS


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _labels(text: str) -> Labels | None:
    """Sorted (name, value) pairs; None where the text between the braces is no list of labels."""
    pairs, place = [], 0
    while place < len(text.rstrip()):
        found = _LABEL.match(text, place)
        if found is None:
            return None
        pairs.append((found[1], _ESCAPE.sub(lambda part: _ESCAPES[part[0]], found[2])))
        place = found.end()
    return tuple(sorted(pairs))
