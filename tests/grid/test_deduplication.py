"""The record that lets a write be asked for again: what it answers, what it forgets, and that it never says "new" then."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.grid.replica import deduplication as o
from phalanx.grid.replica.deduplication import Deduplication, OperationState
from phalanx.wire.replication_messages import OutcomeValue, RecordedCaller

ME, OTHER = "client/1", "client/2"


class Record:
    def __init__(self) -> None:
        self.outcomes = Deduplication()
        self.now = 0

    def note(self, number: int, outcome: OutcomeValue = None, *, open_from: int = 0, caller: str = ME) -> None:
        self.outcomes.note(caller, number, open_from, outcome, self.now)

    def note_next(self, number: int, open_from: int) -> bool:
        return self.outcomes.note_next(ME, number, open_from, None, self.now)

    def find(self, number: int, caller: str = ME) -> OutcomeValue | OperationState:
        return self.outcomes.find(caller, number)  # type: ignore[arg-type]  # a text as good as any

    def copied(self) -> "Record":
        """As it comes out at the other end of a copy."""
        copy = Record()
        copy.outcomes = Deduplication(
            msgspec.msgpack.decode(msgspec.msgpack.encode(self.outcomes.export()), type=tuple[RecordedCaller, ...])
        )
        return copy


def test_what_was_noted_is_found_by_its_caller_and_number_alone() -> None:
    record = Record()
    record.note(3, b"old")
    record.note(7, True)
    record.note(5, None)
    assert [record.find(number) for number in (3, 5, 7)] == [b"old", None, True]
    assert [record.find(number) for number in (1, 4, 6, 8)] == [OperationState.NEW] * 4
    assert record.find(3, OTHER) is OperationState.NEW


def test_what_the_caller_said_is_over_is_forgotten_and_never_new_again() -> None:
    record = Record()
    for number in (2, 4, 6):
        record.note(number, b"value")
    record.note(8, False, open_from=6)
    assert record.find(6) == b"value"
    assert [record.find(number) for number in (1, 2, 4, 5)] == [OperationState.FORGOTTEN] * 4
    assert record.find(7) is OperationState.NEW, "it is open"
    record.note(9, None, open_from=9)
    assert [record.find(number) for number in (6, 7, 8)] == [OperationState.FORGOTTEN] * 3
    assert record.find(9) is None
    assert record.outcomes.callers[ME].older is None, "one call at a time needs no dict"


def test_a_put_after_the_last_one_is_noted_in_a_short_step_and_anything_else_is_not() -> None:
    record = Record()
    assert not record.note_next(5, 5), "an unknown caller"
    record.note(5, True)
    assert record.note_next(7, 6)
    assert [record.find(number) for number in (4, 5, 6, 7)] == [OperationState.FORGOTTEN] * 2 + [
        OperationState.NEW,
        None,
    ]
    for number, open_from in ((7, 7), (6, 6), (9, 7), (9, 10)):
        assert not record.note_next(number, open_from), "the same, an earlier one, one beside another, one after itself"
    assert [record.find(number) for number in (6, 7, 9)] == [OperationState.NEW, None, OperationState.NEW]
    record.note(9, True, open_from=7)
    assert not record.note_next(11, 11), "there are several"
    record.note(11, b"value", open_from=11)
    assert not record.note_next(12, 12), "there are values to count"
    assert record.find(11) == b"value"


def test_an_older_word_of_what_is_over_changes_nothing() -> None:
    record = Record()
    record.note(5, True, open_from=5)
    record.note(6, True, open_from=2)
    record.note(3, True, open_from=1)
    assert [record.find(number) for number in (3, 4, 5, 6)] == [
        OperationState.FORGOTTEN,
        OperationState.FORGOTTEN,
        True,
        True,
    ]


def test_nobody_says_that_calls_to_come_are_over() -> None:
    record = Record()
    record.note(5, True, open_from=1_000)
    record.note(6, True, open_from=1_000)
    assert record.find(6) is True
    assert record.find(7) is OperationState.NEW


def test_the_oldest_of_too_many_outcomes_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(o, "MAX_OUTCOMES", 3)
    record = Record()
    for number in range(1, 7):
        record.note(number, True)
    assert [record.find(number) for number in range(1, 8)] == [OperationState.FORGOTTEN] * 3 + [True] * 3 + [
        OperationState.NEW
    ]


def test_values_beyond_the_limit_are_unknown_and_other_outcomes_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(o, "MAX_VALUE_BYTES", 100)
    record = Record()
    record.note(1, b"x" * 60)
    record.note(2, True)
    record.note(1, b"x" * 40, caller=OTHER)
    assert (record.find(1), record.find(2)) == (b"x" * 60, True)
    record.note(3, b"x" * 200, caller="client/3")
    assert (record.find(1), record.find(2)) == (OperationState.FORGOTTEN, True)
    assert record.find(1, OTHER) is OperationState.FORGOTTEN, "it was the greatest number of its caller"
    assert record.find(3, "client/3") == b"x" * 200
    record.note(2, b"y", caller=OTHER)
    assert record.find(2, OTHER) == b"y"
    assert record.find(1, OTHER) is OperationState.FORGOTTEN


@pytest.mark.parametrize("ends", ["over", "forgotten"])
def test_values_that_are_gone_count_no_more(ends: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(o, "MAX_VALUE_BYTES", 100)
    record = Record()
    record.note(1, b"x" * 60)
    record.note(1, b"x" * 30, caller=OTHER)
    for number in range(2, 50):
        record.note(number, b"x" * 60, open_from=number if ends == "over" else 0)
        assert record.find(number - 1) is OperationState.FORGOTTEN
        assert record.find(number) == b"x" * 60
        assert record.find(1, OTHER) == b"x" * 30, "both are within the limit"


def test_values_of_callers_that_are_gone_count_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(o, "MAX_VALUE_BYTES", 100)
    record = Record()
    for number in range(1, 20):
        record.now += o.SILENT_MS
        callers = [f"client/{number}/{which}" for which in "ab"]
        for caller in callers:
            record.note(1, b"x" * 20, caller=caller)
            record.note(2, b"x" * 30, caller=caller)
        assert [record.find(each, caller) for caller in callers for each in (1, 2)] == [b"x" * 20, b"x" * 30] * 2


def test_a_silent_caller_is_dropped_when_another_one_comes() -> None:
    record = Record()
    record.note(1, True)
    record.note(2, True, caller=OTHER)
    record.now = o.SILENT_MS - 1
    record.note(3, True, caller=OTHER)
    record.note(1, True, caller="client/3")
    assert record.find(1) is True
    record.now += o.LOOK_EVERY_MS
    record.note(1, True, caller="client/4")
    assert record.find(1) is OperationState.NEW
    assert record.find(3, OTHER) is True


@pytest.mark.parametrize("short_step", [True, False])
def test_a_caller_that_goes_on_is_not_silent(short_step: bool) -> None:
    record = Record()
    record.note(1, True)
    record.now = o.SILENT_MS - 1
    if short_step:
        assert record.note_next(2, 2)
    else:
        record.note(2, None, open_from=1)
    record.now += o.SILENT_MS - 1
    record.note(1, True, caller=OTHER)
    assert record.find(2) is None


def test_what_came_with_a_copy_is_dropped_after_its_own_time() -> None:
    record = Record()
    record.note(1, True)
    copy = record.copied()
    copy.now = 10 * o.SILENT_MS
    copy.note(1, True, caller=OTHER)
    assert copy.find(1) is True, "how long it was silent is not known here"
    copy.now += o.SILENT_MS
    copy.note(1, True, caller="client/3")
    assert copy.find(1) is OperationState.NEW


def test_a_copy_knows_that_the_newest_was_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(o, "MAX_VALUE_BYTES", 100)
    record = Record()
    record.note(1, True)
    record.note(5, b"x" * 60)
    record.note(1, b"x" * 60, caller=OTHER)
    for known in (record, record.copied()):
        assert known.find(1) is True
        assert [known.find(number) for number in (3, 5)] == [OperationState.FORGOTTEN] * 2
        assert known.find(6) is OperationState.NEW


OPERATIONS = st.tuples(
    st.sampled_from([ME, OTHER]), st.integers(1, 12), st.integers(0, 12), st.sampled_from([None, True, False, b"", b"v" * 9])
)  # fmt: skip


@given(st.lists(OPERATIONS, max_size=30))
def test_nothing_that_was_noted_is_ever_new_and_a_copy_answers_alike(
    operations: list[tuple[str, int, int, OutcomeValue]],
) -> None:
    """Bounds included, and in any order: a slow twin remembers everything."""
    record = Record()
    noted: dict[tuple[str, int], OutcomeValue] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(o, "MAX_OUTCOMES", 3)
        patch.setattr(o, "MAX_VALUE_BYTES", 20)
        for caller, number, open_from, outcome in operations:
            found = record.find(number, caller)
            if (caller, number) in noted:
                assert found is OperationState.FORGOTTEN or found == noted[caller, number]
            else:
                assert isinstance(found, OperationState)
            if found is OperationState.NEW:
                record.note(number, outcome, open_from=open_from, caller=caller)
                noted[caller, number] = outcome
                assert record.find(number, caller) == outcome or record.find(number, caller) is OperationState.FORGOTTEN
        copy = record.copied()
    for caller in (ME, OTHER):
        for number in range(15):
            assert copy.find(number, caller) == record.find(number, caller)
    assert copy.outcomes._value_bytes == record.outcomes._value_bytes
    values = [v for told in copy.outcomes.export() for v in told.outcomes if isinstance(v, bytes)]
    assert sum(map(len, values)) == record.outcomes._value_bytes
