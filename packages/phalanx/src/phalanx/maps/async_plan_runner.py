"""Carry out call plans for a program with an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, Protocol, TypeVar, assert_never

from phalanx.common.errors import PhalanxError
from phalanx.common.ids import Lost
from phalanx.common.table import PartitionTable
from phalanx.maps.call_plans import CallOwners, CallPlan, FindTable, Pause, RefreshTable, Step

T = TypeVar("T")


class Caller(Protocol):
    """Sends requests to owners: an asyncio client, or a member for its own program."""

    call_timeout_s: float
    open_from: int
    """The lowest number of a request that can be under way."""

    @property
    def partition_count(self) -> int:
        """Return the partition count of the newest table known."""

    def next_id(self) -> int:
        """Return the number of the next request. Requests are sent in the order of their numbers."""

    def call(self, partition: int, request: Any, *, within_ms: int = 0, lost: Lost = ()) -> Awaitable[Any]:
        """Send a request to the owner of the partition. Return its one reply, which can be an `ErrorReply`.

        `within_ms`: a time limit shorter than that of any call; 0: that of any call. `lost`: as in `CallOwners`.
        """

    async def table(self) -> PartitionTable:
        """Return the newest partition table known; wait for the first one. Raises `UnavailableError`."""

    async def refresh(self, within_s: float) -> None:
        """Look for a newer table, for at most `within_s` seconds."""


async def run_plan(plan: CallPlan[T], caller: Caller) -> T:
    """Carry out a plan, and return its result. Raises the plan's errors, and `UnavailableError` without a table."""
    try:
        step = next(plan)
        while True:
            try:
                outcome = await perform_step(step, caller)
            except PhalanxError as error:
                step = plan.throw(error)  # the plan knows what was done before
            else:
                step = plan.send(outcome)
    except StopIteration as end:
        result: T = end.value
        return result


async def perform_step(step: Step, caller: Caller) -> Any:
    """Carry out one step of a plan, and return its outcome. Raises `UnavailableError` if there is no table."""
    if isinstance(step, CallOwners):
        # All requests are sent before the first reply is awaited.
        calls = [caller.call(*each, within_ms=step.within_ms, lost=step.lost) for each in step.requests]
        return [await calls[0]] if len(calls) == 1 else await asyncio.gather(*calls)
    if isinstance(step, FindTable):
        return await caller.table()
    if isinstance(step, RefreshTable):
        await caller.refresh(step.within_s)
        return await caller.table()
    if isinstance(step, Pause):
        await asyncio.sleep(step.seconds)
        return None
    assert_never(step)
