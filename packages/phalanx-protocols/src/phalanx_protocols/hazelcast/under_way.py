"""Requests of one connection that wait for outcomes: replies of owners, or steps of plans.

Those that wait for another client, which is to release a lock, are counted apart: they must not keep the release of that lock from
being read, because it can come on this connection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from phalanx.common.errors import PhalanxError
from phalanx.common.ids import MemberId
from phalanx.endpoints.protocol import Effect, Perform, SendRequest
from phalanx.maps.call_plans import CallPlan
from phalanx.maps.requests import SCAN_PAGE_BYTES
from phalanx_protocols.hazelcast.errors import Code, RefusedCall
from phalanx_protocols.hazelcast.frames import Message
from phalanx_protocols.hazelcast.serving import Take
from phalanx_protocols.windows import Window

MAX_UNDER_WAY_BYTES: Final = 8 * 1024 * 1024
"""Bytes of the requests of one connection that are under way, with what their plans hold; further ones are not read."""
PLAN_BYTES: Final = 64 * 1024
"""What a plan holds meanwhile, about: the requests for all partitions, and their replies."""
READING_PLAN_BYTES: Final = PLAN_BYTES + SCAN_PAGE_BYTES
"""The same of one that reads many values."""
MAX_WAITING: Final = 1_000
"""Requests of one connection that wait for locks; further ones are refused."""


class UnderWay(msgspec.Struct, gc=False):
    """A request that waits for an outcome."""

    kind: int
    number: int
    take: Take
    size: int
    """Bytes of the request."""
    plan: CallPlan[Any] | None = None
    """The plan of which the outcome is a step's; None: it is a reply."""
    held: int = 0
    """Bytes that the plan holds meanwhile, about."""
    is_waiting: bool = False
    """Whether another client must do something first."""


class RequestsUnderWay:
    """The requests of one connection that wait, and what it wants of its driver."""

    def __init__(self) -> None:
        self.effects: list[Effect] = []
        """Of this turn."""
        self.message: Message = []
        """The request that is being begun."""
        self._size = 0
        """Bytes of the request that goes on, where none is being begun."""
        self._requests: dict[int, UnderWay] = {}
        self._bytes = 0
        self._waiting = 0
        """Those of the requests that wait for another client."""
        self._waiting_bytes = 0
        self._last = 0
        self.window = Window()
        """How many can be under way that wait for no other client."""

    def __len__(self) -> int:
        return len(self._requests)

    @property
    def size(self) -> int:
        """Return the bytes of the request that is being begun, or goes on."""
        return sum(map(len, self.message)) if self.message else self._size

    @property
    def is_full(self) -> bool:
        """Return whether no further request can be begun."""
        return len(self._requests) - self._waiting >= self.window.most or self._bytes >= MAX_UNDER_WAY_BYTES

    def ask(
        self,
        partition: int,
        request: Any,
        kind: int,
        number: int,
        take: Take,
        to: MemberId | None = None,
        *,
        is_waiting: bool = False,
    ) -> None:
        """Send a request to the owner of a partition, or to the member `to`. `take` makes the answer of its reply.

        `is_waiting`: it is answered when another client does something. Raises `RefusedCall` if too many wait for that already.
        """
        if is_waiting and (self._waiting >= MAX_WAITING or self._waiting_bytes >= MAX_UNDER_WAY_BYTES):
            text = f"{self._waiting} requests of this connection wait for locks: ask again when some have been answered"
            raise RefusedCall(Code.RETRYABLE, text)
        outcome = self._wait_for(UnderWay(kind, number, take, self.size, is_waiting=is_waiting))
        self.effects.append(SendRequest(outcome, partition, request, to))

    def perform(self, plan: CallPlan[Any], kind: int, number: int, take: Take, held: int = PLAN_BYTES) -> bytes | None:
        """Carry out a plan. `take` makes the answer of its result. `held`: how many bytes it holds meanwhile, about.

        Return the answer, None: it comes later. Raises the errors of the plan.
        """
        return self._advance(UnderWay(kind, number, take, self.size, plan, held), None)

    def ended(self, outcome_number: int, outcome: Any) -> tuple[UnderWay, Callable[[], bytes | None]]:
        """Return what waited for an outcome, and how its answer is made, or its next step taken."""
        under_way = self._requests.pop(outcome_number)
        self._count(under_way, -1)
        self.message, self._size = [], under_way.size
        if under_way.plan is not None:
            return under_way, lambda: self._advance(under_way, outcome)
        return under_way, lambda: under_way.take(under_way.kind, under_way.number, outcome)

    def forget(self) -> None:
        """Wait for nothing any more."""
        self._requests.clear()

    def _wait_for(self, under_way: UnderWay) -> int:
        self._last += 1
        self._requests[self._last] = under_way
        self._count(under_way, 1)
        return self._last

    def _count(self, under_way: UnderWay, by: int) -> None:
        if under_way.is_waiting:
            self._waiting += by
            self._waiting_bytes += by * under_way.size
        else:
            self._bytes += by * (under_way.size + under_way.held)

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


def result_or_error(plan: CallPlan[Any]) -> CallPlan[Any]:
    """Return the result of a plan, or the error that ends it."""
    try:
        return (yield from plan)
    except Exception as error:
        return error
