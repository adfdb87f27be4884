"""The order of a connection's answers: what is under way for it, and what is to be sent.

Several requests are under way at once and are answered in any order; the client gets the answers in the order of its commands. Of one key
only one thing is under way at a time, so each command sees what those before it have done to its key. A plan of several requests is
alone.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from phalanx.codec.values import to_data
from phalanx.common.errors import PhalanxError
from phalanx.endpoints.protocol import Effect, GridAccess, Perform, SendBytes, SendRequest
from phalanx.maps.call_plans import CallPlan
from phalanx_protocols.resp.answers import KeyCall, Outcome, error_of, evaluated
from phalanx_protocols.windows import Window

if TYPE_CHECKING:
    from phalanx_protocols.resp.table import Command


class Slot:
    """The place of one answer that is still to come."""

    __slots__ = ("answer", "call", "what")

    def __init__(self, answer: bytes | None, what: str = "", call: KeyCall | None = None) -> None:
        """Keep a place for the answer to the command `what`."""
        self.answer = answer
        self.what = what
        self.call = call


class AnswerOrder:
    """What is under way for one connection, and the effects that are to be returned next."""

    __slots__ = ("_busy", "_calls", "_grid", "_number", "_plans", "_window", "effects", "out", "out_bytes", "slots")

    def __init__(self, grid: GridAccess) -> None:
        self._grid = grid
        self.slots: deque[Slot] = deque()
        """The answers that are to come, in their order; the first one has not come. Empty: nothing is under way."""
        self._calls: dict[int, Slot] = {}
        """Number of a request to the place of its answer."""
        self._busy: set[bytes] = set()
        """The keys about which something is under way."""
        self._plans: dict[int, tuple[CallPlan[bytes], Slot]] = {}
        """Number of a step to the plan that waits for it. While there is one nothing else begins."""
        self._window = Window()
        self._number = 0
        self.out: list[bytes] = []
        """Answers that are to be sent."""
        self.out_bytes = 0
        self.effects: list[Effect] = []
        """What is to be done before these are sent."""

    def __repr__(self) -> str:
        return f"AnswerOrder(under way={len(self._calls)}, plans={len(self._plans)})"

    # --- what begins ---------------------------------------------------------------------------------------------------------

    def may_begin(self, command: Command, args: list[bytes]) -> bool:
        """Return whether a command can begin while others are under way."""
        if self._plans or len(self._calls) >= self._window.most:
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
            self.effects.append(SendRequest(self._number, outcome.partition(self._grid.local), outcome.request))
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
        if (waiting := self._plans.pop(number, None)) is not None:
            self._advance(*waiting, outcome)
        elif (slot_or_none := self._calls.pop(number, None)) is not None:
            call = slot_or_none.call
            if call is not None:
                self._busy.discard(call.key)
                answer = evaluated(self._grid, slot_or_none.what, call.answer, outcome)
                if isinstance(answer, bytes):
                    slot_or_none.answer = answer
                    self._window.note(len(answer))
                else:
                    self._advance(answer, slot_or_none, None)
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
            self._plans[self._number] = plan, slot
            self.effects.append(Perform(self._number, step))
            return
        self._window.note(len(slot.answer or b""))
        self.settle()

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
        for plan, _ in self._plans.values():
            plan.close()
        self._plans.clear()
