"""Carries out plans for the blocking client."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, TypeVar, assert_never

from phalanx.maps.call_plans import CallOwners, CallPlan, FindTable, Pause, RefreshTable

if TYPE_CHECKING:
    from phalanx.client.sync import Client

T = TypeVar("T")


def carry_out(plan: CallPlan[T], client: Client) -> T:
    """The result of a plan. Raises what the plan raises, and `UnavailableError` where no table is known in time."""
    outcome: Any = None
    while True:
        try:
            step = plan.send(outcome)
        except StopIteration as end:
            result: T = end.value
            return result
        if isinstance(step, CallOwners):
            outcome = client.call_all(step.requests, step.within_ms)
        elif isinstance(step, FindTable):
            outcome = client.partition_table()
        elif isinstance(step, RefreshTable):
            outcome = client.refresh(step.within_s)
        elif isinstance(step, Pause):
            time.sleep(step.seconds)
            outcome = None
        else:
            assert_never(step)
