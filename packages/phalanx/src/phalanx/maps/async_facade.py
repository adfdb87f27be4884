"""What a client and a member give programs alike, for asyncio: locks, and functions whose results the grid keeps.

What the blocking client and the member on a thread give (`client.blocking.facade`) is written from this file by scripts/blocking_api.py.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any

from phalanx.codec.values import to_key_data
from phalanx.common.durations import Duration
from phalanx.common.public_names import PublicNames
from phalanx.maps.async_cached import AsyncCached
from phalanx.maps.async_leases import AsyncLocks
from phalanx.maps.async_locks import AsyncLock
from phalanx.maps.async_map import AsyncMap
from phalanx.maps.cached import P, R, cached_terms, map_of_results
from phalanx.maps.locks import LEASE_S, LOCKS, WAIT_S, check_permits, lock_terms
from phalanx.maps.mistakes import in_parentheses
from phalanx.maps.own_maps import CACHED
from phalanx.maps.types import TypesOfMaps


class AsyncFacade(PublicNames):
    """Base of the asyncio client and of the member, which have maps."""

    _types: TypesOfMaps
    _locks: AsyncLocks
    """The locks that the program holds."""

    @abstractmethod
    def map(self, name: str) -> AsyncMap[Any, Any]:
        """Return the distributed map of that name."""

    @in_parentheses
    def cached(
        self,
        *,
        ttl: Duration,
        key: Callable[..., Any] | None = None,
        stale: Duration = 0,
        map: str = CACHED,
        lease: Duration = LEASE_S,
        name: str | None = None,
    ) -> Callable[[Callable[P, Awaitable[R]]], AsyncCached[P, R]]:
        """Return a decorator that keeps the results of a coroutine function in the map `map`, for all processes of the cluster.

        `ttl`: for how many seconds a result is new. `stale`: for how many more seconds callers get the old one at once while one of
        them has a new one made in the background; 0: they wait for it. `key`: a function of the arguments that returns the key,
        None: the arguments are it; a method's is needed, and takes its object, too. `name`: tells the function from all others
        whose results are in the map; None: its module and name do. One caller in the cluster calls the function for a key at a
        time, the others wait for its result; if its process goes, the next one does after `lease` seconds. All get the result as
        the map stores it. What the function raises is not kept. Raises `UsageError`, also for a function that needs a `name`
        (of a script, a lambda, one made by a function), and at a call whose arguments make no key.
        """

        def decorate(function: Callable[P, Awaitable[R]]) -> AsyncCached[P, R]:
            terms = cached_terms(function, ttl, key, stale, lease, name)
            return AsyncCached(function, terms, self.map(map_of_results(map)), self._types.of(map, None, None, None))

        return decorate

    def lock(
        self, name: object, *, lease: Duration = LEASE_S, wait: Duration | None = WAIT_S, reentrant: bool = False
    ) -> AsyncLock:
        """Return the lock of that name, which one task at a time holds in the whole cluster.

        `lease`: seconds after which it is free when its holder was not heard of; `wait`: seconds to wait for it (None:
        without end); `reentrant`: whether the task that holds it can acquire it again. Its backups and protection are
        those of the map `phalanx.locks`. Raises `UsageError`.
        """
        terms = lock_terms(LOCKS, to_key_data(name), name, lease, wait, reentrant=reentrant)
        return AsyncLock(terms, self._locks)

    def semaphore(
        self, name: object, permits: int, *, lease: Duration = LEASE_S, wait: Duration | None = WAIT_S
    ) -> AsyncLock:
        """Return the semaphore of that name, which at most `permits` tasks hold at a time; `lease` and `wait` as in
        `lock`."""
        terms = lock_terms(LOCKS, to_key_data(name), name, lease, wait, permits=check_permits(permits))
        return AsyncLock(terms, self._locks)
