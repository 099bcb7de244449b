"""Feed-forward blocks as a configuration describes them: which layers have experts, and how large they are."""

from typing import NamedTuple

from hwmodel.hf.fields import MAX_EXPERTS, Fields
from hwmodel.hf.formats import WeightFormat
from hwmodel.hf.pieces import Linear, parameters, stored_bytes
from hwmodel.specs import DenseMlp, Moe

NUM_EXPERTS = ("n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts")
_TOP_K = ("num_experts_per_tok", "experts_per_token", "num_experts_per_token", "moe_topk", "moe_top_k", "moe_k")
_EXPERT_WIDTH = ("moe_intermediate_size", "expert_ffn_hidden_size", "moe_ffn_hidden_size")
_WIDTH = ("intermediate_size", "ffn_hidden_size", "n_inner")
_NUM_SHARED = ("n_shared_experts", "num_shared_experts", "num_shared_expert", "moe_num_shared_experts")
_SHARED_WIDTH = ("shared_expert_intermediate_size", "shared_intermediate_size")

# The name of the feed-forward module in the checkpoint, where it is not "mlp".
_BLOCK = {"mixtral": "block_sparse_moe", "minimax_m2": "block_sparse_moe", "llama4_text": "feed_forward"}
_BLOCK |= {"deepseek_v4": "ffn"}
_UNGATED = {"gpt2", "gpt_neox", "gptj", "opt", "bloom", "falcon", "phi", "starcoder2", "nemotron"}
_SHARED_GATE = {"qwen2_moe", "qwen3_next", "qwen3_5_moe", "qwen3_5_moe_text"}  # a scalar gate on the shared expert
_BIASED_EXPERTS = {"gpt_oss"}
_BIASED_ROUTER = {"gpt_oss", "deepseek_v3", "deepseek_v32", "kimi_k2", "glm4_moe", "glm_moe_dsa", "minimax_m2"}


class FfnPlan(NamedTuple):
    """One feed-forward block before its formats are known: `dense` linear layers, or those of one expert each."""

    dense: tuple[Linear, ...] = ()
    expert: tuple[Linear, ...] = ()
    shared: tuple[Linear, ...] = ()
    router: tuple[Linear, ...] = ()
    num_experts: int = 0
    top_k: int = 0
    hash_routed: bool = False

    @property
    def linears(self) -> tuple[Linear, ...]:
        """All linear layers whose format may differ, one expert's standing for all."""
        return self.dense + self.expert + self.shared + self.router


def feed_forward(
    plan: FfnPlan, stored: tuple[WeightFormat, ...], plain: WeightFormat
) -> tuple[DenseMlp | None, Moe | None]:
    """The dense block or the MoE block of *plan*, its linear layers in the formats *stored*."""
    if plan.dense:
        return DenseMlp(parameters(plan.dense), stored_bytes(plan.dense, stored, plain)), None
    first, second = len(plan.expert), len(plan.expert) + len(plan.shared)
    return None, Moe(
        num_experts=plan.num_experts,
        num_experts_per_tok=plan.top_k,
        expert_parameters=parameters(plan.expert),
        expert_bytes=stored_bytes(plan.expert, stored[:first], plain),
        weight_format=stored[0].name,
        shared_parameters=parameters(plan.shared),
        shared_bytes=stored_bytes(plan.shared, stored[first:second], plain),
        router_parameters=parameters(plan.router),
        router_bytes=stored_bytes(plan.router, stored[second:], plain),
        hash_routed=plan.hash_routed,
    )


def num_experts(fields: Fields) -> int:
    """Routed experts of a MoE layer, 0 for a dense model."""
    return fields.integer(*NUM_EXPERTS, default=0, low=0, high=MAX_EXPERTS)


def dense_plan(fields: Fields, hidden: int) -> FfnPlan:
    """The dense feed-forward block: gate, up and down projections (two matrices in older families)."""
    # Llama 4 keeps intermediate_size for its experts and names the dense width apart.
    width = fields.integer(*(("intermediate_size_mlp",) if fields.has("intermediate_size_mlp") else _WIDTH))
    return FfnPlan(dense=_mlp(fields, _block(fields), hidden, width, fields.flag("mlp_bias")))


def moe_plan(fields: Fields, hidden: int, hash_routed: bool = False) -> FfnPlan:
    """The mixture-of-experts block: routed experts, shared experts and router."""
    experts = num_experts(fields)
    top_k = fields.integer(*_TOP_K, high=MAX_EXPERTS)
    if top_k > experts:
        raise fields.fail(f"{top_k} experts per token of {experts}; allowed: up to {experts}")
    family = fields.text("model_type")
    block = _block(fields)
    width = fields.integer(*_EXPERT_WIDTH, *_WIDTH)
    shared_width = _shared_width(fields, width)
    shared: tuple[Linear, ...] = ()
    if shared_width:
        name = "shared_expert" if family in _SHARED_GATE or family == "llama4_text" else "shared_experts"
        shared = _mlp(fields, f"{block}.{name}", hidden, shared_width, bias=False)
        if family in _SHARED_GATE:
            shared += (Linear(f"{block}.shared_expert_gate", 1, hidden, plain=True),)
    return FfnPlan(
        expert=_mlp(fields, f"{block}.experts.0", hidden, width, family in _BIASED_EXPERTS),
        shared=shared,
        router=(Linear(f"{block}.gate", experts, hidden, plain=True, bias=family in _BIASED_ROUTER),),
        num_experts=experts,
        top_k=top_k,
        hash_routed=hash_routed,
    )


def _shared_width(fields: Fields, expert_width: int) -> int:
    if fields.has(*_SHARED_WIDTH):
        return fields.integer(*_SHARED_WIDTH, low=0)
    if fields.text("model_type") == "llama4_text":
        return expert_width  # one shared expert of the routed size; no key says so
    return fields.integer(*_NUM_SHARED, default=0, low=0, high=MAX_EXPERTS) * expert_width


def _block(fields: Fields) -> str:
    return _BLOCK.get(fields.text("model_type"), "mlp")


def _mlp(fields: Fields, module: str, hidden: int, width: int, bias: bool) -> tuple[Linear, ...]:
    up = (
        Linear(f"{module}.up_proj", width, hidden, bias=bias),
        Linear(f"{module}.down_proj", hidden, width, bias=bias),
    )
    if fields.text("model_type") in _UNGATED:
        return up
    return (Linear(f"{module}.gate_proj", width, hidden, bias=bias), *up)
