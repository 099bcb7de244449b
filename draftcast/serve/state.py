"""What the page's address says: which keys have which values. It is anybody's text, so most of it is refused.

Only keys with a closed meaning can be set: numbers, truth values, words of a fixed list, and the few texts below. What
names a file, or may, takes the name of a shipped card or what the operator's own deployment says, nothing else. A key
that nobody has thought about is refused.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, get_origin
from urllib.parse import parse_qsl, urlencode

from draftcast.serve.controls import BY_KEY, CONTROLS, LOAD
from hwmodel.errors import InputError, UnknownNameError
from hwmodel.gpus import gpu_names
from hwmodel.models import model_names
from hwmodel.records import dataclass
from simulator.deployment.keys import PARAMETERS, bare_type, field_at, is_text, short, unknown_key
from simulator.deployment.schema import FieldInfo, Table
from simulator.deployment.tables import LENGTH_DISTRIBUTIONS, MAX_CONCURRENCY, TABLES

FREE = "set"  # may be repeated: KEY=VALUE, as after --set
MAX_QUERY = 8000  # characters
_MAX_ENTRIES, _MAX_VALUE = 64, 1000
# Texts that are looked up in tables or printed, and never opened as a file; a test names every other text key.
FREE_TEXT = frozenset(
    {
        "hardware.allreduce_algorithm",
        "engine.version",
        "engine.kv_cache_dtype",
        "engine.attention_backend",
        "speculation.acceptance.published",
        "costs.currency",
    }
)
# Names of cards; a path would do as well, which is why only shipped ones can be set here.
CARDS: Mapping[str, Callable[[], tuple[str, ...]]] = {
    "model.config": model_names,
    "hardware.gpu": gpu_names,
    "speculation.draft_model": model_names,
    "costs.training_gpu": gpu_names,
    "workload.length_distribution": lambda: LENGTH_DISTRIBUTIONS,
}
_PARAMETER = re.compile(r"[a-z0-9_]{1,64}")
_MEASURED = re.compile(r"measured\.([0-9]{1,3}\.)?([a-z_]+)")


@dataclass(frozen=True, slots=True)
class State:
    """The values of controls by their keys, further KEY=VALUE entries in their order, and the load looked into."""

    values: Mapping[str, str]
    entries: tuple[str, ...] = ()
    load: int | None = None

    @property
    def overrides(self) -> tuple[str, ...]:
        """What `--set` would be given."""
        controls = (f"{control.key}={self.values[control.key]}" for control in CONTROLS if control.key in self.values)
        return (*controls, *self.entries)

    @property
    def query(self) -> str:
        """The one way to write this state into an address."""
        controls = [(control.key, self.values[control.key]) for control in CONTROLS if control.key in self.values]
        load = [] if self.load is None else [(LOAD, str(self.load))]
        return urlencode([*controls, *load, *((FREE, entry) for entry in self.entries)])

    def arguments(self) -> list[str]:
        """The overrides as options of a command line."""
        return [word for override in self.overrides for word in ("--set", override)]


def parse(query: str, own: Mapping[str, Any]) -> State:
    """The state that an address's query says; `own` are the tables of the operator's deployment.

    `InputError` with one line for anything that cannot be set from here. Empty values are not stated at all.
    """
    if len(query) > MAX_QUERY:
        raise InputError(f"the address: got {len(query)} characters of settings, allowed: {MAX_QUERY}")
    pairs = _pairs(query)
    values: dict[str, str] = {}
    entries: list[str] = []
    for name, value in pairs:
        if name == FREE:
            entries += [line.strip() for line in value.splitlines() if line.strip()]
        elif name not in BY_KEY:
            raise UnknownNameError(
                f"the address: got '{short(name)}', allowed: {', '.join(BY_KEY)}, and {FREE}=KEY=VALUE for other keys"
            )
        elif value.strip():
            if name in values:
                raise InputError(f"{name}: got it twice, allowed: once")
            values[name] = value.strip()
    if len(entries) > _MAX_ENTRIES:
        raise InputError(f"{FREE}: got {len(entries)} entries, allowed: {_MAX_ENTRIES}")
    load = values.pop(LOAD, None)
    state = State(values, tuple(entries), None if load is None else _load(load))
    for override in state.overrides:
        check_settable(override, own)
    return state


def _pairs(query: str) -> list[tuple[str, str]]:
    try:
        return parse_qsl(query, keep_blank_values=True, errors="strict", max_num_fields=4 * _MAX_ENTRIES)
    except ValueError:  # UnicodeDecodeError is one
        raise InputError("the address: its settings cannot be read, allowed: KEY=VALUE&KEY=VALUE in UTF-8") from None


def _load(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(MAX_CONCURRENCY))):
        raise InputError(f"concurrency: got '{short(text)}', allowed: integer from 1 to {MAX_CONCURRENCY}")
    return int(text)


def check_settable(override: str, own: Mapping[str, Any]) -> None:
    """Nothing; `InputError` where this KEY=VALUE may not come from an address."""
    key, equals, value = (part.strip() for part in override.partition("="))
    if not equals or not key:
        raise InputError(f"got '{short(override)}', allowed: KEY=VALUE, such as hardware.num_gpus=4")
    if len(value) > _MAX_VALUE or not value.isprintable():
        raise InputError(f"{short(key)}: got {len(value)} characters, allowed: {_MAX_VALUE} printable ones")
    path = key.split(".")
    if path[0] == PARAMETERS:
        _check_parameter(path, key)
        return
    if key in TABLES:
        raise InputError(f"{key}: a table cannot be set from the page as a whole; allowed: {key}.KEY=VALUE")
    measured = _MEASURED.fullmatch(key)
    field = field_at(["measured", measured[2]] if measured else path)
    if field is None:
        raise UnknownNameError(unknown_key([part.strip() or "?" for part in path]))
    if not value:
        return  # "KEY=" puts the default back, whatever was stated
    if key in CARDS:
        _check_card(key, value, own)
    elif _holds_table(field) or (is_text(field) and key not in FREE_TEXT and not _has_fixed_words(field)):
        raise InputError(
            f"{key}: cannot be set from the page, since it may name a file; allowed: --set {key}=... when serve starts"
        )


def _check_parameter(path: list[str], key: str) -> None:
    if len(path) != 2 or not _PARAMETER.fullmatch(path[1]):
        raise InputError(f"{short(key)}: allowed: {PARAMETERS}.NAME=NUMBER")


def _check_card(key: str, value: str, own: Mapping[str, Any]) -> None:
    here: Any = own
    for part in key.split("."):
        here = here.get(part) if isinstance(here, Mapping) else None
    known = CARDS[key]()
    if value not in known and value != here:
        raise InputError(f"{key}: got '{short(value)}', allowed on the page: {', '.join(known)}")


def _has_fixed_words(field: FieldInfo) -> bool:
    return bare_type(field.annotation) is not str


def _holds_table(field: FieldInfo) -> bool:
    """Whether the key holds a table, inside which anything could be said, a path too."""
    kind = bare_type(field.annotation)
    return get_origin(kind) is dict or kind is dict or (isinstance(kind, type) and issubclass(kind, Table))
