"""`--config FILE`: the words of the file put where vLLM puts them, and what is wrong with naming it that way.

Sources: vLLM 0.33 `utils/argparse_utils.py`, `_pull_args_from_config` and `load_config_file`; SGLang
`srt/server_args_config_parser.py`.
"""

from hwmodel.engine.versions import Version
from validate.launch.findings import ERROR, WARNING, Finding, Launch, MalformedSourceError
from validate.launch.program import SGLANG, VLLM, EngineCall
from validate.launch.unwrap import read_named

_TITLES = {VLLM: "vLLM", SGLANG: "SGLang"}


def with_config_file(launch: Launch, call: EngineCall, version: Version | None, findings: list[Finding]) -> list[str]:
    """The argument list with `--config FILE` replaced by the words of the file, put before those already there."""
    argv = list(launch.argv)
    words = argv[call.program_words :]
    findings += _attached(words, call.engine)
    if "--config" not in words:
        return argv
    position = words.index("--config")
    name = words[position + 1] if position + 1 < len(words) else ""
    findings += _faults_of_naming(words, name, call.engine)
    text = read_named(name, launch) if name else None
    if text is None:
        message = f"the --config file {name!r} cannot be read here: what it sets is unknown"
        findings += [Finding(WARNING, "config-file-unreadable", message)] if name else []
        return argv
    # Imported here alone: PyYAML costs start-up time, and most launches need none.
    from validate.launch.vllm_config import config_words, sglang_config_words

    try:
        added, faults = config_words(text, version) if call.engine == VLLM else sglang_config_words(text)
    except MalformedSourceError as error:
        findings.append(Finding(ERROR, "config-file-malformed", f"--config {name}: {error}"))
        return argv
    findings += faults
    rest = words[:position] + words[position + 2 :]
    # The model comes first for `vllm serve`; the file's words follow it, so that the command line wins.
    model = 1 if call.is_serve_command and rest[:1] and not rest[0].startswith("-") else 0
    if model:
        added = _without_model(added)
    return [*argv[: call.program_words], *rest[:model], *added, *rest[model:]]


def _without_model(words: list[str]) -> list[str]:
    """The file's words without its model, which one on the command line replaces."""
    if "--model" not in words:
        return words
    position = words.index("--model")
    return words[:position] + words[position + 2 :]


def _attached(words: list[str], engine: str) -> list[Finding]:
    attached = next((word for word in words if word.startswith("--config=")), None)
    if attached is None:
        return []
    message = (
        f"{attached}: {_TITLES[engine]} reads the file only where it stands as a word of its own; this one is ignored"
    )
    return [Finding(ERROR, "config-file-ignored", message, attached.replace("=", " ", 1))]


def _faults_of_naming(words: list[str], name: str, engine: str) -> list[Finding]:
    found: list[Finding] = []
    title = _TITLES[engine]
    if not name:
        found.append(Finding(ERROR, "config-file-missing", f"--config names no file: {title} stops at start"))
    elif "$" not in name and not name.endswith((".yaml", ".yml")):
        message = f"--config {name}: {title} takes only files that end in .yaml or .yml, and stops at start"
        found.append(Finding(ERROR, "config-file-ending", message, f"--config {name.rsplit('.', 1)[0]}.yaml"))
    if words.count("--config") > 1:
        found.append(
            Finding(ERROR, "config-file-repeated", f"--config is given more than once: {title} stops at start")
        )
    return found
