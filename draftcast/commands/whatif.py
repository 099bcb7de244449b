"""`draftcast whatif`: any keys varied, cross product."""

import tomllib

import click

from draftcast.manual import Command
from draftcast.options import Request, deployment_options
from draftcast.output import show
from draftcast.report_options import report_options
from draftcast.scale.options import Sweeper, sweep_options
from hwmodel.errors import InputError

OPENING, CLOSING = "[{", "]}"
_ALLOWED = "allowed: KEY=V1,V2 such as engine.tensor_parallel_size=4,8"


@click.command("whatif", cls=Command)
@report_options
@click.option("--vary", "varied", metavar="KEY=V1,V2", multiple=True, help="A key and its values; once at least.")
@sweep_options
@deployment_options
def command(request: Request, varied: tuple[str, ...], sweep: Sweeper) -> None:
    """Any keys of the deployment varied, every combination predicted.

    KEY is any of `draftcast list keys`; a value that is itself a list stands in brackets. Ctrl-C keeps the rows that
    are done.
    """
    from draftcast import api
    from draftcast.progress import RowProgress

    vary: dict[str, list[object]] = {}
    if not varied:
        raise click.UsageError(f"Missing option '--vary'; {_ALLOWED} (`draftcast list keys` has the keys)")
    for text in varied:
        key, equals, values = text.partition("=")
        if not equals or not key.strip() or not values.strip():
            raise InputError(f"--vary: got {text!r}; {_ALLOWED}")
        vary.setdefault(key.strip(), []).extend(plain_value(value) for value in split_values(values))
    deployment, progress = request.load(), RowProgress()
    try:
        result = api.whatif(
            deployment, vary, num_draws=request.num_draws, seed=request.seed, progress=progress, sweep=sweep
        ).to_dict()
    finally:
        progress.close()
    notes = list(dict.fromkeys((*deployment.notes, *result["notes"])))
    show({**result, "notes": notes}, as_json=request.as_json, view="whatif")
    sweep.finish("row")


def split_values(text: str) -> list[str]:
    """The values between commas; a comma inside brackets or braces belongs to its value.

    >>> split_values("4,8"), split_values("[0.6, 0.4],[0.7]")
    (['4', '8'], ['[0.6, 0.4]', '[0.7]'])
    """
    values, depth = [""], 0
    for character in text:
        depth += (character in OPENING) - (character in CLOSING)
        if character == "," and depth == 0:
            values.append("")
        else:
            values[-1] += character
    return [value.strip() for value in values if value.strip()]


def plain_value(text: str) -> object:
    """`text` as a number or truth value where that loses nothing, else as it is: version 0.10 is no 0.1.

    >>> plain_value("8"), plain_value("0.5"), plain_value("0.10"), plain_value("true"), plain_value("nvlink")
    (8, 0.5, '0.10', True, 'nvlink')
    """
    try:
        value: object = tomllib.loads(f"value = {text}")["value"]
        lossless = isinstance(value, bool) or str(value) == text
    except (ValueError, RecursionError):
        return text
    return value if lossless else text
