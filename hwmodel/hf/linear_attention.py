"""Linear attention with a recurrent state in place of a cache: the gated delta net of Qwen3-Next and Qwen3.5."""

from dataclasses import replace

from hwmodel.hf.attention import AttentionPlan, geometry
from hwmodel.hf.fields import Fields
from hwmodel.hf.formats import DTYPES, WeightFormat
from hwmodel.hf.pieces import Linear


def gated_delta_net(fields: Fields, hidden: int, plain: WeightFormat) -> AttentionPlan:
    """One gated delta net block; its state is read and written whole at every step, whatever the context.

    State of a sequence: a key x value matrix for each value head, and the last inputs of the convolution.
    Source: Transformers, qwen3_next (Qwen3NextGatedDeltaNet); arXiv 2412.06464.
    """
    key_heads = fields.integer("linear_num_key_heads")
    value_heads = fields.integer("linear_num_value_heads")
    key_dim = fields.integer("linear_key_head_dim")
    value_dim = fields.integer("linear_value_head_dim")
    kernel = fields.integer("linear_conv_kernel_dim")
    keys, values = key_heads * key_dim, value_heads * value_dim
    mixed = keys + keys + values
    linears = (
        Linear("linear_attn.in_proj_qkvz", mixed + values, hidden),
        Linear("linear_attn.in_proj_ba", value_heads + value_heads, hidden),
        Linear("linear_attn.conv1d", mixed, kernel, plain=True),
        Linear("linear_attn.out_proj", hidden, values),
    )
    loose = value_heads + value_heads + value_dim  # decay, time step, output norm
    stored = DTYPES.get(fields.text("mamba_ssm_dtype"), plain)
    if not fields.has("mamba_ssm_dtype"):
        fields.assume(f"recurrent state of linear attention kept in {stored.name} (no mamba_ssm_dtype)")
    state = stored.matrix_bytes(value_heads * key_dim, value_dim) + plain.matrix_bytes(mixed, kernel - 1)
    spec = geometry("linear", value_heads, value_heads, (key_dim, value_dim), 0)
    return AttentionPlan(linears, loose, replace(spec, state_bytes_per_sequence=state))
