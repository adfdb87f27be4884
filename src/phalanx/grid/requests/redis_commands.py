"""Commands of Redis clients on strings that are here, carried out in one loop from the bytes that the client sent.

A function in Python would be no faster than commands that are carried out one by one (`endpoints.resp`): so there is only the
compiled twin, and without it nothing is done here. It does what those commands do, and nothing for which another member would
have to be told or asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from phalanx.codec import compiled
from phalanx.codec.hashing import HASH_SEED
from phalanx.common.ids import Millis
from phalanx.grid.replica.map_store import MapStore
from phalanx.grid.replica.replica import Replica
from phalanx.grid.replication.owned_partition import OwnedPartition

if TYPE_CHECKING:
    from phalanx.grid.service import GridService

TWINS = compiled.TWINS.Commands(OwnedPartition, Replica, MapStore) if compiled.TWINS is not None else None


CarriedOut: TypeAlias = tuple[int, bytes, int, int, int, int]
"""What became of the first commands in some bytes: where the first one begins that was not carried out; the answers; how many GET, SET
and INCR there were; which of these the last one was (0, 1 or 2)."""


def carry_out(
    grid: GridService,
    name: str,
    data: bytes,
    start: int,
    most: int,
    most_bytes: int,
    nil: bytes,
    now: Millis,
    *,
    may_write: bool,
) -> CarriedOut | None:
    """Carry out the first commands from `start` on, at most so many, up to `most_bytes` of answers or one that needs more.

    Returns None if nothing may be done so. `nil`: the answer of a key without a value. `may_write`: whether there is memory that
    needs not be counted.
    """
    if TWINS is None or grid.counts_reads or grid.guard.watches(name):
        return None
    may_write = may_write and not (grid.parked.released or grid.evictor.is_on or grid.any_idle)
    stamp = grid.clock.next(now) if may_write else 0
    done = TWINS.carry_out(
        grid.owned, name, data, start, most, most_bytes, nil, now, stamp, may_write, grid.max_key, grid.max_value, HASH_SEED
    )  # fmt: skip
    written = done[3] + done[4]
    if written:
        grid.clock.gave(stamp + written - 1)
        grid.traffic.last_at = now
    return done
