"""`nvidia-smi topo -m` text: the public samples, other layouts, and what must be refused in one line."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwmodel.errors import InputError
from hwmodel.interconnects import interconnect_names
from simulator.topology import Topology, classify, parse_topology

SAMPLES = Path(__file__).parents[1] / "data" / "topo"


def _sample(name):
    return (SAMPLES / f"{name}.txt").read_text()


def _topology(num_gpus, link_of):
    """Matrix of `link_of(i, j)` for i < j."""
    rows = [["X" if i == j else link_of(min(i, j), max(i, j)) for j in range(num_gpus)] for i in range(num_gpus)]
    return Topology(tuple(tuple(row) for row in rows))


def _text(rows, header=None):
    names = [f"GPU{number}" for number in range(len(rows))]
    lines = ["\t" + "\t".join(header or [*names, "CPU Affinity", "NUMA Affinity"])]
    lines += [f"{name}\t" + "\t".join(row) + "\t0-63\t0" for name, row in zip(names, rows, strict=True)]
    return "\n".join(lines)


def _refused(text, match):
    with pytest.raises(InputError, match=match) as caught:
        parse_topology(text)
    assert "\n" not in str(caught.value)
    assert "; allowed: " in str(caught.value)


@pytest.mark.parametrize(
    ("name", "num_gpus", "expected"),
    [
        ("topo_00_qwen35-397b_4gpu", 4, "pcie-root"),
        ("topo_01_wrx90-cpayne-2switch-flat_8gpu", 8, "pcie-two-switches"),
        ("topo_01_wrx90-cpayne-2switch-flat_8gpu", 4, "pcie-switch"),
        ("topo_02_wrx90-cpayne-microchip-switches_8gpu", 8, "pcie-two-switches"),
        ("topo_02_wrx90-cpayne-microchip-switches_8gpu", 4, "pcie-switch"),
        ("topo_04_topology_4gpu", 4, "pcie-root"),
        ("topo_06_topology_8gpu", 8, "pcie-two-switches"),
        ("topo_h100_sxm_8gpu_nvlink", 8, "nvswitch"),
        ("topo_h100_sxm_8gpu_nvlink", 2, "nvswitch"),
        ("topo_rtxpro6000_2x_phb", 2, "pcie-root"),
        ("topo_rtxpro6000_8x_asus_esc8000a_pex890xx", 8, "pcie-dual-socket"),
        ("topo_rtxpro6000_8x_asus_esc8000a_pex890xx", 4, "pcie-two-switches"),
        ("topo_rtxpro6000_8x_asus_esc8000a_pex890xx", 2, "pcie-switch"),
        ("topo_v100_4x_nvlink", 4, "nvlink"),
        ("topo_v100_4x_nvlink", 1, "none"),
    ],
)
def test_public_machines_are_classified(name, num_gpus, expected):
    interconnect, reason = classify(parse_topology(_sample(name)), num_gpus)
    assert interconnect == expected
    assert reason
    assert "\n" not in reason


def test_every_sample_has_as_many_gpus_as_its_rows():
    numbers = {path.stem: parse_topology(path.read_text()).num_gpus for path in SAMPLES.glob("*.txt")}
    assert len(numbers) == 9
    assert numbers["topo_v100_4x_nvlink"] == 4  # the network card is no GPU
    assert numbers["topo_rtxpro6000_8x_asus_esc8000a_pex890xx"] == 8


def test_the_reason_names_the_switches():
    topology = parse_topology(_sample("topo_02_wrx90-cpayne-microchip-switches_8gpu"))
    assert "2 switches (4+4 GPUs)" in classify(topology, 8)[1]


def test_links_are_read_as_printed():
    topology = parse_topology(_sample("topo_rtxpro6000_8x_asus_esc8000a_pex890xx"))
    assert topology.links[0] == ("X", "PIX", "NODE", "NODE", "SYS", "SYS", "SYS", "SYS")


def test_a_selection_of_gpus_keeps_its_own_names():
    text = "\tGPU4\tGPU6\tCPU Affinity\nGPU4\t X \tPHB\t0-13\nGPU6\tPHB\t X \t0-13\n"
    assert classify(parse_topology(text), 2)[0] == "pcie-root"


def test_a_single_gpu_is_read():
    assert parse_topology("\tGPU0\tCPU Affinity\nGPU0\t X \t0-13\n").links == (("X",),)


def test_the_old_name_of_the_socket_link_is_known():
    assert classify(parse_topology(_text([["X", "SOC"], ["SOC", "X"]])), 2)[0] == "pcie-dual-socket"


def test_bridges_between_pairs_leave_the_class_to_the_other_links():
    bridged = _topology(4, lambda i, j: "NV12" if (i, j) in {(0, 1), (2, 3)} else "SYS")
    interconnect, reason = classify(bridged, 4)
    assert interconnect == "pcie-dual-socket"
    assert "NVLink joins only some pairs" in reason
    assert classify(bridged, 2)[0] == "nvlink"


def test_a_cube_mesh_rings_over_nvlink():
    # DGX-1: two quads fully joined, each GPU with one partner in the other quad.
    mesh = _topology(8, lambda i, j: "NV1" if i // 4 == j // 4 or j - i == 4 else "SYS")
    assert classify(mesh, 8) == (
        "nvlink",
        "not every pair has NVLink, but each of the 8 GPUs has two neighbours: NCCL rings over it",
    )


def test_two_nvlink_groups_without_a_link_between_them_are_not_one():
    split = _topology(8, lambda i, j: "NV4" if i // 4 == j // 4 else "SYS")
    assert classify(split, 8)[0] == "pcie-dual-socket"
    assert classify(split, 4)[0] == "nvlink"


def test_an_a100_board_of_eight_is_a_switch_by_its_sum_of_links():
    assert classify(_topology(8, lambda _i, _j: "NV12"), 8)[0] == "nvswitch"
    assert classify(_topology(2, lambda _i, _j: "NV12"), 2)[0] == "nvlink"  # a bridge looks the same


def test_a_group_that_leaves_one_gpu_outside_the_switch_meets_in_the_root():
    lonely = _topology(3, lambda i, j: "PIX" if (i, j) == (0, 1) else "PHB")
    assert classify(lonely, 3)[0] == "pcie-root"


@pytest.mark.parametrize("num_gpus", [0, 5])
def test_more_gpus_than_the_table_has_are_refused(num_gpus):
    topology = parse_topology(_sample("topo_04_topology_4gpu"))
    with pytest.raises(InputError, match=rf"got {num_gpus}, the topology has 4"):
        classify(topology, num_gpus)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "no header line"),
        ("command not found: nvidia-smi", "no header line"),
        ("GPU0\tX\tPIX\nGPU1\tPIX\tX", "no header line"),
        (_text([["X", "PIX"], ["PIX", "X"]]).rsplit("\n", 1)[0], "no row for GPU1"),
        (_text([["X", "FOO"], ["FOO", "X"]]), "link 'FOO' in row GPU0"),
        (_text([["X", "PIX"], ["PHB", "X"]]), "a symmetric table"),
        (_text([["PIX", "PIX"], ["PIX", "X"]]), "X on the diagonal only"),
        (_text([["X", "X"], ["X", "X"]]), "X on the diagonal only"),
        ("\tGPU0\tGPU1\nGPU0\t X \tPIX\nGPU1\tPIX", "row GPU1 with 1 links"),
        ("\tGPU0\tGPU0\nGPU0\t X \tPIX", "each GPU once"),
        ("x" * 200_001, "200001 characters"),
    ],
)
def test_what_is_no_table_is_refused(text, match):
    _refused(text, match)


LINKS = st.sampled_from(["NV1", "NV4", "NV18", "PIX", "PXB", "PHB", "NODE", "SYS"])


@given(st.data(), st.integers(1, 8))
def test_every_symmetric_table_has_a_class(data, num_gpus):
    links = {(i, j): data.draw(LINKS) for i in range(num_gpus) for j in range(i + 1, num_gpus)}
    drawn = _topology(num_gpus, lambda i, j: links[i, j])
    parsed = parse_topology(_text([list(row) for row in drawn.links]))
    assert parsed == drawn
    assert classify(parsed, num_gpus)[0] in interconnect_names()


@given(st.text(max_size=200))
def test_any_text_is_refused_or_read_without_a_traceback(text):
    try:
        parse_topology("\tGPU0\tGPU1\n" + text)
    except InputError as error:
        message = str(error)
    else:
        message = ""
    assert "\n" not in message
