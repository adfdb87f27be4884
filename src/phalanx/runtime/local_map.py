"""The blocking map of a member that runs in a thread of its own: entries that the member owns are read where they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, overload

from phalanx.client.sync_map import SyncMap
from phalanx.codec.hashing import partition_of
from phalanx.common.errors import StoredTypeError, UnknownSchema
from phalanx.maps.requests import check_map_name
from phalanx.maps.types import UNTYPED, K, MapTypes, V, of_key

if TYPE_CHECKING:
    from phalanx.runtime.thread_calls import ThreadCalls

T = TypeVar("T")

_ASK: Any = object()
"""Says that the member must be asked."""


class LocalMap(SyncMap[K, V]):
    """A `SyncMap` of a member in this process. A read of an entry that the member owns takes no turn of its event loop."""

    def __init__(self, name: str, calls: ThreadCalls, types: MapTypes[K, V] = UNTYPED) -> None:
        super().__init__(check_map_name(name), calls, types)
        self._calls = calls

    @overload
    def get(self, key: K, default: None = None) -> V | None: ...
    @overload
    def get(self, key: K, default: V | T) -> V | T: ...
    def get(self, key: K, default: Any = None) -> Any:
        value = self._read(self._key_data(key))
        if value is _ASK:
            return super().get(key, default)
        try:
            return default if value is None else self._value_of(value)
        except (StoredTypeError, UnknownSchema) as error:
            raise of_key(error, key) from error

    def contains(self, key: object) -> bool:
        value = self._read(self._key_data(key))
        return super().contains(key) if value is _ASK else value is not None

    def _get(self, key: K) -> bytes | None:
        value = self._read(self._key_data(key))
        found: bytes | None = super()._get(key) if value is _ASK else value
        return found

    def _read(self, key: bytes) -> Any:
        """Return the serialised value that this member has for a key that it owns; None: it has none; or `_ASK`.

        The member's thread may change anything between two lines here:

        1. This thread sees that the member owns the partition, and is paused. 2. The member loses the partition, and the new
        owner acknowledges a write. 3. This thread returns the value from before it.

        So after the read it looks again whether the member serves, owns the same replica, and has the same value: at that
        moment the value was right.
        """
        caller = self._calls.caller
        node = caller.node
        if node is None or not node.serves(caller.now()):
            return _ASK
        grid = node.grid
        listed = grid.owned
        partition = partition_of(key, len(listed))
        owned = listed[partition]
        if owned is None or grid.counts_reads or grid.guard.watches(self.name):
            return _ASK
        store = owned.replica.maps.get(self.name)
        if store is None:
            stored = value = None
        elif store.idle:
            return _ASK  # the read prolongs the entry's life, which is a change
        else:
            stored = store.entries.get(key)
            value = store.get(key, caller.now())
        is_same = (
            caller.node is node
            and grid.owned is listed
            and listed[partition] is owned
            and owned.replica.maps.get(self.name) is store
            and (store is None or store.entries.get(key) is stored)
            and node.serves(caller.now())
        )
        return value if is_same else _ASK
