"""What published rows call things, in this project's words: GPU cards, model cards, methods, engines, versions.

General rules instead of a list of cases: a name is cut into its parts and matched against the cards that are there.
"""

import difflib
import math
import re
from collections.abc import Sequence

from hwmodel.gpus import gpu_names
from hwmodel.models import model_names, published

# Words in a quantization cell, most telling first, and the storage format they stand for.
_FORMATS = (
    ("nvfp4", "nvfp4"),
    ("mxfp4", "mxfp4"),
    ("awq", "int4"),
    ("gptq", "int4"),
    ("int4", "int4"),
    ("w4a16", "int4"),
    ("int8", "int8"),
    ("fp8", "fp8"),
    ("bf16", "bf16"),
    ("fp16", "bf16"),
)
_CARD_FORMATS = {"awq": "int4", "gptq": "int4"}  # how card names end -> format
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
    ("draft", "draft_model"),
    ("eagle", "eagle"),
)
_WITHOUT_VARIANT = re.compile(r"-(instruct|thinking|chat|base|it|preview|\d{4,8})(?=-|$)")
_BILLIONS = re.compile(r"(?<![a-z0-9.])(\d+(?:\.\d+)?)([bt])(?![a-z])")
_ACTIVE = re.compile(r"(?<![a-z0-9])a(\d+(?:\.\d+)?)b(?![a-z])")
_TRILLION = 1000.0
_GGUF_BITS = re.compile(r"q(\d)(?:_|\b)")
_GGUF_EXTRA_BITS = 0.6  # scales and the tensors that are kept in a larger format
_GGUF_USUAL_BITS = 4.6
_BYTES = {"nvfp4": 0.5625, "mxfp4": 0.53125, "int4": 0.5625, "int8": 1.0, "fp8": 1.0, "bf16": 2.0}
_VERSION = re.compile(r"(?:^|[\sv~])(\d{1,2}\.\d{1,3}(?:\.\d{1,3})?)(?!\d)")
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


def storage(quantization: str) -> tuple[str, float] | None:
    """Format and bytes per parameter that a quantization cell names, `None` where it names none."""
    text = quantization.lower()
    for word, name in _FORMATS:
        if word in text and "gguf" not in text:
            return name, _BYTES[name]
    bits = _GGUF_BITS.search(text)
    if bits or "gguf" in text:
        return "int4", (float(bits[1]) + _GGUF_EXTRA_BITS if bits else _GGUF_USUAL_BITS) / 8.0
    return None


def method_name(text: str) -> str | None:
    """The speculation method that a cell names."""
    lower = text.lower()
    return next((name for word, name in _METHODS if word in lower), None)


def engine_name(text: str) -> str:
    """The engine whose facts apply: SGLang's to SGLang, vLLM's to everything else."""
    return "sglang" if "sglang" in text.lower() else "vllm"


def engine_version(engine: str, version: str, date: str) -> str | None:
    """The release whose facts apply: the version cell's number, else the one current at the date.

    None (the newest known) without either, and for engines whose versions are not followed here.
    """
    if not any(known in engine.lower() for known in ("vllm", "sglang")):
        return None
    match = _VERSION.search(version)
    if match and tuple(int(part) for part in match[1].split(".")[:2]) >= _EARLIEST_VERSION:
        return match[1] if match[1].count(".") == 2 else f"{match[1]}.0"
    month = _MONTH.match(date)
    if month is None:
        return None
    table = _SGLANG_BY_MONTH if engine_name(engine) == "sglang" else _VLLM_BY_MONTH
    return next((release for last, release in table if month[0] <= last), None)


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


_GPU_DEFAULTS = frozenset({"sxm", "80gb", "server", "blackwell", "rtx", "pcie"})


def _usual(name: str) -> int:
    """How usual a form factor is where the cell does not say."""
    return ("sxm" in name) + ("server" in name)


def _has(words: Sequence[str], part: str) -> bool:
    return part in words or any(word.startswith(part) and word[len(part) :] in ("", "gb") for word in words)


def _words(text: str) -> list[str]:
    return re.sub(r"max[- ]q", "max q", re.sub(r"[^a-z0-9]+", " ", text.lower())).split()


def model_stem(name: str) -> str:
    """A model's name without owner, remarks, variant and date: `Qwen3-235B-A22B-Instruct-2507` -> `qwen3-235b-a22b`.

    >>> model_stem("Qwen3-8B (thinking)")
    'qwen3-8b'
    """
    plain = re.sub(r"\(.*?\)", "", name).strip().lower().rsplit("/", 1)[-1].replace(" ", "-").replace("_", "-")
    while (shorter := _WITHOUT_VARIANT.sub("", plain)) != plain:
        plain = shorter
    return plain.strip("-")


def model_card(name: str, storage_format: str | None) -> tuple[str, bool]:
    """The card for a model, in the wanted format where there is one, and whether it is that model (or the nearest)."""
    stem = model_stem(name)
    cards = model_names()
    stems = {card: card.rsplit("-", 1)[0] for card in cards}
    own = [card for card in cards if stems[card] == stem]
    family = own or [card for card in cards if stem.startswith(stems[card] + "-")]
    exact = bool(family)
    if not family:
        nearest = max(cards, key=lambda card: _likeness(name, card))
        family = [card for card in cards if stems[card] == stems[nearest]]
    elif not own:
        longest = max(len(stems[card]) for card in family)
        family = [card for card in family if len(stems[card]) == longest]
    formats = {card: _CARD_FORMATS.get(card.rsplit("-", 1)[1], card.rsplit("-", 1)[1]) for card in family}
    wanted = [card for card in family if formats[card] == storage_format]
    return (wanted or sorted(family, key=lambda card: _AS_PUBLISHED.index(formats[card])))[0], exact


_AS_PUBLISHED = ("bf16", "fp8", "int4", "mxfp4", "nvfp4", "int8")


def sizes(name: str) -> tuple[float | None, float | None]:
    """Total and active parameters in billions that a name states."""
    total, active = _BILLIONS.search(name), _ACTIVE.search(name)
    billions = float(total[1]) * (_TRILLION if total[2] == "t" else 1.0) if total else None
    return billions, float(active[1]) if active else None


def _likeness(name: str, card: str) -> float:
    """How well a card may stand in for a model: same family first, then size, then spelling."""
    stem, theirs = model_stem(name), card.rsplit("-", 1)[0]
    likeness = 2.0 * difflib.SequenceMatcher(None, stem, theirs).ratio() + theirs.startswith(stem)
    family = re.match(r"[a-z]+", stem), re.match(r"[a-z]+", theirs)
    if family[0] and family[1] and family[0][0] == family[1][0]:
        likeness += 2.0
    total, active = sizes(name.lower())
    facts = published(card)
    if total and facts.get("total_billion"):
        likeness -= abs(math.log(total / float(facts["total_billion"])))
    return likeness - 1.0 * (active is not None and facts.get("total_billion") == facts.get("active_billion"))
