"""`draftcast report`: one page with the answer, its charts and what stands behind it."""

import functools
from typing import TYPE_CHECKING, Any, TypedDict

import click

from draftcast.manual import Command
from draftcast.options import Request, deployment_options, draft_lengths_option, loads_option, method_option
from draftcast.output import show
from draftcast.report_options import report_options
from hwmodel.errors import DraftcastError

if TYPE_CHECKING:
    from simulator.deployment import Deployment

MAX_SIMULATED_USERS = 32
SIMULATED_TOKENS = 200_000  # a few seconds of computing; the curves are steady by then
REQUESTS_PER_USER = (2, 20)  # at least, at most
_OUTPUT = click.option("-o", "--output", "report", metavar="FILE.html", required=True, help="The page to write.")


class _Draws(TypedDict):
    num_draws: int
    seed: int


@click.command("report", cls=Command)
@functools.partial(report_options, page=_OUTPUT)
@draft_lengths_option
@loads_option
@method_option
@click.option("--simulate/--no-simulate", default=True, show_default=True, help="Whether a serving run is simulated.")
@deployment_options
def command(
    request: Request,
    num_speculative_tokens: tuple[int, ...] | None,
    concurrency: tuple[int, ...] | None,
    method: str | None,
    simulate: bool,
) -> None:
    """One page with the answer, its charts and what stands behind it.

    Speedup over draft length and load, step times part by part, acceptance by position, experts, AllReduce, the fit to
    the measured facts and a simulated serving run. DEPLOYMENT is a TOML file, or a launch.
    """
    from draftcast import api
    from draftcast.render.choose import shown_draft_length
    from simulator.curves import between, curves

    deployment = request.load(method, needs_method=True)
    draws = _Draws(num_draws=request.num_draws, seed=request.seed)
    choice = api.choose(deployment, num_speculative_tokens=num_speculative_tokens, concurrency=concurrency, **draws)
    result = choice.to_dict()
    shown, loads = shown_draft_length(result), between(result["inputs"]["concurrency"])
    result["curves"] = curves(deployment, num_speculative_tokens=shown, concurrency=loads, **draws)
    result |= _calibration(deployment, draws)
    result |= _simulation(deployment, shown, request.seed) if simulate else _absent("simulation", "--no-simulate")
    show(result, as_json=request.as_json, view="report", details=lambda: {"shown": shown})


def _absent(what: str, reason: str) -> dict[str, Any]:
    return {what: None, f"{what}_reason": reason}


def _calibration(deployment: "Deployment", draws: _Draws) -> dict[str, Any]:
    """The fit to the measured facts of the deployment."""
    if not deployment.measured:
        return _absent("calibration", "the deployment has no [[measured]] facts")
    from calibration.session import calibrate

    try:
        return {"calibration": calibrate(deployment, (), **draws).to_dict()}
    except DraftcastError as error:
        return _absent("calibration", str(error))


def _simulation(deployment: "Deployment", num_speculative_tokens: int, seed: int) -> dict[str, Any]:
    """A closed-loop run at the largest load of the file that is simulated quickly."""
    from simulator.serving.run import simulate

    loads = sorted(deployment.workload.concurrency)
    users = max((load for load in loads if load <= MAX_SIMULATED_USERS), default=loads[0])
    fewest, most = (each * users for each in REQUESTS_PER_USER)
    requests = min(max(fewest, SIMULATED_TOKENS // max(int(deployment.workload.output_tokens), 1)), most)
    try:
        result = simulate(
            deployment,
            arrivals=f"closed:{users}",
            num_requests=requests,
            num_speculative_tokens=num_speculative_tokens,
            seed=seed,
        )
    except DraftcastError as error:
        return _absent("simulation", str(error))
    if result.partial:
        raise KeyboardInterrupt  # half a page is of no use
    return {"simulation": result.to_dict()}
