"""Completion of names and files in the shell, by click's own machinery; nothing here needs numpy.

`completing` gives each option and argument that takes text the completion that its name or placeholder stands for.
The scripts that `draftcast completion` prints are click's; that of bash besides handles `KEY=VALUE`, which bash takes
for three words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import click
from click.types import StringParamType

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

Names = Callable[[], Iterable[str]]
_FILES = ("FILE", "DIR", "PATH", "CSV", "OUT", "DEPLOYMENT", "SOURCE")  # placeholders of paths, also within others


def gpus() -> Iterable[str]:
    """The shipped GPU cards."""
    from hwmodel.gpus import gpu_names

    return gpu_names()


def prices() -> Iterable[str]:
    """The shipped GPU cards, each with the sign that its price follows."""
    return [f"{name}=" for name in gpus()]


def models() -> Iterable[str]:
    """The shipped model cards."""
    from hwmodel.models import model_names

    return model_names()


def methods() -> Iterable[str]:
    """The methods of speculation."""
    from hwmodel.engine.methods import method_names

    return method_names()


def interconnects() -> Iterable[str]:
    """The classes of links between the GPUs of a machine."""
    from simulator.deployment import INTERCONNECTS

    return INTERCONNECTS


def keys() -> Iterable[str]:
    """The keys of the deployment file, each with the sign that a value follows."""
    from simulator.deployment import known_keys

    return [f"{info.key}=" for info in known_keys() if "<" not in info.key and not info.key.startswith("measured.")]


def values(key: str) -> Iterable[str]:
    """The values that a key of the deployment file takes by name; none where it takes numbers or any text."""
    from simulator.deployment import known_keys

    named = {"hardware.gpu": gpus, "costs.training_gpu": gpus, "model.config": models}
    if key in named:
        return named[key]()
    accepted = next((info.type for info in known_keys() if info.key == key), "")
    if accepted == "true or false":
        return ("true", "false")
    return accepted.removeprefix("one of: ").split(", ") if accepted.startswith("one of: ") else ()


# Of the argument's name in the program.
_NAMES: dict[str, Names] = {
    "gpu": gpus,
    "rented": gpus,
    "priced": prices,
    "model": models,
    "model_config": models,
    "method": methods,
    "methods": methods,
    "interconnect": interconnects,
    "overrides": keys,
    "varied": keys,
}


class Completed(StringParamType):
    """Text whose completions are `names`, and files where `with_files`."""

    def __init__(self, names: Names | None, with_files: bool) -> None:
        """`names` is called when the shell asks."""
        self._names, self._with_files = names, with_files

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """The names that begin like that, the values behind `KEY=`, else what the shell knows of files."""
        from click.shell_completion import CompletionItem

        found = _matching(self._names, incomplete) if self._names else []
        if self._with_files and not found:
            return [CompletionItem(incomplete, type="file")]
        return [CompletionItem(name) for name in found]


def _matching(names: Names, incomplete: str) -> list[str]:
    """The names, or the values of the last of several behind `KEY=`, that complete what is there."""
    key, sign, value = incomplete.partition("=")
    if not sign or names is not keys:
        return [name for name in names() if name.startswith(incomplete)]
    done, comma, last = value.rpartition(",")
    return [f"{key}={done}{comma}{name}" for name in values(key) if name.startswith(last)]


def completing(parameters: Iterable[click.Parameter]) -> None:
    """Gives every parameter that takes plain text, and whose name or placeholder says which, its completion."""
    for parameter in parameters:
        names = _NAMES.get(parameter.name or "")
        with_files = any(word in (parameter.metavar or "") for word in _FILES) or names is models
        if isinstance(parameter.type, StringParamType) and (names or with_files):
            parameter.type = Completed(names, with_files)
