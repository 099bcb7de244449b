"""`draftcast calibrate`: model parameters fitted to measurements, and the profile that other commands take."""

import click

from draftcast.manual import Command
from draftcast.options import Request, deployment_options
from draftcast.output import show
from draftcast.report_options import report_options


@click.command("calibrate", cls=Command)
@report_options
@click.option("--data", metavar="FILE...", multiple=True, help="Measurements of any known tool; files or folders.")
@click.option("-o", "--output", metavar="FILE", help="Write the profile, for --profile of other commands.")
@click.option("--skip-bad", is_flag=True, help="Leave out files that cannot be used, and say which.")
@deployment_options
@click.argument("more_data", metavar="[FILE...]", nargs=-1)
def command(
    request: Request, data: tuple[str, ...], more_data: tuple[str, ...], output: str | None, skip_bad: bool
) -> None:
    """Model parameters fitted to measurements, with uncertainty, and what would narrow it.

    Takes nccl-tests, vllm bench, GuideLLM, AIPerf and SGLang results, /metrics, logs, traces and CSV tables, and the
    file's own [[measured]] facts. A trace that does not tell its load is given as
    FILE@concurrency=N. With --profile the fit continues an earlier one. DEPLOYMENT is a TOML file, or a
    launch.
    """
    from calibration.readers.files import stated_concurrency
    from calibration.session import calibrate
    from simulator.files import check_outputs

    paths = (*data, *more_data)
    named = [stated_concurrency(path)[0] for path in paths]
    check_outputs({"output": output}, [request.source, *named, *([request.profile] if request.profile else [])])
    options = {"num_draws": request.num_draws, "seed": request.seed}
    result = calibrate(request.load(), paths, skip_bad=skip_bad, **options)
    if output is not None:
        result.write(output)
    show(result.to_dict(output), as_json=request.as_json, view="calibrate")
