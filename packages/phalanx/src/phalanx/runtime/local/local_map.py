"""The blocking map of a member that runs in a thread of its own: entries that the member owns are read where they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, overload

from phalanx.client.blocking.sync_map import SyncMap
from phalanx.common.errors import StoredTypeError, UnknownSchema
from phalanx.maps.requests import check_map_name
from phalanx.maps.types import UNTYPED, K, MapTypes, V

if TYPE_CHECKING:
    from phalanx.runtime.local.thread_calls import ThreadCalls

T = TypeVar("T")


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
        value = self._calls.caller.local.peek(self.name, self._key_data(key))
        if isinstance(value, int):
            return super().get(key, default)
        if value is None:
            return default
        try:
            return self._value_of(value)
        except (StoredTypeError, UnknownSchema):
            return self._restored(key, value)

    def contains(self, key: object) -> bool:
        value = self._calls.caller.local.peek(self.name, self._key_data(key))
        return super().contains(key) if isinstance(value, int) else value is not None

    def _get(self, key: K) -> bytes | None:
        value = self._calls.caller.local.peek(self.name, self._key_data(key))
        return super()._get(key) if isinstance(value, int) else value
