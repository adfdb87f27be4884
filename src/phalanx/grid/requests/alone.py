"""Writes that no other member has to know of, done at once: what the embedding program and clients of other systems send to a key that
this member owns, where it has no backup.

Each does nothing, and says so, where anything else would be due: then a request takes the usual way (`requests.single`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from phalanx.common.clock import STAMP_BYTES
from phalanx.common.ids import Millis
from phalanx.grid.serving.update_results import Effect, Updated, UpdateRefused
from phalanx.grid.serving.updates import apply_function

if TYPE_CHECKING:
    from phalanx.grid.service import GridService


def put_alone(grid: GridService, partition: int, name: str, key: bytes, value: bytes, now: Millis) -> bool:
    """Store a value, if no other member has to know of it.

    Returns False, and does nothing, if this member does not own the partition, there is a backup, requests are
    waiting, a limit is exceeded, or the map is protected or may be bounded. The caller sees to the memory.
    """
    owned = grid.owned[partition]
    if (
        owned is None
        or owned.streams
        or grid.parked.released
        or grid.evictor.is_on
        or grid.any_idle
        or grid.guard.watches(name)
        or (len(owned.replica.maps) >= grid.config.max_maps and name not in owned.replica.maps)
        or len(key) > grid.max_key
        or len(value) > grid.max_value
    ):
        return False
    grid.traffic.last_at = now
    owned.put_without_backups(name, key, grid.clock.stamped(value, now), now)
    return True


def update_alone(
    grid: GridService, partition: int, name: str, key: bytes, function: str, arguments: list[bytes], now: Millis
) -> Updated | None:
    """Let a function change a value, if no other member has to know of it, and return what it made of it.

    Returns None, and changes nothing, where `put_alone` would; also if the map has entries that expire, and if the
    function removes the key or refuses: the usual way does that.
    """
    owned = grid.owned[partition]
    if owned is None or owned.streams or grid.parked.released or grid.evictor.is_on or grid.guard.watches(name):
        return None
    if grid.any_idle:
        return None
    store = owned.replica.maps.get(name)
    if store is None or store.expires_at or len(key) > grid.max_key:
        return None
    stored = store.entries.get(key)
    try:
        present = None if stored is None else stored[STAMP_BYTES:]
        is_json = grid.has_json_dicts(name)
        made = apply_function(grid.functions, function, present, arguments, json_dicts=is_json)
    except UpdateRefused:
        return None
    then = made.then
    if isinstance(then, bytes):
        if len(then) > grid.max_value:
            return None
        grid.traffic.last_at = now
        owned.put_without_backups(name, key, grid.clock.stamped(then, now), now)
    return made if then is not Effect.REMOVED else None
