"""`cached` for functions of threads: results that the whole cluster shares, and that one thread of it makes at a time."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic

from phalanx.client.blocking.sync_map import SyncMap
from phalanx.common.errors import LockLost, UnavailableError, UsageError
from phalanx.common.public_names import PublicNames
from phalanx.common.words import quoted
from phalanx.maps.cached import MISSING, CachedTerms, P, R, method_of
from phalanx.maps.types import MapTypes
from phalanx.net.begun_threads import begin_thread

logger = logging.getLogger("phalanx.cached")


class SyncCached(PublicNames, Generic[P, R]):
    """A function whose results the grid keeps. Made by `Client.cached` or `MemberThread.cached`."""

    def __init__(
        self, function: Callable[P, R], terms: CachedTerms, entries: SyncMap[Any, Any], types: MapTypes[Any, Any]
    ) -> None:
        """`types`: how the map stores values. Raises `UsageError` for a coroutine function."""
        if inspect.iscoroutinefunction(function):
            raise UsageError(
                f"cached {terms.name}: this is a coroutine function, and its caller blocks: use `cached` of phalanx.connect's client, or of "
                f"an asyncio member, or write `def`"
            )
        self._function, self._terms, self._entries, self._types = function, terms, entries, types
        self._renewing: set[Any] = set()
        """Keys of which a thread of this process makes a new result, while old ones are given."""
        functools.update_wrapper(self, function)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._terms}, map={quoted(self._entries.name)})"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Return the result that is kept, or else call the function: one caller in the cluster does, others wait for it."""
        key = self._terms.key_of(args, kwargs)
        value, is_new = self._read(key)
        if value is MISSING:
            return self._make(key, lambda: self._function(*args, **kwargs))
        if not is_new and key not in self._renewing:
            self._begin_to_renew(key, lambda: self._function(*args, **kwargs))
        result: R = value
        return result

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """Return it as a method of an object. Raises `UsageError` without a `key` that takes the object."""
        return self if instance is None else method_of(self, self._terms, instance)

    def forget(self, *args: P.args, **kwargs: P.kwargs) -> bool:
        """Remove the result of a call with these arguments. Return whether there was one."""
        return self._entries.remove(self._terms.key_of(args, kwargs)) is not None

    def _read(self, key: Any) -> tuple[Any, bool]:
        """Return the result that is kept, and whether it is new."""
        kept = self._entries.get(key, MISSING)
        if kept is MISSING or not self._terms.stale_s:
            return kept, True
        try:
            return kept, self._terms.is_new(self._entries.time_to_live(key))
        except KeyError:  # it has ended between
            return kept, False

    def _keep(self, key: Any, made: R) -> R:
        """Store a result. Return it as all others will get it: the grid makes a list of a tuple, a dict of a dataclass."""
        self._entries.put(key, made, self._terms.lives_s)
        kept: R = self._types.value_of(self._types.value_data(made))
        return kept

    def _make(self, key: Any, call: Callable[[], R]) -> R:
        lock = self._entries.lock(key, lease=self._terms.lease_s, wait=None)
        lock.acquire()
        try:
            value, _ = self._read(key)
            if value is not MISSING:  # another one has made it while this one waited
                made: R = value
                return made
            return self._keep(key, call())
        finally:
            with suppress(LockLost):  # the result is good all the same; another one may have made it, too
                lock.release()

    def _begin_to_renew(self, key: Any, call: Callable[[], R]) -> None:
        self._renewing.add(key)
        try:
            begin_thread(functools.partial(self._renew, key, call), "phalanx-cached")
        except UnavailableError as error:  # the old one is given, and a later call tries again
            self._renewing.discard(key)
            self._not_renewed(error)

    def _not_renewed(self, error: Exception) -> None:
        logger.warning("cached %s: no new result: %s: %s", self._terms.name, type(error).__name__, error)

    def _renew(self, key: Any, call: Callable[[], R]) -> None:
        lock = self._entries.lock(key, lease=self._terms.lease_s, wait=0)
        try:
            if lock.acquire():
                try:
                    if not self._read(key)[1]:
                        self._keep(key, call())
                finally:
                    lock.release()
        except Exception as error:
            self._not_renewed(error)
        finally:
            self._renewing.discard(key)
