"""The order of a connection's answers: what is under way for it, and what is to be sent.

Several requests are under way at once and are answered in any order; the client gets the answers in the order of its commands. Of one key
only one thing is under way at a time, so each command sees what those before it have done to its key. A plan of several requests is
alone.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

from phalanx.codec.values import to_data
from phalanx.common.errors import PhalanxError
from phalanx.endpoints.protocol import LARGE_REPLY_BYTES, Effect, GridAccess, Perform, SendBytes, SendRequest
from phalanx.endpoints.resp.answers import KeyCall, Outcome, error_of, evaluated
from phalanx.maps.call_plans import CallPlan

if TYPE_CHECKING:
    from phalanx.endpoints.resp.table import Command

MAX_UNDER_WAY: Final = 256
"""The most requests that are under way for one connection."""
FIRST_UNDER_WAY: Final = 16
"""How many may be under way before it is known how long answers are."""


class Slot:
    """The place of one answer that is still to come."""

    __slots__ = ("answer", "call", "what")

    def __init__(self, answer: bytes | None, what: str = "", call: KeyCall | None = None) -> None:
        """`what`: the command."""
        self.answer = answer
        self.what = what
        self.call = call


class AnswerOrder:
    """What is under way for one connection, and the effects that are to be returned next."""

    __slots__ = ("_busy", "_calls", "_grid", "_most", "_number", "_plan", "effects", "out", "out_bytes", "slots")

    def __init__(self, grid: GridAccess) -> None:
        self._grid = grid
        self.slots: deque[Slot] = deque()
        """The answers that are to come, in their order; the first one has not come. Empty: nothing is under way."""
        self._calls: dict[int, Slot] = {}
        """Number of a request to the place of its answer."""
        self._busy: set[bytes] = set()
        """The keys about which something is under way."""
        self._plan: tuple[int, CallPlan[bytes], Slot] | None = None
        """A plan under way: nothing else is."""
        self._most = FIRST_UNDER_WAY
        """How many requests may be under way now."""
        self._number = 0
        self.out: list[bytes] = []
        """Answers that are to be sent."""
        self.out_bytes = 0
        self.effects: list[Effect] = []
        """What is to be done before these are sent."""

    def __repr__(self) -> str:
        return f"AnswerOrder(under way={len(self._calls)}, plan={self._plan is not None})"

    # --- what begins ---------------------------------------------------------------------------------------------------------

    def may_begin(self, command: Command, args: list[bytes]) -> bool:
        """Return whether a command may begin while others are under way."""
        if self._plan is not None or len(self._calls) >= self._most:
            return False
        if command.is_of_connection:
            return True
        return command.is_of_one_key(args) and to_data(args[command.first_key]) not in self._busy

    def begin(self, outcome: Outcome, what: str) -> None:
        """Begin what a command comes to. `what`: its name."""
        if isinstance(outcome, bytes):
            if outcome:
                self.answer(outcome)
        elif isinstance(outcome, KeyCall):
            slot = Slot(None, what, outcome)
            self.slots.append(slot)
            self._busy.add(outcome.key)
            self._number += 1
            self._calls[self._number] = slot
            self.effects.append(
                SendRequest(self._number, outcome.partition(self._grid.partition_count), outcome.request)
            )
        else:
            slot = Slot(None, what)
            self.slots.append(slot)
            self._advance(outcome, slot, None)

    def answer(self, answer: bytes) -> None:
        """Answer the next command, behind those before it."""
        if self.slots:
            self.slots.append(Slot(answer))
        else:
            self.out.append(answer)
            self.out_bytes += len(answer)

    # --- what comes back -----------------------------------------------------------------------------------------------------

    def answered(self, number: int, outcome: Any) -> None:
        """Take the reply to a request, or the outcome of a step of a plan."""
        if self._plan is not None and self._plan[0] == number:
            _, plan, slot = self._plan
            self._plan = None
            self._advance(plan, slot, outcome)
        elif (slot_or_none := self._calls.pop(number, None)) is not None:
            call = slot_or_none.call
            if call is not None:
                self._busy.discard(call.key)
                slot_or_none.answer = answer = evaluated(self._grid, slot_or_none.what, call.answer, outcome)
                self._note_size(len(answer))
        self.settle()

    def _advance(self, plan: CallPlan[bytes], slot: Slot, outcome: Any) -> None:
        """Go on with a plan until it needs something, or is done."""
        try:
            step = plan.throw(outcome) if isinstance(outcome, PhalanxError) else plan.send(outcome)
        except StopIteration as end:
            slot.answer = end.value
        except Exception as failure:
            slot.answer = error_of(self._grid, slot.what, failure)
        else:
            self._number += 1
            self._plan = self._number, plan, slot
            self.effects.append(Perform(self._number, step))
            return
        self._note_size(len(slot.answer or b""))
        self.settle()

    def _note_size(self, size: int) -> None:
        """Choose how many requests may be under way: one while answers are long."""
        if size > LARGE_REPLY_BYTES:
            self._most = 1
        elif self._most < MAX_UNDER_WAY:
            self._most *= 2

    def settle(self) -> None:
        """Take the answers that have come, up to the first that has not, as those to be sent."""
        slots = self.slots
        while slots and (answer := slots[0].answer) is not None:
            slots.popleft()
            self.out.append(answer)
            self.out_bytes += len(answer)

    # --- what is returned ----------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Make one effect of the answers that are to be sent."""
        if self.out:
            self.effects.append(SendBytes(self.out[0] if len(self.out) == 1 else b"".join(self.out)))
            self.out.clear()
            self.out_bytes = 0

    def take(self) -> list[Effect]:
        """Return the effects, and have none from then on."""
        if self.out:
            self.flush()
        effects, self.effects = self.effects, []
        return effects

    def close(self) -> None:
        """End what is under way: nobody is there to be answered."""
        if self._plan is not None:
            self._plan[1].close()
            self._plan = None
