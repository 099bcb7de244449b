"""`draftcast inspect`: what a launch really passes to the engine, and what is wrong with it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from draftcast.manual import Command
from draftcast.options import json_option
from draftcast.output import show
from hwmodel.errors import InputError

if TYPE_CHECKING:
    from validate.launch.inspection import Accounts
    from validate.launch.known import Known

_WORDS = "draftcast.inspect.words"  # where the command behind `--` waits, click would mix it with the sources
_MAX_SIDES = 2
_MAX_SHOWN_ERRORS = 5


class InspectCommand(Command):
    """A command whose words behind `--` are a launch of their own, with all the options in it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Takes the words behind the first `--` away before click reads the options."""
        if "--" in args:
            position = args.index("--")
            args, words = args[:position], args[position + 1 :]
            if not words and not ctx.resilient_parsing:
                raise click.UsageError("nothing follows `--`; allowed: -- vllm serve MODEL ...", ctx)
            ctx.meta[_WORDS] = tuple(words)
        try:
            return super().parse_args(ctx, list(args))
        except click.NoSuchOption as error:
            if args and not args[0].startswith("-") and _WORDS not in ctx.meta:
                hint = f"no option {error.option_name}; a command goes behind `--`: draftcast inspect -- {args[0]} ..."
                raise click.UsageError(hint, ctx) from error
            raise


@dataclass(frozen=True, slots=True)
class _Side:
    """One source: what to call it, and how to read it."""

    name: str
    read: Callable[[Known], Accounts]


@click.command("inspect", cls=InspectCommand)
@click.argument("sources", metavar="[SOURCE] [NEW] [-- COMMAND ...]", nargs=-1)
@click.option("--pid", type=click.IntRange(min=1), metavar="N", help="A running engine, or one of its children.")
@click.option("--url", metavar="URL", help="A running server; nothing is sent to be computed.")
@click.option("--engine-version", metavar="V", help="The engine's version, where the launch does not tell it.")
@click.option("--gpu", metavar="NAME", help="GPU card: defaults and graphs that depend on it are then known.")
@click.option("--model-config", metavar="PATH", help="The model's config.json, its folder, or a card's name.")
@click.option(
    "--api-key-env", metavar="NAME", help="Environment variable with the server's key; else DRAFTCAST_API_KEY."
)
@json_option
def command(sources: tuple[str, ...], **options: Any) -> None:
    """What a launch really passes to the engine, and what is wrong with it.

    SOURCE is a systemd unit, compose file, Kubernetes manifest, shell script, vLLM --config file, a command in quotes,
    or - for standard input; --pid and --url read what runs; the command itself may follow after --. With a second one,
    NEW, it says what changes for the engine: the check before a restart. Nothing is executed.
    """
    known = _known(options)
    sides = _sides(sources, options, click.get_current_context())
    inputs = {"source": sides[0].name, "new": sides[1].name if len(sides) == _MAX_SIDES else None}
    inputs |= {name: options[name] for name in ("engine_version", "gpu", "model_config")}
    result, found, secrets = _inspected(sides, known)
    from validate.launch.redaction import redact

    show({"inputs": redact(inputs, secrets), **result}, as_json=options["as_json"], view="inspect")
    if found.errors:
        raise click.ClickException(_closing_line(found))


def _known(options: dict[str, Any]) -> Known:
    """What the options say beside the launch."""
    from validate.launch.known import Known

    version, gpu = options["engine_version"], options["gpu"]
    if version is not None:
        from hwmodel.engine.versions import parse_version

        parse_version(version)
    if gpu is not None:
        from hwmodel.gpus import load_gpu

        gpu = load_gpu(gpu)
    return Known(version, gpu, options["model_config"])


def _sides(sources: tuple[str, ...], options: dict[str, Any], context: click.Context) -> list[_Side]:
    """The sources in order: what runs first, then the files, then the command behind `--`."""
    words: tuple[str, ...] | None = context.meta.get(_WORDS)
    sides = [_process_side(options["pid"])] if options["pid"] is not None else []
    sides += [_server_side(options["url"], options["api_key_env"])] if options["url"] is not None else []
    if sources.count("-") > 1:
        raise click.UsageError("standard input (-) can be one source only", context)
    for source in sources:
        is_url = source.startswith(("http://", "https://"))
        sides.append(_server_side(source, options["api_key_env"]) if is_url else _text_side(source))
    sides += [_command_side(words)] if words is not None else []
    if not sides:
        raise click.UsageError("nothing to inspect; allowed: SOURCE, --pid N, --url URL, or -- COMMAND ...", context)
    if len(sides) > _MAX_SIDES:
        raise click.UsageError(f"got {len(sides)} sources, allowed: one, or two to compare", context)
    return sides


def _process_side(pid: int) -> _Side:
    def read(known: Known) -> Accounts:
        from validate.launch.account import account_for
        from validate.launch.inspection import Accounts
        from validate.launch.process import launch_of_process

        return Accounts([account_for(launch_of_process(pid), known)])

    return _Side(f"--pid {pid}", read)


def _server_side(url: str, variable: str | None) -> _Side:
    def read(known: Known) -> Accounts:
        from validate.launch.inspection import Accounts
        from validate.launch.known import API_KEY_VARIABLE
        from validate.launch.server import account_of_server

        key = os.environ.get(variable or API_KEY_VARIABLE)
        if variable is not None and key is None:
            raise InputError(f"--api-key-env: {variable} is not set; allowed: the name of an environment variable")
        return Accounts([account_of_server(url, key, known)])

    from validate.launch.redaction import redact_text

    return _Side(redact_text(url), read)


def _text_side(source: str) -> _Side:
    def read(known: Known) -> Accounts:
        from validate.launch.inspection import accounts_of

        if source.endswith(".toml"):
            return accounts_of(_launch_of_deployment(source), known)
        return accounts_of(_standard_input() if source == "-" else source, known)

    from validate.launch.redaction import redact_text

    return _Side("standard input" if source == "-" else redact_text(source), read)


def _command_side(words: tuple[str, ...]) -> _Side:
    def read(known: Known) -> Accounts:
        from validate.launch.inspection import accounts_of

        return accounts_of(words, known)

    from validate.launch.redaction import redact_argv

    return _Side(" ".join(redact_argv(words)), read)


def _launch_of_deployment(path: str) -> str | Path:
    """The launch that a deployment file names."""
    from simulator.deployment import read_tables

    engine = read_tables(path).get("engine")
    launch = engine.get("launch") if isinstance(engine, dict) else None
    if not isinstance(launch, str):
        raise InputError(f"{path}: a deployment file without [engine] launch; `draftcast predict` takes it as it is")
    return launch


def _standard_input() -> str:
    """The text that comes on standard input, bounded as a file is."""
    from validate.launch.files import decode_source
    from validate.launch.sources import SourceText

    return SourceText(decode_source(sys.stdin.buffer, "standard input"))


def _inspected(sides: list[_Side], known: Known) -> tuple[dict[str, Any], Accounts, tuple[str, ...]]:
    """(the result to show, the side whose errors count: what would run, the credentials of all)."""
    from validate.launch.comparison import compare
    from validate.launch.inspection import report
    from validate.launch.redaction import redact

    if len(sides) == 1:
        found = sides[0].read(known)
        return report(found), found, found.secrets
    compared = compare(sides[0].read, sides[1].read, known)
    secrets = compared.old.secrets + compared.new.secrets
    result = report(compared.new)
    result |= {"old": report(compared.old), **compared.to_dict()}
    if compared.note:
        result["notes"] = [*result.get("notes", []), compared.note]
    counts = compared.old if compared.changes is None and not compared.new.errors else compared.new
    return redact(result, secrets), counts, secrets


def _closing_line(found: Accounts) -> str:
    """The errors in one line, by their codes."""
    codes = list(dict.fromkeys(finding.code for finding in found.errors))
    shown = ", ".join(codes[:_MAX_SHOWN_ERRORS]) + (", ..." if len(codes) > _MAX_SHOWN_ERRORS else "")
    count = len(found.errors)
    return f"{count} finding{'' if count == 1 else 's'} of severity error: {shown}"
