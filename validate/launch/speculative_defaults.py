"""What vLLM fills in for a speculative configuration, by version, and the combinations that it refuses."""

from typing import Any, Protocol

from hwmodel.engine.keys import KEYS, accepted_keys
from hwmodel.engine.methods import check_method, method_names
from hwmodel.engine.versions import Rows, Version, at_version
from validate.launch.findings import ERROR, INFO, WARNING, Place
from validate.launch.json_value import UNKNOWN, corrected
from validate.launch.model_facts import ModelFacts
from validate.launch.settings import Settings
from validate.launch.speculative_keys import MTP_ALIASES, MTP_FIRST, OTHER_METHODS

_LOOKUP_METHODS = frozenset(("ngram", "ngram_gpu"))
_NO_MODEL_METHODS = _LOOKUP_METHODS | {"suffix"}
# Methods for which nothing else supplies the number of draft tokens. Source: vllm/config/speculative.py, error text.
_NEEDS_LENGTH = _LOOKUP_METHODS | {"mtp", "eagle", "eagle3", "draft_model"}
_NEEDS_MODEL = frozenset(
    ("eagle", "eagle3", "draft_model", "medusa", "mlp_speculator", "dflash", "dspark", "custom_class")
)
_DEFAULT_LOOKUP = 5  # both ends when neither is given, 0.8.5 ... 0.33.0
_JSON_FIRST: Version = (0, 8, 2)  # before: the first engine's options, with the lookup minimum 1 and no default maximum
_SUFFIX_DEFAULTS: dict[str, Any] = {
    "suffix_decoding_max_tree_depth": 24,
    "suffix_decoding_max_cached_requests": 10000,
    "suffix_decoding_max_spec_factor": 1.0,
    "suffix_decoding_min_token_prob": 0.1,
}
_REJECTION: Rows[str | None] = [(None, (0, 17, 99), None), (None, (0, 20, 99), "strict"), (None, None, "standard")]
_DRAFT_SAMPLING: Rows[str | None] = [(None, (0, 20, 99), None), (None, None, "greedy")]
_MAX_SHOWN_LENGTH = 60


class Case(Protocol):
    """What `speculative.Speculation` offers: version, settings, and a place for findings."""

    place: Place
    version: Version
    settings: Settings
    model: ModelFacts

    def add(self, severity: str, code: str, message: str, fix: str | None = None) -> None:
        """Record one finding."""

    @property
    def label(self) -> str:
        """The version for messages."""


def fill_defaults(case: Case, written: dict[str, Any]) -> dict[str, Any]:
    """The configuration with method, lengths and defaults as the engine sees them after start."""
    config = {key: value for key, value in written.items() if value is not None}
    for key in [key for key, value in config.items() if value == UNKNOWN]:
        config[key] = None  # only the environment knows it
    method = _method(case, config)
    result: dict[str, Any] = {"method": method} | {key: value for key, value in config.items() if key != "method"}
    _whole_numbers(case, result)
    _model(case, result, method, written.get("method"))
    _lengths(case, result, method)
    if method in _LOOKUP_METHODS:
        _lookup(case, result)
    elif method not in _NO_MODEL_METHODS:
        _draft_parallelism(case, result, method)
    for key, rows in (("rejection_sample_method", _REJECTION), ("draft_sample_method", _DRAFT_SAMPLING)):
        default = at_version(rows, case.version)
        if default is not None:
            result.setdefault(key, default)
    _schedule(case, result)
    _supported(case, result, method)
    return result


def _method(case: Case, config: dict[str, Any]) -> str:
    """The method given, or the one that the engine infers from the draft's name."""
    given = config.get("method")
    model = config.get("model")
    if given is None:
        return _inferred(case, model if isinstance(model, str) else None)
    name = given if isinstance(given, str) else repr(given)
    if name in MTP_ALIASES:
        if case.version < MTP_FIRST:
            return name
        case.add(WARNING, "method-alias", f"method '{name}' is deprecated and replaced with mtp", '"method": "mtp"')
        return "mtp"
    if name == "[ngram]":
        return "ngram"
    known = (set(method_names()) - {"none", "p_eagle"}) | set(OTHER_METHODS)
    if name not in known:
        case.add(
            ERROR,
            "unknown-method",
            f"method '{name[:_MAX_SHOWN_LENGTH]}' is none that vLLM has; known: {', '.join(sorted(known))}",
        )
    first = OTHER_METHODS.get(name)
    if first is not None and case.version < first:
        case.add(ERROR, "method-not-supported", f"{case.label} has no method {name}")
    return name


def _inferred(case: Case, model: str | None) -> str:
    if model in ("ngram", "[ngram]"):
        return "ngram"
    if model is None:
        case.add(
            ERROR,
            "method-missing",
            "neither method nor model is given: num_speculative_tokens was provided but without speculative model",
        )
        return "draft_model"
    name = model.lower()
    method = "eagle3" if "eagle3" in name else "eagle" if "eagle-" in name else "draft_model"
    how = (
        f"no method is given: taken as {method} from the draft's name; the engine also looks at the draft's config.json"
    )
    case.add(INFO, "method-inferred", how, f'"method": "{method}"')
    return method


def _whole_numbers(case: Case, config: dict[str, Any]) -> None:
    """Keys that must be whole numbers of at least 1; a text of digits is accepted by the engine's validation."""
    for key in (
        "num_speculative_tokens",
        "prompt_lookup_min",
        "prompt_lookup_max",
        "draft_tensor_parallel_size",
        "max_model_len",
    ):
        value = config.get(key)
        if value is None:
            continue
        if isinstance(value, str) and value.isascii() and value.isdigit():
            value = int(value)
        whole = (isinstance(value, int) and not isinstance(value, bool)) or (
            isinstance(value, float) and value.is_integer()
        )
        if not whole or value < 1:
            case.add(
                ERROR,
                "invalid-value",
                f"{key}: got {str(value)[:_MAX_SHOWN_LENGTH]!r}, a whole number of at least 1 is needed",
            )
            config[key] = None
        else:
            config[key] = int(value)


def _model(case: Case, config: dict[str, Any], method: str, written_method: object) -> None:
    model = config.get("model")
    if method == "mtp" or method in MTP_ALIASES:
        if model is None and case.settings.model:
            config["model"] = case.settings.model
    elif method in _NEEDS_MODEL and model is None and "model" not in config and written_method is not None:
        message = f"method {method} needs a draft: num_speculative_tokens was provided but without speculative model"
        case.add(ERROR, "draft-model-missing", message, '"model": "<draft model>"')


def _lengths(case: Case, config: dict[str, Any], method: str) -> None:
    if method == "suffix":
        for key, value in _SUFFIX_DEFAULTS.items():
            config.setdefault(key, value)
        config.setdefault("num_speculative_tokens", config["suffix_decoding_max_tree_depth"])
    elif "num_speculative_tokens" not in config and (method in _NEEDS_LENGTH or method in MTP_ALIASES):
        message = (
            "num_speculative_tokens must be provided with speculative model unless the draft "
            "model config contains an n_predict parameter"
        )
        case.add(
            ERROR,
            "num-speculative-tokens-missing",
            f"{message} (method {method} has no default)",
            '"num_speculative_tokens": 3',
        )


def _lookup(case: Case, config: dict[str, Any]) -> None:
    """prompt_lookup_min and _max: each takes the other's value when it is missing, 5 and 5 when both are."""
    low, high = config.get("prompt_lookup_min"), config.get("prompt_lookup_max")
    if case.version < _JSON_FIRST:
        if high is None:
            case.add(
                ERROR,
                "prompt-lookup-max-missing",
                f"{case.label} needs --ngram-prompt-lookup-max",
                "--ngram-prompt-lookup-max 4",
            )
        config["prompt_lookup_min"], config["prompt_lookup_max"] = low or 1, high
    elif "prompt_lookup_min" not in config and "prompt_lookup_max" not in config:
        config |= {"prompt_lookup_min": _DEFAULT_LOOKUP, "prompt_lookup_max": _DEFAULT_LOOKUP}
        message = (
            f"neither prompt_lookup_min nor _max is given: both are {_DEFAULT_LOOKUP}, only "
            f"repeats of {_DEFAULT_LOOKUP} tokens are found"
        )
        case.add(WARNING, "prompt-lookup-defaulted", message, _with(case, config, "prompt_lookup_min", 2))
    elif "prompt_lookup_min" not in config:
        config["prompt_lookup_min"] = high
        if high is not None and high > 1:
            message = (
                f"prompt_lookup_min becomes {high} (= prompt_lookup_max), not 1: only "
                f"repeats of {high} tokens are found"
            )
            case.add(WARNING, "prompt-lookup-min-defaulted", message, _with(case, config, "prompt_lookup_min", 2))
    elif "prompt_lookup_max" not in config:
        config["prompt_lookup_max"] = low
        case.add(INFO, "prompt-lookup-max-defaulted", f"prompt_lookup_max becomes {low} (= prompt_lookup_min)")
    low, high = config.get("prompt_lookup_min"), config.get("prompt_lookup_max")
    if isinstance(low, int) and isinstance(high, int) and low > high:
        message = f"prompt_lookup_min={low} must be <= prompt_lookup_max={high}"
        fix = _with(case, config | {"prompt_lookup_max": low}, "prompt_lookup_min", high)
        case.add(ERROR, "prompt-lookup-order", message, fix)


def _with(case: Case, config: dict[str, Any], key: str, value: Any) -> str:
    """The option with one key set, and without the keys that the version refuses: pasted, it must start."""
    refused = (KEYS.keys() - accepted_keys(case.version)) | {"tensor_parallel_size"}
    kept = {name: item for name, item in config.items() if item is not None and name not in refused}
    return corrected(case.place, kept | {key: value})


def _draft_parallelism(case: Case, config: dict[str, Any], method: str) -> None:
    target = case.settings.tensor_parallel_size or 1
    given = config.get("draft_tensor_parallel_size")
    if given is None:
        known = None if "tensor_parallel_size" in case.settings.unresolved else target
        config["draft_tensor_parallel_size"] = 1 if method == "mlp_speculator" else known
    elif given not in (1, target) and "tensor_parallel_size" not in case.settings.unresolved:
        message = (
            f"draft_tensor_parallel_size={given} cannot be other value than 1 or target "
            f"model tensor_parallel_size ({target})"
        )
        case.add(ERROR, "draft-tensor-parallel-size", message)


def _schedule(case: Case, config: dict[str, Any]) -> None:
    """num_speculative_tokens_per_batch_size: inclusive ranges, sorted, from 1, without overlap."""
    schedule = config.get("num_speculative_tokens_per_batch_size")
    if schedule is None:
        return
    fault = _schedule_fault(schedule)
    if fault:
        case.add(
            ERROR, "schedule-invalid", f"num_speculative_tokens_per_batch_size: {fault}", "[[1, 64, 3], [65, 512, 0]]"
        )


def _schedule_fault(schedule: Any) -> str:
    if not isinstance(schedule, list) or not schedule:
        return "a list of [first, last, tokens] is needed"
    expected = 1
    for number, item in enumerate(schedule):
        if not isinstance(item, list) or len(item) != 3 or not all(type(part) is int for part in item):
            return f"entry {number + 1} is no [first, last, tokens] of whole numbers"
        first, last, tokens = item
        if (number == 0 and first != 1) or first < expected or last < first or tokens < 0:
            return f"entry {number + 1}, {item}: ranges must start at 1, be sorted, not overlap, and have tokens >= 0"
        expected = last + 1
    return ""


def _supported(case: Case, config: dict[str, Any], method: str) -> None:
    """What the version says to the method, from the facts of `hwmodel.engine`."""
    if method not in method_names():
        return
    asked = "p_eagle" if method == "eagle3" and config.get("parallel_drafting") is True else method
    length = config.get("num_speculative_tokens")
    count = length if isinstance(length, int) else 1
    stages, layers = case.settings.pipeline_parallel_size or 1, case.model.num_mtp_layers or None
    for fact in check_method("vllm", case.version, asked, count, n_predict=layers, pipeline_parallel_size=stages):
        if fact.code == "falls-back-to-v0" and case.settings.model_runner == "v1":
            continue
        severity = INFO if fact.code == "needs-package" else fact.severity
        case.add(severity, fact.code, fact.text)
