"""Checks before a request is served: ownership of its partitions, protection of the map, limits of what is written.

`check…` returns whether it passes, `refuse…` whether it was refused; in both cases a caller whose request fails is told
why.
"""

from __future__ import annotations

from collections.abc import Sequence

from phalanx.codec.hashing import TYPE_ID_BYTES, partitions_of
from phalanx.codec.rows import NOTHING, Extent, extent_of
from phalanx.common.errors import ErrorCode
from phalanx.common.hidden_maps import HIDDEN, MAX_HIDDEN_LENGTH, HiddenKind, is_hidden, is_staged, job_of, kind_of
from phalanx.common.ids import MAX_TTL_MS
from phalanx.common.invariant import known
from phalanx.common.map_settings import MAX_MAP_NAME_LENGTH
from phalanx.grid.replica.staged_steps import REMOVES
from phalanx.grid.replication.call import GridCall, PartitionCall
from phalanx.grid.replication.owned_partition import OwnedPartition
from phalanx.grid.replication.ownership import Ownership
from phalanx.grid.replication.protection import ProtectionGuard, WriteRefusal
from phalanx.grid.serving.idempotency import was_noted
from phalanx.grid.serving.replies import Replies
from phalanx.wire.key_requests import MAP_IDLE
from phalanx.wire.limits import MAX_ATTEMPTS
from phalanx.wire.messages import (
    OPERATIONS,
    WRITES,
    BulkRequest,
    KeyRequest,
    Put,
    PutAll,
    PutIfAbsent,
    PutPacked,
    Replace,
    UpdateValue,
    UpdateWhere,
)

MAX_REPEATED = 1_000
"""A request can name so many partitions even if there are fewer, so that it names some of them twice."""
REMEMBERED = 4
"""How many times `max_maps` a partition can remember removals of, at most."""
OVERHEAD_BYTES = 10
"""The most bytes of one entry in a message besides its key and value."""


class RequestAdmission:
    """Checks requests at one member, and tells the callers of those that fail."""

    def __init__(self, ownership: Ownership, guard: ProtectionGuard, replies: Replies) -> None:
        self._ownership = ownership
        self.guard = guard
        self._replies = replies
        self._config = ownership.config
        self.max_key_bytes = ownership.config.max_key_bytes
        self.refuse = replies.refuse
        """Tells the caller of a request why it is not served."""

    # --- the partitions --------------------------------------------------------------------------------------------

    def refuse_protected(self, call: PartitionCall[KeyRequest | UpdateWhere]) -> bool:
        """Refuse a request that the map's protection forbids. Return whether it was refused."""
        request, refusal = call.request, self._find_refusal(call)
        if refusal is None:
            return False
        will_be_asked_again = refusal.code is ErrorCode.NOT_READY
        if not will_be_asked_again and isinstance(request, OPERATIONS) and was_noted(call.owned, call.caller, request):
            # An earlier try was applied, and the caller may not know. This side must not say what became of it.
            self.refuse(call, ErrorCode.INDETERMINATE, f"an earlier try was applied or is over: {refusal.text}")
        else:
            self.refuse(call, *refusal)
        return True

    def _find_refusal(self, call: GridCall[KeyRequest | BulkRequest]) -> WriteRefusal | None:
        """Return why the map's protection, or this member's disk, refuses a request; None: they do not."""
        request, guard = call.request, self.guard
        if not guard.watches(request.map):
            return None
        return guard.find_refusal(request.map, is_write=isinstance(request, WRITES), now=call.now)

    def _refuse_protected_bulk(self, call: GridCall[BulkRequest]) -> bool:
        if (refusal := self._find_refusal(call)) is not None:
            self.refuse(call, *refusal)
        return refusal is not None

    def refuse_without_disk(self, call: GridCall[BulkRequest]) -> bool:
        """Refuse what the map's protection does not concern if this member's disk has failed. Return whether it was refused."""
        if (refusal := self.guard.disk) is not None:
            self.refuse(call, *refusal)
        return refusal is not None

    def owned_at(self, partition: int) -> OwnedPartition:
        return known(
            self._ownership.owned[partition], "ownership was checked for the whole request", partition=partition
        )

    def find_owned(self, call: GridCall[KeyRequest | BulkRequest], partition: int) -> OwnedPartition | None:
        """Return the partition of a request; None, and the caller is told: there is none, or another member owns it."""
        if not 0 <= partition < len(self._ownership.owned):
            text = f"there is no partition {partition}: this cluster has {len(self._ownership.owned)}"
            self.refuse(call, ErrorCode.INVALID, text)
            return None
        owned = self._ownership.owned[partition]
        if owned is None:
            self._replies.redirect(call.caller, call.request, partition)
        return owned

    def owned_of(self, call: GridCall[BulkRequest], keys: list[bytes]) -> list[OwnedPartition] | None:
        """Return the partition of each key. None, and the caller is told: another member owns one of them, or the map's
        protection refuses the request.
        """
        found = self.owners_of(call, keys)
        return None if found is None or self._refuse_protected_bulk(call) else found

    def owners_of(self, call: GridCall[BulkRequest], keys: list[bytes]) -> list[OwnedPartition] | None:
        """Return as `owned_of`, whatever the map's protection says."""
        owned_by_number = self._ownership.owned
        partitions = partitions_of(keys, len(owned_by_number))
        found = [owned_by_number[partition] for partition in partitions]
        if not all(found):
            self._replies.redirect(call.caller, call.request, partitions[found.index(None)])
            return None
        return found  # type: ignore[return-value]  # none of them is None

    def check_partition_count(self, call: GridCall[BulkRequest], partition_count: int) -> bool:
        """Check that the caller has this member's partition count: one of both possibly does not know of a split yet."""
        count = len(self._ownership.owned)
        if partition_count != count:
            text = f"there are {count} partitions here, and {partition_count} where the request comes from"
            self.refuse(call, ErrorCode.NOT_OWNER, text)
        return partition_count == count

    def check_ownership(self, call: GridCall[BulkRequest], partitions: Sequence[int], partition_count: int) -> bool:
        if not self.check_partition_count(call, partition_count):
            return False
        if len(partitions) > max(partition_count, MAX_REPEATED):
            text = f"{len(partitions)} partitions are named: this cluster has {partition_count}, name each of them once"
            self.refuse(call, ErrorCode.INVALID, text)
            return False
        if any(self.find_owned(call, partition) is None for partition in partitions):
            return False
        return not self._refuse_protected_bulk(call)

    # --- names and sizes -------------------------------------------------------------------------------------------

    def is_usual(self, request: Put | PutIfAbsent | Replace) -> bool:
        """Return whether a request for one key keeps all limits: what `check_one` says, before it is asked for why not."""
        config = self._config
        return (
            TYPE_ID_BYTES <= len(request.key) <= config.max_key_bytes
            and TYPE_ID_BYTES <= len(request.value) <= config.max_value_bytes
            and 0 < len(request.map) <= MAX_MAP_NAME_LENGTH
            and 0 <= request.ttl_ms <= MAX_TTL_MS
            and 0 <= request.max_idle_ms <= MAX_TTL_MS
            and request.map[0] != HIDDEN
        )

    def check_one(self, call: GridCall[Put | PutIfAbsent | Replace]) -> bool:
        """Check a request for one key like `check`, but faster where all limits are kept."""
        request = call.request
        if self.is_usual(request):
            return True
        return self.check(call, extent_of([len(request.key)]), extent_of([len(request.value)]))

    def check_update(self, call: GridCall[UpdateValue]) -> bool:
        """Check an update like `check`, but faster where all limits are kept."""
        config, request = self._config, call.request
        ttl_ms = request.ttl_ms
        if (
            TYPE_ID_BYTES <= len(request.key) <= config.max_key_bytes
            and 0 < len(request.map) <= MAX_MAP_NAME_LENGTH
            and (ttl_ms is None or 0 <= ttl_ms <= MAX_TTL_MS)
            and (request.max_idle_ms is None or MAP_IDLE <= request.max_idle_ms <= MAX_TTL_MS)
            and request.map[0] != HIDDEN
        ):
            for argument in request.arguments:
                if not TYPE_ID_BYTES <= len(argument) <= config.max_value_bytes:
                    break
            else:
                return True
        return self.check(call, extent_of([len(request.key)]), extent_of(list(map(len, request.arguments))))

    def check_slice(self, call: GridCall[UpdateWhere]) -> bool:
        """Check an update of many entries like `check`: the name of its map, and its arguments."""
        return self.check(call, NOTHING, extent_of(list(map(len, call.request.arguments))))

    def refuse_map(self, call: GridCall[KeyRequest | BulkRequest], owned: OwnedPartition, name: str) -> bool:
        """Refuse a write that would create one map too many in a partition. Return whether it was refused.

        Some turns of the member visit all maps, and each map costs memory even with one entry. Hidden maps of jobs
        count, too, but have a higher limit: they go when they are applied. Maps whose entries were all removed count
        only when there are many: they go with their tombstones.
        """
        maps, most = owned.replica.maps, self._config.max_maps
        if len(maps) < most or name in maps:
            return False
        limit = most + (MAX_ATTEMPTS if is_staged(name) else 0)
        if len(maps) < limit:
            return False
        filled = sum(1 for store in maps.values() if store.entries)
        if filled < limit and len(maps) < REMEMBERED * limit:
            return False
        text = f"partition {owned.number} has entries of {filled} maps, and {name!r} would be one more than {limit}"
        if filled < limit:
            text = f"{text} with entries, or than {REMEMBERED * limit} with those whose entries were removed lately"
        advice = (
            "put what belongs together into one map, clear maps that are not needed, or raise max_maps of the members"
        )
        self.refuse(call, ErrorCode.INVALID, f"{text}: {advice}")
        return True

    def refuse_maps(self, call: GridCall[PutAll | PutPacked], owned_ones: Sequence[OwnedPartition]) -> bool:
        """Check each of the partitions like `refuse_map`, but all at once where none has many maps."""
        if max([len(owned.replica.maps) for owned in owned_ones], default=0) < self._config.max_maps:
            return False
        return any(self.refuse_map(call, owned, call.request.map) for owned in dict.fromkeys(owned_ones))

    def refuse_hidden(self, call: GridCall[KeyRequest | BulkRequest]) -> bool:
        """Refuse a write to a hidden map, which only the steps of its job change. Return whether it was refused."""
        if is_hidden(call.request.map):
            text = f"{call.request.map!r} is the name of a hidden map: none can write there"
            self.refuse(call, ErrorCode.INVALID, text)
            return True
        return False

    def check_value(self, call: GridCall[UpdateValue], size: int) -> bool:
        """Check that a value of so many bytes can be stored."""
        limit = self._config.max_value_bytes
        if size > limit:
            text = f"a value of {size} bytes is over the limit of {limit} bytes (max_value_bytes of the members)"
            self.refuse(call, ErrorCode.TOO_LARGE, text)
        return size <= limit

    def check(
        self,
        call: GridCall[Put | PutIfAbsent | Replace | UpdateValue | UpdateWhere | PutAll | PutPacked],
        keys: Extent,
        values: Extent,
    ) -> bool:
        """Check that the names and sizes of a write are within the limits, before any change: what is stored must be
        readable, and fit a frame to the backups.
        """
        config, request, refuse = self._config, call.request, self.refuse
        ttl_ms = 0 if isinstance(request, UpdateWhere) else request.ttl_ms or 0
        is_staged = is_hidden(request.map)
        longest_name = MAX_MAP_NAME_LENGTH + (MAX_HIDDEN_LENGTH if is_staged else 0)
        is_attempt = (
            type(request) is PutPacked and kind_of(request.map) is HiddenKind.ATTEMPT and bool(job_of(request.map))
        )
        if not is_attempt and self.refuse_hidden(call):
            return False
        for what, limit, extent in (("key", config.max_key_bytes, keys), ("value", config.max_value_bytes, values)):
            if extent.largest > limit:
                text = f"a {what} of {extent.largest} bytes is over the limit of {limit} bytes (max_{what}_bytes of the members)"
                refuse(call, ErrorCode.TOO_LARGE, text)
                return False
            if extent.many and extent.smallest < TYPE_ID_BYTES:
                text = f"a {what} of {extent.smallest} bytes is none: each begins with the {TYPE_ID_BYTES} bytes of its type id"
                refuse(call, ErrorCode.INVALID, text)
                return False
        total = keys.total + values.total
        if keys.many > 1 and total + OVERHEAD_BYTES * keys.many > config.max_bulk_bytes:
            text = (
                f"{keys.many} entries of {total} bytes are over the limit of one request: send fewer entries at a time"
            )
            refuse(call, ErrorCode.TOO_LARGE, text)
            return False
        if not 0 < len(request.map) <= longest_name:
            text = f"a text of {len(request.map)} characters cannot name a map: give 1 to {MAX_MAP_NAME_LENGTH}"
            refuse(call, ErrorCode.INVALID, text)
            return False
        if not (REMOVES if is_staged else 0) <= ttl_ms <= MAX_TTL_MS:
            text = f"ttl_ms is {ttl_ms}: give 0 (for ever) to {MAX_TTL_MS} (ten years)"
            refuse(call, ErrorCode.INVALID, text)
            return False
        idle_ms = getattr(request, "max_idle_ms", 0) or 0
        if not (MAP_IDLE if isinstance(request, UpdateValue) else 0) <= idle_ms <= MAX_TTL_MS:
            text = f"max_idle_ms is {idle_ms}: give 0 (for ever) to {MAX_TTL_MS} (ten years)"
            refuse(call, ErrorCode.INVALID, text)
            return False
        return True
