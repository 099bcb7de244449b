"""AllReduce as messages: hand counts, what the boxes do to it, and the published anchors."""

import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st

from hwmodel.errors import InputError
from hwmodel.gpus import load_gpu
from hwmodel.link_constants import link_table, protocol, usual_protocol
from hwmodel.units import KIB, US
from simulator.ranks.allreduce_algorithms import MESSAGE_ALGORITHMS, Call, Choice, check_algorithm, run_rank
from simulator.ranks.isolated import allreduce_period_s
from simulator.ranks.links import Network
from simulator.ranks.topology_graph import box_of_class

GPU = load_gpu("rtx-pro-6000-blackwell-server")
SWITCH = box_of_class("pcie-switch", GPU, 8)
TWO_SOCKETS = box_of_class("pcie-dual-socket", GPU, 8)
ROOT = box_of_class("pcie-root", GPU, 4)


def _run(box, num_bytes, choice, arrivals=None):
    """(network, when each GPU left) of one AllReduce that the GPUs enter at `arrivals`."""
    env = simpy.Environment()
    network = Network(env, box)
    call = Call(network, box.order, num_bytes, choice)
    left = {}

    def rank(gpu):
        yield env.timeout((arrivals or {}).get(gpu, 0.0))
        yield from run_rank(call, gpu)
        left[gpu] = env.now

    for gpu in box.order:
        env.process(rank(gpu))
    env.run()
    return network, left


def _out_bytes(network, gpu):
    return network.links[f"gpu{gpu} out"].num_bytes


@pytest.mark.parametrize(
    ("algorithm", "wanted"),
    [("one-shot", 7.0), ("two-shot", 2 * 7 / 8), ("hierarchical", 2 * 3 / 4 + 1 / 4)],
)
def test_each_gpu_sends_the_bytes_of_the_algorithm(algorithm, wanted):
    network, _ = _run(SWITCH, 8000.0, Choice(algorithm))
    assert [_out_bytes(network, gpu) for gpu in range(8)] == pytest.approx([wanted * 8000.0] * 8)


@pytest.mark.parametrize(("name", "wire"), [("ll", 2.0), ("ll128", 1.0667), ("simple", 1.0)])
def test_a_ring_sends_each_chunk_twice_round_with_the_flags_of_its_protocol(name, wire):
    network, _ = _run(SWITCH, 8000.0, Choice("ring", name))
    assert [_out_bytes(network, gpu) for gpu in range(8)] == pytest.approx([2 * 7 / 8 * 8000.0 * wire] * 8)


def test_a_tree_sends_every_byte_up_and_down_each_of_its_edges():
    network, _ = _run(SWITCH, 8000.0, Choice("tree", "simple"))
    assert sum(_out_bytes(network, gpu) for gpu in range(8)) == pytest.approx(2 * 7 * 8000.0)


def test_a_small_ring_takes_its_base_and_a_hop_for_every_step():
    kind = protocol("ll")
    hop_s = kind.hop_s + ROOT.latency_s(0, 1)
    period = allreduce_period_s(ROOT, 4.0, Choice("ring", "ll"))
    assert period == pytest.approx(kind.base_s + 6 * hop_s, rel=0.01)


def test_nobody_leaves_before_the_last_one_has_come():
    late = {3: 1000 * US}
    for algorithm in MESSAGE_ALGORITHMS:
        _, left = _run(TWO_SOCKETS, 14.0 * KIB, Choice(algorithm, "ll"), late)
        assert min(left.values()) > 1000 * US, algorithm


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from([SWITCH, TWO_SOCKETS, ROOT]),
    st.sampled_from(
        [*(("ring", p) for p in ("ll", "ll128", "simple")), ("tree", "ll"), ("one-shot", None), ("two-shot", None)]
    ),
    st.floats(1e3, 1e6),
)
def test_a_larger_message_never_takes_less(box, how, num_bytes):
    choice = Choice(*how)
    small, large = (allreduce_period_s(box, size, choice) for size in (num_bytes, 2 * num_bytes))
    assert small <= large * (1 + 1e-9)


def test_the_same_message_takes_ten_microseconds_on_one_box_and_57_on_another():
    one_shot = allreduce_period_s(SWITCH, 8 * KIB, Choice("one-shot"))
    untuned = allreduce_period_s(TWO_SOCKETS, 8 * KIB, Choice("ring", "simple"))
    assert one_shot == pytest.approx(9.2 * US, rel=0.2)  # rtx6kpro hardware/pcie-bandwidth.md
    assert untuned == pytest.approx(57.6 * US, rel=0.2)  # rtx6kpro hardware/asus-esc8000a-e13p-broadcom-switches.md


def test_one_shot_collapses_over_two_sockets_and_not_on_one_of_them():
    for size, measured in ((8 * KIB, 64.3), (64 * KIB, 503.9)):
        assert allreduce_period_s(TWO_SOCKETS, size, Choice("one-shot")) == pytest.approx(measured * US, rel=0.2)
    one = allreduce_period_s(TWO_SOCKETS, 64 * KIB, Choice("one-shot"), members=(0, 1, 2, 3))
    assert one == pytest.approx(11.8 * US, rel=0.2)  # rtx6kpro optimization/pcie-oneshot-allreduce.md


def test_nccl_leaves_ll_at_its_measured_size():
    table = link_table()["choice"]["simple_from_kib"]
    assert 512 < table["pcie5"] < 1024  # 156 us at 512 KiB, 132 at 1 MiB
    assert usual_protocol("pcie5", 512 * KIB, False) == "ll"
    assert usual_protocol("pcie5", 1024 * KIB, False) == "simple"
    assert usual_protocol("pcie5", 8 * KIB, True) == "simple"
    assert usual_protocol("nvlink", 512 * KIB, False) == "ll128"
    before = allreduce_period_s(TWO_SOCKETS, 512 * KIB, Choice("ring", "ll"))
    after = allreduce_period_s(TWO_SOCKETS, 1024 * KIB, Choice("ring", "simple"))
    assert before == pytest.approx(156.1 * US, rel=0.2)
    assert after == pytest.approx(131.5 * US, rel=0.2)
    assert after < before


def test_more_channels_make_large_rings_faster():
    two, four = (allreduce_period_s(TWO_SOCKETS, 1e6, Choice("ring", "ll", channels)) for channels in (2, 4))
    assert four < 0.7 * two


def test_hierarchical_needs_islands_of_one_size():
    check_algorithm("hierarchical", SWITCH.islands)
    with pytest.raises(InputError, match="got islands of 4 GPUs"):
        check_algorithm("hierarchical", ROOT.islands)
    with pytest.raises(InputError, match=r"islands of 3\+2 GPUs"):
        check_algorithm("hierarchical", box_of_class("pcie-dual-socket", GPU, 5).islands)
    with pytest.raises(InputError, match="known: ring, tree"):
        check_algorithm("nccl", SWITCH.islands)
