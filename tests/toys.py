"""A GPU, a two-layer model and an AllReduce curve whose costs a reader can work out by hand."""

import numpy as np

from hwmodel.collectives import AllReduceCurve
from hwmodel.specs import Attention, DenseMlp, Gpu, Layer, ModelShape, Moe

# 1 GB/s and 1 TFLOP/s: a byte takes a nanosecond, a FLOP a picosecond. On this architecture the two add up.
GPU = Gpu(
    name="toy",
    title="toy",
    sm_arch="8.9",
    memory_bytes=1e9,
    memory_bandwidth_bytes_per_s=1e9,
    bf16_flop_per_s=1e12,
    fp8_flop_per_s=2e12,
    fp4_flop_per_s=None,
    l2_bytes=0.0,
    num_sms=1,
    interconnect="pcie-root",
    pcie_bytes_per_s=1e9,
    nvlink_bytes_per_s=0.0,
    p2p=True,
)
NS_PER_BYTE, PS_PER_FLOP = 1e-9, 1e-12
# Four heads of 25 in two key-value groups, width 100: q and o 100 x 100, k and v 100 x 50.
GQA = Attention(
    kind="gqa",
    parameters=30_000,
    sharded_bytes=60_000.0,
    replicated_bytes=0.0,
    num_heads=4,
    num_kv_heads=2,
    qk_head_dim=25,
    v_head_dim=25,
    cache_elements_per_token=100,
)
MOE = Moe(
    num_experts=8,
    num_experts_per_tok=2,
    expert_parameters=3_000,
    expert_bytes=6_000.0,
    weight_format="bf16",
    shared_parameters=1_000,
    shared_bytes=2_000.0,
    router_parameters=800,
    router_bytes=1_600.0,
)
TOY = ModelShape(
    name="toy",
    architecture="toy",
    hidden_size=100,
    num_hidden_layers=2,
    vocab_size=1_000,
    max_position_embeddings=4_096,
    layers=(Layer(1, GQA, dense=DenseMlp(5_000, 10_000.0)), Layer(1, GQA, moe=MOE)),
    embedding_parameters=100_000,
    embedding_bytes=200_000.0,
    lm_head_parameters=100_000,
    lm_head_bytes=200_000.0,
    lm_head_read_bytes=200_000.0,
    quantization="bf16",
)
# Microseconds = square root of the bytes between 100 B (10 us) and 1 MB (1 ms).
ROOT_CURVE = AllReduceCurve(np.array([1e2, 1e6]), np.array([1e-5, 1e-3]), ("nccl", "nccl"), "by hand", "user", 2)
