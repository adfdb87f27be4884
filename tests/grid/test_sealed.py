"""While the ownership of a partition moves, neither owner answers; then exactly one of them does, in the order of asking."""

import pytest

from phalanx.common.errors import ErrorCode
from phalanx.wire import messages as m
from phalanx.wire.table_events import MigrationCopied, MigrationRolledBack, PartitionSealed
from support.harness import KEY, MAP
from support.moving import Moving

NEW, LATER = b"\0\0\0\1new", b"\0\0\0\1later"


def until(moving: Moving, kind: type[m.Message], sender: str, receiver: str) -> None:
    """Deliver everything up to the moment at which such a message is on its way; it is held back."""
    c = moving.c
    c.release()
    c.hold(sender, receiver)
    c.settle()
    assert c.pending(sender, receiver, kind)


@pytest.mark.rows("DL-16", "DL-17")
def test_a_new_owner_answers_nothing_before_the_master_has_confirmed_that_it_is_one() -> None:
    """1. D commits, and its answer to M is lost. 2. It serves a write with its backup B, and dies. 3. M takes the migration
    back, for D has left: O goes on, without the write.
    """
    with Moving("OB", "DB") as moving:
        c = moving.c
        until(moving, m.MigrationAnswer, "D", "M")
        assert (c.row("D"), c.row("M"), c.row("O")) == ("DB", "OB", "OB")
        write, read = c.put("D", moving.keys[0], NEW), c.ask("D", m.Get, MAP, moving.keys[0])
        c.hold("D", "M")
        c.settle()
        assert not {write, read} & c.replies.keys()
        moving.crash("D")
        moving.finish()
        moving.check()
        assert not c.is_done(write)


@pytest.mark.rows("DL-16", "DL-17", "DL-86")
def test_what_was_asked_of_a_new_owner_too_early_is_answered_when_the_master_confirms_it() -> None:
    with Moving("OB", "DB") as moving:
        c = moving.c
        until(moving, m.MigrationAnswer, "D", "M")
        key = moving.keys[0]
        asked = [c.put("D", key, NEW), c.ask("D", m.Get, MAP, key), c.put("D", key, LATER), c.ask("D", m.Get, MAP, key)]
        assert not set(asked) & c.replies.keys()
        c.release()
        c.settle()
        c.advance(100)
        replies = [c.replies[number] for number in asked]
        assert replies == [m.DoneReply(asked[0]), m.ValueReply(asked[1], NEW), m.DoneReply(asked[2]),
                           m.ValueReply(asked[3], LATER)]  # fmt: skip
        moving.finish()
        assert c.entries("B") == c.entries("D")


@pytest.mark.rows("DL-16", "DL-21", "DL-86")
@pytest.mark.parametrize("ends", ["committed", "rolled back"])
def test_what_was_asked_of_a_sealed_owner_is_answered_by_one_owner_only(ends: str) -> None:
    with Moving("OB", "DB") as moving:
        c = moving.c
        until(moving, m.MigrationReady, "O", "M")
        key = moving.keys[0]
        asked = [c.put("O", key, NEW), c.ask("O", m.Get, MAP, key), c.put("O", key, LATER), c.ask("O", m.Get, MAP, key)]
        c.hold("O", "M")
        c.advance(3_000)
        assert not set(asked) & c.replies.keys(), "it does not know how that ends"
        if ends == "rolled back":
            moving.is_disturbed = True
            c.crash("D")
        c.release()
        c.settle()
        c.advance(1_000)
        replies = [c.replies[number] for number in asked]
        if ends == "committed":
            assert [reply.code for reply in replies if isinstance(reply, m.ErrorReply)] == [ErrorCode.NOT_OWNER] * 4
            assert c.get("D", key) not in (NEW, LATER)
        else:
            assert replies == [m.DoneReply(asked[0]), m.ValueReply(asked[1], NEW), m.DoneReply(asked[2]),
                               m.ValueReply(asked[3], LATER)]  # fmt: skip
        moving.finish()


def test_an_owner_seals_only_when_the_last_writes_are_all_that_is_missing() -> None:
    """A backup that has yet to tell what it has would make everybody wait for it."""
    with Moving("OB", "DB") as moving:
        c = moving.c
        c.deliver("M", "O", m.MigrationOrder)
        c.lose_link("O", "B")
        c.hold("B", "O")
        c.release("M", "OD")
        c.release("O", "MD")
        c.release("D", "MO")
        c.settle()
        assert c.events_of("O", MigrationCopied)
        assert not c.events_of("O", PartitionSealed)
        read = c.ask("O", m.Get, MAP, moving.keys[0])
        assert read in c.replies
        moving.finish()
        moving.check()
        assert c.row("M") == "DB"


@pytest.mark.rows("DL-17", "DL-83")
def test_an_owner_reports_only_when_every_write_is_confirmed_and_takes_none_meanwhile() -> None:
    with Moving("OB", "DB") as moving:
        c = moving.c
        until(moving, m.CopyAck, "D", "O")
        c.hold("B", "O")
        last = c.put("O", moving.keys[0], NEW)
        c.release("D", "O")
        c.settle()
        assert c.events_of("O", PartitionSealed)
        assert not c.pending("O", "M", m.MigrationReady)
        late = c.put("O", moving.keys[1], LATER)
        c.settle()
        assert not {last, late} & c.replies.keys()
        c.release()
        c.settle()
        c.advance(1_000)
        assert c.is_done(last)
        assert c.get("D", moving.keys[0]) == NEW
        assert c.replies[late].code is ErrorCode.NOT_OWNER  # type: ignore[union-attr]
        moving.finish()


def test_a_sealed_partition_goes_on_where_the_destination_falls_out_of_step_before_it_is_reported() -> None:
    with Moving("OB", "DB") as moving:
        c = moving.c
        until(moving, m.CopyAck, "D", "O")
        c.hold("B", "O")
        c.put("O", moving.keys[0], NEW)
        c.release("D", "O")
        c.settle()
        assert list(c.nodes["O"].grid.outgoing.sealed) == [0]
        read = c.ask("O", m.Get, MAP, moving.keys[0])
        assert read not in c.replies
        c.hold("D", "O")
        c.lose_link("O", "D", tell="O")
        assert c.nodes["O"].grid.outgoing.sealed == {}
        assert c.replies[read] == m.ValueReply(read, NEW)
        moving.finish()
        moving.check_rest()
        assert c.get(c.row("M")[0], moving.keys[0]) == NEW


def test_a_sealed_partition_does_not_expire_what_its_new_owner_has() -> None:
    with Moving("OB", "DB") as moving:
        c = moving.c
        c.put("O", KEY, NEW, ttl_ms=2_000)
        until(moving, m.MigrationReady, "O", "M")
        before = c.nodes["O"].grid.outgoing.sealed[0].replica.seq
        c.advance(4_000)
        sealed = c.nodes["O"].grid.outgoing.sealed[0].replica
        assert sealed.seq == before, "what is numbered here would never reach D"
        moving.finish()
        moving.check_rest()
        assert c.get("D", KEY) is None


def test_an_owner_that_goes_on_after_a_rollback_asks_its_backups_before_anybody_writes() -> None:
    """D has committed by itself, and B followed its rule already."""
    with Moving("OB", "DB") as moving:
        c = moving.c
        until(moving, m.MigrationAnswer, "D", "M")
        c.hold("D", "M")
        c.settle()
        followed = c.nodes["B"].grid.follower.replicas[0]
        assert followed.leader == c.id("D")
        moving.crash("D")
        moving.finish()
        (owned,) = c.nodes["O"].grid.ownership.all_owned()
        followed = c.nodes["B"].grid.follower.replicas[0]
        assert (followed.epoch, followed.leader) == (owned.replica.epoch, c.id("O"))
        moving.check()


@pytest.mark.parametrize("rows", [("O-", "DO"), ("OB", "BO")])
def test_an_old_owner_answers_what_its_successor_asked_as_soon_as_it_knows_that_it_is_one(
    rows: tuple[str, str],
) -> None:
    """Else the first write would wait until the new owner asks again."""
    with Moving(*rows) as moving:
        c, new = moving.c, rows[1][0]
        c.release()
        c.hold("M", "O")
        c.settle()
        c.deliver("M", "O", m.MigrationOrder)
        c.settle()
        c.advance(20)
        assert (c.row("M"), c.row("O")) == (rows[1], rows[0].rstrip("-"))
        write = c.put(new, moving.keys[0], NEW)
        c.settle()
        assert not c.is_done(write)
        c.release()
        c.settle()
        assert c.is_done(write), "no time has passed"
        moving.finish()
        moving.check_rest()


@pytest.mark.rows("DL-55", "DL-83")
def test_a_replica_that_becomes_hotter_first_has_what_was_confirmed_without_it() -> None:
    """C confirms writes, and B, colder, gets them later. B is to take the place of C."""
    with Moving("OCB", "OB", backup_count=1, async_backup_count=1) as moving:
        c = moving.c
        c.release()
        c.hold("O", "B")
        c.hold("M", "O")
        write = c.put("O", moving.keys[0], NEW)
        c.settle()
        assert c.is_done(write)
        c.deliver("M", "O", m.MigrationOrder)
        c.settle()
        assert c.nodes["O"].grid.outgoing.active
        assert not c.pending("M", "B", m.MigrationCommit)
        assert c.row("M") == "OCB", "were O to die now, C would own it"
        c.release()
        c.settle()
        c.advance(1_000)
        assert c.row("M") == "OB"
        moving.crash("O")
        c.advance(3_000)
        assert c.get("B", moving.keys[0]) == NEW


@pytest.mark.rows("DL-83")
def test_once_it_is_reported_nothing_is_confirmed_without_a_replica_that_becomes_hotter() -> None:
    with Moving("OCB", "OB", backup_count=1, async_backup_count=1) as moving:
        c = moving.c
        c.hold("M", "B")
        c.release("M", "OC")
        c.release("OCB", "MOCB")
        c.settle()
        assert c.pending("M", "B", m.MigrationCommit)
        c.hold("O", "B")
        write = c.put("O", moving.keys[0], NEW)
        c.settle()
        assert not c.is_done(write), "B may have committed"
        c.release()
        c.settle()
        assert c.is_done(write)


@pytest.mark.rows("DL-16", "DL-19")
@pytest.mark.parametrize("rows", [("OB", "DB"), ("OB", "OD"), ("O-", "DO"), ("OB", "BO")])
def test_a_destination_whose_answer_is_lost_gives_it_again(rows: tuple[str, str]) -> None:
    with Moving(*rows) as moving:
        c = moving.c
        lost: list[m.Message] = []

        def swallow(sender: str, receiver: str, message: m.Message) -> bool:
            is_lost = isinstance(message, m.MigrationAnswer) and len(lost) < 3
            lost.extend([message] * is_lost)
            return is_lost

        c.swallow = swallow
        moving.finish()
        assert [message.accepted for message in lost if isinstance(message, m.MigrationAnswer)] == [True] * 3
        assert not c.events_of("M", MigrationRolledBack)
        moving.check()
