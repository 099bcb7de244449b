"""What published rows call things, in this project's words: GPU cards, methods, engines, versions.

General rules instead of a list of cases: a name is cut into its parts and matched against the cards that are there.
`calibration.published.models` does the same for models.
"""

import functools
import re
from collections.abc import Sequence

from calibration.published.cells import says_nothing
from hwmodel.gpus import gpu_names

# Words in a method cell, most telling first.
_METHODS = (
    ("p-eagle", "p_eagle"),
    ("peagle", "p_eagle"),
    ("eagle-3", "eagle3"),
    ("eagle3", "eagle3"),
    ("eagle-2", "eagle"),
    ("dspark", "dspark"),
    ("dflash", "dflash"),
    ("mtp", "mtp"),
    ("nextn", "mtp"),
    ("suffix", "suffix"),
    ("ngram", "ngram"),
    ("n-gram", "ngram"),
    ("lookup", "ngram"),
    ("medusa", "medusa"),
    ("hydra", "medusa"),
    ("mlp", "mlp_speculator"),
    ("eagle", "eagle"),
    ("redrafter", "eagle"),
    ("draft", "draft_model"),
    ("standalone", "draft_model"),
)
_VERSION = re.compile(r"(?:^|[\sv~(=-])(\d{1,2}\.\d{1,3}(?:\.\d{1,3})?)(?!\d)")
_OF_OTHER_SOFTWARE = re.compile(r"(?:rocm|cuda|cu|torch|python|driver|triton|flashinfer|nccl)[\s=v:-]*\d[\w.]*")
# The release that was current in a month, as far as the published rows tell; rows without a version get that one.
_VLLM_BY_MONTH = (
    ("2025-02", "0.7.3"),
    ("2025-05", "0.8.5"),
    ("2025-07", "0.9.2"),
    ("2025-10", "0.10.2"),
    ("2025-12", "0.11.2"),
    ("2026-01", "0.13.0"),
    ("2026-02", "0.14.1"),
    ("2026-03", "0.16.0"),
    ("2026-04", "0.18.1"),
    ("2026-05", "0.20.2"),
    ("2026-06", "0.23.0"),
    ("2026-07", "0.25.0"),
    ("2026-08", "0.27.0"),
    ("2026-09", "0.30.0"),
)
_SGLANG_BY_MONTH = (("2025-12", "0.5.5"),)
_MONTH = re.compile(r"20\d\d-\d\d")
_EARLIEST_VERSION = (0, 5)


def method_name(text: str) -> str | None:
    """The speculation method that a cell names.

    >>> method_name("EAGLE 3 (chain)"), method_name("prompt lookup"), method_name("none")
    ('eagle3', 'ngram', None)
    """
    plain = re.sub(r"[\s_]+", "-", text.lower())
    return next((name for word, name in _METHODS if word in plain), None)


def engine_name(text: str) -> str:
    """The engine whose facts apply: SGLang's to SGLang, vLLM's to everything else."""
    return "sglang" if "sglang" in text.lower() else "vllm"


def engine_version(engine: str, version: str, date: str) -> str | None:
    """The release whose facts apply: the version cell's number, else the one current at the date.

    None (the newest known) without either, and for engines whose versions are not followed here.
    """
    if not any(known in engine.lower() for known in ("vllm", "sglang")):
        return None
    match = _VERSION.search(_OF_OTHER_SOFTWARE.sub(" ", version.lower()))
    if match and tuple(int(part) for part in match[1].split(".")[:2]) >= _EARLIEST_VERSION:
        return match[1] if match[1].count(".") == 2 else f"{match[1]}.0"
    month = _MONTH.match(date)
    if month is None:
        return None
    table = _SGLANG_BY_MONTH if engine_name(engine) == "sglang" else _VLLM_BY_MONTH
    return next((release for last, release in table if month[0] <= last), None)


@functools.lru_cache(maxsize=1024)
def gpu_card(text: str) -> str | None:
    """The GPU card that a cell names; None for no name and for a GPU without a card."""
    words = _words(text)
    best, most = None, 0
    for name in gpu_names():
        parts = name.split("-")
        wanted = [part for part in parts if part not in _GPU_DEFAULTS]
        if all(_has(words, part) for part in wanted):
            score = 10 * len(wanted) + sum(_has(words, part) for part in parts) - len(parts)
            if score > most or (score == most and best is not None and _usual(name) > _usual(best)):
                best, most = name, score
    return best


def names_a_gpu(text: str) -> bool:
    """Whether a cell says on which GPU something ran, with a card or without."""
    return not says_nothing(text)


_GPU_DEFAULTS = frozenset({"sxm", "80gb", "server", "blackwell", "rtx", "pcie"})
_SAME_CHIP = {"h800": "h100", "a800": "a100", "5090d": "5090", "4090d": "4090"}  # variants for export: slower links


def _usual(name: str) -> int:
    """How usual a form factor is where the cell does not say."""
    return ("sxm" in name) + ("server" in name)


def _has(words: Sequence[str], part: str) -> bool:
    return part in words or any(word.startswith(part) and word[len(part) :] in ("", "gb") for word in words)


def _words(text: str) -> list[str]:
    """The words of a GPU cell, counts (`8xH100`) and glued form factors (`H100SXM5`) cut off."""
    plain = re.sub(r"[^a-z0-9]+", " ", text.lower())
    plain = re.sub(r"\bmax ?q\b", "max q", plain)
    plain = re.sub(r"(?:sxm|pcie|nvl(?!ink))\d*", lambda match: f" {match[0].rstrip('0123456789')} ", plain)
    plain = re.sub(r"\b\d+x(?=[a-z]{1,4}\d)|(?<=\d)x\d+\b|\b(?:rtx|geforce)(?=\d)", " ", plain)
    return [_SAME_CHIP.get(word, word) for word in plain.split()]
