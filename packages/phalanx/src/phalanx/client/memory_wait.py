"""Wait while members have no memory for what a job writes: others can remove entries meanwhile, or members can join."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from phalanx.common.errors import GridFull, IndeterminateWrite
from phalanx.maps.time_limit import TimeLimit

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 2.0

R = TypeVar("R")


def wait_for_memory(
    write: Callable[[], R],
    within_s: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> R:
    """Do a write that can be done twice. While members refuse it for want of memory, do it again, for `within_s` seconds.

    Of a write to several members some parts can be done, and others refused: then its outcome is unknown, and it is done
    again, too. Raises the last error when the time is over.
    """
    limit, pause_s = TimeLimit(within_s, clock), FIRST_PAUSE_S
    while True:
        try:
            return write()
        except (GridFull, IndeterminateWrite) as error:
            if limit.is_over or error.ended_members:
                raise
        sleep(min(pause_s, limit.left_s))
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
