"""The simulated network keeps what the members may rely on, and breaks all else."""

from random import Random

import pytest

from phalanx.common.config import NodeConfig
from phalanx.common.ids import Address, MemberId, member_id
from phalanx.machine.inputs import Input, LinkLost, LinkRefused, LinkUp
from phalanx.node.node import Node
from phalanx.wire.messages import MembersAck, Message
from phalanx_proof.sim.cluster.event_queue import EventQueue
from phalanx_proof.sim.cluster.host import Host
from phalanx_proof.sim.cluster.network import Network


class Wires:
    """Two hosts or more, whose members do nothing; what each is given is noted."""

    def __init__(self, count: int = 2, latency_ms: tuple[int, int] = (1, 20)) -> None:
        self.queue = EventQueue()
        self.hosts = [Host(number, Address(f"10.0.0.{number + 1}:5701")) for number in range(count)]
        self.network = Network(self.queue, self.hosts, latency_ms, Random(1))
        self.network.feed = self.feed
        self.got: list[tuple[int, object]] = []
        self.at: dict[int, int] = {}
        for host in self.hosts:
            self.start(host, "a")

    def start(self, host: Host, incarnation: str) -> MemberId:
        host.node = Node(member_id(host.address, incarnation), NodeConfig())
        return host.node.this

    def feed(self, host: Host, member: MemberId, event: Input) -> None:
        if host.member == member:
            self.got.append((host.number, event))

    def send(self, sender: int, to: str, number: int) -> None:
        self.network.send(self.hosts[sender], MemberId(to), MembersAck(number))

    def run(self, until: int = 100_000) -> None:
        while self.queue.times and self.queue.times[0] <= until:
            for channel, what in self.queue.next_bucket():
                if channel is None:
                    what[0](*what[1:])
                elif channel.is_open:
                    messages: list[Message] = what if type(what) is list else [what]
                    self.got += [(channel.receiver.number, message) for message in messages]
            self.queue.done()

    def numbers(self, receiver: int) -> list[int]:
        return [
            message.version for number, message in self.got if number == receiver and isinstance(message, MembersAck)
        ]

    def events(self, number: int, kind: type) -> list[object]:
        return [event for host, event in self.got if host == number and isinstance(event, kind)]


A, B = "10.0.0.1:5701/a", "10.0.0.2:5701/a"


def test_messages_of_one_connection_arrive_in_order() -> None:
    wires = Wires()
    for number in range(200):
        wires.queue.call_at(number, wires.send, 0, B, number)
    wires.run()
    assert wires.numbers(1) == list(range(200))
    assert wires.events(0, LinkUp) == [LinkUp(MemberId(B))]


def test_a_loss_drops_what_is_in_flight_and_tells_both_ends() -> None:
    wires = Wires(latency_ms=(10, 10))
    wires.send(0, B, 1)
    wires.queue.call_at(95, wires.send, 0, B, 2)
    wires.queue.call_at(100, wires.network.lose, *wires.hosts)
    wires.queue.call_at(105, wires.send, 0, B, 3)  # the sender does not know yet that it speaks into the void
    wires.run(150)
    assert wires.events(0, LinkLost) == [LinkLost(MemberId(B))]
    assert wires.events(1, LinkLost) == [LinkLost(MemberId(A))]
    wires.send(0, B, 4)
    wires.run()
    assert wires.numbers(1) == [1, 4]
    assert len(wires.events(0, LinkUp)) == 2


def test_whoever_gets_a_message_by_a_new_connection_knows_that_the_old_one_is_lost() -> None:
    for seed_of_latencies in range(1, 30):
        wires = Wires(latency_ms=(1, 1 + seed_of_latencies))
        wires.send(0, B, 1)
        wires.run(200)
        wires.network.lose(wires.hosts[0], wires.hosts[1])
        wires.queue.call_at(wires.queue.now + 40, wires.send, 0, B, 2)
        wires.run()
        order = [event for number, event in wires.got if number == 1]
        assert order == [MembersAck(1), LinkLost(MemberId(A)), MembersAck(2)]


def test_a_one_way_loss_leaves_the_other_way_alone() -> None:
    wires = Wires(latency_ms=(10, 10))
    wires.send(0, B, 1)
    wires.send(1, A, 1)
    wires.run(60)
    wires.send(0, B, 2)
    wires.send(1, A, 2)
    wires.network.lose(wires.hosts[0], wires.hosts[1], one_way=True)
    wires.run()
    assert wires.numbers(1) == [1]
    assert wires.numbers(0) == [1, 2]


def test_a_dead_process_refuses() -> None:
    wires = Wires()
    wires.hosts[1].node = None
    wires.send(0, B, 1)
    wires.run()
    assert wires.events(0, LinkRefused) == [LinkRefused(MemberId(B), "connection refused", is_deserted=True)]
    assert wires.numbers(1) == []


def test_a_message_for_an_old_incarnation_never_reaches_the_new_one() -> None:
    wires = Wires(latency_ms=(5, 5))
    wires.send(0, B, 1)
    wires.run(50)
    wires.send(0, B, 2)
    wires.hosts[1].node = None
    wires.network.process_ended(wires.hosts[1], delivers_all=False)
    wires.start(wires.hosts[1], "b")
    wires.run(80)
    wires.send(0, B, 3)
    wires.run()
    assert wires.numbers(1) == [1]
    assert wires.events(0, LinkLost) == [LinkLost(MemberId(B))]
    (refused,) = wires.events(0, LinkRefused)
    assert isinstance(refused, LinkRefused)
    assert refused.final


def test_an_address_reaches_whoever_is_there() -> None:
    wires = Wires()
    wires.start(wires.hosts[1], "b")
    wires.send(0, "10.0.0.2:5701", 1)
    wires.run()
    assert wires.numbers(1) == [1]


def test_a_cut_refuses_until_it_is_over() -> None:
    wires = Wires(latency_ms=(1, 1))
    wires.network.cut(wires.hosts[0], wires.hosts[1], 100)
    wires.send(0, B, 1)
    wires.run(50)
    assert wires.events(0, LinkRefused) == [LinkRefused(MemberId(B), "no route to the host")]
    wires.queue.call_at(101, wires.send, 0, B, 2)
    wires.run()
    assert wires.numbers(1) == [2]


@pytest.mark.parametrize("delivers_all", [True, False])
def test_the_last_words_of_a_process_arrive_on_all_or_some_connections(delivers_all: bool) -> None:
    heard: list[int] = []
    for _ in range(20):
        wires = Wires(count=4, latency_ms=(10, 10))
        wires.network._rng = Random(len(heard))
        for receiver in (1, 2, 3):
            wires.send(0, f"10.0.0.{receiver + 1}:5701/a", 1)
        wires.run(60)
        for receiver in (1, 2, 3):
            wires.send(0, f"10.0.0.{receiver + 1}:5701/a", 2)
        wires.hosts[0].node = None
        wires.network.process_ended(wires.hosts[0], delivers_all=delivers_all)
        wires.run()
        heard.append(sum(wires.numbers(receiver) == [1, 2] for receiver in (1, 2, 3)))
        for receiver in (1, 2, 3):
            mine = [event for number, event in wires.got if number == receiver]
            assert mine[-1] == LinkLost(MemberId(A)), "the loss is told after all that still arrives"
    assert set(heard) == ({3} if delivers_all else {0, 1, 2, 3})


def test_a_lag_delays_and_keeps_order() -> None:
    wires = Wires(latency_ms=(1, 1))
    wires.send(0, B, 1)
    wires.run(20)
    wires.network.lag(wires.hosts[0], wires.hosts[1], 500, 100)
    wires.send(0, B, 2)
    wires.queue.call_at(150, wires.send, 0, B, 3)
    wires.run(400)
    assert wires.numbers(1) == [1]
    wires.run()
    assert wires.numbers(1) == [1, 2, 3]


def test_a_message_may_be_handed_over_twice_and_then_in_order() -> None:
    wires = Wires()
    wires.network.doubled_permille = 500
    for number in range(200):
        wires.send(0, B, number)
    wires.run()
    got = wires.numbers(1)
    firsts = list(dict.fromkeys(got))
    assert firsts == list(range(200))
    assert 250 < len(got) < 350
    for number in firsts:
        assert got.count(number) in (1, 2)


def test_a_message_may_be_lost_while_its_connection_stays() -> None:
    wires = Wires()
    wires.network.lost_permille = 500
    for number in range(200):
        wires.send(0, B, number)
    wires.run()
    got = wires.numbers(1)
    assert got == sorted(got)
    assert 60 < len(got) < 140
    assert not wires.events(0, LinkLost)
    assert not wires.events(1, LinkLost)


def test_messages_on_different_connections_overtake_each_other() -> None:
    wires = Wires(count=3)
    wires.run(0)
    for number in range(50):
        wires.send(number % 2, "10.0.0.3:5701/a", number)
    wires.run()
    got = wires.numbers(2)
    assert sorted(got) == list(range(50))
    assert got != sorted(got)
    assert [number for number in got if number % 2 == 0] == list(range(0, 50, 2))


def test_one_way_is_silent_and_the_other_goes_on_until_the_connection_that_lost_something_breaks() -> None:
    wires = Wires()
    wires.send(0, B, 1)
    wires.send(1, A, 2)
    wires.run(500)
    wires.network.cut_one_way(wires.hosts[0], wires.hosts[1], 1_000)
    wires.queue.now = 500
    wires.send(0, B, 3)
    wires.send(1, A, 4)
    wires.run(999)
    assert (wires.numbers(1), wires.numbers(0)) == ([1], [2, 4])
    assert not wires.events(0, LinkLost)
    wires.run()
    assert wires.events(0, LinkLost) == [LinkLost(MemberId(B))]
    wires.queue.now = 2_000
    wires.send(0, B, 5)
    wires.run()
    assert wires.numbers(1) == [1, 5]
