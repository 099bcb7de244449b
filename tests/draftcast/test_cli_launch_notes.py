from collections.abc import Callable

from click.testing import Result

Run = Callable[..., Result]

FEW = ("--draws", "100")
DENSE = "vllm serve Qwen/Qwen3-8B --max-model-len 8192"
NEXTN = (
    "python -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V3 --tp 8 --speculative-algorithm EAGLE"
    " --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4"
)


def words(text: str) -> str:
    return " ".join(text.split())


def test_loads_at_which_requests_wait_are_said_since_their_figures_are_those_of_fewer_requests(run: Run) -> None:
    result = run("choose", f"{DENSE} --max-num-seqs 16", "--gpu", "h100-sxm", "-c", "1,16,64,256", *FEW)
    assert (
        "note: at concurrency 64, 256 at most 16 requests run at once, the others wait: max_num_seqs allows no more"
        in words(result.stderr)
    )


def test_where_all_requests_run_nothing_is_said_of_waiting(run: Run) -> None:
    assert "wait" not in run("choose", f"{DENSE} --max-num-seqs 16", "--gpu", "h100-sxm", "-c", "1,16", *FEW).stderr


def test_a_limit_of_the_drafting_server_alone_is_told_from_the_one_without_drafts(run: Run) -> None:
    result = run("choose", NEXTN, "--gpu", "h200", "-c", "1,64", *FEW)
    assert "at concurrency 64 at most 48 requests run at once with drafts, " in words(result.stderr)
    assert "without speculation (48 with it)" in words(result.stdout)


def test_what_sglang_lowers_is_one_note(run: Run) -> None:
    assert run("choose", NEXTN, "--gpu", "h200", "-c", "1", *FEW).stderr.count("lowers --max-running-requests") == 1


def test_an_option_that_stops_the_server_is_said_before_what_was_assumed(run: Run) -> None:
    notes = run("choose", f"{DENSE} --tensor-paralel-size 2", "--gpu", "h100-sxm", "-c", "1", *FEW).stderr
    assert notes.startswith("note: launch: --tensor-paralel-size is no option known here")


def test_launch_without_a_deployment_says_what_to_do_instead(run: Run) -> None:
    result = run("choose", "--model", "gpt-oss-120b-mxfp4", "--gpu", "h200", "--launch", "web")
    assert result.exit_code == 1
    assert "allowed: without --launch, or with the file that holds the launches" in result.stderr
