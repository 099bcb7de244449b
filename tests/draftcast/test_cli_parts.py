import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from strict_json import strict

Run = Callable[..., Result]

RANKS = "".join(
    f"#  Rank  {rank} Group  0 Pid {100 + rank} on host device  {rank} [0x{rank:02x}] A GPU\n" for rank in range(8)
)
NCCL_TABLE = f"""# Using devices
{RANKS}
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
        8192          2048     float     sum      -1    40.00    0.20    0.36      0    41.00    0.20    0.35      0
       16384          4096     float     sum      -1    50.00    0.33    0.57      0    51.00    0.32    0.56      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 0.46
"""
TOPOLOGIES = Path(__file__).parent.parent / "data" / "topo"


@pytest.mark.parametrize("kind", ["gpus", "models", "methods", "interconnects", "keys", "parameters"])
def test_every_list_has_items_in_both_forms(run: Run, kind: str) -> None:
    items = strict(run("list", kind, "--json").stdout)["items"]
    page = run("list", kind).stdout
    assert items
    for item in items:
        assert item.get("name", item.get("key")) in page


@pytest.mark.parametrize("kind", ["gpus", "models", "methods", "interconnects", "keys", "parameters"])
def test_lists_fit_80_columns(run: Run, kind: str) -> None:
    assert max(map(len, run("list", kind).stdout.splitlines())) <= 80


def test_model_prints_the_published_size(run: Run) -> None:
    report = strict(run("model", "kimi-k2.5-int4", "--json").stdout)
    assert report["weight_bytes"]["total"] == pytest.approx(594e9, rel=0.01)
    assert report["inputs"] == {"model": "kimi-k2.5-int4", "tensor_parallel_size": 1}
    page = run("model", "kimi-k2.5-int4").stdout
    assert "routed experts" in page
    assert max(map(len, page.splitlines())) <= 80


def test_experts_of_one_token_are_its_top_k_and_further_tokens_read_more(run: Run) -> None:
    result = strict(run("experts", "kimi-k2.5-int4", "-t", "1,2,8", "--json").stdout)
    assert [point["tokens"] for point in result["curve"]] == [1, 2, 8]
    counts = [point["distinct_experts"] for point in result["curve"]]
    assert counts[0] == pytest.approx(8, rel=1e-3)
    assert counts == sorted(counts)
    assert all(n <= point["distinct_experts_uniform"] + 1e-6 for n, point in zip(counts, result["curve"], strict=True))


def test_experts_says_which_parameters_are_priors(run: Run) -> None:
    words = " ".join(run("experts", "kimi-k2.5-int4", "-t", "1-4").stdout.split())
    assert "Priors, not measured for this model: popularity sigma 0." in words
    stated = ("--popularity-sigma", "0.5", "--stickiness", "0.1", "--routing-memory", "9")
    assert "Priors" not in run("experts", "kimi-k2.5-int4", "-t", "1-4", *stated).stdout


def test_experts_of_uniform_independent_routing_follow_the_formula(run: Run) -> None:
    independent = ("--popularity-sigma", "0", "--stickiness", "0", "--routing-memory", "1e6")
    point = strict(run("experts", "kimi-k2.5-int4", "-t", "8", *independent, "--json").stdout)["curve"][0]
    assert point["distinct_experts_uniform"] == pytest.approx(384 * (1 - (1 - 8 / 384) ** 8))
    assert point["distinct_experts"] == pytest.approx(point["distinct_experts_uniform"], rel=0.01)


COUNTS = """tokens,requests,distinct_experts
2,2,15.4
8,8,49.4
4,1,24.7
16,4,70.1
"""


def test_counted_experts_replace_the_priors_and_give_a_table_for_the_file(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "counts.csv"
    path.write_text(COUNTS)
    question = ("experts", "qwen3-30b-a3b-bf16", "-t", "4,16", "--counted", path)
    fitted = strict(run(*question, "--json").stdout)["fitted"]
    assert [row["counted"] for row in fitted["rows"]] == [15.4, 49.4, 24.7, 70.1]
    assert all(row["fitted"] == pytest.approx(row["counted"], rel=0.03) for row in fitted["rows"])
    known = tomllib.loads(fitted["deployment_toml"])["parameters"]
    assert set(known) == {name for name, found in fitted["parameters"].items() if found["determined"]}
    page = run(*question).stdout
    assert fitted["deployment_toml"] in page.replace("  [", "[").replace("\n  ", "\n")
    assert max(map(len, page.splitlines())) <= 80


def test_what_counts_do_not_tell_is_said_and_left_out_of_the_table(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "counts.csv"
    path.write_text("tokens,requests,distinct_experts\n1,1,8\n")
    question = ("experts", "qwen3-30b-a3b-bf16", "-t", "4", "--counted", path)
    assert strict(run(*question, "--json").stdout)["fitted"]["deployment_toml"] is None
    words = " ".join(run(*question).stdout.split())
    assert "fit as well with popularity_sigma, stickiness, routing_memory at the prior" in words
    assert "popularity_sigma its prior 0.900 stickiness its prior 0.200 routing_memory its prior 6.50" in words
    assert "[parameters]" not in words


def test_the_fit_alone_needs_no_tokens(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "counts.csv"
    path.write_text(COUNTS)
    result = strict(run("experts", "qwen3-30b-a3b-bf16", "--counted", path, "--json").stdout)
    assert result["inputs"]["tokens"] == [1, 2, 4, 8, 16, 32, 64]
    assert result["fitted"]["deployment_toml"]
    assert "[default: 1,2,4,8,16,32,64]" in " ".join(run("experts", "--help").stdout.split())


def test_a_bad_row_of_counts_is_named_with_its_file(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "counts.csv"
    path.write_text(f"{COUNTS}4,1,24,7\n")
    result = run("experts", "qwen3-30b-a3b-bf16", "--counted", path)
    assert result.exit_code == 1
    assert result.stderr.endswith("counts.csv' line 6: got 4 cells, allowed: 3, as in the header\n")


def test_counted_experts_and_a_stated_parameter_contradict_each_other(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "counts.csv"
    path.write_text(COUNTS)
    result = run("experts", "qwen3-30b-a3b-bf16", "-t", "4", "--counted", path, "--stickiness", "0.1")
    assert result.exit_code == 1
    assert result.stderr == "Error: --counted: got --stickiness too, which it fits; allowed: one of them\n"


def test_tokens_of_more_requests_read_more_experts(run: Run) -> None:
    counts = [
        strict(run("experts", "kimi-k2.5-int4", "-t", "8", "--requests", n, "--json").stdout)["curve"][0]
        for n in (1, 8)
    ]
    assert counts[0]["distinct_experts"] < counts[1]["distinct_experts"]


def test_allreduce_by_class_never_gets_faster_with_size_and_says_its_source(run: Run) -> None:
    result = run("allreduce", "--gpu", "h100-sxm", "--num-gpus", "8", "--json")
    curve = strict(result.stdout)["curve"]
    times_s = [point["time_s"] for point in curve]
    assert times_s == sorted(times_s)
    assert "nvswitch assumed" in result.stderr
    page = run("allreduce", "--gpu", "h100-sxm", "--num-gpus", "8", "--interconnect", "nvswitch")
    assert page.stderr == ""
    assert "One AllReduce on 8 x h100-sxm (nvswitch). Source: measured" in page.stdout
    assert max(map(len, page.stdout.splitlines())) <= 80


@pytest.mark.parametrize(
    ("name", "gpu", "num_gpus", "interconnect"),
    [
        ("topo_rtxpro6000_8x_asus_esc8000a_pex890xx.txt", "rtx-pro-6000-blackwell-server", 8, "pcie-dual-socket"),
        ("topo_h100_sxm_8gpu_nvlink.txt", "h100-sxm", 8, "nvswitch"),
    ],
)
def test_allreduce_of_a_topology_alone_takes_the_matrix_and_says_which_gpu_it_assumes(
    run: Run, name: str, gpu: str, num_gpus: int, interconnect: str
) -> None:
    result = run("allreduce", "--topology", TOPOLOGIES / name, "--json")
    assert result.exit_code == 0
    report = strict(result.stdout)
    inputs = report["inputs"]
    assert (inputs["gpu"], inputs["num_gpus"], inputs["interconnect"]) == (gpu, num_gpus, interconnect)
    assert any(gpu in note for note in report["notes"])
    same = run("allreduce", "--gpu", gpu, "--num-gpus", num_gpus, "--interconnect", interconnect, "--json")
    assert strict(same.stdout)["curve"] == report["curve"]


def test_allreduce_takes_a_whole_nvl72(run: Run) -> None:
    assert run("allreduce", "--gpu", "gb200", "--num-gpus", "72").exit_code == 0


def test_allreduce_reads_the_users_own_table(run: Run, tmp_path: Path) -> None:
    table = tmp_path / "nccl.txt"
    table.write_text(NCCL_TABLE, encoding="utf-8")
    curve = strict(run("allreduce", "--nccl-tests", table, "--json").stdout)["curve"]
    at_8k = next(point for point in curve if point["bytes"] == 8192)
    assert at_8k["time_s"] == pytest.approx(40e-6)


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"hello\n", b"x" * (5 * 10**6)])
def test_a_broken_nccl_table_is_one_line(run: Run, tmp_path: Path, content: bytes) -> None:
    table = tmp_path / "nccl.txt"
    table.write_bytes(content)
    result = run("allreduce", "--nccl-tests", table)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.count("\n") == 1
