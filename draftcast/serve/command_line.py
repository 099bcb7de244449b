"""The commands that give the page's answer on a terminal."""

import shlex
from collections.abc import Sequence

from draftcast.options import DEFAULT_SEED, Request
from draftcast.serve.state import State
from draftcast.text import one_line
from simulator.defaults import DEFAULT_DRAWS
from validate.launch.redaction import redact_argv, redact_text


def commands(request: Request, method: str | None, state: State) -> tuple[str, str]:
    """`draftcast choose ...` and `draftcast predict ...` for this state; credentials in a launch text are hidden."""
    load = [] if state.load is None else ["-c", str(state.load)]
    source = [_source(request.source)] if request.source else []
    words = [*source, *(shlex.quote(word) for word in (*_options(request, method), *state.arguments()))]
    return (
        one_line(" ".join(["draftcast choose", *words])),
        one_line(" ".join(["draftcast predict", *words, *load])),
    )


def _source(source: str) -> str:
    """The source as a shell takes it; as it is where nothing in it is to be hidden."""
    source = source.replace("\\\n", " ")
    try:
        words = shlex.split(source)
    except ValueError:
        return shlex.quote(redact_text(source))
    shown = redact_argv(words)
    return shlex.quote(source if shown == words else shlex.join(shown))


def _options(request: Request, method: str | None) -> Sequence[str]:
    """The options that serve was started with, in short."""
    named = {
        "--launch": request.launch,
        "--gpu": request.gpu,
        "--model": request.model,
        "--num-gpus": request.num_gpus,
        "--method": method,
        "--profile": request.profile,
        "--draws": None if request.num_draws == DEFAULT_DRAWS else request.num_draws,
        "--seed": None if request.seed == DEFAULT_SEED else request.seed,
    }
    stated = [word for name, value in named.items() if value is not None for word in (name, str(value))]
    return [*stated, *(word for override in request.overrides for word in ("--set", redact_text(override)))]
