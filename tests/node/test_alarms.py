"""A member knows when it acts next without asking its machines, and calls only those that are due."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from phalanx.common.errors import InvariantViolation
from phalanx.common.ids import NEVER, ClientId, Millis
from phalanx.machine.alarms import Alarm, Alarms
from phalanx.machine.inputs import Received
from phalanx.wire import messages as m
from support.harness import KEY, MAP, TEXT, Cluster

CALLER = ClientId("client/1")


class Machine:
    """It is due at a time, and does something then."""

    def __init__(self, name: str, rung: list[str], at: Millis | None = None, then: Callable[[], Any] = str) -> None:
        self.name, self.at, self.then = name, at, then
        self._rung = rung

    def next_deadline(self) -> Millis | None:
        return self.at

    def on_time(self, now: Millis) -> None:
        self._rung.append(self.name)
        self.at = None
        self.then()


def test_those_that_are_due_are_called_in_their_order_and_no_others() -> None:
    rung: list[str] = []
    board = Alarms(Alarm(Machine(name, rung, at)) for name, at in [("a", 9), ("b", 5), ("c", None), ("d", 5), ("e", 3)])
    assert board.earliest() == 3
    board.ring(5)
    assert rung == ["b", "d", "e"]
    assert board.earliest() == 9
    board.ring(9)
    assert (rung[3:], board.earliest()) == (["a"], None)


def test_what_one_brings_about_lets_those_behind_it_be_called_at_once_and_those_before_it_at_the_next_input() -> None:
    rung: list[str] = []
    first, last = Machine("first", rung), Machine("last", rung)

    def bring() -> None:
        first.at = last.at = 7

    board = Alarms([Alarm(first), Alarm(Machine("middle", rung, 7, bring), others_follow=True), Alarm(last)])
    board.ring(7)
    assert rung == ["middle", "last"]
    assert board.earliest() == 7
    board.ring(7)
    assert rung == ["middle", "last", "first"]


def test_the_earliest_is_right_whichever_moves() -> None:
    alarms = [Alarm(Machine(name, [])) for name in "abc"]
    board = Alarms(alarms)
    for number, at, earliest in [
        (0, 9, 9),
        (1, 4, 4),
        (2, 6, 4),
        (1, 20, 6),
        (2, NEVER, 9),
        (0, 30, 20),
        (1, 20, 20),
        (1, NEVER, 30),
    ]:
        alarms[number].set(at)
        assert board.next_at <= earliest, "never too late"
        assert board.earliest() == earliest


def test_an_alarm_that_was_forgotten_is_a_broken_invariant() -> None:
    machine = Machine("a", [])
    board = Alarms([Alarm(machine)])
    board.validate()
    machine.at = 5
    with pytest.raises(InvariantViolation, match="an alarm rings when its machine is due"):
        board.validate()


def asked(action: Callable[[], Any]) -> list[str]:
    """Return which machines are asked for their deadlines."""
    found: list[str] = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_name == "next_deadline":
            found.append(type(frame.f_locals["self"]).__name__)

    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(None)
    return found


def test_callers_cost_no_look_at_machines() -> None:
    """A put with a backup: the request, its write at the backup, and the acknowledgement."""
    c = Cluster("AB")
    c.assign(rows=["AB"])
    c.advance(100)
    owner, backup = c.nodes["A"], c.nodes["B"]
    assert asked(lambda: owner.handle(Received(CALLER, m.Put(1 << 40, MAP, KEY, TEXT, 0)), c.now)) == []
    owner.validate()
    replicated = m.ReplicatePut(0, owner.grid.ownership.all_owned()[0].replica.epoch, 1, MAP, [KEY], [TEXT], 0)
    assert asked(lambda: backup.handle(Received(owner.this, replicated), c.now)) == []
    acknowledged = m.ReplicateAck(0, replicated.epoch, 1)
    assert asked(lambda: owner.handle(Received(backup.this, acknowledged), c.now)) == []
    owner.validate()
    machines = {type(alarm.machine).__name__ for alarm in owner.alarms}
    assert machines.isdisjoint(asked(owner.next_deadline))
