"""`draftcast validate`: predictions against the real run, and the cause of any miss."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import click

from draftcast.commands.measure import SHARED_OPTIONS, measured
from draftcast.manual import Command
from draftcast.options import IntList, Request, deployment_options, ledger_option
from draftcast.output import show, to_json
from draftcast.report_options import report_options
from draftcast.start import INTERRUPTED_EXIT_CODE
from draftcast.text import one_line
from hwmodel.errors import InputError
from hwmodel.records import dataclass

if TYPE_CHECKING:
    from pathlib import Path

    from simulator.deployment import Deployment
    from validate.ledger.store import Ledger
    from validate.outcome.run_data import Run
    from validate.outcome.validation import Validation

_OWN_OPTIONS = (
    click.option("--run", "run_path", metavar="FILE", help="The run: what draftcast measure -o wrote."),
    click.option("--url", metavar="URL", help="Measure the run now, on this server; the options of measure apply."),
    click.option("--baseline-run", "baseline_path", metavar="FILE",
                 help="A run of the server without speculation; default: [[measured]] of the deployment."),
    click.option("--prediction", "prediction_id", metavar="ID",
                 help="Which recorded prediction; default: the newest from before the run."),
    click.option("-o", "--output", metavar="FILE", help="Fit the parameters to the run and write the profile."),
    ledger_option,
    click.option("--save-run", "saved_run", metavar="FILE", help="With --url: keep the run, as measure -o does."),
    click.option("-c", "--concurrency", "concurrencies", type=IntList(), metavar="LIST",
                 help="With --url: users at once; default: those of the deployment."),
)  # fmt: skip


def _options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds all options; those of the load are handed over as one argument `load`."""

    @functools.wraps(command)
    def with_load(**arguments: Any) -> None:
        names = [name for name in arguments if name not in _HANDED_OVER]
        command(load={name: arguments.pop(name) for name in names}, **arguments)

    wrapped: Callable[..., None] = with_load
    for option in reversed((*_OWN_OPTIONS, *SHARED_OPTIONS)):
        wrapped = option(wrapped)
    return wrapped


_HANDED_OVER = (*Request.__slots__, "run_path", "url", "baseline_path", "prediction_id", "output", "ledger")


@click.command("validate", cls=Command)
@report_options
@_options
@deployment_options
@click.pass_context
def command(context: click.Context, /, **arguments: Any) -> None:
    """Predictions against the real run, and the cause of any miss.

    The run is a file that `measure -o` wrote, or is measured now. It is held against what `predict --record` or `choose
    --record` put on file before it; where nothing is on file the deployment is predicted now, and the answer says so.
    The outcome is added to the ledger.
    """
    _check_usage(context, arguments)
    request, load = arguments["request"], arguments["load"]
    _check_files(arguments)
    deployment = request.load(load["method"])
    place = _Place.of(arguments["ledger"])
    place.check(arguments["prediction_id"])
    run, failure, interrupted = _run(arguments, deployment)
    validation = _validated(arguments, deployment, run, place)
    result = _result(arguments, validation)
    try:
        show(result, as_json=request.as_json, view="validate")
    finally:
        place.add(validation, result)
    if interrupted:
        click.echo("interrupted; the results above are of what was measured until then", err=True)
        context.exit(INTERRUPTED_EXIT_CODE)
    if failure is not None:
        raise click.ClickException(failure)


def _check_usage(context: click.Context, arguments: dict[str, Any]) -> None:
    """Exactly one source of the run; options of the load only with one that is measured now."""
    if (arguments["url"] is None) == (arguments["run_path"] is None):
        raise click.UsageError("one of --run FILE and --url URL is needed")
    if arguments["url"] is not None:
        return
    for parameter in context.command.params:
        given = context.get_parameter_source(parameter.name or "") is click.core.ParameterSource.COMMANDLINE
        if given and parameter.name in arguments["load"] and parameter.name != "method":
            raise click.UsageError(f"{parameter.opts[-1]} only goes with --url: it is about measuring now")


def _check_files(arguments: dict[str, Any]) -> None:
    from simulator.files import check_outputs

    request, load = arguments["request"], arguments["load"]
    inputs = (request.source, request.profile, arguments["run_path"], arguments["baseline_path"])
    outputs = {"--output": arguments["output"], "--save-run": load["saved_run"]}
    check_outputs(outputs, [path for path in (*inputs, arguments["ledger"]) if path])


def _run(arguments: dict[str, Any], deployment: Deployment) -> tuple[Run, str | None, bool]:
    """(the run, why measuring ended before its time, whether it was interrupted)."""
    from validate.outcome.run_data import read_run, run_of

    if arguments["url"] is None:
        return read_run(arguments["run_path"]), None, False
    load, request = dict(arguments["load"]), arguments["request"]
    load |= {
        "concurrencies": load["concurrencies"] or deployment.workload.concurrency,
        "run_path": load["saved_run"],
        "outputs_path": None,
        "fresh": False,
        "seed": request.seed,
    }
    record, failure, interrupted = measured(arguments["url"], load)
    if not record["cells"]:
        raise InputError(f"nothing was measured: {record.get('stopped') or failure or 'no traffic was seen'}")
    return run_of(json.loads(to_json(record)), record["server"]["url"]), failure, interrupted


def _validated(arguments: dict[str, Any], deployment: Deployment, run: Run, place: _Place) -> Validation:
    from validate.outcome.run_data import read_run
    from validate.outcome.validation import Question, validate

    request = arguments["request"]
    baseline = read_run(arguments["baseline_path"]) if arguments["baseline_path"] else None
    wanted = arguments["prediction_id"]
    question = Question(deployment, run, baseline, wanted, request.num_draws, request.seed)
    with place.opened() as ledger:
        return validate(question, ledger)


def _result(arguments: dict[str, Any], validation: Validation) -> dict[str, Any]:
    """The JSON object; the profile is fitted and written first where it is asked for."""
    request, fitted = arguments["request"], None
    if arguments["output"] is not None:
        from validate.outcome.refit import refit

        found = refit(validation, arguments["output"])
        found.answer.write(arguments["output"])
        fitted = found.to_dict(validation)
    inputs = {
        "deployment": validation.question.deployment.to_dict(),
        "run": arguments["run_path"],
        "url": arguments["url"],
        "baseline_run": arguments["baseline_path"],
        "prediction": arguments["prediction_id"],
        "profile": request.profile,
        "seed": request.seed,
        "num_draws": request.num_draws,
    }
    return {"inputs": inputs, **validation.to_dict(fitted)}


@dataclass(frozen=True, slots=True)
class _Place:
    """The ledger to look into and to add to; none is made where nobody named one and none is there."""

    path: Path
    exists: bool
    named: bool

    @classmethod
    def of(cls, ledger: str | None) -> _Place:
        """The ledger as the options and the environment say."""
        from validate.ledger.places import LEDGER_VARIABLE, ledger_path

        path = ledger_path(ledger)
        return cls(path, path.exists(), ledger is not None or bool(os.environ.get(LEDGER_VARIABLE)))

    def opened(self) -> AbstractContextManager[Ledger | None]:
        """The ledger to read; None where there is none yet."""
        if not self.exists:
            return nullcontext(None)
        from validate.ledger.store import Ledger

        return Ledger(self.path)

    def check(self, wanted: str | None) -> None:
        """States what is wrong with the ledger before anything is measured."""
        if wanted is not None and not self.exists:
            raise InputError(f"--prediction: no ledger at {self.path}; allowed: --ledger FILE with the one it is in")
        with self.opened() as ledger:
            if ledger is not None and wanted is not None:
                ledger.identity(wanted)

    def add(self, validation: Validation, result: dict[str, Any]) -> None:
        """Writes the outcome down, once it has been shown."""
        if not validation.scored or not (self.exists or self.named):
            return
        from draftcast import __version__
        from validate.ledger.store import Ledger
        from validate.outcome.entries import outcome_entries

        entries = outcome_entries(validation, result, __version__)
        with Ledger(self.path, writable=True) as ledger:
            for entry in entries:
                ledger.append(entry)
        click.echo(f"note: outcome added to {one_line(self.path)}", err=True)
