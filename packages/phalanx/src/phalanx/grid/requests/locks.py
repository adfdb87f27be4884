"""The handlers of requests for locks and semaphores, and of writes with a fencing token, at the owner of their key."""

from __future__ import annotations

from phalanx.codec.hashing import TYPE_ID_BYTES
from phalanx.common.errors import ErrorCode
from phalanx.common.hidden_maps import is_hidden, lock_map
from phalanx.common.map_settings import MAX_MAP_NAME_LENGTH
from phalanx.grid.locking.lock_keeper import LockKeeper, lock_of
from phalanx.grid.replica.lock_state import Fencing
from phalanx.grid.replication.call import GridCall, PartitionCall
from phalanx.grid.requests.single import remove_entry
from phalanx.grid.serving.admission import RequestAdmission
from phalanx.grid.serving.entry_writer import EntryWriter
from phalanx.grid.serving.idempotency import Idempotency
from phalanx.grid.serving.memory_admission import MemoryAdmission
from phalanx.wire.limits import MAX_HOLDER_LENGTH, MAX_LEASE_MS, MAX_LOCK_WAIT_MS, MAX_PERMITS
from phalanx.wire.messages import AcquireLock, GetLock, Put, ReleaseLock, RenewLock, ValueReply, WriteFenced

UNSET_VALUE = bytes(TYPE_ID_BYTES)
"""In the place of a value, where the size of a removal is checked."""


class LockRequests:
    """The requests for locks and semaphores."""

    def __init__(
        self,
        admission: RequestAdmission,
        idempotency: Idempotency,
        memory_admission: MemoryAdmission,
        locks: LockKeeper,
    ) -> None:
        self._admission = admission
        self._idempotency = idempotency
        self._memory_admission = memory_admission
        self._locks = locks

    def acquire(self, call: PartitionCall[AcquireLock]) -> None:
        """Grant a lock, or let the caller wait for it."""
        request = call.request
        name = lock_map(request.map, is_semaphore=request.permits > 0)
        if not self._check_names(call) or self._admission.refuse_map(call, call.owned, name):
            return
        for what, value, least, most in (
            ("permits", request.permits, 0, MAX_PERMITS),
            ("lease_ms", request.lease_ms, 1, MAX_LEASE_MS),
            ("wait_ms", request.wait_ms, 0, MAX_LOCK_WAIT_MS),
        ):
            if not least <= value <= most:
                text = f"{what} of a lock is {value}: give {least} to {most}"
                self._admission.refuse(call, ErrorCode.INVALID, text)
                return
        if not self._memory_admission.lacks(call, name, request.holder.encode()):
            self._locks.acquire(call)

    def renew(self, call: PartitionCall[RenewLock]) -> None:
        """Begin a lease anew."""
        if self._check_names(call):
            self._locks.renew(call)

    def release(self, call: PartitionCall[ReleaseLock]) -> None:
        """End a holding, or a waiting."""
        if self._check_names(call) and not self._idempotency.answer_if_duplicate(call):
            lock = lock_of(call)
            state = lock.state(call.now)
            is_held = state.find(call.request.holder) is not None
            # What a first try did not find, the next one will not find either.
            is_noted = is_held or call.request.op
            applied = self._idempotency.applied_as(call, is_held) if is_noted else None
            self._locks.release(call, lock, state, applied)

    def describe(self, call: PartitionCall[GetLock]) -> None:
        """Tell who holds a lock."""
        self._locks.describe(call)

    def _check_names(self, call: PartitionCall[AcquireLock | RenewLock | ReleaseLock]) -> bool:
        """Check that the names are within the limits; if not, tell the caller."""
        request, refuse, most = call.request, self._admission.refuse, self._admission.max_key_bytes
        if not 0 < len(request.map) <= MAX_MAP_NAME_LENGTH or is_hidden(request.map):
            text = f"{request.map[:40]!r} has no locks: give the name of a map, 1 to {MAX_MAP_NAME_LENGTH} characters"
            refuse(call, ErrorCode.INVALID, text)
        elif not TYPE_ID_BYTES <= len(request.key) <= most:
            text = f"a key of {len(request.key)} bytes: give {TYPE_ID_BYTES} to {most} (max_key_bytes of the members)"
            refuse(call, ErrorCode.TOO_LARGE if len(request.key) > most else ErrorCode.INVALID, text)
        elif not 0 < len(request.holder) <= MAX_HOLDER_LENGTH:
            text = f"a holder's name of {len(request.holder)} characters: give 1 to {MAX_HOLDER_LENGTH}"
            refuse(call, ErrorCode.INVALID, text)
        else:
            return True
        return False


class FencedWrites:
    """The writes of one key with a fencing token."""

    def __init__(
        self, admission: RequestAdmission, idempotency: Idempotency, writer: EntryWriter, locks: LockKeeper
    ) -> None:
        self._admission = admission
        self._idempotency = idempotency
        self._writer = writer
        self._locks = locks

    def write(self, call: PartitionCall[WriteFenced]) -> None:
        """Store or remove a value, unless a later holder of the lock has written with its token."""
        request, admission, writer = call.request, self._admission, self._writer
        put = Put(request.id, request.map, request.key, request.value or UNSET_VALUE, request.ttl_ms)
        if (
            not admission.check_one(GridCall(call.caller, put, call.now))
            or self._idempotency.answer_if_duplicate(call)
            or admission.refuse_map(call, call.owned, request.map)
        ):
            return
        if request.value is not None and writer.lacks_memory(call, request.value):
            return
        if self._refuse_old_token(call):
            return
        if request.value is not None:
            writer.store(call, request.value, request.ttl_ms, None, ValueReply(request.id, None), None)
        else:
            remove_entry(call, writer, self._idempotency)

    def _refuse_old_token(self, call: PartitionCall[WriteFenced]) -> bool:
        """Refuse a write for its fencing token, or older tokens from now on. Return whether the write was refused."""
        verdict = self._locks.fence(call)
        if verdict in (Fencing.PASSES, Fencing.RAISES):
            return False
        code = ErrorCode.INVALID if verdict is Fencing.NO_TOKEN else ErrorCode.STALE_TOKEN
        self._admission.refuse(call, code, f"fence {call.request.fence}: {_WHY[verdict]}")
        return True


_WHY = {
    Fencing.NO_TOKEN: "it is no fencing token of this cluster; give the token of a lock",
    Fencing.OLDER: "a later holder of the lock has a greater token, or has written the key with one",
    Fencing.ENDED: "the lock is not held with it any more: it was released, or its lease has ended",
    Fencing.FORGOTTEN: "it was granted more than a day ago, and nothing is known of it any more: acquire the lock again",
}
