"""An entry that nobody reads or writes for its idle time expires; one that is used does not, also at a new owner."""

from typing import Any

import pytest

from phalanx.codec.rows import pack_rows
from phalanx.codec.values import from_data, to_data, to_key_data
from phalanx.common.errors import ErrorCode, UsageError
from phalanx.common.hidden_maps import HiddenKind, StagedStep, hidden_name
from phalanx.common.ids import MAX_TTL_MS, Millis
from phalanx.common.map_config import MapConfig
from phalanx.common.map_plan import MapPlan
from phalanx.common.map_settings import MapChange, MapSettings
from phalanx.grid.merge.orphaned_replicas import keep
from phalanx.grid.replica.map_store import STILL, MapStore
from phalanx.grid.replica.replica import Replica
from phalanx.grid.replica.versions import versions_of
from phalanx.grid.replication.expiry import IN_A_TURN, ROUND_MS
from phalanx.grid.requests.scans import page_of
from phalanx.grid.serving.packing import PageSpec, packed_page
from phalanx.wire import messages as m
from phalanx.wire.key_requests import MAP_IDLE
from support import jobs
from support.harness import KEY, MAP, TEXT, Cluster, lone_id
from support.replica_splits import divide

STORED = b"\0" * 7 + b"\1" + to_data("value")
IDLE_MS = 1_000


def pair() -> Cluster:
    c = Cluster("AB", partition_count=1, backup_count=1)
    c.assign(rows=["AB"])
    return c


def put(c: Cluster, at: str = "A", *, ttl_ms: int = 0, max_idle_ms: int = IDLE_MS, key: bytes = KEY) -> None:
    c.ask(at, m.Put, MAP, key, to_data("value"), ttl_ms, 0, 0, max_idle_ms)
    c.settle()


def replica_at(c: Cluster, name: str) -> Replica:
    grid = c.nodes[name].grid
    owned = grid.ownership.find_owned(0)
    return owned.replica if owned is not None else grid.follower.replicas[0]


def idles(c: Cluster, name: str) -> dict[bytes, Millis]:
    """The idle times of the entries of a replica."""
    store = replica_at(c, name).maps[MAP]
    return {key: store.max_idle_ms(key) for key in store.entries}


def value(c: Cluster, at: str = "A", key: bytes = KEY) -> Any:
    found = c.reply(c.ask(at, m.Get, MAP, key), m.ValueReply).value
    return None if found is None else from_data(found)


def left(c: Cluster, at: str = "A") -> int:
    return c.reply(c.ask(at, m.GetTimeToLive, MAP, KEY), m.CountReply).count


# --- one store --------------------------------------------------------------------------------------------------------


@pytest.mark.rows("PX-17")
def test_a_read_lets_the_idle_time_begin_anew_and_never_the_time_to_live() -> None:
    store = MapStore()
    store.put(KEY, STORED, 2_500, 0, max_idle_ms=IDLE_MS)
    assert (store.remaining_ms(KEY, 0), store.ttl_ms(KEY, 0), store.max_idle_ms(KEY)) == (1_000, 2_500, 1_000)
    store.touch(KEY, 900)
    assert (store.remaining_ms(KEY, 900), store.ttl_ms(KEY, 900)) == (1_000, 1_600)
    store.touch(KEY, 1_800)
    assert store.remaining_ms(KEY, 1_800) == 700
    assert store.get(KEY, 2_499) is not None
    assert store.get(KEY, 2_500) is None


def test_what_was_read_is_found_when_its_time_comes_and_not_before() -> None:
    store = MapStore()
    for number in range(10):
        store.put(b"%d" % number, STORED, 0, 0, max_idle_ms=IDLE_MS)
    for key in (b"3", b"5"):
        store.touch(key, 400)
    assert set(store.take_expired(1_000, 100)) == {b"%d" % number for number in range(10)} - {b"3", b"5"}
    assert store.take_expired(1_399, 100) == []
    assert set(store.take_expired(1_400, 100)) == {b"3", b"5"}


def test_a_value_without_an_idle_time_has_none_although_the_one_before_had() -> None:
    store = MapStore()
    store.put(KEY, STORED, 0, 0, max_idle_ms=IDLE_MS)
    store.put(KEY, STORED, 0, 10)
    assert (store.remaining_ms(KEY, 10), store.idle) == (0, {})
    store.put(KEY, STORED, 0, 10, max_idle_ms=IDLE_MS)
    store.remove(KEY)
    assert store.idle == {}


def test_a_new_owner_begins_anew_and_a_time_to_live_goes_on() -> None:
    store = MapStore()
    store.put(b"used", STORED, 0, 0, max_idle_ms=IDLE_MS)
    store.put(b"ends", STORED, 5_500, 0, max_idle_ms=IDLE_MS)
    store.put(b"over", STORED, 5_000, 0, max_idle_ms=IDLE_MS)
    store.idle_since = 5_000
    assert store.size(5_000) == 2
    assert [store.remaining_ms(key, 5_000) for key in (b"used", b"ends")] == [1_000, 500]
    assert store.take_expired(5_000, 10) == [b"over"]
    assert store.get(b"used", 5_999) is not None


def test_all_who_read_a_store_know_that_idle_times_have_begun_anew() -> None:
    store = MapStore()
    for number in range(5):
        store.put(b"%d" % number, STORED, 0, 0, max_idle_ms=IDLE_MS)
    store.idle_since = 5_000
    assert (store.size(5_999), store.size(6_000)) == (5, 0)
    for now, many in ((5_999, 5), (6_000, 0)):
        keys, _, _ = page_of(store, b"", 1_000_000, now) or ([], [], b"")
        packed = packed_page(store, PageSpec(b"", 1_000_000, None, 1_000), now)
        assert len(keys) == many
        assert packed is not None
        assert len(packed.key_sizes) // 4 == many
        assert len(store.ended(list(store.entries), now)) == 5 - many
        assert (store.state_of(b"1", now)[1] is not None) == bool(many)


@pytest.mark.rows("PX-17")
def test_where_nobody_can_use_the_entries_idle_times_stand_still() -> None:
    store = MapStore()
    store.put(b"idle", STORED, 0, 0, max_idle_ms=IDLE_MS)
    store.put(b"both", STORED, 5_000, 0, max_idle_ms=IDLE_MS)
    store.idle_since = STILL
    assert store.state_of(b"idle", 9_000)[1] is not None
    assert store.state_of(b"both", 9_000)[1] is None
    assert (store.ttl_ms(b"idle", 9_000), store.ttl_ms(b"both", 4_000)) == (0, 1_000)
    assert store.copy().idle_since == STILL, "a snapshot stays as it is"


def test_what_expires_soonest_is_known_by_its_last_use() -> None:
    store = MapStore()
    for number in range(4):
        store.put(b"%d" % number, STORED, 0, number, max_idle_ms=IDLE_MS)
    store.touch(b"0", 50)
    store.touch(b"1", 40)
    assert store.take_evicted("soonest-to-expire", 3, 0, 3, 1) == [b"2", b"3", b"1"]
    for key in (b"2", b"3", b"1"):
        store.remove(key)
    assert store.take_expired(50 + IDLE_MS) == [b"0"]


def test_of_very_many_that_were_used_a_turn_looks_at_some() -> None:
    store = MapStore()
    for number in range(5_000):
        store.put(b"%d" % number, STORED, 0, 0, max_idle_ms=IDLE_MS)
    store.idle_since = 5_000
    turns = 0
    while store.expiry_queue.has_due(5_000):
        assert store.take_expired(5_000, 200) == []
        turns += 1
    assert turns == 13
    assert len(store.take_expired(6_000)) == 5_000


@pytest.mark.parametrize("read", [False, True])
def test_a_value_that_may_live_on_elsewhere_as_long_as_it_is_used_leaves_a_tombstone(read: bool) -> None:
    """On the other side of a cut the first value may be in use when the second one has expired here."""
    store = MapStore()
    store.put(KEY, STORED, 0, 0, max_idle_ms=IDLE_MS)
    if read:
        store.touch(KEY, 5)
    assert KEY not in store.covering
    store.put(KEY, STORED, 0, 10, max_idle_ms=2 * IDLE_MS)
    assert store.end_stamps([KEY]) == [1]
    store.remove(KEY)
    store.put(KEY, STORED, IDLE_MS, 0, max_idle_ms=IDLE_MS)
    store.put(KEY, STORED, 0, 10, max_idle_ms=IDLE_MS)
    assert KEY not in store.covering, "the first value ends before the second one, whoever uses it"


def test_halves_of_a_partition_have_the_idle_times_of_their_keys() -> None:
    replica = Replica(3, 1, "A")
    keys = [to_key_data(number) for number in range(20)]
    for key in keys:
        replica.map(MAP).put(key, STORED, 0, 0, max_idle_ms=IDLE_MS)
    replica.map(MAP).idle_since = 77
    halves = divide(replica, 0, 1, 2)
    assert {half.map(MAP).idle_since for half in halves.values()} == {77}
    assert {key: limit for half in halves.values() for key, limit in half.map(MAP).idle.items()} == dict.fromkeys(
        keys, (IDLE_MS, 0)
    )


# --- owner and backups ------------------------------------------------------------------------------------------------


def test_an_entry_that_is_read_stays_and_one_that_is_not_goes_at_all_replicas() -> None:
    c = pair()
    put(c)
    put(c, key=TEXT + b"idle")
    for _ in range(5):
        c.advance(IDLE_MS // 2)
        assert value(c) == "value"
    c.advance(ROUND_MS)
    assert (c.entries("A") or {}).keys() == (c.entries("B") or {}).keys() == {KEY}
    c.advance(IDLE_MS + ROUND_MS)
    assert not c.entries("A")
    assert not c.entries("B")


@pytest.mark.rows("PX-17")
@pytest.mark.parametrize("how", ["get", "get_all", "update", "slice"])
def test_each_use_counts(how: str) -> None:
    c = pair()
    put(c)
    for _ in range(4):
        c.advance(IDLE_MS - 100)
        if how == "get":
            c.ask("A", m.Get, MAP, KEY)
        elif how == "get_all":
            c.ask("A", m.GetAll, MAP, [TEXT + b"other", KEY])
        elif how == "update":
            c.ask("A", m.UpdateValue, MAP, KEY, "max", [to_data("a")], None)
        else:
            c.ask("A", m.UpdateWhere, MAP, 0, 1, b"", "get_and_put", [to_data("value")])
        c.settle()
    assert value(c) == "value"


def test_time_to_live_tells_the_smaller_and_looking_at_it_is_no_use() -> None:
    c = pair()
    put(c, ttl_ms=1_500)
    assert left(c) == 1_000
    c.advance(800)
    assert left(c) == 200
    assert value(c) == "value"
    assert left(c) == 700
    c.advance(700)
    assert left(c) == -1


@pytest.mark.rows("PX-18")
def test_an_update_keeps_the_idle_time_and_a_touch_gives_another() -> None:
    c = pair()
    put(c)
    c.advance(500)
    c.ask("A", m.UpdateValue, MAP, KEY, "get_and_put", [to_data("new")], None)
    assert left(c) == 1_000
    c.ask("A", m.UpdateValue, MAP, KEY, "touch", [], None, 0, 0, 5_000)
    assert left(c) == 5_000
    c.ask("A", m.UpdateValue, MAP, KEY, "touch", [], None, 0, 0, 0)
    assert left(c) == 0
    c.ask("A", m.UpdateValue, MAP, KEY, "get_and_put", [to_data("new")], 0, 0, 0, 3_000)
    assert left(c) == 3_000


def test_a_write_without_an_idle_time_ends_that_of_the_value_before_as_with_the_time_to_live() -> None:
    c = pair()
    for make, *fields in (
        (m.Put, KEY, to_data("new"), 0),
        (m.Replace, KEY, None, to_data("new"), 0),
        (m.PutAll, [KEY], [to_data("new")], 0),
        (m.UpdateValue, KEY, "get_and_put", [to_data("new")], 0, 0, 0, MAP_IDLE),
    ):
        put(c, ttl_ms=IDLE_MS)
        c.ask("A", make, MAP, *fields)
        c.settle()
        assert left(c) == 0
        assert idles(c, "A") == idles(c, "B") == {KEY: 0}


def test_an_idle_time_that_is_none_is_refused_and_nothing_is_changed() -> None:
    c = pair()
    for fields in (
        (m.Put, MAP, KEY, to_data("v"), 0, 0, 0, -1),
        (m.Put, MAP, KEY, to_data("v"), 0, 0, 0, MAX_TTL_MS + 1),
        (m.PutAll, MAP, [KEY], [to_data("v")], 0, -1),
        (m.UpdateValue, MAP, KEY, "append", [to_data("v")], None, 0, 0, -2),
    ):
        request = c.ask("A", *fields)
        c.settle()
        reply = c.reply(request, m.ErrorReply)
        assert reply.code is ErrorCode.INVALID
        assert "max_idle_ms" in reply.text
    assert not c.entries("A")


# --- the idle time of a map -------------------------------------------------------------------------------------------


def idle_map(rows: str = "AB") -> Cluster:
    c = Cluster(rows, partition_count=1, backup_count=len(rows) - 1, maps={MAP: MapConfig(max_idle_ms=IDLE_MS)})
    c.assign(rows=[rows])
    return c


@pytest.mark.rows("PX-18")
@pytest.mark.parametrize("rows", ["A", "AB"])
@pytest.mark.parametrize("how", ["put", "put_if_absent", "put_all", "put_packed", "update", "get_and_put", "staged"])
def test_an_entry_without_its_own_gets_that_of_the_map_at_all_replicas(how: str, rows: str) -> None:
    c = idle_map(rows)
    data = to_data("value")
    if how == "put":
        first = c.ask("A", m.Put, MAP, TEXT + b"first", data, 0)
        c.settle()
        c.ask("A", m.Put, MAP, KEY, data, 0, 0, first + 1)
    elif how == "put_if_absent":
        c.ask("A", m.PutIfAbsent, MAP, KEY, data, 0)
    elif how == "put_all":
        c.ask("A", m.PutAll, MAP, [KEY], [data], 0)
    elif how == "put_packed":
        c.ask("A", m.PutPacked, MAP, (m.PackedRows(0, pack_rows([KEY], [data])),), 1, 0)
    elif how == "update":
        c.ask("A", m.UpdateValue, MAP, KEY, "append", [data], None)
    elif how == "get_and_put":
        c.ask("A", m.UpdateValue, MAP, KEY, "get_and_put", [data], 0, 0, 0, MAP_IDLE)
    else:
        job = jobs.Job(c)
        job.stage("A", "t1", [KEY], data)
        c.settle()
        job.ask("A", StagedStep.APPLY, "t1")
    c.settle()
    for name in rows:
        assert idles(c, name)[KEY] == IDLE_MS
    c.advance(IDLE_MS - 1)
    assert value(c) == (["value"] if how == "update" else "value")
    c.advance(IDLE_MS + ROUND_MS)
    assert value(c) is None
    assert not c.entries(rows[-1])


def test_an_entrys_own_idle_time_counts_and_persist_ends_both() -> None:
    c = idle_map()
    put(c, max_idle_ms=5_000)
    assert left(c) == 5_000
    c.ask("A", m.Put, MAP, KEY, to_data("value"), 0)
    assert left(c) == IDLE_MS
    c.ask("A", m.UpdateValue, MAP, KEY, "touch", [], 0, 0, 0, 0)
    assert left(c) == 0
    c.ask("A", m.UpdateValue, MAP, KEY, "max", [to_data("z")], None)
    c.settle()
    assert idles(c, "A") == idles(c, "B") == {KEY: 0}, "an update leaves what the entry had"


def test_with_locks_an_entry_gets_the_idle_time_and_the_state_of_its_lock_does_not() -> None:
    c = idle_map()
    c.ask("A", m.AcquireLock, MAP, KEY, "one", 0, 30_000, 0, 0)
    c.settle()
    hidden = {name: store for name, store in replica_at(c, "A").maps.items() if name != MAP}
    assert hidden
    assert not any(store.idle for store in hidden.values())


def test_a_content_that_is_to_replace_the_map_begins_to_be_idle_when_it_has() -> None:
    c = idle_map()
    job = jobs.Job(c)
    job.stage("A", "t1", [KEY], to_data("value"))
    job.wish_until("A", m.Replacement.BEGIN)
    job.ask("A", StagedStep.ASSEMBLE, "t1")
    c.settle()
    for name in "AB":
        whole = replica_at(c, name).maps[hidden_name(MAP, "j1", HiddenKind.WHOLE)]
        assert (whole.idle_since, whole.max_idle_ms(KEY)) == (STILL, IDLE_MS)
    c.advance(2 * IDLE_MS)
    before = c.now
    job.wish_until("A", m.Replacement.DECIDE)
    c.settle()
    for name in "AB":
        placed = replica_at(c, name).maps[MAP]
        assert placed.max_idle_ms(KEY) == IDLE_MS
        assert before <= placed.idle_since <= c.now


def test_settings_are_looked_up_as_others_are() -> None:
    plan = (
        MapPlan(0, MapSettings()).with_change("m*", MapChange(max_idle_ms=5)).with_change("*", MapChange(max_idle_ms=7))
    )
    assert (plan.of("m1").max_idle_ms, plan.of("other").max_idle_ms, plan.has_idle) == (5, 7, True)
    assert plan.with_change("m1", MapChange(max_idle_ms=0)).of("m1").max_idle_ms == 0
    assert not MapPlan().has_idle
    for wrong in (-1, MAX_TTL_MS + 1):
        with pytest.raises(UsageError, match="max_idle_ms"):
            plan.with_change("m", MapChange(max_idle_ms=wrong))


@pytest.mark.rows("PX-17")
def test_an_entry_in_use_does_not_expire_early_when_its_owner_dies() -> None:
    c = pair()
    put(c)
    for _ in range(6):
        c.advance(IDLE_MS // 2)
        assert value(c) == "value"
    c.crash("A")
    c.advance(6_000)
    assert c.replicas("B")[0] == "B"
    took_over = c.nodes["B"].grid.ownership.table_installed_at
    assert c.now - took_over < 6_000
    if c.now - took_over < IDLE_MS:
        assert value(c, "B") == "value"
    c.advance(IDLE_MS + ROUND_MS)
    assert value(c, "B") is None, "it lives longer by its idle time at most"


def test_what_all_kinds_of_reads_find_at_a_new_owner_long_after_the_last_use_that_it_knows_of() -> None:
    c = pair()
    put(c)
    for _ in range(10):
        c.advance(IDLE_MS // 2)
        value(c)
    c.crash("A")
    while c.nodes["B"].grid.ownership.find_owned(0) is None:
        c.advance(100)
    assert c.reply(c.ask("B", m.GetAll, MAP, [KEY]), m.ValuesReply).values == [to_data("value")]
    assert c.reply(c.ask("B", m.SizeOf, MAP, [0], 1), m.CountReply).count == 1
    assert len(c.reply(c.ask("B", m.ScanPartition, MAP, 0, 1, b"", 1_000), m.PageReply).keys) == 1


def test_a_turn_of_the_expirer_is_short_where_all_entries_were_used() -> None:
    c = Cluster("A", partition_count=1, backup_count=0)
    c.assign(rows=["A"])
    keys = [to_key_data(number) for number in range(3 * IN_A_TURN)]
    c.ask("A", m.PutAll, MAP, keys, [to_data("v")] * len(keys), 0, IDLE_MS)
    c.advance(IDLE_MS // 2)
    c.ask("A", m.GetAll, MAP, keys)
    store = replica_at(c, "A").maps[MAP]
    c.advance(IDLE_MS // 2 + ROUND_MS)
    assert len(store.entries) == len(keys)
    c.advance(IDLE_MS // 2 + ROUND_MS)
    c.advance(ROUND_MS)
    assert not store.entries


@pytest.mark.rows("PX-18")
def test_a_copy_carries_idle_times() -> None:
    c = Cluster("ABC", partition_count=1, backup_count=1)
    c.assign(rows=["AB"])
    put(c, max_idle_ms=60_000)
    put(c, key=TEXT + b"both", max_idle_ms=60_000, ttl_ms=90_000)
    c.crash("B")
    c.advance(8_000)
    assert c.replicas("A")[1] == "C"
    assert idles(c, "C") == {KEY: 60_000, TEXT + b"both": 60_000}
    store = replica_at(c, "C").maps[MAP]
    assert {key for key, limit in store.idle.items() if limit[1]} == {TEXT + b"both"}


def test_what_is_kept_for_a_merge_waits_without_being_idle() -> None:
    c = pair()
    put(c)
    replica = replica_at(c, "A")
    side = keep(c.id("A"), c.table("A"), {0: replica}, 1, c.now)
    (kept,) = side.replicas.values()
    assert versions_of(kept.replica, MAP, [KEY], 0, c.now + 100 * IDLE_MS).idles == [IDLE_MS]


def test_a_merge_carries_idle_times_which_begin_anew() -> None:
    c = pair()
    put(c)
    stored = versions_of(replica_at(c, "A"), MAP, [KEY], 0, c.now).versions
    other = TEXT + b"other"
    c.say("B", "A", m.MergeEntries(c.next_id(), MAP, lone_id("B"), 1, [other], stored, [], [], [], (7_000,)))
    c.settle()
    assert idles(c, "A")[other] == idles(c, "B")[other] == 7_000
