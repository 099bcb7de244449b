"""The vocabulary of drafting methods, and what a version of an engine says to one.

Sources: vllm/config/speculative.py 0.8.5 ... 0.33.0 and the ends of each row; sglang 0.5.5 and 0.5.23.
"""

from hwmodel.engine.names import unknown_name
from hwmodel.engine.versions import Rows, Version, at_version, check_engine, format_version
from hwmodel.errors import InputError
from hwmodel.records import dataclass

_DESCRIPTIONS = {
    "none": "no speculation: the baseline",
    "ngram": "copies what followed the same last tokens earlier in the request; no model, no weights",
    "ngram_gpu": "the n-gram search on the GPU, compatible with async scheduling",
    "suffix": "suffix trees over the request and earlier responses; variable draft length, no model",
    "eagle": "EAGLE head: one small layer on the target's hidden states, one pass a draft token",
    "eagle3": "EAGLE-3 head: as EAGLE, on hidden states of three depths, usually with a reduced vocabulary",
    "mtp": "the multi-token-prediction layers that the checkpoint itself brings",
    "draft_model": "a separate small model with the target's vocabulary",
    "dflash": "block-diffusion drafter: all draft tokens in one pass",
    "dspark": "semi-autoregressive block drafter with a confidence head: all draft tokens in one pass",
    "p_eagle": "EAGLE-3 head trained to draft all tokens in one pass (parallel drafting)",
    "medusa": "independent heads on the target's last hidden state",
    "mlp_speculator": "small MLP heads on the target's last hidden state and the sampled tokens",
}
MODEL_METHODS = frozenset({"eagle", "eagle3", "draft_model", "dflash", "dspark", "p_eagle", "medusa", "mlp_speculator"})
DRAFTER_TP_METHODS = (MODEL_METHODS | {"mtp"}) - {"mlp_speculator"}

# Values: "" works, otherwise why not.
_VLLM_SUPPORT: dict[str, Rows[str]] = {
    "ngram_gpu": [(None, (0, 17, 99), "it came with 0.18"), (None, None, "")],
    "suffix": [(None, (0, 11, 1), "it came with 0.11.2"), (None, None, "")],
    "eagle": [(None, (0, 8, 4), "it came with 0.8.5"), (None, None, "")],
    "eagle3": [(None, (0, 8, 4), "it came with 0.8.5"), (None, None, "")],
    "draft_model": [
        (None, (0, 9, 99), ""),  # V0 engine
        (None, (0, 15, 99), "0.10 to 0.15 refuse it as not supported yet"),
        (None, None, ""),
    ],
    "medusa": [(None, (0, 32, 99), ""), (None, None, "it was removed in 0.33")],
    "mlp_speculator": [(None, (0, 32, 99), ""), (None, None, "it was removed in 0.33")],
    "dflash": [(None, (0, 19, 99), "it came with 0.20"), (None, None, "")],
    "dspark": [(None, (0, 24, 99), "it came with 0.25"), (None, None, "")],
    "p_eagle": [(None, (0, 15, 99), "parallel drafting came with 0.16"), (None, None, "")],
}
_NO_SGLANG = "SGLang has no such algorithm"
_SGLANG_SUPPORT: dict[str, Rows[str]] = {
    "ngram_gpu": [(None, None, _NO_SGLANG)],
    "suffix": [(None, None, _NO_SGLANG)],
    "p_eagle": [(None, None, _NO_SGLANG)],
    "medusa": [(None, None, _NO_SGLANG)],
    "mlp_speculator": [(None, None, _NO_SGLANG)],
    "dflash": [(None, (0, 5, 5), "0.5.5 does not have it, 0.5.23 does"), (None, None, "")],
    "dspark": [(None, (0, 5, 5), "0.5.5 does not have it, 0.5.23 does"), (None, None, "")],
}
_SUPPORT = {"vllm": _VLLM_SUPPORT, "sglang": _SGLANG_SUPPORT}
_SGLANG_SURE: Version = (0, 5, 23)  # block drafters are known to be there; between it and 0.5.5 nobody looked
_MTP_NAME: Version = (0, 11, 0)  # before: one alias per architecture
_V1_SPECULATION: Version = (0, 9, 0)
PIPELINE = "speculation-with-pipeline"  # code of the finding about both together
# vLLM's docs: "not composible as of vllm<=0.15.0"; later versions do not say so, but issues 52069 (0.26), 57755 (0.29).
_VLLM_REFUSES_PIPELINE: Version = (0, 15, 0)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong with, or surprising about, a choice. `severity` is "error", "warning" or "info"."""

    severity: str
    code: str
    text: str


def method_names() -> dict[str, str]:
    """Every drafting method with a one-line description."""
    return dict(_DESCRIPTIONS)


def canonical_method(name: str) -> str:
    """The method's name as given; raises UnknownNameError for one that is in no vocabulary."""
    if name in _DESCRIPTIONS:
        return name
    raise unknown_name("speculation method", name, _DESCRIPTIONS)


def check_method(  # noqa: PLR0913  (what an operator writes, each thing on its own)
    engine: str,
    version: Version,
    method: str,
    k: int,
    *,
    tensor_parallel_size: int = 1,
    draft_tensor_parallel_size: int | None = None,
    n_predict: int | None = None,
    pipeline_parallel_size: int = 1,
) -> tuple[Finding, ...]:
    """What that version says to drafting `k` tokens with the method; errors are refused at start, or silently not done.

    `n_predict` is the number of MTP modules of the drafter, `None` where it is not known. Raises nothing.
    """
    try:
        engine = check_engine(engine)
        canonical_method(method)
    except InputError as error:
        return (Finding("error", "unknown-name", str(error)),)
    if k < 0:
        return (Finding("error", "negative-draft-length", f"num_speculative_tokens: got {k}, allowed are 0 and more"),)
    if method == "none" or k == 0:
        return ()
    findings = [_support_finding(engine, version, method), _sglang_unsure(engine, version, method)]
    findings.append(_pipeline_finding(engine, version, pipeline_parallel_size))
    if engine == "vllm":
        findings += _vllm_findings(version, method)
        findings += _draft_length_findings(version, method, k, n_predict)
        findings.append(_draft_tp_finding(version, method, tensor_parallel_size, draft_tensor_parallel_size))
    return tuple(finding for finding in findings if finding is not None)


def _support_finding(engine: str, version: Version, method: str) -> Finding | None:
    rows = _SUPPORT[engine].get(method)
    reason = at_version(rows, version) if rows is not None else ""
    if not reason:
        return None
    return Finding("error", "method-not-supported", f"{_label(engine, version)} cannot use {method}: {reason}")


def _pipeline_finding(engine: str, version: Version, pipeline: int) -> Finding | None:
    """Drafts over several pipeline stages: SGLang asserts against it at start, vLLM is not known to run it."""
    if pipeline <= 1:
        return None
    label = _label(engine, version)
    if engine == "sglang":
        text = f"{label} refuses to start with speculation and pipeline parallelism together"
        return Finding("error", PIPELINE, text)
    if version <= _VLLM_REFUSES_PIPELINE:
        return Finding("error", PIPELINE, f"{label} cannot speculate with pipeline parallelism")
    text = f"{label}: speculation with pipeline parallelism is not known to start (vllm issues 52069, 57755)"
    return Finding("warning", PIPELINE, text)


def _sglang_unsure(engine: str, version: Version, method: str) -> Finding | None:
    if engine != "sglang" or method not in {"dflash", "dspark"} or not (0, 5, 5) < version < _SGLANG_SURE:
        return None
    text = f"{_label(engine, version)} may lack {method}: 0.5.5 does, 0.5.23 has it, the versions between were not read"
    return Finding("warning", "method-not-verified", text)


def _label(engine: str, version: Version) -> str:
    return f"{'vLLM' if engine == 'vllm' else 'SGLang'} {format_version(version)}"


def _vllm_findings(version: Version, method: str) -> list[Finding | None]:
    label = _label("vllm", version)
    findings: list[Finding | None] = []
    if method == "mtp" and version < _MTP_NAME:
        text = f"{label} has no method 'mtp': it takes one alias per architecture, such as deepseek_mtp"
        findings.append(Finding("warning", "mtp-alias", text))
    if method == "suffix":
        text = f"{label} needs the package arctic-inference==0.1.1 for suffix decoding and refuses to start without it"
        findings.append(Finding("warning", "needs-package", text))
    if version < _V1_SPECULATION:
        text = f"{label} falls back to the V0 engine with speculation unless VLLM_USE_V1=1 is set; metrics differ"
        findings.append(Finding("warning", "falls-back-to-v0", text))
    if method == "eagle3" and version < (0, 12, 0):
        text = f"{label} accepts EAGLE-3 for few target architectures (0.8.5 Llama; 0.11 also Qwen, MiniCPM, gpt-oss)"
        findings.append(Finding("warning", "eagle3-target-list", text))
    return findings


def _draft_length_findings(version: Version, method: str, k: int, n_predict: int | None) -> list[Finding | None]:
    if n_predict is None or n_predict < 1 or k <= n_predict or method not in DRAFTER_TP_METHODS:
        return []
    if k % n_predict:
        text = f"{_label('vllm', version)}: num_speculative_tokens={k} must be divisible by n_predict={n_predict}"
        return [Finding("error", "draft-length-not-divisible", text)]
    if method != "mtp":
        return []
    text = (
        f"{_label('vllm', version)}: {k} draft tokens with {n_predict} MTP layer{'s' if n_predict > 1 else ''}: the "
        f"later ones re-run the same layers, so acceptance drops"
    )
    return [Finding("warning", "mtp-layer-reused", text)]


def _draft_tp_finding(version: Version, method: str, tp: int, draft_tp: int | None) -> Finding | None:
    if draft_tp is None or draft_tp in (1, tp):
        return None
    if method not in MODEL_METHODS | {"mtp"}:
        return None
    label = _label("vllm", version)
    text = f"{label}: draft_tensor_parallel_size: got {draft_tp}, allowed are 1 and the target's {tp}"
    return Finding("error", "draft-tensor-parallel-size", text)
