"""Tell an engine's command from any other, which engine and version it is, and where its own arguments start."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

VLLM = "vllm"
SGLANG = "sglang"

# The server modules, and those of frameworks that take the same options (NVIDIA Dynamo).
_VLLM_MODULES = frozenset(("vllm.entrypoints.openai.api_server", "vllm.entrypoints.api_server", "dynamo.vllm"))
_VLLM_COMMAND_MODULES = frozenset(("vllm", "vllm.entrypoints.cli.main"))
_SGLANG_MODULES = frozenset(
    ("sglang.launch_server", "sglang_router.launch_server", "sglang.srt.entrypoints.http_server", "dynamo.sglang")
)
_SGLANG_COMMAND_MODULES = frozenset(("sglang", "sglang.cli.main"))
# The image's own start script (vLLM 0.33) and its predecessors' server module as a file.
_VLLM_SCRIPTS = frozenset(("vllm-nonroot-entrypoint.sh",))
_PYTHON = re.compile(r"python[0-9.]*")
_PYTHON_OPTIONS_WITH_VALUE = frozenset(("-W", "-X"))
# "v0.20.2", "0.16.0rc1", "vllm_0.10.1"; a tag such as 25.09-py3 is a release of the image, not of the engine.
_VERSION = re.compile(r"(?<![\d.])v?((?:0|1)\.\d{1,3}\.\d{1,3}(?:\.post\d+|rc\d+|\.dev\d+)?)(?![\d])")
_NAMED_VERSION = re.compile(r"(?:vllm|sglang)[-_=@~/ ]*v?(\d+\.\d+\.\d+(?:\.post\d+|rc\d+)?)")

_AT_VERSION = re.compile(r"@[\w.]+$")  # `uvx vllm@0.22.0 serve`


@dataclass(frozen=True, slots=True)
class EngineCall:
    """An engine's command line: `engine`, how many words the program takes, and whether the model is a positional."""

    engine: str
    program_words: int
    is_serve_command: bool  # `vllm serve MODEL`; the server module takes --model instead


def engine_call(argv: Sequence[str]) -> EngineCall | None:
    """How the argument list starts an engine, or None when it starts something else."""
    if not argv:
        return None
    program = _AT_VERSION.sub("", argv[0].rsplit("/", 1)[-1])
    if program in _VLLM_SCRIPTS:
        return EngineCall(VLLM, 2 if argv[1:2] == ["serve"] else 1, True)
    if program in (VLLM, SGLANG) and argv[1:2] and argv[1] == "serve":
        return EngineCall(program, 2, program == VLLM)
    if _PYTHON.fullmatch(program):
        return _python_call(argv)
    return None


def _python_call(argv: Sequence[str]) -> EngineCall | None:
    position = 1
    while position < len(argv) and argv[position].startswith("-") and argv[position] != "-m":
        position += 2 if argv[position] in _PYTHON_OPTIONS_WITH_VALUE else 1
    if position >= len(argv):
        return None
    if argv[position] != "-m":
        script = argv[position]
        if script.endswith("/vllm/entrypoints/openai/api_server.py"):
            return EngineCall(VLLM, position + 1, False)
        inner = engine_call([script, *argv[position + 1 :]]) if script.rsplit("/", 1)[-1] in (VLLM, SGLANG) else None
        return inner and EngineCall(inner.engine, position + inner.program_words, inner.is_serve_command)
    module = argv[position + 1] if position + 1 < len(argv) else ""
    subcommand = argv[position + 2] if position + 2 < len(argv) else ""
    if module in _VLLM_MODULES:
        return EngineCall(VLLM, position + 2, False)
    if module in _SGLANG_MODULES:
        return EngineCall(SGLANG, position + 2, False)
    if subcommand == "serve" and module in _VLLM_COMMAND_MODULES | _SGLANG_COMMAND_MODULES:
        return EngineCall(
            VLLM if module in _VLLM_COMMAND_MODULES else SGLANG, position + 3, module in _VLLM_COMMAND_MODULES
        )
    return None


def image_engine(image: str | None) -> str | None:
    """The engine that a container image holds, by its name, or None."""
    name = (image or "").lower()
    return VLLM if VLLM in name else SGLANG if SGLANG in name or "lmsysorg" in name else None


def image_version(image: str | None) -> str | None:
    """The engine's version in an image reference, "0.20.2" of vllm/vllm-openai:v0.20.2, or None (latest, digest)."""
    if image is None or image_engine(image) is None:
        return None
    reference = image.split("@", 1)[0]
    if _OWN_RELEASES.search(reference):
        return None
    tag = reference.rsplit(":", 1)[1] if ":" in reference.rsplit("/", 1)[-1] else ""
    named = _NAMED_VERSION.search(tag)
    plain = _VERSION.search(tag) if _ENGINE_IMAGE.search(reference.rsplit("/", 1)[-1]) else None
    return named[1] if named else plain[1] if plain else None


def text_version(text: str, engine: str) -> str | None:
    """The version that a script or path pins: `vllm==0.16.0`, `vllm@0.16.0`, `/opt/vllm-0.16.0/bin/vllm`, or None."""
    written = r"(?:\s*==\s*v?(?P<exact>\d+\.\d+\.\d+(?:\.post\d+|rc\d+)?)|@v?(?P<at>[01]\.\d+\.\d+)(?!\.?\d))"
    pinned = re.search(rf"\b{engine}(?:-\w+)?(?:\[[\w,]*\])?{written}", text)
    if pinned:
        return pinned["exact"] or pinned["at"]
    in_path = re.search(rf"\b{engine}[-_]v?(\d+\.\d+\.\d+)(?=[/\w.-]*/)", text)
    return in_path[1] if in_path else None


def image_entrypoint(image: str | None) -> tuple[str, ...]:
    """The ENTRYPOINT of an engine's image, by version, or () when it has none that starts an engine.

    Source: docker/Dockerfile of vLLM: the server module up to 0.11.0, `vllm serve` from 0.11.2, a start script in 0.33.
    """
    if image is None or not _OFFICIAL_IMAGE.search(image):
        return ()
    version = image_version(image)
    numbers = tuple(int(part) for part in version.split(".")[:2]) if version else None
    patch = re.match(r"\d+\.\d+\.(\d+)", version) if version else None
    if numbers is None or patch is None:
        return (VLLM, "serve")
    full = (*numbers, int(patch[1]))
    if full <= _LAST_MODULE_ENTRYPOINT:
        return ("python3", "-m", "vllm.entrypoints.openai.api_server")
    return ("/usr/local/bin/vllm-nonroot-entrypoint.sh",) if full >= _FIRST_SCRIPT_ENTRYPOINT else (VLLM, "serve")


# Images named after the engine alone carry its version; those of frameworks around it (-runtime, worker-) their own.
_ENGINE_IMAGE = re.compile(r"^(?:vllm|sglang)(?![\w\-]*runtime)[\w\-]*(?::|$)")
# Projects whose images are named after the engine but carry the release of the project.
_OWN_RELEASES = re.compile(r"(?i)(?:^|/)(?:lmcache|opea)/[^/]*$")
# vllm/vllm-openai and its variants; images of others that hold vLLM have entrypoints of their own.
_OFFICIAL_IMAGE = re.compile(r"(?:^|/)vllm-openai[\w\-]*(?:[:@]|$)")
_LAST_MODULE_ENTRYPOINT = (0, 11, 0)
_FIRST_SCRIPT_ENTRYPOINT = (0, 33, 0)
