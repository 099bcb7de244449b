"""Loading the deployment file: the reference case, paths, and one line for everything that cannot be read."""

import datetime
from pathlib import Path
from typing import Any

import pytest

from hwmodel.errors import InputError, UnknownNameError
from simulator.deployment import apply_overrides, known_keys, load_deployment, read_tables, with_method

REFERENCE = Path(__file__).parents[2] / "examples" / "kimi-k2.5-8x-rtx-pro-6000.toml"
SMALL: dict[str, Any] = {"model": {"config": "kimi-k2.5-int4"}, "hardware": {"gpu": "h200"}}


def small(**tables: Any) -> dict[str, Any]:
    """The smallest deployment with `tables` laid over it."""
    return {**SMALL, **tables}


def message(source: Any, *overrides: str) -> str:
    """The one line with which loading ends."""
    with pytest.raises(InputError) as caught:
        load_deployment(source, overrides)
    text = str(caught.value)
    assert "\n" not in text
    assert text.isprintable()
    return text


def test_the_reference_case_loads_with_its_numbers_and_the_defaults() -> None:
    deployment = load_deployment(REFERENCE)
    assert deployment.model.config == "kimi-k2.5-int4"
    assert deployment.num_gpus == 8
    assert deployment.workload.concurrency == (1, 4, 16, 64, 128)
    assert deployment.workload.context_tokens == 1500
    assert deployment.speculation.lookup_range == (4, 4)
    assert deployment.speculation.effective_policy == "static"
    assert deployment.measured[0].allreduce_share == 0.515
    assert deployment.objective.min_probability_faster == 0.8
    assert deployment.restart.replicas == 1
    assert deployment.notes == ()


def test_lookup_bounds_fill_each_other_as_the_engine_does() -> None:
    assert load_deployment(small()).speculation.lookup_range == (5, 5)
    assert load_deployment(small(speculation={"prompt_lookup_min": 2})).speculation.lookup_range == (2, 2)
    both = small(speculation={"prompt_lookup_min": 2, "prompt_lookup_max": 4})
    assert load_deployment(both).speculation.lookup_range == (2, 4)


def test_without_num_gpus_the_parallel_sizes_say_how_many() -> None:
    engine = {"tensor_parallel_size": 4, "pipeline_parallel_size": 2}
    assert load_deployment(small(engine=engine)).num_gpus == 8


def test_a_single_concurrency_is_a_list_of_one() -> None:
    assert load_deployment(small(workload={"concurrency": 16})).workload.concurrency == (16,)


def test_loading_a_mapping_leaves_it_as_it_was() -> None:
    source = small(workload={"concurrency": 16})
    load_deployment(source, ["workload.concurrency=1,2", "engine.tensor_parallel_size=1"])
    assert source == small(workload={"concurrency": 16})


def test_paths_in_a_file_are_relative_to_its_folder(tmp_path: Path) -> None:
    (tmp_path / "nccl.txt").write_text("# nothing\n")
    (tmp_path / "d.toml").write_text(
        '[model]\nconfig = "my/config.json"\n[hardware]\ngpu = "h200"\nnccl_tests = "nccl.txt"\n'
        '[speculation]\ndraft_model = "org/name-eagle3"\n'
    )
    deployment = load_deployment(tmp_path / "d.toml")
    assert deployment.hardware.nccl_tests == str(tmp_path / "nccl.txt")
    assert deployment.model.config == str(tmp_path / "my" / "config.json")
    assert deployment.hardware.gpu == "h200"
    assert deployment.speculation.draft_model == "org/name-eagle3"


def test_a_path_with_a_blank_is_relative_to_its_folder_too_and_a_launch_command_is_none(tmp_path: Path) -> None:
    (tmp_path / "my models").mkdir()
    (tmp_path / "my models" / "config 1.json").write_text("{}")
    (tmp_path / "d.toml").write_text(
        '[model]\nconfig = "my models/config 1.json"\n[hardware]\ngpu = "h200"\n'
        '[engine]\nlaunch = "vllm serve ./config.json"\n'
    )
    tables = read_tables(tmp_path / "d.toml")
    assert tables["model"]["config"] == str(tmp_path / "my models" / "config 1.json")
    assert tables["engine"]["launch"] == "vllm serve ./config.json"


def test_read_tables_gives_the_file_as_it_stands() -> None:
    assert read_tables(REFERENCE)["speculation"]["prompt_lookup_max"] == 4


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"[model\nconfig = 1", "line 1"),
        (b"[model]\nconfig = 'x'\n[model]\n", "not valid TOML"),
        (b"a = \xff", "not UTF-8 text (byte 4)"),
        (b"a = " + b"[" * 50_000, "TOML"),
        (b"a = 1" + b"0" * 5000, "not valid TOML"),
        (b"#" * 1_000_001, "larger than 1000000 bytes"),
        (b"", "missing table [model]; it needs config"),
        (b"model = 3", "model: got 3, allowed: table"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_line(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "d.toml"
    path.write_bytes(content)
    assert said in message(path)


def test_a_missing_file_and_a_folder_are_one_line(tmp_path: Path) -> None:
    assert "no such file" in message(tmp_path / "absent.toml")
    assert "is a directory" in message(str(tmp_path))
    assert "cannot be read" in message("a\0b")
    assert "cannot be read" in message("x" * 5000)


def test_a_file_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    path = tmp_path / "d.toml"
    path.write_bytes(b"\xef\xbb\xbf" + REFERENCE.read_bytes())
    assert load_deployment(path).num_gpus == 8


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ({"hardware": {"gpu": "h200", "num_gpu": 8}}, "nearest: 'hardware.num_gpus'"),
        ({"hardwear": {}}, "unknown key 'hardwear' (nearest: 'hardware')"),
        ({"model": {}}, "missing key model.config"),
        ({"engine": {"tensor_parallel_size": "8"}}, 'got "8" (write it without quotes), allowed: integer from 1'),
        ({"model": {"confg": "x"}}, "config, weights_gb (and 1 more problem)"),
        ({"engine": {"tensor_parallel_size": True}}, "got true, allowed: integer from 1"),
        ({"engine": {"tensor_parallel_size": 1.5}}, "got 1.5, allowed: integer from 1"),
        ({"engine": {"version": 0.16}}, "engine.version: got 0.16 (write it in quotes), allowed: text"),
        ({"engine": {"expert_parallel": 1}}, "got 1, allowed: true or false"),
        ({"engine": {"gpu_memory_utilization": 0}}, "got 0, allowed: number above 0 up to 1"),
        ({"engine": {"gpu_memory_utilization": 1.01}}, "got 1.01, allowed: number above 0 up to 1"),
        ({"engine": {"name": "vlm"}}, '"vlm" (nearest: vllm), allowed: one of: vllm, sglang'),
        ({"engine": {"decode_context_parallel_size": 2}}, "allowed: a divisor of tensor_parallel_size = 1"),
        ({"hardware": {"gpu": "h200", "num_gpus": 2}, "engine": {"tensor_parallel_size": 4}}, "= 4 GPUs, allowed"),
        ({"hardware": {"gpu": "h200", "nccl_tests": "absent\n.txt"}}, "hardware.nccl_tests: no file"),
        ({"hardware": {"gpu": "h200", "allreduce_latency_us": -1}}, "got -1, allowed: number above 0"),
        ({"workload": {"concurrency": []}}, "got an empty list"),
        ({"workload": {"concurrency": list(range(1, 70))}}, "workload.concurrency: got 69 values, allowed: at most 64"),
        ({"engine": {"version": "0" * 90}}, "engine.version: got 90 characters, allowed: at most 64"),
        ({"workload": {"concurrency": [0]}}, "got 0, allowed: list, each integer from 1 to 100000"),
        ({"workload": {"concurrency": [100_001]}}, "got 100001"),
        ({"workload": {"concurrency": [1.5]}}, "got 1.5"),
        ({"workload": {"concurrency": True}}, "got true"),
        ({"workload": {"concurrency": [4, 4]}}, "got 4 twice"),
        ({"workload": {"concurrency": [1, 4], "weights": [1]}}, "got 1, allowed: one for each of 2"),
        ({"workload": {"concurrency": [1, 4], "weights": [0, 0]}}, "all are 0"),
        ({"workload": {"concurrency": [1, 4], "weights": [-1, 2]}}, "got -1"),
        ({"workload": {"length_distribution": "lognorml"}}, "allowed: fixed, lognormal, or the path of a file"),
        ({"workload": {"input_tokens": 10**400}}, "workload.input_tokens"),
        ({"workload": {"length_log_sd": 10**400}}, "workload.length_log_sd"),
        ({"workload": {"input_tokens": 900}, "engine": {"max_model_len": 1000}}, "= 1900, allowed: up to"),
        ({"workload": {"kind": "prose"}}, "allowed: one of: chat, code, reasoning, agent, mixed"),
        ({"objective": {"percentile": 0.99}}, "number from 1 below 100"),
        ({"objective": {"maximise": "goodput"}}, "goodput without a limit"),
        ({"restart": {"outage_min": -30}}, "restart.outage_min: got -30, allowed: number from 0"),
        ({"restart": {"outage_min": float("nan")}}, "restart.outage_min: got nan"),
        ({"restart": {"outage_min": float("inf")}}, "restart.outage_min: got inf"),
        ({"parameters": {"rho": "x"}}, 'parameters.rho: got "x", allowed: number, or { median'),
        ({"parameters": {"rho": {"median": 1}}}, "parameters.rho: got {'median': 1}"),
        ({"parameters": {"rho": {"median": 1, "log_sd": 1, "sd": 2}}}, "parameters.rho: got"),
        ({"measured": {"concurrency": 1}}, "list of tables ([[measured]])"),
        ({"measured": [{"tpot_ms": 3}]}, "missing key measured.concurrency"),
        ({"measured": [{"concurrency": 1}]}, "no fact at concurrency 1"),
        ({"measured": [{"concurrency": 1, "tpot_ms": 10, "throughput_tokens_per_s": 1000}]}, "up to 100, since"),
        ({"measured": [{"concurrency": 1, "tpot_ms": 0}]}, "measured.tpot_ms: got 0, allowed: number from 0.001"),
        ({"speculation": {"num_speculative_tokens": -1}}, "got -1, allowed: integer from 0 to 64"),
        ({"speculation": {"num_speculative_tokens": 10_000}}, "got 10000, allowed: integer from 0 to 64"),
        ({"speculation": {"method": "eagle-3"}}, "nearest: eagle3"),
        ({"speculation": {"prompt_lookup_min": 5, "prompt_lookup_max": 4}}, "got 5, allowed: 1 to prompt_lookup_max"),
        ({"speculation": {"schedule": [[2, 64, 3]]}}, "first range starts at 2, allowed: 1"),
        ({"speculation": {"schedule": [[1, 64, 3], [64, 128, 1]]}}, "starts within the range up to 64"),
        ({"speculation": {"schedule": [[9, 1, 3]]}}, "allowed: lo up to hi"),
        ({"speculation": {"schedule": [[1, 9, -1]]}}, "speculation.schedule: got -1"),
        ({"speculation": {"schedule": [[1, 9]]}}, "missing key speculation.schedule"),
        ({"speculation": {"policy": "schedule"}}, "got schedule without speculation.schedule"),
        ({"speculation": {"policy": "optimal", "schedule": [[1, 9, 3]]}}, "got optimal beside a schedule"),
        ({"speculation": {"policy": "sglang-adaptive"}}, "for engine vllm"),
        ({"speculation": {"sglang_topk": 4}}, "for engine vllm"),
        ({"speculation": {"draft_tensor_parallel_size": 4}}, "allowed: 1 or tensor_parallel_size = 1"),
    ],
)
def test_a_wrong_value_is_one_line_with_what_got_and_allowed(tables: dict[str, Any], said: str) -> None:
    assert said in message(small(**tables))


def test_a_misspelt_key_is_named_before_the_key_that_it_left_missing() -> None:
    assert message({"model": {"confg": "x"}, "hardware": {"gpu": "h200"}}).startswith("unknown key 'model.confg'")


def test_unknown_keys_are_unknown_names() -> None:
    with pytest.raises(UnknownNameError, match=r"known tables: model, hardware"):
        load_deployment(small(zzz=1))


def test_control_characters_of_the_input_do_not_reach_the_message() -> None:
    assert "\x1b" not in message(small(engine={"name": "\x1b[31mred\nline"}))


def test_a_schedule_with_a_gap_and_a_zero_is_fine() -> None:
    deployment = load_deployment(small(speculation={"schedule": [[1, 64, 3], [100, 128, 0]]}))
    assert deployment.speculation.schedule == ((1, 64, 3), (100, 128, 0))
    assert deployment.speculation.effective_policy == "schedule"


def test_overrides_reach_any_key() -> None:
    deployment = load_deployment(
        REFERENCE,
        [
            "hardware.num_gpus=4",
            "engine.tensor_parallel_size=4",
            "engine.version=0.17",
            "engine.expert_parallel=True",
            "workload.concurrency=1, 8",
            'workload.kind="code"',
            "workload.temperature=.6",
            "speculation.schedule=[[1, 64, 3]]",
            "parameters.rho={median = 0.2, log_sd = 0.1}",
            "parameters.kappa.median=12",
            "parameters.kappa.log_sd=0.5",
            "measured.tpot_ms=14",
            "restart={outage_min = 5}",
            "objective.tpot_ms_max=",
        ],
    )
    assert (deployment.num_gpus, deployment.engine.version, deployment.engine.expert_parallel) == (4, "0.17", True)
    assert (deployment.workload.concurrency, deployment.workload.kind) == ((1, 8), "code")
    assert (deployment.workload.temperature, deployment.restart.outage_min) == (0.6, 5)
    assert deployment.measured[0].tpot_ms == 14
    assert {name: prior.median for name, prior in deployment.parameters.items()} == {"rho": 0.2, "kappa": 12}  # type: ignore[union-attr]


def test_measured_is_cleared_and_set_by_index() -> None:
    assert load_deployment(REFERENCE, ["measured=[]"]).measured == ()
    assert load_deployment(REFERENCE, ["measured="]).measured == ()
    assert load_deployment(REFERENCE, ["measured.0.tpot_ms=20"]).measured[0].tpot_ms == 20
    assert "got entry 1, allowed: 0 to 0" in message(REFERENCE, "measured.1.tpot_ms=20")
    two = small(measured=[{"concurrency": 1, "tpot_ms": 9}, {"concurrency": 2, "tpot_ms": 9}])
    assert "2 entries, so name one: measured.0.KEY" in message(two, "measured.tpot_ms=20")


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("hardware.num_gpu=4", "nearest: 'hardware.num_gpus'"),
        ("hardware.gpu.name=4", "known keys of [hardware]"),
        ("nonsense", "allowed: KEY=VALUE"),
        ("=3", "allowed: KEY=VALUE"),
        ("foo=1", "known tables"),
        ("workload.concurrency=1,x", 'got "x"'),
        ("engine.max_num_seqs=1\nx = 2", "engine.max_num_seqs: got"),
        ("parameters=3", "parameters: got 3"),
    ],
)
def test_a_wrong_override_is_one_line(override: str, said: str) -> None:
    assert said in message(REFERENCE, override)


def test_overriding_the_concurrencies_drops_the_weights_of_the_files_list() -> None:
    source = small(workload={"concurrency": [1, 4], "weights": [1, 2]})
    assert load_deployment(source, ["workload.concurrency=1,4,16"]).workload.weights is None
    both = load_deployment(source, ["workload.weights=3,1", "workload.concurrency=8,9"])
    assert both.workload.weights == (3, 1)


def test_another_method_leaves_out_what_describes_the_files_own() -> None:
    source = small(
        speculation={
            "method": "ngram",
            "prompt_lookup_max": 4,
            "acceptance": {"per_position": [0.5]},
            "policy": "static",
        }
    )
    deployment, notes = with_method(load_deployment(source), "eagle3")
    assert deployment.speculation.acceptance is None
    assert deployment.speculation.prompt_lookup_max is None
    assert deployment.speculation.policy == "static"
    assert notes == (
        "acceptance, prompt_lookup_max of [speculation] left out: stated for method ngram, not for eagle3",
    )
    assert deployment.notes == notes
    assert load_deployment(source, ["speculation.method=eagle3"]).notes == notes


LAUNCHED = small(
    speculation={"method": "eagle3", "launch_config": {"model": "/models/head", "draft_sample_method": "probabilistic"}}
)


def test_another_method_leaves_out_the_launchs_speculative_config() -> None:
    deployment, notes = with_method(load_deployment(LAUNCHED), "mtp")
    assert deployment.speculation.launch_config is None
    assert notes == ("launch_config of [speculation] left out: stated for method eagle3, not for mtp",)
    assert load_deployment(LAUNCHED, ["speculation.method=mtp"]).notes == notes


def test_the_drafter_is_named_as_the_launch_names_it_until_another_is_stated() -> None:
    assert load_deployment(LAUNCHED).speculation.drafter == "/models/head"
    other = load_deployment(LAUNCHED, ["speculation.draft_model=org/other"]).speculation
    assert other.drafter == "org/other"
    assert other.launch_config == {"draft_sample_method": "probabilistic"}


def test_a_key_of_the_launchs_config_is_reached_by_an_override() -> None:
    changed = load_deployment(LAUNCHED, ["speculation.launch_config.draft_sample_method=greedy"]).speculation
    assert changed.launch_config == {"model": "/models/head", "draft_sample_method": "greedy"}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), datetime.date(2025, 1, 1)])
def test_a_launch_config_that_is_no_json_is_one_line(value: object) -> None:
    text = message(small(speculation={"method": "ngram", "launch_config": {"x": [value]}}))
    assert text.startswith("speculation.launch_config: ")


@pytest.mark.parametrize("override", ["engine.launch=vllm serve x --tensor-parallel-size 4", "engine.launch=start.sh"])
def test_a_launch_that_nobody_expanded_is_refused_rather_than_ignored(override: str) -> None:
    assert "the launch as DEPLOYMENT, or written in the deployment file" in message(small(), override)
    with pytest.raises(InputError, match=r"engine\.launch"):
        apply_overrides(load_deployment(small()), [override])


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("model.weights_gb", 0.0001),
        ("model.weights_gb", 100_001),
        ("hardware.allreduce_latency_us", 100_001),
        ("hardware.allreduce_busbw_gb_per_s", 0.0001),
        ("hardware.allreduce_busbw_gb_per_s", 100_001),
        ("hardware.host_overhead_ms", 1001),
        ("objective.tpot_ms_max", 2e7),
        ("objective.ttft_ms_max", 2e7),
        ("restart.outage_min", 100_001),
        ("restart.rollback_min", 100_001),
        ("restart.traffic_tokens_per_s", 2e9),
        ("costs.gpu_hour_price", 2e6),
        ("costs.training_tokens", 2e15),
        ("measured.tpot_ms", 600_001),
        ("measured.tpot_ms", 1e-300),
        ("measured.step_ms", 600_001),
        ("measured.throughput_tokens_per_s", 2e8),
    ],
)
def test_values_beyond_any_machine_are_one_line(key: str, value: float) -> None:
    table, name = key.split(".")
    tables = {"concurrency": 1, name: value} if table == "measured" else {name: value}
    merged = SMALL.get(table, {}) | tables
    text = message(small(**{table: [merged] if table == "measured" else merged}))
    assert text.startswith(f"{key}: got ")
    assert "allowed: number" in text


@pytest.mark.parametrize(
    ("engine", "dtype", "known"),
    [
        ("vllm", "fp8_e4m3", True),
        ("vllm", "auto", True),
        ("vllm", "nvfp4", True),
        ("vllm", "int3", False),
        ("vllm", "fp4_e2m1", False),
        ("sglang", "fp4_e2m1", True),
        ("sglang", "fp3", False),
    ],
)
def test_a_cache_format_is_one_that_the_engine_has(engine: str, dtype: str, known: bool) -> None:
    source = small(engine={"name": engine, "kv_cache_dtype": dtype})
    if known:
        assert load_deployment(source).engine.kv_cache_dtype == dtype
    else:
        assert message(source).startswith(f"engine.kv_cache_dtype: got '{dtype}', allowed: one of: auto, ")


def test_acceptance_given_with_the_other_method_stays() -> None:
    overrides = ["speculation.acceptance.per_position=0.7,0.5", "speculation.method=eagle3"]
    deployment = load_deployment(REFERENCE, overrides)
    assert deployment.speculation.acceptance is not None
    assert deployment.speculation.acceptance.per_position == (0.7, 0.5)


def test_a_file_that_names_no_method_keeps_its_acceptance_for_the_one_asked_for() -> None:
    source = small(speculation={"acceptance": {"per_position": [0.5]}})
    deployment, notes = with_method(load_deployment(source), "eagle3")
    assert deployment.speculation.acceptance is not None
    assert notes == ()


def test_the_files_own_method_keeps_everything() -> None:
    deployment = load_deployment(REFERENCE)
    assert with_method(deployment, "ngram") == (deployment, ())
    with pytest.raises(UnknownNameError, match="allowed: one of: none, ngram"):
        with_method(deployment, "telepathy")


def test_an_acceptance_form_by_override_replaces_the_files_form() -> None:
    source = small(speculation={"method": "eagle3", "acceptance": {"mean_length": 2.2, "measured_at_k": 3}})
    acceptance = load_deployment(source, ["speculation.acceptance.rate=0.4"]).speculation.acceptance
    assert acceptance is not None
    assert (acceptance.form, acceptance.rate, acceptance.measured_at_k) == ("rate", 0.4, 3)


def test_overrides_on_a_loaded_deployment_keep_what_was_stated() -> None:
    changed = apply_overrides(load_deployment(REFERENCE), ["workload.concurrency=2", "engine.max_num_seqs=64"])
    assert changed.workload.concurrency == (2,)
    assert (changed.workload.kind, changed.engine.max_num_seqs) == ("reasoning", 64)
    assert "concurrency" in changed.workload.stated
    assert "weights" not in changed.workload.stated


def test_every_key_has_a_meaning_a_type_and_is_reached_by_an_override() -> None:
    keys = known_keys()
    assert len({info.key for info in keys}) == len(keys)
    assert all(info.meaning and info.type for info in keys)
    by_key = {info.key: info for info in keys}
    assert by_key["hardware.allreduce_busbw_gb_per_s"].unit == "GB/s"
    assert by_key["restart.outage_min"].unit == "minutes"
    assert by_key["speculation.prompt_lookup_min"].unit == ""
    assert by_key["objective.min_probability_faster"].default == "0.8"
    assert by_key["model.config"].default == "required"
    assert by_key["speculation.acceptance.rate"].type == "number from 0 to 1"
