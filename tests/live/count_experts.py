"""How many experts a step of the made model reads, counted by a forward pass of its checkpoint over recorded answers.

Runs in the environment of the engine (torch, safetensors):

    python count_experts.py MODEL_DIR OUTPUTS.jsonl OUT.csv -k 5

Writes the CSV that `draftcast experts --counted` reads: for 1, 2 and 4 requests and for 1 and 1 + k rows of each. The
rows of a step are k + 1 tokens of the answer in a row. So they are where drafts are accepted; drafts that will be
rejected are taken to be spread over the experts like other text of their kind.
"""

import argparse
import json
from pathlib import Path

import torch
from safetensors.torch import load_file

REQUESTS = (1, 2, 4)
PLACES = 16  # in each answer
FIRST = 24  # tokens of the answer before the first place: past the first laps of a loop


class Model:
    """Qwen3-MoE (arXiv 2505.09388) in float32, one sequence at a time."""

    def __init__(self, folder: Path) -> None:
        self.config = json.loads((folder / "config.json").read_text())
        self.weights = load_file(folder / "model.safetensors")

    def experts_of(self, ids: list[int]) -> torch.Tensor:
        """The experts that each token is routed to, `(num_layers, num_tokens, num_experts_per_tok)`."""
        hidden = self.weights["model.embed_tokens.weight"][ids]
        chosen = []
        for layer in range(self.config["num_hidden_layers"]):
            hidden = hidden + self._attention(f"model.layers.{layer}.", hidden)
            update, experts = self._experts(f"model.layers.{layer}.", hidden)
            hidden = hidden + update
            chosen.append(experts)
        return torch.stack(chosen)

    def _attention(self, layer: str, hidden: torch.Tensor) -> torch.Tensor:
        count, width = len(hidden), self.config["head_dim"]
        states = self._norm(hidden, layer + "input_layernorm")
        parts = [(states @ self._matrix(layer + f"self_attn.{name}_proj")).view(count, -1, width) for name in "qkv"]
        query, key = (
            self._rotated(self._norm(part, layer + f"self_attn.{name}_norm"))
            for name, part in zip("qk", parts[:2], strict=True)
        )
        groups = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(groups, 1), parts[2].repeat_interleave(groups, 1)
        scores = torch.einsum("thd,shd->hts", query, key) / width**0.5
        scores += torch.full((count, count), -torch.inf).triu(1)
        mixed = torch.einsum("hts,shd->thd", scores.softmax(-1), value).reshape(count, -1)
        return mixed @ self._matrix(layer + "self_attn.o_proj")

    def _experts(self, layer: str, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        states = self._norm(hidden, layer + "post_attention_layernorm")
        gates, chosen = (states @ self._matrix(layer + "mlp.gate")).softmax(-1).topk(self.config["num_experts_per_tok"])
        gates = gates / gates.sum(-1, keepdim=True)
        update = torch.zeros_like(hidden)
        for expert in chosen.unique().tolist():
            rows, slots = (chosen == expert).nonzero(as_tuple=True)
            name, mine = f"{layer}mlp.experts.{expert}.", states[rows]
            inner = torch.nn.functional.silu(mine @ self._matrix(name + "gate_proj"))
            inner = (inner * (mine @ self._matrix(name + "up_proj"))) @ self._matrix(name + "down_proj")
            update[rows] += gates[rows, slots, None] * inner
        return update, chosen

    def _matrix(self, name: str) -> torch.Tensor:
        return self.weights[name + ".weight"].T

    def _norm(self, states: torch.Tensor, name: str) -> torch.Tensor:
        scale = torch.rsqrt(states.pow(2).mean(-1, keepdim=True) + self.config["rms_norm_eps"])
        return states * scale * self.weights[name + ".weight"]

    def _rotated(self, states: torch.Tensor) -> torch.Tensor:
        half = states.shape[-1] // 2
        angle = torch.arange(len(states))[:, None] * self.config["rope_theta"] ** (-torch.arange(half) / half)
        cos, sin = angle.cos()[:, None], angle.sin()[:, None]
        low, high = states[..., :half], states[..., half:]
        return torch.cat([low * cos - high * sin, high * cos + low * sin], -1)


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    parser.add_argument("outputs", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("-k", type=int, required=True)
    arguments = parser.parse_args()
    answers = [json.loads(line) for line in arguments.outputs.read_text().splitlines()]
    whole = [a for a in answers if not a["shortened"]]
    step = max(len(whole) // max(REQUESTS), 1)
    model = Model(arguments.model)
    with torch.inference_mode():
        seen = [sets_of(model, answer, arguments.k) for answer in whole[::step][: max(REQUESTS)]]
    rows = [
        f"{requests * each},{requests},{mean_union(seen[:requests], kind):.3f}"
        for kind, each in enumerate((1, 1 + arguments.k))
        for requests in REQUESTS
    ]
    arguments.out.write_text("\n".join(["tokens,requests,distinct_experts", *rows, ""]))


def sets_of(model: Model, answer: dict, k: int) -> list[list[list[set[int]]]]:
    """At each place and in each layer the experts of one token alone, and of it with the k after it."""
    prompt, output = answer["prompt_token_ids"], answer["token_ids"]
    experts = model.experts_of(prompt + output)
    first, gap = len(prompt) + FIRST, (len(output) - FIRST - k) // PLACES
    return [
        [[set(layer[0].tolist()), set(layer.flatten().tolist())] for layer in experts[:, place : place + 1 + k]]
        for place in range(first, first + PLACES * gap, gap)
    ]


def mean_union(seen: list[list[list[list[set[int]]]]], kind: int) -> float:
    """Mean over places and layers of the experts that the requests read together."""
    sizes = [
        len(set().union(*(layer[kind] for layer in layers)))
        for places in zip(*seen, strict=True)
        for layers in zip(*places, strict=True)
    ]
    return sum(sizes) / len(sizes)


if __name__ == "__main__":
    main()
