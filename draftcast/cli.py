"""The lazy group of commands: names and one-line helps are known here, a command's module is imported when it runs."""

import contextlib
import errno
import gc
import importlib
import os
import sys
from typing import TYPE_CHECKING, Any

import click

from draftcast import __version__
from draftcast.start import COMPLETE_VARIABLE, INTERRUPTED_EXIT_CODE
from draftcast.text import one_line
from hwmodel.errors import DraftcastError
from hwmodel.names import did_you_mean, nearest, vocabulary

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# In the order in which a user meets them. The help of each command starts with the same words; a test compares them.
COMMANDS = {
    "init": "A first deployment file, every key explained, from a launch or from names.",
    "choose": "The grid of draft lengths and concurrencies, and what to deploy.",
    "predict": "One speculative configuration against its baseline, part by part.",
    "whatif": "Any keys of the deployment varied, every combination predicted.",
    "adaptive": "What deciding the draft length at run time is worth: schedule, adaptive, bound.",
    "budget": "What reading fewer experts in verification (MoE-Spec) is worth, and what it may cost.",
    "experiments": "What to measure next: expected regret saved, minutes, outage, net value.",
    "simulate": "A serving run of both arms, request by request.",
    "options": "All ways to faster decoding side by side: what each gains, takes and risks.",
    "train-cost": "What training a draft head costs, here and on rented machines, and when its gain has paid.",
    "calibrate": "Model parameters fitted to measurements, with uncertainty, and what would narrow it.",
    "serve": "A local page: move keys of the deployment, and see the answer change at once.",
    "report": "One page with the answer, its charts and what stands behind it.",
    "step": "One engine step on the ranks: layers, AllReduce on the links of the box, experts as drawn.",
    "measure": "Load on a live server, or its own traffic: what a step takes and what is accepted.",
    "watch": "A running server's /metrics watched: is its draft length still the best, and which would be?",
    "replay": "Acceptance measured offline from recorded outputs, before any restart.",
    "backtest": "The model scored on published measurements.",
    "validate": "Predictions against the real run, and the cause of any miss.",
    "ledger": "Every prediction that was recorded, and how it turned out.",
    "inspect": "What a launch really passes to the engine, and what is wrong with it.",
    "model": "A model's parameters, weight bytes and KV cache bytes.",
    "experts": "How many experts a layer reads, by the number of tokens in a step.",
    "allreduce": "How long one AllReduce takes, by its size.",
    "list": "The names that files and options take.",
    "completion": "The script with which a shell completes commands, names, keys and files.",
}
_SHOWN = 60  # characters of a name that is no command
BROKEN_PIPE_EXIT_CODE = 141  # 128 + SIGPIPE

# What writing to a full, failing or closed file ends with.
_NOT_WRITTEN = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)


def module_name(command: str) -> str:
    """The module of a command: its name, with the dash that Python's names lack."""
    return command.replace("-", "_")


class Interrupted(click.ClickException):
    """Ctrl-C: one line, and the exit code that shells expect."""

    exit_code = INTERRUPTED_EXIT_CODE

    def __init__(self) -> None:
        """The message is always the same."""
        super().__init__("interrupted; nothing was written")


class LazyGroup(click.Group):
    """A group that lists `COMMANDS` without importing them, and turns stated errors into one line."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, its module imported now; None for a name that is not in the table."""
        if cmd_name not in COMMANDS:
            return None
        command = importlib.import_module(f"draftcast.commands.{module_name(cmd_name)}").command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click's, but an unknown name is answered with the nearest ones and all of them."""
        name = "" if ctx.resilient_parsing or not args else args[0]
        if name and name not in COMMANDS and not name.startswith("-"):
            listed = vocabulary("commands", COMMANDS, "--help")
            hint = did_you_mean(nearest(name, COMMANDS, likeness=0.6))
            raise click.UsageError(f"no command {one_line(name)[:_SHOWN]!r}{hint} {listed}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands in `--help`, from the table."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The examples and the rest of the page."""
        from draftcast.manual import write_page

        write_page(ctx, formatter)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
        """The names of the commands, none of them imported, and the group's own options."""
        from click.shell_completion import CompletionItem

        found = [CompletionItem(name, help=text) for name, text in COMMANDS.items() if name.startswith(incomplete)]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def invoke(self, ctx: click.Context) -> Any:
        """The command's result; a `DraftcastError` becomes exit code 1 with one line, Ctrl-C code 130."""
        try:
            return super().invoke(ctx)
        except DraftcastError as error:
            raise click.ClickException(one_line(str(error))) from error
        except KeyboardInterrupt as error:
            raise Interrupted from error


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="draftcast")
def cli() -> None:
    """Predicts, before an LLM server is restarted, whether speculative decoding will make it faster.

    Start with `draftcast init -o my.toml`, then `draftcast choose my.toml`. Every command's --help ends with examples.
    """


def main() -> int:
    """The process's exit code: 0 done, 1 a stated error, 2 wrong usage, 130 interrupted."""
    if sys.stdout is None:  # closed by whoever started this
        _show(click.ClickException("standard output is closed: the answer cannot be written; allowed: > FILE"))
        return 1
    # The matrices here are small: starting a pool of threads takes longer than all products together.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Start-up creates many objects that all stay: looking for garbage after every 700 of them finds none.
    gc.set_threshold(100_000, 20, 20)
    for stream in (sys.stdout, sys.stderr):
        # A terminal that lacks a character gets its code instead of a trace.
        getattr(stream, "reconfigure", lambda **_: None)(errors="backslashreplace")
    if COMPLETE_VARIABLE in os.environ:
        return _complete()
    try:
        status = cli.main(prog_name="draftcast", standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as error:
        _show(error)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        _show(Interrupted())
        return INTERRUPTED_EXIT_CODE
    except BrokenPipeError:
        _discard_output()
        return BROKEN_PIPE_EXIT_CODE
    except OSError as error:
        if error.errno not in _NOT_WRITTEN or error.filename is not None:  # with a name it is not about the output
            raise
        _discard_output()
        _show(click.ClickException(f"the output cannot be written: {error.strerror}; what was written is incomplete"))
        return 1
    return status if isinstance(status, int) else 0


def _complete() -> int:
    """Answers a shell that completes; what cannot be read yet has no completions, and no error either."""
    from draftcast.shells import register

    register()
    try:
        cli.main(prog_name="draftcast", complete_var=COMPLETE_VARIABLE, standalone_mode=False)
    except (DraftcastError, click.ClickException, KeyboardInterrupt, OSError):
        return 1
    return 0


def _show(error: click.ClickException) -> None:
    """The error on stderr, if that can be written."""
    with contextlib.suppress(OSError):
        error.show()


def _discard_output() -> None:
    """Sends what is still to be written nowhere: Python's own flush at exit would complain about it."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError):  # None where it is closed
            with contextlib.suppress(AttributeError, OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
