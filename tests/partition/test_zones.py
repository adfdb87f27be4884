"""Where members run, and how much each should hold: known from the views, and heeded by the master (C-17)."""

import math

import pytest

from phalanx.common.config import NodeConfig
from phalanx.common.errors import ProtocolError, UsageError
from phalanx.common.traits import MAX_WEIGHT, Traits
from phalanx.common.versions import this_release
from phalanx.wire import messages as m
from phalanx.wire.codec import FrameReader, encode_frame, message_decoder
from support.harness import Cluster, lone_id

PARTITIONS = 24


def zoned(zones: dict[str, str], weights: dict[str, float] | None = None, *, assigned: bool = True) -> Cluster:
    """Members of these zones have joined; the first begins the cluster."""
    c = Cluster(partition_count=PARTITIONS)
    c.seeds = next(iter(zones))
    for name, zone in zones.items():
        join(c, name, zone, (weights or {}).get(name, 1.0))
    c.advance(2_000)
    if assigned:
        c.assign()
        c.advance(2_000)
    return c


def join(c: Cluster, name: str, zone: str, weight: float = 1.0) -> None:
    c.start(name, zone=zone, capacity_weight=weight)
    c.settle()


def rows(c: Cluster, name: str) -> list[str]:
    return [c.replicas(name, partition) for partition in range(PARTITIONS)]


def shared(c: Cluster, name: str, zones: dict[str, str]) -> list[str]:
    """Partitions with fewer than two replicas, or with two of them in one zone."""
    return [row for row in rows(c, name) if len({zones[member] for member in row}) < 2]


def loads(c: Cluster, name: str) -> dict[str, int]:
    return {member: sum(member in row for row in rows(c, name)) for member in c.nodes}


@pytest.mark.rows("DL-02")
def test_backups_are_in_other_zones_than_their_owners() -> None:
    zones = {"A": "x", "B": "x", "C": "y", "D": "y"}
    c = zoned(zones)
    assert shared(c, "A", zones) == []
    assert loads(c, "A") == dict.fromkeys("ABCD", 2 * PARTITIONS // 4)
    # A member of a third zone takes its share, and a member that leaves gives it back.
    zones["E"] = "z"
    join(c, "E", "z")
    c.advance(20_000)
    assert shared(c, "A", zones) == []
    assert loads(c, "A")["E"] in (9, 10)
    c.leave("C")
    c.advance(20_000)
    assert "C" not in c.nodes
    assert shared(c, "A", zones) == []


@pytest.mark.rows("DL-02")
def test_members_hold_by_their_weights() -> None:
    c = zoned(dict.fromkeys("ABCD", ""), {"A": 3.0, "B": 1.0, "C": 1.0, "D": 1.0})
    assert loads(c, "A") == {"A": 24, "B": 8, "C": 8, "D": 8}


@pytest.mark.rows("DL-02", "DL-12")
def test_a_new_master_knows_the_zones_from_its_search() -> None:
    zones = {"A": "x", "B": "x", "C": "y", "D": "y", "E": "y"}
    c = zoned(zones)
    c.swallow = lambda sender, receiver, message: isinstance(message, m.MasterConfirmation | m.TableAck)
    c.crash("A")
    c.advance(10_000)
    assert c.master("C") == "B"
    assert shared(c, "B", zones) == []
    assert {len(row) for row in rows(c, "B")} == {2}


@pytest.mark.rows("DL-02")
def test_zones_and_weights_count_from_the_first_assignment_on() -> None:
    zones = {"A": "x", "B": "y", "C": "y", "D": "y"}
    c = Cluster(partition_count=PARTITIONS)
    c.seeds = "A"
    c.swallow = lambda sender, receiver, message: isinstance(message, m.MasterConfirmation | m.TableAck)
    for name, zone in zones.items():
        join(c, name, zone)
    # The master has heard nothing of the others since they asked to join: what they said then is enough.
    c.assign()
    assert shared(c, "A", zones) == []
    assert loads(c, "A") == {"A": 24, "B": 8, "C": 8, "D": 8}


def test_every_view_says_what_is_special_about_its_members() -> None:
    c = zoned({"A": "x", "B": "", "C": "y", "D": ""}, {"D": 2.0}, assigned=False)
    special = ((c.id("A"), Traits("x")), (c.id("C"), Traits("y")), (c.id("D"), Traits("", 2.0)))
    assert [c.members_view(name).traits for name in "ABCD"] == [special] * 4
    # One that leaves is named no more, and one that starts anew says it anew.
    c.leave("C")
    c.advance(2_000)
    join(c, "C", "z")
    assert c.members_view("D").traits == (special[0], special[2], (c.id("C"), Traits("z")))
    # The oldest survivor makes the next view out of those of the others.
    c.crash("A")
    c.advance(10_000)
    assert c.master("D") == "B"
    assert [c.members_view(name).traits for name in "BCD"] == [(special[2], (c.id("C"), Traits("z")))] * 3


def test_traits_travel_and_a_weight_of_nothing_is_refused() -> None:
    def asking(traits: Traits) -> m.JoinRequest:
        return m.JoinRequest(1, lone_id("B"), "phalanx", m.OLDEST_PROTOCOL_VERSION, 1, traits, release=this_release())

    request = asking(Traits("rack 7", 2.5, True))
    assert FrameReader(message_decoder).feed(encode_frame(request)) == [request]
    with pytest.raises(ProtocolError):
        FrameReader(message_decoder).feed(encode_frame(asking(Traits("rack 7", 0.0))))


@pytest.mark.parametrize("weight", [0.0, -1.0, 2 * MAX_WEIGHT, math.nan, math.inf])
def test_a_weight_is_above_nothing_and_finite(weight: float) -> None:
    with pytest.raises(UsageError, match="capacity_weight"):
        NodeConfig(capacity_weight=weight)


def test_the_name_of_a_zone_is_short() -> None:
    NodeConfig(zone="z" * 200)
    with pytest.raises(UsageError, match="201 characters"):
        NodeConfig(zone="z" * 201)
