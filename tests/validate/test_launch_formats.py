import json
from pathlib import Path
from typing import Any

import pytest

from validate.launch.deployment_keys import deployment_from_launch, looks_like_launch
from validate.launch.dotenv import read_dotenv
from validate.launch.inspection import inspect_launch
from validate.launch.known import Known

CONFIG = '{"method":"ngram","num_speculative_tokens":5,"prompt_lookup_max":4}'
EFFECTIVE = {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_min": 4, "prompt_lookup_max": 4}


def launches(text: str) -> list[dict[str, Any]]:
    return list(inspect_launch(text)["launches"])


def only(text: str) -> dict[str, Any]:
    found = launches(text)
    assert len(found) == 1
    return found[0]


def errors(launch: dict[str, Any]) -> list[str]:
    return [finding["code"] for finding in launch["findings"] if finding["severity"] == "error"]


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("A=1 # one", "1"),
        ("export A='$B # x'", "$B # x"),
        ('A="x ${B}"', "x b"),
        ('A="a\\nb\\"c"', 'a\nb"c'),
        ('A={"m":1}', '{"m":1}'),
        ("A=a#b", "a#b"),
        ("A: y", "y"),
        ("A=", ""),
        ("A=${C:-d}", "d"),
        ("A=$C", "$C"),
        ("A='two\nlines'", "two\nlines"),
    ],
)
def test_dot_env_is_read_as_compose_reads_it(line: str, value: str) -> None:
    assert read_dotenv(f"# remark\nB=b\n{line}\n")["A"] == value


def test_a_nix_unit_is_read_by_systemds_rules() -> None:
    launch = only(
        "{ pkgs, ... }: {\n  systemd.services.vllm.serviceConfig.ExecStart = ''\n"
        "    ${pkgs.vllm}/bin/vllm serve org/m \\\n"
        f"      --speculative-config '{CONFIG}'\n  '';\n}}\n"
    )
    assert launch["name"] == "vllm"
    assert launch["argv"][-1] == CONFIG
    assert launch["speculative_config"].items() >= EFFECTIVE.items()


def test_a_nix_unit_with_bare_json_loses_its_quotes() -> None:
    command = '/bin/vllm serve m --speculative-config {\\"method\\":\\"mtp\\"}'
    text = f'{{ systemd.services.a.serviceConfig.ExecStart = "{command}"; }}'
    assert errors(only(text)) == ["json-quotes-lost"]


def test_nix_containers_scripts_and_joined_lists_are_read() -> None:
    found = launches(
        'virtualisation.oci-containers.containers.c = {\n  image = "vllm/vllm-openai:v0.16.0";\n'
        f'  cmd = [ "--model" "m" "--speculative-config" \'\'{CONFIG}\'\' ];\n}};\n'
        "systemd.services.s.script = ''\n  vllm serve n --max-num-seqs ''${N:-4}\n'';\n"
        'systemd.services.j.serviceConfig.ExecStart = lib.concatStringsSep " " [ "/bin/vllm" "serve" "o" ];\n'
    )
    by_name = {launch["name"]: launch for launch in found}
    assert by_name["c"]["version"] == "0.16.0"
    assert by_name["c"]["argv"] == ["vllm", "serve", "--model", "m", "--speculative-config", CONFIG]
    assert by_name["s"]["max_num_seqs"] == 4
    assert by_name["j"]["argv"] == ["/bin/vllm", "serve", "o"]


def test_an_open_nix_string_is_a_finding() -> None:
    report = inspect_launch("systemd.services.a.serviceConfig.ExecStart = ''\n vllm serve m\n")
    assert (report["launches"], errors(report)) == ([], ["unbalanced-quote"])


def test_a_quadlet_unit_is_a_container() -> None:
    launch = only(
        "[Container]\nImage=vllm/vllm-openai:v0.16.0\nContainerName=c\nEnvironment=VLLM_USE_V1=1 X=2\n"
        f"Exec=--model m \\\n  --speculative-config '{CONFIG}'\n"
    )
    assert (launch["name"], launch["version"]) == ("c", "0.16.0")
    assert launch["argv"] == ["vllm", "serve", "--model", "m", "--speculative-config", CONFIG]
    assert launch["environment"] == {"VLLM_USE_V1": "1"}


def test_ray_serves_engine_kwargs_are_options() -> None:
    launch = only(
        "applications:\n- args:\n    llm_configs:\n    - model_loading_config: {model_id: q, model_source: org/q}\n"
        "      engine_kwargs:\n        tensor_parallel_size: 2\n        trust_remote_code: true\n        seed: null\n"
        "        speculative_config: {method: ngram, num_speculative_tokens: 5, prompt_lookup_max: 4}\n"
    )
    assert (launch["source_kind"], launch["model"], launch["tensor_parallel_size"]) == ("ray", "org/q", 2)
    assert launch["speculative_config"].items() >= EFFECTIVE.items()
    assert "--seed" not in launch["argv"]


def test_yaml_inside_a_text_of_a_manifest_is_read() -> None:
    inner = "apps:\n- engine_kwargs:\n    tensor_parallel_size: 2\n  model_loading_config: {model_id: m}\n"
    indented = "".join(f"    {line}\n" for line in inner.splitlines())
    launch = only(f"kind: RayService\nspec:\n  serveConfigV2: |\n{indented}")
    assert (launch["model"], launch["tensor_parallel_size"]) == ("m", 2)


def test_scripts_under_any_key_of_a_job_file_are_read_with_its_variables_and_version() -> None:
    launch = only(
        "envs: {MODEL: org/m}\nsetup: pip install vllm==0.16.0\nrun: |\n"
        f"  cd /x\n  vllm serve $MODEL --speculative-config '{CONFIG}'\n"
    )
    assert (launch["model"], launch["version"], launch["name"]) == ("org/m", "0.16.0", "run")
    assert launch["speculative_config"].items() >= EFFECTIVE.items()


def test_options_nested_in_a_recipe_are_read() -> None:
    launch = only(f"recipe:\n  vllm:\n    tensor-parallel-size: 4\n    speculative-config: '{CONFIG}'\n")
    assert (launch["name"], launch["tensor_parallel_size"]) == ("recipe/vllm", 4)
    assert launch["speculative_config"].items() >= EFFECTIVE.items()


def test_variables_of_a_worker_image_are_options() -> None:
    text = f"MODEL_NAME=org/m\nSPECULATIVE_CONFIG={CONFIG}\nENFORCE_EAGER=true\nHF_TOKEN=hf_abcdefghijkl\nPORT=1\n"
    launch = only(text)
    assert launch["speculative_config"].items() >= EFFECTIVE.items()
    assert launch["enforce_eager"] is True
    assert "hf-token" not in " ".join(launch["argv"])
    compose = only(
        "services:\n  w:\n    image: runpod/worker-v1-vllm:v2.7.0\n    environment:\n      MODEL_NAME: org/m\n"
        f"      SPECULATIVE_CONFIG: '{CONFIG}'\n"
    )
    assert compose["speculative_config"].items() >= EFFECTIVE.items()
    assert compose["version"] is None  # the tag is the worker's


def test_quotes_around_a_variables_json_are_told() -> None:
    launch = only(f"MODEL_NAME=m\nSPECULATIVE_CONFIG='{CONFIG}'\n")
    assert launch["speculative_config"].items() >= EFFECTIVE.items()
    assert "quotes-around-value" in [finding["code"] for finding in launch["findings"]]


def test_an_ansible_task_may_give_the_command_as_one_text() -> None:
    launch = only(
        "- hosts: gpu\n  tasks:\n  - name: run\n    docker_container:\n      image: vllm/vllm-openai:v0.19.1\n"
        f"      command: --model m --speculative-config '{CONFIG}'\n"
    )
    assert errors(launch) == []
    assert launch["speculative_config"].items() >= EFFECTIVE.items()


def test_chart_values_name_model_and_sizes_in_their_own_way() -> None:
    launch = only(
        "modelSpec:\n- name: llama\n  modelURL: org/m\n  vllmConfig:\n    tensorParallelSize: 2\n"
        "    maxModelLen: 4096\n"
        f"    extraArgs: ['--speculative-config', '{CONFIG}']\n"
    )
    assert (launch["name"], launch["model"], launch["tensor_parallel_size"]) == ("llama", "org/m", 2)
    assert launch["max_model_len"] == 4096


def test_kserves_own_names_of_options_are_understood() -> None:
    launch = only(
        "kind: InferenceService\nmetadata: {name: i}\nspec:\n  predictor:\n    model:\n"
        "      modelFormat: {name: huggingface}\n"
        f"      args: ['--model_id=org/m', '--model_name=n', '--speculative-config={CONFIG}']\n"
    )
    assert launch["model"] == "org/m"
    added = only(
        "kind: LLMInferenceService\nmetadata: {name: q}\nspec:\n  model: {uri: 'hf://org/q'}\n  template:\n"
        "    containers:\n    - name: main\n      image: vllm/vllm-openai:v0.12.0\n      env:\n"
        f"      - name: VLLM_ADDITIONAL_ARGS\n        value: >-\n          --speculative-config '{CONFIG}'\n"
    )
    assert added["model"] == "org/q"
    assert added["speculative_config"].items() >= EFFECTIVE.items()


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("vllm/vllm-openai:v0.20.2", "0.20.2"),
        ("ghcr.io/x/vllm:0.16.0", "0.16.0"),
        ("lmsysorg/sglang:v0.5.5.post3-cu126", "0.5.5.post3"),
        ("nvcr.io/nvidia/ai-dynamo/vllm-runtime:0.6.0", None),
        ("rocm/vllm:rocm6.4_vllm_0.10.1_20250909", "0.10.1"),
        ("vllm/vllm-openai:latest", None),
        ("vllm/vllm-openai@sha256:0123456789abcdef", None),
    ],
)
def test_an_images_tag_is_the_engines_version_only_where_it_is_named_after_it(image: str, version: str | None) -> None:
    engine = "python3 -m sglang.launch_server --model-path" if "sglang" in image else "vllm serve"
    launch = only(f"services:\n  a:\n    image: {image}\n    entrypoint: []\n    command: {engine} m\n")
    assert launch["version"] == version


def test_dynamos_worker_takes_the_engines_options() -> None:
    launch = only(f"args: [python3, -m, dynamo.vllm, --model, m, --speculative-config, '{CONFIG}']\n")
    assert launch["speculative_config"].items() >= EFFECTIVE.items()


def test_a_deployment_may_mount_its_script_from_a_config_map_of_the_same_file() -> None:
    launch = only(
        "kind: ConfigMap\nmetadata: {name: m}\ndata:\n  start.sh: |\n    exec vllm serve org/m --config /etc/v/c.yaml\n"
        "  c.yaml: |\n    max-num-seqs: 7\n---\nkind: Deployment\nmetadata: {name: d}\nspec:\n  template:\n    spec:\n"
        "      containers:\n      - name: c\n        image: vllm/vllm-openai:v0.16.0\n"
        "        command: [/bin/bash, /scripts/start.sh]\n"
    )
    assert (launch["name"], launch["max_num_seqs"], launch["model"]) == ("d/c", 7, "org/m")


def test_a_config_file_that_the_script_writes_itself_is_read(tmp_path: Path) -> None:
    launch = only(
        "TP=4\ncat > serve.yaml <<EOF\ntensor-parallel-size: $TP\n"
        "speculative-config: {method: mtp, num_speculative_tokens: 2}\nEOF\n"
        "echo 'max-num-seqs: 9' >> serve.yaml\nvllm serve m --config serve.yaml > log.txt 2>&1\n"
    )
    assert (launch["tensor_parallel_size"], launch["max_num_seqs"]) == (4, 9)
    assert launch["speculative_config"]["method"] == "mtp"


def container(command: str) -> str:
    return (
        "kind: Pod\nmetadata: {name: l}\nspec:\n  containers:\n  - name: c\n    image: vllm/vllm-openai:v0.10.2\n"
        f"    command: {command}\n"
    )


def test_a_reference_in_a_containers_script_is_the_shells_business() -> None:
    script = only(container("[sh, -c, 'start.sh --size=$(LWS_GROUP_SIZE) $(date); vllm serve m']"))
    assert errors(script) == []
    direct = only(container("[vllm, serve, m, --port, $(P)]"))
    assert errors(direct) == ["unresolved-reference"]
    injected = only(container("[vllm, serve, m, --nnodes, $(LWS_GROUP_SIZE)]"))
    assert errors(injected) == []


def test_a_whole_command_in_one_item_names_no_program() -> None:
    launch = only(container("['vllm serve m --max-num-seqs 4']"))
    assert errors(launch) == ["command-in-one-item"]
    assert launch["max_num_seqs"] == 4


REFUSED = (
    "vllm serve: error: argument --speculative-config/-sc: Value {} cannot be converted to <function loads at 0x7f>."
)
LOG = (
    "(APIServer pid=1) INFO 11-20 08:00:00 [api_server.py:1] vLLM API server version 0.11.2\n"
    "(APIServer pid=1) INFO 11-20 08:00:00 [utils.py:253] non-default args: {'model_tag': 'org/m', 'model': 'org/m', "
    "'tensor_parallel_size': 8, 'enforce_eager': True, 'api_key': ['s3cr3t-value'], 'allowed_origins': ['*'], "
    "'speculative_config': {'method': 'ngram', 'num_speculative_tokens': 5, 'prompt_lookup_max': 4}}\n"
)


def test_the_arguments_that_an_engine_logs_are_its_launch() -> None:
    launch = only(f"noise\n{LOG}more noise\n")
    assert (launch["source_kind"], launch["version"], launch["model"]) == ("log", "0.11.2", "org/m")
    assert (launch["tensor_parallel_size"], launch["enforce_eager"]) == (8, True)
    assert launch["speculative_config"].items() >= EFFECTIVE.items()
    assert "s3cr3t-value" not in str(launch)


@pytest.mark.parametrize(
    ("value", "code"),
    [("{method:ngram,num_speculative_tokens:5}", "json-quotes-lost"), ('{"method":', "json-word-split")],
)
def test_a_refused_value_in_a_log_is_diagnosed(value: str, code: str) -> None:
    assert errors(only(f"usage: vllm serve [...]\n{REFUSED.format(value)}\n")) == [code]
    old = f"api_server.py: error: argument --speculative-config: invalid loads value: '{value}'"
    assert errors(only(old)) == [code]


def test_a_log_is_read_as_data_and_never_run() -> None:
    assert launches("INFO non-default args: {'model': __import__('os').getcwd()}") == []


def test_the_output_of_docker_inspect_is_what_runs() -> None:
    words = ["--model", "m", "--speculative-config", CONFIG]
    item = {
        "Name": "/llm",
        "Config": {
            "Image": "vllm/vllm-openai:v0.16.0", "Entrypoint": ["vllm", "serve"], "Cmd": words,
            "Env": ["VLLM_USE_V1=1", "HF_TOKEN=a-token-of-ours"],
        },
    }  # fmt: skip
    launch = only(json.dumps([item], indent=2))
    assert (launch["name"], launch["version"]) == ("llm", "0.16.0")
    assert launch["argv"] == ["vllm", "serve", *words]
    assert launch["environment"] == {"VLLM_USE_V1": "1"}
    assert "a-token-of-ours" not in str(launch)
    broken = inspect_launch(json.dumps([item])[:-9])
    assert (broken["launches"], errors(broken)) == ([], ["json-text"])


def test_what_systemctl_show_prints_has_lost_its_words() -> None:
    text = "ExecStart={ path=/bin/vllm ; argv[]=/bin/vllm serve m --speculative-config {} ; ignore_errors=no }\n"
    assert errors(inspect_launch(text)) == ["lossy-source"]


def test_a_program_of_supervisord_is_a_command_without_a_shell() -> None:
    launch = only(
        "[supervisord]\nnodaemon=true\n[program:llm] \n; a remark\n"
        f"command=/opt/v/bin/vllm serve %(ENV_M)s --x 100%%\n  --speculative-config '{CONFIG}' ; the drafts\n"
        'environment=M="org/m",VLLM_USE_V1="1"\nautostart=true\n'
    )
    assert launch["name"] == "llm"
    assert launch["argv"] == ["/opt/v/bin/vllm", "serve", "org/m", "--x", "100%", "--speculative-config", CONFIG]
    assert launch["environment"] == {"VLLM_USE_V1": "1"}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("llm.container", "[Container]\nImage=vllm/vllm-openai:v0.16.0\nExec=--model m\n"),
        ("llm.env", "MODEL_NAME=m\n"),
        ("llm.nix", '{ systemd.services.a.serviceConfig.ExecStart = "/bin/vllm serve m"; }'),
        ("llm.conf", "[program:a]\ncommand=vllm serve m\n"),
        ("llm.log", LOG),
        ("llm.json", '[{"Config": {"Cmd": ["vllm", "serve", "m"], "Image": "x"}}]'),
        ("pod.json", '{"kind": "Pod", "spec": {"containers": [{"name": "c", "command": ["vllm", "serve", "m"]}]}}'),
        ("Dockerfile", 'FROM x\nCMD ["vllm", "serve", "m"]\n'),
        ("ray.yaml", "engine_kwargs: {max_model_len: 10}\nmodel_loading_config: {model_id: m}\n"),
    ],
)
def test_every_file_of_these_can_stand_in_place_of_a_deployment(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    assert looks_like_launch(str(path))
    assert deployment_from_launch(str(path)).model_name in ("m", "org/m")


@pytest.mark.parametrize(
    ("version", "found"), [("0.11.0", ["config-nested-mapping", "json-python-quotes"]), ("0.16.0", [])]
)
def test_a_config_file_is_read_as_the_stated_version_reads_it(version: str, found: list[str]) -> None:
    text = "model: m\nspeculative-config:\n  method: ngram\n  num_speculative_tokens: 5\n"
    launch = dict(inspect_launch(text, known=Known(version))["launches"][0])
    assert errors(launch) == found
    if found:
        fix = next(finding["fix"] for finding in launch["findings"] if finding["code"] == "config-nested-mapping")
        assert errors(dict(inspect_launch(f"model: m\n{fix}\n", known=Known(version))["launches"][0])) == []


@pytest.mark.parametrize(
    "image",
    ["  repository: vllm/vllm-openai\n  tag: v0.16.0\n", "  image: {repository: vllm/vllm-openai, tag: v0.16.0}\n"],
)
def test_the_tag_in_a_charts_values_tells_the_version(image: str) -> None:
    launch = only(
        f"modelSpec:\n- name: llama\n  modelURL: org/m\n{image}  vllmConfig:\n    extraArgs: ['-sc', '{{}}']\n"
    )
    assert launch["version"] == "0.16.0"


def test_an_alias_that_the_version_lacks_is_one_error() -> None:
    text = f"pip install vllm==0.20.2\nvllm serve m --spec-tokens 4 --speculative-config '{CONFIG}'"
    assert errors(only(text)) == ["option-not-in-version"]


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ("--speculative-num-steps 3", ["speculative-options-incomplete"]),
        ("--speculative-num-steps 3 --speculative-eagle-topk 1", []),
        ("--speculative-num-steps 3 --speculative-eagle-topk 4", ["speculative-options-incomplete"]),
        ("--speculative-num-steps 3 --speculative-eagle-topk 4 --speculative-num-draft-tokens 8", []),
        ("", []),
    ],
)
def test_sglang_wants_all_of_steps_topk_and_width_or_none(options: str, found: list[str]) -> None:
    start = "python -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V3 --speculative-algorithm NEXTN"
    assert errors(only(f"{start} {options}")) == found
