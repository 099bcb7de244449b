"""`draftcast replay`: acceptance measured offline, from recorded outputs."""

from typing import TYPE_CHECKING, Any

import click

from draftcast.manual import Command
from draftcast.options import IntList, json_option
from draftcast.output import show, write_json

if TYPE_CHECKING:
    from calibration.replay.sources.texts import Tokenizer

MAX_TREE_DEPTH = 256  # vLLM's default is 24; every level is stored
MAX_CACHED_REQUESTS = 2**31 - 1  # ids of cached requests have 32 bits there
_SUFFIX_OPTIONS = ("max_tree_depth", "max_spec_factor", "min_token_prob", "max_cached_requests")


@click.command("replay", cls=Command)
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option("--method", default="ngram", show_default=True, metavar="NAME", help="ngram, ngram_gpu or suffix.")
@click.option(
    "-k",
    "--num-speculative-tokens",
    type=IntList(),
    default="1-8",
    show_default=True,
    metavar="LIST",
    help="Draft lengths, such as 1,3,5-8.",
)
@click.option(
    "--prompt-lookup-min", type=click.IntRange(min=1), metavar="N", help="Shortest match; default: --prompt-lookup-max."
)
@click.option(
    "--prompt-lookup-max",
    type=click.IntRange(min=1),
    metavar="N",
    help="Longest match; default: --prompt-lookup-min, else 5.",
)
@click.option("--max-model-len", type=click.IntRange(min=1), metavar="N", help="The engine's context window.")
@click.option("--engine", default="vllm", show_default=True, metavar="NAME", help="Whose drafting; only vllm.")
@click.option("--engine-version", metavar="VERSION", help="Decides the search and what the scheduler trims.")
@click.option("--variant", metavar="NAME", help="kmp, lps, gpu_v1 or mrv2; wins over the version's search.")
@click.option(
    "--suffix-max-tree-depth",
    type=click.IntRange(2, MAX_TREE_DEPTH),
    default=24,
    show_default=True,
    help="Longest match of suffix decoding, plus one.",
)
@click.option(
    "--suffix-max-spec-factor",
    type=click.FloatRange(0.0, 1000.0),
    default=1.0,
    show_default=True,
    help="Draft tokens per matched token.",
)
@click.option(
    "--suffix-min-token-prob",
    type=click.FloatRange(0.0, 1.0),
    default=0.1,
    show_default=True,
    help="Drafts end below this estimate.",
)
@click.option(
    "--suffix-max-cached-requests",
    type=click.IntRange(-1, MAX_CACHED_REQUESTS),
    default=10_000,
    show_default=True,
    help="Previous outputs searched; 0: none, -1: all.",
)
@click.option("--tokenizer", metavar="PATH", help="tokenizer.json, or its folder, for recordings of text.")
@click.option("--tokenize-url", metavar="URL", help="A server with /tokenize, for recordings of text.")
@click.option("--api-key-env", metavar="NAME", help="Environment variable with that server's key.")
@click.option("--skip-bad", is_flag=True, help="Leave bad lines out, and count them.")
@click.option("--keep-shortened", is_flag=True, help="Count the first answers too, which draftcast measure cuts short.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the intervals.")
@click.option("-o", "--output", metavar="FILE", help="Write the result for speculation.acceptance.replay.")
@json_option
def command(files: tuple[str, ...], output: str | None, as_json: bool, **options: Any) -> None:
    """Acceptance measured offline from recorded outputs, before any restart.

    Each FILE holds recorded requests: JSON lines with token ids or text, logs of OpenAI requests and responses,
    captured streams. For every draft length: how often a draft exists, how much of it is accepted, tokens per step.
    """  # fmt: skip
    from calibration.replay.sources.files import Reading
    from calibration.replay.suffix import SuffixSettings
    from calibration.replay.task import Options, replay_files
    from simulator.files import check_outputs

    check_outputs({"-o": output}, files)
    flags = {name: options.pop(name) for name in ("skip_bad", "keep_shortened")}
    reading = Reading(tokenizer=_tokenizer(options), **flags)
    suffix = {name: options.pop(f"suffix_{name}") for name in _SUFFIX_OPTIONS}
    result = replay_files(files, reading, Options(suffix=SuffixSettings(**suffix), **options))
    result["inputs"]["output"] = output
    if output is not None:
        write_json(result, output)
    show(result, as_json=as_json, view="replay")


def _tokenizer(options: dict[str, Any]) -> "Tokenizer | None":
    """What turns text into ids, its options taken out of `options`; None where neither is given."""
    path, url, variable = (options.pop(name) for name in ("tokenizer", "tokenize_url", "api_key_env"))
    if path and url:
        raise click.UsageError("--tokenizer cannot be used with --tokenize-url")
    if variable and not url:
        raise click.UsageError("--api-key-env is used with --tokenize-url only")
    if url:
        from validate.tokenize import ServerTokenizer

        return ServerTokenizer(url, variable)
    if path:
        from calibration.replay.sources.texts import FileTokenizer

        return FileTokenizer(path)
    return None
