"""Launch texts turned into tables of the deployment file, before anything below the front door sees them."""

import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hwmodel.errors import InputError
from hwmodel.files import open_regular
from hwmodel.records import dataclass
from hwmodel.units import MB

MAX_FILE_BYTES = int(MB)  # a deployment file is 1 kB; what is larger is left to the loader, which refuses it
# How a note ends that asks for a key: with the key given, the note has had its answer.
_HINTS = {
    "model.config": "name one with --model",
    "engine.tensor_parallel_size": "--set engine.tensor_parallel_size=N",
}
_SHOWN_SOURCE = 200
Tables = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Expanded:
    """A deployment before it is checked, and sentences about what the launch did not say.

    `tables` is None when the source is a deployment file without a launch: the loader then reads it itself.
    """

    path: str
    tables: Tables | None = None
    notes: tuple[str, ...] = ()
    kind: str = "launch"  # or "server", or "names"

    @property
    def source(self) -> str | Tables:
        """The first argument of `load_deployment`."""
        return self.path if self.tables is None else self.tables

    def notes_beside(self, overrides: Sequence[str]) -> tuple[str, ...]:
        """The notes without those that ask for a key which an option or --set has given."""
        given = {text.partition("=")[0].strip() for text in overrides}
        answered = tuple(hint for key, hint in _HINTS.items() if key in given)
        return tuple(note for note in self.notes if not note.endswith(answered)) if answered else self.notes

    def with_notes(self, *notes: str) -> "Expanded":
        """The same with further notes, said first."""
        return replace(self, notes=(*notes, *self.notes))

    def require(self, key: str, given: bool, option: str) -> None:
        """`InputError` when a launch leaves out `key` ("hardware.gpu") and no option or --set has given it."""
        table, name = key.split(".")
        if self.tables is not None and not given and not _table(self.tables, table, self.path).get(name):
            told = next((note for note in self.notes if key in _HINTS and note.endswith(_HINTS[key])), None)
            raise InputError(
                f"{told}: {_what_a_model_is(told)}"
                if told
                else f"the {self.kind} does not say {key}; allowed: {option} NAME, or --set {key}=NAME"
            )

    def require_method(self, given: bool) -> None:
        """`InputError` where a server speculates without telling how, and no option or --set names the method."""
        speculation = self.tables.get("speculation", {}) if self.tables is not None else {}
        if self.kind == "server" and not given and speculation and "method" not in speculation:
            raise InputError(
                f"the server speculates ({speculation.get('num_speculative_tokens', 'k not known')} draft tokens) but "
                "does not say speculation.method; allowed: --method NAME, or --set speculation.method=NAME"
            )


def _what_a_model_is(note: str) -> str:
    """What --model takes, with the card whose name is nearest to the one in the note."""
    from hwmodel.models import A_CONFIG, nearest_model

    near = nearest_model(note.split()[2])
    return f"{A_CONFIG}, or a card (`draftcast list models`{f'; nearest: {near}' if near else ''})"


def expand(source: str, launch: str | None = None, version: str | None = None, api_key: str | None = None) -> Expanded:
    """The deployment behind `source`: a TOML file, a launch command, unit, compose file or manifest, a server's URL.

    `launch` names one where the source holds several; `version` is the engine's where nothing else states it.
    `[engine] launch` inside a TOML file is expanded as well; keys written beside it must agree with what it says.
    A server is asked with `api_key`, else with the environment's.
    """
    if source.startswith(("http://", "https://")):
        return _of_server(source, launch, version, api_key)
    if not source.endswith(".toml"):
        from validate.launch.deployment_keys import deployment_from_launch, looks_like_launch

        if looks_like_launch(source):
            keys = deployment_from_launch(source, launch, version)
            return Expanded(source, {name: dict(table) for name, table in keys.tables.items()}, tuple(keys.notes))
        _refuse_what_is_no_file(source)
    if _names_a_launch(Path(source)):
        return _merged(source, launch, version)
    if launch is not None and Path(source).exists():  # else the loader says so
        raise InputError(f"--launch: got {launch!r}, but {source} holds no launch; allowed: without --launch")
    return Expanded(source)


def _refuse_what_is_no_file(source: str) -> None:
    """`InputError` for a source that is neither a launch nor a file, with what to type instead."""
    try:
        exists = Path(source).exists()
    except (OSError, ValueError):  # too long for a path, or a NUL
        exists = False
    if exists and source.endswith(".json"):
        raise InputError(
            f"{source[:_SHOWN_SOURCE]}: JSON is no deployment; allowed: a model's config.json behind --model, what"
            " calibrate wrote behind --profile; `draftcast init -o FILE` writes a deployment file"
        )
    if exists:
        return
    from simulator.deployment.keys import short
    from validate.launch.model_names import card_for

    if len(source.split()) > 1:
        raise InputError(
            f"{short(source)}: nothing in it starts vllm or sglang, whose launches are read; for another engine"
            " describe the model and the GPUs: draftcast init --model NAME --gpu NAME --num-gpus N -o FILE"
        )
    if card_for(source):
        raise InputError(
            f"{short(source)}: a model, not a deployment; allowed: how it is launched, such as"
            f' "vllm serve {short(source)} --tensor-parallel-size 8" --gpu NAME'
        )
    if re.fullmatch(r"[\w.-]+:\d{1,5}(/\S*)?", source):
        raise InputError(f"{short(source)}: no such file; allowed: for a running server, http://{short(source)}")
    raise InputError(
        f"{short(source, _SHOWN_SOURCE)}: no such file, allowed: a deployment file (`draftcast init -o FILE` writes"
        ' one), a launch file or command in quotes ("vllm serve ..."), or the URL of a server'
    )


def known_model(name: str) -> str:
    """The card of a repository's name (`Qwen/Qwen3-235B-A22B-FP8`); any other name, and a path, as it is."""
    if "/" not in name or Path(name).exists():
        return name
    from validate.launch.model_names import card_for

    return card_for(name) or name


def _of_server(url: str, launch: str | None, version: str | None, api_key: str | None) -> Expanded:
    """The deployment that a running server stands for, as far as it tells."""
    from validate.launch.known import API_KEY_VARIABLE
    from validate.launch.server_keys import deployment_from_server  # requests: only where there is a server

    if launch is not None:
        raise InputError(f"--launch: got {launch!r}, but a server is one launch; allowed: without --launch")
    keys = deployment_from_server(url, api_key or os.environ.get(API_KEY_VARIABLE), version)
    tables = {name: dict(table) for name, table in keys.tables.items()}
    return Expanded(url, tables, tuple(keys.notes), "server")


def stated(overrides: Sequence[str], key: str) -> str | None:
    """What the last of `overrides` says about `key`; None where none does, or where it puts the default back."""
    pairs = (text.partition("=") for text in overrides)
    values = [value.strip() for name, _, value in pairs if name.strip() == key]
    return (values[-1] or None) if values else None


def _names_a_launch(path: Path) -> bool:
    """Whether the file's `[engine]` has `launch`; False also for a faulty file, whose faults the loader states."""
    try:
        with open_regular(path) as file:
            content = file.read(MAX_FILE_BYTES + 1)
        if b"launch" not in content or len(content) > MAX_FILE_BYTES:
            return False  # the usual case, without parsing the file a second time
        engine = tomllib.loads(content.decode()).get("engine")
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(engine, dict) and isinstance(engine.get("launch"), str)


def _merged(path: str, name: str | None, version: str | None) -> Expanded:
    """The file's tables with what its launch says.

    The launch is what runs now, the file may ask about another model or drafter: there the file's word stands.
    """
    from simulator.deployment.overrides import drop_launched_drafter
    from validate.launch.deployment_keys import deployment_from_launch

    tables = _read_tables(path)
    written = tables["engine"].get("version")
    keys = deployment_from_launch(
        tables["engine"].pop("launch"), name, version or (written if isinstance(written, str) else None)
    )
    launched = keys.tables
    _add(_table(tables, "engine", path), launched.get("engine", {}))
    if "draft_model" in _table(tables, "speculation", path):
        drop_launched_drafter(launched)
    for table, key in (("model", "config"), ("speculation", "method")):
        if key not in _table(tables, table, path):
            tables[table] = dict(launched.get(table, {})) | tables[table]
    return Expanded(path, tables, tuple(keys.notes))


def _add(written: Tables, launched: Mapping[str, object]) -> None:
    """Puts what the launch says into the file's `[engine]`; two different values for one key are an error."""
    for key, value in launched.items():
        if key in written and written[key] != value:
            raise InputError(
                f"engine.{key}: got {written[key]!r} beside a launch that says {value!r}; allowed: one of the two"
            )
        written[key] = value


def _read_tables(path: str) -> Tables:
    from simulator.deployment import read_tables  # slow: only for files that are changed before they are checked

    return read_tables(path)


def _table(tables: Tables, name: str, where: str) -> Tables:
    """The table of that name inside `tables`, made where it is absent."""
    table = tables.setdefault(name, {})
    if not isinstance(table, dict):
        raise InputError(f"{where}: {name} is not a table; allowed: [{name}]")
    return table
