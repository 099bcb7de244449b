"""What a foreign config.json is called, wherever it lies."""

import json
from pathlib import Path

import pytest

from hwmodel.models import load_model

CONFIG = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 128,
    "vocab_size": 1000,
    "torch_dtype": "bfloat16",
}
COMMIT = "3a5b0c1d2e3f405162738495a6b7c8d9e0f10213"


def written(folder: Path, **more: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "config.json"
    path.write_text(json.dumps({**CONFIG, **more}), encoding="utf-8")
    return path


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder whose name says nothing."""
    place = tmp_path / "downloads"
    place.mkdir()
    monkeypatch.chdir(place)
    return place


@pytest.mark.parametrize("inner", [f"snapshots/{COMMIT}", f"snapshots/{COMMIT}/sub", "snapshots/main"])
def test_a_repository_in_the_cache_of_hugging_face_keeps_its_name(here: Path, inner: str) -> None:
    path = written(here / "hub" / "models--org-a--Some-Model-8B" / inner)
    assert load_model(str(path)).name == "org-a/Some-Model-8B"
    assert load_model(str(path.parent)).name == "org-a/Some-Model-8B"


def test_the_cache_links_to_blobs_which_give_no_name(here: Path) -> None:
    blob = written(here / "models--org--m" / "blobs").rename(here / "models--org--m" / "blobs" / COMMIT)
    link = here / "models--org--m" / "snapshots" / COMMIT / "config.json"
    link.parent.mkdir(parents=True)
    link.symlink_to(blob)
    assert load_model(str(link)).name == "org/m"


def test_a_folder_of_its_own_gives_the_name(here: Path) -> None:
    for name in ("My-Model-8B", "my-tune"):
        path = written(here / name, _name_or_path="org/base-7B")
        assert [load_model(str(each)).name for each in (path, path.parent, Path(name))] == [name] * 3


def test_where_one_stands_is_no_name_unless_it_tells_a_model(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(here)
    assert load_model("./config.json").name == load_model(str(here / "config.json")).name == "llama-2-layers"
    written(here, _name_or_path="org/base-7B")
    assert load_model("config.json").name == load_model(".").name == "org/base-7B"
    written(here, _name_or_path="/scratch/run 3")
    assert load_model("config.json").name == "llama-2-layers"
    written(tmp_path / "Qwen3-8B")
    monkeypatch.chdir(tmp_path / "Qwen3-8B")
    assert load_model("config.json").name == "Qwen3-8B"


def test_a_hash_is_no_name(here: Path) -> None:
    assert load_model(str(written(here / COMMIT))).name == "llama-2-layers"
    assert load_model(str(written(here / COMMIT, model_type=None))).name == COMMIT


def test_a_file_of_another_name_keeps_it(here: Path) -> None:
    path = written(here).rename(here / "tuned-head.json")
    assert load_model(str(path)).name == "tuned-head"
