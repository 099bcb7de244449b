"""The options that several commands share, as decorators, and the value types that click lacks."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from hwmodel.errors import InputError
from hwmodel.records import dataclass
from simulator.defaults import DEFAULT_DRAWS

if TYPE_CHECKING:
    from draftcast.expand import Expanded
    from simulator.deployment import Deployment

# click's base class takes a type argument for type checkers, and in older releases none at run time.
if TYPE_CHECKING:
    _ParamType = click.ParamType[tuple[int, ...]]
else:
    _ParamType = click.ParamType


_MISSING = (
    "Missing argument 'DEPLOYMENT'. Give a deployment file (`draftcast init -o FILE` writes one), a launch in quotes"
    ' ("vllm serve MODEL --tensor-parallel-size 8"), the URL of a server, or --model NAME and --gpu NAME.'
)
F = TypeVar("F", bound=Callable[..., Any])
DEFAULT_SEED = 0
MIN_DRAWS = 100  # the ends of a 90 % interval are then the fifth from either side
MAX_LIST_ITEMS = 1000  # "0-999999999" is a typing error, not a grid


draft_length_option = click.option(
    "-k", "--num-speculative-tokens", type=click.IntRange(min=0), metavar="N", help="Draft tokens; default: the file's."
)
concurrency_option = click.option(
    "-c", "--concurrency", type=click.IntRange(min=1), metavar="N", help="Requests at once; default: the file's first."
)
method_option = click.option(
    "--method", metavar="NAME", help="Another method than the file's; `draftcast list methods`."
)
ledger_option = click.option(
    "--ledger", metavar="FILE", help="The ledger; default: DRAFTCAST_LEDGER, else the project's or the user's."
)


def recording_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds --record and --ledger, handed over as one argument `recording`."""

    @functools.wraps(command)
    def with_recording(record: bool | None, ledger: str | None, **arguments: Any) -> None:
        from draftcast.recording import Recording

        command(recording=Recording(record, ledger), **arguments)

    told = "Add the answer to the ledger, before the restart; also switched on by --ledger or DRAFTCAST_LEDGER."
    return click.option("--record/--no-record", default=None, help=told)(ledger_option(with_recording))


@dataclass(frozen=True, slots=True)
class Request:
    """What every command about a deployment is given: the source, what overrides it, and how to draw."""

    source: str  # empty where only --model and --gpu describe it
    overrides: tuple[str, ...]
    gpu: str | None
    model: str | None
    num_gpus: int | None
    launch: str | None
    profile: str | None
    num_draws: int
    seed: int
    as_json: bool

    def load(self, method: str | None = None, api_key: str | None = None, *, needs_method: bool = False) -> Deployment:
        """The checked deployment; launch texts are expanded first, options override what a file says.

        `method` is laid over like a key, so that what `--set` says about acceptance is kept: it is meant for it.
        `api_key` is the key of a server that is asked, in place of the environment's. With `needs_method` a launch
        that has no method is asked about the one that needs no drafter.
        """
        expanded, overrides = self.expanded(method, api_key, needs_method=needs_method)
        deployment = self.checked(expanded, overrides)
        return deployment if self.profile is None else self._with_profile(deployment, self.profile)

    def expanded(
        self, method: str | None, api_key: str | None = None, *, needs_method: bool = False
    ) -> tuple[Expanded, tuple[str, ...]]:
        """What the source was expanded to, and all overrides to lay over it."""
        from draftcast.expand import expand, stated

        overrides = (*self.named_overrides(method), *self.overrides)
        if not self.source:
            return self._of_names(overrides), overrides
        expanded = expand(self.source, self.launch, stated(overrides, "engine.version"), api_key)
        if not needs_method:
            return expanded, overrides
        from draftcast.named import asked_about, notes_of_method

        asked = asked_about(expanded, overrides)
        notes = notes_of_method(expanded, overrides) if asked else ()
        return expanded.with_notes(*notes), (*asked, *overrides)

    def _of_names(self, overrides: tuple[str, ...]) -> Expanded:
        from draftcast.named import note_of_names, of_names

        if self.launch is not None:
            raise InputError(
                f"--launch: got {self.launch!r}, but there is no DEPLOYMENT to hold it; allowed: without"
                " --launch, or with the file that holds the launches"
            )
        return of_names(overrides).with_notes(note_of_names(overrides))

    @property
    def describes_a_deployment(self) -> bool:
        """Whether the options name a model or a GPU."""
        from draftcast.named import names_any

        return self.model is not None or self.gpu is not None or names_any(self.overrides)

    @staticmethod
    def checked(expanded: Expanded, overrides: Sequence[str]) -> Deployment:
        """The deployment of what the source was expanded to, with `overrides` laid over it."""
        from simulator.deployment import load_deployment

        for key, option in (("hardware.gpu", "--gpu"), ("model.config", "--model")):
            expanded.require(key, any(item.startswith(f"{key}=") for item in overrides), option)
        expanded.require_method(any(item.startswith("speculation.method=") for item in overrides))
        return load_deployment(expanded.source, overrides, expanded.notes_beside(overrides))

    @staticmethod
    def _with_profile(deployment: Deployment, path: str) -> Deployment:
        from simulator.deployment.load import with_profile
        from simulator.profile import read_profile

        return with_profile(deployment, read_profile(path))

    def named_overrides(self, method: str | None = None) -> tuple[str, ...]:
        """The options that have a name of their own, as KEY=VALUE; `--set` comes after them and wins."""
        from draftcast.expand import known_model

        named = {
            "hardware.gpu": self.gpu,
            "hardware.num_gpus": self.num_gpus,
            "model.config": self.model and known_model(self.model),
            "speculation.method": method,
        }
        return tuple(f"{key}={value}" for key, value in named.items() if value is not None)


class IntList(_ParamType):
    """Integers written as `1,2,4-8`: commas between items, a dash for a whole range. The value is a tuple."""

    name = "list"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """The integers in the order given, without repeats."""
        if isinstance(value, tuple):
            return value
        items: dict[int, None] = {}
        for part in str(value).split(","):
            low, dash, high = (text.strip() for text in part.partition("-"))
            if not is_count(low) or (dash and not is_count(high)):
                self.fail(f"{value!r} is not a list of whole numbers such as 1,2,4-8", param, ctx)
            first, last = int(low), int(high or low)
            if last < first:
                self.fail(f"the range {part.strip()} runs backwards", param, ctx)
            if last - first + len(items) >= MAX_LIST_ITEMS:
                self.fail(f"{value!r} has more than {MAX_LIST_ITEMS} items", param, ctx)
            items |= dict.fromkeys(range(first, last + 1))
        return tuple(items)


draft_lengths_option = click.option(
    "-k",
    "--num-speculative-tokens",
    type=IntList(),
    help="Draft lengths to choose from; default: 0-8 and the file's own.",
)
loads_option = click.option("-c", "--concurrency", type=IntList(), help="Requests at once; default: the file's.")
weighted_loads_option = click.option(
    "-c", "--concurrency", type=IntList(), help="Requests at once; default: the file's, with its weights."
)


def is_count(text: str) -> bool:
    """Whether `text` is a whole number of plain digits, short enough to be meant."""
    return text.isascii() and text.isdigit() and len(text) < len(str(10**9)) + 1


def json_option(command: F) -> F:
    """Adds --json: the argument `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")(command)


_Decorator = Callable[[Callable[..., None]], Callable[..., None]]
_DEPLOYMENT_PARAMETERS: tuple[_Decorator, ...] = (
    click.argument("source", metavar="[DEPLOYMENT]", required=False),
    click.option("--set", "overrides", metavar="KEY=VALUE", multiple=True,
                 help="Set any key, e.g. hardware.num_gpus=4."),
    click.option("--gpu", metavar="NAME", help="GPU card; `draftcast list gpus` has the names."),
    click.option("--model", metavar="NAME", 
                 help="Model card, repository, or path of a config.json; with --gpu in place of DEPLOYMENT."),
    click.option("--num-gpus", type=click.IntRange(min=1), metavar="N", help="GPUs of the machine."),
    click.option("--launch", metavar="NAME", help="Which launch, where the source holds several."),
    click.option("--profile", metavar="FILE", help="What `draftcast calibrate -o` wrote about this machine."),
    click.option("--seed", type=click.IntRange(min=0), default=DEFAULT_SEED, show_default=True,
                 help="Seed of the draws."),
)  # fmt: skip
KEY_OPTIONS = _DEPLOYMENT_PARAMETERS[1:-2]  # what states keys: --set, --gpu, --model, --num-gpus, --launch
_DRAWS = click.option("--draws", "num_draws", type=click.IntRange(MIN_DRAWS, 100_000), default=DEFAULT_DRAWS,
                      show_default=True, help="Parameter draws behind the intervals.")  # fmt: skip


def deployment_options(command: Callable[..., None], *, draws: _Decorator = _DRAWS) -> Callable[..., None]:
    """Adds DEPLOYMENT, its overrides and the options of the draws, handed over as one argument `request`.

    `draws` is the option of that name, for a command whose intervals do not come from draws alone.
    """

    @functools.wraps(command)
    def with_request(**arguments: Any) -> None:
        fields = {field: arguments.pop(field) for field in Request.__slots__}
        request = Request(**fields | {"source": fields["source"] or ""})
        if not request.source and not request.describes_a_deployment:
            raise click.UsageError(_MISSING)
        command(request=request, **arguments)

    wrapped: Callable[..., None] = json_option(with_request)
    *first, seed = _DEPLOYMENT_PARAMETERS
    for parameter in reversed([*first, draws, seed]):
        wrapped = parameter(wrapped)
    return wrapped
