"""GPU datasheets: a shipped card by name, or a user's own card by path."""

import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path

from hwmodel.errors import InputError, UnknownNameError
from hwmodel.files import open_regular
from hwmodel.hf.fields import one_line, shown
from hwmodel.interconnects import interconnect_names
from hwmodel.names import did_you_mean, nearest, vocabulary
from hwmodel.specs import Gpu
from hwmodel.units import GB, MB, MIB, TERA

_CARDS = Path(__file__).parent / "data" / "gpus"
_MAX_CARD_BYTES = 100_000  # a card is 1-2 kB: anything larger is another kind of file
_MAX_NAME_CHARS = 100
_INTERCONNECTS = tuple(interconnect_names())
_NUMBER, _WHOLE, _BOOL, _CLASS = "a number", "a whole number", "true or false", "an interconnect class"

# Table -> key -> (what it holds, smallest, largest). The limits are far beyond any device: they catch a wrong unit.
_Rule = tuple[str, float, float]
_SCHEMA: Mapping[str, Mapping[str, _Rule]] = {
    "memory": {"total_mib": (_NUMBER, 1, 1e8)},
    "bandwidth": {"memory_gb_per_s": (_NUMBER, 0.1, 1e6)},
    "dense_rate": {
        "bf16_tflop_per_s": (_NUMBER, 1e-4, 1e6),
        "fp8_tflop_per_s": (_NUMBER, 1e-4, 1e6),
        "fp4_tflop_per_s": (_NUMBER, 1e-4, 1e6),
    },
    "chip": {"num_sms": (_WHOLE, 1, 1e5), "l2_mb": (_NUMBER, 0, 1e5)},
    "links": {
        "interconnect": (_CLASS, 0, 0),
        "pcie_gb_per_s": (_NUMBER, 0, 1e5),
        "nvlink_gb_per_s": (_NUMBER, 0, 1e5),
        "p2p": (_BOOL, 0, 0),
    },
}
_OPTIONAL = {"fp8_tflop_per_s", "fp4_tflop_per_s"}
_TOP = {"title", "sm_arch"}
# How nvidia-smi and shops write what the cards' names say otherwise: patterns and our words.
_SIZE = re.compile(r"\d+gb")
_SAME = 0.8  # of one word of it
_ALIKE = 0.6  # of a GPU's name: shorter than others, so that less likeness means nothing
_NAMES_OF_OTHERS = {r"\bsxm\d\b": "sxm", r"\bhbm3\b": "sxm", r"\b(rtx|gtx)(?=\d)": "rtx ", r"\bpro(?=\d)": "pro "}


def gpu_names() -> tuple[str, ...]:
    """Names of the shipped cards, sorted."""
    return tuple(sorted(path.stem for path in _CARDS.glob("*.toml")))


def load_gpu(name_or_path: str) -> Gpu:
    """One accelerator: a shipped card by its name, or a TOML card of the user's by its path.

    An unknown name raises `UnknownNameError` with the closest ones and where all stand, a card that is no card
    `InputError`; both messages are one line.
    """
    name = name_or_path.strip()
    if len(name) <= _MAX_NAME_CHARS and name.replace("-", "").isalnum():
        shipped = _CARDS / f"{name.lower()}.toml"
        if shipped.is_file():
            return _gpu_from_card(_read(shipped), name.lower(), shipped.name)
    if name.endswith(".toml") or "/" in name:
        return _gpu_from_card(_read(Path(name)), Path(name).stem, name)
    listed = vocabulary("cards", gpu_names(), "list gpus")
    raise UnknownNameError(
        f"no GPU {shown(name)}{did_you_mean(nearest_gpus(name))} {listed}; allowed is also the path of a .toml card"
    )


def nearest_gpus(name: str) -> list[str]:
    """The cards whose names hold all the words of `name` that any card's holds, else those that look nearest.

    A model's number must be among the words: two cards that only share a socket or a size are not alike.
    """
    known, said = gpu_names(), _words(name[:_MAX_NAME_CHARS])
    words = said & set().union(*map(_words, known))
    without_size = {word for word in words if not _SIZE.fullmatch(word)}  # said by few cards' names
    numbers = {word for word in without_size if re.search(r"\d", word)}
    for wanted in (words, without_size, numbers):
        fitting = [card for card in known if numbers and wanted <= _words(card)]
        if fitting:
            return fitting
    alike = nearest(name, known, likeness=_ALIKE)
    return alike or [card for word in sorted(said) if re.search(r"\d", word) for card in nearest(word, known, 1, _SAME)]


def _words(name: str) -> set[str]:
    """The words of a GPU's name as cards write them: `NVIDIA H100 80GB HBM3` has `h100` and, by its memory, `sxm`."""
    text = name.lower()
    for theirs, ours in _NAMES_OF_OTHERS.items():
        text = re.sub(theirs, ours, text)
    return set(re.findall(r"[a-z0-9]+", text))


def _hint(name: str, known: Iterable[str]) -> str:
    return did_you_mean(nearest(name, known, most=1, likeness=_ALIKE))


def _bad(where: str | Path, message: str) -> InputError:
    return InputError(one_line(f"GPU card {where}: {message}"))


def _read(path: Path) -> Mapping[str, object]:
    try:
        with open_regular(path) as file:
            raw = file.read(_MAX_CARD_BYTES + 1)
    except (OSError, ValueError) as error:
        raise _bad(path, f"{getattr(error, 'strerror', None) or error}; allowed: a TOML file") from None
    if len(raw) > _MAX_CARD_BYTES:
        raise _bad(path, f"over {_MAX_CARD_BYTES} bytes; allowed: a TOML card of a few kB")
    try:
        return tomllib.loads(raw.decode())
    except (ValueError, RecursionError) as error:
        raise _bad(path, f"not TOML ({str(error).splitlines()[0]})") from None


def _gpu_from_card(card: Mapping[str, object], name: str, where: str) -> Gpu:
    _reject_unknown(card, _TOP | set(_SCHEMA), where)
    value: dict[str, float] = {}
    texts: dict[str, str] = {key: _text(card.get(key), key, where) for key in ("title", "sm_arch")}
    flags: dict[str, bool] = {}
    sources = []
    for table, rules in _SCHEMA.items():
        content = card.get(table)
        if not isinstance(content, dict):
            raise _bad(where, f"no table [{table}]; needed: {', '.join(_SCHEMA)}")
        _reject_unknown(content, set(rules) | {"source"}, f"{where} [{table}]")
        sources.append(f"{table}: {_text(content.get('source'), f'{table}.source', where)}")
        for key, rule in rules.items():
            if rule[0] in (_NUMBER, _WHOLE) and (key in content or key not in _OPTIONAL):
                value[key] = _number(content.get(key), rule, f"{table}.{key}", where)
            elif rule[0] == _BOOL:
                flags[key] = _flag(content.get(key), f"{table}.{key}", where)
            elif rule[0] == _CLASS:
                texts[key] = _class(content.get(key), f"{table}.{key}", where)
    return _gpu(name, value, texts, flags, "; ".join(sources))


def _gpu(
    name: str, value: Mapping[str, float], texts: Mapping[str, str], flags: Mapping[str, bool], source: str
) -> Gpu:
    fp8, fp4 = value.get("fp8_tflop_per_s"), value.get("fp4_tflop_per_s")
    return Gpu(
        name=name,
        title=texts["title"],
        sm_arch=texts["sm_arch"],
        memory_bytes=value["total_mib"] * MIB,
        memory_bandwidth_bytes_per_s=value["memory_gb_per_s"] * GB,
        bf16_flop_per_s=value["bf16_tflop_per_s"] * TERA,
        fp8_flop_per_s=None if fp8 is None else fp8 * TERA,
        fp4_flop_per_s=None if fp4 is None else fp4 * TERA,
        l2_bytes=value["l2_mb"] * MB,
        num_sms=int(value["num_sms"]),
        interconnect=texts["interconnect"],
        pcie_bytes_per_s=value["pcie_gb_per_s"] * GB,
        nvlink_bytes_per_s=value["nvlink_gb_per_s"] * GB,
        p2p=flags["p2p"],
        source=source,
    )


def _reject_unknown(table: Mapping[str, object], allowed: set[str], where: str) -> None:
    for key in table:
        if key not in allowed:
            raise _bad(where, f"unknown key {shown(key)}{_hint(key, allowed)} allowed: {', '.join(sorted(allowed))}")


def _number(got: object, rule: _Rule, key: str, where: str) -> float:
    kind, low, high = rule
    if (
        isinstance(got, int | float)
        and not isinstance(got, bool)
        and low <= got <= high
        and (kind == _NUMBER or got == int(got))
    ):
        return float(got)
    given = "nothing" if got is None else shown(got)
    raise _bad(where, f"{key} is {given}; allowed: {kind} from {low:g} to {high:g}")


def _flag(got: object, key: str, where: str) -> bool:
    if not isinstance(got, bool):
        raise _bad(where, f"{key} is {shown(got)}; allowed: true, false")
    return got


def _class(got: object, key: str, where: str) -> str:
    if got not in _INTERCONNECTS:
        raise _bad(where, f"{key} is {shown(got)}; allowed: {', '.join(_INTERCONNECTS)}")
    return str(got)


def _text(got: object, key: str, where: str) -> str:
    if not isinstance(got, str) or not got.strip():
        raise _bad(where, f"{key} is {shown(got)}; allowed: a text (sources are part of a card)")
    return got
