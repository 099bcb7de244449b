"""The storage format of every module of a checkpoint, from its `quantization_config`.

`Quantization.format_of` answers for a module name such as `model.layers.3.mlp.experts.0.up_proj`; one parser for
each `quant_method` builds it. Formats: the configs of the methods as Transformers and vLLM read them.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from hwmodel.hf.expressions import PatternError
from hwmodel.hf.fields import Fields, shown
from hwmodel.hf.formats import (
    FP8_CHANNEL,
    FP8_TENSOR,
    MXFP4,
    MXFP8,
    NVFP4,
    WeightFormat,
    fp8_block,
    integer_format,
)
from hwmodel.hf.patterns import Matcher, matcher

_LM_HEAD = "lm_head"
_EXPERTS = ".experts."
_DEFAULT_GROUP = 128  # AWQ, GPTQ and ModelOpt INT4 checkpoints without the key
_PER_CHANNEL = -1
_UNQUANTIZED_BITS = 16  # AutoRound writes this for modules that it leaves alone
_NEVER: Matcher = matcher(())


class Quantization(NamedTuple):
    """Formats by module: the first of *rules* that names a module, unless *ignored* does.

    `plain` is the format of what is not quantized: embeddings, norms and routers always.
    """

    label: str
    plain: WeightFormat
    rules: tuple[tuple[Matcher, WeightFormat | None], ...] = ()
    ignored: Matcher = _NEVER
    quantizes_head: bool = False
    experts: WeightFormat | None = None  # routed experts that are stored differently from what the method says

    def format_of(self, module: str) -> WeightFormat:
        """The storage format of the linear layer called *module*."""
        if self.experts is not None and _EXPERTS in module:
            return self.experts
        if not self.rules or (module == _LM_HEAD and not self.quantizes_head) or self.ignored(module):
            return self.plain
        for names, stored in self.rules:
            if names(module):
                return stored or self.plain
        return self.plain


def read_quantization(fields: Fields, plain: WeightFormat, table: Mapping[str, Any]) -> Quantization:
    """The quantization that *table* (a `quantization_config`, empty for none) describes.

    Also takes the table of an older `hf_quant_config.json`, which nests it under `quantization`.
    """
    if not table:
        return Quantization(plain.name, plain)
    inner = table.get("quantization")
    merged = {**table, **inner} if isinstance(inner, Mapping) else table
    keys = Fields(merged, fields.model, fields.assumptions)
    method = keys.text("quant_method").lower() or ("modelopt" if keys.has("quant_algo") else "")
    parser = _PARSERS.get(method)
    if parser is None:
        got = shown(method) if method else "no quant_method"
        raise fields.fail(f"quantization_config has {got}; allowed: {', '.join(sorted(_PARSERS))}")
    try:
        return parser(keys, plain)
    except PatternError as error:
        raise fields.fail(f"quantization_config: {error}") from None


def _everything(_: str) -> bool:
    return True


def _only_experts(module: str) -> bool:
    return _EXPERTS in module


def _ignored(keys: Fields) -> Matcher:
    names = (
        "ignore",
        "modules_to_not_convert",
        "ignored_layers",
        "exclude_modules",
        "exclude",
        "llm_int8_skip_modules",
    )
    return matcher([pattern for name in names for pattern in keys.texts(name)])


def _single(keys: Fields, plain: WeightFormat, stored: WeightFormat) -> Quantization:
    return Quantization(stored.name, plain, ((_everything, stored),), _ignored(keys))


def _fp8(keys: Fields, plain: WeightFormat) -> Quantization:
    block = keys.integers("weight_block_size", low=1)
    if not block:
        return _single(keys, plain, FP8_TENSOR)
    if len(block) != len(("outputs", "inputs")):
        raise keys.fail(f"weight_block_size is {shown(block)}; allowed: two whole numbers")
    return _single(keys, plain, fp8_block(block[0], block[1]))


def _mxfp4(keys: Fields, plain: WeightFormat) -> Quantization:
    # Transformers and vLLM convert the expert matrices of gpt-oss only, whatever else the exclusion list leaves.
    return Quantization(MXFP4.name, plain, ((_only_experts, MXFP4),), _ignored(keys))


def _integer(keys: Fields, plain: WeightFormat, always_zero_points: bool) -> Quantization:
    bits = keys.integer("bits", "w_bit", default=4, low=1, high=16)
    group = _group_size(keys, "group_size", "q_group_size", default=_DEFAULT_GROUP)
    zeros = always_zero_points or keys.flag("zero_point", default=False)
    stored = integer_format(bits, group, zeros)
    rules = [*_dynamic_rules(keys, stored, zeros), (_everything, stored)]
    return Quantization(stored.name, plain, tuple(rules), _ignored(keys), keys.flag("lm_head"))


def _dynamic_rules(keys: Fields, base: WeightFormat, zeros: bool) -> list[tuple[Matcher, WeightFormat | None]]:
    """GPTQModel's `dynamic` and AutoRound's `extra_config`: per-module bits, or `-:` for modules left alone."""
    rules: list[tuple[Matcher, WeightFormat | None]] = []
    for pattern, change in keys.mapping("dynamic").items():
        names = matcher(["re:" + pattern.removeprefix("+:").removeprefix("-:")])
        rules.append((names, None if pattern.startswith("-:") else _changed(keys, change, base, zeros)))
    for name, change in keys.mapping("extra_config").items():
        rules.append((matcher([name]), _changed(keys, change, base, zeros)))
    return rules


def _changed(keys: Fields, change: object, base: WeightFormat, zeros: bool) -> WeightFormat | None:
    if not isinstance(change, Mapping):
        raise keys.fail(f"quantization_config: a per-module entry is {shown(change)}; allowed: a table of keys")
    entry = Fields(change, keys.model, keys.assumptions)
    bits = entry.integer("bits", default=int(base.bits), low=1, high=16)
    if bits == _UNQUANTIZED_BITS:
        return None
    return integer_format(bits, _group_size(entry, "group_size", default=base.group_size or _PER_CHANNEL), zeros)


def _group_size(keys: Fields, *names: str, default: int) -> int:
    """Inputs that share one scale; -1 for all of a row. 0 is neither."""
    group = keys.integer(*names, default=default, low=_PER_CHANNEL)
    if group == 0:
        raise keys.fail(f"{names[0]} is 0; allowed: a whole number from 1, or -1 for one scale per output channel")
    return group


def _awq(keys: Fields, plain: WeightFormat) -> Quantization:
    return _integer(keys, plain, always_zero_points=False)


def _gptq(keys: Fields, plain: WeightFormat) -> Quantization:
    return _integer(keys, plain, always_zero_points=True)  # its files hold qzeros even where symmetric


def _bitsandbytes(keys: Fields, plain: WeightFormat) -> Quantization:
    names = keys.texts("llm_int8_skip_modules")
    if keys.flag("load_in_8bit"):
        stored = WeightFormat("int8", 8, scale_bits=32, per_channel=True)
    else:
        # Blocks of 64 values share an FP32 scale; double quantization stores it in 8 bits, and one FP32 per 256.
        scale_bits = 8 + 32 / 256 if keys.flag("bnb_4bit_use_double_quant") else 32
        stored = WeightFormat("int4", 4, group_size=64, scale_bits=scale_bits)
        keys.assume("bitsandbytes 4-bit (NF4 or FP4) is called int4: same bytes")
    return Quantization(stored.name, plain, ((_everything, stored),), matcher([*names, _LM_HEAD]))


def _modelopt(keys: Fields, plain: WeightFormat) -> Quantization:
    algo = keys.text("quant_algo").upper()
    if algo == "MIXED_PRECISION":
        return _modelopt_mixed(keys, plain)
    if not algo and keys.has("config_groups"):
        return _compressed_tensors(keys, plain)
    return _single(keys, plain, _modelopt_format(keys, algo))


def _modelopt_format(keys: Fields, algo: str) -> WeightFormat:
    group = keys.integer("group_size", default=_DEFAULT_GROUP, low=1)
    formats = {
        "FP8": FP8_TENSOR,
        "FP8_PER_CHANNEL_PER_TOKEN": FP8_CHANNEL,
        "FP8_PB_WO": fp8_block(_DEFAULT_GROUP, _DEFAULT_GROUP),
        "NVFP4": NVFP4,
        "NVFP4_AWQ": NVFP4,
        "W4A8_NVFP4_FP8": NVFP4,
        "MXFP8": MXFP8,
        "W4A8_MXFP4_FP8": MXFP4,
        "W4A16_AWQ": integer_format(4, group, zero_points=False),
        "W4A8_AWQ": integer_format(4, group, zero_points=False),
    }
    if algo not in formats:
        raise keys.fail(f"quant_algo is {shown(algo)}; allowed: {', '.join(formats)}, MIXED_PRECISION")
    return formats[algo]


def _modelopt_mixed(keys: Fields, plain: WeightFormat) -> Quantization:
    by_algo: dict[tuple[str, int], list[str]] = {}
    for name, entry in keys.mapping("quantized_layers").items():
        if not isinstance(entry, Mapping):
            raise keys.fail(f"quantized_layers.{name[:60]} is {shown(entry)}; allowed: a table with quant_algo")
        layer = Fields(entry, keys.model, keys.assumptions)
        group = layer.integer("group_size", default=_DEFAULT_GROUP, low=1)
        by_algo.setdefault((layer.text("quant_algo").upper(), group), []).append(name)
    if not by_algo:
        raise keys.fail("quant_algo is MIXED_PRECISION without quantized_layers; needed: module names with quant_algo")
    rules = tuple(
        (matcher(names), _modelopt_format(Fields({"group_size": group}, keys.model), algo))
        for (algo, group), names in by_algo.items()
    )
    return Quantization(rules[0][1].name, plain, rules, _ignored(keys), quantizes_head=True)


def _compressed_tensors(keys: Fields, plain: WeightFormat) -> Quantization:
    rules: list[tuple[Matcher, WeightFormat | None]] = []
    for name, group in keys.mapping("config_groups").items():
        if not isinstance(group, Mapping):
            raise keys.fail(f"config_groups.{name[:60]} is {shown(group)}; allowed: a table with targets and weights")
        entry = Fields(group, keys.model, keys.assumptions)
        weights = entry.mapping("weights")
        if weights:
            rules.append((_targets(entry), _tensor_format(Fields(weights, keys.model, keys.assumptions))))
    if keys.mapping("sparsity_config"):
        keys.assume("sparsity_config is not read: weights count as dense")
    named = [stored for _, stored in rules if stored is not None]
    label = named[0].name if named else plain.name
    # Engines leave the head alone only where the ignore list says so, or when no target names linear layers.
    return Quantization(label, plain, tuple(rules), _ignored(keys), quantizes_head=bool(rules))


def _targets(entry: Fields) -> Matcher:
    targets = entry.texts("targets") or ["Linear"]
    if "Linear" in targets:
        return _everything
    classes = [name for name in targets if name.isidentifier() and name[:1].isupper()]
    if any("MoE" in name or "Expert" in name for name in classes):
        return _only_experts
    for name in classes:
        entry.assume(f"quantization target {shown(name)} is a class that is not read: no module counts as meant")
    return matcher([name for name in targets if name not in classes])


def _tensor_format(weights: Fields) -> WeightFormat:
    """The format of a compressed-tensors `weights` table: bits, type, strategy, group or block."""
    bits = weights.integer("num_bits", low=1, high=32)
    group = weights.integer("group_size", default=-1, low=-1)
    strategy = weights.text("strategy", default="group" if group > 0 else "channel")
    if weights.text("type", default="int") == "int":
        return integer_format(bits, group if strategy == "group" else -1, not weights.flag("symmetric", default=True))
    if bits == NVFP4.bits:
        return MXFP4 if group == MXFP4.group_size else NVFP4
    if bits != FP8_TENSOR.bits:
        raise weights.fail(f"float weights of num_bits {bits}; allowed: 4, 8")
    block = weights.integers("block_structure", low=1)
    if strategy == "block" or block:
        outputs, inputs = block if len(block) == len(("outputs", "inputs")) else (_DEFAULT_GROUP, _DEFAULT_GROUP)
        return fp8_block(outputs, inputs)
    if group == MXFP8.group_size:
        return MXFP8
    return FP8_CHANNEL if strategy == "channel" else FP8_TENSOR


def _quark(keys: Fields, plain: WeightFormat) -> Quantization:
    weight = Fields(keys.mapping("global_quant_config"), keys.model, keys.assumptions).mapping("weight")
    entry = Fields(weight, keys.model, keys.assumptions)
    dtype = entry.text("dtype").lower()
    group = entry.integer("group_size", default=-1, low=-1)
    if dtype in {"fp4", "mxfp4"}:
        return _single(keys, plain, MXFP4)
    if dtype.startswith("fp8"):
        return _single(keys, plain, FP8_CHANNEL if entry.text("qscheme") == "per_channel" else FP8_TENSOR)
    if dtype in {"int4", "int8"}:
        return _single(keys, plain, integer_format(int(dtype[-1]), group, not entry.flag("symmetric", default=True)))
    raise keys.fail(f"global_quant_config.weight.dtype is {shown(dtype)}; allowed: fp4, mxfp4, fp8_e4m3, int4, int8")


def _channel_fp8(keys: Fields, plain: WeightFormat) -> Quantization:
    return _single(keys, plain, FP8_CHANNEL)


_PARSERS: Mapping[str, Callable[[Fields, WeightFormat], Quantization]] = {
    "compressed-tensors": _compressed_tensors,
    "fp8": _fp8,
    "fbgemm_fp8": _channel_fp8,
    "modelopt": _modelopt,
    "modelopt_fp4": _modelopt,
    "modelopt_mixed": _modelopt,
    "awq": _awq,
    "awq_marlin": _awq,
    "gptq": _gptq,
    "gptq_marlin": _gptq,
    "auto-round": _gptq,
    "mxfp4": _mxfp4,
    "bitsandbytes": _bitsandbytes,
    "quark": _quark,
}


def known_methods() -> Sequence[str]:
    """The `quant_method` values that are read."""
    return tuple(_PARSERS)
