"""A cache backend of Django: a map of the grid, which all processes of the site share.

    CACHES = {"default": {
        "BACKEND": "phalanx.integrations.django.PhalanxCache",
        "LOCATION": "10.0.0.1:5701,10.0.0.2:5701",
        "OPTIONS": {"MAP": "django"},
    }}

Numbers are stored as numbers, so that `incr` counts in one step at their owner, and other programs read them. All else is
pickled, as in Django's own backends: who can write into the map can run code in the site. How many entries it keeps, and which
go first, are settings of the map (`max_entries`, `max_bytes`, `eviction`), not `MAX_ENTRIES` and `CULL_FREQUENCY`.

| in `OPTIONS` | default | meaning |
|---|---|---|
| `MAP` | `"django"` | the map that holds the entries |
| `GRID` | | the dotted path of a `Client` or `MemberThread` that the site has, instead of `LOCATION` |
| `CLUSTER`, `SECRET_FILE` | as of `Client` | |
| `CONNECT_TIMEOUT` | 2 | seconds to wait for a first member; never longer than `CALL_TIMEOUT` unless it is given |
| `CALL_TIMEOUT` | as of `Client`; 2 with `IGNORE_ERRORS` | seconds to wait for an answer |
| `IGNORE_ERRORS` | `False` | whether the cache behaves as an empty one while the grid cannot serve it; the log tells so |
| `RETRY_AFTER` | 5 | for this many seconds after a call without an answer, others end at once; 0: each asks |

As django-redis, it has `ttl`, `lock` and `delete_pattern`, too. `clear` removes what has the `KEY_PREFIX` of the cache. With a `KEY_FUNCTION` it removes all of the map: give each site a map of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from django.core.cache.backends.base import DEFAULT_TIMEOUT, BaseCache, default_key_func
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from phalanx.common.errors import UsageError
from phalanx.common.ids import MAX_TTL_MS
from phalanx.integrations.redis_calls import escaped, lock_of, remove_matching, seconds_left
from phalanx.integrations.shared_grids import RETRY_AFTER_S, CachedMap, grid_at, grid_named
from phalanx.integrations.stored_values import MISSING, add_to_number, restored, stored

if TYPE_CHECKING:
    from phalanx.client.blocking.sync_locks import SyncLock
    from phalanx.client.blocking.sync_map import SyncMap

OF_CLIENTS: Final = {
    "CLUSTER": "cluster",
    "SECRET_FILE": "secret_file",
    "CONNECT_TIMEOUT": "connect_timeout_s",
    "CALL_TIMEOUT": "call_timeout_s",
}
OF_CACHES: Final = ("MAP", "GRID", "IGNORE_ERRORS", "RETRY_AFTER")
LONGEST_S: Final = MAX_TTL_MS // 1000
"""The longest time to live; Django's sites give longer ones, and mean no limit."""


class PhalanxCache(BaseCache):  # type: ignore[misc]  # Django has no types
    """The backend. Errors of the grid (`phalanx.PhalanxError`) reach the caller, as those of Django's Redis backend do, unless
    `IGNORE_ERRORS` says otherwise."""

    def __init__(self, location: str | Iterable[str], params: Mapping[str, Any]) -> None:
        super().__init__(params)
        options = dict(params.get("OPTIONS") or {})
        own = {name: options.pop(name) for name in OF_CACHES if name in options}
        known = {OF_CLIENTS[name]: options.pop(name) for name in OF_CLIENTS if name in options}
        for django_s_own in ("MAX_ENTRIES", "CULL_FREQUENCY"):
            options.pop(django_s_own, None)
        if options:
            fits = ", ".join((*OF_CACHES, *OF_CLIENTS))
            raise ImproperlyConfigured(f"CACHES: OPTIONS has {', '.join(sorted(options))}; PhalanxCache knows {fits}")
        path, ignores = own.get("GRID"), own.get("IGNORE_ERRORS", False)
        if not location and path is None:
            raise ImproperlyConfigured(
                "CACHES: give PhalanxCache a LOCATION (host:port of members), or OPTIONS['GRID']"
            )
        members = location if isinstance(location, str) else tuple(location)
        try:
            # Django makes a backend for each thread: those of one cache share a client, and what is known of an outage.
            grid = grid_at(members, known, ignores_errors=ignores) if path is None else grid_named(path, import_string)
            self._cached = CachedMap(
                grid,
                own.get("MAP", "django"),
                ignore_errors=ignores,
                retry_after=own.get("RETRY_AFTER", RETRY_AFTER_S),
            )
        except UsageError as error:
            raise ImproperlyConfigured(f"CACHES: {error}") from None

    # --- what Django calls -----------------------------------------------------------------------------------------

    def add(self, key: str, value: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None) -> bool:
        key, ttl = self.make_and_validate_key(key, version=version), self._ttl(timeout)
        if ttl == 0:
            return self._cached.use(lambda entries: key not in entries, False)
        return self._cached.use(lambda entries: entries.put_if_absent(key, stored(value), ttl) is None, False)

    def get(self, key: str, default: Any = None, version: int | None = None) -> Any:
        key = self.make_and_validate_key(key, version=version)
        value = self._cached.use(lambda entries: entries.get(key, MISSING), MISSING)
        return default if value is MISSING else restored(value)

    def set(self, key: str, value: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None) -> None:
        key, ttl = self.make_and_validate_key(key, version=version), self._ttl(timeout)
        if ttl == 0:
            self._cached.use(lambda entries: entries.remove(key), None)
        else:
            self._cached.use(lambda entries: entries.put(key, stored(value), ttl), None)

    def touch(self, key: str, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None) -> bool:
        key, ttl = self.make_and_validate_key(key, version=version), self._ttl(timeout)
        if ttl == 0:
            return self._cached.use(lambda entries: entries.remove(key) is not None, False)
        return self._cached.use(lambda entries: entries.persist(key) if ttl is None else entries.touch(key, ttl), False)

    def delete(self, key: str, version: int | None = None) -> bool:
        key = self.make_and_validate_key(key, version=version)
        return self._cached.use(lambda entries: entries.remove(key) is not None, False)

    def has_key(self, key: str, version: int | None = None) -> bool:
        key = self.make_and_validate_key(key, version=version)
        return self._cached.use(lambda entries: entries.contains(key), False)

    def incr(self, key: str, delta: int = 1, version: int | None = None) -> Any:
        """Add to a number, in one step at its owner. Raises `ValueError` if the key has no value, `TypeError` if it is not a number."""
        made = self.make_and_validate_key(key, version=version)

        def add(entries: SyncMap[str, Any]) -> Any:
            try:
                return add_to_number(entries, made, delta)
            except KeyError:
                return None

        if (total := self._cached.use(add, None)) is None:
            raise ValueError(f"Key {key!r} not found")
        return total

    def get_many(self, keys: Iterable[str], version: int | None = None) -> dict[str, Any]:
        made = {self.make_and_validate_key(key, version=version): key for key in keys}
        nothing: dict[str, Any] = {}
        found = self._cached.use(lambda entries: entries.get_all(made), nothing)
        return {made[key]: restored(value) for key, value in found.items()}

    def set_many(
        self, data: Mapping[str, Any], timeout: Any = DEFAULT_TIMEOUT, version: int | None = None
    ) -> list[str]:
        """Store values, and return the keys that could not be stored."""
        ttl = self._ttl(timeout)
        if ttl == 0:
            self.delete_many(data, version=version)
        elif data:
            made = {self.make_and_validate_key(key, version=version): stored(value) for key, value in data.items()}

            def store(entries: SyncMap[str, Any]) -> list[str]:
                entries.put_all(made, ttl)
                return []

            return self._cached.use(store, list(data))
        return []

    def delete_many(self, keys: Iterable[str], version: int | None = None) -> None:
        made = [self.make_and_validate_key(key, version=version) for key in keys]

        def remove(entries: SyncMap[str, Any]) -> None:
            for key in made:
                entries.remove(key)

        self._cached.use(remove, None)

    def clear(self) -> None:
        """Remove all entries of this `KEY_PREFIX`, in all versions. Without one, or with a `KEY_FUNCTION`, whose keys do not tell
        whose they are, remove all of the map."""
        self._cached.use(self._clear, None)

    def _clear(self, entries: SyncMap[str, Any]) -> None:
        if not self.key_prefix or self.key_func is not default_key_func:
            entries.clear()
            return
        begin = f"{self.key_prefix}:"
        for key in entries:
            if isinstance(key, str) and key.startswith(begin):
                version, is_key, _ = key[len(begin) :].partition(":")
                # The entries of the prefix "site:eu" begin with "site:", too.
                if is_key and (version.removeprefix("-").isdecimal() or version == str(self.version)):
                    entries.remove(key)

    # --- what django-redis has, too --------------------------------------------------------------------------------

    def ttl(self, key: str, version: int | None = None) -> int | None:
        """Return how many seconds the value lives; None: without end; 0: there is none."""
        made = self.make_and_validate_key(key, version=version)
        none: int | None = 0
        return self._cached.use(lambda entries: seconds_left(entries, made), none)

    def lock(
        self,
        key: str,
        version: int | None = None,
        timeout: float | None = None,
        *,
        blocking_timeout: float | None = None,
    ) -> SyncLock:
        """Return the lock of a key, for `with`. `timeout`: seconds after which it is free when its holder was not heard of (None:
        30): it is renewed while the thread that holds it lives. `blocking_timeout`: seconds to wait for it (None: without end).
        Errors of a lock reach the caller, also with `IGNORE_ERRORS`: nobody can believe that he holds it."""
        made = self.make_and_validate_key(key, version=version)
        return self._cached.ask(lambda entries: lock_of(entries, made, timeout, blocking_timeout))

    def delete_pattern(self, pattern: str, version: int | None = None) -> int:
        """Remove the values whose key fits a pattern (`*`, `?`, `[ab]`), and return how many. All keys of the map are read."""
        of_version = self.version if version is None else version
        made = self.key_func(pattern, escaped(self.key_prefix), escaped(str(of_version)))
        return self._cached.use(lambda entries: remove_matching(entries, made), 0)

    def _ttl(self, timeout: Any) -> float | None:
        """Return the seconds that an entry lives; None: without end; 0: it is over at once."""
        seconds = self.default_timeout if timeout is DEFAULT_TIMEOUT else timeout
        if seconds is None or seconds > LONGEST_S:
            return None
        return max(float(seconds), 0.0)
