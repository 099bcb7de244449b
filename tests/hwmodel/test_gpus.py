"""GPU cards: honest dense figures, and one line for every card that cannot be used."""

from pathlib import Path

import pytest

from hwmodel.errors import InputError, UnknownNameError
from hwmodel.gpus import gpu_names, load_gpu
from hwmodel.units import GB, MIB, TERA

CARD = """
title = "Test card"
sm_arch = "9.0"
[memory]
total_mib = 1000
source = "made up"
[bandwidth]
memory_gb_per_s = 100
source = "made up"
[dense_rate]
bf16_tflop_per_s = 10
source = "made up"
[chip]
num_sms = 4
l2_mb = 8
source = "made up"
[links]
interconnect = "none"
pcie_gb_per_s = 16
nvlink_gb_per_s = 0
p2p = false
source = "made up"
"""


def own_card(tmp_path: Path, text: str) -> str:
    path = tmp_path / "own.toml"
    path.write_text(text)
    return str(path)


def test_the_reference_card_has_the_server_editions_locked_clock_rates_and_driver_memory() -> None:
    gpu = load_gpu("rtx-pro-6000-blackwell-server")
    assert gpu.memory_bytes == 97_887 * MIB
    assert gpu.memory_bandwidth_bytes_per_s == 1792 * GB
    assert gpu.bf16_flop_per_s == 467.8 * TERA
    assert (gpu.num_sms, gpu.sm_arch, gpu.interconnect, gpu.p2p) == (188, "12.0", "pcie-dual-socket", True)
    assert gpu.nvlink_bytes_per_s == 0


@pytest.mark.parametrize("name", gpu_names())
def test_every_card_is_complete_and_names_the_source_of_each_table(name: str) -> None:
    gpu = load_gpu(name)
    assert gpu.name == name
    for table in ("memory", "bandwidth", "dense_rate", "chip", "links"):
        assert f"{table}: " in gpu.source


@pytest.mark.parametrize("name", [name for name in gpu_names() if name != "cpu-2core"])
def test_each_halving_of_the_element_at_least_doubles_the_dense_rate(name: str) -> None:
    gpu = load_gpu(name)
    if gpu.fp8_flop_per_s is not None:
        assert gpu.fp8_flop_per_s / gpu.bf16_flop_per_s == pytest.approx(2, rel=0.03)
    if gpu.fp4_flop_per_s is not None and gpu.fp8_flop_per_s is not None:
        assert gpu.fp4_flop_per_s >= 1.9 * gpu.fp8_flop_per_s


@pytest.mark.parametrize(
    ("name", "sparse_bf16_tflop"), [("h100-sxm", 1979), ("h200", 1979), ("b200", 4500), ("l40s", 733)]
)
def test_rates_are_dense_not_the_sparse_headline(name: str, sparse_bf16_tflop: float) -> None:
    assert load_gpu(name).bf16_flop_per_s == pytest.approx(sparse_bf16_tflop * TERA / 2, rel=0.02)


def test_fp4_of_b300_is_the_dense_14_not_the_sparse_18() -> None:
    assert load_gpu("b300").fp4_flop_per_s == 14_000 * TERA


@pytest.mark.parametrize("name", ["h100-sxm", "a100-sxm-80gb", "rtx-4090", "l40s", "mi300x"])
def test_devices_without_fp4_units_say_so(name: str) -> None:
    assert load_gpu(name).fp4_flop_per_s is None


def test_geforce_cards_have_no_peer_to_peer() -> None:
    assert [load_gpu(name).p2p for name in ("rtx-5090", "rtx-4090", "rtx-3090")] == [False] * 3


def test_names_are_found_in_any_case() -> None:
    assert load_gpu("H200") == load_gpu("h200")


def test_an_own_card_is_read_from_its_path(tmp_path: Path) -> None:
    gpu = load_gpu(own_card(tmp_path, CARD))
    assert (gpu.name, gpu.title, gpu.l2_bytes, gpu.fp8_flop_per_s) == ("own", "Test card", 8e6, None)


def test_an_unknown_name_suggests_the_closest_and_says_where_all_are() -> None:
    with pytest.raises(UnknownNameError) as caught:
        load_gpu("h20o")
    message = str(caught.value)
    assert "did you mean 'h20' or 'h200'?" in message
    assert f"`draftcast list gpus` has all {len(gpu_names())} cards" in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("total_mib = 1000", "total_mib = -1", "memory.total_mib is -1; allowed: a number from 1"),
        ("total_mib = 1000", "total_mib = nan", "memory.total_mib is nan"),
        ("total_mib = 1000", "total_mib = true", "memory.total_mib is True"),
        ("total_mib = 1000", 'total_mib = "96 GB"', "memory.total_mib is '96 GB'"),
        ("total_mib = 1000", "", "memory.total_mib is nothing"),
        ("memory_gb_per_s = 100", "memory_gb_per_s = 4.8e12", "bandwidth.memory_gb_per_s is 4800000000000.0"),
        ("bf16_tflop_per_s", "bf16_tflops", "unknown key 'bf16_tflops', did you mean 'bf16_tflop_per_s'?"),
        ("p2p = false", "p2p = 1", "links.p2p is 1; allowed: true, false"),
        ('interconnect = "none"', 'interconnect = "infiniband"', "links.interconnect is 'infiniband'; allowed: pcie"),
        ("num_sms = 4", "num_sms = 4.5", "chip.num_sms is 4.5; allowed: a whole number"),
        ("[chip]", "[chips]", "unknown key 'chips', did you mean 'chip'?"),
        ("[memory]", "[[memory]]", "no table [memory]"),
        ('sm_arch = "9.0"', "sm_arch = 9.0", "sm_arch is 9.0; allowed: a text"),
        ('source = "made up"', 'source = ""', "memory.source is ''"),
        ('title = "Test card"', "title = ", "not TOML"),
    ],
)
def test_an_impossible_card_is_one_line(tmp_path: Path, old: str, new: str, says: str) -> None:
    with pytest.raises(InputError) as caught:
        load_gpu(own_card(tmp_path, CARD.replace(old, new, 1)))
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_are_no_cards_are_one_line(tmp_path: Path) -> None:
    huge = tmp_path / "huge.toml"
    huge.write_text("#" * 200_000)
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    for path in (huge, binary, tmp_path / "missing.toml", tmp_path, Path("/nul\0byte.toml")):
        with pytest.raises(InputError) as caught:
            load_gpu(str(path))
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["", "  ", "..", "../gpus/h200", "h200\0", "x" * 5000])
def test_odd_names_are_refused_in_one_line(name: str) -> None:
    with pytest.raises(InputError) as caught:
        load_gpu(name)
    assert "\n" not in str(caught.value)
