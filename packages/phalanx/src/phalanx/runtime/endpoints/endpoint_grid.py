"""What a member lends to its endpoints (`endpoints.protocol.GridAccess`), and how what they ask for is carried out."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from contextvars import Context
from random import Random
from typing import TYPE_CHECKING, Any

from phalanx.common.errors import PhalanxError
from phalanx.common.ids import MemberId
from phalanx.common.table import PartitionTable
from phalanx.common.view import MembersView
from phalanx.endpoints.protocol import TURN_S
from phalanx.machine.inputs import Call
from phalanx.maps.async_plan_runner import Caller, perform_step
from phalanx.maps.call_plans import Step
from phalanx.node.local_access import LocalAccess
from phalanx.runtime.connections.inbound import SHORT_FUNCTIONS
from phalanx.runtime.local.embedded import EmbeddedCaller
from phalanx.wire.messages import Reply, UpdateValue

if TYPE_CHECKING:
    from phalanx.node.node import Node


class ReplyTo:
    """Takes one reply in the place of a future: nothing else is made for a request."""

    __slots__ = ("_take",)

    def __init__(self, take: Callable[[Reply], None]) -> None:
        self._take = take

    def done(self) -> bool:
        return False

    def set_result(self, reply: Reply) -> None:
        self._take(reply)


class MemberGrid:
    """The grid as the endpoints of a member use it."""

    def __init__(
        self,
        caller: EmbeddedCaller,
        max_frame_bytes: int,
        max_answer_bytes: int,
        failed: Callable[[str, Exception], None] = lambda what, error: None,
        local: LocalAccess | None = None,
    ) -> None:
        """`local`: what is done here at once; None: as by the caller."""
        self._caller = caller
        self.local = caller.lend(local if local is not None else caller.local.with_held_answers())
        self._tell_failed = failed
        self._plan_caller: Caller = caller
        """Sends the requests of plans."""
        self.max_frame_bytes = max_frame_bytes
        self.max_answer_bytes = max_answer_bytes
        self.call_timeout_s = caller.call_timeout_s
        self.next_id = caller.next_id
        self.clock_s = time.monotonic
        self._random = Random()
        self._long_ones: deque[tuple[Call, ReplyTo]] = deque()
        """Requests that wait for their turn, because functions can take long."""
        self._goes_on = False
        """Whether some were sent in this turn."""
        self._steps: set[asyncio.Task[None]] = set()
        """Steps of plans under way."""

    @property
    def open_from(self) -> int:
        return self._caller.open_from

    @property
    def partition_count(self) -> int:
        return self._caller.partition_count

    @property
    def _node(self) -> Node | None:
        return self._caller.node

    @property
    def member(self) -> MemberId:
        node = self._node
        return node.this if node is not None else MemberId("")

    @property
    def view(self) -> MembersView | None:
        node = self._node
        return node.membership.view if node is not None else None

    @property
    def table(self) -> PartitionTable | None:
        node = self._node
        return node.installed_table.table if node is not None and node.installed_table.is_assigned else None

    def wall_ms(self) -> int:
        return int(time.time() * 1000)

    def draw(self, below: int) -> int:
        return self._random.randrange(below)

    def failed(self, what: str, error: Exception) -> None:
        if (node := self._node) is not None:
            node.grid.evaluator.failed["EndpointCommand"] += 1
        self._tell_failed(what, error)

    # --- what is carried out for a machine ---------------------------------------------------------------------------

    def ask(self, partition: int, request: Any, take: Callable[[Reply], None], to: MemberId | None = None) -> None:
        """Send a request to the owner of a partition, or to the member `to`; `take` gets its one reply, perhaps before this returns. A
        function that can take long waits for a turn in which those before it have not used up the share of time."""
        if type(request) is UpdateValue and request.function not in SHORT_FUNCTIONS:
            self._long_ones.append((Call(partition, request, to), ReplyTo(take)))
            if not self._goes_on:
                self._ask_long_ones()
        else:
            self._caller.ask(Call(partition, request, to), ReplyTo(take))

    def _ask_long_ones(self) -> None:
        """Send requests that can take long, until the share of time is used up; the others in the next turn."""
        until_s = self.clock_s() + TURN_S
        self._goes_on = True
        while self._long_ones and self.clock_s() < until_s:
            self._caller.ask(*self._long_ones.popleft())
        asyncio.get_running_loop().call_soon(self._next_turn, context=Context())

    def _next_turn(self) -> None:
        self._goes_on = False
        if self._long_ones:
            self._ask_long_ones()

    def perform(self, step: Step, take: Callable[[Any], None]) -> None:
        """Carry out a step of a plan; `take` gets its outcome, or the `PhalanxError` that it ended with."""
        task = asyncio.get_running_loop().create_task(self._perform(step, take))
        self._steps.add(task)
        task.add_done_callback(self._steps.discard)

    async def _perform(self, step: Step, take: Callable[[Any], None]) -> None:
        try:
            outcome = await perform_step(step, self._plan_caller)
        except PhalanxError as error:
            outcome = error
        take(outcome)
