"""What proposing the draft tokens costs: passes, weights, cache and host time of every kind of drafter."""

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hwmodel.collectives import AllReduceCurve, allgather_time_s
from hwmodel.parameters import Parameters
from hwmodel.rank import Parallelism, RankWork, work_of_layers
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

    @property
    def sequential(self) -> bool:
        """Whether each further draft token costs another pass."""
        return self.work is not None and self.method not in PARALLEL_METHODS


def build_drafter(
    method: str,
    target: ModelShape,
    machine: Machine,
    kv_element_bytes: float,
    *,
    draft: ModelShape | None = None,
    draft_machine: Machine | None = None,
    draft_vocab_size: int | None = None,
    max_draft_tokens: int = 1,
) -> Drafter:
    """The drafter of `method`: the given draft model, or the usual head for the target (its description says which)."""
    if method in MODEL_FREE_METHODS or method == "none":
        return Drafter(method, None, None, 0.0, 0.0, "no draft model")
    where = draft_machine or machine
    if method == "draft_model":
        if draft is None:
            raise ValueError("draft_model needs the shape of the draft model")
        layers, head, text, owned_head = draft.layers, _own_head(draft), f"draft model {draft.name}", True
        hidden, vocab, extra = draft.hidden_size, draft.vocab_size, (0.0, 0.0)
    else:
        layers, extra, head, text, owned_head = _head_parts(method, target, draft, draft_vocab_size, max_draft_tokens)
        hidden = target.hidden_size
        vocab = int(head[1] / max(hidden, 1))
    embedding = draft.embedding_bytes if draft is not None and method == "draft_model" else 0.0
    work = work_of_layers(
        layers,
        where.parallel,
        kv_element_bytes,
        hidden_size=hidden,
        vocab_size=vocab,
        head=head,
        embedding_bytes=embedding,
    )
    if extra[0]:
        work = replace(work, dense_bytes=work.dense_bytes + extra[0], dense_parameters=work.dense_parameters + extra[1])
    held = work.weight_bytes - (0.0 if owned_head else work.head_bytes)
    return Drafter(method, work, where, held, work.kv_bytes_per_token(), text)


def _own_head(draft: ModelShape) -> tuple[float, float]:
    return draft.lm_head_read_bytes, float(draft.vocab_size * draft.hidden_size)


def _head_parts(
    method: str, target: ModelShape, draft: ModelShape | None, draft_vocab_size: int | None, max_draft_tokens: int
) -> tuple[tuple[Layer, ...], tuple[float, float], tuple[float, float], str, bool]:
    """Layers, extra dense (bytes, parameters), head (bytes, parameters), description, own head or the target's."""
    facts = drafter_table()[method]
    hidden = target.hidden_size
    vocab = draft_vocab_size or facts.get("draft_vocab_size")
    parameters = float(hidden * (vocab or target.vocab_size))
    head = (parameters * _BF16_BYTES, parameters) if vocab else (target.lm_head_read_bytes, parameters)
    mixing = float(facts["input_features"] * hidden * hidden)
    extra = (mixing * _BF16_BYTES, mixing)
    if method in ("medusa", "mlp_speculator"):
        heads = max_draft_tokens if method == "medusa" else 1
        return (
            (),
            (extra[0] * heads, extra[1] * heads),
            (head[0] * heads, head[1] * heads),
            f"the usual {method} heads",
            True,
        )
    if draft is not None:
        return draft.layers, extra, head, f"{method} head {draft.name}", bool(vocab)
    if method == "mtp":
        return _mtp_layers(target), extra, head, _mtp_text(target), False
    layers = tuple([replace(_llama_layer(target), count=int(facts["num_layers"]))])
    text = f"the usual {method} head: {facts['num_layers']} layer(s), {vocab or target.vocab_size} draft vocabulary"
    return layers, extra, head, text, bool(vocab)


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
    drafts = batch.query_tokens - 1.0
    if drafter.work is None or drafter.machine is None:
        return host_time_s(drafter.method, batch) * (drafts > 0)
    extra = p.draft_pass_s + decode_context_extra_s
    first = _pass_time_s(drafter, batch, p, batch.query_tokens) + extra
    if not drafter.sequential:
        return first * (drafts > 0)
    later = _pass_time_s(drafter, batch, p, np.ones_like(batch.query_tokens)) + extra
    return (first + np.maximum(drafts - 1.0, 0.0) * later) * (drafts > 0)


def _pass_time_s(drafter: Drafter, batch: Batch, p: Parameters, query_tokens: Any) -> Any:
    assert drafter.work is not None
    assert drafter.machine is not None
    rows = batch.drafted * query_tokens
    one = decode_batch(batch.drafted, batch.drafted, query_tokens, batch.context_tokens, rows)
    total = sum(forward_parts(drafter.work, drafter.machine, one, p).values())
    tp = drafter.machine.parallel.tensor
    if tp > 1:
        logits = batch.drafted * (drafter.work.vocab_size * _BF16_BYTES)
        total = total + allgather_time_s(drafter.machine.allreduce, logits, tp)
    return total


def host_time_s(method: str, batch: Batch) -> Any:
    """Host seconds of n-gram and suffix search in one step (docs/model.md, eq. D2)."""
    host = drafter_table()["host"]
    if method == "ngram":
        per_request = host["ngram_request_us"] * US + host["ngram_token_ns"] * _NS * batch.context_tokens
        return batch.sequences * per_request
    if method == "ngram_gpu":
        return host["ngram_gpu_us"] * US + 0.0 * batch.sequences
    return batch.sequences * host["suffix_request_us"] * US


def draft_machine(machine: Machine, tensor_parallel_size: int, curve: AllReduceCurve) -> Machine:
    """The layout of a drafter that runs on `tensor_parallel_size` ranks with this AllReduce curve."""
    return replace(machine, parallel=Parallelism(tensor=tensor_parallel_size), allreduce=curve)
