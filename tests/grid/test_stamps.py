"""Every stored value has a stamp of the grid's clock: given by its owner, the same on every replica, told to no caller."""

from functools import partial
from typing import Any

import pytest

from phalanx.codec.rows import pack_rows
from phalanx.common.clock import COUNTER_BITS, STAMP_BYTES, GridClock, stamp_of, with_stamp
from phalanx.common.config import NodeConfig
from phalanx.common.table import build_table
from phalanx.grid.replication.flow_control import CopyFlow
from phalanx.grid.replication.follower import Follower
from phalanx.grid.replication.memory_guard import MemoryGuard
from phalanx.grid.replication.ownership import Ownership
from phalanx.machine.inputs import Received
from phalanx.machine.outbox import Outbox
from phalanx.wire import messages as m
from support.harness import KEY, MAP, TEXT, Cluster, lone_id

ONE, TWO = TEXT + b"one", TEXT + b"two"
HOUR_MS = 3_600_000


def clocks(c: Cluster) -> dict[str, int]:
    return {name: node.clock.read(c.now) >> COUNTER_BITS for name, node in c.nodes.items()}


def stamp(c: Cluster, name: str, key: bytes = KEY) -> int:
    return stamp_of(c.kept(name)[0][key])


def replied(c: Cluster, name: str, make: Any, *fields: Any) -> Any:
    request = c.ask(name, make, MAP, *fields)
    c.settle()
    return c.replies[request]


@pytest.mark.rows("EL-63")
def test_a_value_has_one_stamp_on_every_replica_and_callers_never_see_it() -> None:
    c = Cluster("ABC", backup_count=2)
    c.assign(rows=["ABC"])
    replied(c, "A", m.Put, KEY, ONE, 0)
    replied(c, "A", m.PutAll, [TEXT + b"a", TEXT + b"b"], [ONE, TWO], 0)
    replied(c, "A", m.Put, TEXT + b"short", TWO, 60_000)
    assert c.kept("A")[0] == c.kept("B")[0] == c.kept("C")[0]
    assert stamp(c, "A") < stamp(c, "A", TEXT + b"a") == stamp(c, "A", TEXT + b"b") < stamp(c, "A", TEXT + b"short")
    assert c.kept("A")[0][KEY][STAMP_BYTES:] == ONE
    assert replied(c, "A", m.Get, KEY).value == ONE
    assert replied(c, "A", m.PutIfAbsent, KEY, TWO, 0).value == ONE
    assert replied(c, "A", m.GetAll, [KEY, TEXT + b"b", TEXT + b"none"]).values == [ONE, TWO, None]
    for limit in (1, 1_000_000):
        page = replied(c, "A", m.ScanPartition, 0, b"", limit)
        assert set(page.values) <= {ONE, TWO}
    assert replied(c, "A", m.Replace, KEY, ONE, TWO, 0).flag is True
    assert replied(c, "A", m.Remove, KEY).value == TWO


def test_limits_and_figures_are_about_what_callers_store() -> None:
    c = Cluster("A", max_value_bytes=100)
    c.assign()
    whole = TEXT + bytes(96)
    assert isinstance(replied(c, "A", m.Put, KEY, whole, 0), m.DoneReply)
    assert isinstance(replied(c, "A", m.Put, KEY, whole + b"x", 0), m.ErrorReply)
    request = c.ask("A", m.GetReplicas)
    assert c.reply(request, m.ReplicasReply).bytes == len(KEY) + len(whole)
    c.put("A", TEXT + b"second", whole)
    both = 2 * len(whole) + len(KEY) + len(TEXT + b"second")
    assert not replied(c, "A", m.ScanPartition, 0, b"", both).more
    assert replied(c, "A", m.ScanPartition, 0, b"", both - 1).more


@pytest.mark.rows("EL-63")
def test_a_write_that_follows_another_one_has_the_greater_stamp_wherever_it_was_made() -> None:
    """The first owner's clock is an hour ahead, and it dies before anybody has heard that in a heartbeat."""
    c = Cluster("ABC")
    c.assign(rows=["BC"])
    c.swallow = lambda sender, receiver, message: isinstance(message, m.Heartbeat | m.MasterConfirmation)
    c.nodes["B"].clock.offset_ms = HOUR_MS
    c.put("B", KEY, ONE)
    c.settle()
    before = stamp(c, "C")
    assert clocks(c)["C"] >= HOUR_MS
    c.swallow = lambda sender, receiver, message: False
    c.crash("B")
    c.advance(20_000)
    assert c.replicas("A") == "CA"
    c.put("C", KEY, TWO)
    c.settle()
    assert stamp(c, "C") == stamp(c, "A") > before


AHEAD = HOUR_MS << COUNTER_BITS
VALUES = [with_stamp(5, ONE), with_stamp(AHEAD, ONE), with_stamp(7, TWO)]
HELD: dict[str, m.Mutation | m.CopyChunk] = {
    "a put": m.ReplicatePut(0, 1, 1, MAP, [KEY], VALUES[1:2], 0),
    "several puts": m.ReplicatePut(0, 1, 1, MAP, [TEXT + b"a", TEXT + b"b", TEXT + b"c"], VALUES, 0),
    "a slice": m.ReplicateUpdates(0, 1, 1, MAP, [KEY], VALUES[1:2], [], [], AHEAD),
    "a removal": m.ReplicateRemove(0, 1, 1, MAP, [KEY], [AHEAD]),
    "several removals": m.ReplicateRemove(0, 1, 1, MAP, [TEXT + b"a", TEXT + b"b"], [AHEAD, 0]),
    "a clear": m.ReplicateClear(0, 1, 1, MAP, AHEAD),
    "values of a copy": m.CopyChunk(
        0, 1, 0, MAP, pack_rows([TEXT + b"a", TEXT + b"b", TEXT + b"c"], VALUES), [], False
    ),
    "tombstones of a copy": m.CopyChunk(0, 1, 0, MAP, b"", [], False, (KEY, TEXT + b"a"), (3, AHEAD)),
    "a clear of a copy": m.CopyChunk(0, 1, 0, MAP, b"", [], True, forgotten=(m.Forgotten(MAP, AHEAD, 0),)),
}


@pytest.mark.rows("EL-63")
@pytest.mark.parametrize("what", HELD)
def test_a_replica_gives_no_stamp_that_is_not_above_all_that_it_holds(what: str) -> None:
    """So a new owner's writes are newer than what it took over, also before it has heard anybody's clock."""
    owner, message = lone_id("A"), HELD[what]
    clock = GridClock()
    out = Outbox(lone_id("B"))
    ownership = Ownership(lone_id("B"), NodeConfig())
    followed = Follower(ownership, MemoryGuard(lone_id("B"), tuple, out), clock, CopyFlow(out, 1))
    followed.follow_table(build_table([(owner, lone_id("B"))], [1], [0]), {}, reconfirmed=False)
    if isinstance(message, m.CopyChunk):
        followed.on_copy_start(owner, m.CopyStart(0, 0, 1, 1, 0, 1, None), 0)
        followed.on_copy_chunk(owner, message, 100)
    else:
        followed.on_probe(owner, m.Probe(0, 1, 0, 0, "", 1))
        followed.on_replicate(owner, message, 100)
        assert followed.replicas[0].seq == 1
    assert clock.stamp(100) == AHEAD + 1
    assert clock.stamp(150) >> COUNTER_BITS == HOUR_MS + 50, "and its clock goes on from there"


@pytest.mark.rows("EL-63")
@pytest.mark.parametrize("ahead", "ABC")
def test_members_agree_on_the_greatest_clock_within_a_heartbeat(ahead: str) -> None:
    c = Cluster("ABC")
    c.nodes[ahead].clock.offset_ms = HOUR_MS
    c.advance(1_001)
    assert len(set(clocks(c).values())) == 1
    assert clocks(c)["A"] == c.now + HOUR_MS


@pytest.mark.rows("EL-63")
def test_members_of_a_ring_agree_through_their_master() -> None:
    c = Cluster("ABCDEFGH", ring_above_members=3, ring_neighbours=1)
    c.nodes["F"].clock.offset_ms = HOUR_MS
    c.advance(60_000)
    assert set(clocks(c).values()) == {c.now + HOUR_MS}


def test_a_joiner_has_the_clock_of_its_cluster_from_the_first() -> None:
    c = Cluster("A")
    c.nodes["A"].clock.offset_ms = HOUR_MS
    c.swallow = lambda sender, receiver, message: isinstance(message, m.Heartbeat | m.MasterConfirmation)
    c.join("B")
    assert clocks(c)["B"] == clocks(c)["A"] == c.now + HOUR_MS


@pytest.mark.rows("EL-63")
@pytest.mark.parametrize("kind", [m.Heartbeat, partial(m.MasterConfirmation, table_version=-1)])
def test_who_is_no_member_moves_no_clock(kind: Any) -> None:
    c = Cluster("AB")
    view = c.nodes["A"].membership.view
    assert view is not None
    told = kind(view_version=view.version, view_maker=view.maker, clock=AHEAD)
    c.feed("A", Received(lone_id("Z"), told))
    assert c.nodes["A"].clock.offset_ms == 0
    c.say("A", "B", m.JoinResponse(1, view, clock=AHEAD))
    assert c.nodes["B"].clock.offset_ms == 0, "it has asked nobody"
    c.say("B", "A", told)
    assert c.nodes["A"].clock.offset_ms == HOUR_MS - c.now
