"""Histories in which journals are written, copied and read while members crash, hang, come and go, and are cut off."""

import pytest

from phalanx.wire.messages import JournalReply
from phalanx_proof.sim.checkers.findings import Findings
from phalanx_proof.sim.checkers.journal_checker import EventRun, JournalChecker
from phalanx_proof.sim.history.operations import Operation, Outcome
from phalanx_proof.sim.options import Profile
from planted_bugs.journals import JOURNAL_CANARIES
from support.histories import blocks, count_all, play_all
from support.planted import assert_found

WHERE = ("m", 0, 7)
KEY, V, W = b"\xff\xff\xff\xf5r1", b"v", b"w"


@pytest.mark.parametrize("block", blocks(4, in_brief=(2,)))
def test_readers_get_each_event_once_and_in_order_whatever_breaks(block: int) -> None:
    counts = count_all(range(6 * block, 6 * block + 6), Profile.JOURNAL)
    assert counts["events read"] > 1_000


def test_a_member_may_run_out_of_memory_with_a_write_of_the_readers_program() -> None:
    play_all(range(76, 77), Profile.JOURNAL)


@pytest.mark.long
@pytest.mark.parametrize("block", range(20))
def test_the_same_in_many_more_histories(block: int) -> None:
    play_all(range(1_000 + 20 * block, 1_020 + 20 * block), Profile.JOURNAL)


FOUND_BY = {
    "tell-unconfirmed-events": "a position in a journal stays one",
    "ask-no-lineage": "an event says what was there before",
    "copy-without-journals": "journals are equal at rest",
}


def test_every_bug_of_journals_has_an_expectation() -> None:
    assert set(FOUND_BY) == set(JOURNAL_CANARIES)


@pytest.mark.parametrize("canary", FOUND_BY)
def test_bugs_of_journals_are_found(canary: str) -> None:
    assert_found(canary, Profile.JOURNAL, range(120), {FOUND_BY[canary]})


# --- the checker itself ---------------------------------------------------------------------------------------------


def reply(sequence: int, *events: tuple[int, bytes | None, bytes | None], lineage: int = 7) -> JournalReply:
    kinds, values, olds = ([event[index] for event in events] for index in range(3))
    count = len(events)
    return JournalReply(1, lineage, 0, 100, 100, sequence, kinds, [KEY] * count, values, olds, [5] * count)  # type: ignore[arg-type]


def found_in(*replies: JournalReply, entries: dict[bytes, bytes] | None = None, asked: int | None = None) -> list[str]:
    findings = Findings()
    checker, run = JournalChecker(findings), EventRun(0, from_beginning=True)
    for each in replies:
        checker.on_events(WHERE, run, each.sequence if asked is None else asked, each, 1)
    if entries is not None:
        checker.check_content(WHERE, run, entries, 1)
    return [violation.what for violation in findings.violations]


def test_what_is_right_is_not_held_against_anybody() -> None:
    added, updated, removed = (1, V, None), (2, W, V), (3, None, W)
    assert found_in(reply(0, added, updated), reply(2, removed), entries={}) == []
    assert found_in(reply(0, added, updated), entries={KEY: W}) == []


@pytest.mark.parametrize(
    ("replies", "entries", "what"),
    [
        ([reply(1, (1, V, None))], None, "events come in their order"),
        ([reply(0, (1, V, None)), reply(0, (1, V, None))], None, "events come in their order"),
        ([reply(0, (2, W, V))], {KEY: W}, "an event says what was there before"),
        ([reply(0, (1, V, None), (1, W, None))], {KEY: W}, "an event says what was there before"),
        ([reply(0, (1, None, None))], {}, "an event says what was there before"),
        ([reply(0, (1, V, None))], {KEY: W}, "the events of a key lead to what it has"),
        ([reply(0, (1, V, None))], {KEY: V, b"other": V}, "the events of a key lead to what it has"),
    ],
)
def test_what_is_wrong_is_found(replies: list[JournalReply], entries: dict[bytes, bytes] | None, what: str) -> None:
    assert what in found_in(*replies, entries=entries)


def test_an_event_that_changes_is_found() -> None:
    findings = Findings()
    checker = JournalChecker(findings)
    checker.on_events(WHERE, EventRun(0, from_beginning=True), 0, reply(0, (1, V, None)), 1)
    checker.on_events(WHERE, EventRun(0, from_beginning=True), 0, reply(0, (1, V, None)), 1)
    checker.on_events(WHERE, EventRun(0, from_beginning=True), 0, reply(0, (1, W, None), lineage=8), 1)
    assert findings.violations == []
    checker.on_events(WHERE, EventRun(0, from_beginning=True), 0, reply(0, (1, W, None)), 1)
    assert [violation.what for violation in findings.violations] == ["an event stays what it was"]


@pytest.mark.parametrize(
    ("outcome", "events", "is_wrong"),
    [
        (Outcome.OK, 1, False),
        (Outcome.OK, 0, True),
        (Outcome.OK, 2, True),
        (Outcome.INDETERMINATE, 0, False),
        (Outcome.INDETERMINATE, 1, False),
        (Outcome.INDETERMINATE, 2, True),
        (Outcome.FAILED, 0, False),
        (Outcome.FAILED, 1, True),
    ],
)
def test_a_write_is_one_event(outcome: Outcome, events: int, is_wrong: bool) -> None:
    findings = Findings()
    run = EventRun(0, from_beginning=True)
    run.events = [(1, KEY, V, None, 5)] * events
    operation = Operation(1, "put", 0, "A", (KEY,), 1)  # type: ignore[arg-type]  # any text names a member
    operation.values, operation.outcome = (V,), outcome
    JournalChecker(findings).check_writes({KEY: run}, [operation], lambda key, each: False, 1)
    assert [violation.what for violation in findings.violations] == (["a write is one event"] if is_wrong else [])
