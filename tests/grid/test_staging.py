"""Rows of a job are staged in hidden maps, and become a map's in one step of each partition, once, at all replicas alike."""

from typing import Any

import pytest

from phalanx.codec.hashing import partition_of
from phalanx.codec.rows import pack_rows
from phalanx.common.errors import ErrorCode, UsageError
from phalanx.common.hidden_maps import (
    HiddenKind,
    HiddenName,
    StagedStep,
    check_part,
    hidden_name,
    is_hidden,
    job_of,
    kind_of,
    target_of,
)
from phalanx.grid.replica.staged import MAX_JOBS, MAX_SNAPSHOTS, JobStage, Staged
from phalanx.grid.replica.staged_steps import REMOVES
from phalanx.maps.requests import check_map_name
from phalanx.wire import messages as m
from support import jobs
from support.harness import KEY, MAP, TEXT, Cluster

OLD, NEW, LATER = (TEXT + value for value in (b"old", b"new", b"later"))
KEYS = [TEXT + b"k%d" % number for number in range(40)]


class Job(jobs.Job):
    """One that stages the same in all tests."""

    def stage(
        self, at: str, attempt: str, keys: list[bytes], value: bytes = NEW, ttl_ms: int = 0, page: int = 0
    ) -> int:
        return super().stage(at, attempt, keys, value, ttl_ms, page)


def two(rows: str = "AB", names: str = "ABC", **settings: Any) -> tuple[Cluster, Job]:
    """One partition with an owner and a backup."""
    c = Cluster(names, **settings)
    c.assign(rows=[rows])
    return c, Job(c)


def hidden_at(c: Cluster, name: str, partition: int = 0) -> dict[str, dict[bytes, bytes]]:
    """The hidden maps of a replica, and what is in them."""
    return {each: dict(store.entries) for each, store in replica_at(c, name, partition).maps.items() if is_hidden(each)}


def replica_at(c: Cluster, name: str, partition: int = 0) -> Any:
    grid = c.nodes[name].grid
    owned = grid.ownership.find_owned(partition)
    return owned.replica if owned is not None else grid.follower.replicas[partition]


def code(reply: Any) -> ErrorCode | None:
    return reply.code if isinstance(reply, m.ErrorReply) else None


def count(c: Cluster, request: int) -> Any:
    reply = c.replies.get(request)
    return reply.count if isinstance(reply, m.CountReply) else reply


# --- applying ------------------------------------------------------------------------------------------------------


@pytest.mark.rows("PX-07")
def test_staged_rows_are_seen_by_nobody_until_they_are_applied_and_then_all_at_once_at_all_replicas() -> None:
    c, job = two()
    c.put("A", KEYS[0], OLD)
    c.put("A", KEYS[1], OLD)
    job.stage("A", "t1", KEYS[1:4])
    job.stage("A", "t1", KEYS[:1], b"\0\0\0\0", REMOVES)
    c.settle()
    assert c.entries("A") == c.entries("B") == {KEYS[0]: OLD, KEYS[1]: OLD}
    assert hidden_at(c, "A") == hidden_at(c, "B") != {}
    request = job.ask("A", StagedStep.APPLY, "t1")
    assert c.replies.get(request) is None, "the backup has yet to confirm it"
    c.settle()
    assert count(c, request) == 1
    assert c.entries("A") == c.entries("B") == dict.fromkeys(KEYS[1:4], NEW)
    assert c.kept("A") == c.kept("B")
    assert hidden_at(c, "A") == hidden_at(c, "B") == {}


def test_what_is_applied_has_the_stamp_of_that_moment_and_removals_leave_tombstones() -> None:
    c, job = two()
    job.stage("A", "t1", KEYS[:2])
    job.stage("A", "t1", KEYS[2:3], b"\0\0\0\0", REMOVES)
    c.settle()
    c.put("A", KEYS[5], LATER)
    c.settle()
    job.ask("A", StagedStep.APPLY, "t1")
    c.settle()
    entries, _, tombstones, _, _ = c.kept("B")
    written = {key: int.from_bytes(stored[:8], "big") for key, stored in entries.items()}
    assert written[KEYS[0]] == written[KEYS[1]] == tombstones.get(KEYS[2], 0) > written[KEYS[5]]


def test_the_time_to_live_of_a_row_begins_when_it_is_applied() -> None:
    c, job = two()
    job.stage("A", "t1", KEYS[:1], NEW, 5_000)
    c.advance(60_000)
    job.ask("A", StagedStep.APPLY, "t1")
    c.settle()
    assert c.get("A", KEYS[0]) == NEW
    c.advance(4_000)
    assert c.get("A", KEYS[0]) == NEW
    c.advance(2_000)
    assert c.get("A", KEYS[0]) is None
    assert c.entries("B") == {}


def test_only_the_attempts_that_are_named_count_and_of_one_key_the_last_of_them() -> None:
    c, job = two()
    job.stage("A", "t1", KEYS[:2], OLD)
    job.stage("A", "t2", KEYS[1:3], NEW)
    job.stage("A", "t2-again", KEYS[:9], LATER)
    c.settle()
    job.ask("A", StagedStep.APPLY, "t1", "t2")
    c.settle()
    assert c.entries("A") == c.entries("B") == {KEYS[0]: OLD, KEYS[1]: NEW, KEYS[2]: NEW}
    assert hidden_at(c, "A") == hidden_at(c, "B") == {}


def test_an_attempt_that_writes_on_after_its_job_is_told_that_the_job_is_over() -> None:
    c, job = two()
    job.ask("A", StagedStep.APPLY)
    c.settle()
    late = job.stage("A", "t1", KEYS[:2])
    c.settle()
    assert code(c.replies[late]) is ErrorCode.INVALID
    assert "job j1 for the map 'm' is over" in c.reply(late, m.ErrorReply).text
    assert hidden_at(c, "A") == {}


@pytest.mark.rows("PX-07")
def test_applied_by_an_owner_that_dies_unheard_it_is_not_applied_again_by_the_next_one() -> None:
    c, job = two()
    job.stage("A", "t1", KEYS[:2])
    c.settle()
    request = job.ask("A", StagedStep.APPLY, "t1")
    c.deliver("A", "B", m.ReplicateStaged)
    c.crash("A")
    c.advance(30_000)
    assert c.replies.get(request) is None
    c.put("B", KEYS[0], LATER)
    c.settle()
    again = job.ask("B", StagedStep.APPLY, "t1")
    c.settle()
    assert count(c, again) == 0
    assert c.entries("B") == {KEYS[0]: LATER, KEYS[1]: NEW}


def test_not_applied_by_an_owner_that_dies_it_is_by_the_next_one_from_what_is_staged_there() -> None:
    c, job = two()
    job.stage("A", "t1", KEYS[:2])
    c.settle()
    job.ask("A", StagedStep.APPLY, "t1")
    c.crash("A")
    c.advance(30_000)
    assert c.entries("B") == {}
    again = job.ask("B", StagedStep.APPLY, "t1")
    c.settle()
    assert count(c, again) == 1
    assert c.entries("B") == dict.fromkeys(KEYS[:2], NEW)


def test_the_answer_to_a_step_that_was_done_before_waits_for_the_backups_too() -> None:
    c, job = two()
    job.stage("A", "t1", KEYS[:1])
    c.settle()
    job.ask("A", StagedStep.APPLY, "t1")
    again = job.ask("A", StagedStep.APPLY, "t1")
    assert c.replies.get(again) is None
    c.settle()
    assert count(c, again) == 0


@pytest.mark.rows("PX-07")
@pytest.mark.parametrize("number", [3, 2])
def test_a_batch_that_was_applied_or_an_earlier_one_is_skipped_whoever_asks(number: int) -> None:
    c, job = two()
    job.stage("A", "t1", KEYS[:1], OLD)
    job.ask("A", StagedStep.APPLY, "t1", query="q", number=3)
    c.settle()
    again = Job(c, "j2")
    again.stage("A", "t1", KEYS[:1], NEW)
    request = again.ask("A", StagedStep.APPLY, "t1", query="q", number=number)
    c.settle()
    assert count(c, request) == 0
    assert c.entries("A") == c.entries("B") == {KEYS[0]: OLD}
    assert hidden_at(c, "A") == hidden_at(c, "B") == {}


def test_the_next_batch_and_one_of_another_query_are_applied() -> None:
    c, _ = two()
    for job, query, number in (("j1", "q", 3), ("j2", "q", 4), ("j3", "other", 0)):
        each = Job(c, job)
        each.stage("A", "t1", KEYS[:1], TEXT + job.encode())
        request = each.ask("A", StagedStep.APPLY, "t1", query=query, number=number)
        c.settle()
        assert count(c, request) == 1
        assert c.entries("B") == {KEYS[0]: TEXT + job.encode()}


def test_what_was_applied_is_known_after_the_partition_has_moved() -> None:
    c, job = two("A", "AB", backup_count=0)
    job.stage("A", "t1", KEYS[:1])
    job.ask("A", StagedStep.APPLY, "t1", query="q", number=7)
    c.settle()
    c.leave("A")
    c.advance(30_000)
    assert c.replicas("B") == "B"
    c.put("B", KEYS[0], LATER)
    again, of_another = job.ask("B", StagedStep.APPLY, "t1"), Job(c, "j2")
    of_another.stage("B", "t1", KEYS[:1], OLD)
    skipped = of_another.ask("B", StagedStep.APPLY, "t1", query="q", number=7)
    c.settle()
    assert (count(c, again), count(c, skipped)) == (0, 0)
    assert c.entries("B") == {KEYS[0]: LATER}


def test_a_job_that_was_dropped_can_not_be_applied() -> None:
    c, job = two()
    job.stage("A", "t1", KEYS[:1])
    job.ask("A", StagedStep.DROP)
    c.settle()
    assert hidden_at(c, "A") == hidden_at(c, "B") == {}
    request = job.ask("A", StagedStep.APPLY, "t1")
    c.settle()
    assert code(c.replies[request]) is ErrorCode.INVALID
    assert "what it had staged was dropped" in c.reply(request, m.ErrorReply).text


def test_a_step_waits_for_as_many_backups_as_the_map_has_and_a_protected_map_refuses_it() -> None:
    c = Cluster("AB", backup_count=1, maps={MAP: {"minimum_members": 2}})
    c.assign(rows=["AB"])
    job = Job(c)
    job.stage("A", "t1", KEYS[:1])
    c.settle()
    c.crash("B")
    c.advance(30_000)
    refused = [job.stage("A", "t1", KEYS[:1]), job.ask("A", StagedStep.APPLY, "t1"), job.wish("A", m.Replacement.BEGIN)]
    assert [code(c.replies[each]) for each in refused] == [ErrorCode.NOT_ENOUGH_MEMBERS] * 3
    assert c.entries("A") == {}


# --- copies --------------------------------------------------------------------------------------------------------


def during_a_copy(chunks: int, of_entries: int, act: Any) -> tuple[Cluster, Job]:
    """A has entries and staged rows and is alone; B joins, and is copied to. After so many chunks `act` is done."""
    c = Cluster("A", backup_count=1, copy_chunk_bytes=60)
    c.assign()
    job = Job(c)
    for key in KEYS[:of_entries]:
        c.put("A", key, OLD)
    job.stage("A", "t1", KEYS[20:])
    job.stage("A", "t1", KEYS[:5], b"\0\0\0\0", REMOVES)
    c.settle()
    sent = 0

    def watch(sender: str, receiver: str, message: Any) -> bool:
        nonlocal sent
        sent += isinstance(message, m.CopyChunk)
        if isinstance(message, m.CopyChunk) and sent == chunks:
            act(c, job)
        return False

    c.swallow = watch
    c.join("B")
    c.advance(10_000)
    assert sent >= chunks, "the copy took fewer chunks than that"
    assert set(c.row("A")) == {"A", "B"}
    return c, job


CHUNKS = (1, 2, 5, 9, 12, 15, 20, 25, 30)


@pytest.mark.parametrize("chunks", CHUNKS)
def test_an_attempt_is_applied_whole_at_a_copy_that_has_only_a_part_of_its_rows(chunks: int) -> None:
    c, _ = during_a_copy(chunks, 30, lambda c, job: job.ask("A", StagedStep.APPLY, "t1"))
    assert c.kept("A") == c.kept("B")
    assert c.entries("B") == dict.fromkeys(KEYS[5:20], OLD) | dict.fromkeys(KEYS[20:], NEW)
    assert hidden_at(c, "A") == hidden_at(c, "B") == {}


@pytest.mark.parametrize("chunks", CHUNKS)
def test_a_snapshot_is_whole_at_a_copy_that_has_only_a_part_of_the_map(chunks: int) -> None:
    c, _ = during_a_copy(chunks, 30, lambda c, job: Job(c, "j2").ask("A", StagedStep.SNAPSHOT))
    name = hidden_name(MAP, "j2", HiddenKind.SNAPSHOT)
    assert len(hidden_at(c, "A")[name]) == 30
    assert hidden_at(c, "A") == hidden_at(c, "B")


@pytest.mark.parametrize("chunks", CHUNKS)
def test_a_replacement_is_whole_at_a_copy_that_has_only_a_part_of_either_content(chunks: int) -> None:
    def replace(c: Cluster, job: Job) -> None:
        job.wish("A", m.Replacement.BEGIN)
        job.ask("A", StagedStep.ASSEMBLE, "t1")
        stamp = c.nodes["A"].installed_table.table.maps.content_of(MAP).pending_stamp
        c.ask("A", m.ReplaceContent, MAP, job.name, m.Replacement.DECIDE, stamp)

    c, _ = during_a_copy(chunks, 30, replace)
    assert c.entries("A") == c.entries("B") == dict.fromkeys(KEYS[20:], NEW)
    assert c.kept("A") == c.kept("B")
    assert replica_at(c, "A").staged.export() == replica_at(c, "B").staged.export()


# --- replacing -----------------------------------------------------------------------------------------------------


def prepared(names: str = "ABC", rows: str = "BC") -> tuple[Cluster, Job]:
    """A is the master and holds nothing; the owner has old entries, and a job has prepared new ones."""
    c = Cluster(names, backup_count=1)
    c.assign(rows=[rows])
    job = Job(c)
    for key in KEYS[:3]:
        c.put(rows[0], key, OLD)
    job.stage(rows[0], "t1", KEYS[2:4])
    job.stage(rows[0], "t2", KEYS[4:6], LATER)
    assert c.reply(begun(c, job), m.CountReply).count == c.table("A").maps.content_of(MAP).pending_stamp > 0
    done = job.ask(rows[0], StagedStep.ASSEMBLE, "t1")
    c.settle()
    assert count(c, done) == 1
    return c, job


def begun(c: Cluster, job: Job) -> int:
    assert code(c.replies[job.wish("A", m.Replacement.BEGIN)]) is ErrorCode.NOT_READY, "not all know"
    c.settle()
    return job.wish("A", m.Replacement.BEGIN)


CONTENT = dict.fromkeys(KEYS[2:4], NEW)
BEFORE = dict.fromkeys(KEYS[:3], OLD)


def test_what_is_prepared_is_seen_by_nobody_and_takes_the_place_of_all_when_it_is_decided() -> None:
    c, job = prepared()
    assert c.entries("B") == c.entries("C") == BEFORE
    assert hidden_at(c, "B") == hidden_at(c, "C")
    assert [kind_of(name) for name in hidden_at(c, "B")] == [HiddenKind.WHOLE]
    assert code(c.replies[job.wish("A", m.Replacement.DECIDE)]) is ErrorCode.NOT_READY
    c.settle()
    assert c.reply(job.wish("A", m.Replacement.DECIDE), m.FlagReply).flag
    assert c.entries("B") == c.entries("C") == CONTENT
    assert hidden_at(c, "B") == hidden_at(c, "C") == {}
    assert c.kept("B") == c.kept("C")


@pytest.mark.rows("PX-07")
def test_no_owner_replaces_anything_before_every_member_knows_of_the_decision() -> None:
    """1. A decides, B hears of it and C does not. 2. A and B die: nobody is left who knows. 3. The old content stands,
    in every partition, for no owner has acted upon what B knew.
    """
    c, job = prepared()
    c.hold("A", "C")
    job.wish("A", m.Replacement.DECIDE)
    c.settle()
    assert c.nodes["B"].installed_table.table.maps.content_of(MAP).is_decided
    assert c.entries("B") == BEFORE
    c.crash("AB")
    c.release()
    c.advance(60_000)
    assert c.get("C", KEYS[0]) == OLD
    assert c.entries("C") == BEFORE


def test_the_next_master_completes_what_every_member_knows_to_be_decided() -> None:
    c, job = prepared()
    c.hold("BC", "A")
    job.wish("A", m.Replacement.DECIDE)
    c.settle()
    assert c.entries("B") == BEFORE, "the master does not know yet that all know"
    c.crash("A")
    c.release()
    c.advance(60_000)
    assert c.entries("B") == c.entries("C") == CONTENT
    c.settle()
    assert c.reply(job.wish("B", m.Replacement.DECIDE), m.FlagReply).flag


def test_who_takes_over_from_an_owner_that_never_heard_of_the_new_content_puts_it_in_its_place() -> None:
    """1. The table says that the content is in its place; C, a backup, has that table, and B, the owner, has not. 2. B dies.
    3. The next table makes C the owner, and says nothing new of the content.
    """
    c, job = prepared()
    c.hold("BC", "A")
    job.wish("A", m.Replacement.DECIDE)
    c.settle()
    c.hold("A", "B")
    c.release("BC", "A")
    c.settle()
    assert c.table("C").maps.content_of(MAP).job == "j1"
    assert c.table("B").maps.content_of(MAP).job == ""
    assert c.entries("C") == BEFORE
    c.crash("B")
    c.release()
    c.advance(60_000)
    assert c.replicas("C").startswith("C")
    assert c.entries("C") == CONTENT


def test_what_the_last_one_who_knows_of_is_prepared_is_lost_with_it_and_said_so() -> None:
    c = Cluster("ABC", backup_count=1)
    c.assign(rows=["BC"])
    job = Job(c)
    c.put("B", KEYS[0], OLD)
    c.hold("A", "BC")
    job.wish("A", m.Replacement.BEGIN)
    c.crash("A")
    c.release()
    c.advance(60_000)
    assembled = job.ask("B", StagedStep.ASSEMBLE, "t1")
    assert code(c.replies[assembled]) is ErrorCode.INVALID
    assert "job j1 does not replace the map 'm' any more" in c.reply(assembled, m.ErrorReply).text
    decided = job.wish("B", m.Replacement.DECIDE)
    assert code(c.replies[decided]) is ErrorCode.INVALID
    assert c.entries("B") == {KEYS[0]: OLD}


def test_of_two_jobs_that_replace_a_map_the_one_that_began_last_does() -> None:
    c, job = prepared()
    other = Job(c, "j2")
    other.stage("B", "t1", KEYS[8:9], LATER)
    begun(c, other)
    other.ask("B", StagedStep.ASSEMBLE, "t1")
    c.settle()
    refused = job.wish("A", m.Replacement.DECIDE)
    assert code(c.replies[refused]) is ErrorCode.INVALID
    assert "was not replaced: job j1 is not about to do it any more" in c.reply(refused, m.ErrorReply).text
    assert c.entries("B") == BEFORE
    other.wish("A", m.Replacement.DECIDE)
    c.settle()
    assert c.entries("B") == c.entries("C") == {KEYS[8]: LATER}
    c.advance(120_000)
    assert hidden_at(c, "B") == hidden_at(c, "C") == {}, "nobody wants what j1 has prepared"


def test_what_is_decided_can_not_be_taken_back_by_another_job_or_by_itself() -> None:
    c, job = prepared()
    c.hold("A", "C")
    job.wish("A", m.Replacement.DECIDE)
    c.settle()
    other = Job(c, "j2").wish("A", m.Replacement.BEGIN)
    assert code(c.replies[other]) is ErrorCode.NOT_READY
    assert "j1 is being put in its place" in c.reply(other, m.ErrorReply).text
    aborted = job.wish("A", m.Replacement.ABORT)
    c.release()
    c.settle()
    assert code(c.replies[aborted]) is ErrorCode.NOT_READY
    assert c.reply(job.wish("A", m.Replacement.ABORT), m.FlagReply).flag, "it was decided"
    assert c.entries("B") == CONTENT


def test_a_job_that_aborts_leaves_the_old_content_and_can_not_decide_any_more() -> None:
    c, job = prepared()
    job.wish("A", m.Replacement.ABORT)
    c.settle()
    assert not c.reply(job.wish("A", m.Replacement.ABORT), m.FlagReply).flag
    assert code(c.replies[job.wish("A", m.Replacement.DECIDE)]) is ErrorCode.INVALID
    c.advance(120_000)
    assert c.entries("B") == BEFORE
    assert hidden_at(c, "B") == hidden_at(c, "C") == {}


def test_asked_again_a_decision_replaces_nothing_again() -> None:
    c, job = prepared()
    job.wish("A", m.Replacement.DECIDE)
    c.settle()
    c.put("B", KEYS[0], LATER)
    c.settle()
    assert c.reply(job.wish("A", m.Replacement.BEGIN), m.CountReply).count == c.table("A").maps.content_of(MAP).stamp
    for wish in (m.Replacement.DECIDE, m.Replacement.ABORT):
        assert c.reply(job.wish("A", wish), m.FlagReply).flag
    again = job.ask("B", StagedStep.ASSEMBLE, "t1")
    c.settle()
    assert count(c, again) == 0
    assert c.entries("B") == c.entries("C") == CONTENT | {KEYS[0]: LATER}


def test_prepared_again_it_is_prepared_once() -> None:
    c, job = prepared()
    again = job.ask("B", StagedStep.ASSEMBLE, "t1", "t2")
    c.settle()
    assert count(c, again) == 0
    job.wish("A", m.Replacement.DECIDE)
    c.settle()
    assert c.entries("B") == CONTENT


def test_a_partition_that_is_sealed_when_the_decision_comes_is_replaced_before_it_answers_again() -> None:
    c, job = prepared()
    grid = c.nodes["B"].grid
    owned = grid.outgoing.sealed[0] = c.owned("B")
    grid.ownership.owned[0] = None
    job.wish("A", m.Replacement.DECIDE)
    c.settle()
    assert grid.table.maps.content_of(MAP).job == "j1"
    assert c.entries("B") == BEFORE, "what is sealed stays as its next owner has it"
    grid.outgoing._unseal(owned.number)  # as when its migration was given up
    c.advance(500)
    assert c.entries("B") == c.entries("C") == CONTENT


def test_a_replaced_map_keeps_the_stamp_of_its_job_as_that_of_a_clear() -> None:
    c, job = prepared()
    c.put("B", KEYS[9], LATER)
    c.settle()
    written_since = int.from_bytes(c.kept("B")[0][KEYS[9]][:8], "big")
    job.wish("A", m.Replacement.DECIDE)
    c.settle()
    content = c.table("B").maps.content_of(MAP)
    entries, _, tombstones, cleared_at, _ = c.kept("B")
    assert content.job == "j1"
    assert cleared_at == content.stamp
    assert all(int.from_bytes(stored[:8], "big") > cleared_at for stored in entries.values())
    assert tombstones[KEYS[9]] == written_since + 1
    assert min(tombstones.values()) > cleared_at, "what the clear tells already"
    assert c.kept("B") == c.kept("C")


# --- what nobody comes back for ------------------------------------------------------------------------------------

STAGING_MS = 600_000


def test_what_nobody_has_touched_for_long_is_dropped_at_all_replicas_and_its_job_is_over() -> None:
    c, job = two(staging_ms=STAGING_MS)
    job.stage("A", "t1", KEYS[:2])
    Job(c, "j2").ask("A", StagedStep.SNAPSHOT)
    c.put("A", KEYS[0], OLD)
    Job(c, "j3").ask("A", StagedStep.SNAPSHOT)
    c.advance(STAGING_MS - 1_000)
    assert len(hidden_at(c, "A")) == 2
    c.advance(120_000)
    assert hidden_at(c, "A") == hidden_at(c, "B") == {}
    assert code(c.replies[job.ask("A", StagedStep.APPLY, "t1")]) is ErrorCode.INVALID


def test_what_is_hidden_in_a_partition_that_is_sealed_for_a_moment_is_dropped_some_day() -> None:
    c, job = two(staging_ms=STAGING_MS)
    job.stage("A", "t1", KEYS[:2])
    c.settle()
    grid = c.nodes["A"].grid
    c.advance(50_000)
    owned = grid.outgoing.sealed[0] = c.owned("A")
    grid.ownership.owned[0] = None
    c.advance(2 * STAGING_MS)
    assert hidden_at(c, "A") != {}, "what is sealed stays as its next owner has it"
    grid.outgoing._unseal(owned.number)  # as when its migration was given up
    c.advance(2 * STAGING_MS)
    assert hidden_at(c, "A") == hidden_at(c, "B") == {}


def test_a_job_that_goes_on_staging_keeps_what_it_has_staged_before_in_whatever_partition() -> None:
    c = Cluster("A", partition_count=2, backup_count=0, staging_ms=STAGING_MS)
    c.assign()
    job = Job(c)
    first, second = c.key(0), c.key(1)
    job.stage("A", "t1", [first])
    for _ in range(4):
        c.advance(STAGING_MS // 2)
        job.stage("A", "t2", [second])
    job.ask("A", StagedStep.APPLY, "t1", "t2")
    assert c.entries("A", 0) == {first: NEW}


def test_what_was_prepared_and_never_decided_is_given_up_by_the_master() -> None:
    c = Cluster("ABC", backup_count=1, staging_ms=STAGING_MS)
    c.assign(rows=["BC"])
    job = Job(c)
    job.stage("B", "t1", KEYS[:2])
    begun(c, job)
    job.ask("B", StagedStep.ASSEMBLE, "t1")
    c.advance(STAGING_MS - 10_000)
    assert len(hidden_at(c, "B")) == 1, "nobody else drops it"
    c.advance(300_000)
    assert hidden_at(c, "B") == hidden_at(c, "C") == {}
    assert code(c.replies[job.wish("A", m.Replacement.DECIDE)]) is ErrorCode.INVALID


# --- splits, divisions ---------------------------------------------------------------------------------------------


def test_what_was_staged_on_a_side_that_gives_up_its_cluster_is_dropped_with_it() -> None:
    c = Cluster("AB", backup_count=1)
    c.assign(rows=["AB"])
    c.cut("A", "B")
    c.advance(60_000)
    for name in "AB":
        job = Job(c, f"of-{name}")
        job.stage(name, "t1", [KEYS[ord(name) - 65]], TEXT + name.encode())
        c.put(name, KEYS[10 + ord(name) - 65], TEXT + name.encode())
    c.settle()
    c.heal()
    c.stay_together("AB")
    c.advance(30_000)
    assert c.entries("A") == {KEYS[10]: TEXT + b"A", KEYS[11]: TEXT + b"B"}
    assert len({name for name in "AB" for name in hidden_at(c, name)}) == 1
    assert c.kept("A") == c.kept("B")


def test_staged_rows_and_what_is_known_of_jobs_go_to_all_children_of_a_divided_partition() -> None:
    c, job = two("AB", "AB")
    before = Job(c, "j0")
    before.stage("A", "t1", KEYS[:1], OLD)
    before.ask("A", StagedStep.APPLY, "t1", query="q", number=5)
    job.stage("A", "t1", KEYS)
    c.settle()
    c.ask("A", m.ChangePartitionCount, 4)
    c.settle()
    c.advance(2_000)
    assert c.table("A").partition_count == 4
    skipped = [Job(c, "j2").ask(name, StagedStep.APPLY, query="q", number=5) for name in "AB"]
    asked = [job.ask(name, StagedStep.APPLY, "t1", query="q", number=6) for name in "AB"]
    c.settle()
    assert sum(count(c, each) for each in asked) == 4
    assert sum(count(c, each) for each in skipped) == 0
    for partition in range(4):
        wanted = {key: NEW for key in KEYS if partition_of(key, 4) == partition}
        assert c.entries("A", partition) == c.entries("B", partition) == wanted


# --- names ---------------------------------------------------------------------------------------------------------


def test_hidden_names_tell_what_they_are() -> None:
    name = hidden_name("a/b", "j-1", HiddenKind.ATTEMPT, "t:1")
    assert (target_of(name), job_of(name), kind_of(name)) == ("a/b", "j-1", HiddenKind.ATTEMPT)
    assert (target_of("a/b"), job_of("a/b"), kind_of("a/b")) == ("a/b", "", None)


def test_users_can_not_name_hidden_maps_but_use_names_that_they_were_given() -> None:
    name = HiddenName(hidden_name(MAP, "j1", HiddenKind.SNAPSHOT))
    assert check_map_name(name) == name
    assert type(check_map_name(name)) is str, "what goes through the codec"
    with pytest.raises(UsageError, match="are those of data that jobs have staged"):
        check_map_name(str(name))


@pytest.mark.parametrize("part", ["", "a/b", "x" * 101, "ä", None])
def test_jobs_and_attempts_have_plain_names(part: Any) -> None:
    with pytest.raises(UsageError, match="cannot be a job"):
        check_part("job", part)


def test_hidden_maps_are_no_maps_in_what_a_member_tells() -> None:
    c, job = two()
    c.put("A", KEYS[0], OLD)
    job.stage("A", "t1", KEYS[:3])
    c.settle()
    names, told = c.ask("A", m.GetMapNames), c.ask("B", m.GetReplicas)
    assert c.reply(names, m.NamesReply).names == [MAP]
    assert (c.reply(told, m.ReplicasReply).entries, c.reply(told, m.ReplicasReply).hidden_entries) == (1, 3)


@pytest.mark.parametrize("kind", [HiddenKind.WHOLE, HiddenKind.SNAPSHOT])
def test_nobody_writes_into_hidden_maps_but_rows_into_attempts(kind: HiddenKind) -> None:
    c, job = two()
    rows = m.PackedRows(0, pack_rows(KEYS[:1], [NEW]), 1)
    asked = [
        c.ask("A", m.PutAll, job.hidden(kind), KEYS[:1], [NEW], 0),
        c.ask("A", m.PutAll, job.hidden(HiddenKind.ATTEMPT, "t1"), KEYS[:1], [NEW], 0),
        c.ask("A", m.PutPacked, job.hidden(kind), (rows,), 1, 0),
        c.ask("A", m.Put, job.hidden(HiddenKind.ATTEMPT, "t1"), KEY, NEW, 0),
        c.ask("A", m.Remove, job.hidden(kind), KEY),
        c.ask("A", m.ClearPartitions, job.hidden(HiddenKind.ATTEMPT, "t1"), [0], 1),
        c.ask("A", m.PutPacked, job.hidden(HiddenKind.ATTEMPT, "t1"), (rows,), 1, REMOVES - 1),
    ]
    assert [code(c.replies[each]) for each in asked] == [ErrorCode.INVALID] * len(asked)
    assert hidden_at(c, "A") == {}


# --- what is remembered --------------------------------------------------------------------------------------------


def test_of_jobs_that_are_over_the_last_ones_are_remembered_and_of_snapshots_too() -> None:
    staged = Staged()
    staged.note_step(MAP, "snapshot", StagedStep.SNAPSHOT)
    for number in range(MAX_JOBS + 10):
        staged.note_step(MAP, f"j{number}", StagedStep.APPLY)
    assert staged.stage_of(MAP, "snapshot") is JobStage.SNAPSHOT_KEPT
    assert not staged.has_ended(MAP, "snapshot")
    assert not staged.has_ended(MAP, "j9")
    assert staged.has_ended(MAP, "j10")
    for number in range(MAX_SNAPSHOTS):
        staged.note_step(MAP, f"s{number}", StagedStep.SNAPSHOT)
    assert (MAP, "snapshot") not in staged.jobs
    assert len(staged.jobs) == MAX_JOBS + MAX_SNAPSHOTS
    assert Staged(staged.export()).export() == staged.export()
