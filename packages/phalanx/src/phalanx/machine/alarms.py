"""When the machines of a member act by time alone: each has an alarm, and a member asks its board of alarms, not the
machines.

A machine computes in one place, `next_deadline`, when it is due; its alarm must say the same after each input. Machines
that take the requests and writes of callers set their alarm where their work changes, so that requests cost no look at
others. All other deadlines depend on what the machines share (the view, the table, suspicions): their alarms follow
once after each input that can have changed that. `Alarms.validate` checks that no change was missed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from phalanx.common.ids import NEVER, Millis
from phalanx.common.invariant import invariant


class Timed(Protocol):
    """A machine that acts by time alone."""

    def next_deadline(self) -> Millis | None:
        """Return when it acts next, by what it knows now; None: it does not."""
        ...

    def on_time(self, now: Millis) -> None:
        """Act, if it is time to."""
        ...


class Alarm:
    """When one machine is called next. An alarm on no board is never set: clients ask their calls for the deadline."""

    __slots__ = ("_board", "at", "machine", "others_follow")

    def __init__(self, machine: Timed, *, others_follow: bool = False) -> None:
        """`others_follow`: whether the machine can change the deadlines of others without their knowledge."""
        self.machine = machine
        self.others_follow = others_follow
        self._board: Alarms | None = None
        self.at: Millis = NEVER

    def __repr__(self) -> str:
        return f"Alarm({type(self.machine).__name__}, at={self.at})"

    def set(self, at: Millis) -> None:
        """Ring at this time; `NEVER`: not at all."""
        board = self._board
        if board is None or at == self.at:
            return
        if at < board.next_at:
            board.next_at = at
        elif self.at <= board.next_at:
            board.is_stale = True  # this one may have been the next
        self.at = at

    def follow(self) -> None:
        """Ring when the machine is due."""
        at = self.machine.next_deadline()
        self.set(at if at is not None else NEVER)

    def ring(self, now: Millis) -> None:
        """Call the machine."""
        self.machine.on_time(now)

    def put_on(self, board: Alarms) -> None:
        """Report to this board from now on when it rings."""
        self._board = board
        self.follow()


class Alarms:
    """The alarms of one member, in the order in which machines are called that are due at the same time."""

    def __init__(self, alarms: Iterable[Alarm]) -> None:
        self.next_at: Millis = NEVER
        """No alarm rings before this time."""
        self.is_stale = False
        """Whether the next one can ring later than that."""
        self._all = tuple(alarms)
        for alarm in self._all:
            alarm.put_on(self)

    def __iter__(self) -> Iterator[Alarm]:
        return iter(self._all)

    def earliest(self) -> Millis | None:
        """Return when the next alarm rings; None: none does."""
        if self.is_stale:
            self.is_stale = False
            self.next_at = min([alarm.at for alarm in self._all])
        return self.next_at if self.next_at != NEVER else None

    def ring(self, now: Millis) -> None:
        """Call the machines that are due, in order. One of them can make later ones due as well."""
        for alarm in self._all:
            if alarm.at <= now:
                alarm.ring(now)
                if alarm.others_follow:
                    self.follow()
                else:
                    alarm.follow()

    def follow(self) -> None:
        """Set all alarms to when their machines are due: `Alarm.follow` of each, written out for the sake of each input."""
        next_at = NEVER
        for alarm in self._all:
            due = alarm.machine.next_deadline()
            alarm.at = at = due if due is not None else NEVER
            if at < next_at:
                next_at = at
        self.next_at, self.is_stale = next_at, False

    def validate(self) -> None:
        """Raise `InvariantViolation` unless each alarm rings when its machine is due, and none before `earliest`."""
        known = [alarm.at for alarm in self._all]
        due = [alarm.machine.next_deadline() for alarm in self._all]
        is_right = known == [at if at is not None else NEVER for at in due]
        invariant(is_right, "an alarm rings when its machine is due", alarms=self._all, due=due)
        first = min(known)
        invariant(self.next_at <= first, "no alarm is overlooked", next_at=self.next_at, first=first)
