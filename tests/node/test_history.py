"""A member remembers its last decisions, and nothing else."""

import msgspec

from phalanx.common.ids import MemberId
from phalanx.node.history import History
from phalanx.wire.events import CopyGivenUp, MemberSuspected

A, B = MemberId("A:5701/1"), MemberId("B:5701/1")


def suspected(number: int) -> MemberSuspected:
    return MemberSuspected(B, f"reason {number}", "CS-33 silence")


def reasons(lines: list[bytes]) -> list[str]:
    return [msgspec.json.decode(line)["reason"] for line in lines]


def test_decisions_are_told_oldest_first_with_their_age() -> None:
    history = History()
    history.add([suspected(1)], 1_000)
    history.add([CopyGivenUp(1, A, B, "no rule"), suspected(2)], 1_500)
    ages, lines, forgotten = history.tell(2_000)
    assert (ages, reasons(lines), forgotten) == ([1_000, 500], ["reason 1", "reason 2"], 0)
    assert msgspec.json.decode(lines[0]) == {
        "event": "MemberSuspected", "suspect": B, "reason": "reason 1", "rule": "CS-33 silence",
    }  # fmt: skip


def test_the_oldest_are_forgotten_and_counted() -> None:
    history = History(limit=3)
    for number in range(5):
        history.add([suspected(number)], number)
    assert reasons(history.tell(9)[1]) == ["reason 2", "reason 3", "reason 4"]
    assert history.tell(9)[2] == 2


def test_an_answer_keeps_to_its_limit_and_drops_the_oldest() -> None:
    history = History()
    history.add([suspected(1), suspected(2), suspected(3)], 0)
    size = len(msgspec.json.encode(suspected(1)))
    ages, lines, forgotten = history.tell(7, most_bytes=2 * size)
    assert (ages, reasons(lines), forgotten) == ([7, 7], ["reason 2", "reason 3"], 1)
