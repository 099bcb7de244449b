"""Size of a vision tower from `vision_config`; it takes memory but no part in decoding."""

from hwmodel.hf.fields import MAX_LAYERS, Fields
from hwmodel.hf.pieces import Linear, parameters

_RGB = 3


def vision_parameters(fields: Fields) -> int:
    """Parameters of the vision tower: patches, positions, transformer blocks and the projection; 0 without one.

    A tower whose keys cannot be read counts as 0 and is noted: it never matters to the time of a decode step.
    """
    table = fields.mapping("vision_config")
    if not table:
        return 0
    tower = Fields(table, fields.model, fields.assumptions)
    layers = ("depth", "vt_num_hidden_layers", "num_hidden_layers", "num_layers", "layers")
    width_names = ("vt_hidden_size", "hidden_size", "embed_dim", "width")
    inner_names = ("vt_intermediate_size", "intermediate_size", "mlp_dim")
    if not (tower.has(*layers) and tower.has(*width_names) and tower.has(*inner_names)):
        fields.assume("vision_config lacks depth, width or intermediate_size: the vision tower counts as 0 bytes")
        return 0
    width = tower.integer(*width_names)
    inner = tower.integer(*inner_names)
    block = (
        Linear("qkv", 3 * width, width, bias=True),
        Linear("proj", width, width, bias=True),
        Linear("fc1", inner, width, bias=True),
        Linear("fc2", width, inner, bias=True),
    )
    norms = 2 * (width + width)
    per_layer = parameters(block) + norms
    fields.assume("vision tower: plain transformer blocks (qkv, proj, two-layer MLP) and a two-layer merger in BF16")
    return tower.integer(*layers, high=MAX_LAYERS) * per_layer + _ends(tower, width)


def _ends(tower: Fields, width: int) -> int:
    """Parameters of the patch embedding, the position table and the merger into the language model's width."""
    patch = tower.integer("patch_size", default=1)
    frames = tower.integer("temporal_patch_size", default=1)
    channels = tower.integer("in_channels", "num_channels", default=_RGB)
    positions = tower.integer("num_position_embeddings", default=0, low=0)
    if tower.has("init_pos_emb_height") and tower.has("init_pos_emb_width"):
        positions = tower.integer("init_pos_emb_height") * tower.integer("init_pos_emb_width")
    out = tower.integer("out_hidden_size", "text_hidden_size", "vision_output_dim", default=width)
    merged = width * _merge(tower)
    merger = (Linear("merger.0", merged, merged, bias=True), Linear("merger.1", out, merged, bias=True))
    return width * channels * frames * patch * patch + positions * width + parameters(merger)


def _merge(tower: Fields) -> int:
    """Patches that are joined into one token."""
    kernel = tower.table.get("merge_kernel_size")
    if isinstance(kernel, list | tuple):
        size = 1
        for side in tower.integers("merge_kernel_size", low=1):
            size *= side
        return size
    side = tower.integer("spatial_merge_size", default=1)
    return side * side
