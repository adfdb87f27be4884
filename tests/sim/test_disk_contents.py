"""What counts as a difference between a replica in memory and the one that its log gives."""

from collections.abc import Callable

import pytest

from phalanx.common.hidden_maps import StagedStep
from phalanx.grid.replica.replica import Replica
from phalanx_proof.sim.cluster.disk_contents import compare_replicas
from phalanx_proof.sim.cluster.folder import SimFolder

NOW = 1_000
STAMP = (5).to_bytes(8, "big")


def replica() -> Replica:
    """One that has some of everything."""
    made = Replica(3, 7, "A")
    store = made.map("map")
    store.put(b"stays", STAMP + b"1", 0, NOW)
    store.put(b"ends", STAMP + b"1", 500, NOW)
    store.put(b"idle", STAMP + b"1", 900, NOW, max_idle_ms=300)
    store.tombstones = {b"gone": 4, b"long gone": 2}
    store.purged_to = 2
    made.staged.note_step("map", "job", StagedStep.APPLY)
    made.deduplication.note("one call at a time", 1, 1, outcome=True, now=NOW)
    for number in (1, 2):
        made.deduplication.note("calls at once", number, 1, outcome=True, now=NOW)
    return made


def test_replicas_that_are_the_same_do_not_differ() -> None:
    assert compare_replicas(replica(), replica(), NOW) == ""


@pytest.mark.rows("DU-07")
@pytest.mark.parametrize(
    ("differ", "told"),
    [
        (lambda r: setattr(r, "seq", 8), "its seq"),
        (lambda r: r.maps["map"].entries.update({b"stays": STAMP + b"2"}), "entries"),
        (lambda r: r.maps["map"].tombstones.update({b"gone": 6}), "tombstones"),
        (lambda r: r.maps["map"].tombstones.pop(b"gone"), "tombstones"),
        (lambda r: r.maps["map"].expires_at.update({b"ends": 1_400}), "b'ends' expires"),
        (lambda r: r.maps["map"].expires_at.pop(b"ends"), "b'ends' expires"),
        (lambda r: r.maps["map"].idle.pop(b"idle"), "b'idle' has the idle time"),
        (lambda r: r.staged.note_step("map", "another", StagedStep.APPLY), "staged"),
        (lambda r: r.staged.jobs.clear(), "staged"),
        (lambda r: r.deduplication.note("one call at a time", 2, 2, outcome=True, now=NOW), "one call at a time"),
        (lambda r: r.deduplication.note("calls at once", 3, 1, outcome=True, now=NOW), "calls at once"),
        (lambda r: r.deduplication.callers["calls at once"].older.clear(), "calls at once"),
        (lambda r: setattr(r.deduplication.callers["one call at a time"], "outcome", False), "one call at a time"),
    ],
)
def test_what_differs_is_told_whichever_of_both_has_it(differ: Callable[[Replica], object], told: str) -> None:
    other = replica()
    differ(other)
    assert told in compare_replicas(other, replica(), NOW)
    assert told in compare_replicas(replica(), other, NOW)


@pytest.mark.parametrize(
    "differ",
    [
        lambda r: r.maps["map"].tombstones.pop(b"long gone"),
        lambda r: r.maps["map"].expires_at.update({b"idle": 1_200}),
        lambda r: setattr(r.deduplication.callers["one call at a time"], "heard_at", -1),
        lambda r: r.deduplication.callers.pop("calls at once"),
    ],
    ids=["purged tombstones", "uses", "when callers were heard", "silent callers"],
)
def test_what_a_member_does_by_itself_does_not_count(differ: Callable[[Replica], object]) -> None:
    memory = replica()
    differ(memory)
    assert compare_replicas(memory, replica(), NOW) == ""


def test_a_caller_that_only_memory_knows_is_told() -> None:
    disk = replica()
    del disk.deduplication.callers["calls at once"]
    assert "calls at once" in compare_replicas(replica(), disk, NOW)


def test_entries_that_are_over_here_and_there_need_not_have_been_over_at_the_same_time() -> None:
    disk = replica()
    disk.maps["map"].expires_at[b"ends"] = 1_400
    assert compare_replicas(replica(), disk, 1_500) == ""


def test_copies_to_a_disk_are_drawn_rarely_where_one_takes_many_records() -> None:
    """1. A copy of 200 small chunks ends. 2. Another one begins at once, and so on: the member does nothing else."""
    folder = SimFolder("any")
    folder.replay.index.began[3] = 5
    assert {folder.draw_copy() for _ in range(500)} == {None, 3}
    folder._last_lsn, folder.replay.index.to_disk[3] = 300, 100
    assert {folder.draw_copy() for _ in range(500)} == {None}
    del folder.replay.index.to_disk[3]
    for written, expected in ((499, {None}), (500, {None, 3})):
        folder._last_lsn = written
        assert {folder.draw_copy() for _ in range(500)} == expected
