"""The launch text that turns speculation on, valid for exactly one engine version and ready to paste into a shell."""

import json
import shlex
from collections.abc import Mapping
from dataclasses import field
from typing import TypeAlias

from hwmodel.engine import methods
from hwmodel.engine.keys import accepted_keys
from hwmodel.engine.versions import Version, check_engine, format_version
from hwmodel.errors import InputError
from hwmodel.records import dataclass

PLACEHOLDER = "<draft model>"
_JSON_FIRST: Version = (0, 8, 2)  # before: one option per key
_SCHEDULE_FIRST: Version = (0, 24, 0)
_SCHEDULE_V2_FIRST: Version = (0, 25, 0)  # 0.24 sends a schedule to the V1 runner
_MTP_NAME: Version = (0, 11, 0)
_SCHEDULE_METHODS_V1 = frozenset({"ngram", "eagle", "eagle3", "mtp", "draft_model", "dflash"})
_DEFAULT_LOOKUP = 5  # vLLM 0.8.5 ... 0.33, both ends, when neither is given
_LOOKUP_METHODS = frozenset({"ngram", "ngram_gpu"})
_SGLANG_ALGORITHMS = {
    "ngram": "NGRAM",
    "eagle": "EAGLE",
    "eagle3": "EAGLE3",
    "mtp": "NEXTN",
    "draft_model": "STANDALONE",
    "dflash": "DFLASH",
    "dspark": "DSPARK",
}
_SGLANG_STEPPED = frozenset({"eagle", "eagle3", "mtp", "draft_model"})
# What a choice decides by itself: a launch's own value for one of these never comes back.
_CHOICE_KEYS = frozenset(
    {
        "method",
        "model",
        "num_speculative_tokens",
        "prompt_lookup_min",
        "prompt_lookup_max",
        "draft_tensor_parallel_size",
        "num_speculative_tokens_per_batch_size",
        "parallel_drafting",
    }
)

Range: TypeAlias = tuple[int, int, int]  # first and last batch size, draft tokens


@dataclass(frozen=True, slots=True)
class SpeculativeChoice:
    """What is to be switched on; `None` leaves a key to the engine or, for n-gram, to its default written out.

    `launch_config` is the speculative config of the launch that is to be changed: the drafter it names, and its keys
    that no field here decides, are kept. `sglang_topk` above 1 asks for a tree, of `sglang_num_draft_tokens` nodes.
    """

    method: str
    num_speculative_tokens: int
    draft_model: str | None = None
    prompt_lookup_min: int | None = None
    prompt_lookup_max: int | None = None
    draft_tensor_parallel_size: int | None = None
    tensor_parallel_size: int = 1
    data_parallel_size: int = 1
    schedule: tuple[Range, ...] = ()
    parallel_drafting: bool = False
    model_runner: str | None = None  # as `EngineMode.model_runner`, when it is known
    n_predict: int | None = None
    launch_config: Mapping[str, object] = field(default_factory=dict)
    sglang_topk: int = 1
    sglang_num_draft_tokens: int | None = None

    @property
    def drafter(self) -> str | None:
        """The name of the drafter: as chosen, else as the launch has it."""
        launched = self.launch_config.get("model")
        return self.draft_model or (launched if isinstance(launched, str) and launched else None)


@dataclass(frozen=True, slots=True)
class Flag:
    """Text to append to the launch command, empty for no speculation, and sentences on it."""

    text: str
    notes: tuple[str, ...]


def speculative_flag(engine: str, version: Version, choice: SpeculativeChoice) -> Flag:
    """The launch text for the choice; raises InputError with the reason where that version would refuse it."""
    engine = check_engine(engine)
    methods.canonical_method(choice.method)
    _check_draft_model(choice.drafter)
    k = choice.num_speculative_tokens
    if choice.method == "none" or k == 0:
        return Flag("", ("no speculation: launch without any speculative option",))
    findings = methods.check_method(
        engine,
        version,
        choice.method,
        k,
        tensor_parallel_size=choice.tensor_parallel_size,
        draft_tensor_parallel_size=choice.draft_tensor_parallel_size,
        n_predict=choice.n_predict,
    )
    for finding in findings:
        if finding.severity == "error":
            raise InputError(finding.text)
    notes = [finding.text for finding in findings]
    if engine == "sglang":
        return _sglang_flag(version, choice, notes)
    if version < _JSON_FIRST:
        return _legacy_flag(version, choice, notes)
    config = _vllm_config(version, choice, notes) | _kept(version, choice, notes)
    return Flag(f"--speculative-config {shlex.quote(json.dumps(config))}", tuple(notes))


def schedule_refusal(
    engine: str, version: Version, method: str, model_runner: str | None, data_parallel_size: int
) -> str | None:
    """Why that engine would not follow num_speculative_tokens_per_batch_size, `None` where it does.

    `model_runner` is as in `EngineMode`, None where it is not known.
    """
    if check_engine(engine) == "sglang":
        return "SGLang has no schedule by batch size; --speculative-adaptive changes the length by itself"
    label = f"vLLM {format_version(version)}"
    if version < _SCHEDULE_FIRST:
        return f"{label} has no draft length by batch size (num_speculative_tokens_per_batch_size came with 0.24)"
    if data_parallel_size > 1:
        return f"{label} ignores num_speculative_tokens_per_batch_size with data parallelism"
    if method not in _SCHEDULE_METHODS_V1 and _schedule_runner(version, model_runner) != "v2":
        return f"{label} ignores num_speculative_tokens_per_batch_size for {method} on the V1 model runner"
    return None


def _schedule_runner(version: Version, model_runner: str | None) -> str | None:
    """The runner that a launch with a schedule gets."""
    return "v1" if version < _SCHEDULE_V2_FIRST else model_runner


def _check_draft_model(name: str | None) -> None:
    """A name goes into a command: it must not break the line or look like an option."""
    if name is not None and (not name.isprintable() or name.startswith("-")):
        raise InputError(
            f"draft model: got {name[:60]!r}, allowed are a repository name or a path, printable characters"
        )


def _vllm_config(version: Version, choice: SpeculativeChoice, notes: list[str]) -> dict[str, object]:
    config: dict[str, object] = {"method": _vllm_method(version, choice.method)}
    model = _model(choice, notes)
    if model is not None:
        config["model"] = model
    config["num_speculative_tokens"] = choice.num_speculative_tokens
    if choice.method in _LOOKUP_METHODS:
        config["prompt_lookup_min"], config["prompt_lookup_max"] = _lookup(choice, notes)
    if choice.draft_tensor_parallel_size is not None and choice.method in methods.DRAFTER_TP_METHODS:
        config["draft_tensor_parallel_size"] = choice.draft_tensor_parallel_size
    if _drafts_in_parallel(version, choice):
        config["parallel_drafting"] = True
    schedule = _schedule(version, choice, notes)
    if schedule:
        config["num_speculative_tokens_per_batch_size"] = schedule
    return config


def _kept(version: Version, choice: SpeculativeChoice, notes: list[str]) -> dict[str, object]:
    """The launch's own keys that the choice says nothing about, as far as that version takes them."""
    accepted = accepted_keys(version)
    kept, dropped = {}, []
    for key, value in choice.launch_config.items():
        if key in accepted and key not in _CHOICE_KEYS:
            kept[key] = value
        elif key not in accepted:
            dropped.append(key)
    if dropped:
        notes.append(
            f"left out of the launch's speculative config: {', '.join(dropped)}; "
            f"vLLM {format_version(version)} does not take {'them' if len(dropped) > 1 else 'it'}"
        )
    return kept


def _vllm_method(version: Version, method: str) -> str:
    if method == "p_eagle":
        return "eagle3"
    return "deepseek_mtp" if method == "mtp" and version < _MTP_NAME else method


def _drafts_in_parallel(version: Version, choice: SpeculativeChoice) -> bool:
    if choice.method == "p_eagle":
        return True
    if choice.method not in {"eagle3", "draft_model"}:
        return False
    if not choice.parallel_drafting:
        return choice.launch_config.get("parallel_drafting") is True and "parallel_drafting" in accepted_keys(version)
    if methods.check_method("vllm", version, "p_eagle", choice.num_speculative_tokens):
        raise InputError(f"parallel_drafting: vLLM {format_version(version)} lacks it, allowed from 0.16")
    return True


def _model(choice: SpeculativeChoice, notes: list[str]) -> str | None:
    """The drafter to name, `None` where the method needs none or takes the target's own."""
    if choice.method not in methods.MODEL_METHODS:
        return choice.drafter if choice.method == "mtp" else None
    if choice.drafter:
        return choice.drafter
    notes.append(f"{choice.method} needs a draft model and none is given: replace {PLACEHOLDER} before launching")
    return PLACEHOLDER


def _lookup(choice: SpeculativeChoice, notes: list[str]) -> tuple[int, int]:
    """(min, max) n-gram lengths as the engine would take them, written out so that nothing is left to its default."""
    low, high = choice.prompt_lookup_min, choice.prompt_lookup_max
    for name, value in (("prompt_lookup_min", low), ("prompt_lookup_max", high)):
        if value is not None and value < 1:
            raise InputError(f"{name}: got {value}, allowed are whole numbers of at least 1")
    if low is None and high is None:
        return _DEFAULT_LOOKUP, _DEFAULT_LOOKUP
    if low is None and high is not None:
        notes.append(
            f"prompt_lookup_min is written out as {high}: vLLM sets it to prompt_lookup_max when only that is given, "
            f"so only {high}-token matches draft; a smaller value drafts more often"
        )
        return high, high
    if low is not None and high is None:
        return low, low
    assert low is not None
    assert high is not None
    if low > high:
        raise InputError(f"prompt_lookup_min: got {low}, allowed is at most prompt_lookup_max, {high}")
    return low, high


def _schedule(version: Version, choice: SpeculativeChoice, notes: list[str]) -> list[list[int]]:
    """The per-batch-size draft lengths where they take effect, otherwise none and a note that says why."""
    if not choice.schedule:
        return []
    _check_schedule(choice.schedule)
    refusal = schedule_refusal("vllm", version, choice.method, choice.model_runner, choice.data_parallel_size)
    if refusal:
        notes.append(f"the schedule is left out: {refusal}")
        return []
    label, runner = f"vLLM {format_version(version)}", _schedule_runner(version, choice.model_runner)
    if runner != "v2":
        notes.append(
            f"{label} on the V1 model runner forces piecewise CUDA graphs when a schedule is given"
            + ("" if runner == "v1" else "; full graphs need VLLM_USE_V2_MODEL_RUNNER=1")
        )
    notes.append("the batch size of the schedule counts all scheduled requests of a step, those in prefill included")
    return [[low, high, min(k, choice.num_speculative_tokens)] for low, high, k in choice.schedule]


def _check_schedule(schedule: tuple[Range, ...]) -> None:
    expected = "ascending ranges [first, last, k] from batch size 1 on that do not overlap, k at least 0"
    last = 0
    for index, (low, high, k) in enumerate(schedule):
        starts = low == 1 if index == 0 else low > last
        if not starts or high < low or k < 0:
            raise InputError(f"schedule: got [{low}, {high}, {k}], allowed are {expected}")
        last = high


def _legacy_flag(version: Version, choice: SpeculativeChoice, notes: list[str]) -> Flag:
    """Options of vLLM up to 0.8.1; a DeepSeek-V3 checkpoint drafts with its MTP layer when no model is named."""
    words = []
    model = "[ngram]" if choice.method == "ngram" else _model(choice, notes)
    if model is not None:
        words += ["--speculative-model", shlex.quote(model)]
    words += ["--num-speculative-tokens", str(choice.num_speculative_tokens)]
    if choice.method == "ngram":
        low, high = _lookup(choice, notes)
        words += ["--ngram-prompt-lookup-max", str(high), "--ngram-prompt-lookup-min", str(low)]
    if choice.draft_tensor_parallel_size is not None and choice.method in methods.DRAFTER_TP_METHODS:
        words += ["--speculative-draft-tensor-parallel-size", str(choice.draft_tensor_parallel_size)]
    _schedule(version, choice, notes)  # only for its note
    dropped = [key for key in choice.launch_config if key not in _CHOICE_KEYS]
    if dropped:
        notes.append(f"left out of the launch's speculative config: {', '.join(dropped)}; add their options by hand")
    return Flag(" ".join(words), tuple(notes))


def _sglang_flag(version: Version, choice: SpeculativeChoice, notes: list[str]) -> Flag:
    k, method = choice.num_speculative_tokens, choice.method
    words = ["--speculative-algorithm", _SGLANG_ALGORITHMS[method]]
    model = _model(choice, notes)
    if model is not None:
        words += ["--speculative-draft-model-path", shlex.quote(model)]
    topk, num_draft_tokens = _sglang_tree(choice, notes)
    if method in _SGLANG_STEPPED:
        words += ["--speculative-num-steps", str(k), "--speculative-eagle-topk", str(topk)]
    words += ["--speculative-num-draft-tokens", str(num_draft_tokens)]
    if method in _LOOKUP_METHODS:
        label = f"SGLang {format_version(version)}"
        notes.append(f"{label}: n-gram drafts are trees from a cache over all requests; lookup lengths do not apply")
    if choice.schedule:
        refusal = schedule_refusal("sglang", version, method, choice.model_runner, choice.data_parallel_size)
        notes.append(f"the schedule is left out: {refusal}")
    return Flag(" ".join(words), tuple(notes))


def _sglang_tree(choice: SpeculativeChoice, notes: list[str]) -> tuple[int, int]:
    """(branches per node, tokens verified in a step): a chain unless a tree is asked for and the method grows one.

    A tree has at most 1 + topk + (k - 1) topk^2 nodes: the root, the first branches, then topk of each of topk.
    Source: sglang/srt/speculative/eagle_utils.py 0.5.5, whose selection fails when it is asked for more.
    """
    k, topk, wanted = choice.num_speculative_tokens, choice.sglang_topk, choice.sglang_num_draft_tokens
    if topk <= 1 or choice.method not in _SGLANG_STEPPED:
        return 1, k + 1
    if wanted is None:
        raise InputError(
            f"sglang_num_draft_tokens: missing beside sglang_topk = {topk}, needed: the nodes of the tree to verify"
        )
    most = 1 + topk + (k - 1) * topk**2
    if wanted > most:
        notes.append(f"--speculative-num-draft-tokens is {most} instead of {wanted}: a tree of depth {k} has no more")
    return topk, min(wanted, most)
