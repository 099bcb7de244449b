"""`draftcast watch`: a live server's /metrics, and whether its draft length is still the best for its traffic."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from draftcast.manual import Command
from draftcast.options import MIN_DRAWS, IntList, Request, json_option, method_option
from draftcast.output import show_notes
from draftcast.signals import sigterm_as_ctrl_c
from hwmodel.errors import InputError

if TYPE_CHECKING:
    from simulator.deployment import Deployment
    from validate.client.target import Target
    from validate.watch.exposition import Figures
    from validate.watch.record import Record
    from validate.watch.run import Watch, WatchPlan

_STALE = 3  # intervals without a usable look: no longer healthy
_WATCH_OPTIONS = (
    click.option("--interval", "interval_s", type=click.FloatRange(0.2, 86400), default=30.0, show_default=True,
                 metavar="S", help="Between two looks."),
    click.option("--count", type=click.IntRange(min=1), metavar="N", help="End after N intervals; default: never."),
    click.option("-k", "--num-speculative-tokens", "lengths", type=IntList(), metavar="LIST",
                 help="Draft lengths to compare; default: 0-8 and the deployed one."),
    click.option("--min-probability", type=click.FloatRange(0.5, 1), default=0.9, show_default=True, metavar="P",
                 help="How sure it must be that another length is better."),
    click.option("--min-gain", type=click.FloatRange(0, 10), default=0.03, show_default=True, metavar="G",
                 help="By how much better it must be."),
    click.option("--persist", type=click.IntRange(1, 10_000), default=3, show_default=True, metavar="N",
                 help="In how many intervals with traffic one after the other."),
    click.option("--listen", metavar="HOST:PORT", help="Serve the figures to Prometheus; a port alone: on loopback."),
)  # fmt: skip
_DEPLOYMENT_OPTIONS = (
    click.option("--deployment", "deployment_option", metavar="FILE",
                 help="Deployment file; default: what the server tells."),
    click.option("--acceptance", "acceptance_path", metavar="FILE",
                 help="What draftcast replay wrote, for a server without drafts."),
    method_option,
    click.option("--set", "overrides", metavar="KEY=VALUE", multiple=True,
                 help="Set any key, e.g. engine.tensor_parallel_size=4."),
    click.option("--gpu", metavar="NAME", help="GPU card; `draftcast list gpus` has the names."),
    click.option("--model", metavar="NAME", help="Model card or path of a config.json."),
    click.option("--num-gpus", type=click.IntRange(min=1), metavar="N", help="GPUs of the machine."),
    click.option("--profile", metavar="FILE", help="What `draftcast calibrate -o` wrote about this machine."),
    click.option("--draws", "num_draws", type=click.IntRange(MIN_DRAWS, 100_000), default=1000, show_default=True,
                 help="Parameter draws behind the intervals."),
    click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the draws."),
)  # fmt: skip
_SERVER_OPTIONS = (
    click.option("--served-model", metavar="NAME", help="Which of the server's models; default: its first."),
    click.option("--api-key-env", metavar="NAME",
                 help="Environment variable with the server's key; else DRAFTCAST_API_KEY."),
    click.option("--api-key-file", metavar="FILE", help="File with the server's key."),
)  # fmt: skip


def _watch_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds all options, in the order in which they are told."""
    for option in reversed((*_WATCH_OPTIONS, *_DEPLOYMENT_OPTIONS, *_SERVER_OPTIONS)):
        command = option(command)
    return json_option(command)


@click.command("watch", cls=Command)
@click.argument("url", metavar="URL")
@click.argument("deployment", metavar="[DEPLOYMENT]", required=False)
@_watch_options
def command(url: str, deployment: str | None, **options: Any) -> None:
    """A running server's /metrics watched: is its draft length still the best, and which would be?

    No load of its own. Every interval the growth of the counters gives the load, the step time and the acceptance of
    the traffic of now; the model of predict, anchored at that step time, compares the draft lengths. DEPLOYMENT (a
    file or a launch) says what the server runs on; without it the server is asked, and --gpu and --model say the rest.
    Ctrl-C ends it with a summary.
    """
    from validate.client.target import target_of

    if deployment is not None and options["deployment_option"] is not None:
        raise InputError("DEPLOYMENT and --deployment are both given, allowed: one of them")
    target = target_of(url, options["api_key_env"], options["api_key_file"])
    source = deployment or options["deployment_option"]
    _run(_plan(target, source, options), options)


def _plan(target: Target, source: str | None, options: dict[str, Any]) -> WatchPlan:
    from validate.watch.advice import Asked
    from validate.watch.run import WatchPlan
    from validate.watch.steady import Rule

    overrides = options["overrides"]
    if options["acceptance_path"] is not None:
        overrides = (f"speculation.acceptance.replay={options['acceptance_path']}", *overrides)
    named = {name: options[name] for name in ("gpu", "model", "num_gpus", "profile", "num_draws", "seed", "as_json")}
    request = Request(source=source or target.url, overrides=overrides, launch=None, **named)

    def load() -> Deployment:
        return request.load(options["method"], api_key=target.api_key)

    if source is not None:
        load()  # a file's faults are said at once, whether the server answers or not
    rule = Rule(options["min_probability"], options["min_gain"], options["persist"])
    asked = Asked(options["lengths"], options["num_draws"], options["seed"])
    return WatchPlan(target, load, options["interval_s"], rule, asked, options["served_model"])


def _run(plan: WatchPlan, options: dict[str, Any]) -> None:
    """Watches until it is told to end, and says what it has seen."""
    from validate.watch.endpoint import Endpoint
    from validate.watch.exposition import Figures
    from validate.watch.run import Watch
    from validate.web.server import address_of

    address = None if options["listen"] is None else address_of(options["listen"])
    watch = Watch(plan)
    figures = Figures(plan.target.url, plan.interval_s)
    endpoint = None if address is None else Endpoint(address, figures.published, lambda: _unwell(figures))
    try:
        with sigterm_as_ctrl_c():
            _watch(watch, figures, endpoint.url if endpoint is not None else None, options)
    finally:
        watch.close()
        if endpoint is not None:
            endpoint.close()


def _watch(watch: Watch, figures: Figures, listening: str | None, options: dict[str, Any]) -> None:
    from draftcast.render.page import Page
    from draftcast.render.watch import WatchTable, server_line, summary_lines

    table = None if options["as_json"] else WatchTable(Page())
    plan = watch.plan
    try:
        waiting = watch.start()
        if listening:
            click.echo(f"note: figures for Prometheus at {listening}/metrics", err=True)
        show_notes(watch.deployment.notes if watch.deployment is not None else ())
        if table is not None:
            table.start(server_line(plan.target.url, watch.facts), waiting, plan.interval_s, plan.rule)
        watch.run(options["count"], lambda record: _emit(record, watch, figures, table))
    except KeyboardInterrupt:
        if table is None:
            click.echo(" ".join(summary_lines(watch.summary)), err=True)
    if table is not None:
        table.end(watch.summary)


def _emit(record: Record, watch: Watch, figures: Figures, table: Any) -> None:
    from draftcast.output import to_json

    figures.take(record, watch.facts, time.time())
    if table is None:
        click.echo(to_json(record.to_dict()))
    else:
        table.add(record)


def _unwell(figures: Figures) -> str | None:
    """What is wrong: no usable look for some intervals."""
    waited_s = figures.since_good_s
    return None if waited_s <= _STALE * figures.interval_s + 1 else f"no usable look at the server for {waited_s:.0f} s"
