"""A cluster comes back, and its master ends before the others hear of the table: that table is in one folder, and names their incarnations."""

from __future__ import annotations

import pytest

from phalanx.common.map_settings import MapChange
from phalanx.machine.inputs import Synced
from phalanx.wire import messages as m
from phalanx.wire.merge_events import MergeStarted
from phalanx.wire.table_events import MigrationStarted
from support.dormancy import LATER, VALUE
from support.harness import MAP, Cluster, name_of

pytestmark = pytest.mark.rows("DU-29", "DU-30")


def switched_off(*rows: str) -> Cluster:
    """A, B and C have ended at one moment; each partition has one entry."""
    c = Cluster(has_folders=True, seeds="A", partition_count=len(rows), backup_count=1, restart_grace_ms=3_000)
    for name in "ABC":
        c.start(name)
        c.advance(1_500)
    c.assign(rows=rows)
    for partition, row in enumerate(rows):
        c.put(row[0], c.key(partition), VALUE)
    c.advance(500)
    c.crash("ABC")
    return c


def come_back_at_one_member(c: Cluster, other: str = "B") -> None:
    """A and another one are back, and A makes the table of which that one hears nothing."""
    c.swallow = lambda sender, receiver, message: (
        isinstance(message, m.TableUpdate | m.TableChanges) and message.view.version > 0
    )
    c.start("A", seeds=other)
    c.advance(3_000)
    c.join(other, seeds="A")
    c.advance(3_500)
    assert c.table("A").is_assigned
    assert not c.table(other).is_assigned


def end_and_come_back(c: Cluster, name: str, seed: str) -> None:
    c.crash(name)
    c.advance(15_000)
    c.swallow = lambda sender, receiver, message: False
    c.events.clear()
    c.join(name, seeds=seed)
    c.advance(4_000)


def test_who_was_never_told_what_it_holds_is_a_holder() -> None:
    c = switched_off("AB", "BC")
    come_back_at_one_member(c)
    assert (c.row("A", 0), c.row("A", 1)) == ("AB", "B")
    end_and_come_back(c, "A", "B")
    assert c.table("B").is_assigned  # it does not wait for itself
    copied = [event.partition for _, event in c.events if isinstance(event, MigrationStarted)]
    assert copied == [1]  # B's replica of the other one is as it was
    assert set(c.row("B", 0)) == {"A", "B"}
    assert [c.get(c.row("B", p)[0], c.key(p)) for p in (0, 1)] == [VALUE, VALUE]


def test_it_is_one_also_when_its_process_has_changed_sides_since() -> None:
    c = switched_off("AC", "CB")
    come_back_at_one_member(c, "C")
    named = c.id("C")
    c.crash("A")
    c.swallow = lambda sender, receiver, message: False
    c.cuts |= {frozenset("BC"), frozenset("CD")}
    c.start("B", seeds="A")
    c.advance(60_000)
    c.join("D", seeds="B")
    assert c.views_of("BC") == ["BD", "C"]
    c.stay_together("BCD")
    assert c.id("C") != named
    c.crash("BD")  # else the cluster would go on without A
    c.advance(15_000)
    assert not c.table("C").is_assigned
    c.join("A", seeds="C")
    c.advance(5_000)
    assert c.table("C").is_assigned
    assert [c.get(c.row("A", p)[0], c.key(p)) for p in (0, 1)] == [VALUE, VALUE]


def test_a_holder_that_lacks_what_the_other_wrote_meanwhile_gets_a_copy_first() -> None:
    c = switched_off("AB", "AB")
    come_back_at_one_member(c)
    c.put("A", c.key(1), LATER)  # it waits for B, and is in A's folder
    end_and_come_back(c, "A", "B")
    copied = [event.partition for _, event in c.events if isinstance(event, MigrationStarted)]
    assert copied == [1]
    assert c.get(c.row("B", 1)[0], c.key(1)) == LATER


@pytest.mark.rows("DU-56")
def test_who_has_waited_all_the_time_is_not_old_because_another_has_started_again() -> None:
    """The folder of B tells of a view of A and B that is stable since both wait, and A's, as it was read, does not."""
    c = switched_off("AB", "C")
    c.start("A", seeds="B")
    c.advance(3_000)
    c.join("B", seeds="A")
    c.advance(5_000)
    c.crash("B")
    c.advance(15_000)
    c.join("B", seeds="A")
    c.advance(5_000)
    assert not c.table("A").is_assigned
    c.join("C", seeds="A")
    c.advance(1_000)
    assert c.row("A", 0) == "AB"
    assert not c.events_of("A", MergeStarted) + c.events_of("B", MergeStarted)


@pytest.mark.rows("DU-24", "DU-33")
def test_who_came_to_a_waiting_cluster_and_is_left_alone_waits_on() -> None:
    """It has read nothing, and knows who has."""
    c = switched_off("AB", "BA")
    c.start("A", seeds="A")
    c.advance(60_000)
    c.join("D", seeds="A")
    c.crash("A")
    c.advance(15_000)
    assert c.views_of("D") == ["D"]
    wait = c.nodes["D"].installed_table.restart_wait
    assert wait is not None
    assert sorted(map(name_of, wait.members)) == ["A", "B", "C"]
    write = c.put("D", c.key(0), LATER)
    change = c.ask("D", m.ChangeMap, MAP, MapChange(max_entries=7))
    c.advance(1_000)
    assert not c.table("D").is_assigned
    assert not c.is_done(write)
    assert not c.is_done(change)
    for name in "AB":
        c.join(name, seeds="D")
    c.advance(10_000)
    assert [c.get(c.row("A", p)[0], c.key(p)) for p in (0, 1)] == [VALUE, VALUE]
    assert c.table("D").maps == c.table("A").maps


@pytest.mark.rows("DU-26")
def test_a_master_waits_until_all_voters_have_synced_the_view_whose_number_it_uses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """1. A, B and C are back in a view that only A has synced. 2. Had A made its table by then, and the power failed, B and C could restart in
    another view of that number, and give the same versions to other rows."""
    c = switched_off("AB", "BC")
    slow = "BC"
    monkeypatch.setattr(c, "syncs_at_once", lambda name: name not in slow)
    c.start("A", seeds="A")
    c.advance(1_000)
    for name in "BC":
        c.start(name, seeds="A")
    c.advance(5_000)
    assert c.views_of("ABC") == ["ABC"] * 3
    assert not c.table("A").is_assigned
    slow = ""
    for name in "BC":
        c.feed(name, Synced(c.nodes[name].log.last_lsn))
    c.advance(5_000)
    assert c.table("A").is_assigned
    assert [c.get(c.row("A", p)[0], c.key(p)) for p in (0, 1)] == [VALUE, VALUE]
