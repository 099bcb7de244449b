from pathlib import Path

import pytest

from validate.launch.findings import Launch
from validate.launch.inspection import inspect_launch
from validate.launch.sources import find_launches


def only(text: str) -> Launch:
    launches = find_launches(text).launches
    assert len(launches) == 1
    return launches[0]


@pytest.mark.parametrize("start", ["tmux new-session -d -s vllm", "screen -dmS vllm bash -c", "su vllm -c"])
def test_a_variable_in_front_of_the_command_that_a_wrapper_gets_as_one_word_is_no_hindrance(start: str) -> None:
    launch = only(f"""{start} "CUDA_VISIBLE_DEVICES=0 vllm serve m --speculative-config '{{\\"a\\":1}}'" """)
    assert launch.argv == ("vllm", "serve", "m", "--speculative-config", '{"a":1}')
    assert launch.environment["CUDA_VISIBLE_DEVICES"] == "0"


def test_a_command_kept_in_a_variable_of_env_is_no_launch() -> None:
    assert find_launches("env CMD='vllm serve m' bash run-it").launches == []


@pytest.mark.parametrize(
    ("command", "version"),
    [
        ("uvx vllm@0.22.0 serve m", "0.22.0"),
        ("uv run --with vllm==0.19.0 vllm serve m", "0.19.0"),
        ("srun --container-image=vllm/vllm-openai:v0.17.0 vllm serve m", "0.17.0"),
        ("apptainer exec --nv docker://vllm/vllm-openai:v0.17.0 vllm serve m", "0.17.0"),
        ("apptainer exec --nv /images/vllm-openai_v0.17.0.sif vllm serve m", "0.17.0"),
        ("ssh vllm@10.0.0.1 vllm serve m", None),
    ],
)
def test_the_version_is_read_where_a_wrapper_names_it(command: str, version: str | None) -> None:
    assert inspect_launch(command)["version"] == version


@pytest.mark.parametrize("image", ["docker://vllm/vllm-openai:v0.17.0", "/images/vllm-openai_v0.17.0.sif"])
def test_apptainer_run_starts_the_entrypoint_of_the_image(image: str) -> None:
    launch = only(f"apptainer run --nv --env VLLM_A=1,VLLM_B=2 {image} --model m")
    assert launch.argv == ("vllm", "serve", "--model", "m")
    assert (launch.environment["VLLM_A"], launch.environment["VLLM_B"]) == ("1", "2")


def test_a_kubectl_command_that_only_looks_like_run_is_no_trace_of_python() -> None:
    report = inspect_launch("kubectl -n run -- vllm serve m --max-num-seqs 8")
    assert report["argv"][-2:] == ["--max-num-seqs", "8"]


def test_kubectl_run_gives_its_words_to_the_entrypoint_unless_told_otherwise() -> None:
    start = "kubectl -n llm run q --image=vllm/vllm-openai:v0.16.0 --env VLLM_A=1"
    launch = only(f"{start} -- --model m -tp 2")
    assert launch.argv == ("vllm", "serve", "--model", "m", "-tp", "2")
    assert (launch.name, launch.environment["VLLM_A"]) == ("q", "1")
    assert only(f"{start} --command -- vllm serve m").argv == ("vllm", "serve", "m")


def test_the_release_of_a_project_around_the_engine_is_not_the_engines_version() -> None:
    assert inspect_launch("docker run lmcache/vllm-openai:v0.3.9 --model m")["version"] is None
    assert inspect_launch("docker run reg.example:5000/mirror/vllm-openai:v0.16.0 --model m")["version"] == "0.16.0"


def test_the_switch_of_the_first_engine_is_read_both_ways() -> None:
    for value, runner in (("0", "v0"), ("1", "v1")):
        report = inspect_launch(f"VLLM_USE_V1={value} uv run --with vllm==0.8.5 vllm serve m")
        assert report["model_runner"] == runner


def test_kserve_gives_the_parallel_sizes_of_the_service_to_the_engine() -> None:
    text = """
apiVersion: serving.kserve.io/v1alpha1
kind: LLMInferenceService
metadata: {name: q}
spec:
  model: {uri: "hf://org/m", name: q}
  parallelism: {tensor: 4, data: 2, expert: true}
  template:
    containers:
    - {name: main, image: "vllm/vllm-openai:v0.19.0"}
"""
    report = inspect_launch(text)
    keys = ("model", "tensor_parallel_size", "data_parallel_size", "expert_parallel")
    assert [report[key] for key in keys] == ["org/m", 4, 2, True]


def test_what_the_kubelet_and_a_shell_both_leave_open_is_said_once() -> None:
    text = """
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  containers:
  - name: c
    image: vllm/vllm-openai:v0.19.0
    command: [sh, -c, "vllm serve m --port $(PORT)"]
    env: [{name: PORT, valueFrom: {secretKeyRef: {name: s, key: k}}}]
"""
    assert [finding["code"] for finding in inspect_launch(text)["findings"]] == ["unresolved-variable"]


def test_the_config_file_of_sglang_comes_before_the_words_of_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(
        "model-path: org/m\ntensor_parallel_size: 4\nspeculative-algorithm: NGRAM\nenable-metrics: true\n"
        "disable-radix-cache: false\nlora-paths: [a, b]\n"
    )
    script = tmp_path / "run.sh"
    script.write_text("python -m sglang.launch_server --config s.yaml --tp 2\n")
    report = inspect_launch(script)
    assert report["argv"][3:] == [
        "--model-path", "org/m", "--tensor-parallel-size", "4", "--speculative-algorithm", "NGRAM", "--enable-metrics",
        "--lora-paths", "a", "b", "--tp", "2",
    ]  # fmt: skip
    assert (report["tensor_parallel_size"], report["speculative_config"]["method"]) == (2, "ngram")


def test_a_config_file_of_sglang_that_is_not_there_is_said() -> None:
    report = inspect_launch("python -m sglang.launch_server --config gone.yaml --model-path m")
    assert "config-file-unreadable" in [finding["code"] for finding in report["findings"]]


def test_the_commands_of_a_job_file_are_lines_of_a_shell_with_its_variables() -> None:
    head = "type: service\nname: a\nimage: vllm/vllm-openai:v0.16.0\n"
    text = head + "env:\n  - M=org/m\ncommands:\n  - vllm serve $M -tp 2\n"
    report = inspect_launch(text)
    assert (report["argv"], report["version"]) == (["vllm", "serve", "org/m", "-tp", "2"], "0.16.0")


def test_operators_that_put_the_model_in_front_of_the_arguments_are_followed() -> None:
    kubeai = """
apiVersion: kubeai.org/v1
kind: Model
metadata: {name: q}
spec: {url: "hf://org/m", engine: VLLM, args: [--max-num-seqs=32]}
"""
    llmd = """
modelArtifacts: {uri: "hf://org/m"}
decode:
  parallelism: {tensor: 2}
  containers:
  - {name: vllm, image: "ghcr.io/llm-d/llm-d-cuda:v0.4.0", modelCommand: vllmServe, args: [--max-num-seqs=32]}
"""
    assert inspect_launch(kubeai)["argv"] == ["vllm", "serve", "org/m", "--max-num-seqs=32"]
    words = ["vllm", "serve", "org/m", "--tensor-parallel-size", "2", "--max-num-seqs=32"]
    assert inspect_launch(llmd)["argv"] == words


def test_an_expression_of_a_workflow_is_no_template_of_helm() -> None:
    text = 'jobs:\n  a:\n    env: {T: "${{ secrets.T }}"}\n    steps:\n    - run: vllm serve org/m\n'
    assert inspect_launch(text)["findings"] == []


def test_a_model_on_the_command_line_takes_the_place_of_the_one_in_the_config_file(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("model: org/old\nmax-num-seqs: 8\n")
    script = tmp_path / "run.sh"
    script.write_text("vllm serve org/new --config c.yaml\n")
    report = inspect_launch(script)
    assert report["argv"] == ["vllm", "serve", "org/new", "--max-num-seqs", "8"]
    assert (report["model"], report["findings"]) == ("org/new", [])
