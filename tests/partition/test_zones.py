"""Where members run, and how much each should hold: told to the master, and heeded by it (C-17)."""

import math

import pytest

from harness import Cluster
from phalanx.common.config import NodeConfig
from phalanx.common.errors import ProtocolError, UsageError
from phalanx.common.traits import MAX_WEIGHT, Traits
from phalanx.wire import messages as m
from phalanx.wire.codec import FrameReader, encode_frame, message_decoder

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
def test_zones_count_when_all_members_have_told_theirs() -> None:
    zones = {"A": "x", "B": "y", "C": "y", "D": "y"}
    c = Cluster(partition_count=PARTITIONS)
    c.seeds = "A"
    c.swallow = lambda sender, receiver, message: isinstance(message, m.MasterConfirmation | m.TableAck)
    for name, zone in zones.items():
        join(c, name, zone)
    c.assign()
    # Nobody has told where it runs: an even share for everybody, A too, though it knows its own zone.
    assert loads(c, "A") == dict.fromkeys("ABCD", 2 * PARTITIONS // 4)
    c.swallow = lambda sender, receiver, message: False
    c.advance(20_000)
    assert shared(c, "A", zones) == []
    assert loads(c, "A")["A"] == PARTITIONS


@pytest.mark.parametrize("unheard", [m.MasterConfirmation, m.TableAck])
def test_whatever_a_member_says_first_tells_where_it_runs(unheard: type) -> None:
    zones = {"A": "x", "B": "x", "C": "y", "D": "y"}
    c = Cluster(partition_count=PARTITIONS)
    c.seeds = "A"
    c.swallow = lambda sender, receiver, message: isinstance(message, unheard)
    for name, zone in zones.items():
        join(c, name, zone)
    c.assign()
    c.advance(4_000)
    assert shared(c, "A", zones) == []


def test_traits_travel_and_a_weight_of_nothing_is_refused() -> None:
    ack = m.TableAck(3, traits=Traits("rack 7", 2.5))
    assert FrameReader(message_decoder).feed(encode_frame(ack)) == [ack]
    with pytest.raises(ProtocolError):
        FrameReader(message_decoder).feed(encode_frame(m.TableAck(3, traits=Traits("rack 7", 0.0))))


@pytest.mark.parametrize("weight", [0.0, -1.0, 2 * MAX_WEIGHT, math.nan, math.inf])
def test_a_weight_is_above_nothing_and_finite(weight: float) -> None:
    with pytest.raises(UsageError, match="capacity_weight"):
        NodeConfig(capacity_weight=weight)


def test_the_name_of_a_zone_is_short() -> None:
    NodeConfig(zone="z" * 200)
    with pytest.raises(UsageError, match="201 characters"):
        NodeConfig(zone="z" * 201)
