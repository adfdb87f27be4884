"""A backend of dogpile.cache: a region whose values, and whose lock for each key, all processes of the cluster share.

It is found by its name (an entry point of this package):

    region = make_region().configure("phalanx", expiration_time=300, arguments={"members": "10.0.0.1:5701,10.0.0.2:5701"})

| argument | default | meaning |
|---|---|---|
| `members` | | addresses of members, as `phalanx.Client` takes them; the client is made at the first use |
| `grid` | | instead: a `Client` or `MemberThread` of the program |
| `cluster`, `secret_file`, `call_timeout_s` | as of `Client` | |
| `map` | `"dogpile"` | the map that holds the values, as bytes that dogpile has serialised |
| `time_to_live` | None: for ever | seconds after which a value is removed; give more than the region's `expiration_time` |
| `distributed_lock` | True | whether one process at a time makes the value of a key; False: one thread of each process |
| `lock_timeout` | 30 | seconds after which the lock of a process that is gone is free |
"""

from __future__ import annotations

import difflib
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from dogpile.cache.api import NO_VALUE, BytesBackend, CacheMutex

from phalanx.client.sync import Client
from phalanx.codec.values import to_key_data
from phalanx.common.errors import UsageError
from phalanx.maps.locks import Holding, lock_terms
from phalanx.maps.requests import ttl_to_ms

if TYPE_CHECKING:
    from phalanx.client.sync_map import SyncMap

ARGUMENTS: Final = frozenset(
    (
        "members",
        "grid",
        "cluster",
        "secret_file",
        "call_timeout_s",
        "map",
        "time_to_live",
        "distributed_lock",
        "lock_timeout",
    )
)
OF_CLIENTS: Final = ("cluster", "secret_file", "call_timeout_s")


class PhalanxBackend(BytesBackend):
    """The backend of one region. Threads and forked processes may use it."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        for unknown in sorted(set(arguments) - ARGUMENTS):
            # Others are for other layers: dogpile gives a backend all that a program has configured.
            if meant := difflib.get_close_matches(unknown, ARGUMENTS, 1, cutoff=0.8):
                raise UsageError(f"arguments: there is no {unknown!r} (did you mean {meant[0]!r}?)")
        if ("members" in arguments) == ("grid" in arguments):
            raise UsageError("arguments: give members, or the grid that the program has, and not both")
        self._arguments = dict(arguments)
        self._ttl = arguments.get("time_to_live")
        ttl_to_ms(self._ttl)
        self._is_locking = bool(arguments.get("distributed_lock", True))
        self._lease = arguments.get("lock_timeout", 30)
        lock_terms("dogpile", b"", "", self._lease, None)
        self._making = threading.Lock()
        self._map: SyncMap[str, bytes] | None = None

    @property
    def _entries(self) -> SyncMap[str, bytes]:
        if self._map is None:
            with self._making:
                if self._map is None:
                    given = self._arguments
                    grid = given.get("grid")
                    if grid is None:
                        grid = Client(given["members"], **{name: given[name] for name in OF_CLIENTS if name in given})
                    self._map = grid.map(given.get("map", "dogpile"))
        return self._map

    def get_serialized(self, key: str) -> Any:
        value = self._entries.get(key)
        return NO_VALUE if value is None else value

    def get_serialized_multi(self, keys: Iterable[str]) -> Sequence[Any]:
        wanted = list(keys)
        found = self._entries.get_all(wanted)
        return [found.get(key, NO_VALUE) for key in wanted]

    def set_serialized(self, key: str, value: bytes) -> None:
        self._entries.put(key, value, self._ttl)

    def set_serialized_multi(self, mapping: Mapping[str, bytes]) -> None:
        self._entries.put_all(mapping, self._ttl)

    def delete(self, key: str) -> None:
        self._entries.remove(key)

    def delete_multi(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._entries.remove(key)

    def get_mutex(self, key: str) -> CacheMutex | None:
        """Return the lock of a key; None: dogpile uses one of its own for the threads of this process."""
        return _Mutex(self._entries, key, self._lease) if self._is_locking else None


class _Mutex(CacheMutex):
    """The lock of a key. Whichever thread makes the value may release it: dogpile lets another one do so."""

    def __init__(self, entries: SyncMap[str, bytes], key: str, lease: float) -> None:
        self._locks = entries.client.locks
        self._terms = lock_terms(entries.name, to_key_data(key), key, lease, None)
        self._holding: Holding | None = None

    def acquire(self, wait: bool = True) -> bool:
        holding = self._locks.acquire(self._terms, None if wait else 0.0)
        if holding is not None:
            self._holding = holding
        return holding is not None

    def release(self) -> None:
        """Release it. If its lease has ended meanwhile, another process may have made the value too: nothing is wrong with that."""
        holding, self._holding = self._holding, None
        if holding is None:
            raise UsageError("this mutex is not held: acquire it first")
        self._locks.release(holding)

    def locked(self) -> bool:
        return bool(self._locks.status(self._terms).holders)
