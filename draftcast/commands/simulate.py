"""`draftcast simulate`: a serving run of both arms, request by request."""

import functools

import click

from draftcast.manual import Command
from draftcast.options import Request, deployment_options, draft_length_option, method_option
from draftcast.output import show
from draftcast.report_options import report_options
from draftcast.scale.options import Sweeper, sweep_options
from draftcast.start import INTERRUPTED_EXIT_CODE

_DRAWS = click.option(
    "--draws",
    "num_draws",
    type=click.IntRange(0, 1000),
    default=0,
    metavar="N",
    help="Repeat for N parameter draws, for the interval.",
)


@click.command("simulate", cls=Command)
@report_options
@sweep_options
@click.option(
    "--runs",
    "num_runs",
    type=click.IntRange(1, 100_000),
    default=1,
    show_default=True,
    metavar="N",
    help="Repeat with N seeds, from --seed on.",
)
@click.option(
    "--arrivals",
    metavar="SPEC",
    help="closed:USERS, poisson:RATE, gamma:RATE:SHAPE or trace:FILE; rates per second.",
)
@click.option(
    "--requests", "num_requests", type=click.IntRange(min=1), metavar="N", help="How many; default: 20 a user."
)
@draft_length_option
@method_option
@click.option("--outage", metavar="at=S,duration=S", help="The engine fails and comes back, in both arms.")
@click.option("--acceptance-steps", metavar="FILE", help="Recorded steps (JSONL) in place of sampled acceptance.")
@click.option("--find-rate", is_flag=True, help="Search the highest rate within the objective's limits.")
@click.option("--records", metavar="FILE", help="Write one record per request: CSV or JSONL.")
@click.option("--trace", metavar="FILE", help="Write a trace for ui.perfetto.dev.")
@functools.partial(deployment_options, draws=_DRAWS)
@click.pass_context
def command(
    context: click.Context,
    /,
    request: Request,
    sweep: Sweeper,
    num_speculative_tokens: int | None,
    method: str | None,
    **options: str | int | bool | None,
) -> None:
    """A serving run of both arms, request by request.

    Arrivals, queue, chunked prefill, KV blocks, preemption and every draft are simulated; both arms get the same
    requests. DEPLOYMENT is a TOML file, or a launch. --runs and --draws repeat the run, in several processes where that
    pays off.
    """
    from draftcast.progress import Progress, RowProgress
    from simulator.serving.clients import parse_outage
    from simulator.serving.run import Outputs, simulate

    progress, repeats = Progress(), RowProgress("repeats")
    outage, records, trace = (_text(options.pop(name)) for name in ("outage", "records", "trace"))
    result = simulate(
        request.load(method),
        num_speculative_tokens=num_speculative_tokens,
        seed=request.seed,
        num_draws=request.num_draws,
        outage=None if outage is None else parse_outage(outage),
        outputs=Outputs(records, trace, progress, (request.source,), repeats),
        sweep=sweep,
        **options,  # type: ignore[arg-type]
    )
    progress.close()
    repeats.close()
    show(result.to_dict(), as_json=request.as_json, view="simulate")
    sweep.finish("repeat")
    if result.partial:
        context.exit(INTERRUPTED_EXIT_CODE)


def _text(value: str | int | bool | None) -> str | None:
    return None if value is None else str(value)
