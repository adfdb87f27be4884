"""A partition is copied while writes go on; whatever breaks at whatever step, nothing confirmed is lost and it ends."""

from collections.abc import Callable
from typing import Any

import pytest

from phalanx.common.migration import Migration, MigrationKind
from phalanx.machine.inputs import TimePassed
from phalanx.wire import messages as m
from phalanx.wire.table_events import MigrationStarted, PartitionsRepaired
from support.harness import KEY, MAP, Cluster

pytestmark = pytest.mark.thorough

KEYS = 6
STEPS = range(48)
"""More messages than one copy takes, from the order to the table that has it."""
FEWER = 3
"""Each of these tests tries every third step, those of one kind beginning at different ones; `./run soak` tries all."""
some_or_all = pytest.mark.parametrize("apart", [FEWER, pytest.param(1, marks=pytest.mark.long)], ids=["some", "all"])


class Copying:
    """O owns partition 0 alone; M is the master and orders a copy to D. After each message a client writes."""

    def __init__(self, **settings: Any) -> None:
        self.c = c = Cluster("MOBD", partition_count=2, backup_count=1, copy_chunk_bytes=60, **settings)
        c.assign(rows=["OB", "MO"])
        self.keys = [c.key(0, number) for number in range(KEYS)]
        self.writes: list[tuple[int, bytes, bytes]] = []
        """Request, key and value, in order; all at the owner of that moment."""
        self.number = 0
        for _ in range(KEYS):
            self.write("O")
        c.settle()
        c.hold_all()
        c.crash("B")
        c.release("B", "MOD")
        c.release("MOD", "B")
        while c.replicas("M") != "O":
            c.advance(50)
        assert [(each.kind, each.owner, each.destination) for each in self.started()] == [("copy", *c.ids("OD"))]

    def started(self) -> list[MigrationStarted]:
        """The migrations of partition 0 that M has ordered."""
        return [event for event in self.c.events_of("M", MigrationStarted) if event.partition == 0]

    def order(self, version: int, destination: str = "D") -> m.MigrationOrder:
        """As M orders the migration, for the version."""
        return m.MigrationOrder(0, version, Migration(MigrationKind.COPY, None, -1, -1, self.c.id(destination), -1, 1))

    def ready(self, version: int, destination: str = "D", done: bool = True) -> m.MigrationReady:
        """As O tells that the destination has everything."""
        replica = self.c.nodes["O"].grid.ownership.owned[0].replica  # type: ignore[union-attr]
        return m.MigrationReady(0, version, self.c.id(destination), done, replica.epoch, replica.seq)

    def write(self, owner: str) -> None:
        """One more value under the next key."""
        self.number += 1
        key, value = self.keys[self.number % KEYS], b"\0\0\0\1%d" % self.number
        self.writes.append((self.c.put(owner, key, value), key, value))

    def run(self, steps: int) -> None:
        """Deliver so many messages, now and then followed by a write at the owner."""
        for step in range(steps):
            if not self.c.step():
                # What is committed is published a little later.
                self.c.now += 20
                self.c.feed("M", TimePassed())
            if step % 3 == 0:
                self.write("O")

    def finish(self) -> None:
        self.c.release()
        self.c.advance(30_000)

    def check_data(self, *, may_be_lost: bool = False) -> None:
        """Each key has its last confirmed value, or one that was written after it."""
        c = self.c
        owner = c.replicas(next(iter(c.nodes)))[0]
        for key in self.keys:
            history = [(request, value) for request, written, value in self.writes if written == key]
            confirmed = [index for index, (request, _) in enumerate(history) if c.is_done(request)]
            allowed = [value for _, value in history[max(confirmed, default=0) :]]
            value = c.get(owner, key)
            assert value in allowed or (value is None and may_be_lost), (key, value, allowed)

    def check_replicated(self) -> None:
        """The table has all replicas again, they are equal, and a write goes through."""
        c = self.c
        wanted = min(2, len(c.nodes))
        for name in c.nodes:
            row = c.replicas(name)
            assert len(row) == wanted, (name, row)
        row = c.replicas(next(iter(c.nodes)))
        self.write(row[0])
        c.settle()
        assert c.is_done(self.writes[-1][0])
        assert len({frozenset((c.entries(name) or {}).items()) for name in row}) == 1
        for node in c.nodes.values():
            assert node.grid.follower.copies == {}
            assert node.grid.leader.unsettled == {}


def test_an_undisturbed_copy_takes_fewer_steps_than_are_tried() -> None:
    copying = Copying()
    copying.run(len(STEPS))
    assert copying.c.replicas("M") == "OD"
    copying.finish()
    copying.check_data()
    copying.check_replicated()


def others_of(kind: str) -> Callable[[Cluster], None]:
    def crash_and_restart(c: Cluster, crashing: str, name: str, seeds: str) -> None:
        c.crash(crashing)
        c.start(name, seeds=seeds)

    def leave(c: Cluster, names: str) -> None:
        for name in names:
            c.leave(name)

    def join(c: Cluster) -> None:
        c.start("N", seeds="M")

    events: dict[str, Callable[[Cluster], None]] = {
        "D dies": lambda c: c.crash("D"),
        "D dies, delivering": lambda c: c.crash("D", lose=False),
        "M dies": lambda c: c.crash("M"),
        "M dies, delivering": lambda c: c.crash("M", lose=False),
        "D restarts": lambda c: crash_and_restart(c, "D", "D", "MO"),
        "O and D lose their link, O hears first": lambda c: c.lose_link("O", "D"),
        "O and D lose their link, D hears first": lambda c: c.lose_link("O", "D", tell="DO"),
        "O to D is lost": lambda c: c.lose_link("O", "D", one_way=True),
        "D to O is lost": lambda c: c.lose_link("D", "O", one_way=True),
        "M and O lose their link": lambda c: c.lose_link("M", "O"),
        "M and D lose their link": lambda c: c.lose_link("M", "D"),
        "D joins again and M dies": lambda c: crash_and_restart(c, "DM", "D", "O"),
        "D leaves": lambda c: c.leave("D"),
        "M leaves": lambda c: c.leave("M"),
        "O leaves": lambda c: c.leave("O"),
        "O and M leave": lambda c: leave(c, "OM"),
        "N joins": join,
    }
    return events[kind]


HAPPENS = [
    "D dies", "D dies, delivering", "M dies", "M dies, delivering", "D restarts",
    "O and D lose their link, O hears first", "O and D lose their link, D hears first", "O to D is lost",
    "D to O is lost", "M and O lose their link", "M and D lose their link", "D joins again and M dies", "D leaves",
    "M leaves", "O leaves", "O and M leave", "N joins",
]  # fmt: skip


@pytest.mark.rows("DL-33", "DL-57", "DL-55")
@some_or_all
@pytest.mark.parametrize("what", HAPPENS)
def test_a_copy_survives_whatever_happens_to_others_than_its_owner_at_any_step(what: str, apart: int) -> None:
    happen = others_of(what)
    for steps in STEPS[HAPPENS.index(what) % apart :: apart]:
        copying = Copying()
        copying.run(steps)
        happen(copying.c)
        copying.finish()
        copying.check_data()
        copying.check_replicated()


@some_or_all
@pytest.mark.parametrize("gone", ["O", "OM"])
@pytest.mark.parametrize("lose", [True, False])
def test_a_copy_whose_owner_dies_leaves_what_the_table_promises(gone: str, lose: bool, apart: int) -> None:
    """Where a surviving member's table names D, D has every confirmed write; where none does, the partition is lost."""
    kept = 0
    tried = STEPS[(len(gone) + lose) % apart :: apart]
    for steps in tried:
        copying = Copying()
        c = copying.c
        copying.run(steps)
        survivors = [name for name in c.nodes if name not in gone]
        promised = any(c.replicas(name) == "OD" for name in survivors)
        c.crash(gone, lose=lose)
        copying.finish()
        copying.check_data(may_be_lost=not promised)
        copying.check_replicated()
        repairs = [event for name in survivors for event in c.events_of(name, PartitionsRepaired)]
        is_lost = any(0 in event.lost for event in repairs)
        assert not (promised and is_lost), steps
        kept += not is_lost
        if is_lost:
            # It begins empty: an older state would bring back what was overwritten or removed.
            owner = c.replicas(survivors[0])[0]
            assert set((c.entries(owner) or {}).values()) <= {value for _, _, value in copying.writes[-1:]}
    assert 0 < kept < len(tried)


@pytest.mark.parametrize("steps", [3, 9, 15, 20, 25, 30])
def test_a_destination_that_hangs_is_given_up_when_it_is_removed(steps: int) -> None:
    copying = Copying()
    copying.run(steps)
    copying.c.hang("D")
    copying.finish()
    assert copying.c.view("M") == "MO"
    copying.check_data()
    assert copying.c.replicas("M") == "OM"


def test_an_order_of_an_earlier_master_or_for_an_earlier_version_is_ignored() -> None:
    copying = Copying()
    c = copying.c
    c.deliver("M", "O", m.TableChanges)
    for sender, version in (("D", 2), ("M", 1), ("M", 3)):
        c.say(sender, "O", copying.order(version))
        assert c.owned("O").streams == {}
    c.say("M", "O", copying.order(2))
    assert list(c.owned("O").streams) == [c.id("D")]


@some_or_all
def test_every_kind_of_write_during_a_copy_reaches_the_destination(apart: int) -> None:
    for steps in STEPS[::apart]:
        copying = Copying()
        c = copying.c
        for number in range(steps):
            c.step()
            key = copying.keys[number % KEYS]
            kind = number % 5
            if kind == 0:
                c.ask("O", m.Remove, MAP, key)
            elif kind == 1:
                c.put("O", key, b"\0\0\0\1again", ttl_ms=100_000)
            elif kind == 2:
                c.ask("O", m.PutAll, MAP, copying.keys[:3], [b"\0\0\0\1%d" % number] * 3, 0)
            elif kind == 3 and number % 2:
                c.ask("O", m.ClearPartitions, MAP, [0])
            else:
                c.ask("O", m.PutIfAbsent, MAP, key, b"\0\0\0\1absent", 0)
        c.release()
        c.advance(5_000)
        assert c.replicas("M") == "OD"
        assert c.entries("O") == c.entries("D")


def test_a_destination_that_its_owner_cannot_reach_is_replaced_by_another_one() -> None:
    """The master reaches D, O does not: to order the same copy again and again would leave O alone for ever."""
    c = Cluster("MOBDE", partition_count=2, backup_count=1, partial_resolution_heartbeats=0)
    c.assign(rows=["OB", "MO"])
    write = c.put("O", c.key(0), b"\0\0\0\1v")
    c.settle()
    assert c.is_done(write)
    c.cut("O", "D")
    c.crash("B")
    c.advance(3_000)
    begun = [event.destination for event in c.events_of("M", MigrationStarted) if event.partition == 0]
    assert begun[0] == c.id("D")
    assert c.replicas("M") == "OM", "M and E are to hold as much as one another: the older stands in"
    assert begun.count(c.id("D")) < 5
    c.heal()
    c.advance(60_000)
    assert c.table("M").loads()[c.id("D")] == 1
    assert c.nodes["M"].coordinator.is_at_rest()
    assert c.get("O", c.key(0)) == b"\0\0\0\1v"


def test_a_destination_that_nobody_can_replace_is_tried_again_but_not_all_the_time() -> None:
    c = Cluster("MO", partition_count=1, backup_count=2, partial_resolution_heartbeats=0)
    c.assign(rows=["OM"])
    c.start("D")
    c.cuts.add(frozenset("OD"))
    c.advance(60_000)
    assert c.view("M") == "MOD"
    attempts = [event for event in c.events_of("M", MigrationStarted) if event.destination == c.id("D")]
    assert 3 < len(attempts) < 20
    c.heal()
    c.advance(20_000)
    assert c.replicas("M") == "OMD"


def test_a_copy_to_a_member_whose_connection_is_refused_does_not_wait_for_its_timeout() -> None:
    copying = Copying()
    c = copying.c
    c.deliver("M", "O", m.MigrationOrder)
    c.lose_link("O", "D")
    c.cut("O", "D")
    c.release()
    c.settle()
    c.heal()
    c.advance(1_500)
    assert c.replicas("M") in ("OD", "OM")
    copying.finish()
    copying.check_data()
    copying.check_replicated()


@pytest.mark.parametrize("in_sync", [True, False])
def test_a_destination_that_leaves_is_not_waited_for_although_no_table_tells_so_yet(in_sync: bool) -> None:
    c = Cluster("MO", partition_count=1, backup_count=2)
    c.assign(rows=["OM"])
    c.swallow = lambda sender, receiver, message: (
        isinstance(message, m.MigrationReady) or (isinstance(message, m.CopyChunk) and not in_sync)
    )
    c.join("D")
    c.advance(500)
    owned = c.nodes["O"].grid.ownership.owned[0]
    assert owned is not None
    assert owned.streams[c.id("D")].counts is in_sync
    c.swallow = lambda sender, receiver, message: (
        receiver == "O" and isinstance(message, m.TableUpdate | m.TableChanges)
    )
    c.crash("D")
    c.advance(1_000)
    assert c.view("O") == "MO"
    assert list(owned.streams) == [c.id("M")]
    write = c.put("O", c.key(0), b"\0\0\0\1v")
    c.settle()
    assert c.is_done(write)


def test_a_report_about_an_order_for_another_version_or_destination_commits_nothing() -> None:
    """The migration that it tells of was over; the one that is under way now, to the same member, has only begun."""
    copying = Copying()
    c = copying.c
    before = c.table("M")
    for sender, version, destination in (("O", 1, "D"), ("O", 3, "D"), ("D", 2, "D"), ("O", 2, "M")):
        for done in (True, False):
            c.say(sender, "M", copying.ready(version, destination, done))
            assert c.pending("M", "D", m.MigrationCommit) == c.pending("M", "M", m.MigrationCommit) == []
            assert (c.table("M"), len(c.nodes["M"].coordinator.migrations.underway)) == (before, 1)
    c.say("O", "M", copying.ready(2))
    assert len(c.pending("M", "D", m.MigrationCommit)) == 1


@pytest.mark.rows("DL-28")
def test_an_order_that_overtakes_the_table_waits_until_the_table_confirms_the_row() -> None:
    """D has committed that it owns the partition, and M already wants to own it itself. Or both would answer."""
    c = Cluster("MOD", partition_count=2, backup_count=0)
    c.assign(rows=["O", "M"])
    c.put("O", c.key(0), b"\0\0\0\1v")
    c.settle()
    c.swallow = lambda sender, receiver, message: (
        receiver == "D" and isinstance(message, m.TableUpdate | m.TableChanges)
    )
    c.leave("O")
    while c.replicas("D") != "D":
        assert c.step()
    version = c.table("D").versions[0]
    exchange = Migration(MigrationKind.MOVE, c.id("D"), 0, -1, c.id("M"), -1, 0)
    reports: list[Any] = []

    def note(sender: str, receiver: str, message: Any) -> bool:
        if sender == "D" and isinstance(message, m.MigrationReady):
            reports.append((c.nodes["D"].installed_table.installed_version, message))
        return False

    c.swallow = lambda s, r, msg: note(s, r, msg) or (r == "D" and isinstance(msg, m.TableUpdate | m.TableChanges))
    c.say("M", "D", m.MigrationOrder(0, version, exchange))
    c.settle()
    assert reports == [], "the master's table does not say yet that D is the owner"
    c.swallow = note
    c.advance(5_000)
    assert all(installed >= version for installed, _ in reports)
    assert c.get(c.replicas("M")[0], c.key(0)) == b"\0\0\0\1v"


def test_a_copy_that_came_before_any_table_is_nothing_to_begin_with_for_who_is_left_alone() -> None:
    """It assigns all partitions anew; their versions begin below that of the copy, which is of a cluster elsewhere."""
    c = Cluster("AB", partition_count=1, backup_count=2)
    c.assign(rows=["BA"])
    for _ in range(3):
        c.put("B", KEY, b"\xff\xff\xff\xf5old")
    c.settle()
    c.hold("A", "C")
    c.start("C", seeds="A")
    c.settle()
    c.deliver("A", "C", m.JoinResponse)
    c.settle()
    c.advance(2_000)
    assert c.view("C") == "ABC"
    assert not c.table("C").version
    assert c.nodes["C"].grid.follower.replicas[0].epoch > 0
    c.crash("AB")
    c.advance(60_000)
    assert c.view("C") == "C"
    c.ask("C", m.Get, MAP, KEY)
    c.settle()
    assert c.replicas("C") == "C"
    assert c.get("C", KEY) is None
