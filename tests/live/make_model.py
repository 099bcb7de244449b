"""A Qwen3-MoE checkpoint with random weights, made in seconds, whose greedy answers are as a test needs them.

Runs in the environment of the engine (torch, safetensors, tokenizers):

    python make_model.py OUT_DIR --corpus FILE... [--size small|timing]

The head is wired so that the last token decides what comes next, on two kinds of ground (`grounds.json` lists them):

- *loop* tokens: after t the model writes pi(t), where pi is a permutation made of cycles of `LOOP_TOKENS` tokens. A
  greedy answer repeats itself after one lap: lookup drafts are accepted from then on.
- *wander* tokens: a small set that the model does not leave. Which of them comes next hangs on the whole context, since
  their embeddings are faint and sharp attention outweighs them. Every token has been there before, so lookup always
  finds a draft, and it is nearly always wrong.
"""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

VOCAB_SIZE = 4096
SPECIAL_TOKENS = ("<s>", "</s>")
LOOP_TOKENS = 8  # in one cycle
WANDER_TOKENS = 64  # in the set
CHAT_TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:"


@dataclass(frozen=True, slots=True)
class Size:
    """Widths of the model; counts, not bytes."""

    hidden: int
    layers: int
    experts: int
    experts_per_token: int
    expert_width: int
    heads: int
    kv_heads: int
    head_dim: int


SIZES = {
    "small": Size(256, 4, 16, 4, 128, 4, 2, 64),  # 8 M parameters: function
    "timing": Size(1024, 6, 64, 8, 256, 8, 4, 128),  # 327 M, 58 M active: steps long enough to be timed
}


@dataclass(frozen=True, slots=True)
class Wiring:
    """How strongly the head and the branches pull; shares of a normalised hidden state of length sqrt(hidden)."""

    successor: float = 1.5  # of loop tokens
    confinement: float = 3.0  # of wander tokens to their set
    choice: float = 0.06  # of the context among wander tokens
    wander_successor: float = 0.0  # of the last token among wander tokens
    wander_embedding: float = 0.1  # length of a wander token's embedding, against 1
    attention: float = 0.15  # output of an attention branch, against an embedding of 1
    sharpness: float = 8.0  # weight of the query and key norms: how few positions a head looks at


def main() -> None:
    """Write the checkpoint, its tokenizer and the two grounds."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--corpus", type=Path, nargs="+", required=True)
    parser.add_argument("--size", choices=sorted(SIZES), default="timing")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    write_tokenizer(arguments.out, [str(path) for path in arguments.corpus])
    size = SIZES[arguments.size]
    (arguments.out / "config.json").write_text(json.dumps(config(size), indent=1))
    generator = torch.Generator().manual_seed(arguments.seed)
    order = (torch.randperm(VOCAB_SIZE - len(SPECIAL_TOKENS), generator=generator) + len(SPECIAL_TOKENS)).tolist()
    wander, loop = sorted(order[:WANDER_TOKENS]), order[WANDER_TOKENS:]
    (arguments.out / "grounds.json").write_text(json.dumps({"loop": sorted(loop), "wander": wander}))
    tensors = weights(size, Wiring(), loop, wander, generator)
    save_file(tensors, arguments.out / "model.safetensors", metadata={"format": "pt"})


def write_tokenizer(out: Path, corpus: list[str]) -> None:
    """A byte-level BPE of `VOCAB_SIZE` tokens, trained on the corpus."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE, special_tokens=list(SPECIAL_TOKENS), initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train(corpus, trainer)
    tokenizer.save(str(out / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": SPECIAL_TOKENS[0],
        "eos_token": SPECIAL_TOKENS[1],
        "model_max_length": 4096,
        "chat_template": CHAT_TEMPLATE,
    }
    (out / "tokenizer_config.json").write_text(json.dumps(settings))
    (out / "generation_config.json").write_text(json.dumps({"bos_token_id": 0, "eos_token_id": 1}))


def config(size: Size) -> dict[str, object]:
    """The Hugging Face config.json."""
    return {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "vocab_size": VOCAB_SIZE,
        "hidden_size": size.hidden,
        "num_hidden_layers": size.layers,
        "num_experts": size.experts,
        "num_experts_per_tok": size.experts_per_token,
        "moe_intermediate_size": size.expert_width,
        "intermediate_size": size.expert_width * size.experts_per_token,
        "num_attention_heads": size.heads,
        "num_key_value_heads": size.kv_heads,
        "head_dim": size.head_dim,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "tie_word_embeddings": False,
        "attention_bias": False,
        "use_sliding_window": False,
        "torch_dtype": "float32",
        "bos_token_id": 0,
        "eos_token_id": 1,
    }


def weights(
    size: Size, wiring: Wiring, loop: list[int], wander: list[int], generator: torch.Generator
) -> dict[str, torch.Tensor]:
    """All tensors of the checkpoint by name."""

    def normal(*shape: int, sd: float) -> torch.Tensor:
        return torch.randn(*shape, generator=generator) * sd

    embedding, head = wired(size.hidden, wiring, loop, wander, normal)
    tensors = {
        "model.embed_tokens.weight": embedding,
        "lm_head.weight": head,
        "model.norm.weight": torch.ones(size.hidden),
    }
    for layer in range(size.layers):
        for name, tensor in layer_weights(size, wiring, normal).items():
            tensors[f"model.layers.{layer}.{name}"] = tensor
    return {name: tensor.contiguous() for name, tensor in tensors.items()}


def wired(hidden, wiring, loop, wander, normal):
    """Embedding and head, each (vocabulary, hidden): what follows what."""
    root = hidden**0.5
    embedding, head = normal(VOCAB_SIZE, hidden, sd=1.0), normal(VOCAB_SIZE, hidden, sd=0.02)
    head[:2] = 0.0
    for first in range(0, len(loop), LOOP_TOKENS):
        cycle = torch.tensor(loop[first : first + LOOP_TOKENS])
        head[cycle.roll(-1)] += embedding[cycle] * (wiring.successor / root)
    common, ids = normal(hidden, sd=1.0), torch.tensor(wander)
    own = normal(len(wander), hidden, sd=1.0)
    embedding[ids] = (common + own) * (wiring.wander_embedding / 2**0.5)
    head[ids] = common * (wiring.confinement / root) + normal(len(wander), hidden, sd=wiring.choice)
    head[ids.roll(-1)] += own * (wiring.wander_successor / root)
    return embedding, head


def layer_weights(size: Size, wiring: Wiring, normal) -> dict[str, torch.Tensor]:
    """One decoder layer: sharp attention, then experts of which a router takes some."""
    spread = 1.0 / size.hidden**0.5  # keeps a normalised state's components at 1
    queries, keys = size.heads * size.head_dim, size.kv_heads * size.head_dim
    tensors = {
        "input_layernorm.weight": torch.ones(size.hidden),
        "post_attention_layernorm.weight": torch.ones(size.hidden),
        "self_attn.q_proj.weight": normal(queries, size.hidden, sd=spread),
        "self_attn.k_proj.weight": normal(keys, size.hidden, sd=spread),
        "self_attn.v_proj.weight": normal(keys, size.hidden, sd=spread),
        "self_attn.o_proj.weight": normal(size.hidden, queries, sd=wiring.attention / queries**0.5),
        "self_attn.q_norm.weight": torch.full((size.head_dim,), wiring.sharpness),
        "self_attn.k_norm.weight": torch.ones(size.head_dim),
        "mlp.gate.weight": normal(size.experts, size.hidden, sd=spread),
    }
    for expert in range(size.experts):
        name = f"mlp.experts.{expert}."
        tensors[name + "gate_proj.weight"] = normal(size.expert_width, size.hidden, sd=spread)
        tensors[name + "up_proj.weight"] = normal(size.expert_width, size.hidden, sd=spread)
        tensors[name + "down_proj.weight"] = normal(
            size.hidden, size.expert_width, sd=wiring.attention / size.expert_width**0.5
        )
    return tensors


if __name__ == "__main__":
    main()
