"""Whether the others have memory for what a lost member held (PX-26)."""

import pytest

from phalanx.machine.inputs import MemoryMeasured
from phalanx.partition.coordinator.cluster_memory import worst_loss
from phalanx.wire import messages as m
from phalanx.wire.memory_events import ClusterMemoryShort
from support.harness import Cluster, lone_id

MIB = 1 << 20


def report(used: int, limit: int = 100, base: int = 10) -> m.MemoryReport:
    return m.MemoryReport(used, limit, max(used - base, 0), used >= limit)


@pytest.mark.rows("PX-26")
@pytest.mark.parametrize(
    ("used", "replicas", "lost", "needed", "room"),
    [
        # Two members with one backup: each has everything already.
        ({"A": 90, "B": 90}, 2, "A", 10 + 80, 100),
        # Without a backup what a lost member held is lost, but what comes back to the cluster needs its place.
        ({"A": 60, "B": 50}, 1, "A", 10 + 90, 100),
        # Three members, two replicas: two members hold all of both.
        ({"A": 60, "B": 60, "C": 60}, 2, "A", 20 + 150, 200),
        ({"A": 80, "B": 80, "C": 80}, 2, "A", 20 + 210, 200),
        # With as many replicas as members, one member less is one replica less.
        ({"A": 80, "B": 80, "C": 80}, 3, "A", 20 + 140, 200),
    ],
)
def test_what_the_others_need_when_a_member_is_lost(
    used: dict[str, int], replicas: int, lost: str, needed: int, room: int
) -> None:
    reports = {lone_id(name): report(each) for name, each in used.items()}
    worst = worst_loss(reports, [lone_id(name) for name in used], replicas)
    assert worst == m.MissingMemory(lone_id(lost), needed, room)


def test_the_loss_of_the_member_with_the_highest_limit_is_the_worst() -> None:
    reports = {lone_id("A"): report(50, 100), lone_id("B"): report(50, 300), lone_id("C"): report(50, 100)}
    worst = worst_loss(reports, list(reports), 2)
    assert worst is not None
    assert (worst.member, worst.room) == (lone_id("B"), 200)


def test_nothing_is_concluded_where_a_member_has_not_told_or_has_no_limit() -> None:
    reports = {lone_id("A"): report(99), lone_id("B"): report(99)}
    assert worst_loss(reports, [lone_id(name) for name in "ABC"], 2) is None
    assert worst_loss(reports | {lone_id("C"): report(99, 0)}, [lone_id(name) for name in "ABC"], 2) is None
    assert worst_loss(reports, [lone_id("A")], 2) is None


@pytest.mark.rows("PX-26")
def test_the_master_tells_when_the_loss_of_a_member_would_not_fit_and_when_it_does_again() -> None:
    c = Cluster("ABC", partition_count=3)
    c.assign()

    def measure(used: int) -> None:
        for name in "ABC":
            c.feed(name, MemoryMeasured(used * MIB, 100 * MIB, 120 * MIB, 10 * MIB))
            c.settle()

    measure(50)
    assert not c.events_of("A", ClusterMemoryShort)
    measure(80)
    measure(81)
    [told] = c.events_of("A", ClusterMemoryShort)
    assert (told.is_short, told.room) == (True, 200 * MIB)
    assert c.reply(c.ask("A", m.GetMigrations), m.MigrationsReply).memory_shortage is not None
    safety = c.reply(c.ask("B", m.GetSafety), m.SafetyReply)
    assert (safety.memory_used, safety.memory_limit) == (81 * MIB, 100 * MIB)
    measure(50)
    assert [event.is_short for event in c.events_of("A", ClusterMemoryShort)] == [True, False]
    assert c.reply(c.ask("A", m.GetMigrations), m.MigrationsReply).memory_shortage is None
    assert not any(c.events_of(name, ClusterMemoryShort) for name in "BC")
