"""Messages on links: cut-through, queues, the collapse of an uplink, forwarding while it arrives; all by hand."""

import itertools

import pytest
import simpy

from hwmodel.gpus import load_gpu
from simulator.ranks.links import Flow, Link, Message, Network, Sending
from simulator.ranks.topology_graph import Box, LinkSpec, box_of_class

GPU = load_gpu("rtx-pro-6000-blackwell-server")


def _line(*specs, sources=1):
    """A box in which every source reaches GPU 9 over the same links."""
    links = {spec.name: spec for spec in specs}
    paths = {(source, 9): tuple(links) for source in range(sources)}
    crossings = dict.fromkeys(paths, "switch")
    return Box("pcie5", "pcie-switch", 10, links, paths, crossings, tuple(range(10)), (tuple(range(10)),), "a line")


def _send(env, network, pair, num_bytes, how=None):
    message = Message(env)
    network.send(message, pair, num_bytes, how or Sending())
    return message


def test_a_message_takes_every_latency_and_the_time_of_the_narrowest_link():
    env = simpy.Environment()
    box = _line(
        LinkSpec("a", "gpu_port", 100.0, 1.0), LinkSpec("b", "uplink", 20.0, 2.0), LinkSpec("c", "gpu_port", 50.0, 3.0)
    )
    message = _send(env, Network(env, box), (0, 9), 100.0, Sending(hop_s=0.0))
    env.run(message.head)
    assert env.now == pytest.approx(6.0)
    env.run(message.tail)
    assert env.now == pytest.approx(11.0)


@pytest.mark.parametrize("kind", ["gpu_port", "uplink"])
def test_messages_on_one_link_queue_first_come_first_served(kind):
    env = simpy.Environment()
    network = Network(env, _line(LinkSpec("a", kind, 10.0, 0.0), sources=3))
    messages = [_send(env, network, (source, 9), 100.0) for source in range(3)]
    env.run()
    assert [message.tail_s for message in messages] == pytest.approx([10.0, 20.0, 30.0])
    assert network.links["a"].queued_s == pytest.approx(30.0)
    assert network.links["a"].busy_s == pytest.approx(30.0)


def test_a_kernel_that_sends_slowly_paces_its_messages_and_waits_for_its_fence():
    env = simpy.Environment()
    network = Network(env, _line(LinkSpec("a", "gpu_port", 1000.0, 0.0)))
    how = Sending(Flow(bytes_per_s=10.0, fence_s=1.0))
    messages = [_send(env, network, (0, 9), 100.0, how) for _ in range(2)]
    env.run()
    assert [message.tail_s for message in messages] == pytest.approx([11.0, 22.0])


def test_slowdown_stretches_everything_on_the_way():
    times = []
    for slowdown in (1.0, 3.0):
        env = simpy.Environment()
        box = _line(LinkSpec("a", "gpu_port", 10.0, 1.0), LinkSpec("b", "uplink", 20.0, 2.0))
        message = _send(env, Network(env, box), (0, 9), 100.0, Sending(Flow(50.0, 0.5), slowdown=slowdown))
        env.run()
        times.append(message.tail_s)
    assert times[1] == pytest.approx(3 * times[0])


def test_what_is_passed_on_while_it_arrives_cannot_overtake_its_source():
    env = simpy.Environment()
    slow = _line(LinkSpec("a", "gpu_port", 1.0, 0.0))
    network = Network(env, slow)
    upstream = _send(env, network, (0, 9), 100.0)
    fast = Network(env, _line(LinkSpec("b", "gpu_port", 1000.0, 2.0)))
    forwarded = _send(env, fast, (0, 9), 100.0, Sending(upstream=upstream, hop_s=0.5))
    env.run()
    assert forwarded.tail_s == pytest.approx(100.0 + 0.5 + 2.0)


def test_an_uplink_collapses_while_two_gpus_push_to_two_root_ports_and_recovers_when_drained():
    link = Link(simpy.Environment(), LinkSpec("up", "uplink", 50.0, 0.0, "switch", 2.0))
    link.waiting[0, "port a"] += 1
    assert link.rate_bytes_per_s() == 50.0
    link.waiting[1, "port a"] += 1
    assert link.rate_bytes_per_s() == 50.0  # one root port
    link.waiting[1, "port b"] += 1
    assert link.rate_bytes_per_s() == 2.0
    link.left((0, "port a"))
    link.left((1, "port a"))
    assert link.rate_bytes_per_s() == 2.0  # one is still in line
    link.left((1, "port b"))
    link.waiting[0, "port a"] += 1
    assert link.rate_bytes_per_s() == 50.0


def test_every_occupation_is_recorded_and_none_overlap_on_a_link():
    env = simpy.Environment()
    seen = []
    network = Network(env, box_of_class("pcie-dual-socket", GPU, 8), lambda *entry: seen.append(entry))
    for source in range(8):
        for target in range(8):
            if source != target:
                _send(env, network, (source, target), 1e5, Sending(label="x"))
    env.run()
    assert len(seen) == sum(link.num_messages for link in network.links.values())
    for name in network.links:
        spans = sorted((start, end) for link, start, end, _ in seen if link == name)
        for (_, end), (start, _) in itertools.pairwise(spans):
            assert start >= end - 1e-12
    assert sum(link.num_bytes for link in network.links.values() if link.spec.kind == "gpu_port") == pytest.approx(
        56 * 2e5
    )
