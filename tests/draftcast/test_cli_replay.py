"""The replay command from end to end: what it prints, what it writes, and that predictions take it."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result
from strict_json import strict

Run = Callable[..., Result]
DATA = Path(__file__).parent.parent / "data" / "replay"


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """Twelve requests whose outputs copy stretches of what came before."""
    rng, path = np.random.default_rng(0), tmp_path / "recorded.jsonl"
    with path.open("w") as file:
        for _ in range(12):
            tokens = rng.integers(0, 500, 60).tolist()
            while len(tokens) < 400:
                start = int(rng.integers(0, len(tokens) - 10))
                copied = tokens[start : start + int(rng.integers(5, 25))]
                tokens += copied if rng.random() < 0.4 else rng.integers(0, 500, 12).tolist()
            file.write(json.dumps({"prompt_token_ids": tokens[:60], "token_ids": tokens[60:400]}) + "\n")
    return path


def test_the_json_holds_the_contract_and_adds_up(run: Run, recorded: Path) -> None:
    result = run("replay", recorded, "--method", "ngram", "-k", "1,3,5", "--prompt-lookup-max", 4, "--json")
    assert result.exit_code == 0
    rows = strict(result.stdout)["results"]
    assert [row["num_speculative_tokens"] for row in rows] == [1, 3, 5]
    for row in rows:
        assert row["steps"] + row["accepted_tokens"] == 12 * 339
        assert len(row["accepted_per_position"]) == row["num_speculative_tokens"]
        assert sum(row["accepted_per_position"]) == row["accepted_tokens"]
        assert row["draft_tokens"] <= row["num_speculative_tokens"] * row["drafts"]
        low, high = row["tokens_per_step_ci95"]
        assert 1 <= low <= row["tokens_per_step"] <= high


def test_one_command_feeds_the_next(run: Run, recorded: Path, tmp_path: Path, reference_case: Path) -> None:
    file = tmp_path / "replay.json"
    printed = run("replay", recorded, "--prompt-lookup-max", 4, "-o", file, "--json")
    assert strict(file.read_text()) == strict(printed.stdout)
    setting = f'speculation.acceptance={{replay="{file}"}}'
    for row in strict(printed.stdout)["results"][::3]:
        k = row["num_speculative_tokens"]
        answer = run("predict", reference_case, "-k", k, "--set", setting, "--json")
        assert answer.exit_code == 0
        found = strict(answer.stdout)["speculative"]["tokens_per_step"]
        assert found == pytest.approx(row["tokens_per_step"], rel=0.005)
    choice = strict(run("choose", reference_case, "-k", "0-8", "-c", "1", "--set", setting, "--json").stdout)
    assert len(choice["grid"]) == 9
    note = run("predict", reference_case, "-k", 5, "--set", setting, "--set", "speculation.prompt_lookup_max=3").stderr
    assert "the replay is of matches of 4 to 4 tokens, the deployment's are of 3 to 3" in " ".join(note.split())


def test_a_replay_of_another_method_is_refused_and_longer_drafts_are_noted(
    run: Run, recorded: Path, tmp_path: Path, reference_case: Path
) -> None:
    file = tmp_path / "replay.json"
    assert run("replay", recorded, "--method", "suffix", "-k", "1-3", "-o", file).exit_code == 0
    setting = f'speculation.acceptance={{replay="{file}"}}'
    wrong = run("predict", reference_case, "-k", 3, "--set", setting)
    assert wrong.exit_code == 1
    assert "is a replay of suffix, the deployment drafts with ngram; allowed: a replay of ngram" in wrong.stderr
    right = run("predict", reference_case, "--method", "suffix", "-k", 5, "--set", setting)
    assert right.exit_code == 0
    assert "the replay counted drafts of up to 3 tokens" in " ".join(right.stderr.split())


def test_a_limit_below_the_recordings_ends_them_there_and_is_said(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    records = [{"prompt_token_ids": [1, 2, 3] * 20, "token_ids": [1, 2, 3] * 100} for _ in range(3)]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    whole, short = (run("replay", path, "-k", "3", "--json", *limit) for limit in ((), ("--max-model-len", 180)))
    cut = strict(short.stdout)
    assert cut["output_tokens"] == 3 * 120
    assert "3 of 3 outputs are longer than --max-model-len 180 allows and end there" in cut["warnings"][0]
    rates = [strict(result.stdout)["results"][0]["tokens_per_step"] for result in (whole, short)]
    assert rates[1] == pytest.approx(rates[0], rel=0.05)
    nothing = run("replay", path, "--max-model-len", 50)
    assert nothing.exit_code == 1
    assert "--max-model-len: got 50, but every prompt is as long" in nothing.stderr


def test_a_replay_that_never_drafts_is_an_answer(run: Run, tmp_path: Path, reference_case: Path) -> None:
    path, file = tmp_path / "log.jsonl", tmp_path / "replay.json"
    path.write_text(json.dumps({"prompt_token_ids": [], "token_ids": list(range(3000))}) + "\n")
    result = run("replay", path, "-k", "5", "--prompt-lookup-max", 4, "-o", file)
    assert "No drafted token would have been accepted" in result.stdout
    answer = run("predict", reference_case, "--set", f'speculation.acceptance={{replay="{file}"}}', "--json")
    assert strict(answer.stdout)["speculative"]["tokens_per_step"] == 1.0
    assert strict(answer.stdout)["probability_faster"] < 0.1


@pytest.mark.parametrize("arguments", [(), ("--method", "suffix"), ("-k", "3,12"), ("--engine-version", "0.33.0")])
def test_the_page_fits_80_columns_and_says_what_to_do_next(
    run: Run, recorded: Path, arguments: tuple[str, ...]
) -> None:
    result = run("replay", recorded, *arguments)
    assert result.exit_code == 0
    assert max(map(len, result.stdout.splitlines())) <= 80
    words = " ".join(result.stdout.split())
    assert "a decode step would have emitted" in words
    assert "Write the result with -o FILE" in words


def test_the_page_names_the_flag_and_warns(run: Run, recorded: Path, tmp_path: Path) -> None:
    file = tmp_path / "r.json"
    words = " ".join(run("replay", recorded, "-o", file).stdout.split())
    assert "--set 'speculation.acceptance={replay=" in words
    few = tmp_path / "few.jsonl"
    few.write_text(json.dumps({"token_ids": [1, 2, 3] * 30, "temperature": 0.7}) + "\n")
    words = " ".join(run("replay", few).stdout.split())
    for said in ("only 1 request", "1 of 1 requests have no prompt", "1 of 1 outputs were sampled"):
        assert said in words


def test_mixed_files_are_read_together(run: Run, recorded: Path) -> None:
    capture = DATA / "vllm_0.32_chat_stream_ids.sse"
    result = strict(run("replay", recorded, capture, DATA / "vllm_0.32_completion.json", "--json").stdout)
    assert result["num_requests"] == 14
    assert result["output_tokens"] == 12 * 340 + 80


def test_a_bad_line_ends_with_its_number_or_is_skipped(run: Run, recorded: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_text(recorded.read_text() + "{broken\n")
    result = run("replay", bad)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "bad.jsonl line 13: no JSON" in result.stderr
    assert result.stderr.count("\n") == 1
    skipped = run("replay", bad, "--skip-bad", "--json")
    assert skipped.exit_code == 0
    assert strict(skipped.stdout)["num_requests"] == 12
    assert "1 bad lines left out" in skipped.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--method", "mtp"), 1, "known: ngram, ngram_gpu, suffix"),
        (("--variant", "x"), 1, "known: kmp, lps, gpu_v1, mrv2"),
        (("-k", "99"), 1, "allowed: 1 to 64"),
        (("-k", "x"), 2, "is not a list of whole numbers"),
        (("--engine", "sglang"), 1, "allowed: vllm"),
        (("--suffix-min-token-prob", "nan", "--method", "suffix"), 1, "got nan"),
        (("--tokenizer", "a", "--tokenize-url", "http://127.0.0.1:1"), 2, "cannot be used with"),
        (("--api-key-env", "A"), 2, "with --tokenize-url only"),
        (("--tokenizer", "absent"), 1, "cannot read absent"),
        (("-o", "no/such/folder/x.json"), 1, "no such folder"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(
    run: Run, recorded: Path, arguments: tuple[str, ...], code: int, said: str
) -> None:
    result = run("replay", recorded, *arguments)
    assert result.exit_code == code
    assert said in " ".join(result.stderr.split())
    assert result.stdout == ""


def test_the_input_is_never_overwritten(run: Run, recorded: Path) -> None:
    before = recorded.read_text()
    result = run("replay", recorded, "-o", recorded)
    assert result.exit_code == 1
    assert recorded.read_text() == before
    assert [path.name for path in recorded.parent.iterdir()] == [recorded.name]
