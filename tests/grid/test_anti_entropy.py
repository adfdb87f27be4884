"""A backup that silently differs is found and mended, also where nobody writes."""

import pytest

from phalanx.wire import messages as m
from support.harness import KEY, Cluster

VALUE = b"\0\0\0\1v"


@pytest.mark.rows("DL-85")
@pytest.mark.parametrize("damage", ["epoch", "seq", "leader", "gone"])
def test_a_backup_out_of_step_is_found_within_the_interval_and_copied_to(damage: str) -> None:
    c = Cluster("AB", anti_entropy_interval_ms=4_000, partition_count=5)
    c.assign(rows=["AB"] * 5)
    c.put("A", c.key(3), VALUE)
    c.settle()
    replica = c.nodes["B"].grid.follower.replicas[3]
    if damage == "gone":
        del c.nodes["B"].grid.follower.replicas[3]
    else:
        replica.maps.clear()
        setattr(replica, damage, "another" if damage == "leader" else getattr(replica, damage) - 1)
    assert c.entries("B", 3) != {c.key(3): VALUE}
    c.advance(6_500)
    assert c.entries("B", 3) == {c.key(3): VALUE}


@pytest.mark.rows("DL-85")
def test_a_move_of_a_backup_never_waits_for_it() -> None:
    """The new backup holds everything before the old one lets go, although nobody compares anything."""
    c = Cluster("ABCD", anti_entropy_interval_ms=0)
    c.assign(rows=["AC"])
    c.put("A", KEY, VALUE)
    c.settle()
    seen: list[type] = []

    def look(sender: str, receiver: str, message: m.Message) -> bool:
        seen.append(type(message))
        return False

    c.swallow = look
    c.leave("C")
    c.advance(2_000)
    assert m.CopyStart in seen
    assert m.Probe not in seen
    assert [c.entries(name) for name in c.replicas("A")] == [{KEY: VALUE}] * 2


def test_backups_in_step_are_asked_once_in_each_interval_and_nothing_is_copied() -> None:
    c = Cluster("AB", anti_entropy_interval_ms=3_000, partition_count=6)
    c.assign(rows=["AB"] * 6)
    c.advance(3_000)
    seen: list[m.Message] = []

    def look(sender: str, receiver: str, message: m.Message) -> bool:
        seen.append(message)
        return False

    c.swallow = look
    c.advance(6_000)
    asked = [message.partition for message in seen if isinstance(message, m.Probe)]
    assert sorted(asked) == sorted([0, 1, 2, 3, 4, 5] * 2)
    assert not [message for message in seen if isinstance(message, m.CopyStart)]
