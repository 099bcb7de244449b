"""`draftcast measure`: load on a live server, client's and server's figures side by side; or its own traffic."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from draftcast.manual import Command
from draftcast.options import IntList, json_option
from draftcast.output import show
from draftcast.start import INTERRUPTED_EXIT_CODE
from hwmodel.errors import DraftcastError
from hwmodel.units import MINUTE

if TYPE_CHECKING:
    from validate.client.target import Target

_HIDDEN_INPUTS = ("as_json",)
_CONCURRENCY = click.option("-c", "--concurrency", "concurrencies", type=IntList(), default="1,4,16", metavar="LIST",
                            show_default=True, help="Users at once, one cell each.")  # fmt: skip
_SEED = click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Order of the prompts.")
_LOAD_OPTIONS = (
    click.option("--prompts", "prompts_path", metavar="FILE",
                 help="Prompts or recorded traffic: JSON, JSON lines, TOML or text; default: a mixed set."),
    click.option("--output-tokens", type=click.IntRange(1, 1_000_000), metavar="N",
                 help="Most tokens of an answer; default: as recorded, else 256."),
    click.option("--temperature", type=click.FloatRange(0, 10), metavar="T", help="Default: the server's."),
    click.option("--ignore-eos", is_flag=True, help="Every answer as long as allowed (vLLM, SGLang)."),
    click.option("--api", type=click.Choice(["auto", "chat", "completions"]), default="auto", show_default=True,
                 help="How prompts are sent."),
    click.option("--served-model", metavar="NAME", help="Which of the server's models; default: its first."),
    click.option("--prefix-cache", type=click.Choice(["avoid", "allow"]), default="avoid", show_default=True,
                 help="Whether a prompt may be found in the prefix cache."),
)  # fmt: skip
_LIMIT_OPTIONS = (
    click.option("--precision", type=click.FloatRange(0.001, 1), default=0.03, show_default=True, metavar="P",
                 help="A cell ends when the 95 % interval of TPOT is +- P of it."),
    click.option("--max-requests", type=click.IntRange(min=1), default=2000, show_default=True, metavar="N",
                 help="Of a cell."),
    click.option("--cell-seconds", "cell_s", type=click.FloatRange(1, 86400), default=60.0, show_default=True,
                 metavar="S", help="Longest measurement of a cell."),
    click.option("--warmup-seconds", "warmup_s", type=click.FloatRange(0, 3600), default=10.0, show_default=True,
                 metavar="S", help="Of the first cell at least."),
    click.option("--request-seconds", "request_s", type=click.FloatRange(1, 86400), default=300.0, show_default=True,
                 metavar="S", help="Longest wait for one answer."),
    click.option("--max-minutes", type=click.FloatRange(0.05, 10080), default=30.0, show_default=True, metavar="M",
                 help="Of the whole run; cells that are left are named."),
    click.option("--max-tokens", "total_tokens", type=click.IntRange(min=1), default=1_000_000, show_default=True,
                 metavar="N", help="Generated, the whole run together."),
)  # fmt: skip
_SERVER_OPTIONS = (
    click.option("--wait", "wait_s", type=click.FloatRange(0, 86400), default=0.0, metavar="SECONDS",
                 help="Wait so long for a server that still starts."),
    click.option("--force", is_flag=True, help="Load a server that is serving others."),
    click.option("--method", metavar="NAME", help="The method that drafts, for the record: /metrics does not tell."),
    click.option("--api-key-env", metavar="NAME",
                 help="Environment variable with the server's key; else DRAFTCAST_API_KEY."),
    click.option("--api-key-file", metavar="FILE", help="File with the server's key."),
)  # fmt: skip
_FILE_OPTIONS = (
    click.option("-o", "--output", "run_path", metavar="FILE",
                 help="Run file, written after every cell; an earlier one is continued."),
    click.option("--outputs", "outputs_path", metavar="FILE", help="What the server wrote, for draftcast replay."),
    click.option("--fresh", is_flag=True, help="Measure again what the run file already has."),
)  # fmt: skip
_PASSIVE_OPTIONS = (
    click.option("--passive", "passive_minutes", type=click.FloatRange(0.05, 10080), metavar="MINUTES",
                 help="No load: watch /metrics under real traffic for so long."),
    click.option("--interval", "interval_s", type=click.FloatRange(0.2, 600), default=10.0, show_default=True,
                 metavar="S", help="Between two looks, with --passive."),
)  # fmt: skip
_GROUPS = ((_CONCURRENCY, *_LOAD_OPTIONS, _SEED), _LIMIT_OPTIONS, _SERVER_OPTIONS, _FILE_OPTIONS, _PASSIVE_OPTIONS)
_OPTIONS = tuple(option for group in _GROUPS for option in group)
# Of another command that measures as well; it has its own concurrencies, seed and files.
SHARED_OPTIONS = (*_LOAD_OPTIONS, *_LIMIT_OPTIONS, *_SERVER_OPTIONS, *_PASSIVE_OPTIONS)


def _measure_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds all options, in the order in which they are told."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return json_option(command)


@click.command("measure", cls=Command)
@click.argument("url", metavar="URL")
@_measure_options
@click.pass_context
def command(context: click.Context, /, url: str, **options: Any) -> None:
    """Load on a live server, or its own traffic: what a step takes and what is accepted.

    A closed loop of streaming requests for each concurrency, until TPOT is known well enough; the server's own counters
    are read before and after and compared. The load is bounded, and a server that works for others is refused. With
    --passive nothing is sent: real traffic is read from /metrics.
    """
    result, failure, interrupted = measured(url, options)
    inputs = {"url": result["server"]["url"]} | {
        name: _plain(value) for name, value in options.items() if name not in _HIDDEN_INPUTS
    }
    show({"inputs": inputs, **result}, as_json=options["as_json"], view="measure")
    if interrupted:
        click.echo("interrupted; the results above are what was measured until then", err=True)
        context.exit(INTERRUPTED_EXIT_CODE)
    if failure is not None:
        raise click.ClickException(failure)


def measured(url: str, options: dict[str, Any]) -> tuple[dict[str, Any], str | None, bool]:
    """(the run, why it ended before its time, whether it was interrupted), with the options of this command."""
    from validate.client.target import target_of

    target = target_of(url, options["api_key_env"], options["api_key_file"])
    run = _passive if options["passive_minutes"] is not None else _load
    return run(target, options)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _load(target: Target, options: dict[str, Any]) -> tuple[dict[str, Any], str | None, bool]:
    """(the result, why it ended before its time, whether it was interrupted)."""
    from draftcast.progress import LoadProgress
    from simulator.files import check_outputs
    from validate.measure.load_run import Files, LoadRun, Plan
    from validate.measure.prompts import read_prompts, shipped_prompts
    from validate.measure.settings import Limits, Load, check_load

    prompts_path, files = options["prompts_path"], Files(options["run_path"], options["outputs_path"], options["fresh"])
    check_outputs({"--output": files.run, "--outputs": files.outputs}, _inputs(options))
    load = Load(**{name: options[name] for name in Load.__slots__})
    check_load(load)
    named = {name: options[name] for name in ("precision", "max_requests", "cell_s", "warmup_s", "request_s")}
    limits = Limits(**named, total_s=options["max_minutes"] * MINUTE, total_tokens=options["total_tokens"])
    prompts = read_prompts(prompts_path) if prompts_path else shipped_prompts()
    progress = LoadProgress()
    plan = Plan(target, load, limits, prompts, files, options["wait_s"], options["force"], options["method"])
    run = LoadRun(plan, progress, progress.waiting)
    failure: str | None = None
    try:
        run.run()
    except DraftcastError as error:
        if not run.cells:
            raise
        failure = str(error)
    finally:
        progress.close()
    return run.result(), failure or run.stopped, run.interrupted


def _passive(target: Target, options: dict[str, Any]) -> tuple[dict[str, Any], str | None, bool]:
    """(the result, None, whether it was interrupted)."""
    from draftcast.progress import LoadProgress
    from simulator.files import check_outputs
    from validate.measure.passive import PassivePlan, PassiveRun

    check_outputs({"--output": options["run_path"]}, _inputs(options))
    progress = LoadProgress()
    plan = PassivePlan(
        target,
        options["passive_minutes"],
        options["interval_s"],
        options["served_model"],
        options["method"],
        options["run_path"],
        options["fresh"],
    )
    run = PassiveRun(plan, progress.watching)
    try:
        run.run()
    finally:
        progress.close()
    return run.result(), None, run.interrupted


def _inputs(options: dict[str, Any]) -> list[str]:
    return [path for path in (options["prompts_path"], options["api_key_file"]) if path]
