"""Requests of one connection that wait for outcomes: replies of owners, or steps of plans."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from phalanx.common.errors import PhalanxError
from phalanx.common.ids import MemberId
from phalanx.endpoints.hazelcast.frames import Message
from phalanx.endpoints.hazelcast.serving import Take
from phalanx.endpoints.protocol import Effect, Perform, SendRequest
from phalanx.maps.call_plans import CallPlan

MAX_UNDER_WAY: Final = 1_000
"""Requests of one connection that wait for owners; further ones are not read."""
MAX_UNDER_WAY_BYTES: Final = 8 * 1024 * 1024
"""Bytes of these requests."""


class UnderWay(msgspec.Struct, gc=False):
    """A request that waits for an outcome."""

    kind: int
    number: int
    take: Take
    size: int
    plan: CallPlan[Any] | None = None
    """The plan of which the outcome is a step's; None: it is a reply."""


class RequestsUnderWay:
    """The requests of one connection that wait, and what it wants of its driver."""

    def __init__(self) -> None:
        self.effects: list[Effect] = []
        """Of this turn."""
        self.message: Message = []
        """The request that is being begun."""
        self._size = 0
        """Bytes of the request that goes on, where none is being begun."""
        self._waiting: dict[int, UnderWay] = {}
        self._bytes = 0
        self._last = 0
        self.is_long = False
        """Whether the last answer was long: then one request is under way at a time, so that few such answers are in memory."""

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def size(self) -> int:
        """Return the bytes of the request that is being begun, or goes on."""
        return sum(map(len, self.message)) if self.message else self._size

    @property
    def is_full(self) -> bool:
        """Return whether no further request may be begun."""
        most = 1 if self.is_long else MAX_UNDER_WAY
        return len(self._waiting) >= most or self._bytes >= MAX_UNDER_WAY_BYTES

    def ask(self, partition: int, request: Any, kind: int, number: int, take: Take, to: MemberId | None = None) -> None:
        """Send a request to the owner of a partition, or to the member `to`. `take` makes the answer of its reply."""
        outcome = self._wait_for(UnderWay(kind, number, take, self.size))
        self.effects.append(SendRequest(outcome, partition, request, to))

    def perform(self, plan: CallPlan[Any], kind: int, number: int, take: Take, size: int | None = None) -> bytes | None:
        """Carry out a plan. `take` makes the answer of its result. Return the answer, None: it comes later. Raises the errors of the plan."""
        return self._advance(UnderWay(kind, number, take, self.size if size is None else size, plan), None)

    def ended(self, outcome_number: int, outcome: Any) -> tuple[UnderWay, Callable[[], bytes | None]]:
        """Return what waited for an outcome, and how its answer is made, or its next step taken."""
        under_way = self._waiting.pop(outcome_number)
        self._bytes -= under_way.size
        self.message, self._size = [], under_way.size
        if under_way.plan is not None:
            return under_way, lambda: self._advance(under_way, outcome)
        return under_way, lambda: under_way.take(under_way.kind, under_way.number, outcome)

    def forget(self) -> None:
        """Wait for nothing any more."""
        self._waiting.clear()

    def _wait_for(self, under_way: UnderWay) -> int:
        self._last += 1
        self._waiting[self._last] = under_way
        self._bytes += under_way.size
        return self._last

    def _advance(self, under_way: UnderWay, outcome: Any) -> bytes | None:
        """Take a plan one step further. Raises the errors of the plan."""
        plan = under_way.plan
        if plan is None:
            return None
        try:
            step = plan.throw(outcome) if isinstance(outcome, PhalanxError) else plan.send(outcome)
        except StopIteration as end:
            return under_way.take(under_way.kind, under_way.number, end.value)
        self.effects.append(Perform(self._wait_for(under_way), step))
        return None


def told(plan: CallPlan[Any]) -> CallPlan[Any]:
    """Return the result of a plan, or whatever it ends with."""
    try:
        return (yield from plan)
    except Exception as error:
        return error
