"""What proposing the draft tokens costs: passes, weights, cache and host time of every kind of drafter."""

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hwmodel.collectives import AllReduceCurve, allgather_time_s
from hwmodel.parameters import Parameters
from hwmodel.rank import Head, Parallelism, RankWork, held_embedding_bytes, work_of_layers
from hwmodel.records import dataclass
from hwmodel.specs import Attention, DenseMlp, Layer, ModelShape
from hwmodel.step import Batch, Machine, decode_batch, forward_parts
from hwmodel.units import US

NGRAM_METHODS = frozenset({"ngram", "ngram_gpu"})
MODEL_FREE_METHODS = NGRAM_METHODS | {"suffix"}
PARALLEL_METHODS = frozenset({"dflash", "dspark", "p_eagle", "medusa"})  # one pass whatever the draft length
_FILE = Path(__file__).parent / "data" / "fits" / "drafters.toml"
_BF16_BYTES = 2
_HEAD_DIM = 128
_NS = 1e-9


@functools.cache
def drafter_table() -> Mapping[str, Any]:
    """The usual drafters and host costs (data/fits/drafters.toml)."""
    return tomllib.loads(_FILE.read_text(encoding="utf-8"))


@dataclass(frozen=True, slots=True)
class Drafter:
    """One drafter on one rank. `work` is None for methods without a model."""

    method: str
    work: RankWork | None
    machine: Machine | None  # the layout that the drafter runs in (its own tensor-parallel size)
    weight_bytes: float  # per rank
    kv_bytes_per_token: float  # per rank
    description: str
    first_work: RankWork | None = None  # of the first pass, where it does more than the later ones

    @property
    def sequential(self) -> bool:
        """Whether each further draft token costs another pass."""
        return self.work is not None and self.method not in PARALLEL_METHODS


@dataclass(frozen=True, slots=True)
class DraftOptions:
    """What a deployment may say about its drafter; None leaves the usual one."""

    draft: ModelShape | None = None
    draft_machine: Machine | None = None
    draft_vocab_size: int | None = None
    max_draft_tokens: int = 1


_USUAL = DraftOptions()


@dataclass(frozen=True, slots=True)
class _Plan:
    """A drafter before it is laid out over ranks: layers, head, and what mixes the target's features in."""

    layers: tuple[Layer, ...]
    head: Head
    owns_head: bool
    text: str
    mixing_parameters: float = 0.0
    mixing_every_pass: bool = True
    embedding_bytes: float = 0.0


def build_drafter(
    method: str, target: ModelShape, machine: Machine, kv_element_bytes: float, options: DraftOptions = _USUAL
) -> Drafter:
    """The drafter of `method`: the given draft model, or the usual head for the target (its description says which)."""
    if method in MODEL_FREE_METHODS or method == "none":
        return Drafter(method, None, None, 0.0, 0.0, "no draft model")
    plan = _draft_model_plan(options.draft) if method == "draft_model" else _head_plan(method, target, options)
    where = options.draft_machine or machine
    work = work_of_layers(plan.layers, where.parallel, kv_element_bytes, plan.head, plan.embedding_bytes)
    mixed = replace(
        work,
        dense_bytes=work.dense_bytes + plan.mixing_parameters * _BF16_BYTES,
        dense_parameters=work.dense_parameters + plan.mixing_parameters,
    )
    held = mixed.weight_bytes - (0.0 if plan.owns_head else work.head_bytes)
    later = mixed if plan.mixing_every_pass else work
    return Drafter(method, later, where, held, work.kv_bytes_per_token(), plan.text, mixed)


def _draft_model_plan(draft: ModelShape | None) -> _Plan:
    if draft is None:
        raise ValueError("draft_model needs the shape of the draft model")
    head = Head(draft.hidden_size, draft.vocab_size, draft.lm_head_read_bytes)
    return _Plan(draft.layers, head, True, f"draft model {draft.name}", embedding_bytes=held_embedding_bytes(draft))


def _head_plan(method: str, target: ModelShape, options: DraftOptions) -> _Plan:
    """A head that reads the target's hidden states; replicated mixing weights, BF16."""
    facts = drafter_table()[method]
    hidden = target.hidden_size
    vocab = options.draft_vocab_size or facts.get("draft_vocab_size")
    head = Head(hidden, vocab or target.vocab_size, target.lm_head_read_bytes)
    if vocab:
        head = Head(hidden, vocab, float(hidden * vocab * _BF16_BYTES))
    mixing = float(facts["input_features"] * hidden * hidden)
    if method in ("medusa", "mlp_speculator"):
        heads = options.max_draft_tokens if method == "medusa" else 1
        all_heads = replace(head, copies=heads)
        return _Plan((), all_heads, True, f"the usual {method} heads", mixing * heads)
    every_pass = not facts.get("mixing_in_first_pass_only", False)
    if options.draft is not None:
        layers, text = options.draft.layers, f"{method} head {options.draft.name}"
    elif method == "mtp":
        layers, text = _mtp_layers(target), _mtp_text(target)
    else:
        layers = (replace(_llama_layer(target), count=int(facts["num_layers"])),)
        text = f"the usual {method} head: {facts['num_layers']} layer(s), {head.vocab_size} draft vocabulary"
    return _Plan(layers, head, bool(vocab), text, mixing, every_pass)


def _mtp_layers(target: ModelShape) -> tuple[Layer, ...]:
    layer = target.mtp_layers[0] if target.mtp_layers else target.layers[-1]
    return (replace(layer, count=1),)


def _mtp_text(target: ModelShape) -> str:
    if target.mtp_layers:
        return "the model's own MTP layer, full vocabulary"
    return "an MTP layer like the model's last layer, full vocabulary (the checkpoint lists none: grafted, assumed)"


def _llama_layer(target: ModelShape) -> Layer:
    """A dense decoder layer of the target's width, as EAGLE-3 heads have (queries from two features)."""
    hidden = target.hidden_size
    first = target.layers[0].attention
    kv = hidden if first.kind == "mla" else max(first.num_kv_heads, 1) * first.v_head_dim
    attention = 2 * hidden * (hidden + 2 * kv) + hidden * hidden
    dense = next((x.dense.parameters for x in target.layers if x.dense is not None), 8 * hidden * hidden)
    heads = max(hidden // _HEAD_DIM, 1)
    return Layer(
        count=1,
        attention=Attention(
            kind="gqa",
            parameters=attention,
            sharded_bytes=float(attention * _BF16_BYTES),
            replicated_bytes=0.0,
            num_heads=heads,
            num_kv_heads=max(kv // _HEAD_DIM, 1),
            qk_head_dim=_HEAD_DIM,
            v_head_dim=_HEAD_DIM,
            cache_elements_per_token=2 * kv,
        ),
        dense=DenseMlp(dense, float(dense * _BF16_BYTES)),
    )


def draft_time_s(drafter: Drafter, batch: Batch, p: Parameters, *, decode_context_extra_s: float = 0.0) -> Any:
    """Seconds that one step spends proposing for `batch` (docs/model.md, eq. D1); shape as the batch.

    Sequential drafters: one pass over the rows of the last step, then one over a single row a request for each further
    token. Parallel drafters: one pass over all draft positions. Model-free ones: host time.
    """
    drafts = batch.drafts
    if drafter.work is None or drafter.machine is None:
        return host_time_s(drafter.method, batch) * (drafts > 0)
    extra = p.draft_pass_s + decode_context_extra_s
    first = _pass_time_s(drafter, drafter.first_work or drafter.work, batch, p, batch.query_tokens) + extra
    if not drafter.sequential:
        return first * (drafts > 0)
    later = _pass_time_s(drafter, drafter.work, batch, p, np.ones_like(batch.query_tokens)) + extra
    return (first + np.maximum(drafts - 1.0, 0.0) * later) * (drafts > 0)


def _pass_time_s(drafter: Drafter, work: RankWork, batch: Batch, p: Parameters, query_tokens: Any) -> Any:
    assert drafter.machine is not None
    rows = batch.drafted * query_tokens
    one = decode_batch(batch.drafted, batch.drafted, query_tokens, batch.context_tokens, rows)
    total = sum(forward_parts(work, drafter.machine, one, p).values())
    tp = drafter.machine.parallel.tensor
    if tp > 1:
        logits = batch.drafted * (work.vocab_size * _BF16_BYTES)
        total = total + allgather_time_s(drafter.machine.allreduce, logits, tp)
    return total


def host_time_s(method: str, batch: Batch) -> Any:
    """Host seconds of n-gram and suffix search in one step (docs/model.md, eq. D2)."""
    host = drafter_table()["host"]
    if method == "none":
        return 0.0 * batch.sequences
    if method == "ngram":
        per_request = host["ngram_request_us"] * US + host["ngram_token_ns"] * _NS * batch.context_tokens
        return batch.sequences * per_request
    if method == "ngram_gpu":
        return host["ngram_gpu_us"] * US + 0.0 * batch.sequences
    return batch.sequences * host["suffix_request_us"] * US


def draft_machine(machine: Machine, tensor_parallel_size: int, curve: AllReduceCurve) -> Machine:
    """The layout of a drafter that runs on `tensor_parallel_size` ranks with this AllReduce curve."""
    return replace(machine, parallel=Parallelism(tensor=tensor_parallel_size), allreduce=curve)
