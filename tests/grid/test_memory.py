"""A member near its memory limit refuses what grows it, and goes on with everything else (PX-24, PX-25)."""

from typing import Any

import pytest

from phalanx.codec.rows import pack_rows
from phalanx.codec.values import to_data
from phalanx.common.backups import BackupCount
from phalanx.common.errors import ErrorCode, GridFull
from phalanx.common.hidden_maps import HiddenKind, StagedStep, hidden_name
from phalanx.common.map_config import MapConfig
from phalanx.common.map_settings import MapChange
from phalanx.common.memory import (
    ENTRY_BYTES,
    EXPIRY_BYTES,
    IDLE_BYTES,
    TOMBSTONE_BYTES,
    WRITTEN_BYTES,
    MemoryLevel,
    format_bytes,
    level_of,
)
from phalanx.grid.replica.data_size import DataSize
from phalanx.grid.replica.replica import Replica
from phalanx.grid.replication import memory_guard
from phalanx.grid.replication.memory_guard import LEAST_DATA, REPEAT_MS, REPORT_VALID_MS, UNLIMITED, MemoryGuard
from phalanx.machine.inputs import MemoryMeasured, Received
from phalanx.machine.outbox import Outbox
from phalanx.maps.requests import as_for_the_whole, raise_error
from phalanx.wire import messages as m
from phalanx.wire.memory_events import MemoryFull, MemoryNearlyFull
from phalanx.wire.table_events import MigrationRolledBack, MigrationStarted
from support.harness import CLIENT, KEY, MAP, TEXT, Cluster

MIB = 1 << 20
LIMIT, CEILING = 1000 * MIB, 1200 * MIB
VALUE = TEXT + b"v" * 100
LONGER, SHORTER = VALUE + b"v", VALUE[:-1]
OTHER = TEXT + b"other"
NUMBER = 1_000


def measure(c: Cluster, name: str, resident: int, limit: int = LIMIT, base: int = 0) -> None:
    c.feed(name, MemoryMeasured(resident, limit, limit + limit // 5, base))
    c.settle()


def guard_of(c: Cluster, name: str = "A") -> MemoryGuard:
    return c.nodes[name].grid.memory


def ask(c: Cluster, name: str, make: Any, *fields: Any) -> Any:
    """The reply to a request, or None: it waits."""
    asked = c.ask(name, make, *fields)
    c.settle()
    return c.replies.get(asked)


def is_refused(reply: Any) -> bool:
    return isinstance(reply, m.ErrorReply) and reply.code is ErrorCode.GRID_FULL


def holding(names: str = "A", **settings: Any) -> Cluster:
    """The first member owns the one partition, and holds an entry."""
    c = Cluster(names, **({"backup_count": len(names) - 1} | settings))
    c.assign(rows=[names])
    c.put(names[0], KEY, VALUE)
    c.settle()
    return c


# --- levels ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("used", "resident", "before", "then"),
    [
        (899, 899, MemoryLevel.ROOM, MemoryLevel.ROOM),
        (900, 900, MemoryLevel.ROOM, MemoryLevel.NEAR),
        (999, 999, MemoryLevel.NEAR, MemoryLevel.NEAR),
        (1000, 1000, MemoryLevel.ROOM, MemoryLevel.FULL),
        (950, 950, MemoryLevel.FULL, MemoryLevel.FULL),
        (949, 949, MemoryLevel.FULL, MemoryLevel.NEAR),
        (849, 849, MemoryLevel.FULL, MemoryLevel.ROOM),
        (850, 850, MemoryLevel.NEAR, MemoryLevel.NEAR),
        (849, 849, MemoryLevel.NEAR, MemoryLevel.ROOM),
        (100, 1199, MemoryLevel.ROOM, MemoryLevel.ROOM),
        (100, 1200, MemoryLevel.ROOM, MemoryLevel.FULL),
        (100, 1140, MemoryLevel.FULL, MemoryLevel.FULL),
        (100, 1139, MemoryLevel.FULL, MemoryLevel.ROOM),
    ],
)
def test_a_level_changes_at_its_limit_and_back_below_it(
    used: int, resident: int, before: MemoryLevel, then: MemoryLevel
) -> None:
    assert level_of(used, resident, 1000, 1200, before) is then
    assert level_of(used, resident, 0, 0, before) is MemoryLevel.ROOM, "without a limit there is always room"


def test_a_size_is_told_in_the_largest_unit_of_which_there_is_one() -> None:
    assert [format_bytes(size) for size in (0, 1023, 1024, 3 << 19, 5 << 30)] == [
        "0 bytes", "1023 bytes", "1.0 KiB", "1.5 MiB", "5.0 GiB",
    ]  # fmt: skip


# --- what a full member refuses ---------------------------------------------------------------------------------------

PAGE = hidden_name(MAP, "job", HiddenKind.ATTEMPT, "one")
GROWING: dict[str, tuple[Any, ...]] = {
    "put": (m.Put, MAP, OTHER, VALUE, 0),
    "put with a time to live": (m.Put, MAP, OTHER, VALUE, 1_000),
    "put of a longer value": (m.Put, MAP, KEY, LONGER, 0),
    "put_if_absent": (m.PutIfAbsent, MAP, OTHER, VALUE, 0),
    "replace": (m.Replace, MAP, KEY, None, LONGER, 0),
    "update": (m.UpdateValue, MAP, OTHER, "get_and_put", [VALUE], 0),
    "append": (m.UpdateValue, MAP, KEY, "get_and_put", [LONGER], None),
    "update_where": (m.UpdateWhere, MAP, 0, 1, b"", "get_and_put", [LONGER]),
    "put with a token": (m.WriteFenced, MAP, OTHER, VALUE, 0, 1 << 20),
    "a lock that nobody has used": (m.AcquireLock, MAP, OTHER, "me", 0, 1_000, 0),
    "put_all": (m.PutAll, MAP, [KEY, OTHER], [VALUE, VALUE], 0),
    "put_packed": (m.PutPacked, MAP, (m.PackedRows(0, pack_rows([KEY, OTHER], [VALUE, VALUE])),), 1, 0),
    "staged rows": (m.PutPacked, PAGE, (m.PackedRows(0, pack_rows([KEY], [VALUE]), 1),), 1, 0),
    "snapshot": (m.ChangeStaged, MAP, [0], 1, StagedStep.SNAPSHOT, "job", [], "", 0, ()),
}
SERVED: dict[str, tuple[Any, ...]] = {
    "get": (m.Get, MAP, KEY),
    "put of a value as long": (m.Put, MAP, KEY, VALUE, 0),
    "put of a shorter value": (m.Put, MAP, KEY, SHORTER, 0),
    "put_if_absent of a key that is there": (m.PutIfAbsent, MAP, KEY, LONGER, 0),
    "replace by a value as long": (m.Replace, MAP, KEY, VALUE, VALUE, 0),
    "replace that does not match": (m.Replace, MAP, KEY, SHORTER, LONGER, 0),
    "update": (m.UpdateValue, MAP, KEY, "get_and_put", [SHORTER], None),
    "update that removes": (m.UpdateValue, MAP, KEY, "remove_if", [VALUE], None),
    "update_where of values as long": (m.UpdateWhere, MAP, 0, 1, b"", "get_and_put", [VALUE]),
    "put_all of values as long": (m.PutAll, MAP, [KEY], [VALUE], 0),
    "put_packed of values as long": (m.PutPacked, MAP, (m.PackedRows(0, pack_rows([KEY], [VALUE])),), 1, 0),
    "remove": (m.Remove, MAP, KEY),
    "remove with a token": (m.WriteFenced, MAP, KEY, None, 0, 1 << 20),
    "release of a lock": (m.ReleaseLock, MAP, KEY, "me", False),
    "clear": (m.ClearPartitions, MAP, [0]),
    "size": (m.SizeOf, MAP, [0]),
    "scan": (m.ScanPartition, MAP, 0, 1, b"", 1_000),
}


def fields_of(kind: tuple[Any, ...]) -> tuple[Any, ...]:
    make, *fields = kind
    return (make, *fields)


@pytest.mark.rows("PX-24")
@pytest.mark.parametrize("names", ["A", "AB"], ids=["alone", "with a backup"])
@pytest.mark.parametrize("kind", GROWING)
def test_a_full_member_refuses_what_grows_it_and_changes_nothing(kind: str, names: str) -> None:
    c = holding(names)
    measure(c, "A", LIMIT)
    owned = c.owned("A")
    before, seq = dict(c.entries("A") or {}), owned.replica.seq
    reply = ask(c, "A", *fields_of(GROWING[kind]))
    assert is_refused(reply), reply
    assert reply.text.startswith(
        "map 'm': member A:5701 uses 1000.0 MiB of its memory limit of 1000.0 MiB, and this would"
    )
    assert reply.text.endswith(": remove entries, add members, or raise memory_limit of the members")
    assert (c.entries("A"), owned.replica.seq) == (before, seq)
    with pytest.raises(GridFull, match="nothing was changed"):
        raise_error(reply, kind)
    measure(c, "A", LIMIT // 2)
    assert not isinstance(ask(c, "A", *fields_of(GROWING[kind])), m.ErrorReply), "there is room again"


@pytest.mark.rows("PX-24")
@pytest.mark.parametrize("names", ["A", "AB"], ids=["alone", "with a backup"])
@pytest.mark.parametrize("kind", SERVED)
def test_a_full_member_goes_on_with_what_does_not_grow_it(kind: str, names: str) -> None:
    c = holding(names)
    measure(c, "A", LIMIT)
    reply = ask(c, "A", *fields_of(SERVED[kind]))
    assert reply is not None
    assert not isinstance(reply, m.ErrorReply), reply


@pytest.mark.rows("PX-24")
def test_the_puts_of_one_caller_after_the_other_are_refused_too() -> None:
    c = holding()
    for number in range(NUMBER, NUMBER + 5):
        measure(c, "A", LIMIT if number == NUMBER + 4 else 0)
        c.feed("A", Received(CLIENT, m.Put(number, MAP, TEXT + b"%d" % number, VALUE, 0, 0, number)))
    assert [is_refused(c.replies[number]) for number in range(NUMBER, NUMBER + 5)] == [False] * 4 + [True]
    assert len(c.entries("A") or {}) == 5
    measure(c, "A", 0)
    left = guard_of(c).left
    c.feed("A", Received(CLIENT, m.Put(NUMBER + 5, MAP, OTHER, VALUE, 0, 0, NUMBER + 5)))
    assert left - guard_of(c).left == WRITTEN_BYTES + len(OTHER) + len(VALUE)


def test_a_map_at_its_bound_takes_a_new_entry_and_evicts_an_old_one() -> None:
    c = holding(maps={MAP: MapConfig(max_entries=1)})
    measure(c, "A", LIMIT)
    assert not isinstance(ask(c, "A", m.Put, MAP, OTHER, VALUE, 0), m.ErrorReply)
    assert c.entries("A") == {OTHER: VALUE}


def test_a_map_below_its_bound_takes_none() -> None:
    c = holding(maps={MAP: MapConfig(max_entries=2)})
    measure(c, "A", LIMIT)
    assert is_refused(ask(c, "A", m.Put, MAP, OTHER, VALUE, 0))


def test_an_event_of_a_journal_is_growth_until_it_takes_the_place_of_another() -> None:
    c = holding(maps={MAP: MapConfig(journal_capacity=2)})
    measure(c, "A", LIMIT)
    assert is_refused(ask(c, "A", m.Put, MAP, KEY, VALUE, 0)), "its journal has one event of two"
    measure(c, "A", 0)
    c.put("A", KEY, VALUE)
    measure(c, "A", LIMIT)
    assert not isinstance(ask(c, "A", m.Put, MAP, KEY, VALUE, 0), m.ErrorReply)


def test_a_write_that_was_applied_is_answered_when_it_is_asked_for_again_though_memory_is_full() -> None:
    c = holding()
    request = m.PutIfAbsent(NUMBER, MAP, OTHER, VALUE, 0)
    c.feed("A", Received(CLIENT, request))
    assert c.replies.pop(NUMBER) == m.ValueReply(NUMBER, None)
    measure(c, "A", LIMIT)
    c.feed("A", Received(CLIENT, request))
    assert c.replies.pop(NUMBER) == m.ValueReply(NUMBER, None), "and not GRID_FULL: it was applied"
    put = m.Put(NUMBER + 1, MAP, OTHER, LONGER, 0)
    measure(c, "A", 0)
    c.feed("A", Received(CLIENT, put))
    c.put("A", OTHER, VALUE)
    measure(c, "A", LIMIT)
    c.replies.pop(NUMBER + 1)
    c.feed("A", Received(CLIENT, put))
    assert c.replies[NUMBER + 1] == m.DoneReply(NUMBER + 1)
    assert c.get("A", OTHER) == VALUE


def test_a_part_of_a_bulk_call_that_was_refused_makes_the_whole_unknown_where_another_part_was_done() -> None:
    refused = m.ErrorReply(1, ErrorCode.GRID_FULL, "no memory")
    told, may_be_applied = as_for_the_whole([m.DoneReply(2), refused], may_be_applied=False)
    assert may_be_applied
    assert told[1].code is ErrorCode.INDETERMINATE
    assert as_for_the_whole([refused], may_be_applied=False) == ([refused], False)


# --- between two measurements -----------------------------------------------------------------------------------------


@pytest.mark.rows("PX-24")
def test_a_burst_between_two_measurements_does_not_overrun_the_limit() -> None:
    c = holding()
    measure(c, "A", LIMIT - 10 * MIB)
    value = TEXT + b"v" * MIB
    done = 0
    while not is_refused(ask(c, "A", m.Put, MAP, TEXT + b"burst%d" % done, value, 0)):
        done += 1
    assert done == 9
    assert guard_of(c).is_full, "what is full stays so until less is in use"
    measure(c, "A", LIMIT - 10 * MIB)
    assert is_refused(ask(c, "A", m.Put, MAP, OTHER, VALUE, 0))
    measure(c, "A", LIMIT - 60 * MIB)
    assert not is_refused(ask(c, "A", m.Put, MAP, OTHER, VALUE, 0))


@pytest.mark.parametrize("with_ttl", [False, True])
@pytest.mark.parametrize("names", ["A", "AB"])
def test_every_way_to_write_is_counted(names: str, with_ttl: bool) -> None:
    c = holding(names)
    ttl_ms = 60_000 if with_ttl else 0
    value = TEXT + b"v" * 1_000
    for number, request in enumerate(
        [
            (m.Put, MAP, TEXT + b"1", value, ttl_ms),
            (m.PutIfAbsent, MAP, TEXT + b"2", value, ttl_ms),
            (m.Replace, MAP, KEY, None, value, ttl_ms),
            (m.UpdateValue, MAP, TEXT + b"3", "get_and_put", [value], ttl_ms),
            (m.PutAll, MAP, [TEXT + b"4"], [value], ttl_ms),
            (m.UpdateWhere, MAP, 0, 1, KEY, "get_and_put", [value]),
            (m.PutPacked, MAP, (m.PackedRows(0, pack_rows([TEXT + b"5"], [value])),), 1, ttl_ms),
        ]
    ):
        for name in names:
            measure(c, name, 0)
        left = [guard_of(c, name).left for name in names]
        assert not isinstance(ask(c, "A", *request), m.ErrorReply), number
        taken = [before - guard_of(c, name).left for before, name in zip(left, names, strict=True)]
        assert all(1_000 < each < 6_000 for each in taken), (request[0], taken)


def test_a_single_write_that_is_too_large_does_not_make_the_member_full() -> None:
    c = holding()
    measure(c, "A", LIMIT - 100 * MIB)
    guard = guard_of(c)
    assert guard.why_refused(MAP, 101 * MIB, (), c.now)
    assert not guard.is_full
    assert not guard.why_refused(MAP, 99 * MIB, (), c.now)


def test_without_a_limit_nothing_is_refused() -> None:
    c = holding()
    measure(c, "A", 10 * LIMIT, limit=0)
    assert not isinstance(ask(c, "A", m.Put, MAP, OTHER, VALUE, 0), m.ErrorReply)
    guard = guard_of(c)
    assert (guard.left > UNLIMITED // 2, guard.alone_until) == (True, UNLIMITED)


def test_the_fast_path_is_open_for_a_moment_while_less_than_half_of_the_limit_is_in_memory() -> None:
    c = holding()
    guard = guard_of(c)
    measure(c, "A", LIMIT // 2 - MIB)
    assert guard.alone_until == c.now + memory_guard.ALONE_MS
    measure(c, "A", LIMIT // 2)
    assert guard.alone_until < 0
    measure(c, "A", 0, limit=memory_guard.ALONE_ROOM - 1)
    assert guard.alone_until < 0


# --- what is free inside of the process --------------------------------------------------------------------------------


def replica_with(entries: int, size: int) -> Replica:
    replica = Replica()
    replica.map(MAP).put_many([TEXT + b"%08d" % i for i in range(entries)], [bytes(size)] * entries, 0, 0)
    return replica


def test_memory_that_is_free_inside_of_the_process_is_not_in_use() -> None:
    replica = replica_with(100_000, 200)
    guard = MemoryGuard(CLIENT, lambda: [replica], Outbox(CLIENT))  # type: ignore[arg-type]  # nobody asks who it is
    base, full = 30 * MIB, 30 * MIB + 60 * MIB
    measured = MemoryMeasured(full, 95 * MIB, 140 * MIB, base)
    now = 0
    for _ in range(3):
        guard.on_measured(measured, None, now := now + 1_000)
    assert guard.used == full
    store = replica.maps[MAP]
    for key in list(store.entries)[:50_000]:
        store.remove(key)
    for _ in range(2):
        guard.on_measured(measured, None, now := now + 1_000)
    assert base + 30 * MIB == pytest.approx(guard.used, rel=0.01), (
        "half of the data is gone, and the process is as large"
    )
    guard.take(10 * MIB)
    guard.on_measured(MemoryMeasured(full, 200 * MIB, 200 * MIB, base), None, now + 1)
    needed = base + 30 * MIB + int(10 * MIB * 60 * MIB / (100_000 * (ENTRY_BYTES + 12 + 200)))
    assert needed == pytest.approx(guard.used, rel=0.03), "what was taken since it was counted is in use"
    for key in list(store.entries):
        store.remove(key)
    for _ in range(2):
        guard.on_measured(measured, None, now := now + 1_000)
    assert guard.used == base
    assert guard.data.size.held < LEAST_DATA


def test_the_size_of_data_is_that_of_its_entries_and_tombstones() -> None:
    replica = replica_with(100, 200)
    store = replica.maps[MAP]
    data = DataSize(lambda: [replica])
    assert data.go_on(10**9)
    assert data.size.held == 100 * (ENTRY_BYTES + 12 + 200)
    for key in list(store.entries)[:10]:
        store.put(key, bytes(100), 0, 0)
    data.go_on(10**9)
    assert data.size.held == 100 * (ENTRY_BYTES + 12 + 200) - 10 * 100
    for key in list(store.entries)[:50]:
        store.remove(key, 1)
    data.go_on(10**9)
    assert data.size.held == 50 * (ENTRY_BYTES + 12 + 200) + 50 * TOMBSTONE_BYTES, "a removal leaves a tombstone"


def test_times_of_expiry_and_idle_times_are_counted_as_they_are_taken_and_in_passes() -> None:
    replica = replica_with(100, 200)
    store, plain = replica.maps[MAP], 100 * (ENTRY_BYTES + 12 + 200)
    for number, key in enumerate(list(store.entries)[:30]):
        store.put(key, bytes(200), 1_000, 0, max_idle_ms=100 if number < 10 else 0)
    data = DataSize(lambda: [replica])
    data.go_on(10**9)
    assert data.size.held == plain + 30 * EXPIRY_BYTES + 10 * IDLE_BYTES
    c = holding()
    measure(c, "A", 0)
    sizes = []
    for key, ttl_ms, idle_ms in ((b"b", 9_000, 0), (b"c", 0, 9_000), (b"d", 9_000, 9_000)):
        before = guard_of(c).left
        ask(c, "A", m.PutAll, MAP, [TEXT + key], [VALUE], ttl_ms, idle_ms)
        sizes.append(before - guard_of(c).left)
    assert [size - sizes[0] for size in sizes] == [0, IDLE_BYTES, IDLE_BYTES]


def test_a_pass_takes_several_turns_where_there_is_much() -> None:
    replicas = [replica_with(100, 10) for _ in range(5)]
    data = DataSize(lambda: replicas)
    turns = [data.go_on(1) for _ in range(6)]
    assert turns == [False] * 5 + [True]
    assert data.size.held == 5 * 100 * (ENTRY_BYTES + 12 + 10)


def test_entries_of_owned_partitions_are_counted_and_backups_are_not() -> None:
    owned, followed = replica_with(100, 10), replica_with(70, 10)
    owned.map(hidden_name(MAP, "job", HiddenKind.WHOLE)).put(TEXT + b"row", bytes(10), 0, 0)
    data = DataSize(lambda: [owned, followed])
    data.owned = lambda: [owned]
    assert data.go_on(10**9)
    assert data.size.entries == 100


def test_staged_rows_reserve_what_they_will_cost_as_entries() -> None:
    c = holding()
    rows = pack_rows([TEXT + b"%d" % i for i in range(100)], [to_data(i) for i in range(100)])
    assert not isinstance(ask(c, "A", m.PutPacked, PAGE, (m.PackedRows(0, rows, 1),), 1, 0), m.ErrorReply)
    measure(c, "A", 0)
    guard = guard_of(c)
    assert guard.data.size.reserved == 100 * ENTRY_BYTES
    assert guard.used == 100 * ENTRY_BYTES


# --- members of one partition ------------------------------------------------------------------------------------------


@pytest.mark.rows("PX-25")
def test_a_write_is_refused_as_long_as_a_member_that_holds_a_replica_is_full() -> None:
    c = holding("AB")
    measure(c, "A", 0)
    measure(c, "B", LIMIT)
    measure(c, "A", MIB)
    reply = ask(c, "A", m.Put, MAP, OTHER, VALUE, 0)
    assert is_refused(reply)
    assert "member B:5701, which holds a replica, uses 1000.0 MiB" in reply.text
    assert not isinstance(ask(c, "A", m.Put, MAP, KEY, SHORTER, 0), m.ErrorReply), "it grows nothing"
    assert not isinstance(ask(c, "A", m.Remove, MAP, KEY), m.ErrorReply)
    measure(c, "B", 0)
    assert not isinstance(ask(c, "A", m.Put, MAP, OTHER, VALUE, 0), m.ErrorReply)


def test_a_full_member_that_holds_no_replica_prevents_no_write() -> None:
    c = Cluster("ABC")
    c.assign(rows=["AB"])
    measure(c, "C", LIMIT)
    assert not isinstance(ask(c, "A", m.Put, MAP, OTHER, VALUE, 0), m.ErrorReply)


def test_a_full_backup_applies_what_its_owner_has_accepted() -> None:
    c = holding("AB")
    c.hold("B", "A")
    c.feed("B", MemoryMeasured(LIMIT, LIMIT, CEILING, 0))
    write = c.put("A", OTHER, VALUE)
    c.release()
    c.settle()
    assert c.is_done(write)
    assert c.entries("B") == c.entries("A")


def test_a_report_counts_for_a_while_and_a_full_member_repeats_it() -> None:
    c = holding("AB")
    measure(c, "A", 0)
    measure(c, "B", LIMIT)
    for _ in range(8):
        c.advance(REPEAT_MS)
        measure(c, "B", LIMIT)
        measure(c, "A", 0)
    assert guard_of(c).full_peers == {c.id("B")}
    c.advance(REPORT_VALID_MS)
    measure(c, "A", 0)
    assert not guard_of(c).full_peers
    assert not is_refused(ask(c, "A", m.Put, MAP, OTHER, VALUE, 0))


def test_a_member_that_is_gone_is_full_no_more() -> None:
    c = holding("AB")
    measure(c, "B", LIMIT)
    assert guard_of(c).full_peers
    c.crash("B")
    c.advance(60_000)
    assert not guard_of(c).full_peers
    assert not is_refused(ask(c, "A", m.Put, MAP, OTHER, VALUE, 0))


# --- copies, and the master -------------------------------------------------------------------------------------------


@pytest.mark.rows("PX-25")
def test_a_full_member_gets_no_replica_that_it_does_not_hold() -> None:
    c = Cluster("ABC")
    c.assign(rows=["AB"])
    c.put("A", KEY, VALUE)
    measure(c, "C", LIMIT)
    c.crash("B")
    c.advance(60_000)
    assert c.row("A") == "A", "C has no memory for it, and there is nobody else"
    assert c.nodes["A"].coordinator.memory.full == {c.id("C")}
    assert not c.events_of("A", MigrationStarted), "it is not ordered to be refused"
    measure(c, "C", 0)
    c.advance(10_000)
    assert sorted(c.replicas("A")) == ["A", "C"]


@pytest.mark.rows("PX-25")
def test_another_member_takes_a_replica_for_which_one_has_no_memory() -> None:
    c = Cluster("ABCD", partition_count=12)
    c.assign()
    measure(c, "C", LIMIT)
    held = {p for p in range(12) if "C" in c.replicas("A", p)}
    c.crash("B")
    for _ in range(60):
        c.advance(1_000)
        measure(c, "C", LIMIT)
    assert all(len(c.replicas("A", p)) == 2 for p in range(12))
    assert {p for p in range(12) if "C" in c.replicas("A", p)} <= held


@pytest.mark.rows("PX-25")
def test_a_member_that_becomes_full_during_a_copy_refuses_the_rest_and_the_migration_is_given_up() -> None:
    c = Cluster("AB", backup_count=0, copy_chunk_bytes=1_000)
    c.assign(rows=["A"])
    for number in range(50):
        c.put("A", TEXT + b"%d" % number, TEXT + b"v" * 100)
    c.hold("A", "B")
    c.ask("A", m.ChangeMap, "", MapChange(backups=BackupCount(1)))
    c.settle()
    c.deliver("A", "B", m.CopyChunk)
    c.feed("B", MemoryMeasured(LIMIT, LIMIT, CEILING, 0))
    c.deliver("A", "B", m.CopyChunk)
    assert c.pending("B", "A", m.CopyRefused)
    assert not c.nodes["B"].grid.follower.copies
    c.release()
    c.settle()
    [rolled_back] = c.events_of("A", MigrationRolledBack)
    assert rolled_back.reason == "the destination uses 1000.0 MiB of its memory limit of 1000.0 MiB"
    assert not is_refused(ask(c, "A", m.Put, MAP, OTHER, VALUE, 0)), "B holds no replica"
    c.advance(30_000)
    assert c.row("A") == "A"
    measure(c, "B", 0)
    c.advance(30_000)
    assert c.row("A") == "AB"
    assert c.entries("A") == c.entries("B")


# --- what is told -----------------------------------------------------------------------------------------------------


def test_levels_are_told_when_they_change() -> None:
    c = holding()
    for resident in (0, 89, 90, 95, 100, 97, 94, 86, 84):
        measure(c, "A", LIMIT * resident // 100)
    told = [event for _, event in c.events if isinstance(event, MemoryNearlyFull | MemoryFull)]
    assert [(type(event).__name__, event.used * 100 // LIMIT) for event in told] == [
        ("MemoryNearlyFull", 90), ("MemoryFull", 100), ("MemoryFull", 94), ("MemoryNearlyFull", 84),
    ]  # fmt: skip


def test_the_master_hears_from_all_and_no_more_than_it_must() -> None:
    c = Cluster("ABC")
    c.assign(rows=["AB"])
    measure(c, "B", LIMIT // 2)
    assert guard_of(c).reports[c.id("B")].used == LIMIT // 2
    c.hold("B", "AC")
    measure(c, "B", LIMIT // 2 + MIB)
    assert not c.pending("B", "A", m.MemoryReport), "it has hardly changed"
    measure(c, "B", LIMIT * 3 // 4)
    assert len(c.pending("B", "A", m.MemoryReport)) == 1
    assert not c.pending("B", "C", m.MemoryReport)
    measure(c, "B", LIMIT)
    assert c.pending("B", "C", m.MemoryReport)
