"""Who holds the data at each moment of a migration: nobody gives it away before another has it (docs/protocol/migrations.md).

M is the master and holds nothing; what it wants is the test's. That L leaves makes it work that out anew.
"""

from collections.abc import Sequence

import pytest

from phalanx.common.errors import ErrorCode
from phalanx.common.migration import Migration, MigrationKind
from phalanx.common.table import Slots
from phalanx.wire import messages as m
from phalanx.wire.table_events import MigrationFinalized, MigrationStarted
from support.harness import MAP, Cluster
from support.masters import row_of

ALL_KINDS = {
    "move": ("BC", "BD"),
    "copy": ("B-", "BD"),
    "shift up": ("B-C", "BC"),
    "shift down": ("B-", "DB"),
    "exchange": ("BC", "CB"),
    "owner": ("BC", "DC"),
}


class OneRow:
    """One partition, whose row is to become another one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, row: str, target: str, others: str = "") -> None:
        monkeypatch.setattr("phalanx.partition.coordinator.eligibility.assign", self._assign)
        self.wanted = row
        members = "".join(dict.fromkeys("M" + row + target + others + "L")).replace("-", "")
        self.c = c = Cluster(members, partition_count=1, backup_count=len(row) - 1, copy_chunk_bytes=60)
        c.assign()
        assert self.row() == row.rstrip("-")
        self.keys = [c.key(0, number) for number in range(4)]
        self.acknowledged: dict[bytes, bytes] = {}
        for key in self.keys:
            self.write(key, b"1")
        self.wanted = target
        self.copied_to: list[str] = []
        """Who was sent a copy."""
        c.swallow = self._note

    def _note(self, sender: str, receiver: str, message: m.Message) -> bool:
        if isinstance(message, m.CopyStart):
            self.copied_to.append(receiver)
        return False

    def _assign(self, rows: Sequence[Slots], candidates: object, backups: int) -> list[Slots]:
        return [tuple(None if name == "-" else self.c.id(name) for name in self.wanted)]

    def begin(self) -> None:
        """The order is on its way; nothing else is."""
        self.c.hold("M", "".join(self.c.nodes))
        self.c.leave("L")
        while not self.c.events_of("M", MigrationStarted):
            assert self.c.step()
        self.c.release()

    def write(self, key: bytes, text: bytes) -> None:
        """A write that is confirmed, by whoever owns the partition."""
        value = b"\0\0\0\1" + text
        write = self.c.put(self.row()[0], key, value)
        self.c.settle()
        assert self.c.is_done(write)
        self.acknowledged[key] = value

    def row(self, name: str = "M") -> str:
        return row_of(self.c.table(name).slots(0))

    def holders(self) -> str:
        """Who holds everything that was confirmed."""
        return "".join(name for name in sorted(self.c.nodes) if self.c.entries(name) == self.acknowledged)

    def finalized(self, name: str) -> list[tuple[str, int, int, bool]]:
        return [
            (event.endpoint, event.current_replica_index, event.new_replica_index, event.committed)
            for event in self.c.events_of(name, MigrationFinalized)
        ]

    def roll_back(self) -> None:
        """The master takes the migration for failed, when the destination holds everything."""
        self.c.hold("B", "M")
        self.c.settle()
        (ready,) = self.c.pending("B", "M", m.MigrationReady)
        self.wanted = self.row()
        self.c.say("B", "M", m.MigrationReady(0, ready.base_version, ready.destination, False, 0, 0, "the test"))
        self.c.release()
        self.c.settle()


@pytest.mark.rows("DL-45", "DL-33", "DL-36")
def test_a_backup_that_moves_is_cleared_when_its_successor_has_the_data_and_all_may_know(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = OneRow(monkeypatch, "BC", "BD")
    one.begin()
    one.c.hold("B", "D")
    one.c.settle()
    assert (one.row(), one.holders()) == ("BC", "BC"), "D has nothing yet"
    one.c.release()
    one.c.hold("M", "C")
    one.c.settle()
    one.c.advance(20)
    assert (one.row(), one.holders()) == ("BD", "BCD"), "C has not heard of it"
    one.write(one.keys[0], b"2")
    one.c.release()
    one.c.settle()
    assert (one.row("B"), one.row("C"), one.row("D"), one.holders()) == ("BD", "BD", "BD", "BD")
    assert one.c.entries("C") is None


@pytest.mark.rows("DL-21", "DL-16", "DL-17", "DL-41")
def test_an_old_owner_keeps_the_data_until_the_masters_table_tells_that_it_is_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = OneRow(monkeypatch, "BC", "DC")
    one.begin()
    one.c.hold("M", "BCD")
    one.c.deliver("M", "B", m.MigrationOrder)
    one.c.settle()
    assert (one.row(), one.holders()) == ("BC", "BCD")
    one.c.advance(5_000)
    assert (one.row(), one.row("B"), one.row("D"), one.holders()) == ("BC", "BC", "BC", "BCD"), "nobody decides alone"
    one.c.deliver("M", "D", m.MigrationCommit)
    one.c.settle()
    assert (one.row(), one.row("D"), one.row("B"), one.holders()) == ("DC", "DC", "BC", "BCD")
    assert one.finalized("B") == []
    one.c.deliver("M", "B", m.TableChanges)
    assert (one.c.entries("B"), one.finalized("B")) == (None, [("source", 0, -1, True)])
    one.c.release()
    one.c.settle()
    one.write(one.keys[1], b"2")
    assert one.holders() == "CD"


@pytest.mark.rows("DL-27")
@pytest.mark.parametrize("difference", [-1, 1])
def test_an_owner_does_nothing_for_an_order_of_another_version_than_its_own(
    monkeypatch: pytest.MonkeyPatch, difference: int
) -> None:
    one = OneRow(monkeypatch, "BC", "DC")
    step = Migration(MigrationKind.MOVE, one.c.id("B"), 0, -1, one.c.id("D"), -1, 0)
    version = one.c.table("B").versions[0]
    one.c.say("M", "B", m.MigrationOrder(0, version + difference, step))
    one.c.settle()
    assert (one.copied_to, one.c.nodes["B"].grid.undecided()[0]) == ([], ())
    one.c.say("M", "B", m.MigrationOrder(0, version, step))
    one.c.settle()
    assert one.copied_to == ["D"]


@pytest.mark.rows("DL-17", "DL-27")
@pytest.mark.parametrize("kind", ["owner", "move"])
def test_a_destination_commits_only_with_everything_that_the_owner_had(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    one = OneRow(monkeypatch, *ALL_KINDS[kind], others="E")
    one.begin()
    one.c.hold("B", "M")
    one.c.settle()
    (ready,) = one.c.pending("B", "M", m.MigrationReady)
    assert (ready.destination, ready.done) == (one.c.id("D"), True)
    ((state,), _) = one.c.nodes["D"].grid.undecided()
    row = m.RowChange(0, state.base_version + 1, 0, one.c.ids(one.wanted))

    def refusal(
        name: str, *, base_version: int = state.base_version, epoch: int = ready.epoch, seq: int = ready.seq
    ) -> str:
        commit = m.MigrationCommit(0, base_version, state.migration, row, epoch, seq)
        return one.c.nodes[name].grid.refusal_to_commit(commit) or ""

    assert refusal("D") == ""
    assert "the owner's was at" in refusal("D", seq=ready.seq + 1)
    assert "the owner's was at" in refusal("D", epoch=ready.epoch + 1)
    assert "for another migration" in refusal("D", base_version=state.base_version - 1)
    # A new owner holds neither less nor more; a backup may have heard more since.
    assert ("the owner's was at" in refusal("D", seq=ready.seq - 1)) == (kind == "owner")
    assert "not complete" in refusal("E")


@pytest.mark.rows("DL-28")
@pytest.mark.parametrize("step", ["sends", "has reported"])
def test_an_owner_takes_no_other_order_before_the_outcome_of_the_first_is_known(
    monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    one = OneRow(monkeypatch, "BC", "DC", others="E")
    one.begin()
    one.c.hold("B", "MD" if step == "sends" else "M")
    one.c.settle()
    (order,) = one.c.nodes["B"].grid.undecided()[0]
    other = Migration(MigrationKind.MOVE, one.c.id("B"), 0, -1, one.c.id("E"), -1, 0)
    one.c.say("M", "B", m.MigrationOrder(0, order.base_version, other))
    assert one.c.nodes["B"].grid.undecided()[0] == (order,)
    one.c.release()
    one.c.settle()
    assert (one.row(), one.copied_to) == ("DC", ["D"])


@pytest.mark.rows("DL-32")
@pytest.mark.parametrize("who_knows", ["", "B", "C", "BC"])
@pytest.mark.parametrize("writes", [False, True])
def test_the_old_owner_clears_and_the_new_one_dies_and_yet_nothing_is_lost(
    monkeypatch: pytest.MonkeyPatch, who_knows: str, writes: bool
) -> None:
    one = OneRow(monkeypatch, "BC", "DC")
    one.begin()
    one.c.hold("M", "BC")
    one.c.deliver("M", "B", m.MigrationOrder)
    one.c.settle()
    assert one.row() == "DC"
    one.c.release("M", who_knows)
    one.c.settle()
    if writes and "C" in who_knows:
        one.write(one.keys[2], b"2")
    one.wanted = "C"
    one.c.crash("D")
    one.c.release()
    one.c.advance(3_000)
    assert one.c.entries("B") is None
    assert (one.row(), one.holders()) == ("C", "C")


@pytest.mark.rows("DL-42", "DL-43", "DL-16")
@pytest.mark.parametrize("kind", ["move", "copy", "shift down", "owner"])
def test_a_destination_that_held_nothing_before_holds_nothing_after_a_rollback(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    one = OneRow(monkeypatch, *ALL_KINDS[kind])
    before = one.row()
    one.begin()
    one.c.hold("B", "M")
    one.c.settle()
    assert one.c.entries("D") == one.acknowledged, "it has everything"
    one.roll_back()
    assert one.row() == before
    assert one.c.entries("D") is None
    assert one.finalized("D") == [("destination", -1, 1 if kind in ("move", "copy") else 0, False)]
    one.write(one.keys[3], b"2")
    assert one.holders() == before.replace("-", "")


@pytest.mark.rows("DL-42", "DL-43", "DL-52")
@pytest.mark.parametrize("kind", ["shift up", "exchange"])
def test_a_replica_that_was_to_become_hotter_stays_what_it_was_after_a_rollback(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    one = OneRow(monkeypatch, *ALL_KINDS[kind])
    before = one.row()
    one.begin()
    one.roll_back()
    assert (one.row(), one.holders()) == (before, "BC")
    assert one.copied_to == [], "it had received nothing for the hotter index, and keeps what it has"
    one.write(one.keys[3], b"2")
    assert one.holders() == "BC"
    one.c.crash("B")
    one.c.advance(3_000)
    assert one.row()[0] == "C"
    assert one.holders() == "C"


@pytest.mark.rows("DL-53", "DL-51", "DL-50")
def test_the_owner_of_the_hotter_index_clears_its_data_when_it_learns_of_the_commit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = OneRow(monkeypatch, "BCD", "BD")
    one.begin()
    one.c.hold("M", "C")
    one.c.settle()
    one.c.advance(20)
    assert (one.row(), one.row("D"), one.row("C")) == ("BD", "BD", "BCD")
    assert one.holders() == "BCD"
    one.c.release()
    one.c.settle()
    assert one.c.entries("C") is None
    one.write(one.keys[0], b"2")
    assert one.holders() == "BD"


@pytest.mark.rows("DL-48", "DL-37")
def test_a_new_owner_that_dies_at_any_step_leaves_the_old_one_as_it_was_or_as_its_backup(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = set()
    for steps in range(60):
        one = OneRow(monkeypatch, "B-", "DB")
        one.begin()
        for _ in range(steps):
            one.c.step()
        rows.add(one.row())
        assert set(one.holders()) >= {"B"}
        one.wanted = "B-"
        one.c.crash("D")
        one.c.advance(3_000)
        assert (one.row(), one.holders()) == ("B", "B")
        one.write(one.keys[0], b"2")
    assert rows == {"B", "DB"}, "both changes or none"


@pytest.mark.rows("DL-83")
@pytest.mark.parametrize("backups", [1, 2])
def test_while_nobody_comes_or_goes_every_confirmed_write_is_where_the_backups_promise(backups: int) -> None:
    c = Cluster("MBCD", partition_count=3, backup_count=backups)
    c.assign()
    before = c.table("M")
    values: dict[bytes, bytes] = {}
    for number in range(12):
        partition = number % 3
        key, value = c.key(partition, number // 6), b"\0\0\0\1%d" % number
        write = c.put(c.replicas("M", partition)[0], key, value)
        while not c.is_done(write):
            assert c.step()
        values[key] = value
        held = [c.entries(name, partition) for name in c.replicas("M", partition)]
        assert [(entries or {}).get(key) for entries in held] == [value] * (backups + 1)
        c.advance(20_000)
    assert c.table("M") == before == c.table("D"), "and nothing moves"
    dead = "BCD"[:backups]
    c.crash(dead)
    c.advance(5_000)
    for key, value in values.items():
        partition = next(p for p in range(3) if key in (c.key(p, 0), c.key(p, 1)))
        assert c.get(c.replicas("M", partition)[0], key) == value


def kind_of(reply: m.Reply) -> object:
    return reply.code if isinstance(reply, m.ErrorReply) else type(reply)


@pytest.mark.rows("DL-86")
@pytest.mark.parametrize("kind", ALL_KINDS)
def test_clients_see_no_more_of_a_migration_than_that_another_member_is_the_owner(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """They get values, confirmations, or the word that somebody else owns the partition: what they get without it too."""
    one = OneRow(monkeypatch, *ALL_KINDS[kind])
    c, (read, written) = one.c, one.keys[:2]
    before, names = one.row(), "".join(name for name in one.c.nodes if name in "BCD")
    put = c.put("B", written, one.acknowledged[written])
    at_rest = [c.ask("B", m.Get, MAP, read), c.ask(names[-1], m.Get, MAP, read), put]
    c.settle()
    known = {kind_of(c.replies[number]) for number in at_rest}
    assert ErrorCode.NOT_OWNER in known
    one.begin()
    asked: list[int] = []
    for _ in range(60):
        asked += [c.ask(name, m.Get, MAP, read) for name in names]
        asked.append(c.put("B", written, one.acknowledged[written]))
        c.step()
    c.advance(100)
    assert one.row() != before
    replies = [c.replies[number] for number in asked]
    assert {kind_of(reply) for reply in replies} <= known
    assert {reply.value for reply in replies if isinstance(reply, m.ValueReply)} == {one.acknowledged[read]}
