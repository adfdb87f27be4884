"""What changes many entries at once writes only the events that the journal keeps, and ends as if it had written all."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.common.clock import with_stamp
from phalanx.common.hidden_maps import HiddenKind, StagedStep, hidden_name
from phalanx.common.map_settings import JournalSettings, MapChange
from phalanx.grid.replica import journal as journals
from phalanx.grid.replica.journal import ADDED, ENDED_LINEAGES, EVENT_BYTES, REMOVED, UPDATED, MapJournal, greatest
from phalanx.grid.replica.map_store import MapStore
from phalanx.grid.replica.mutation import apply
from phalanx.grid.replica.replica import Replica
from phalanx.wire import messages as m
from support.harness import MAP, TEXT, Cluster

MANY = 30_000


def key_at(number: int) -> bytes:
    """Keys whose order is not that of the numbers."""
    return (number * 7_919 % 1_000_003).to_bytes(4, "big")


def content(journal: MapJournal) -> Any:
    return list(journal.events), journal.first, journal.next, journal.lineages, journal._bytes


def entries_of(sizes: list[int]) -> dict[bytes, bytes]:
    return {key_at(number): with_stamp(number + 1, bytes(size)) for number, size in enumerate(sizes)}


ROUNDS = st.lists(st.tuples(st.booleans(), st.lists(st.sampled_from([0, 1, 300, 2_000]), max_size=30)), max_size=8)


@given(ROUNDS, st.integers(1, 25), st.sampled_from([1, EVENT_BYTES, 3_000, 10**6]))
def test_many_changes_at_once_end_as_one_after_another(
    rounds: list[tuple[bool, list[int]]], capacity: int, max_bytes: int
) -> None:
    at_once, twin = (MapJournal(capacity, max_bytes, 1, 1, "A:1/1") for _ in range(2))
    for number, (is_new_rule, sizes) in enumerate(rounds):
        if is_new_rule:
            at_once.begin_epoch(number, "B:1/1")
            twin.begin_epoch(number, "B:1/1")
        entries = entries_of(sizes)
        at_once.cleared(entries, number)
        for key in sorted(entries):
            twin.gone(key, entries[key], number, REMOVED)
        assert content(at_once) == content(twin)


def test_lineages_that_many_changes_pass_are_forgotten_as_one_after_another() -> None:
    at_once, twin = (MapJournal(1_000, 10**6, 1, 1, "A:1/1") for _ in range(2))
    for number in range(2, ENDED_LINEAGES + 20):
        for each in (at_once, twin):
            each.begin_epoch(number, "A:1/1")
            each.put(b"k", with_stamp(number, b"v"), None, merged=False)
    entries = entries_of([1] * 2_000)
    at_once.cleared(entries, 5)
    for key in sorted(entries):
        twin.gone(key, entries[key], 5, REMOVED)
    assert content(at_once) == content(twin)
    assert len(at_once.lineages) == ENDED_LINEAGES


@pytest.mark.parametrize("count", [0, 1, 999, 7_499, 7_500, MANY - 1, MANY])
@pytest.mark.parametrize("is_skewed", [False, True])
def test_the_greatest_of_many_keys_are_found_whatever_a_sample_says(count: int, *, is_skewed: bool) -> None:
    keys = [key_at(number) for number in range(MANY)]
    if is_skewed:  # every key that the sample takes is greater than all that it does not take
        keys = [
            (b"\xff" if index % (MANY // journals.SAMPLE_KEYS) == 0 else b"") + key for index, key in enumerate(keys)
        ]
    assert greatest(keys, count) == sorted(keys)[MANY - count :]


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The keys of the events whose size somebody asks for: each event that is made is one, perhaps a few times."""
    keys: list[bytes] = []
    size_of = journals._size

    def counting(event: Any) -> int:
        keys.append(event[1])
        return size_of(event)

    monkeypatch.setattr(journals, "_size", counting)
    return keys


@pytest.mark.parametrize(("capacity", "max_bytes"), [(100, 10**9), (10**7, 100 * (EVENT_BYTES + 20))])
def test_a_clear_makes_no_event_for_which_the_journal_has_no_room(
    capacity: int, max_bytes: int, looked_at: list[bytes]
) -> None:
    """By its number of events, or by its bytes."""
    replica = Replica(1, 0, "A:1/1")
    apply(replica, m.ReplicateJournal(0, 1, 1, MAP, capacity, max_bytes), 0)
    replica.map(MAP).entries = entries_of([8] * MANY)
    apply(replica, m.ReplicateClear(0, 1, 2, MAP, MANY), 0)
    journal = replica.journals[MAP]
    assert (journal.first, journal.next, len(journal.events)) == (MANY - 100, MANY, 100)
    assert len(looked_at) < 2_500


def test_a_replacement_makes_no_event_for_which_the_journal_has_no_room(looked_at: list[bytes]) -> None:
    replica = Replica(1, 0, "A:1/1")
    apply(replica, m.ReplicateJournal(0, 1, 1, MAP, 100, 10**9), 0)
    replica.map(MAP).entries = entries_of([8] * 1_000)
    whole = MapStore()
    whole.entries = entries_of([9] * MANY)
    replica.maps[hidden_name(MAP, "j", HiddenKind.WHOLE)] = whole
    apply(replica, m.ReplicateStaged(0, 1, 2, MAP, StagedStep.REPLACE, "j", [], MANY + 1), 0)
    journal = replica.journals[MAP]
    assert (journal.first, journal.next, len(journal.events)) == (MANY - 100, MANY, 100)
    assert {event[0] for event in journal.events} <= {ADDED, UPDATED}
    assert len(looked_at) < 2_500


def test_owner_and_backup_count_the_events_that_nobody_can_read() -> None:
    c = Cluster("AB")
    asked = c.ask("A", m.ChangeMap, MAP, MapChange(journal=JournalSettings(10, 1_000_000)))
    c.settle()
    c.advance(200)
    assert c.is_done(asked)
    c.assign(rows=["AB"])
    keys = [TEXT + b"%d" % number for number in range(50)]
    for make, fields in ((m.PutAll, (keys, keys, 0)), (m.ClearPartitions, ([0],))):
        c.ask("A", make, MAP, *fields)
        c.settle()
    journal = c.owned("A").replica.journals[MAP]
    assert (journal.first, journal.next) == (90, 100)
    assert content(journal) == content(c.nodes["B"].grid.follower.replicas[0].journals[MAP])
    partitions = c.table("A").partition_count
    late = c.reply(c.ask("A", m.ReadJournal, MAP, 0, partitions, 0, 20, 100, 9_999), m.JournalReply)
    assert (late.oldest, late.end) == (90, 100)
