"""`cached` for coroutine functions: results that the whole cluster shares, and that one task of it makes at a time."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Generic

from phalanx.common.errors import LockLost, UsageError
from phalanx.common.public_names import PublicNames
from phalanx.common.words import quoted
from phalanx.maps.async_map import AsyncMap
from phalanx.maps.cached import MISSING, CachedTerms, P, R, method_of
from phalanx.maps.types import MapTypes

logger = logging.getLogger("phalanx.cached")


class AsyncCached(PublicNames, Generic[P, R]):
    """A coroutine function whose results the grid keeps. Made by `AsyncClient.cached` or `Member.cached`."""

    def __init__(
        self,
        function: Callable[P, Awaitable[R]],
        terms: CachedTerms,
        entries: AsyncMap[Any, Any],
        types: MapTypes[Any, Any],
    ) -> None:
        """`types`: how the map stores values."""
        self._function, self._terms, self._entries, self._types = function, terms, entries, types
        self._renewing: dict[Any, asyncio.Task[None]] = {}
        """Keys of which a task of this program makes a new result, while old ones are given."""
        functools.update_wrapper(self, function)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._terms}, map={quoted(self._entries.name)})"

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Return the result that is kept, or else call the function: one caller in the cluster does, others wait for it."""
        key = self._terms.key_of(args, kwargs)
        value, is_new = await self._read(key)
        if value is MISSING:
            return await self._make(key, lambda: self._call(args, kwargs))
        if not is_new and key not in self._renewing:
            self._renewing[key] = asyncio.create_task(self._renew(key, lambda: self._call(args, kwargs)))
        result: R = value
        return result

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """Return it as a method of an object. Raises `UsageError` without a `key` that takes the object."""
        return self if instance is None else method_of(self, self._terms, instance)

    async def forget(self, *args: P.args, **kwargs: P.kwargs) -> bool:
        """Remove the result of a call with these arguments. Return whether there was one."""
        return await self._entries.remove(self._terms.key_of(args, kwargs)) is not None

    async def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> R:
        """Call the function. Raises `UsageError` if it does not return a coroutine: only its result shows that."""
        made: Any = self._function(*args, **kwargs)
        if not inspect.isawaitable(made):
            raise UsageError(
                f"cached {self._terms.name}: it returned a value of type {type(made).__name__}, and nothing to await: write `async def`, or use "
                f"`cached` of a phalanx.Client"
            )
        result: R = await made
        return result

    async def _read(self, key: Any) -> tuple[Any, bool]:
        """Return the result that is kept, and whether it is new."""
        kept = await self._entries.get(key, MISSING)
        if kept is MISSING or not self._terms.stale_s:
            return kept, True
        try:
            return kept, self._terms.is_new(await self._entries.time_to_live(key))
        except KeyError:  # it has ended between
            return kept, False

    async def _keep(self, key: Any, made: R) -> R:
        """Store a result. Return it as all others will get it: the grid makes a list of a tuple, a dict of a dataclass."""
        await self._entries.put(key, made, self._terms.lives_s)
        kept: R = self._types.value_of(self._types.value_data(made))
        return kept

    async def _make(self, key: Any, call: Callable[[], Awaitable[R]]) -> R:
        lock = self._entries.lock(key, lease=self._terms.lease_s, wait=None)
        await lock.acquire()
        try:
            value, _ = await self._read(key)
            if value is not MISSING:  # another one has made it while this one waited
                made: R = value
                return made
            return await self._keep(key, await call())
        finally:
            with suppress(LockLost):  # the result is good all the same; another one may have made it, too
                await lock.release()

    async def _renew(self, key: Any, call: Callable[[], Awaitable[R]]) -> None:
        lock = self._entries.lock(key, lease=self._terms.lease_s, wait=0)
        try:
            if await lock.acquire():
                try:
                    if not (await self._read(key))[1]:
                        await self._keep(key, await call())
                finally:
                    await lock.release()
        except Exception as error:
            logger.warning("cached %s: no new result: %s: %s", self._terms.name, type(error).__name__, error)
        finally:
            del self._renewing[key]
