"""The check of the ledger finds what is planted, and nothing where all is well."""

from typing import Any

import pytest

from phalanx_proof.chaos.checks import ChecksFound, check_ledger
from phalanx_proof.chaos.ledger import COUNTERS, LOCKED, REGISTERS, UNIQUE, Ledger, LedgerOutcome, LedgerWrite, Value

ACKNOWLEDGED, REFUSED = LedgerOutcome.ACKNOWLEDGED, LedgerOutcome.REFUSED
FAILED, INDETERMINATE = LedgerOutcome.FAILED, LedgerOutcome.INDETERMINATE


class Book:
    """A ledger and what is in the grid, each as a test says."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.entries: dict[str, dict[str, Value]] = {UNIQUE: {}, REGISTERS: {}, COUNTERS: {}, LOCKED: {}}
        self._at_s = 0.0

    def wrote(self, name: str, key: str, *writes: tuple[Value, LedgerOutcome]) -> None:
        for value, outcome in writes:
            self._at_s += 1
            self.ledger.note(name, key, LedgerWrite(0, value, outcome, self._at_s, self._at_s + 0.5))

    def holds(self, name: str, key: str, value: Value) -> None:
        self.entries[name][key] = value

    def judge(self, **changes: Any) -> list[str]:
        found = {
            name: ChecksFound(list(entries.items()), entries, len(entries)) for name, entries in self.entries.items()
        } | changes
        return [violation.what for violation in check_ledger(self.ledger, found)]


@pytest.fixture
def book() -> Book:
    """One in which everything holds."""
    made = Book()
    made.wrote(UNIQUE, "a", ("A", ACKNOWLEDGED))
    made.holds(UNIQUE, "a", "A")
    made.wrote(REGISTERS, "r", (1, ACKNOWLEDGED), (2, ACKNOWLEDGED))
    made.holds(REGISTERS, "r", 2)
    made.wrote(COUNTERS, "c", (1, ACKNOWLEDGED), (2, REFUSED), (2, ACKNOWLEDGED), (3, INDETERMINATE))
    made.holds(COUNTERS, "c", 3)
    assert made.judge() == []
    return made


def test_an_acknowledged_write_that_is_missing_is_found(book: Book) -> None:
    del book.entries[UNIQUE]["a"]
    assert book.judge() == ["an acknowledged write is missing"]


def test_a_violation_says_key_expected_found_and_when() -> None:
    book = Book()
    book.wrote(REGISTERS, "r", (1, ACKNOWLEDGED), (2, ACKNOWLEDGED), (3, INDETERMINATE), (4, FAILED))
    book.holds(REGISTERS, "r", 1)
    found = {name: ChecksFound(list(each.items()), each, len(each)) for name, each in book.entries.items()}
    [violation] = check_ledger(book.ledger, found)
    assert violation.what == "an acknowledged write was undone"
    assert (violation.map, violation.key) == (REGISTERS, "r")
    assert (violation.expected, violation.found) == ("2 or 3", "1")
    assert violation.between_s == (2.0, 4.5)


@pytest.mark.parametrize(
    ("writes", "allowed"),
    [
        ([(1, ACKNOWLEDGED)], {1}),
        ([(1, INDETERMINATE)], {None, 1}),
        ([(1, FAILED)], {None}),
        ([(1, ACKNOWLEDGED), (2, FAILED)], {1}),
        ([(1, ACKNOWLEDGED), (2, INDETERMINATE), (3, INDETERMINATE)], {1, 2, 3}),
        ([(1, INDETERMINATE), (2, ACKNOWLEDGED)], {2}),
        ([(1, ACKNOWLEDGED), (None, ACKNOWLEDGED)], {None}),
        ([(1, ACKNOWLEDGED), (None, INDETERMINATE)], {None, 1}),
        ([(1, ACKNOWLEDGED), (None, ACKNOWLEDGED), (2, INDETERMINATE)], {None, 2}),
        ([(None, INDETERMINATE), (1, INDETERMINATE)], {None, 1}),
    ],
)
def test_a_register_has_the_last_acknowledged_value_or_a_later_indeterminate_one(
    writes: list[tuple[Value, LedgerOutcome]], allowed: set[Value]
) -> None:
    for value in (None, 1, 2, 3, 99):
        book = Book()
        book.wrote(REGISTERS, "r", *writes)
        if value is not None:
            book.holds(REGISTERS, "r", value)
        assert (book.judge() == []) is (value in allowed), value


def test_what_is_wrong_with_a_register_is_named() -> None:
    def judged(value: Value, *writes: tuple[Value, LedgerOutcome]) -> list[str]:
        book = Book()
        book.wrote(REGISTERS, "r", *writes)
        if value is not None:
            book.holds(REGISTERS, "r", value)
        return book.judge()

    assert judged(None, (1, ACKNOWLEDGED)) == ["an acknowledged write is missing"]
    assert judged(9, (1, ACKNOWLEDGED)) == ["a value that nobody wrote"]
    assert judged(1, (1, FAILED)) == ["a write that failed was done"]
    assert judged(1, (1, ACKNOWLEDGED), (None, ACKNOWLEDGED)) == ["what was removed is there"]
    assert judged(1, (1, ACKNOWLEDGED), (2, ACKNOWLEDGED)) == ["an acknowledged write was undone"]


def test_a_double_increment_is_found(book: Book) -> None:
    book.entries[COUNTERS]["c"] = 4
    assert book.judge() == ["increments were done twice"]


def test_a_lost_increment_is_found(book: Book) -> None:
    book.entries[COUNTERS]["c"] = 1
    assert book.judge() == ["acknowledged increments are missing"]
    del book.entries[COUNTERS]["c"]
    assert book.judge() == ["acknowledged increments are missing"]


def test_an_increment_that_was_lost_and_made_again_is_found_although_the_sum_is_right() -> None:
    book = Book()
    book.wrote(COUNTERS, "c", (1, ACKNOWLEDGED), (2, ACKNOWLEDGED), (3, INDETERMINATE), (2, ACKNOWLEDGED))
    book.holds(COUNTERS, "c", 3)
    assert book.judge() == ["one number was reached by two acknowledged increments"]


def test_a_key_that_is_written_once_and_was_there_before_is_found() -> None:
    book = Book()
    book.wrote(UNIQUE, "a", ("A", REFUSED))
    book.holds(UNIQUE, "a", "A")
    assert book.judge() == ["something was there before the only writer wrote it"]


def test_a_key_that_nobody_wrote_is_found(book: Book) -> None:
    book.holds(UNIQUE, "ghost", "boo")
    assert book.judge() == ["a key that nobody wrote"]


def test_a_scan_a_look_up_and_the_size_must_agree(book: Book) -> None:
    entries = book.entries[REGISTERS]
    assert book.judge(registers=ChecksFound([], entries, 1)) == [
        "a scan and a look-up differ", "the size of map registers is 1, but 0 keys are in it",
    ]  # fmt: skip
    assert book.judge(registers=ChecksFound([("r", 1)], entries, 1)) == ["a scan and a look-up differ"]
    assert book.judge(registers=ChecksFound([("r", 2), ("r", 2)], entries, 1)) == ["a scan returned a key twice"]
    assert book.judge(registers=ChecksFound([("r", 2)], entries, 2)) == [
        "the size of map registers is 2, but 1 keys are in it"
    ]


def test_the_ledger_counts_outcomes_and_keeps_the_longest_wait_of_each_writer() -> None:
    ledger = Ledger()
    ledger.note(UNIQUE, "a", LedgerWrite(0, "A", ACKNOWLEDGED, 1.0, 1.5))
    ledger.note(UNIQUE, "b", LedgerWrite(0, "B", INDETERMINATE, 2.0, 5.0))
    ledger.note(UNIQUE, "c", LedgerWrite(1, "C", ACKNOWLEDGED, 3.0, 3.1))
    assert ledger.operations == 3
    assert ledger.outcomes == {"acknowledged": 2, "indeterminate": 1}
    assert {writer: write.value for writer, write in ledger.longest.items()} == {0: "B", 1: "C"}


def test_two_who_held_one_lock_at_a_time_are_found(book: Book) -> None:
    book.wrote(LOCKED, "l", (1, ACKNOWLEDGED), (2, ACKNOWLEDGED), (3, REFUSED), (3, ACKNOWLEDGED))
    book.holds(LOCKED, "l", 3)
    assert book.judge() == []
    book.wrote(LOCKED, "l", (3, ACKNOWLEDGED))
    assert set(book.judge()) == {
        "acknowledged increments are missing",
        "one number was reached by two acknowledged increments",
    }
