"""Carry out call plans for the blocking client, and define what plans and maps need of that client."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol, TypeVar, assert_never

from phalanx.common.errors import PhalanxError
from phalanx.common.ids import Lost, Millis
from phalanx.common.table import PartitionTable
from phalanx.maps.call_plans import CallOwners, CallPlan, FindTable, Pause, RefreshTable, RequestNumbers, Step

T = TypeVar("T")


class PlanClient(RequestNumbers, Protocol):
    """What plans, maps and journals need of a blocking client (`client.sync.Client`)."""

    @property
    def partition_count(self) -> int:
        """Return how many partitions the cluster has, by the newest table known."""

    @property
    def call(self) -> Callable[[int, Any], Any]:
        """Return a function of a partition and a request that asks the owner, and returns its reply."""

    def call_all(self, requests: list[tuple[int, Any]], within_ms: Millis = 0, lost: Lost = ()) -> list[Any]:
        """Send all requests to the owners of their partitions, and return the replies in the same order.

        `within_ms`: a shorter time limit than that of any call; 0: none. `lost`: as in `CallOwners`.
        """

    def partition_table(self) -> PartitionTable:
        """Return the newest partition table known."""

    def refresh(self, within_s: float | None = None) -> PartitionTable:
        """Ask a member for the table now."""

    def map_names(self, *, with_empty: bool = False) -> list[str]:
        """Return the names of the maps that have entries, sorted."""


def run_plan(plan: CallPlan[T], client: PlanClient) -> T:
    """Carry out a plan, and return its result. Raises the plan's errors, and `UnavailableError` without a table."""
    try:
        step = next(plan)
        while True:
            try:
                outcome = _perform_step(step, client)
            except PhalanxError as error:
                step = plan.throw(error)  # the plan knows what was done before
            else:
                step = plan.send(outcome)
    except StopIteration as end:
        result: T = end.value
        return result


def _perform_step(step: Step, client: PlanClient) -> Any:
    if isinstance(step, CallOwners):
        return client.call_all(step.requests, step.within_ms, step.lost)
    if isinstance(step, FindTable):
        return client.partition_table()
    if isinstance(step, RefreshTable):
        return client.refresh(step.within_s)
    if isinstance(step, Pause):
        time.sleep(step.seconds)
        return None
    assert_never(step)
