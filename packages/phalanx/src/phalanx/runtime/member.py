"""A running member, as the program that embeds it sees it: maps, locks, and when to leave."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, overload

from phalanx.common.durations import Duration
from phalanx.common.errors import UnavailableError
from phalanx.maps.async_cached import AsyncCached
from phalanx.maps.async_locks import AsyncLock
from phalanx.maps.cached import P, R, cached_terms, map_of_results
from phalanx.maps.locks import LEASE_S, LOCKS, WAIT_S
from phalanx.maps.mistakes import HoldsMaps, NeedsAsyncWith, in_parentheses
from phalanx.maps.own_maps import CACHED, map_class
from phalanx.maps.tracing import make_tracing
from phalanx.maps.types import K, TypesOfMaps, V
from phalanx.net.connection import Dial
from phalanx.runtime.config import Config, given_config
from phalanx.runtime.embedded import EmbeddedMap
from phalanx.runtime.member_driver import MemberDriver

LITE_PAUSE_S = 0.05
"""The pause between two checks whether a member has become lite, or a data member, as it was asked to."""


class Member(NeedsAsyncWith, HoldsMaps, MemberDriver):
    """A member of the grid in this process. Made by `start_member`. A `Duration` is a number of seconds, or a
    `datetime.timedelta`."""

    def __init__(
        self,
        config: Config,
        on_failure: Callable[[Member | None, BaseException], None] | None = None,
        dial: Dial | None = None,
    ) -> None:
        """`on_failure`: called with this member when it fails, to end the process; None: the process goes on. `dial`: what it
        opens connections to other members with; None: its event loop.
        """
        super().__init__(config, None if on_failure is None else lambda error: on_failure(self, error), dial)
        self._types = TypesOfMaps(self.caller.map_plan)
        self._tracing = make_tracing(config.tracing, lambda: self.address)
        """What makes spans of the program's calls; None: they are not traced."""

    def __repr__(self) -> str:
        return f"Member({self.address}{', ended' if self.is_over else ''})"

    async def __aenter__(self) -> Member:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.stop()

    # --- maps and locks ---------------------------------------------------------------------------------

    @overload
    def map(self, name: str, *, dicts: str | None = None) -> EmbeddedMap[Any, Any]: ...
    @overload
    def map(self, name: str, *, key: type[K], value: type[V], dicts: str | None = None) -> EmbeddedMap[K, V]: ...
    @overload
    def map(
        self, name: str, *, key: Any = None, value: Any = None, dicts: str | None = None
    ) -> EmbeddedMap[Any, Any]: ...
    def map(self, name: str, *, key: Any = None, value: Any = None, dicts: str | None = None) -> EmbeddedMap[Any, Any]:
        """Return the distributed map of that name, an `AsyncMap`; it exists as soon as something is stored in it.

        `key`, `value`: the types of keys and values (docs/how-to/typed-maps.md); None: any that can be stored.
        `dicts`: how dicts are stored, "rows"; or "json", so that programs in other languages read them, too. None: as the map's
        setting `dicts` says; as rows if it has none. Raises `UsageError` if the name is invalid, or a type cannot be used;
        calls about dicts do if `dicts` contradicts the setting.
        """
        made = map_class(EmbeddedMap, name)(name, self.caller, self._types.of(name, key, value, dicts))
        return made if self._tracing is None else self._tracing.traced(made)

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
        without end); `reentrant`: whether the task that holds it may acquire it again. Its backups and protection are
        those of the map `phalanx.locks`. Raises `UsageError`.
        """
        return self.caller.locks.lock(LOCKS, name, lease, wait, reentrant=reentrant)

    def semaphore(
        self, name: object, permits: int, *, lease: Duration = LEASE_S, wait: Duration | None = WAIT_S
    ) -> AsyncLock:
        """Return the semaphore of that name, which at most `permits` tasks hold at a time; `lease` and `wait` as in
        `lock`."""
        return self.caller.locks.semaphore(LOCKS, name, permits, lease, wait)

    async def promote(self, *, timeout_s: float = 60.0) -> None:
        """Make this lite member a data member, which holds its share of the data.

        Raises `UnavailableError` if this takes longer than `timeout_s` seconds; the request stays valid.
        """
        await self._change_lite(False, timeout_s)

    async def demote(self, *, timeout_s: float = 60.0) -> None:
        """Make this member a lite member: others take over its replicas, and then it holds no data.

        Raises `UnavailableError` if this takes longer than `timeout_s` seconds, for example because no other member
        holds data. The request stays valid; `promote` withdraws it.
        """
        await self._change_lite(True, timeout_s)

    async def _change_lite(self, lite: bool, timeout_s: float) -> None:
        deadline = self._loop.time() + timeout_s
        while waits_for := await self.caller.change_lite(lite):
            if self._loop.time() >= deadline:
                raise UnavailableError(f"not yet after {timeout_s:g} s: {waits_for}")
            await asyncio.sleep(LITE_PAUSE_S)


async def start_member(
    config: Config | None = None, on_failure: Callable[[Member | None, BaseException], None] | None = None
) -> Member:
    """Start a member in this event loop. Wait until it has joined its cluster, and the cluster has `initial_members`.

    `config`: None is `Config()`, a cluster of one. `on_failure` is called with the member and the error if the member
    ends as in a crash after an unexpected error; a service may end its process there. Without it, only
    `Member.wait_ended` raises the error.

    Raises `UsageError` if the member cannot listen on its address, or a setting is wrong, and `JoinFailed` if no seed
    admits it within `join_attempts` tries.
    """
    member = Member(given_config(config), on_failure)
    await member.start()
    return member
