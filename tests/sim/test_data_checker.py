"""The checker of data: wrong histories of calls are rejected, and the ones that the promise allows are not."""

import pytest

from phalanx.common.ids import MemberId
from phalanx.common.table import build_table
from phalanx.common.view import MembersView
from phalanx.wire.merge_events import MergeEnded, MergeStarted
from phalanx.wire.view_events import MajorityChanged
from phalanx_proof.sim.checkers.checker import ObservedEvent
from phalanx_proof.sim.checkers.data_checker import DataChecker, check_replicas
from phalanx_proof.sim.checkers.findings import Findings
from phalanx_proof.sim.checkers.linearizability import calls_on, is_linearizable
from phalanx_proof.sim.checkers.merge_starts import MergeStarts
from phalanx_proof.sim.checkers.table_checker import TableChecker
from phalanx_proof.sim.history.operations import NEVER, Operation, Outcome

A, B, C = MemberId("A"), MemberId("B"), MemberId("C")


def key_of(name: str) -> bytes:
    return b"\xff\xff\xff\xf5" + name.encode()


class Calls:
    """Calls on one key of one partition, which A owns and B backs up."""

    def __init__(self, name: str = "r0", replicas: tuple[MemberId, ...] = (A, B), *, restarts: bool = False) -> None:
        self.key = key_of(name)
        self.findings = Findings()
        self.tables = TableChecker(self.findings, 1, 1, restarts=restarts)
        self.merge_starts = MergeStarts(self.tables)
        self.tombstone_ms = 1_000
        self.members = (A, B, C)
        self.table(0, 1, replicas)
        self.operations: list[Operation] = []
        self.final: dict[bytes, Operation] = {}

    def table(self, at: int, version: int, replicas: tuple[MemberId, ...], *, gone: str = "") -> None:
        members = tuple(member for member in self.members if member not in gone)
        for member in members:
            view = MembersView(9, members[0], members)
            self.tables.on_table(member, build_table([replicas], [version]), view, set(members), at)

    def add(
        self, kind: str, begin: int, end: int = NEVER, value: str = "", *, by: MemberId = A, outcome: Outcome | None = None,
        result: object = None, expected: str = "",
    ) -> Operation:  # fmt: skip
        operation = Operation(len(self.operations), kind, 0, C, (self.key,), begin)
        operation.end, operation.replier = end, by
        as_stored = key_of if kind == "write_counter" else str.encode
        operation.values = (as_stored(value),) if value else ()
        operation.expected = as_stored(expected) if expected else None
        operation.outcome = outcome or (Outcome.OK if end != NEVER else Outcome.INDETERMINATE)
        operation.result = result  # type: ignore[assignment]
        self.operations.append(operation)
        return operation

    def put(self, value: str, begin: int, end: int = NEVER, **more: object) -> Operation:
        return self.add("put", begin, end, value, **more)  # type: ignore[arg-type]

    def get(self, value: str | None, begin: int, end: int, by: MemberId = A) -> Operation:
        return self.add("get", begin, end, by=by, result=(value.encode() if value else None,))

    def last(self, value: str | None, at: int = 100, by: MemberId = A) -> None:
        self.final[self.key] = self.get(value, at, at, by)

    def merges(self, former: MemberId, at: int) -> None:
        """What a former incarnation held alone is merged."""
        self.merge_starts.on_event(ObservedEvent(C, MergeStarted(former, 1, 1), at))

    def found(self) -> list[str]:
        checker = DataChecker(self.findings, self.tables, {self.key: 0}, {}, self.merge_starts, self.tombstone_ms)
        checker.check(self.operations, self.final, 100)
        self.stale, self.excused = checker.stale_reads, checker.excused_losses
        return [violation.what for violation in self.findings.violations]

    def is_linearizable(self, until: int = 1_000) -> bool | None:
        return is_linearizable(calls_on(self.key, self.operations, until))


def test_the_last_acknowledged_value_must_be_there() -> None:
    c = Calls()
    c.put("one", 1, 2)
    c.put("two", 3, 4)
    c.last("two")
    assert c.found() == []


@pytest.mark.parametrize("left", ["one", None])
def test_a_lost_acknowledged_write_is_found(left: str | None) -> None:
    c = Calls()
    c.put("one", 1, 2)
    c.put("two", 3, 4)
    c.last(left)
    assert c.found() == ["no acknowledged write is lost"]


def test_a_write_that_came_back_after_a_later_one_is_found() -> None:
    c = Calls()
    c.put("one", 1, 2)
    c.add("remove", 3, 4, result=(b"one",))
    c.last("one")
    assert c.found() == ["no acknowledged write is lost"]


def test_writes_at_the_same_time_may_end_either_way() -> None:
    for left in ("one", "two"):
        c = Calls()
        c.put("one", 1, 5)
        c.put("two", 2, 4)
        c.last(left)
        assert c.found() == []


def test_an_indeterminate_write_may_be_there_or_not() -> None:
    for left in ("one", "two"):
        c = Calls()
        c.put("one", 1, 2)
        c.put("two", 3)
        c.last(left)
        assert c.found() == []


def test_the_value_of_a_write_that_was_said_to_have_failed_is_found() -> None:
    c = Calls()
    c.put("one", 1, 2, outcome=Outcome.FAILED)
    c.get("one", 3, 4)
    assert c.found() == ["reads return what was written"]


def test_a_value_before_it_was_written_is_found() -> None:
    c = Calls()
    c.get("one", 1, 2)
    c.put("one", 3, 4)
    assert c.found() == ["reads return what was written"]


def test_a_read_may_see_a_write_that_is_not_acknowledged_yet_and_that_vanishes() -> None:
    c = Calls()
    c.put("one", 1, 2)
    c.put("two", 3)
    c.get("two", 4, 5)
    c.get("one", 6, 7)
    c.last("one")
    assert c.found() == []


def test_an_old_value_from_the_owner_is_found_and_from_a_deposed_one_counted() -> None:
    for replier, expected in ((A, ["reads by the owner are not stale"]), (B, [])):
        c = Calls()
        c.put("one", 1, 2)
        c.put("two", 3, 4)
        c.get("one", 5, 6, by=replier)
        c.last("two")
        assert c.found() == expected
        assert c.stale == (not expected)


def test_a_loss_is_excused_when_all_replicas_in_sync_are_gone() -> None:
    c = Calls()
    c.put("one", 1, 2)
    c.table(10, 2, (C,), gone="AB")
    c.last(None, by=C)
    assert c.found() == []
    assert c.excused == 1


def test_a_loss_is_not_excused_while_one_replica_lived() -> None:
    c = Calls()
    c.put("one", 1, 2)
    c.table(10, 2, (B,), gone="A")
    c.last(None, by=B)
    assert c.found() == ["no acknowledged write is lost"]


def test_what_was_written_after_a_loss_must_be_there() -> None:
    c = Calls()
    c.put("one", 1, 2)
    c.table(10, 2, (C,), gone="AB")
    c.put("two", 20, 21, by=C)
    c.last(None, by=C)
    assert c.found() == ["no acknowledged write is lost"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [(1, ["no acknowledged write is lost"]), (2, []), (3, []), (4, ["a counter is raised once by a call"])],
)
def test_a_counter_has_all_acknowledged_raises_and_no_more_than_were_asked_for(value: int, expected: list[str]) -> None:
    c = Calls("c0")
    c.add("write_counter", 1, 2, "1", result=(None,))
    c.add("write_counter", 3, 4, "2", expected="1", result=True)
    c.add("write_counter", 5, NEVER, "3", expected="2")
    c.add("write_counter", 7, 8, "2", expected="1", result=False)
    c.final[c.key] = c.add("get", 99, 99, result=(key_of(str(value)),))
    assert c.found() == expected


@pytest.mark.parametrize(("left", "expected"), [("2", []), ("3", ["a counter is raised once by a call"])])
def test_each_step_of_a_counter_was_made_by_one_call(left: str, expected: list[str]) -> None:
    """The number of calls alone would hide it: one was acknowledged for a step that another one had made."""
    c = Calls("c0")
    c.add("write_counter", 1, 2, "1", result=(None,))
    c.add("write_counter", 3, 4, "2", expected="1", result=True)
    c.add("write_counter", 5, 6, "3", expected="2", result=False)
    c.add("write_counter", 7, NEVER, "2", expected="1")
    c.final[c.key] = c.add("get", 99, 99, result=(key_of(left),))
    assert c.found() == expected


def test_two_calls_that_raised_a_counter_to_the_same_are_found() -> None:
    c = Calls("c0")
    c.add("write_counter", 1, 2, "1", result=(None,))
    for begin in (3, 5):
        c.add("write_counter", begin, begin + 1, "2", expected="1", result=True)
    c.add("write_counter", 7, 8, "3", expected="2", result=True)
    c.final[c.key] = c.add("get", 99, 99, result=(key_of("3"),))
    assert c.found() == ["a counter is raised once by a call"]


ONCE, READS = "an increment counts once", "reads return what was written"
STALE, LOST = "reads by the owner are not stale", "no acknowledged write is lost"


@pytest.mark.parametrize(
    ("value", "expected"), [(1, ["no acknowledged write is lost", ONCE]), (2, []), (3, []), (4, [ONCE])]
)
def test_a_number_has_all_acknowledged_increments_and_no_more_than_were_asked_for(
    value: int, expected: list[str]
) -> None:
    c = Calls("n0")
    for number in (1, 2):
        c.add("count", 2 * number, 2 * number + 1, result=(key_of(str(number)),))
    c.add("count", 7)
    c.add("count", 8, 9, outcome=Outcome.FAILED)
    c.final[c.key] = c.add("get", 99, 99, result=(key_of(str(value)),))
    assert c.found() == expected


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ((1, 4, 2), (2, 3, 1), []),
        ((1, 2, 1), (3, 4, 1), [ONCE]),
        ((1, 2, 2), (3, 4, 1), [ONCE]),
        ((1, 2, 0), (3, 4, 2), [ONCE]),
    ],
)
def test_each_increment_is_told_a_number_of_its_own_and_none_of_the_past(
    first: tuple[int, int, int], second: tuple[int, int, int], expected: list[str]
) -> None:
    c = Calls("n0")
    for begin, end, told in (first, second):
        c.add("count", begin, end, result=(key_of(str(told)),))
    c.final[c.key] = c.add("get", 99, 99, result=(key_of("2"),))
    assert c.found() == expected


@pytest.mark.parametrize(
    ("former", "merged_at", "by", "value", "expected"),
    [
        (A, 5, C, 3, []),
        (A, 5, C, 4, [ONCE]),
        (A, 7, C, 3, [ONCE]),
        (B, 5, C, 3, [ONCE]),
        (A, 5, A, 3, [ONCE]),
    ],
    ids=["by its owner", "twice, and not more", "later", "by no owner", "by who has answered"],
)
def test_an_increment_counts_twice_only_if_its_first_owner_was_merged_before_the_answer(
    former: MemberId, merged_at: int, by: MemberId, value: int, expected: list[str]
) -> None:
    c = Calls("n0")
    c.add("count", 1, 2, result=(key_of("1"),))
    c.add("count", 3, 6, by=by, result=(key_of("3"),))
    c.merges(former, merged_at)
    c.final[c.key] = c.add("get", 99, 99, result=(key_of(str(value)),))
    assert c.found() == expected


@pytest.mark.parametrize("name", ["c0", "n0", "l0"])
@pytest.mark.parametrize(("lacks", "merges"), [(True, True), (True, False), (False, True)])
def test_each_side_of_a_cut_counts_for_itself_if_one_had_no_majority_and_is_merged(
    name: str, lacks: bool, merges: bool
) -> None:
    c = Calls(name)
    c.merge_starts.on_event(ObservedEvent(B, MajorityChanged(1, not lacks, "", ""), 1))
    kind, result = {"c": ("write_counter", (None,)), "n": ("count", (key_of("1"),)), "l": ("lock", (None,))}[name[0]]
    for by, at, value in ((B, 2, "1"), (A, 6, "1" if kind == "write_counter" else "2")):
        c.add(kind, at, at + 1, "" if kind == "count" else value, by=by, result=result)
    c.table(0, 2, (B, A))
    if merges:
        c.merges(B, 8)
    c.final[c.key] = c.add("get", 99, 99, result=(b"2" if kind == "lock" else key_of("1"),))
    assert (c.found() == []) == (lacks and merges)


def sides_after_a_restart(lost_at: int, merged: MergeEnded, merged_at: int) -> Calls:
    """A and B hold the partition, and each goes on alone. They restart with what A has, and B merges."""
    c = Calls(restarts=True)
    c.put("one", 0, 1)
    c.merge_starts.on_event(ObservedEvent(B, MajorityChanged(1, False, "", ""), lost_at))
    c.tables.on_table(B, build_table([(B,)], [2]), MembersView(9, B, (B,)), {A, B, C}, 2)
    c.members = (A, MemberId("B/2"), C)
    c.table(4, 3, (A,))
    c.merge_starts.on_event(ObservedEvent(C, merged, merged_at))
    return c


@pytest.mark.parametrize(
    ("lost_at", "former", "sent", "merged_at", "expected"),
    [
        (1, B, 2, 6, []),
        (1, B, 2, 5, [STALE]),
        (1, B, 0, 6, [STALE]),
        (1, A, 2, 6, [STALE]),
        (5, B, 2, 6, [STALE]),
    ],
    ids=["until then", "not longer", "nothing sent", "by the other side", "it had the majority still"],
)
def test_what_a_side_without_the_majority_wrote_can_be_missing_until_it_is_merged(
    lost_at: int, former: MemberId, sent: int, merged_at: int, expected: list[str]
) -> None:
    c = sides_after_a_restart(lost_at, MergeEnded(former, 2, sent, sent, 0, 1), merged_at)
    c.tombstone_ms = 0
    c.put("two", 2, 3, by=B)
    c.get("one", 6, 7)
    assert c.found() == expected
    c.last("one")
    assert LOST in c.found()


@pytest.mark.parametrize(
    ("lost_at", "merged_at", "tombstone_ms", "expected"),
    [(1, 6, 4, []), (1, 6, 5, [LOST]), (5, 6, 4, [LOST])],
    ids=["forgotten", "remembered", "it had the majority still"],
)
def test_a_removal_of_a_side_without_the_majority_is_undone_only_if_forgotten_before_the_merge(
    lost_at: int, merged_at: int, tombstone_ms: int, expected: list[str]
) -> None:
    c = sides_after_a_restart(lost_at, MergeEnded(B, 2, 2, 0, 0, 1), merged_at)
    c.tombstone_ms = tombstone_ms
    c.add("remove", 2, 3, by=B, result=(b"one",))
    c.last("one")
    assert c.found() == expected


@pytest.mark.parametrize(("former", "merged_at", "expected"), [(A, 5, []), (A, 7, [READS]), (B, 5, [READS])])
def test_a_call_finds_its_own_first_try_only_if_that_was_merged_before_its_answer(
    former: MemberId, merged_at: int, expected: list[str]
) -> None:
    """The first try was carried out at A, which could not say so, and came back by a merge."""
    c = Calls("l0")
    c.add("lock", 1, 6, "1", by=C, result=(b"1",))
    c.merges(former, merged_at)
    assert c.found() == expected


@pytest.mark.parametrize(
    ("lost_at", "got_at", "merged_at", "former", "expected"),
    [(3, 9, 50, A, True), (3, 5, 50, A, False), (7, 9, 50, A, False), (3, 9, 101, A, False), (3, 9, 50, B, False)],
    ids=["void", "it had the majority again", "it had the majority still", "not merged", "of no owner"],
)
def test_events_are_void_if_a_side_without_the_majority_gave_them_and_is_merged(
    lost_at: int, got_at: int, merged_at: int, former: MemberId, expected: bool
) -> None:
    c = Calls()
    for at, has_majority in ((lost_at, False), (got_at, True)):
        c.merge_starts.on_event(ObservedEvent(A, MajorityChanged(1, has_majority, "", ""), at))
    c.merges(former, merged_at)
    assert c.merge_starts.may_be_void(0, 4, 6, A, 100) is expected


def test_increments_that_are_lost_with_all_replicas_are_excused() -> None:
    c = Calls("n0")
    c.add("count", 1, 2, result=(key_of("1"),))
    c.table(10, 2, (C,), gone="AB")
    c.final[c.key] = c.add("get", 99, 99, by=C, result=(None,))
    assert c.found() == []
    assert c.excused == 1


@pytest.mark.parametrize(
    ("value", "expected"), [(1, ["no acknowledged write is lost"]), (2, []), (3, []), (4, []), (5, [ONCE])]
)
def test_an_increment_by_a_condition_counts_once_where_the_number_was_there(value: int, expected: list[str]) -> None:
    c = Calls("n0")
    c.add("count_where", 0, 1, result=False)
    c.add("count", 2, 3, result=(key_of("1"),))
    c.add("count_where", 4, 5, result=True)
    c.add("count_where", 6, 7, result=None)  # of several numbers some were there
    c.add("count_where", 8)
    c.add("count_where", 8, 9, outcome=Outcome.FAILED)
    c.final[c.key] = c.add("get", 99, 99, result=(key_of(str(value)),))
    assert c.found() == expected


def test_increments_by_a_condition_before_the_first_fault_have_an_order() -> None:
    c = Calls("n0")
    c.add("count_where", 1, 2, result=False)
    c.add("count", 3, 4, result=(key_of("1"),))
    c.add("count_where", 5, 6, result=True)
    c.add("get", 7, 7, result=(key_of("2"),))
    c.add("count_where", 8, 9, result=None)
    assert is_linearizable(calls_on(c.key, c.operations, 50)) is True
    c.add("get", 11, 11, result=(key_of("4"),))
    assert is_linearizable(calls_on(c.key, c.operations, 50)) is False


def test_increments_and_exchanges_before_the_first_fault_have_an_order() -> None:
    c = Calls("n0")
    c.add("count", 1, 5, result=(key_of("2"),))
    c.add("count", 2, 4, result=(key_of("1"),))
    c.add("count", 6)
    c.add("get", 9, 9, result=(key_of("3"),))
    assert is_linearizable(calls_on(c.key, c.operations, 50)) is True
    c.add("count", 10, 11, result=(key_of("3"),))
    assert is_linearizable(calls_on(c.key, c.operations, 50)) is False
    c = Calls()
    c.add("get_and_put", 1, 2, "one", result=(None,))
    c.add("get_and_put", 3, 4, "two", result=(b"one",))
    assert is_linearizable(calls_on(c.key, c.operations, 50)) is True
    c.add("get_and_put", 5, 6, "three", result=(b"one",))
    assert is_linearizable(calls_on(c.key, c.operations, 50)) is False


@pytest.mark.parametrize("kind", ["replace", "put_if_absent"])
@pytest.mark.parametrize(
    ("begin", "by", "expected"),
    [(6, A, []), (9, A, ["reads return what was written"]), (9, B, [])],
    ids=["before its end", "after", "elsewhere"],
)
def test_a_try_that_was_lost_with_its_owner_may_have_been_seen_until_its_call_ended(
    kind: str, begin: int, by: MemberId, expected: list[str]
) -> None:
    """The next owner found that nothing was to be changed, and the caller was told so."""
    c = Calls()
    c.put("one", 1, 2)
    c.add(kind, 5, 8, "two", result=False if kind == "replace" else (b"one",))
    c.get("two", begin, begin + 1, by)
    c.last("one")
    assert c.found() == expected


@pytest.mark.parametrize(("begin", "expected"), [(6, []), (13, ["reads by the owner are not stale"])])
def test_a_removal_that_was_lost_with_its_owner_may_have_been_seen_until_its_call_ended(
    begin: int, expected: list[str]
) -> None:
    c = Calls()
    c.put("one", 1, 2)
    c.add("remove", 5, 12, result=(None,))
    c.add("remove", 8, 9, result=(b"one",))
    c.put("two", 10, 11)
    c.get(None, begin, begin + 1)
    c.last("two")
    assert c.found() == expected


def test_two_that_store_if_absent_are_found() -> None:
    c = Calls("l0")
    c.add("lock", 1, 2, "one", result=(None,))
    c.add("lock", 1, 2, "two", result=(None,))
    assert c.found() == ["one caller stores if absent"]


def test_one_that_stores_if_absent_is_right() -> None:
    c = Calls("l0")
    c.add("lock", 1, 2, "one", result=(None,))
    c.add("lock", 3, 4, "two", result=(b"one",))
    c.last("one")
    assert c.found() == []


# --- order ------------------------------------------------------------------------------------------------------------


def test_calls_that_overlap_may_take_effect_in_any_order() -> None:
    c = Calls()
    c.put("one", 1, 9)
    c.put("two", 2, 8)
    c.get("two", 3, 4)
    c.get("one", 5, 6)
    assert c.is_linearizable() is True
    c.get("two", 7, 7)
    assert c.is_linearizable() is False


@pytest.mark.parametrize(
    ("kind", "result", "fits"),
    [
        ("remove", (b"one",), True), ("remove", (None,), False), ("put_if_absent", (b"one",), True),
        ("put_if_absent", (None,), False), ("get", (None,), False), ("get", (b"one",), True),
    ],
)  # fmt: skip
def test_answers_must_fit_what_is_there(kind: str, result: tuple[bytes | None], fits: bool) -> None:
    c = Calls()
    c.put("one", 1, 2)
    c.add(kind, 3, 4, "two" if kind == "put_if_absent" else "", result=result)
    assert c.is_linearizable() is fits


@pytest.mark.parametrize(
    ("expected", "flag", "fits"), [("one", True, True), ("one", False, False), ("no", True, False)]
)
def test_compare_and_set_answers_must_fit_what_is_there(expected: str, flag: bool, fits: bool) -> None:
    c = Calls()
    c.put("one", 1, 2)
    c.add("replace", 3, 4, "two", expected=expected, result=flag)
    assert c.is_linearizable() is fits


def test_an_open_write_may_take_effect_late_or_never() -> None:
    c = Calls()
    c.put("one", 1, 2)
    c.put("two", 3)
    c.get("one", 4, 5)
    c.get("two", 6, 7)
    assert c.is_linearizable() is True
    c.get("one", 8, 9)
    assert c.is_linearizable() is False


def test_what_was_not_answered_by_then_is_open() -> None:
    c = Calls()
    c.put("one", 1, 20)
    c.get("one", 2, 3)
    assert c.is_linearizable(until=10) is True
    c.operations[0].outcome = Outcome.FAILED
    assert c.is_linearizable(until=10) is False


# --- replicas ---------------------------------------------------------------------------------------------------------


ONE, TWO = {"m": {b"k": b"1"}}, {"m": {b"k": b"2"}}


@pytest.mark.parametrize(
    ("a", "b", "c", "expected"),
    [
        ([(0, ONE)], [(0, ONE)], [], []),
        ([(0, {"m": {}})], [(0, {})], [], []),
        ([(0, ONE)], [(0, TWO)], [], ["replicas are equal at rest"]),
        ([(0, ONE)], [], [], ["replicas are equal at rest"]),
        ([(0, ONE)], [(0, ONE)], [(0, ONE)], ["no data where the table does not put it"]),
        ([], [(0, ONE)], [], ["each partition is at its owner"]),
    ],
)
def test_replicas_at_rest(a: list, b: list, c: list, expected: list[str]) -> None:  # type: ignore[type-arg]
    findings = Findings()
    check_replicas([(A, tuple(a)), (B, tuple(b)), (C, tuple(c))], [(A, B)], findings, 0)
    assert [violation.what for violation in findings.violations] == expected


FOUND_BY_THE_NEXT = pytest.mark.parametrize(
    ("former", "at", "is_known"),
    [(A, 20, True), (C, 20, False), (B, 20, False), (A, 60, False)],
    ids=["its owner", "no owner", "who has answered", "later"],
)
"""What a former incarnation held is merged, of a call that A can have carried out, and that B, the next owner, found nothing to change for."""


@FOUND_BY_THE_NEXT
def test_what_a_former_owner_brings_back_can_show_after_its_caller_was_told_that_nothing_changed(
    former: MemberId, at: int, is_known: bool
) -> None:
    c = Calls()
    c.put("one", 1, 2)
    c.add("replace", 5, 12, "three", by=B, expected="two", result=False)
    c.table(8, 2, (B,), gone="A")
    c.merges(former, at)
    c.get("three", 30, 31, by=B)
    assert (c.found() == []) is is_known
    c.put("four", 40, 41, by=B)
    c.last("three", by=B)
    assert "no acknowledged write is lost" in c.found() if is_known else c.found()


@FOUND_BY_THE_NEXT
def test_a_counter_can_be_raised_by_what_a_former_owner_brings_back(former: MemberId, at: int, is_known: bool) -> None:
    c = Calls("c0")
    c.add("write_counter", 1, 2, "1", result=(None,))
    c.add("write_counter", 3, NEVER, "2", expected="1")
    c.add("write_counter", 5, 12, "3", by=B, expected="2", result=False)
    c.table(8, 2, (B,), gone="A")
    c.merges(former, at)
    c.final[c.key] = c.add("get", 50, 50, by=B, result=(key_of("3"),))
    assert (c.found() == []) is (is_known or at > 50)
