"""Read the text that /metrics answers with: samples with their labels; lines that are none are counted, not fatal.

Source: Prometheus exposition formats, text format 0.0.4.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)\s*(?:\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?\s*")
_LABEL = re.compile(r'\s*([a-zA-Z_]\w*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*,?')
_ESCAPES = {"\\n": "\n", '\\"': '"', "\\\\": "\\"}
_MAX_LINE_CHARACTERS = 100_000


@dataclass(frozen=True, slots=True)
class Sample:
    """One line: name, labels, value (which may be NaN or infinite)."""

    name: str
    labels: dict[str, str]
    value: float


@dataclass(slots=True)
class Exposition:
    """All samples of a text by name, in order; `num_unreadable` lines were no samples."""

    samples: dict[str, list[Sample]] = field(default_factory=dict)
    num_unreadable: int = 0

    def has(self, prefix: str) -> bool:
        """Whether any name starts so."""
        return any(name.startswith(prefix) for name in self.samples)

    def total(self, name: str) -> float | None:
        """The sum over all label sets, such as the engines of data parallelism; None where the name is absent."""
        values = [sample.value for sample in self.samples.get(name, ()) if math.isfinite(sample.value)]
        return math.fsum(values) if values else None

    def by_label(self, name: str, label: str) -> dict[str, float]:
        """Sums by the value of one label."""
        sums: dict[str, float] = {}
        for sample in self.samples.get(name, ()):
            if label in sample.labels and math.isfinite(sample.value):
                sums[sample.labels[label]] = sums.get(sample.labels[label], 0.0) + sample.value
        return sums

    def label_values(self, name: str, label: str) -> list[str]:
        """The distinct values of a label of that name, in order."""
        return list(dict.fromkeys(s.labels[label] for s in self.samples.get(name, ()) if label in s.labels))


def read_exposition(text: str) -> Exposition:
    """The samples of a /metrics text.

    >>> read_exposition('a_total{engine="0"} 2\\na_total{engine="1"} 3').total("a_total")
    5.0
    """
    result = Exposition()
    for line in text.split("\n"):
        if not line.strip() or line.startswith("#"):
            continue
        sample = _sample(line) if len(line) <= _MAX_LINE_CHARACTERS else None
        if sample is None:
            result.num_unreadable += 1
        else:
            result.samples.setdefault(sample.name, []).append(sample)
    return result


def _sample(line: str) -> Sample | None:
    match = _SAMPLE.fullmatch(line)
    if match is None:
        return None
    try:
        value = float(match[3])
    except ValueError:
        return None
    return Sample(match[1], dict(_labels(match[2] or "")), value)


def _labels(text: str) -> Iterator[tuple[str, str]]:
    position = 0
    while match := _LABEL.match(text, position):
        yield match[1], re.sub(r"\\[n\"\\]", lambda escape: _ESCAPES[escape[0]], match[2])
        position = match.end()
