"""Boxes from `nvidia-smi topo -m` text and from interconnect classes: links, paths, crossings."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwmodel.errors import InputError
from hwmodel.gpus import load_gpu
from hwmodel.interconnects import interconnect_names
from simulator.ranks.topology_graph import CROSSINGS, box_from_topology, box_of_class
from simulator.topology import parse_topology

SAMPLES = Path(__file__).parents[1] / "data" / "topo"
PCIE = load_gpu("rtx-pro-6000-blackwell-server")
NVLINK = load_gpu("h200")
TWO_SOCKETS = "topo_rtxpro6000_8x_asus_esc8000a_pex890xx"


def _box(name, gpu=PCIE, num_gpus=8):
    return box_from_topology(parse_topology((SAMPLES / f"{name}.txt").read_text()), gpu, num_gpus)


def test_a_path_inside_a_switch_uses_only_the_two_ports():
    assert _box(TWO_SOCKETS).paths[0, 1] == ("gpu0 out", "gpu1 in")


def test_a_path_between_sockets_climbs_crosses_and_descends():
    assert _box(TWO_SOCKETS).paths[0, 7] == (
        "gpu0 out",
        "switch0 uplink",
        "socket0 host bridge",
        "socket0 to socket1",
        "switch3 downlink",
        "gpu7 in",
    )


@pytest.mark.parametrize(
    ("pair", "crossing", "latency_us"),
    [((0, 1), "switch", 0.66), ((0, 2), "host_bridge", 1.06), ((0, 4), "socket_link", 1.76)],
)
def test_latency_grows_with_what_is_crossed(pair, crossing, latency_us):
    box = _box(TWO_SOCKETS)
    assert box.crossings[pair] == crossing
    assert box.latency_s(*pair) == pytest.approx(latency_us * 1e-6)


def test_switches_in_cascade_share_the_uplink_of_the_upper_one():
    box = _box("topo_02_wrx90-cpayne-microchip-switches_8gpu")
    assert box.paths[0, 2] == ("gpu0 out", "switch0 uplink", "switch1 downlink", "gpu2 in")
    assert "top switch0 uplink" in box.paths[0, 4]
    assert box.interconnect == "pcie-two-switches"


def test_gpus_without_a_switch_meet_in_the_host_bridge():
    box = _box("topo_04_topology_4gpu", num_gpus=4)
    assert box.paths[0, 3] == ("gpu0 out", "socket0 host bridge", "gpu3 in")


def test_nvlink_gives_every_gpu_one_port():
    box = _box("topo_h100_sxm_8gpu_nvlink", NVLINK)
    assert box.family == "nvlink"
    assert set(box.crossings.values()) == {"nvlink"}
    assert len(box.links) == 16


def test_islands_are_sockets_where_there_are_two_and_switches_else():
    assert _box(TWO_SOCKETS).islands == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert _box("topo_01_wrx90-cpayne-2switch-flat_8gpu").islands == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert _box("topo_04_topology_4gpu", num_gpus=4).islands == ((0, 1, 2, 3),)


def test_only_uplinks_of_a_box_with_two_sockets_collapse():
    collapsing = [link.name for link in _box(TWO_SOCKETS).links.values() if link.collapsed_bytes_per_s]
    assert collapsing == ["switch0 uplink", "switch1 uplink", "switch2 uplink", "switch3 uplink"]
    one_socket = _box("topo_01_wrx90-cpayne-2switch-flat_8gpu")
    assert not any(link.collapsed_bytes_per_s for link in one_socket.links.values())


def test_scattered_neighbours_stand_together_in_the_ring():
    rows = [["X" if i == j else "PIX" if i % 2 == j % 2 else "SYS" for j in range(4)] for i in range(4)]
    names = [f"GPU{i}" for i in range(4)]
    text = "\n".join(["\t".join(names), *("\t".join([name, *row]) for name, row in zip(names, rows, strict=True))])
    assert box_from_topology(parse_topology(text), PCIE, 4).order == (0, 2, 1, 3)


PCIE_CLASSES = [name for name in interconnect_names() if name.startswith("pcie")]


@given(st.sampled_from(PCIE_CLASSES), st.integers(2, 16))
def test_every_class_connects_every_pair_over_known_links(name, num_gpus):
    box = box_of_class(name, PCIE, num_gpus)
    assert sorted(box.order) == list(range(num_gpus))
    assert sorted(gpu for island in box.islands for gpu in island) == list(range(num_gpus))
    for (i, j), path in box.paths.items():
        assert path[0] == f"gpu{i} out"
        assert path[-1] == f"gpu{j} in"
        assert len(set(path)) == len(path)
        assert set(path) <= set(box.links)
        assert box.crossings[i, j] in CROSSINGS
        assert box.latency_s(i, j) == pytest.approx(box.latency_s(j, i))


def test_the_dual_socket_class_is_the_box_that_its_table_was_measured_on():
    ours, measured = box_of_class("pcie-dual-socket", PCIE, 8), _box(TWO_SOCKETS)
    assert ours.paths == measured.paths
    assert ours.links == measured.links


def test_links_need_two_gpus_and_a_class():
    with pytest.raises(InputError, match="got 1 GPU"):
        box_of_class("pcie-root", PCIE, 1)
    with pytest.raises(InputError, match="'none'"):
        box_of_class("none", PCIE, 2)
