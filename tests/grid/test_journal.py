"""Journals of maps: what becomes an event, the same one on every replica, and what a reader is told of it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.codec.rows import pack_rows
from phalanx.common.backups import BackupCount
from phalanx.common.clock import with_stamp
from phalanx.common.errors import JournalLineageChanged, JournalOverrun, UsageError
from phalanx.common.hidden_maps import HiddenKind, StagedStep, hidden_name
from phalanx.common.map_config import MapConfig, plan_of
from phalanx.common.map_plan import MapPlan
from phalanx.common.map_settings import JournalSettings, MapChange, Protection
from phalanx.common.view import ViewId
from phalanx.grid.replica.deferred_free import ENTRIES_AT_ONCE, DeferredFree
from phalanx.grid.replica.journal import ENDED_LINEAGES, EVENT_BYTES, OLD_VALUE_WITHIN_BYTES, MapJournal, lineage_of
from phalanx.grid.replica.mutation import apply
from phalanx.grid.replica.replica import Replica
from phalanx.grid.replica.staged_steps import FOREVER, REMOVAL, maps_consumed_by, page_key
from phalanx.grid.replication.committed_offset import JournalMarks
from phalanx.grid.replication.copying import CopySender, IncomingCopy
from phalanx.grid.replication.flow_control import CopyFlow
from phalanx.machine.effects import Send
from phalanx.machine.outbox import Outbox
from phalanx.maps.journals import Position, page_of
from phalanx.wire import messages as m
from support.harness import KEY, MAP, TEXT, Cluster, key_of, local_at, lone_id

V, W = TEXT + b"v", TEXT + b"w"
A, D = lone_id("A"), lone_id("D")
NAMES = ("", "added", "updated", "removed", "expired", "evicted", "merged")


def cluster(names: str = "AB", rows: str = "AB", capacity: int = 100, **settings: Any) -> Cluster:
    c = Cluster(names, **settings)
    if capacity:
        turn_on(c, capacity)
    c.assign(rows=[rows])
    return c


def turn_on(c: Cluster, capacity: int, max_bytes: int = 1_000_000) -> None:
    change = MapChange(journal=JournalSettings(capacity, max_bytes))
    asked = c.ask(next(iter(c.nodes)), m.ChangeMap, MAP, change)
    c.settle()
    c.advance(200)
    assert c.is_done(asked)


def do(c: Cluster, name: str, make: Any, *fields: Any) -> Any:
    request = c.ask(name, make, MAP, *fields)
    c.settle()
    return c.replies[request]


def read(c: Cluster, name: str, lineage: int = 0, sequence: int = 0, limit: int = 100, max_bytes: int = 9_999) -> Any:
    partitions = c.table(name).partition_count
    request = c.ask(name, m.ReadJournal, MAP, 0, partitions, lineage, sequence, limit, max_bytes)
    return c.replies[request]


def told(reply: m.JournalReply) -> list[tuple[str, bytes, bytes | None, bytes | None]]:
    return [(NAMES[kind], *rest) for kind, *rest in zip(reply.kinds, reply.keys, reply.values, reply.olds, strict=True)]  # type: ignore[misc]


def journal(c: Cluster, name: str) -> MapJournal:
    grid = c.nodes[name].grid
    owned = grid.ownership.find_owned(0)
    return (owned.replica if owned is not None else grid.follower.replicas[0]).journals[MAP]


def content(journal: MapJournal) -> Any:
    return (
        list(journal.events), journal.first, journal.next, journal.lineages, journal.origin, journal.capacity,
        journal.max_bytes, journal._bytes,
    )  # fmt: skip


# --- what becomes an event --------------------------------------------------------------------------------------------


def test_what_happens_to_entries_is_written_by_the_owner_and_its_backup_alike() -> None:
    c = cluster()
    other = TEXT + b"k1"
    do(c, "A", m.Put, KEY, V, 0)
    do(c, "A", m.Put, KEY, W, 0)
    do(c, "A", m.PutIfAbsent, KEY, V, 0)
    do(c, "A", m.Replace, KEY, V, W, 0)
    do(c, "A", m.Replace, KEY, W, V, 0)
    do(c, "A", m.PutAll, [KEY, other], [W, V], 0)
    do(c, "A", m.Remove, KEY)
    do(c, "A", m.Remove, KEY)
    do(c, "A", m.Put, KEY, V, 0)
    do(c, "A", m.ClearPartitions, [0])
    reply = read(c, "A")
    assert told(reply) == [
        ("added", KEY, V, None),
        ("updated", KEY, W, V),
        ("updated", KEY, V, W),
        ("updated", KEY, W, V),
        ("added", other, V, None),
        ("removed", KEY, None, W),
        ("added", KEY, V, None),
        ("removed", KEY, None, V),
        ("removed", other, None, V),
    ]
    assert (reply.oldest, reply.sequence, reply.end) == (0, 0, 9)
    assert set(reply.stamps) == {c.nodes["A"].clock.read(c.now) >> 16} or min(reply.stamps) > 0
    assert content(journal(c, "A")) == content(journal(c, "B"))


def test_a_map_without_a_journal_has_none_and_another_map_is_not_told_of() -> None:
    c = cluster(capacity=0)
    do(c, "A", m.Put, KEY, V, 0)
    assert read(c, "A").lineage == 0
    turn_on(c, 10)
    c.ask("A", m.Put, "other", KEY, V, 0)
    c.settle()
    do(c, "A", m.Put, KEY, W, 0)
    assert told(read(c, "A")) == [("updated", KEY, W, V)]
    assert content(journal(c, "A")) == content(journal(c, "B"))
    before = journal(c, "A").lineages
    turn_on(c, 0)
    assert read(c, "A").lineage == 0
    assert c.nodes["B"].grid.follower.replicas[0].journals == {}
    turn_on(c, 10)
    assert journal(c, "A").lineages != before


@pytest.mark.parametrize("rows", ["AB", "A"])
@pytest.mark.parametrize("how", ["put", "put for a time", "put_all", "remove", "clear", "nothing"])
def test_what_is_over_ends_once_before_anything_else_happens_to_it(rows: str, how: str) -> None:
    c = cluster(rows, rows)
    do(c, "A", m.Put, KEY, V, 50)
    expirer = c.nodes["A"].grid._expirer
    expire = expirer._expire
    expirer._expire = lambda partition, name, most, now: 0  # type: ignore[method-assign]
    c.advance(60)
    if how == "put":
        do(c, "A", m.Put, KEY, W, 0)
    elif how == "put for a time":
        do(c, "A", m.Put, KEY, W, 1_000_000)
    elif how == "put_all":
        do(c, "A", m.PutAll, [KEY], [W], 0)
    elif how == "remove":
        assert do(c, "A", m.Remove, KEY).value is None
    elif how == "clear":
        do(c, "A", m.ClearPartitions, [0])
    expirer._expire = expire  # type: ignore[method-assign]
    c.advance(500)
    rest = [("added", KEY, W, None)] if how.startswith("put") else []
    assert told(read(c, "A")) == [("added", KEY, V, None), ("expired", KEY, None, V), *rest]
    if rows == "AB":
        assert content(journal(c, "A")) == content(journal(c, "B"))


def test_what_another_side_has_kept_says_so() -> None:
    c = cluster()
    first, second, third = (TEXT + b"%d" % number for number in range(3))
    do(c, "A", m.PutAll, [first, second], [V, V], 0)
    later = c.nodes["A"].clock.read(c.now) + 1_000
    keys, versions = [first, second, third], [with_stamp(later, W), with_stamp(later, b""), with_stamp(later, W)]
    c.say("B", "A", m.MergeEntries(1, MAP, lone_id("B"), later, keys, versions, [0, 0, 60_000], [], []))
    c.settle()
    assert told(read(c, "A", 0, 2)) == [
        ("removed", second, None, V),
        ("merged", first, W, V),
        ("merged", third, W, None),
    ]
    assert content(journal(c, "A")) == content(journal(c, "B"))


def test_the_embedding_programs_short_way_writes_events_too(monkeypatch: pytest.MonkeyPatch) -> None:
    c = cluster("A", "A")
    grid, local = c.nodes["A"].grid, local_at(c)
    assert local.put(MAP, KEY, V) is None
    do(c, "A", m.Put, KEY, V, 50)
    monkeypatch.setattr(grid._expirer, "on_time", lambda now: None)
    c.advance(60)
    assert local.put(MAP, KEY, W) is None
    assert [kind for kind, *_ in told(read(c, "A"))] == ["added", "updated", "expired", "added"]


def test_a_very_large_old_value_is_left_out_so_that_an_event_fits_a_frame() -> None:
    large = bytes(OLD_VALUE_WITHIN_BYTES // 2)
    written = MapJournal(10, 10**9, 1, 1, "A")
    written.put(b"k", large, large, merged=False)
    written.put(b"k", large, large[:-100], merged=False)
    assert [event[3] for event in written.events] == [None, large[:-100]]


# --- how much is kept -------------------------------------------------------------------------------------------------


def test_the_oldest_events_go_by_number_and_by_bytes() -> None:
    c = cluster(capacity=3)
    for number in range(5):
        do(c, "A", m.Put, TEXT + b"%d" % number, V, 0)
    reply = read(c, "A", 0, 2)
    assert (reply.oldest, reply.end, [key[4:] for key in reply.keys]) == (2, 5, [b"2", b"3", b"4"])
    turn_on(c, 3, 2 * EVENT_BYTES)
    assert (journal(c, "A").first, journal(c, "A").next) == (4, 5)
    turn_on(c, 100, 5 * EVENT_BYTES)
    assert journal(c, "A").first == 4
    do(c, "A", m.Put, KEY, TEXT + bytes(5 * EVENT_BYTES), 0)
    assert (journal(c, "A").first, journal(c, "A").next) == (5, 6)
    assert content(journal(c, "A")) == content(journal(c, "B"))


def test_a_reply_holds_what_fits_and_at_least_one_event() -> None:
    c = cluster()
    for number in range(4):
        do(c, "A", m.Put, TEXT + b"%d" % number, V, 0)
    assert len(read(c, "A", limit=2).keys) == 2
    assert len(read(c, "A", max_bytes=1).keys) == 1
    assert len(read(c, "A", 0, 1, max_bytes=3 * EVENT_BYTES).keys) == 2
    assert read(c, "A", limit=0).keys == []


def test_any_slice_of_a_journal_is_what_was_written() -> None:
    written = MapJournal(7, 10**6, 1, 1, "A")
    for number in range(20):
        written.put(b"%d" % number, with_stamp(1, b""), None, merged=False)
    for start in range(10, 23):
        for stop in range(start, 23):
            found = [int(event[1]) for event in written.read(start, stop)]
            assert found == [n for n in range(13, 20) if start <= n < stop]


def test_only_a_map_itself_can_have_a_journal() -> None:
    journal = JournalSettings(10)
    for name in ("*", "", "orders*"):
        with pytest.raises(UsageError, match="a journal is of one map"):
            MapPlan().with_change(name, MapChange(journal=journal))
    with pytest.raises(UsageError, match="not between 0"):
        MapPlan().with_change("m", MapChange(journal=JournalSettings(-1)))
    with pytest.raises(UsageError, match="has no room for an event"):
        MapPlan().with_change("m", MapChange(journal=JournalSettings(1, 0)))
    plan = plan_of(BackupCount(1), {"m": MapConfig(journal_capacity=10), "n": MapConfig(majority=True)})
    assert (plan.journals, plan.of("n").journal.is_on) == ({"m": journal}, False)
    changed = plan.with_change("m", MapChange(protection=Protection(2)))
    assert changed.of("m").journal == journal
    assert changed.with_change("m", MapChange(journal=JournalSettings())).journals == {}


def test_a_large_journal_that_is_not_needed_any_more_is_given_back_little_by_little() -> None:
    replica, discarded, turns = Replica(1, 0, A), DeferredFree(), 0
    written = MapJournal(10**6, 10**9, 1, 1, A)
    replica.keep_journal(MAP, written)
    for number in range(2 * ENTRIES_AT_ONCE + 7):
        written.put(b"%d" % number, with_stamp(1, V), None, merged=False)
    discarded.add(replica)
    while (due := discarded.next_deadline()) is not None:
        discarded.on_time(due)
        turns += 1
    assert (turns, len(written.events)) == (3, 0)


# --- what may be read -------------------------------------------------------------------------------------------------


def test_an_event_is_read_when_the_backup_has_its_write() -> None:
    c = cluster()
    do(c, "A", m.Put, KEY, V, 0)
    c.hold("B", "A")
    c.ask("A", m.Put, MAP, KEY, W, 0)
    c.settle()
    assert (journal(c, "A").next, journal(c, "B").next) == (2, 2)
    reply = read(c, "A")
    assert (reply.end, len(reply.keys)) == (1, 1)
    assert (read(c, "A", reply.lineage, 2).end, read(c, "A", reply.lineage, 2).known_to) == (1, 2)
    c.release()
    c.settle()
    assert read(c, "A").end == 2


def test_nobody_is_sent_ahead_of_what_is_confirmed_when_more_than_that_was_dropped() -> None:
    c = cluster(capacity=2)
    do(c, "A", m.Put, KEY, V, 0)
    c.hold("B", "A")
    for _ in range(5):
        c.ask("A", m.Put, MAP, KEY, W, 0)
    c.settle()
    assert (journal(c, "A").first, journal(c, "A").next) == (4, 6)
    assert (read(c, "A", 0, 0).oldest, read(c, "A", 0, 0).end) == (1, 1)
    c.release()
    c.settle()
    assert (read(c, "A", 0, 1).oldest, read(c, "A", 0, 1).end) == (4, 6)


def test_an_asynchronous_backup_is_not_waited_for() -> None:
    c = Cluster("AB", backup_count=0, async_backup_count=1)
    turn_on(c, 10)
    c.assign(rows=["AB"])
    c.hold("B", "A")
    do(c, "A", m.Put, KEY, V, 0)
    assert read(c, "A").end == 1


def test_a_new_owner_tells_what_it_has_when_its_backups_have_said_that_they_have_it() -> None:
    c = cluster("ABC", "ABC", backup_count=2)
    do(c, "A", m.Put, KEY, V, 0)
    before = read(c, "A")
    c.crash("A")
    c.swallow = lambda sender, receiver, message: isinstance(message, m.ProbeAnswer)
    c.advance(20_000)
    assert (c.replicas("B"), read(c, "B", before.lineage, 1).end) == ("BC", -1)
    c.swallow = lambda sender, receiver, message: False
    c.advance(5_000)
    do(c, "B", m.Put, KEY, W, 0)
    reply = read(c, "B", before.lineage, 1)
    assert told(reply) == [("updated", KEY, W, V)]
    assert reply.lineage != before.lineage
    assert reply.known_to == 1
    assert content(journal(c, "B")) == content(journal(c, "C"))
    assert read(c, "B", reply.lineage, 2).known_to == 2


def test_what_an_owner_wrote_alone_may_be_read_while_it_gets_a_backup() -> None:
    c = cluster("A", "A")
    do(c, "A", m.Put, KEY, V, 0)
    c.join("B")
    ends = set()
    for _ in range(100):
        c.advance(20)
        ends.add(read(c, "A").end)
    assert (c.replicas("A"), ends) == ("AB", {1})
    assert content(journal(c, "A")) == content(journal(c, "B"))


def test_marks_tell_what_is_confirmed() -> None:
    marks = JournalMarks(10, 5)
    assert marks.confirm(9) == -1
    marks.add_mark(11, 6)
    marks.add_mark(12, 9)
    assert marks.confirm(11) == 6
    marks.add_mark(13, 10)
    marks.forget(12)
    assert marks.confirm(11) == 6
    assert [marks.confirm(12), marks.confirm(20)] == [9, 10]


# --- lineages ---------------------------------------------------------------------------------------------------------


def test_a_position_is_in_a_journal_if_its_lineage_is_and_did_not_end_before() -> None:
    here = MapJournal(100, 10**6, 1, 1, "A")
    for epoch, count in ((1, 3), (2, 2), (3, 1)):
        here.begin_epoch(epoch, "A")
        for _ in range(count):
            here.put(b"k", with_stamp(1, b""), None, merged=False)
    here.begin_epoch(9, "B")
    a, b, c, d = (lineage_of(epoch, leader, 1) for epoch, leader in ((1, "A"), (2, "A"), (3, "A"), (9, "B")))
    assert here.lineages == [(a, 0), (b, 3), (c, 5)]
    assert [here.end_of(each) for each in (a, b, c, d)] == [3, 5, 6, None]
    assert [here.lineage_at(sequence) for sequence in range(7)] == [a, a, a, a, b, b, c]


def test_lineages_of_which_no_event_is_left_are_remembered_for_a_while() -> None:
    here = MapJournal(1, 10**6, 1, 1, "A")
    for epoch in range(1, 200):
        here.begin_epoch(epoch, "A")
        here.put(b"k", with_stamp(1, b""), None, merged=False)
    assert here.lineages[-1] == (lineage_of(199, "A", 1), 198)
    assert ENDED_LINEAGES <= len(here.lineages) <= ENDED_LINEAGES + 2


def reply(lineage: int = 7, oldest: int = 0, end: int = 100, known_to: int = 100) -> m.JournalReply:
    return m.JournalReply(1, lineage, oldest, end, known_to, 0, [], [], [], [], [])


def test_a_reader_is_told_what_it_missed_and_what_it_must_forget() -> None:
    assert page_of("m", 3, Position(7, 100), reply()) == ([], (7, 100))
    with pytest.raises(JournalOverrun, match=r"40 events of partition 3 of map 'm' from event 10 on") as overrun:
        page_of("m", 3, Position(7, 10), reply(oldest=50))
    assert (overrun.value.partition, overrun.value.missed) == (3, 40)
    with pytest.raises(JournalLineageChanged, match="20 events before event 120") as changed:
        page_of("m", 3, Position(7, 120), reply())
    assert (changed.value.partition, changed.value.void) == (3, 20)
    with pytest.raises(JournalLineageChanged, match="began again") as unknown:
        page_of("m", 3, Position(7, 10), reply(known_to=-1))
    assert unknown.value.void is None


def test_a_partition_that_was_lost_begins_another_journal() -> None:
    c = cluster("ABC", "BC")
    do(c, "B", m.Put, KEY, V, 0)
    before = read(c, "B")
    c.crash("BC")
    c.advance(40_000)
    reply = read(c, "A", before.lineage, 1)
    assert (reply.known_to, reply.end) == (-1, 0)
    assert reply.lineage not in (0, before.lineage)


def test_divided_partitions_begin_other_journals_the_same_at_owner_and_backup() -> None:
    c = cluster()
    for number in range(8):
        do(c, "A", m.Put, TEXT + b"%d" % number, V, 0)
    before = read(c, "A")
    asked = c.ask(c.master("A"), m.ChangePartitionCount, 4)
    c.advance(2_000)
    assert c.is_done(asked)
    owner = c.replicas("A")[0]
    do(c, owner, m.Put, key_of(0, 4), W, 0)
    reply = read(c, owner, before.lineage, before.end)
    assert reply.known_to == -1
    assert reply.end == 1
    assert content(journal(c, "A")) == content(journal(c, "B"))


# --- copies -----------------------------------------------------------------------------------------------------------


class Copying:
    """An owner's replica, and a destination that gets it chunk by chunk while writes go on."""

    def __init__(self, capacity: int, max_bytes: int, chunk_bytes: int) -> None:
        self.owner = Replica(1, 0, A)
        self.chunk_bytes = chunk_bytes
        self.sender: CopySender | None = None
        self.incoming: IncomingCopy | None = None
        self.outbox = Outbox()
        self.write(m.ReplicateJournal, capacity, max_bytes)

    def write(self, kind: Any, *fields: Any, name: str = MAP) -> None:
        message = kind(0, 1, self.owner.seq + 1, name, *fields)
        needed = maps_consumed_by(self.owner, message) if kind is m.ReplicateStaged else []
        apply(self.owner, message, 0)
        if self.incoming is not None:
            apply(self.incoming.replica, message, 0)
        if self.sender is not None and self.sender.lacks(needed):
            self.sender = self.incoming = None
            self.chunk()

    def stage(self, job: str, attempt: str, number: int, stamp: int, *, removes: bool) -> None:
        """A page of an attempt, of one row, as its owner stores it."""
        name = hidden_name(MAP, job, HiddenKind.ATTEMPT, attempt)
        page = self.owner.staged.pages.get(name, 0) + 1
        rows = pack_rows([_key(number)], [TEXT + b"%d" % stamp])
        stored = with_stamp(stamp, (REMOVAL if removes else FOREVER) + rows)
        self.write(m.ReplicatePut, [page_key(page)], [stored], 0, None, False, page, name=name)

    def chunk(self) -> None:
        if self.sender is None:
            self.sender = CopySender(0, D, self.owner, CopyFlow(self.outbox, self.chunk_bytes))
            self.sender.start(None, 1, ViewId(), self.outbox)
            (sent,) = self.outbox.take()
            assert isinstance(sent, Send)
            assert isinstance(sent.message, m.CopyStart)
            self.incoming = IncomingCopy(A, sent.message)
        elif self.sender.has_more:
            self.sender.send_next(0, self.outbox)
            (sent,) = self.outbox.take()
            assert isinstance(sent, Send)
            assert isinstance(sent.message, m.CopyChunk)
            assert self.incoming is not None
            self.incoming.apply(sent.message, 0)
            self.sender.on_ack(m.CopyAck(0, 1, sent.message.index))


def _key(number: int) -> bytes:
    return TEXT + b"%d" % number


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 5)),
        st.tuples(st.just("remove"), st.integers(0, 5)),
        st.tuples(st.just("expire"), st.integers(0, 5)),
        st.tuples(st.just("clear"), st.just(0)),
        st.tuples(st.just("evict"), st.integers(1, 3)),
        st.tuples(st.sampled_from(["stage", "stage", "stage a removal"]), st.integers(0, 11)),
        st.tuples(st.sampled_from(["apply", "replace"]), st.just(0)),
        st.tuples(st.just("limit"), st.integers(0, 12)),
        st.tuples(st.just("chunk"), st.just(0)),
        st.tuples(st.just("chunk"), st.just(0)),
    ),
    max_size=60,
)


@given(STEPS, st.integers(1, 12), st.sampled_from([EVENT_BYTES, 900, 10**6]), st.sampled_from([1, 200, 10**6]))
def test_a_copy_that_grows_while_events_are_written_ends_as_the_owners(
    steps: list[tuple[str, int]], capacity: int, max_bytes: int, chunk_bytes: int
) -> None:
    c = Copying(capacity, max_bytes, chunk_bytes)
    job = 0
    for stamp, (step, number) in enumerate(steps, start=1):
        if step == "put":
            c.write(m.ReplicatePut, [_key(number)], [with_stamp(stamp, TEXT + b"%d" % stamp)], 0)
        elif step in ("remove", "expire"):
            c.write(m.ReplicateRemove, [_key(number)], [stamp], None, stamp if step == "expire" else 0)
        elif step == "clear":
            c.write(m.ReplicateClear, stamp)
        elif step == "evict":
            oldest = c.owner.maps[MAP].take_evicted("oldest", number, 0, number, stamp) if MAP in c.owner.maps else []
            c.write(m.ReplicateRemove, oldest, [], None, stamp, True)
        elif step.startswith("stage"):
            c.stage(f"j{job}", f"a{number // 6}", number % 6, stamp, removes=step != "stage")
        elif step in ("apply", "replace"):
            attempts = [f"j{job}", ["a0", "a1"], stamp]
            c.write(m.ReplicateStaged, StagedStep.APPLY if step == "apply" else StagedStep.ASSEMBLE, *attempts)
            if step == "replace":
                c.write(m.ReplicateStaged, StagedStep.REPLACE, f"j{job}", [], stamp)
            job += 1
        elif step == "limit":
            c.write(m.ReplicateJournal, number, max_bytes)
        else:
            c.chunk()
    for _ in range(200):
        c.chunk()
    assert c.incoming is not None
    mine, its = c.owner.journals.get(MAP), c.incoming.replica.journals.get(MAP)
    assert (mine is None) == (its is None)
    if mine is not None and its is not None:
        assert content(mine) == content(its)
    store = c.incoming.replica.maps.get(MAP)
    assert store is None or store.observers == ((its,) if its is not None else ())
    entries = c.owner.maps[MAP].entries if MAP in c.owner.maps else {}
    last = {key: stored for _, key, stored, _, _ in mine.events} if mine is not None else {}
    assert last == {key: entries.get(key) for key in last}


def test_a_migration_carries_the_journal_and_readers_go_on_at_the_new_owner() -> None:
    c = cluster("AB", "A", backup_count=0, copy_chunk_bytes=300)
    for number in range(20):
        do(c, "A", m.Put, _key(number), V, 0)
    at = read(c, "A", limit=5)
    c.leave("A")
    c.advance(5_000)
    assert c.replicas("B") == "B"
    do(c, "B", m.Put, _key(3), W, 0)
    rest = read(c, "B", at.lineage, 5)
    assert [key[4:] for key in rest.keys] == [b"%d" % n for n in range(5, 20)]
    assert rest.lineage == at.lineage, "a reply has events of one lineage, which goes with the place behind each"
    of_b = read(c, "B", rest.lineage, 20)
    assert [key[4:] for key in of_b.keys] == [b"3"]
    assert of_b.lineage != rest.lineage
    assert read(c, "B", of_b.lineage, 21).known_to == 21


def test_events_of_what_is_merged_are_read_when_the_backups_have_them() -> None:
    """1. The owner takes over a removal and a value, by two writes. 2. The backup has the first one only, and the owner dies.

    Nobody may have read the event of the second: the number is given again.
    """
    c = Cluster("CAB")
    c.ask("C", m.ChangeMap, MAP, MapChange(journal=JournalSettings(100, 10**6)))
    c.advance(200)
    c.assign(rows=["AB"])
    gone, put = TEXT + b"1", TEXT + b"2"
    c.ask("A", m.PutAll, MAP, [gone, put], [TEXT, TEXT], 0)
    c.settle()
    later = c.nodes["A"].clock.read(c.now) + 1_000
    versions = [with_stamp(later, b""), with_stamp(later, TEXT + b"other")]
    c.hold("A", "B")
    c.say("B", "A", m.MergeEntries(1, MAP, lone_id("B"), later, [gone, put], versions, [], [], []))
    c.settle()
    c.deliver("A", "B", m.ReplicateRemove)
    c.settle()
    told = c.reply(c.ask("A", m.ReadJournal, MAP, 0, 1, 0, 0, 100, 9_999), m.JournalReply)
    assert told.end == c.nodes["B"].grid.follower.replicas[0].journals[MAP].next == 3
    c.crash("A")
    c.release()
    c.advance(30_000)
    again = c.reply(c.ask("B", m.ReadJournal, MAP, 0, 1, told.lineage, told.end, 100, 9_999), m.JournalReply)
    assert again.known_to >= told.end
