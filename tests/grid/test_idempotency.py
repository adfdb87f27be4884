"""A write that is asked for more than once is applied once, and answered as it was: at the same owner or at the next."""

from collections.abc import Callable
from typing import Any

import pytest

from phalanx.codec.values import to_data
from phalanx.common.errors import ErrorCode
from phalanx.grid.replica.deduplication import SILENT_MS
from phalanx.machine.inputs import Received, TimePassed
from phalanx.wire import messages as m
from support.harness import CLIENT, KEY, MAP, TEXT, Cluster

OLD, NEW, LATER = (TEXT + value for value in (b"old", b"new", b"later"))
NUMBER = 1_000
"""Of the operation that is asked for more than once; what the harness asks has lower numbers."""

Outcome = tuple[Callable[..., m.Request], tuple[Any, ...], type[m.Reply], tuple[Any, ...]]
"""A kind of operation, its fields, the kind of its reply and that one's fields."""


def of_slice(
    id: int, name: str, key: bytes, function: str, arguments: list[bytes], op: int, open_from: int
) -> m.Request:
    """An update of all entries of the partition, in the place of one of the key."""
    return m.UpdateWhere(id, name, 0, 1, b"", function, arguments, (), op, open_from)


APPLIED: dict[str, Outcome] = {
    "put": (m.Put, (NEW, 0), m.DoneReply, ()),
    "put_if_absent": (m.PutIfAbsent, (NEW, 0), m.ValueReply, (None,)),
    "replace": (m.Replace, (None, NEW, 0), m.FlagReply, (True,)),
    "compare_and_set": (m.Replace, (OLD, NEW, 0), m.FlagReply, (True,)),
    "remove": (m.Remove, (), m.ValueReply, (OLD,)),
    "get_and_put": (m.UpdateValue, ("get_and_put", [NEW], 0), m.ValueReply, (OLD,)),
    "remove_if": (m.UpdateValue, ("remove_if", [OLD], None), m.ValueReply, (to_data(True),)),
    "slice": (of_slice, ("get_and_put", [NEW]), m.UpdatedReply, (1, False)),
    "removing slice": (of_slice, ("remove_if", [OLD]), m.UpdatedReply, (1, False)),
}
UNCHANGED: dict[str, Outcome] = {
    "put_if_absent": (m.PutIfAbsent, (NEW, 0), m.ValueReply, (OLD,)),
    "replace": (m.Replace, (None, NEW, 0), m.FlagReply, (False,)),
    "compare_and_set": (m.Replace, (NEW, NEW, 0), m.FlagReply, (False,)),
    "remove": (m.Remove, (), m.ValueReply, (None,)),
    "get_and_replace": (m.UpdateValue, ("get_and_replace", [NEW], 0), m.ValueReply, (None,)),
    "remove_if": (m.UpdateValue, ("remove_if", [NEW], None), m.ValueReply, (to_data(False),)),
    "slice": (of_slice, ("get_and_put", [NEW]), m.UpdatedReply, (0, False)),
}


class Asked:
    """One operation on KEY of one client, and its tries."""

    def __init__(
        self, kind: str, *, applied: bool = True, names: str = "ABC", rows: str = "AB", backups: int = 1
    ) -> None:
        self.c = c = Cluster(names, backup_count=backups)
        c.assign(rows=[rows])
        self.make, self.fields, self.reply, self.told = (APPLIED if applied else UNCHANGED)[kind]
        self.starts_with = OLD if (kind not in ("put_if_absent",)) == applied else None
        if self.starts_with is not None:
            c.put(rows[0], KEY, OLD)
            c.settle()

    def ask(self, name: str, id: int = NUMBER, open_from: int = 0) -> int:
        """The first try has the number as its id, later ones have ids below zero."""
        op = NUMBER if id < 0 else 0
        self.c.feed(name, Received(CLIENT, self.make(id, MAP, KEY, *self.fields, op, open_from)))
        return id

    def answer(self, id: int) -> Any:
        return self.c.replies.get(id)

    def expected(self, id: int) -> Any:
        return self.reply(id, *self.told)


def code(reply: Any) -> ErrorCode | None:
    return reply.code if isinstance(reply, m.ErrorReply) else None


@pytest.mark.rows("PX-14", "PX-15")
@pytest.mark.parametrize("kind", APPLIED)
def test_the_next_owner_answers_from_the_record(kind: str) -> None:
    asked = Asked(kind)
    c = asked.c
    c.swallow = lambda sender, receiver, message: (
        (sender, receiver) == ("B", "A") and isinstance(message, m.ReplicateAck)
    )
    asked.ask("A")
    c.settle()
    assert asked.answer(NUMBER) is None
    c.crash("A")
    c.advance(5_000)
    assert c.replicas("B")[0] == "B"
    c.put("B", KEY, LATER)
    asked.ask("B", -1)
    c.settle()
    assert asked.answer(-1) == asked.expected(-1)
    assert c.get("B", KEY) == LATER, "it was not applied again"


@pytest.mark.rows("PX-14", "PX-15")
@pytest.mark.parametrize("kind", APPLIED)
def test_the_same_owner_answers_a_second_try_and_a_late_first_one(kind: str) -> None:
    asked = Asked(kind)
    c = asked.c
    asked.ask("A", -1)
    c.settle()
    c.put("A", KEY, LATER)
    c.settle()
    asked.ask("A", -2)
    asked.ask("A", NUMBER)
    c.settle()
    assert [asked.answer(id) for id in (-1, -2, NUMBER)] == [asked.expected(id) for id in (-1, -2, NUMBER)]
    assert c.get("A", KEY) == LATER


@pytest.mark.parametrize("kind", APPLIED)
def test_a_second_answer_waits_for_the_backups_as_the_first_does(kind: str) -> None:
    asked = Asked(kind)
    c = asked.c
    c.hold("B", "A")
    asked.ask("A")
    asked.ask("A", -1)
    c.settle()
    assert (asked.answer(NUMBER), asked.answer(-1)) == (None, None)
    c.release()
    c.settle()
    assert asked.answer(-1) == asked.expected(-1)


@pytest.mark.parametrize("kind", APPLIED)
def test_a_new_owner_does_not_confirm_what_its_own_backups_lack(kind: str) -> None:
    """A has told B alone. If B answered at once and died, C would own the partition without the write."""
    asked = Asked(kind, rows="ABCD", backups=3, names="DABC")
    c = asked.c
    c.hold("A", "CD")
    asked.ask("A")
    c.settle()
    c.crash("A")
    c.release()
    c.hold("C", "B")
    c.advance(3_000)
    assert c.replicas("B")[0] == "B"
    assert "C" in c.replicas("B")
    asked.ask("B", -1)
    c.advance(200)
    assert asked.answer(-1) is None
    c.release()
    c.advance(3_000)
    assert asked.answer(-1) == asked.expected(-1)
    c.crash("B")
    c.advance(5_000)
    asked.ask(c.replicas("C")[0], -2)
    c.settle()
    assert asked.answer(-2) == asked.expected(-2)


@pytest.mark.parametrize("kind", APPLIED)
def test_the_record_moves_with_a_copy(kind: str) -> None:
    """C gets its replica by a copy, after the write, and owns the partition later."""
    asked = Asked(kind, rows="AB")
    c = asked.c
    asked.ask("A")
    c.settle()
    c.crash("B")
    c.advance(10_000)
    assert c.replicas("A") == "AC"
    c.put("A", KEY, LATER)
    c.settle()
    c.crash("A")
    c.advance(10_000)
    assert c.replicas("C")[0] == "C"
    asked.ask("C", -1)
    c.settle()
    assert asked.answer(-1) == asked.expected(-1)
    assert c.get("C", KEY) == LATER


@pytest.mark.parametrize("kind", UNCHANGED)
def test_a_try_that_changed_nothing_may_change_something_when_it_is_asked_again(kind: str) -> None:
    """The answer to the first one was lost: nobody has been told anything yet."""
    asked = Asked(kind, applied=False)
    c = asked.c
    asked.ask("A")
    c.settle()
    assert asked.answer(NUMBER) == asked.expected(NUMBER)
    if asked.starts_with is None:
        c.put("A", KEY, NEW if kind in ("compare_and_set", "remove_if") else OLD)
    else:
        c.ask("A", m.Remove, MAP, KEY)
    asked.ask("A", -1)
    c.settle()
    assert asked.answer(-1) != asked.expected(-1)
    assert asked.answer(-1) is not None


@pytest.mark.parametrize("kind", UNCHANGED)
def test_a_late_first_try_does_not_change_what_a_second_one_left(kind: str) -> None:
    """The caller was told that nothing was changed: also the next owner must hold to that."""
    asked = Asked(kind, applied=False)
    c = asked.c
    asked.ask("A", -1)
    c.settle()
    assert asked.answer(-1) == asked.expected(-1)
    if asked.starts_with is None:
        c.put("A", KEY, NEW if kind in ("compare_and_set", "remove_if") else OLD)
    else:
        c.ask("A", m.Remove, MAP, KEY)
    c.settle()
    before = c.get("A", KEY)
    c.crash("A")
    c.advance(5_000)
    asked.ask("B", NUMBER)
    c.settle()
    assert asked.answer(NUMBER) == asked.expected(NUMBER)
    assert c.get("B", KEY) == before


@pytest.mark.parametrize("rows", ["A", "AB"])
@pytest.mark.parametrize("kind", APPLIED)
def test_a_write_that_is_over_is_never_applied(kind: str, rows: str) -> None:
    """The caller has gone on, and says so with its next write; then a first try arrives that was long on its way."""
    asked = Asked(kind, rows=rows, names="ABC" if rows == "AB" else "A", backups=len(rows) - 1)
    c = asked.c
    asked.ask("A", -1)
    c.settle()
    c.feed("A", Received(CLIENT, m.Put(NUMBER + 7, MAP, KEY, LATER, 0, 0, NUMBER + 1)))
    c.settle()
    if rows == "AB":
        c.crash("A")
        c.advance(5_000)
    owner = rows[-1]
    asked.ask(owner, NUMBER)
    c.settle()
    assert code(asked.answer(NUMBER)) is ErrorCode.INDETERMINATE
    assert c.get(owner, KEY) == LATER


@pytest.mark.parametrize("kind", APPLIED)
def test_a_write_whose_outcome_was_forgotten_is_unknown_and_not_applied_again(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("phalanx.grid.replica.deduplication.MAX_OUTCOMES", 4)
    asked = Asked(kind)
    c = asked.c
    asked.ask("A")
    for number in range(NUMBER + 1, NUMBER + 6):
        c.feed("A", Received(CLIENT, m.Put(number, MAP, KEY, LATER, 0)))
    c.settle()
    asked.ask("A", -1)
    c.crash("A")
    c.advance(5_000)
    asked.ask("B", -2)
    c.settle()
    assert [code(asked.answer(id)) for id in (-1, -2)] == [ErrorCode.INDETERMINATE] * 2
    assert c.get("B", KEY) == LATER


def test_a_number_names_one_operation() -> None:
    asked = Asked("replace")
    c = asked.c
    asked.ask("A")
    c.settle()
    for id, request in ((-1, m.Put(-1, MAP, KEY, NEW, 0, NUMBER)), (-2, m.Remove(-2, MAP, KEY, NUMBER))):
        c.feed("A", Received(CLIENT, request))
        assert code(asked.answer(id)) is ErrorCode.INVALID
    assert c.get("A", KEY) == NEW


def test_replicas_have_equal_records() -> None:
    c = Cluster("ABC")
    c.assign(rows=["AB"])
    for number in range(100, 108):
        request = (m.Put, m.PutIfAbsent)[number % 2](number, MAP, KEY + b"%d" % (number % 3), OLD, 0, 0, number // 2)
        c.feed("A", Received(CLIENT, request))
        c.call("C", m.Remove, MAP, KEY + b"%d" % (number % 3))
    c.settle()
    owned, followed = c.nodes["A"].grid.ownership.owned[0], c.nodes["B"].grid.follower.replicas[0]
    assert owned is not None
    assert len(owned.replica.deduplication.callers) == 2
    assert owned.replica.deduplication.export() == followed.deduplication.export()


def test_the_program_of_a_lone_owner_is_recorded_as_others_are_and_no_silent_caller_stays() -> None:
    c = Cluster("A", backup_count=0)
    c.assign()
    for kind in (m.Put, m.PutIfAbsent):
        c.call("A", kind, MAP, KEY, OLD, 0)
    c.call("A", m.Remove, MAP, KEY)
    owned = c.nodes["A"].grid.ownership.owned[0]
    assert owned is not None
    assert list(owned.replica.deduplication.callers) == [c.id("A")]
    c.put("A", KEY, OLD)
    c.now += SILENT_MS
    c.feed("A", TimePassed())
    c.feed("A", Received("client/2", m.Put(100, MAP, KEY, NEW, 0)))  # type: ignore[arg-type]  # a client's id
    assert list(owned.replica.deduplication.callers) == ["client/2"]


def test_what_the_program_of_a_lone_owner_asks_twice_while_it_waits_is_applied_once() -> None:
    """Its partition is not served yet, and the table changes meanwhile: so it asks again, and both tries wait."""
    c = Cluster("A", backup_count=0, partition_count=1)
    c.assign()
    grid, one = c.nodes["A"].grid, to_data(1)
    grid.ownership.awaiting_split[0] = None
    owned, grid.ownership.owned[0] = grid.ownership.owned[0], None
    c.nodes["A"].alarms.follow()
    for id, op in ((NUMBER, 0), (-1, NUMBER)):
        request = m.UpdateValue(id, MAP, KEY, "increment", [one, to_data(0)], None, op)
        c.feed("A", Received(c.id("A"), request))
    del grid.ownership.awaiting_split[0]
    grid.ownership.owned[0] = owned
    grid.parked.release(0)
    c.advance(1_000)
    assert c.get("A", KEY) == one
