"""Which model card a published name means, in which format, and what stands in for a model without a card."""

import difflib
import functools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hwmodel.models import model_names, published

# Words in a quantization cell, most telling first, and the storage format they stand for.
_FORMATS = (
    ("nvfp4", "nvfp4"),
    ("mxfp4", "mxfp4"),
    ("awq", "int4"),
    ("gptq", "int4"),
    ("int4", "int4"),
    ("w4a", "int4"),
    ("4bit", "int4"),
    ("4-bit", "int4"),
    ("int8", "int8"),
    ("w8a16", "int8"),
    ("fp8", "fp8"),
    ("bf16", "bf16"),
    ("fp16", "bf16"),
    ("8bit", "int8"),
    ("8-bit", "int8"),
)
_CARD_FORMATS = {"awq": "int4", "gptq": "int4"}  # how card names end -> format
_WITHOUT_VARIANT = re.compile(r"-(instruct|thinking|chat|base|it|preview|\d{4,8})(?=-|$)")
_BILLIONS = re.compile(r"(?<![a-z0-9.])(\d{1,5}(?:\.\d{1,3})?)([bt])(?![a-z])")
_ACTIVE = re.compile(r"(?<![a-z0-9])a(\d{1,5}(?:\.\d{1,3})?)b(?![a-z])")
_TRILLION = 1000.0
_GGUF_BITS = re.compile(r"q(\d)(?=_|\b|[xsml])")
_GGUF_EXTRA_BITS = 0.6  # scales and the tensors that are kept in a larger format
_GGUF_USUAL_BITS = 4.6
_BYTES = {"nvfp4": 0.5625, "mxfp4": 0.53125, "int4": 0.5625, "int8": 1.0, "fp8": 1.0, "bf16": 2.0}
_AS_PUBLISHED = ("bf16", "fp8", "int4", "mxfp4", "nvfp4", "int8")
_ABOUT_THE_CACHE = re.compile(r"(?:fp8|int8|bf16|fp16)[\s-]*kv\w*|kv[\s-]*(?:cache)?[\s:=-]*(?:fp8|int8|bf16|fp16)")
_SAME_SIZE = 1.3  # names round, and count the embedding or not
_KIND_PENALTY = 3.0  # a dense model for a mixture of experts, or the other way round


@dataclass(frozen=True, slots=True)
class Match:
    """A card for a model. `exact`: it is that model's; `kin`: at least one of its family, of a size that is known.

    `total` and `active` are how many times larger (all, per token) than the card the name says that the model is.
    """

    card: str
    exact: bool
    kin: bool
    total: float = 1.0
    active: float = 1.0


def storage(quantization: str) -> tuple[str, float] | None:
    """Format and bytes per parameter that a quantization cell (or a model's name) names, `None` where it names none."""
    text = _ABOUT_THE_CACHE.sub(" ", quantization.lower())
    for word, name in _FORMATS:
        if word in text and "gguf" not in text:
            return name, _BYTES[name]
    bits = _GGUF_BITS.search(text)
    if bits or "gguf" in text:
        return "int4", (float(bits[1]) + _GGUF_EXTRA_BITS if bits else _GGUF_USUAL_BITS) / 8.0
    return None


def model_stem(name: str) -> str:
    """A model's name without owner, remarks, variant and date: `Qwen3-235B-A22B-Instruct-2507` -> `qwen3-235b-a22b`.

    >>> model_stem("Qwen3-8B (thinking)")
    'qwen3-8b'
    """
    plain = _plain(name)
    while (shorter := _WITHOUT_VARIANT.sub("", plain)) != plain:
        plain = shorter
    return plain.strip("-")


def _plain(name: str) -> str:
    """A name without owner and remarks, variant and date still in it."""
    return re.sub(r"\(.*?\)", "", name).strip().lower().rsplit("/", 1)[-1].replace(" ", "-").replace("_", "-")


@functools.lru_cache(maxsize=1024)
def model_card(name: str, storage_format: str | None, arch: str = "") -> Match:
    """The card for a model, in the wanted format where there is one; the nearest card where the model has none.

    `arch` is what the source says of it, such as `MoE (256 experts top-8)` or `dense`.
    """
    stems = {card: card.rsplit("-", 1)[0] for card in model_names()}
    variant = [_plain(name)] if _plain(name) in stems.values() else []  # with a card of its own: Kimi-K2-Thinking
    for stem in (*variant, *_spellings(name)):
        own = [card for card in stems if stems[card] == stem]
        begun = [card for card in stems if stem.startswith(stems[card] + "-") and _size_agrees(name, card)]
        longest = max((len(stems[card]) for card in begun), default=0)
        family = own or [card for card in begun if len(stems[card]) == longest]
        if family:
            return Match(_stored(family, storage_format), exact=True, kin=True)
    is_moe = mixture_of_experts(name, arch)
    nearest = max(stems, key=lambda card: _likeness(name, card, is_moe))
    family = [card for card in stems if stems[card] == stems[nearest]]
    return _stand_in(name, _stored(family, storage_format))


def _stored(family: Sequence[str], storage_format: str | None) -> str:
    """The card in the wanted format, else in the one that is usually published."""
    formats = {card: _CARD_FORMATS.get(card.rsplit("-", 1)[1], card.rsplit("-", 1)[1]) for card in family}
    wanted = [card for card in family if formats[card] == storage_format]
    return (wanted or sorted(family, key=lambda card: _AS_PUBLISHED.index(formats[card])))[0]


def _stand_in(name: str, card: str) -> Match:
    facts, (total, active) = _facts(card), sizes(name)
    larger = total / float(facts["total_billion"]) if total and facts.get("total_billion") else 1.0
    wider = active / float(facts["active_billion"]) if active and facts.get("active_billion") else larger
    of_family = _family_word(model_stem(name)) == _family_word(card)
    near = 1.0 / _SAME_SIZE < larger < _SAME_SIZE
    return Match(card, exact=False, kin=of_family and near, total=larger, active=wider)


def mixture_of_experts(name: str, arch: str) -> bool | None:
    """Whether a model has experts, by what the source says or by its name; None where neither tells."""
    plain = name.lower()
    if "moe" in arch.lower() or "expert" in arch.lower():
        return True
    if "dense" in arch.lower():
        return False
    if _ACTIVE.search(plain) or "moe" in plain or re.search(r"\d+x\d+b|\d+e\b", plain):
        return True
    return False if _BILLIONS.search(plain) else None


def sizes(name: str) -> tuple[float | None, float | None]:
    """Total and active parameters in billions that a name states."""
    plain = re.sub(r"[\s_]+", "-", name.lower())
    total, active = _BILLIONS.search(plain), _ACTIVE.search(plain)
    billions = float(total[1]) * (_TRILLION if total[2] == "t" else 1.0) if total else None
    return billions, float(active[1]) if active else None


def _spellings(name: str) -> list[str]:
    """Stems to look up: as written, `A/B` by its first part as well, family and version joined or not."""
    stems = [model_stem(name), model_stem(name.split("/", 1)[0])]
    stems += [re.sub(r"^([a-z]+)-?(?=\d)", joined, stem) for stem in stems for joined in (r"\1-", r"\1")]
    return list(dict.fromkeys(stem for stem in stems if stem))


@functools.cache
def _facts(card: str) -> Mapping[str, Any]:
    """What the card says of its size; read once, since every name is compared with every card."""
    return published(card)


def _size_agrees(name: str, card: str) -> bool:
    """False where the name states another size: a distilled model has its student's shape, not its teacher's."""
    total, _ = sizes(name)
    known = [float(size) for key in ("total_billion", "active_billion") if (size := _facts(card).get(key))]
    return not total or not known or any(1.0 / _SAME_SIZE < total / size < _SAME_SIZE for size in known)


def _family_word(stem: str) -> str:
    match = re.match(r"[a-z]+", stem)
    return match[0] if match else ""


def _likeness(name: str, card: str, is_moe: bool | None) -> float:
    """How well a card may stand in for a model: same kind and family first, then size, then spelling."""
    stem, theirs = model_stem(name), card.rsplit("-", 1)[0]
    likeness = 2.0 * difflib.SequenceMatcher(None, stem, theirs).ratio() + theirs.startswith(stem)
    if _family_word(stem) and _family_word(stem) == _family_word(theirs):
        likeness += 2.0
    total, facts = sizes(name)[0], _facts(card)
    if total and facts.get("total_billion"):
        likeness -= abs(math.log(total / float(facts["total_billion"])))
    their_kind = facts.get("total_billion") != facts.get("active_billion")
    return likeness - _KIND_PENALTY * (is_moe is not None and is_moe != their_kind)
