import json
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

Run = Callable[..., Result]

CARDS = '[model]\nconfig = "qwen3-8b-bf16"\n[hardware]\ngpu = "h200"\n'
NGRAM = CARDS + '[speculation]\nmethod = "ngram"\n'
FILES = {
    "empty.toml": b"",
    "words.txt": b"hello world\n",
    "other.json": b'{"model": {"config": "qwen3-8b-bf16"}}',
    "utf16.toml": NGRAM.encode("utf-16"),
    "open.toml": b"[model\n",
    "typo.toml": CARDS.replace("config", "confg").encode(),
    "quoted.toml": (CARDS + 'num_gpus = "8"\n').encode(),
    "flag.toml": (CARDS + '[engine]\nexpert_parallel = "true"\n').encode(),
    "word.toml": (CARDS + '[engine]\nexpert_parallel = "yes"\n').encode(),
    "nogpu.toml": b'[model]\nconfig = "qwen3-8b-bf16"\n[hardware]\n',
    "baseline.toml": CARDS.encode(),
    "fine.toml": NGRAM.encode(),
    "two.toml": (NGRAM + "[engine]\ntensor_parallel_size = 4\n").encode(),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a newcomer's files."""
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refusal(run: Run, *arguments: str) -> str:
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.count("\n") == 1
    return result.stderr


@pytest.mark.parametrize(
    ("source", "next_step"),
    [
        ("examples/kimi-k2.5-8x-rtx-pro-6000.toml", "draftcast init -o FILE"),
        ("no-such-file", "draftcast init -o FILE"),
        (".", "draftcast init -o FILE"),
        ("words.txt", "draftcast init -o FILE"),
        ("other.json", "draftcast init -o FILE"),
        ("other.json", "config.json behind --model"),
        ("open.toml", "line 1"),
        ("empty.toml", "draftcast init"),
        ("utf16.toml", "looks like UTF-16"),
        ("typo.toml", "nearest: 'model.config'"),
        ("quoted.toml", "without quotes"),
        ("flag.toml", "without quotes"),
        ("nogpu.toml", "a card's name"),
        ("baseline.toml", "--method ngram"),
        ("baseline.toml", "`draftcast options`"),
        ("localhost:8000", "http://localhost:8000"),
        ("10.0.0.1:30000/v1", "http://10.0.0.1:30000/v1"),
        ("Qwen/Qwen3-235B-A22B-Instruct-2507-FP8", '"vllm serve Qwen/Qwen3-235B-A22B-Instruct-2507-FP8'),
        ("gpt-oss-120b-mxfp4", '"vllm serve gpt-oss-120b-mxfp4'),
        ("ollama run qwen3:30b", "draftcast init --model NAME --gpu NAME"),
        ("vllm serve Qwen/Qwen3-235B-A22B -tp 4", "--gpu NAME"),
    ],
)
def test_what_is_no_deployment_is_answered_with_what_to_type(
    run: Run, folder: Path, source: str, next_step: str
) -> None:
    assert next_step in refusal(run, "choose", source)


@pytest.mark.parametrize(
    "command", [("choose",), ("predict",), ("options",), ("simulate",), ("whatif", "--vary", "hardware.gpu=h200")]
)
def test_without_a_deployment_it_says_what_one_is(run: Run, command: tuple[str, ...]) -> None:
    result = run(*command, "--num-gpus", "2", "--set", "workload.kind=code")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Missing argument 'DEPLOYMENT'" in result.stderr
    assert "draftcast init -o FILE" in result.stderr
    assert "--model NAME and --gpu NAME" in result.stderr


NAMED = ("--model", "qwen3-8b-bf16", "--gpu", "h200")
SHORT = {
    "choose": ("-k", "2", "-c", "1", "--draws", "100"),
    "predict": ("--draws", "100"),
    "adaptive": ("-k", "2", "-c", "1", "--draws", "100"),
    "simulate": ("--requests", "4",),
    "whatif": ("--vary", "hardware.gpu=h200", "--draws", "100"),
    "experiments": ("-k", "2", "-c", "1", "--draws", "100"),
    "train-cost": ("-c", "1", "--draws", "100"),
}  # fmt: skip


@pytest.mark.parametrize("command", SHORT)
def test_a_model_and_a_gpu_do_as_the_file_that_init_writes_of_them(run: Run, tmp_path: Path, command: str) -> None:
    path = tmp_path / "named.toml"
    assert run("init", *NAMED, "-o", path).exit_code == 0
    of_names = run(command, *NAMED, *SHORT[command], "--json")
    of_file = run(command, path, *SHORT[command], "--json")
    assert (of_names.exit_code, of_file.exit_code) == (0, 0)
    answers = [json.loads(result.stdout) for result in (of_names, of_file)]
    notes = [answer.pop("notes", []) for answer in answers]
    assert answers[0] == answers[1]
    new = [note for note in notes[0] if note not in notes[1]]
    wanted = "`draftcast init --gpu h200 --model qwen3-8b-bf16 -o FILE`"
    assert all(wanted in note for note in new)
    assert wanted in " ".join(of_names.stderr.split())


def test_the_init_that_is_named_writes_the_file_that_was_asked_about(run: Run, tmp_path: Path) -> None:
    asked = (
        *NAMED,
        "--num-gpus",
        "2",
        "--set",
        "workload.kind=code",
        "--set",
        "restart.outage_min=5",
        "-k",
        "2",
        "-c",
        "1",
    )
    notes = " ".join(run("choose", *asked, "--draws", "100").stderr.split())
    words = shlex.split(notes.partition("`")[2].partition("`")[0])
    path = tmp_path / "named.toml"
    assert run(*words[1:-1], path).exit_code == 0
    answers = [
        json.loads(run("choose", *source, "--draws", "100", "--json").stdout)
        for source in (asked, (path, "-k", "2", "-c", "1"))
    ]
    assert answers[0]["prediction_id"] == answers[1]["prediction_id"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--gpu", "h200"), "model.config: got nothing"),
        (("--model", "qwen3-8b-bf16"), "hardware.gpu: got nothing"),
        (("--model", "qwen3-8b-bf16", "--gpu", "h2000"), "did you mean 'h200'"),
        (("--model", "qwen3-8b-bf17", "--gpu", "h200"), "did you mean 'qwen3-8b-bf16'"),
        (("--gpu", "h200", "--set", "foo.bar=1"), "unknown key 'foo.bar'"),
        ((*NAMED, "--launch", "one"), "--launch: got 'one'"),
    ],
)
def test_names_that_describe_no_deployment_say_what_is_wrong_before_what_is_missing(
    run: Run, arguments: tuple[str, ...], said: str
) -> None:
    for command in ("choose", "predict"):
        assert said in refusal(run, command, *arguments)


def test_a_launch_without_drafts_is_asked_about_the_method_that_needs_none_as_init_has_it(run: Run) -> None:
    launch = ("vllm serve Qwen/Qwen3-8B", "--gpu", "h200", *SHORT["choose"], "--json")
    asked, named = run("choose", *launch), run("choose", *launch, "--method", "ngram")
    assert (asked.exit_code, named.exit_code) == (0, 0)
    answers = [json.loads(result.stdout) for result in (asked, named)]
    notes = [answer.pop("notes") for answer in answers]
    (new,) = [note for note in notes[0] if note not in notes[1]]
    assert answers[0] == answers[1]
    assert "asked about ngram" in new
    assert "draftcast options" in new
    baseline = json.loads(run("predict", *launch[:3], "--draws", "100", "--json").stdout)
    assert baseline["inputs"]["method"] == "none"


@pytest.mark.parametrize("rest", [[], ["-tp", "8"]])
def test_a_launch_without_its_quotes_is_told_to_set_them(run: Run, rest: list[str]) -> None:
    result = run("choose", "vllm", "serve", "Qwen/Qwen3-8B", *rest, "--gpu", "h200")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "a launch goes in quotes: " in result.stderr
    assert '"vllm serve ..." --gpu NAME' in result.stderr


@pytest.mark.usefixtures("folder")
def test_a_word_for_true_is_not_taken_for_a_quoted_one(run: Run) -> None:
    assert "without quotes" not in refusal(run, "choose", "word.toml")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("h100", "'h100-nvl' or 'h100-pcie' or 'h100-sxm'"),
        ("A100", "'a100-pcie-80gb' or 'a100-sxm-80gb'"),
        ("4090", "'rtx-4090'?"),
        ("RTX4090", "'rtx-4090'?"),
        ("NVIDIA GeForce RTX 5090", "'rtx-5090'?"),
        ("NVIDIA H100 80GB HBM3", "'h100-sxm'?"),
        ("NVIDIA A100-SXM4-80GB", "'a100-sxm-80gb'?"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "'rtx-pro-6000-blackwell-server'?"),
        ("h201", "did you mean '"),
        ("NVIDIA H200 NVL", "'h200'?"),
        ("NVIDIA B300 SXM6 AC", "'b300'?"),
        ("NVIDIA L40", "'l40s'?"),
        ("AMD Instinct MI300X OAM", "'mi300x'?"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_a_gpu_as_nvidia_smi_or_a_person_writes_it_is_answered_with_the_card(run: Run, name: str, meant: str) -> None:
    assert meant in refusal(run, "choose", "fine.toml", "--gpu", name)


@pytest.mark.usefixtures("folder")
def test_a_gpu_unlike_any_card_gets_no_guess_but_where_all_names_are(run: Run) -> None:
    message = refusal(run, "choose", "fine.toml", "--gpu", "Tesla V999")
    assert "did you mean" not in message
    assert "`draftcast list gpus` has all " in message


@pytest.mark.parametrize(
    "arguments",
    [
        ("--gpu", "zzz"),
        ("--model", "zzz"),
        ("--method", "zzz"),
        ("--set", "engine.zzz=1"),
        ("--set", "zzz.a=1"),
        ("--set", "parameters.zzz=1"),
        ("--set", "hardware.interconnect=zzz"),
        ("--set", "engine.kv_cache_dtype=zzz"),
        ("--set", "speculation.acceptance={published='zzz'}"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_no_vocabulary_is_printed_that_is_longer_than_a_few_lines(run: Run, arguments: tuple[str, ...]) -> None:
    assert len(refusal(run, "choose", "fine.toml", *arguments)) < 280


@pytest.mark.parametrize(
    ("model", "near"),
    [
        ("Qwen/Qwen3-32B-AWQ", "nearest: qwen3-32b-bf16"),
        ("unsloth/Qwen3-30B-A3B-GGUF:Q4_K_M", "nearest: qwen3-30b-a3b-bf16"),
        ("/models/zzz", "`draftcast list models`"),
    ],
)
def test_a_launch_of_an_unknown_model_says_where_its_config_is(run: Run, model: str, near: str) -> None:
    message = refusal(run, "choose", f"vllm serve {model}", "--gpu", "h200", "--method", "ngram")
    assert model in message
    assert near in message
    assert "--model: the path of its config.json" in message


@pytest.mark.usefixtures("folder")
def test_an_unknown_model_says_where_its_config_is_before_it_lists_the_cards(run: Run) -> None:
    message = refusal(run, "choose", "fine.toml", "--model", "Qwen/Qwen3-32B-AWQ")
    assert message.index("did you mean 'qwen3-32b-bf16'") < message.index("config.json") < message.index("list models")


@pytest.mark.parametrize("model", ["Qwen/Qwen3-235B-A22B-Instruct-2507-FP8", "qwen3-235b-a22b-fp8"])
@pytest.mark.usefixtures("folder")
def test_a_repository_name_does_as_a_model(run: Run, model: str) -> None:
    result = run("predict", "fine.toml", "--model", model, "--num-gpus", "8", "--set", "engine.tensor_parallel_size=8",
                 "-k", "3", "--draws", "200", "--json")  # fmt: skip
    assert result.exit_code == 0
    assert "qwen3-235b-a22b-fp8" in json.dumps(json.loads(result.stdout)["inputs"])


@pytest.mark.parametrize("command", [("model",), ("experts", "-t", "8")])
def test_the_commands_about_a_model_take_a_repository_name_too(run: Run, command: tuple[str, ...]) -> None:
    by_card, by_name = (run(*command, name) for name in ("qwen3-30b-a3b-bf16", "Qwen/Qwen3-30B-A3B-Instruct-2507"))
    assert by_name.exit_code == 0
    assert by_name.stdout == by_card.stdout


@pytest.mark.parametrize(
    ("arguments", "next_step"),
    [
        (("two.toml", "--num-gpus", "2"), "--set engine.tensor_parallel_size=N"),
        (("two.toml", "--num-gpus", "2"), "--num-gpus 4"),
        (("fine.toml", "--method", "draft_model"), "--set speculation.draft_model=NAME"),
        (("fine.toml", "--method", "eagel3"), "nearest: eagle3"),
        (("fine.toml", "--set", "gpu=h200"), "nearest: 'hardware.gpu'"),
        (("fine.toml", "--set", "num_gpus=2"), "nearest: 'hardware.num_gpus'"),
        (("fine.toml", "--profile", "other.json"), "draftcast calibrate -o"),
        (("fine.toml", "--report", "no/folder/x.html"), "existing folder"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_an_option_that_does_not_fit_says_which_would(run: Run, arguments: tuple[str, ...], next_step: str) -> None:
    assert next_step in refusal(run, "choose", *arguments)


@pytest.mark.parametrize(
    ("arguments", "next_step"),
    [
        (("model", "words.txt"), "allowed: a Hugging Face config.json"),
        (("model", "."), "needed: a Hugging Face config.json"),
        (("allreduce", "--nccl-tests", "words.txt"), "all_reduce_perf"),
        (("allreduce", "--topology", "words.txt"), "with its header"),
        (("calibrate", "fine.toml", "--data", "words.txt"), "known formats"),
        (("validate", "fine.toml", "--run", "other.json"), "draftcast measure -o"),
        (("measure", "localhost:8000"), "http://HOST:PORT"),
        (("replay", "words.txt"), "line 1"),
        (("replay", "utf16.toml"), "looks like UTF-16"),
        (("backtest", "words.txt"), "allowed: a header line"),
        (("ledger", "list", "--ledger", "none.sqlite"), "--record"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_a_wrong_file_says_what_would_be_a_right_one(run: Run, arguments: tuple[str, ...], next_step: str) -> None:
    assert next_step in refusal(run, *arguments)


def test_a_model_that_does_not_fit_is_said_first_with_what_to_ask_next(run: Run) -> None:
    result = run("choose", "vllm serve openai/gpt-oss-120b -tp 2", "--gpu", "rtx-5090", "--method", "ngram",
                 "-k", "3", "-c", "1", "--draws", "200")  # fmt: skip
    assert result.exit_code == 0
    said = " ".join(result.stdout.split())
    assert said.startswith("It does not fit as it stands: ")
    assert said.index("GB allowed") < said.index("`draftcast options`") < said.index("Do not enable ngram")
