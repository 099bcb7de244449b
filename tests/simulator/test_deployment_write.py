import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwmodel.errors import InputError, UnknownNameError
from simulator.choose import choose
from simulator.deployment import load_deployment
from simulator.deployment.load import apply_overrides, read_tables
from simulator.deployment.write import file_text, toml_text
from simulator.predict import predict

MEASURED = """
[model]
config = "qwen3-30b-a3b-bf16"
[hardware]
gpu = "rtx-pro-6000-blackwell-server"
num_gpus = 2
[engine]
version = "0.16.0"
tensor_parallel_size = 2
[speculation]
method = "eagle3"
num_speculative_tokens = 3
acceptance = { conditional = [0.6] }
launch_config = { "odd key" = "a\\"b", nested = { x = [1, 2] } }
[workload]
concurrency = [1, 8]
[parameters]
kernel_floor_us = { median = 4.0, log_sd = 0.2 }
[[measured]]
concurrency = 1
tpot_ms = 4.5
[[measured]]
concurrency = 8
tpot_ms = 7.5
"""

scalars = st.one_of(
    st.booleans(), st.integers(-(2**62), 2**62), st.floats(allow_nan=False, allow_infinity=False), st.text()
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3), max_leaves=6
)


@given(st.dictionaries(st.text(), st.dictionaries(st.text(), values, max_size=3), max_size=3))
def test_any_tables_come_back_as_they_were(tables: dict[str, Any]) -> None:
    assert tomllib.loads(toml_text(tables)) == tables


@pytest.mark.parametrize("value", [None, {"x": [None]}, "\ud800"])
def test_what_toml_cannot_say_is_refused_in_one_line(value: object) -> None:
    with pytest.raises(InputError, match=r"a\.b: got .*, (which|allowed)"):
        toml_text({"a": {"b": value}})


def figures(source: Any, **asked: Any) -> tuple[Any, Any]:
    """Both answers but for their notes, which say how the deployment came about."""
    answers = [answer(source, num_draws=200, **asked).to_dict() for answer in (choose, predict)]
    return tuple({key: value for key, value in answer.items() if key != "notes"} for answer in answers)  # type: ignore[return-value]


@pytest.mark.parametrize(
    "overrides",
    [
        (),
        ("speculation.method=ngram", "speculation.num_speculative_tokens=2"),
        ("hardware.num_gpus=4", "engine.tensor_parallel_size=4"),
        ("hardware.gpu=h200",),
        ("engine.tensor_parallel_size=2",),  # as it was: the facts then still belong to the file as written
        ("workload.input_tokens=3000", "parameters.kernel_floor_us=5"),
        ("speculation.acceptance.conditional=0.8,0.7", "objective.maximise=tpot"),
        ("measured.0.tpot_ms=5", "hardware.interconnect=pcie-root"),
        ("model.config=llama-3.2-1b-bf16",),
    ],
)
def test_a_file_written_from_a_changed_deployment_gives_the_same_answer(
    overrides: tuple[str, ...], tmp_path: Any
) -> None:
    first, second = tmp_path / "first.toml", tmp_path / "second.toml"
    first.write_text(MEASURED, encoding="utf-8")
    changed = load_deployment(first, overrides)
    second.write_text(file_text(changed, ["why\nit is"]), encoding="utf-8")
    again = load_deployment(second)
    assert figures(again) == figures(changed)
    assert file_text(again) == file_text(changed)  # and once more


def test_facts_of_another_baseline_are_written_with_it_and_stay_its_under_further_overrides(tmp_path: Any) -> None:
    first, second = tmp_path / "first.toml", tmp_path / "second.toml"
    first.write_text(MEASURED, encoding="utf-8")
    changed = load_deployment(first, ["engine.tensor_parallel_size=1"])
    second.write_text(file_text(changed), encoding="utf-8")
    assert read_tables(second)["measured_on"] == {"engine": {"version": "0.16.0", "tensor_parallel_size": 2}}
    more = ["workload.output_tokens=500"]
    assert figures(load_deployment(second, more)) == figures(apply_overrides(changed, more))
    own = load_deployment(second, ["measured.1.tpot_ms=8"])
    assert own.measured_on is own


def test_a_file_with_an_unknown_or_faulty_origin_is_refused(tmp_path: Any) -> None:
    path = tmp_path / "box.toml"
    path.write_text("measured_on = 1\n" + MEASURED, encoding="utf-8")
    with pytest.raises(InputError, match=r"measured_on: got a value, allowed: \[measured_on.TABLE\]"):
        load_deployment(path)
    path.write_text(MEASURED + "[measured_on.measured]\n", encoding="utf-8")
    with pytest.raises(UnknownNameError, match=r"unknown table 'measured_on\.measured'; known: model, hardware"):
        load_deployment(path)
    path.write_text(MEASURED + "[measured_on.engine]\ntensor_parallel_size = 0\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"engine\.tensor_parallel_size: got 0, allowed: integer from 1"):
        load_deployment(path)


def test_comments_cannot_end_their_line() -> None:
    deployment = load_deployment({"model": {"config": "llama-3.2-1b-bf16"}, "hardware": {"gpu": "h200"}})
    text = file_text(deployment, ["a\n[model]\x00"])
    assert text.startswith("# a [model] \n[model]\n")
    assert load_deployment(tomllib.loads(text)) == deployment
