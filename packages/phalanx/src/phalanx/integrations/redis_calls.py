"""What sites know of django-redis beside Django's own calls: the time that is left, locks, and removal by a pattern."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from phalanx.common.durations import Duration
from phalanx.maps.glob import Pattern
from phalanx.maps.locks import LEASE_S

if TYPE_CHECKING:
    from phalanx.client.blocking.sync_locks import SyncLock
    from phalanx.client.blocking.sync_map import SyncMap


def seconds_left(entries: SyncMap[str, Any], key: str) -> int | None:
    """Return how many seconds the entry lives, rounded up; None: without end; 0: there is none."""
    try:
        left_s = entries.time_to_live(key)
    except KeyError:
        return 0
    return None if left_s is None else math.ceil(left_s)


def lock_of(
    entries: SyncMap[str, Any], key: str, timeout: Duration | None, blocking_timeout: Duration | None
) -> SyncLock:
    """Return the lock of a key. `timeout`: seconds after which it is free when its holder was not heard of; None: `LEASE_S`.
    `blocking_timeout`: seconds to wait for it; None: without end. Raises `UsageError`."""
    return entries.lock(key, lease=LEASE_S if timeout is None else timeout, wait=blocking_timeout)


def remove_matching(entries: SyncMap[str, Any], pattern: str) -> int:
    """Remove the entries whose key fits a pattern of Redis (`*`, `?`, `[ab]`), and return how many there were. All keys of the map
    are read for that. Raises `UsageError` for a pattern that is too long, or takes too long."""
    removed, wanted = 0, Pattern(pattern.encode())
    for key in entries:
        if isinstance(key, str) and wanted.matches(key.encode()):
            removed += entries.remove(key) is not None
    return removed


def escaped(text: str) -> str:
    """Return a pattern that fits this text alone."""
    return "".join(f"\\{each}" if each in "*?[]\\^-" else each for each in text)
