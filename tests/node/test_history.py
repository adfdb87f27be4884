"""A member remembers its last decisions, and nothing else; those about partitions push out no others."""

import msgspec
import pytest

from phalanx.common.ids import MemberId
from phalanx.node.history import History
from phalanx.wire import messages as m
from phalanx.wire.events import EVENT_KINDS
from phalanx.wire.suspicion_events import MemberSuspected
from phalanx.wire.table_events import (
    MigrationFinalized,
    MigrationStarted,
    PartitionSealed,
    PartitionsRepaired,
    TableInstalled,
)
from support.harness import Cluster

B = MemberId("B:5701/1")


def suspected(number: int) -> MemberSuspected:
    return MemberSuspected(B, f"reason {number}", "CS-33 silence")


def sealed(partition: int, version: int) -> PartitionSealed:
    return PartitionSealed(partition, version, B)


def reasons(lines: list[bytes]) -> list[str]:
    return [msgspec.json.decode(line)["reason"] for line in lines]


def versions(lines: list[bytes]) -> list[int]:
    return [msgspec.json.decode(line).get("partition_version", -1) for line in lines]


def test_decisions_are_told_oldest_first_with_their_age() -> None:
    history = History()
    history.add([suspected(1)], 1_000)
    history.add([TableInstalled(1, 2, 3), suspected(2)], 1_500)
    ages, lines, forgotten = history.tell(2_000)
    assert (ages, reasons(lines), forgotten) == ([1_000, 500], ["reason 1", "reason 2"], 0)
    assert msgspec.json.decode(lines[0]) == {
        "event": "MemberSuspected", "suspect": B, "reason": "reason 1", "rule": "CS-33 silence", "silent_ms": None,
    }  # fmt: skip


def test_the_oldest_are_forgotten_and_counted() -> None:
    history = History(limit=3)
    for number in range(5):
        history.add([suspected(number)], number)
    assert reasons(history.tell(9)[1]) == ["reason 2", "reason 3", "reason 4"]
    assert history.tell(9)[2] == 2


def test_an_answer_keeps_to_its_limit_and_drops_the_oldest() -> None:
    history = History()
    history.add([suspected(1), suspected(2), suspected(3)], 0)
    size = len(msgspec.json.encode(suspected(1)))
    ages, lines, forgotten = history.tell(7, most_bytes=2 * size)
    assert (ages, reasons(lines), forgotten) == ([7, 7], ["reason 2", "reason 3"], 1)


def test_what_happens_to_partitions_pushes_out_no_other_decision() -> None:
    history = History(limit=2, limit_of_partitions=3)
    history.add([suspected(1)], 0)
    history.add([sealed(7, version) for version in range(10)], 1)
    history.add([suspected(2)], 2)
    assert reasons(history.tell(9)[1]) == ["reason 1", "reason 2"]
    assert history.tell(9)[2] == 0
    ages, lines, forgotten = history.tell_of(7, 9)
    assert (ages, versions(lines), forgotten) == ([8, 8, 8], [7, 8, 9], 7)


def test_one_partition_is_told_with_what_was_decided_for_all_in_their_order() -> None:
    history = History()
    repaired = PartitionsRepaired(5, (1,), (), (B,), "DL-05")
    history.add([sealed(1, 1), sealed(2, 1), repaired, suspected(1), sealed(1, 3)], 4)
    _, lines, forgotten = history.tell_of(1, 4)
    assert [msgspec.json.decode(line)["event"] for line in lines] == [
        "PartitionSealed", "PartitionsRepaired", "PartitionSealed",
    ]  # fmt: skip
    assert (versions(lines), forgotten) == ([1, -1, 3], 0)
    assert history.tell_of(1, 4, most_bytes=len(lines[-1]))[1:] == ([lines[-1]], 2)


def test_everything_that_is_told_of_one_partition_names_a_rule() -> None:
    """Otherwise a member does not remember it."""
    about_one = [kind for kind in EVENT_KINDS.values() if "partition" in kind.__struct_fields__]
    assert len(about_one) >= 7
    assert [kind.__name__ for kind in about_one if "rule" not in kind.__struct_fields__] == []


@pytest.mark.rows("DL-38", "DL-39", "DL-40")
def test_both_ends_of_a_migration_tell_their_replica_index_before_and_after_it() -> None:
    """A COPY to index 1: the destination comes from nowhere; a MOVE of an owner: the source keeps nothing."""
    c = Cluster("AB", partition_count=2)
    c.assign(rows=["AB", "BA"])
    c.join("C")
    c.advance(1_000)
    told = 0
    for name, event in c.events:
        if not isinstance(event, MigrationFinalized):
            continue
        told += 1
        [started] = [
            begun
            for _, begun in c.events
            if isinstance(begun, MigrationStarted)
            and (begun.partition, begun.partition_version) == (event.partition, event.partition_version)
        ]
        end = {"source": started.source, "destination": started.destination}[event.endpoint]
        assert end == c.id(name)
        indices = {
            "source": (started.source_current_index, started.source_new_index),
            "destination": (started.destination_current_index, started.destination_new_index),
        }[event.endpoint]
        assert (event.current_replica_index, event.new_replica_index, event.committed) == (*indices, True)
        at = c.table("A").slots(event.partition)
        assert event.new_replica_index == (at.index(c.id(name)) if c.id(name) in at else -1)
    assert told >= 1


def test_a_member_is_asked_for_one_partition_only() -> None:
    c = Cluster("AB", partition_count=2)
    c.assign(rows=["AB", "BA"])
    c.crash("B")
    c.advance(1_000)
    c.join("C")
    c.advance(1_000)
    whole = c.replies[c.ask("A", m.GetHistory)]
    one = c.replies[c.ask("A", m.GetHistory, 1)]
    assert isinstance(whole, m.HistoryReply)
    assert isinstance(one, m.HistoryReply)
    assert all("partition" not in msgspec.json.decode(line) for line in whole.events)
    named = [msgspec.json.decode(line).get("partition") for line in one.events]
    assert set(named) == {1, None}


def test_every_event_says_of_which_kind_it_is() -> None:
    """The event log and the members' memories are read by it."""
    for kind in EVENT_KINDS.values():
        config = kind.__struct_config__
        assert (config.tag_field, config.tag) == ("event", kind.__name__)
