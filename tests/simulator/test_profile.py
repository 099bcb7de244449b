"""The profile file: what is written is read again, and what is wrong is named in one line."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import box, profile_of

from hwmodel.errors import InputError
from simulator.misfit import Misfit
from simulator.profile import Anchor, MeasuredCurve, PooledAcceptance, Profile, parse_profile, read_profile


@pytest.fixture(scope="module")
def full() -> Profile:
    """A profile in which everything is said."""
    return profile_of(
        box(),
        {"host_step_ms": 1.5},
        log_factors=0.02,
        method="eagle3",
        settings={"allreduce_algorithm": "one-shot", "allreduce_one_shot_max_kib": 256.0},
        anchors=(Anchor(4.0, 1500.0, 0.011, 0.02, 0.015),),
        acceptance=(PooledAcceptance("eagle3", 3, 100.0, (60.0, 36.0, 20.0), 100.0, 10.0),),
        curve=MeasuredCurve((4096.0, 65536.0), (1e-5, 4e-5), 2, "nccl.txt"),
        kv_cache_tokens=500_000.0,
        data=({"path": "a.csv", "format": "table", "sha256": "ab"},),
        cells_sha256=("cd",),
        facts_sha256=("ef",),
        stated_acceptance="12",
        misfit=Misfit(3, 1, False, "TPOT at C=4", -0.6, 0.05, 0.3, 2.5, (4.0, 64.0), (-0.3, -0.1)),
    )


def test_a_profile_of_an_earlier_version_has_no_misfit(full: Profile) -> None:
    document = full.to_document()
    del document["misfit"]
    assert parse_profile(document).misfit is None


def test_a_misfit_of_an_earlier_version_says_nothing_of_other_loads(full: Profile) -> None:
    document = full.to_document()
    del document["misfit"]["loads"], document["misfit"]["carried"]
    misfit = parse_profile(document).misfit
    assert misfit is not None
    assert misfit.loads == misfit.carried == ()
    assert "was measured:" not in misfit.sentence()


def test_a_written_profile_is_read_again_as_it_was(full: Profile) -> None:
    again = parse_profile(json.loads(json.dumps(full.to_document())))
    for name in Profile.__dataclass_fields__:
        ours, theirs = getattr(full, name), getattr(again, name)
        assert np.array_equal(ours, theirs) if isinstance(ours, np.ndarray) else ours == theirs, name


def test_keys_that_are_for_people_are_not_read(full: Profile) -> None:
    again = parse_profile({**full.to_document(), "report": {"anything": [1, {"x": None}]}})
    assert again.kv_cache_tokens == 500_000.0


def test_the_hash_of_the_file_is_kept(full: Profile, tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    path.write_text(json.dumps(full.to_document()), encoding="utf-8")
    assert len(read_profile(path).sha256) == 64


def broken(path: list[Any], value: Any) -> Callable[[dict[str, Any]], None]:
    """A change of one value; None as the value deletes the key."""

    def change(document: dict[str, Any]) -> None:
        here: Any = document
        for part in path[:-1]:
            here = here[part]
        if value is None:
            del here[path[-1]]
        else:
            here[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (broken(["format"], "other"), "got no draftcast-profile"),
        (broken(["schema"], 2), "got schema 2, allowed: 1"),
        (broken(["mode"], [1.0]), "mode: got a list of 1, allowed: "),
        (broken(["mode", 0], "x"), "mode: got a list of"),
        (broken(["mode", 0], float("nan")), "mode: got a list of"),
        (broken(["covariance", 0, 1], 5.0), "covariance: not symmetric"),
        (broken(["covariance", 0, 0], -1.0), "covariance: not positive definite"),
        (broken(["covariance", 0], [1.0]), "covariance[0].row: got a list of 1"),
        (broken(["identity", "tensor"], 0), "identity.tensor: got 0, allowed: a whole number from 1"),
        (broken(["identity", "expert_parallel"], 1), "identity.expert_parallel: got 1, allowed: true or false"),
        (broken(["identity"], None), "identity: got nothing, allowed: a table"),
        (broken(["priors", 0, "kind"], "gamma"), 'priors[0].kind: got "gamma", allowed: lognormal, normal, switch'),
        (broken(["priors", 0, "center"], 1e9), "priors[0].center: got 1000000000.0, allowed: 0.2 to 1"),
        (broken(["priors", 1, "name"], "bandwidth_efficiency"), "priors: a parameter stands twice"),
        (broken(["settings", "gpu_memory"], 1), "settings: got gpu_memory, allowed: allreduce_algorithm"),
        (broken(["settings", "allreduce_one_shot_max_kib"], -1), "settings.allreduce_one_shot_max_kib: got -1"),
        (broken(["anchors", 0, "step_s"], 0), "anchors[0].step_s: got 0"),
        (broken(["acceptance", 0, "accepted_per_position"], [60, 70]), "acceptance[0].accepted_per_position"),
        (broken(["acceptance", 0, "steps"], 10), "acceptance[0].steps: got 10"),
        (broken(["curve", "sizes_bytes"], [8.0, 4.0]), "curve.sizes_bytes: got a list of 2, allowed: increasing"),
        (broken(["curve", "times_s"], [1.0]), "curve.times_s: got a list of 1, allowed: 2 finite numbers"),
        (broken(["data", 0, "sha256"], 5), "data[0]: allowed: texts only"),
        (broken(["created"], 5), "created: got 5, allowed: a text"),
        (broken(["model_error"], True), "model_error: got true"),
        (broken(["kv_cache_tokens"], -3), "kv_cache_tokens: got -3"),
        (broken(["cells_sha256"], [1]), "cells_sha256: got a list of 1, allowed: a list of texts"),
    ],
)
def test_a_wrong_value_is_named_by_its_place(full: Profile, change: Callable[[Any], None], said: str) -> None:
    document = json.loads(json.dumps(full.to_document()))
    change(document)
    with pytest.raises(InputError) as caught:
        parse_profile(document)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "document: got a list of 0, allowed: a table"),
        (b"\xff\xfe", "not JSON"),
        (b'{"results": []}', "got no draftcast-profile"),
    ],
)
def test_what_is_no_profile_is_said_in_one_line(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "p.json"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_profile(path)
    assert said in str(caught.value)
    assert "p.json" in str(caught.value)


def test_a_folder_a_missing_file_and_a_huge_one_are_said(tmp_path: Path) -> None:
    huge = tmp_path / "huge"
    huge.write_bytes(b" " * 8_000_001)
    for path, said in ((tmp_path, "directory"), (tmp_path / "none", "No such file"), (huge, "larger than")):
        with pytest.raises(InputError, match=said):
            read_profile(path)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats() | st.text(max_size=5),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.text(max_size=5), inside, max_size=3),
    max_leaves=5,
)


@settings(max_examples=150)
@given(data=st.data())
def test_any_value_anywhere_is_read_or_refused(data: st.DataObject, full: Profile) -> None:
    document = json.loads(json.dumps(full.to_document()))
    here: Any = document
    for _ in range(data.draw(st.integers(1, 3))):
        keys = list(here) if isinstance(here, dict) else list(range(len(here)))
        if not keys:
            break
        key = data.draw(st.sampled_from(keys))
        if isinstance(here[key], dict | list) and data.draw(st.booleans()):
            here = here[key]
            continue
        here[key] = data.draw(_JSON)
        break
    said, mode = "", np.zeros(1)
    try:
        mode = parse_profile(document).mode
    except InputError as error:
        said = str(error)
    assert "\n" not in said
    assert len(said) < 400
    assert np.all(np.isfinite(mode))
