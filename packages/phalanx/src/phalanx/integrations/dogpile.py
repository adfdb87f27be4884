"""A backend of dogpile.cache: a region whose values, and whose lock for each key, all processes of the cluster share.

It is found by its name (an entry point of this package):

    region = make_region().configure("phalanx", expiration_time=300, arguments={"members": "10.0.0.1:5701,10.0.0.2:5701"})

| argument | default | meaning |
|---|---|---|
| `members` | | addresses of members, as `phalanx.Client` takes them; the client is made at the first use |
| `grid` | | instead: a `Client` or `MemberThread` of the program |
| `cluster`, `secret_file` | as of `Client` | |
| `connect_timeout_s` | 2 | seconds to wait for a first member; never longer than `call_timeout_s` unless it is given |
| `call_timeout_s` | as of `Client`; 2 with `ignore_errors` | seconds to wait for an answer |
| `ignore_errors` | False | whether values are made, and not kept, while the grid cannot serve the region; the log tells so |
| `retry_after` | 5 | for this many seconds after a call without an answer, others end at once; 0: each asks |
| `map` | `"dogpile"` | the map that holds the values, as bytes that dogpile has serialised |
| `time_to_live` | None: without end | seconds after which a value is removed; give more than the region's `expiration_time` |
| `distributed_lock` | True | whether one process at a time makes the value of a key; False: one thread of each process |
| `lock_timeout` | 30 | seconds after which the lock of a process that is gone is free |
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from dogpile.cache.api import NO_VALUE, BytesBackend, CacheMutex

from phalanx.codec.values import to_key_data
from phalanx.common.errors import UsageError
from phalanx.integrations.shared_grids import RETRY_AFTER_S, CachedMap, SharedGrid, grid_at
from phalanx.maps.locks import Holding, lock_terms
from phalanx.maps.requests import ttl_to_ms

if TYPE_CHECKING:
    from phalanx.client.blocking.sync_map import SyncMap

ARGUMENTS: Final = frozenset(
    (
        "members",
        "grid",
        "cluster",
        "secret_file",
        "connect_timeout_s",
        "call_timeout_s",
        "ignore_errors",
        "retry_after",
        "map",
        "time_to_live",
        "distributed_lock",
        "lock_timeout",
    )
)
OF_CLIENTS: Final = ("cluster", "secret_file", "connect_timeout_s", "call_timeout_s")


class PhalanxBackend(BytesBackend):
    """The backend of one region. Threads and forked processes can use it."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        for unknown in sorted(set(arguments) - ARGUMENTS):
            # Others are for other layers: dogpile gives a backend all that a program has configured.
            if meant := difflib.get_close_matches(unknown, ARGUMENTS, 1, cutoff=0.8):
                raise UsageError(f"arguments: there is no {unknown!r} (did you mean {meant[0]!r}?)")
        if ("members" in arguments) == ("grid" in arguments):
            raise UsageError("arguments: give members, or the grid that the program has, and not both")
        self._ttl = arguments.get("time_to_live")
        ttl_to_ms(self._ttl)
        self._is_locking = bool(arguments.get("distributed_lock", True))
        self._lease = arguments.get("lock_timeout", 30)
        self._name = arguments.get("map", "dogpile")
        lock_terms(self._name, b"", "", self._lease, None)
        ignores = arguments.get("ignore_errors", False)
        if "members" in arguments:
            known = {name: arguments[name] for name in OF_CLIENTS if name in arguments}
            grid = grid_at(arguments["members"], known, ignores_errors=ignores)
        else:
            grid = SharedGrid(lambda: arguments["grid"])
        self._cached = CachedMap(
            grid, self._name, ignore_errors=ignores, retry_after=arguments.get("retry_after", RETRY_AFTER_S)
        )

    def get_serialized(self, key: str) -> Any:
        value = self._cached.use(lambda entries: entries.get(key), None)
        return NO_VALUE if value is None else value

    def get_serialized_multi(self, keys: Iterable[str]) -> Sequence[Any]:
        wanted = list(keys)
        nothing: dict[str, Any] = {}
        found = self._cached.use(lambda entries: entries.get_all(wanted), nothing)
        return [found.get(key, NO_VALUE) for key in wanted]

    def set_serialized(self, key: str, value: bytes) -> None:
        self._cached.use(lambda entries: entries.put(key, value, self._ttl), None)

    def set_serialized_multi(self, mapping: Mapping[str, bytes]) -> None:
        self._cached.use(lambda entries: entries.put_all(mapping, self._ttl), None)

    def delete(self, key: str) -> None:
        self._cached.use(lambda entries: entries.remove(key), None)

    def delete_multi(self, keys: Iterable[str]) -> None:
        def remove(entries: SyncMap[str, bytes]) -> None:
            for key in keys:
                entries.remove(key)

        self._cached.use(remove, None)

    def get_mutex(self, key: str) -> CacheMutex | None:
        """Return the lock of a key; None: dogpile uses one of its own for the threads of this process."""
        return _Mutex(self._cached, self._name, key, self._lease) if self._is_locking else None


class _Mutex(CacheMutex):
    """The lock of a key. Whichever thread makes the value can release it: dogpile lets another one do so.

    While the grid cannot grant it, and errors are ignored, it is granted to everybody: the value is made by each, and kept by nobody.
    """

    def __init__(self, cached: CachedMap, map_name: str, key: str, lease: float) -> None:
        self._cached = cached
        self._terms = lock_terms(map_name, to_key_data(key), key, lease, None)
        self._held: list[Holding | None] = []
        """What was granted and not released; None: by nobody."""

    def acquire(self, wait: bool = True) -> bool:
        def ask(entries: SyncMap[str, bytes]) -> tuple[Holding | None, bool]:
            holding = entries.client.locks.acquire(self._terms, None if wait else 0.0)
            return holding, holding is not None

        without: tuple[Holding | None, bool] = None, True
        holding, is_granted = self._cached.use(ask, without)
        if is_granted:
            self._held = [holding]
        return is_granted

    def release(self) -> None:
        """Release it. If its lease has ended meanwhile, another process may have made the value too: nothing is wrong with that."""
        held, self._held = self._held, []
        if not held:
            raise UsageError("this mutex is not held: acquire it first")
        if (holding := held[0]) is not None:
            self._cached.use(lambda entries: entries.client.locks.release(holding), False)

    def locked(self) -> bool:
        return self._cached.use(lambda entries: bool(entries.client.locks.status(self._terms).holders), False)
