"""The handlers of requests for locks and semaphores, and of writes with a fencing token, at the owner of their key."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from phalanx.codec.hashing import TYPE_ID_BYTES
from phalanx.common.errors import ErrorCode
from phalanx.common.hidden_maps import is_hidden, lock_map
from phalanx.common.ids import Millis, Target
from phalanx.common.map_settings import MAX_MAP_NAME_LENGTH
from phalanx.grid.replica.lock_state import Fencing
from phalanx.grid.replication.owned_partition import OwnedPartition
from phalanx.grid.serving.admission import begins_too_many
from phalanx.grid.serving.idempotency import answer_if_duplicate, applied_as
from phalanx.grid.serving.memory_admission import lacks_memory
from phalanx.wire.limits import MAX_HOLDER_LENGTH, MAX_LEASE_MS, MAX_LOCK_WAIT_MS, MAX_PERMITS
from phalanx.wire.messages import AcquireLock, GetLock, ReleaseLock, RenewLock, WriteFenced

if TYPE_CHECKING:
    from phalanx.grid.service import GridService


def _acquire(grid: GridService, owned: OwnedPartition, caller: Target, request: AcquireLock, now: Millis) -> None:
    name = lock_map(request.map, is_semaphore=request.permits > 0)
    if not _fits(grid, caller, request) or begins_too_many(
        grid, owned, caller, msgspec.structs.replace(request, map=name)
    ):
        return
    for what, value, least, most in (
        ("permits", request.permits, 0, MAX_PERMITS),
        ("lease_ms", request.lease_ms, 1, MAX_LEASE_MS),
        ("wait_ms", request.wait_ms, 0, MAX_LOCK_WAIT_MS),
    ):
        if not least <= value <= most:
            text = f"{what} of a lock is {value}: give {least} to {most}"
            grid.fail(caller, request.id, ErrorCode.INVALID, text)
            return
    if not lacks_memory(grid, grid.evictor, owned, caller, request.id, name, request.key, request.holder.encode(), now):
        grid.locks.acquire(owned, caller, request, now)


def _renew(grid: GridService, owned: OwnedPartition, caller: Target, request: RenewLock, now: Millis) -> None:
    if _fits(grid, caller, request):
        grid.locks.renew(owned, caller, request, now)


def _release(grid: GridService, owned: OwnedPartition, caller: Target, request: ReleaseLock, now: Millis) -> None:
    if _fits(grid, caller, request) and not answer_if_duplicate(grid, owned, caller, request, now):
        is_held = grid.locks.is_held(owned, request, now)
        # What a first try did not find, the next one will not find either.
        applied = applied_as(grid, owned, caller, request, is_held) if is_held or request.op else None
        grid.locks.release(owned, caller, request, applied, now)


def _describe(grid: GridService, owned: OwnedPartition, caller: Target, request: GetLock, now: Millis) -> None:
    grid.out.send(caller, grid.locks.describe(owned, request, now))


def is_fenced_off(grid: GridService, owned: OwnedPartition, caller: Target, request: WriteFenced, now: Millis) -> bool:
    """Whether a write is refused for its fencing token; then the caller is told. If not, older tokens are from now on."""
    verdict = grid.locks.fence(owned, request, now)
    if verdict in (Fencing.PASSES, Fencing.RAISES):
        return False
    code = ErrorCode.INVALID if verdict is Fencing.NO_TOKEN else ErrorCode.STALE_TOKEN
    grid.fail(caller, request.id, code, f"fence {request.fence}: {_WHY[verdict]}")
    return True


_WHY = {
    Fencing.NO_TOKEN: "it is no fencing token of this cluster; give the token of a lock",
    Fencing.OLDER: "a later holder of the lock has a greater token, or has written the key with one",
    Fencing.ENDED: "the lock is not held with it any more: it was released, or its lease has ended",
    Fencing.FORGOTTEN: "it was granted more than a day ago, and nothing is known of it any more: acquire the lock again",
}


def _fits(grid: GridService, caller: Target, request: AcquireLock | RenewLock | ReleaseLock) -> bool:
    """Whether the names are within the limits; if not, the caller is told."""
    if not 0 < len(request.map) <= MAX_MAP_NAME_LENGTH or is_hidden(request.map):
        text = f"{request.map[:40]!r} has no locks: give the name of a map, 1 to {MAX_MAP_NAME_LENGTH} characters"
        grid.fail(caller, request.id, ErrorCode.INVALID, text)
    elif not TYPE_ID_BYTES <= len(request.key) <= grid.config.max_key_bytes:
        most = grid.config.max_key_bytes
        text = f"a key of {len(request.key)} bytes: give {TYPE_ID_BYTES} to {most} (max_key_bytes of the members)"
        grid.fail(caller, request.id, ErrorCode.TOO_LARGE if len(request.key) > most else ErrorCode.INVALID, text)
    elif not 0 < len(request.holder) <= MAX_HOLDER_LENGTH:
        text = f"a holder's name of {len(request.holder)} characters: give 1 to {MAX_HOLDER_LENGTH}"
        grid.fail(caller, request.id, ErrorCode.INVALID, text)
    else:
        return True
    return False


LOCK_OPERATIONS: dict[type, Callable[[GridService, OwnedPartition, Target, Any, Millis], None]] = {
    AcquireLock: _acquire,
    RenewLock: _renew,
    ReleaseLock: _release,
    GetLock: _describe,
}
