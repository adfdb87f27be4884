"""What membership costs in large clusters: counted, in virtual time, never timed."""

import sys
from collections import Counter
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest

from benchmarks import many
from benchmarks.many import LATENCY_MS, MASTER, ManyMembers
from benchmarks.membership import ROOMY, measure_failures, measure_load
from phalanx.common.config import NodeConfig
from phalanx.common.ids import Address, MemberId
from phalanx.machine.inputs import Input, Received, TimePassed
from phalanx.wire import messages as m
from phalanx.wire.event import Event
from phalanx.wire.view_events import ViewInstalled

RING = NodeConfig(ring_above_members=20)
ALL = NodeConfig(ring_above_members=0)


@pytest.mark.rows("EL-23", "CS-11")
@pytest.mark.parametrize(("size", "config"), [(40, ALL), (60, RING)], ids=["all", "ring"])
def test_a_view_change_takes_two_message_delays_from_the_decision(size: int, config: NodeConfig) -> None:
    """One for the list, one for the acknowledgements: at forty or sixty members as at three."""
    # Members fail one after another in one cluster: to make one takes longest.
    cluster = ManyMembers(size, config)
    for kind in ("killed slave", "hung slave", "killed master", "hung master"):
        found = measure_failures(lambda: cluster, kind, victims=1)
        assert found.not_found == 0, kind
        assert found.installed_ms == [LATENCY_MS], kind
        assert found.acknowledged_ms == [2 * LATENCY_MS], kind


@pytest.mark.rows("CS-33")
@pytest.mark.parametrize("detector", ["phi", "deadline"])
@pytest.mark.parametrize("size", [10, pytest.param(200, marks=pytest.mark.long)])
def test_a_killed_member_is_gone_within_one_heartbeat_interval(size: int, detector: str) -> None:
    config = NodeConfig(failure_detector=detector)
    large = ManyMembers(size, config) if size > ROOMY else None
    for kind in ("killed slave", "killed master"):
        found = measure_failures(lambda: large or ManyMembers(size, config), kind, victims=3)
        assert found.not_found == 0, kind
        assert max(found.found_ms) <= config.heartbeat_interval_ms, kind


@pytest.mark.rows("EL-45")
@pytest.mark.parametrize(
    "sizes",
    [(30, 60), pytest.param((60, 240), marks=pytest.mark.long), pytest.param((200, 800), marks=pytest.mark.long)],
    ids=["tens", "hundreds", "many hundreds"],
)
def test_on_the_ring_what_a_member_sends_and_receives_does_not_grow_with_the_cluster(sizes: tuple[int, int]) -> None:
    small, large = (measure_load(ManyMembers(size, RING), 10.0) for size in sizes)
    assert large.sent <= 1.05 * small.sent
    assert large.received <= 1.05 * small.received
    assert large.busiest <= 1.05 * small.busiest
    assert large.busiest < 10
    largest_without = measure_load(ManyMembers(50, ALL), 10.0)
    assert largest_without.busiest > 95
    # Confirmations are as much rarer as the cluster is larger.
    assert large.master < largest_without.master


# --- what one input costs ------------------------------------------------------------------------------------------


class Counted(str):
    """An identity whose comparisons are calls: a search through a list of members is counted as long as it is."""

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, other)  # whatever it is, str says no

    __hash__ = str.__hash__


def counted_id(address: Address, incarnation: str) -> MemberId:
    return MemberId(Counted(f"{address}/{incarnation}"))


def cluster_of(size: int, config: NodeConfig) -> ManyMembers:
    with patch.object(many, "member_id", counted_id):
        return ManyMembers(size, config)


def calls_of(work: Callable[[], object]) -> int:
    """How many functions are called, in Python and in C."""
    count = 0

    def note(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def cost_of(cluster: ManyMembers, number: int, event: Input) -> int:
    node = cluster.nodes[number]
    return calls_of(lambda: (node.handle(event, cluster.now), node.next_deadline()))


def heartbeat(cluster: ManyMembers, receiver: int) -> Input:
    view = cluster.nodes[receiver].membership.view  # type: ignore[union-attr]  # all are real
    return Received(cluster.ids[-1], m.Heartbeat(view.version, view.maker))  # type: ignore[union-attr]  # has joined


def confirmation(cluster: ManyMembers, receiver: int) -> Input:
    view = cluster.nodes[receiver].membership.view  # type: ignore[union-attr]  # all are real
    assert view is not None
    return Received(cluster.ids[-1], m.MasterConfirmation(view.version, view.maker, 0, wants_answer=True))


@pytest.fixture(scope="module", params=[ALL, RING], ids=["all", "ring"])
def two_sizes(request: pytest.FixtureRequest) -> tuple[ManyMembers, ManyMembers]:
    """A cluster and one twice as large. To make them takes longer than what is asked of them, which fails no member."""
    return cluster_of(30, request.param), cluster_of(60, request.param)


@pytest.mark.rows("EL-45")
@pytest.mark.parametrize("receiver", [MASTER, 20], ids=["master", "slave"])
@pytest.mark.parametrize("make", [heartbeat, confirmation])
def test_a_heartbeat_costs_the_same_in_a_cluster_twice_as_large(
    make: Callable[[ManyMembers, int], Input], receiver: int, two_sizes: tuple[ManyMembers, ManyMembers]
) -> None:
    small, large = two_sizes
    assert cost_of(small, receiver, make(small, receiver)) == cost_of(large, receiver, make(large, receiver))


@pytest.mark.rows("EL-45")
@pytest.mark.parametrize("number", [MASTER, 20], ids=["master", "slave"])
def test_a_tick_costs_at_most_twice_as_much_in_a_cluster_twice_as_large(
    number: int, two_sizes: tuple[ManyMembers, ManyMembers]
) -> None:
    costs = []
    for cluster in two_sizes:
        cluster.run_for(1_000)
        deadline = cluster.nodes[number].next_deadline()
        assert deadline is not None
        cluster.now = max(deadline, cluster.now)
        costs.append(cost_of(cluster, number, TimePassed()))
    assert costs[1] <= 2.1 * costs[0]


@pytest.mark.rows("EL-45", "EL-23")
@pytest.mark.parametrize(("size", "config"), [(45, ALL), (60, NodeConfig(ring_above_members=40))], ids=["all", "ring"])
def test_a_view_change_with_all_its_acknowledgements_costs_each_member_no_more_than_its_length(
    size: int, config: NodeConfig
) -> None:
    (small, small_views), (large, large_views) = (costs_of_a_view_change(n, config) for n in (size, 2 * size))
    assert small_views == dict.fromkeys(SEEN_AT, size - 1)
    assert large_views == dict.fromkeys(SEEN_AT, 2 * size - 1)
    for number in SEEN_AT:
        assert large[number] <= 2.3 * small[number], number


SEEN_AT = (MASTER, 40)


def costs_of_a_view_change(size: int, config: NodeConfig) -> tuple[Counter[int], dict[int, int]]:
    """What the list without a killed member costs the master and another member, and how long the list is that each has then."""
    cluster = cluster_of(size, config)
    feed, costs, lengths = cluster.feed, Counter[int](), dict[int, int]()

    def counted_feed(receiver: int, event: Input) -> None:
        is_about_the_list = isinstance(event, Received) and isinstance(event.message, m.MembersUpdate | m.MembersAck)
        if receiver in SEEN_AT and (is_about_the_list or isinstance(event, TimePassed)):
            costs[receiver] += calls_of(lambda: feed(receiver, event))
        else:
            feed(receiver, event)

    def note(number: int, event: Event) -> None:
        if number in SEEN_AT and isinstance(event, ViewInstalled):
            lengths[number] = len(event.members)

    cluster.on_event = note
    cluster.kill(size - 1)
    cluster.run_for(250)
    with patch.object(cluster, "feed", counted_feed):
        cluster.run_for(150)
    return costs, lengths
