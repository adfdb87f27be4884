"""Bulk reads and writes of plain entries have native versions: replies and replicas are the same with them and without."""

import tracemalloc
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.codec.rows import unpack_rows
from phalanx.common.clock import STAMP_BYTES
from phalanx.common.ids import MemberId
from phalanx.grid.replica.journal import MapJournal
from phalanx.grid.replica.replica import Replica
from phalanx.grid.replication import leader
from phalanx.grid.replication.flow_control import CopyFlow
from phalanx.grid.replication.leader import Leader
from phalanx.grid.replication.owned_partition import OwnedPartition, Term
from phalanx.grid.replication.replica_log import ReplicaLog
from phalanx.grid.serving import many_keys
from phalanx.machine.outbox import Outbox
from phalanx.wire import messages as m
from phalanx.wire.disk_records import PlainPuts
from support.harness import CLIENT, TEXT, Cluster

compiled_only = pytest.mark.skipif(
    many_keys.NATIVE is None, reason="phalanx-native is not built: that needs a C compiler and Python.h"
)

THIS = MemberId("a:1/1")
COUNT = 3
PLAIN = (int, str, dict, set, list, type(None))
NOW = 1_000
KEYS = [TEXT + b"%d" % number for number in range(12)]
STATES = ["plain", "absent", "expiring", "ordered", "tombstones", "journal", "expired", "elsewhere"]
"""What a partition's store of the map can be like; `elsewhere`: the partition is not owned here."""


def partition_in(state: str, number: int) -> OwnedPartition | None:
    """A partition with half of the keys, in such a state."""
    if state == "elsewhere":
        return None
    owned = OwnedPartition(Term(number, 1, THIS), Replica(), CopyFlow(Outbox(THIS), 1))
    if state == "absent":
        return owned
    store = owned.replica.map("m")
    for key in KEYS[::2]:
        store.put(key, bytes(STAMP_BYTES) + TEXT + key * 3, 0, NOW)
    if state in ("expiring", "expired"):
        for key in KEYS[::4]:
            store.expire(key, NOW + 1 if state == "expiring" else NOW, is_covering=False)
    elif state == "ordered":
        store.ordered()
    elif state == "tombstones":
        store.remove(KEYS[0], 5)
    elif state == "journal":
        owned.replica.keep_journal("m", MapJournal(10, 10_000, 1, 1, THIS))
    return owned


def put_values(owned: list[OwnedPartition | None], *arguments: Any) -> bool:
    """What `Leader.commit_values` does with these partitions."""
    return logged_values(owned, None, *arguments)


def logged_values(owned: list[OwnedPartition | None], log: ReplicaLog | None, *arguments: Any) -> bool:
    """The same in a member with this log."""
    return Leader.commit_values(SimpleNamespace(_ownership=SimpleNamespace(owned=owned), log=log), *arguments)  # type: ignore[arg-type]  # it reads nothing else


def fields_of(each: Any) -> dict[str, Any]:
    """All slots of an object; of what is no plain value, its type. A new slot is compared, too: a native function must know of it."""
    found = {name: getattr(each, name) for name in type(each).__slots__}
    return {name: value if isinstance(value, PLAIN) else type(value) for name, value in found.items()}


def state_of(owned_by_number: list[OwnedPartition | None]) -> list[Any]:
    """What the partitions hold, as values."""
    return [
        owned
        and (
            fields_of(owned),
            fields_of(owned.replica) | {"maps": ""},
            {name: fields_of(store) for name, store in owned.replica.maps.items()},
        )
        for owned in owned_by_number
    ]


@compiled_only
@given(
    st.lists(st.sampled_from(STATES), min_size=COUNT, max_size=COUNT),
    st.lists(st.sampled_from(KEYS), max_size=30),
    st.integers(0, 200),
)
def test_values_are_the_same(states: list[str], keys: list[bytes], max_bytes: int) -> None:
    owned = [partition_in(state, number) for number, state in enumerate(states)]
    found = many_keys.find_values(owned, "m", keys, max_bytes, NOW)
    with mock.patch.object(many_keys, "NATIVE", None):
        assert many_keys.find_values(owned, "m", keys, max_bytes, NOW) == found


@compiled_only
@given(
    st.booleans(),
    st.lists(st.sampled_from(["", *STATES[:5]]), min_size=COUNT, max_size=COUNT),
    st.lists(st.tuples(st.sampled_from(KEYS), st.binary(max_size=9)), max_size=20),
)
def test_entries_are_stored_alike(has_log: bool, states: list[str], pairs: list[tuple[bytes, bytes]]) -> None:
    """In a member, by a request: one member has native functions, the other has none."""

    def played() -> Any:
        c = Cluster("A", partition_count=COUNT, backup_count=0)
        c.put("A", KEYS[0], TEXT)
        c.settle()
        grid = c.nodes["A"].grid
        log = grid.leader.log = ReplicaLog() if has_log else None
        for number, state in enumerate(states):
            made = partition_in(state, number) if state else None
            owned = grid.ownership.owned[number]
            assert owned is not None
            if made is not None:
                owned.replica.maps = made.replica.maps
        request = m.PutAll(5, "m", [key for key, _ in pairs], [TEXT + value for _, value in pairs], 0)
        grid.copies.out.take()
        grid.clock.observe(1 << 50, c.now)
        c.nodes["A"]._handlers[m.PutAll](CLIENT, request, c.now)
        return grid.copies.out.take(), state_of(grid.ownership.owned), grid.clock.read(c.now), log and log.take()

    in_native_code = played()
    with mock.patch.object(leader, "NATIVE", None):
        assert played() == in_native_code


@compiled_only
def test_plain_entries_are_put_in_native_code_and_others_are_not() -> None:
    for state in STATES:
        owned = [partition_in(state, number) for number in range(COUNT)]
        before = repr(state_of(owned))
        is_done = put_values(owned, "m", KEYS, KEYS, bytes(STAMP_BYTES))
        assert is_done is (state == "plain")
        assert (repr(state_of(owned)) == before) is not is_done


@compiled_only
@given(st.lists(st.lists(st.tuples(st.sampled_from(KEYS), st.binary(max_size=9)), min_size=1, max_size=9), max_size=4))
def test_a_log_gets_what_was_set_in_the_order_of_the_writes(calls: list[list[tuple[bytes, bytes]]]) -> None:
    owned, log, stamp = [partition_in("plain", number) for number in range(COUNT)], ReplicaLog(7), b"stamp" + bytes(3)
    for pairs in calls:
        log.put("m", KEYS[0], b"before", COUNT)
        assert logged_values(owned, log, "m", *zip(*pairs, strict=True), stamp)
    log.put("other", KEYS[0], b"behind", COUNT)
    if calls:
        written = [
            entry
            for pairs in calls
            for entry in [(KEYS[0], b"before"), *((key, stamp + value) for key, value in pairs)]
        ]
        (many, _), taken = zip(*written, strict=True), log.take()
        assert taken is not None
        body = taken.records[0].body
        assert isinstance(body, PlainPuts)
        assert (taken.first_lsn, body.map, body.of) == (8, "m", COUNT)
        assert unpack_rows(body.rows) == (list(many), [stored for _, stored in written])
        assert [each.body.map for each in taken.records if isinstance(each.body, PlainPuts)] == ["m", "other"]


@compiled_only
def test_a_log_gets_nothing_of_what_was_not_done() -> None:
    for state in STATES[1:]:
        owned, log = [partition_in("plain", 0), partition_in("plain", 1), partition_in(state, 2)], ReplicaLog()
        assert not logged_values(owned, log, "m", KEYS, KEYS, bytes(STAMP_BYTES))
        assert log.take() is None
    plain = [partition_in("plain", number) for number in range(COUNT)]
    with pytest.raises(TypeError):
        logged_values(plain, log, "m", [KEYS[0], "text"], [b"v", b"v"], b"")
    assert log.take() is None
    assert leader.NATIVE is not None
    halves: tuple[tuple[Any, Any], ...] = (([], None), (None, []))
    for lists in halves:
        with pytest.raises(TypeError, match="together"):
            leader.NATIVE.put_values(plain, "m", KEYS, KEYS, b"", 1, *lists)


@compiled_only
@pytest.mark.parametrize("wrong", ["text", None, 5, bytearray(b"keys")])
def test_what_is_no_bytes_is_refused_before_anything_is_stored(wrong: Any) -> None:
    owned = [partition_in("plain", number) for number in range(COUNT)]
    before = repr(state_of(owned))
    for call in (
        lambda: many_keys.find_values(owned, "m", [wrong], 99, NOW),
        lambda: put_values(owned, "m", [KEYS[0], wrong], [b"v", b"v"], b""),
        lambda: put_values(owned, "m", KEYS[:2], [b"v", wrong], b""),
        lambda: put_values(owned, "m", KEYS[:2], [b"v", b"v"], wrong),
    ):
        with pytest.raises(TypeError):
            call()
    with pytest.raises(ValueError, match="2 keys and 1 values"):
        put_values(owned, "m", KEYS[:2], [b"v"], b"")
    assert repr(state_of(owned)) == before


@compiled_only
def test_objects_of_other_classes_are_left_to_python() -> None:
    assert many_keys.NATIVE is not None
    assert leader.NATIVE is not None

    class Other(OwnedPartition):
        pass

    owned: list[Any] = [Other(Term(0, 1, THIS), Replica(), CopyFlow(Outbox(THIS), 1)), object()]
    assert many_keys.NATIVE.find_values(owned, "m", KEYS, NOW, 99, STAMP_BYTES, 1) is None
    assert leader.NATIVE.put_values(owned, "m", KEYS, KEYS, b"", 1) is False


@compiled_only
def test_nothing_is_kept() -> None:
    owned = [partition_in("plain", number) for number in range(COUNT)]

    def once() -> None:
        assert put_values(owned, "m", KEYS, KEYS, bytes(STAMP_BYTES))
        many_keys.find_values(owned, "m", KEYS, 30, NOW)
        many_keys.find_values(owned, "m", KEYS, 10_000, NOW)
        put_values([None], "m", KEYS, KEYS, bytes(STAMP_BYTES))

    def grown() -> int:
        """Return by how many bytes a hundred calls let this process grow."""
        held = tracemalloc.get_traced_memory()[0]
        for _ in range(100):
            once()
        return tracemalloc.get_traced_memory()[0] - held

    once()
    tracemalloc.start()
    try:
        once()
        # What a call keeps, each hundred of them keeps. Another thread of this process can allocate in one of them.
        assert min(grown() for _ in range(5)) < 3_000
    finally:
        tracemalloc.stop()
