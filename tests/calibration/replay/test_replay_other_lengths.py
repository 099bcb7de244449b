"""How a lookup's counts at one draft length predict those at another (docs/model.md, eq. L1), by replaying both."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from draftcast.cli import cli
from simulator.acceptance import acceptance_draws
from simulator.deployment import load_deployment


def recordings(path, long_copies: float):
    """Outputs of fresh tokens and copies of earlier passages, of geometric lengths."""
    rng = np.random.default_rng(3)
    with path.open("w") as file:
        for _ in range(40):
            tokens = rng.integers(0, 3000, 200).tolist()
            while len(tokens) < 900:
                start, length = int(rng.integers(0, len(tokens) - 8)), 4 + int(rng.geometric(1 / long_copies))
                tokens += tokens[start : start + length] + rng.integers(0, 3000, 1 + int(rng.geometric(0.2))).tolist()
            file.write(json.dumps({"prompt_token_ids": tokens[:200], "token_ids": tokens[200:900]}) + "\n")


@pytest.mark.parametrize("long_copies", [4.0, 12.0])
def test_counts_at_five_tell_the_tokens_per_step_at_other_lengths(tmp_path, long_copies):
    source, result = tmp_path / "recorded.jsonl", tmp_path / "replay.json"
    recordings(source, long_copies)
    outcome = CliRunner().invoke(
        cli, ["replay", str(source), "--prompt-lookup-max", "3", "-k", "1-8", "-o", str(result)]
    )
    assert outcome.exit_code == 0, outcome.output
    counted = {entry["num_speculative_tokens"]: entry for entry in json.loads(result.read_text())["results"]}
    at_five = counted[5]
    deployment = load_deployment(
        {
            "model": {"config": "x"},
            "hardware": {"gpu": "y"},
            "speculation": {
                "method": "ngram",
                "num_speculative_tokens": 5,
                "acceptance": {
                    "counters": {
                        "num_drafts": at_five["drafts"],
                        "num_accepted_tokens": at_five["accepted_tokens"],
                        "num_accepted_tokens_per_pos": at_five["accepted_per_position"],
                        "itl_count": at_five["steps"],
                    }
                },
            },
        }
    )
    found = acceptance_draws(
        deployment.speculation,
        deployment.workload,
        k_max=8,
        num_draws=10,
        rng=np.random.default_rng(0),
        ngram_variant="lps",
        context_tokens=500.0,
    )
    for k, entry in counted.items():
        own = found.for_length(k)
        predicted = 1.0 + own.median_draft_probability * float(own.median_survival.sum())
        assert own.median_draft_probability == pytest.approx(entry["draft_probability"], rel=0.06)
        assert predicted == pytest.approx(entry["tokens_per_step"], rel=0.04)
    one_share = 1.0 + at_five["draft_probability"] * counted[1]["accepted_per_draft"]
    assert counted[1]["tokens_per_step"] / one_share > 1.05  # what one share for all lengths would miss
