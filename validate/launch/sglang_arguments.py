"""SGLang's launch options as far as a launch needs them, and its speculative configuration with defaults filled in.

Sources: sglang/srt/server_args.py 0.5.5, arg_groups of 0.5.23; plain argparse: prefixes, `--x=y`, last value wins.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from hwmodel.engine.methods import check_method, method_names
from hwmodel.engine.versions import DEFAULT_SGLANG, Version
from validate.launch.arguments import TYPO_LIKENESS
from validate.launch.findings import ERROR, INFO, UNREAD, WARNING, Finding
from validate.launch.program import SGLANG
from validate.launch.settings import Settings, integer, share, unresolved

_ALIASES = {
    "tp": "tensor-parallel-size", "tp-size": "tensor-parallel-size", "pp": "pipeline-parallel-size",
    "pp-size": "pipeline-parallel-size", "dp": "data-parallel-size", "dp-size": "data-parallel-size",
    "ep": "expert-parallel-size", "ep-size": "expert-parallel-size", "model": "model-path",
    "speculative-draft-model": "speculative-draft-model-path",
}  # fmt: skip
_VALUES = frozenset(
    (
        "tensor-parallel-size", "pipeline-parallel-size", "data-parallel-size", "expert-parallel-size", "model-path",
        "context-length", "max-running-requests", "mem-fraction-static", "cuda-graph-max-bs", "chunked-prefill-size",
        "max-prefill-tokens", "page-size", "kv-cache-dtype", "attention-backend", "speculative-algorithm",
        "speculative-draft-model-path", "speculative-num-steps", "speculative-eagle-topk",
        "speculative-num-draft-tokens", "speculative-accept-threshold-single", "speculative-accept-threshold-acc",
        "speculative-attention-mode", "speculative-token-map", "speculative-draft-model-revision",
        "speculative-adaptive-config", "speculative-ngram-min-match-window-size",
        "speculative-ngram-max-match-window-size", "speculative-ngram-min-bfs-breadth",
        "speculative-ngram-max-bfs-breadth", "speculative-ngram-branch-length", "speculative-ngram-capacity",
        "speculative-ngram-match-type", "speculative-moe-runner-backend", "speculative-draft-attention-backend",
        "speculative-draft-model-quantization", "speculative-ngram-max-trie-depth", "host", "port", "tokenizer-path",
        "dtype", "quantization", "served-model-name", "api-key", "chat-template", "tool-call-parser",
        "reasoning-parser", "schedule-policy", "nnodes", "node-rank", "dist-init-addr", "load-format", "device",
        "log-level", "max-total-tokens", "schedule-conservativeness", "moe-runner-backend", "moe-a2a-backend",
    )
)  # fmt: skip
_LISTS = frozenset(("cuda-graph-bs",))
_FLAGS = frozenset(
    (
        "disable-cuda-graph", "disable-overlap-schedule", "enable-metrics", "trust-remote-code",
        "speculative-adaptive", "speculative-use-rejection-sampling", "enable-dp-attention", "enable-ep-moe",
        "disable-radix-cache", "enable-torch-compile", "skip-tokenizer-init", "enable-mixed-chunk",
        "disable-custom-all-reduce", "enable-deterministic-inference",
    )
)  # fmt: skip
_NAMES = _VALUES | _LISTS | _FLAGS
_METHODS = {
    "EAGLE": "eagle", "EAGLE3": "eagle3", "NEXTN": "mtp", "STANDALONE": "draft_model", "NGRAM": "ngram",
    "DFLASH": "dflash", "DSPARK": "dspark", "UNO": "uno",
}  # fmt: skip
_STEPPED = frozenset(("EAGLE", "EAGLE3", "NEXTN", "STANDALONE"))
_NEEDS_MODEL = frozenset(("EAGLE3", "STANDALONE", "DFLASH"))
_MTP_FAMILIES = ("deepseek", "glm-4", "glm-5", "qwen3-next", "longcat", "mimo", "bailing", "ling", "kimi")
# (num_steps, eagle_topk, num_draft_tokens) when unset: by family and for STANDALONE; llama and all others differ.
_SHORT_DEFAULTS = (3, 1, 4)
_LONG_DEFAULTS = (5, 4, 8)
_SHORT_FAMILIES = ("deepseek", "gpt-oss", "bailing", "ling-", "ring-")
_SETTING_NAMES = {
    "model-path": "model", "tensor-parallel-size": "tensor_parallel_size",
    "pipeline-parallel-size": "pipeline_parallel_size", "data-parallel-size": "data_parallel_size",
    "context-length": "max_model_len", "max-running-requests": "max_num_seqs",
}  # fmt: skip
_SPECULATIVE_RUNNING = 48  # sglang/srt/arg_groups/speculative_hook.py 0.5.23, server_args.py 0.5.5
_NGRAM_WINDOW = 12  # --speculative-ngram-max-match-window-size, which NGRAM takes as its number of draft tokens
_NGRAM_BREADTH = 10


@dataclass(slots=True)
class SglangArguments:
    """The options that take effect, by full name without dashes."""

    options: dict[str, Any] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)


def parse_sglang(words: Sequence[str]) -> SglangArguments:
    """The effective options of the words after the program."""
    arguments = SglangArguments()
    position = 0
    while position < len(words):
        written, equals, attached = words[position].partition("=")
        position += 1
        if not written.startswith("-"):
            continue
        name = _full_name(written, arguments.findings)
        if name in _FLAGS or (name not in _NAMES and _looks_like_flag(name)):
            arguments.options[name] = True
        elif equals:
            arguments.options[name] = [attached] if name in _LISTS else attached
        else:
            end = position
            while end < len(words) and not words[end].startswith("-") and (name in _LISTS or end == position):
                end += 1
            taken = list(words[position:end])
            arguments.options[name] = taken if name in _LISTS else taken[0] if taken else None
            position = end
    return arguments


def _looks_like_flag(name: str) -> bool:
    return name.startswith(("enable-", "disable-", "use-", "skip-", "show-", "log-requests", "allow-"))


def _full_name(written: str, findings: list[Finding]) -> str:
    name = written.lstrip("-")
    if name in _ALIASES or name in _NAMES:
        return _ALIASES.get(name, name)
    prefixed = [known for known in _NAMES if known.startswith(name)]
    if len(prefixed) == 1:
        return prefixed[0]
    if len(prefixed) > 1 and name.startswith("spec"):
        text = (
            f"{written} is ambiguous: it could be "
            f"{', '.join('--' + item for item in sorted(prefixed))}; argparse refuses it"
        )
        findings.append(Finding(ERROR, "ambiguous-option", text))
    elif name.startswith("spec") or name == "num-speculative-tokens":
        near = get_close_matches(name, sorted(_NAMES), n=1, cutoff=0)
        hint = (
            "vLLM's JSON is unknown to SGLang"
            if name.replace("_", "-") in ("speculative-config", "sc")
            else "unrecognized argument"
        )
        findings.append(
            Finding(ERROR, "unrecognized-option", f"SGLang has no option {written}: {hint}", "--" + near[0])
        )
    elif not prefixed:
        findings.append(_unknown(written, name))
    return name


def _unknown(written: str, name: str) -> Finding:
    """An option that is a misspelling of a known one, else one that is passed over."""
    near = get_close_matches(name, sorted(_NAMES), n=1, cutoff=TYPO_LIKENESS)
    if not near:
        return Finding(INFO, UNREAD, f"not known here and passed over: {written}")
    text = f"{written} is no option known here; did you mean --{near[0]}? SGLang stops at an option it does not know"
    return Finding(WARNING, "unknown-option", text, "--" + near[0])


def sglang_settings(arguments: SglangArguments) -> Settings:
    """The settings of an SGLang launch under the deployment file's names."""
    options = arguments.options
    settings = Settings(findings=[])
    found = settings.findings
    model = options.get("model-path")
    settings.model = model if isinstance(model, str) else None
    settings.tensor_parallel_size = integer("tp-size", options.get("tensor-parallel-size"), found)
    settings.pipeline_parallel_size = integer("pp-size", options.get("pipeline-parallel-size"), found)
    settings.data_parallel_size = integer("dp-size", options.get("data-parallel-size"), found)
    experts = integer("ep-size", options.get("expert-parallel-size"), found)
    settings.expert_parallel = experts > 1 if experts is not None else True if options.get("enable-ep-moe") else None
    settings.max_model_len = integer("context-length", options.get("context-length"), found)
    settings.max_num_seqs = integer("max-running-requests", options.get("max-running-requests"), found)
    chunk = options.get("chunked-prefill-size")
    settings.max_num_batched_tokens = None if chunk == "-1" else integer("chunked-prefill-size", chunk, found)
    settings.gpu_memory_utilization = share("mem-fraction-static", options.get("mem-fraction-static"), found)
    settings.block_size = integer("page-size", options.get("page-size"), found)
    dtype, backend = options.get("kv-cache-dtype"), options.get("attention-backend")
    settings.kv_cache_dtype = dtype if isinstance(dtype, str) and dtype != "auto" else None
    settings.attention_backend = backend if isinstance(backend, str) else None
    settings.enforce_eager = True if options.get("disable-cuda-graph") else None
    settings.async_scheduling = False if options.get("disable-overlap-schedule") else None
    sizes = options.get("cuda-graph-bs")
    if isinstance(sizes, list):
        settings.cudagraph_capture_sizes = (
            sorted(int(size) for size in sizes if size.isascii() and size.isdigit()) or None
        )
    settings.unresolved = unresolved(options, _SETTING_NAMES)
    return settings


def sglang_speculation(
    arguments: SglangArguments, settings: Settings, version: Version = DEFAULT_SGLANG
) -> dict[str, Any] | None:
    """The effective speculative configuration, num_steps also as num_speculative_tokens, or None when it is off."""
    options, findings = arguments.options, arguments.findings
    algorithm = options.get("speculative-algorithm")
    if not isinstance(algorithm, str) or not algorithm:
        if any(name.startswith("speculative-") for name in options):
            text = "--speculative-... options without --speculative-algorithm: SGLang ignores them, speculation is off"
            findings.append(Finding(ERROR, "speculative-algorithm-missing", text, "--speculative-algorithm EAGLE"))
        return None
    if algorithm not in _METHODS:
        near = get_close_matches(algorithm.upper(), _METHODS, n=1, cutoff=0.0)
        text = f"--speculative-algorithm: got {algorithm[:40]!r}, known: {', '.join(sorted(_METHODS))}"
        findings.append(Finding(ERROR, "unknown-method", text, f"--speculative-algorithm {near[0]}"))
        return None
    config: dict[str, Any] = {"method": _method(algorithm, options, settings), "algorithm": algorithm}
    draft = options.get("speculative-draft-model-path")
    if isinstance(draft, str):
        config["model"] = draft
    elif algorithm in _NEEDS_MODEL:
        text = f"{algorithm} needs a draft model"
        findings.append(Finding(ERROR, "draft-model-missing", text, "--speculative-draft-model-path <draft model>"))
    if algorithm == "NGRAM":
        _ngram(config, options, findings)
    else:
        _stepped(config, algorithm, options, settings, findings)
    if options.get("speculative-adaptive"):
        config["adaptive"] = True
        _adaptive(algorithm, config, findings)
    _supported(config, version, findings, settings.pipeline_parallel_size or 1)
    _limits(config, options, settings, findings)
    return config


def _adaptive(algorithm: str, config: dict[str, Any], findings: list[Finding]) -> None:
    if algorithm not in ("EAGLE", "EAGLE3", "NEXTN") or config.get("eagle_topk") not in (1, None):
        text = "--speculative-adaptive works with EAGLE and EAGLE3 and --speculative-eagle-topk 1 only"
        findings.append(Finding(ERROR, "adaptive-not-supported", text, "--speculative-eagle-topk 1"))


def _supported(config: dict[str, Any], version: Version, findings: list[Finding], stages: int) -> None:
    """What the version says to the algorithm, from the facts of `hwmodel.engine`."""
    length = config.get("num_speculative_tokens")
    if config["method"] in method_names():
        count = length if isinstance(length, int) else 1
        facts = check_method(SGLANG, version, config["method"], count, pipeline_parallel_size=stages)
        findings += [Finding(fact.severity, fact.code, fact.text) for fact in facts]


def _limits(config: dict[str, Any], options: dict[str, Any], settings: Settings, findings: list[Finding]) -> None:
    """Speculation lowers the number of running requests, and captured batches count requests."""
    running = settings.max_num_seqs
    if running is None:
        text = f"speculation lowers --max-running-requests to {_SPECULATIVE_RUNNING} where it is not given: more wait"
        findings.append(Finding(WARNING, "running-requests-lowered", text, "--max-running-requests <requests>"))
    captured = integer("cuda-graph-max-bs", options.get("cuda-graph-max-bs"), [])
    if captured is not None and captured < (running or _SPECULATIVE_RUNNING) and not settings.enforce_eager:
        text = f"CUDA graphs cover {captured} requests, {running or _SPECULATIVE_RUNNING} may run: more run without"
        fix = f"--cuda-graph-max-bs {running or _SPECULATIVE_RUNNING}"
        findings.append(Finding(WARNING, "cudagraph-capture-too-small", text, fix))


def _method(algorithm: str, options: dict[str, Any], settings: Settings) -> str:
    """EAGLE without a draft model on a model that brings MTP layers drafts with those."""
    own_layers = any(family in (settings.model or "").lower() for family in _MTP_FAMILIES)
    if algorithm == "EAGLE" and own_layers and "speculative-draft-model-path" not in options:
        return "mtp"
    return _METHODS[algorithm]


def _ngram(config: dict[str, Any], options: dict[str, Any], findings: list[Finding]) -> None:
    window = integer(
        "speculative-ngram-max-match-window-size", options.get("speculative-ngram-max-match-window-size"), findings
    )
    width = (
        integer("speculative-num-draft-tokens", options.get("speculative-num-draft-tokens"), findings)
        or window
        or _NGRAM_WINDOW
    )
    breadth = integer("speculative-ngram-max-bfs-breadth", options.get("speculative-ngram-max-bfs-breadth"), findings)
    config |= {
        "num_draft_tokens": width,
        "num_speculative_tokens": max(width - 1, 1),
        "eagle_topk": breadth or _NGRAM_BREADTH,
    }


def _stepped(
    config: dict[str, Any], algorithm: str, options: dict[str, Any], settings: Settings, findings: list[Finding]
) -> None:
    names = ("speculative-num-steps", "speculative-eagle-topk", "speculative-num-draft-tokens")
    steps, topk, width = (integer(name, options.get(name), findings) for name in names)
    if all(options.get(name) is None for name in names):
        short = algorithm == "STANDALONE" or any(family in (settings.model or "").lower() for family in _SHORT_FAMILIES)
        steps, topk, width = _SHORT_DEFAULTS if short else _LONG_DEFAULTS
        text = f"steps, topk and draft tokens are unset: SGLang chooses {steps}, {topk}, {width} by the model's family"
        findings.append(Finding(INFO, "speculative-defaults", text))
    elif (
        algorithm in _STEPPED
        and (steps is None or topk is None or (topk > 1 and width is None))  # topk 1 alone sets the width itself
        and not any("$" in str(options.get(name)) for name in names)
    ):
        needed = names[:2] if topk in (None, 1) else names
        missing = ", ".join("--" + name for name in needed if options.get(name) is None)
        if missing:
            findings.append(
                Finding(ERROR, "speculative-options-incomplete", f"SGLang needs {missing} once one of them is given")
            )
    if topk == 1 and steps is not None and width != steps + 1:
        if width is not None:
            text = f"with topk 1 SGLang forces num_draft_tokens to num_steps + 1 = {steps + 1} (given: {width})"
            findings.append(
                Finding(WARNING, "num-draft-tokens-forced", text, f"--speculative-num-draft-tokens {steps + 1}")
            )
        width = steps + 1
    if steps is None and width is not None and algorithm not in _STEPPED:
        steps = width - 1  # block drafters are set by their width alone
    config |= {"num_steps": steps, "eagle_topk": topk, "num_draft_tokens": width, "num_speculative_tokens": steps}
