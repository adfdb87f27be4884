"""A backend of Flask-Caching: a map of the grid, which all processes of the application share.

    cache = Cache(app, config={
        "CACHE_TYPE": "phalanx.integrations.flask_caching.FlaskCachingBackend",
        "CACHE_PHALANX_MEMBERS": "10.0.0.1:5701,10.0.0.2:5701",
    })

Numbers are stored as numbers, so that `inc` counts in one step at their owner. All else is pickled unless `CACHE_SERIALIZER` says
otherwise, as in Flask-Caching's own backends: who can write into the map can run code in the application. How many entries it keeps, and which go first, are settings
of the map, not `CACHE_THRESHOLD`.

| setting | default | meaning |
|---|---|---|
| `CACHE_PHALANX_MEMBERS` | | addresses of members, as `phalanx.Client` takes them; the client is made at the first use |
| `CACHE_PHALANX_GRID` | | instead: a `Client` or `MemberThread` of the program, or its dotted path |
| `CACHE_PHALANX_CLUSTER`, `…_SECRET_FILE` | as of `Client` | |
| `CACHE_PHALANX_CONNECT_TIMEOUT` | 2 | seconds to wait for a first member; never longer than `…_CALL_TIMEOUT` unless it is given |
| `CACHE_PHALANX_CALL_TIMEOUT` | as of `Client`; 2 with `…_IGNORE_ERRORS` | seconds to wait for an answer |
| `CACHE_PHALANX_IGNORE_ERRORS` | `False` | whether the cache behaves as an empty one while the grid cannot serve it; the log tells so |
| `CACHE_PHALANX_RETRY_AFTER` | 5 | for this many seconds after a call without an answer, others end at once; 0: each asks |
| `CACHE_PHALANX_MAP` | `"flask"` | the map that holds the entries |
| `CACHE_KEY_PREFIX` | | what its keys begin with; `clear` removes only these |
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from cachelib.serializers import SimpleSerializer
from flask_caching.backends.base import BaseCache
from werkzeug.utils import import_string

from phalanx.common.errors import UsageError
from phalanx.common.ids import MAX_TTL_MS
from phalanx.integrations.redis_calls import escaped, lock_of, remove_matching, seconds_left
from phalanx.integrations.shared_grids import RETRY_AFTER_S, CachedMap, SharedGrid, grid_at, grid_named
from phalanx.integrations.stored_values import MISSING, add_to_number, restored, stored

if TYPE_CHECKING:
    from phalanx.client.blocking.sync_locks import SyncLock
    from phalanx.client.blocking.sync_map import SyncMap

PREFIX: Final = "CACHE_PHALANX_"
OF_CLIENTS: Final = {
    "CLUSTER": "cluster",
    "SECRET_FILE": "secret_file",
    "CONNECT_TIMEOUT": "connect_timeout_s",
    "CALL_TIMEOUT": "call_timeout_s",
}
SETTINGS: Final = ("MEMBERS", "GRID", "MAP", "IGNORE_ERRORS", "RETRY_AFTER", *OF_CLIENTS)

Timeout = int | dt.timedelta | None


class FlaskCachingBackend(BaseCache):
    """The backend. Threads and forked processes can use it. Errors of the grid (`phalanx.PhalanxError`) reach the caller,
    unless `ignore_errors` says otherwise."""

    def __init__(
        self,
        *,
        members: str | Sequence[str] | None = None,
        grid: Any = None,
        map: str = "flask",
        key_prefix: str = "",
        default_timeout: int = 300,
        ignore_delete_many_errors: bool = False,
        **more: Any,
    ) -> None:
        """Give `members`, or the `grid` that the program has. `more`: `ignore_errors`, `retry_after`, and
        further arguments of `Client`. Raises `UsageError`."""
        super().__init__(default_timeout, ignore_delete_many_errors)
        if (members is None) == (grid is None):
            raise UsageError(
                "FlaskCachingBackend: give CACHE_PHALANX_MEMBERS (host:port of members), or CACHE_PHALANX_GRID (a client or "
                "member thread of the program), and not both"
            )
        self.serializer: Any = SimpleSerializer()
        """Flask-Caching puts that of `CACHE_SERIALIZER` here."""
        self.key_prefix = key_prefix or ""
        ignore_errors, retry_after = more.pop("ignore_errors", False), more.pop("retry_after", RETRY_AFTER_S)
        if members is not None:
            shared = grid_at(members, more, ignores_errors=ignore_errors)
        elif isinstance(grid, str):
            shared = grid_named(grid, import_string)
        else:
            shared = SharedGrid(lambda: grid)
        self._cached = CachedMap(shared, map, ignore_errors=ignore_errors, retry_after=retry_after)

    @classmethod
    def factory(
        cls, app: Any, config: Mapping[str, Any], args: list[Any], kwargs: dict[str, Any]
    ) -> FlaskCachingBackend:
        """Make it of an application's settings, as Flask-Caching does. Raises `UsageError` for settings that it does not know."""
        given = {name.removeprefix(PREFIX): config[name] for name in config if name.startswith(PREFIX)}
        if unknown := sorted(set(given) - set(SETTINGS)):
            raise UsageError(f"there is no {PREFIX}{unknown[0]}; FlaskCachingBackend knows {', '.join(SETTINGS)}")
        named = {OF_CLIENTS.get(name, name.lower()): value for name, value in given.items()}
        return cls(*args, **{"key_prefix": config.get("CACHE_KEY_PREFIX") or "", **named, **kwargs})

    # --- what Flask-Caching calls ----------------------------------------------------------------------------------

    def get(self, key: str) -> Any:
        value = self._cached.use(lambda entries: entries.get(self.key_prefix + key, MISSING), MISSING)
        return None if value is MISSING else self._restored(value)

    def get_many(self, *keys: str) -> list[Any]:
        made = [self.key_prefix + key for key in keys]
        nothing: dict[str, Any] = {}
        found = self._cached.use(lambda entries: entries.get_all(made), nothing)
        return [self._restored(found.get(key)) for key in made]

    def has(self, key: str) -> bool:
        return self._cached.use(lambda entries: entries.contains(self.key_prefix + key), False)

    def set(self, key: str, value: Any, timeout: Timeout = None) -> bool:
        def store(entries: SyncMap[str, Any]) -> bool:
            entries.put(self.key_prefix + key, self._stored(value), self._ttl(timeout))
            return True

        return self._cached.use(store, False)

    def add(self, key: str, value: Any, timeout: Timeout = None) -> bool:
        made, ttl = self._stored(value), self._ttl(timeout)
        return self._cached.use(lambda entries: entries.put_if_absent(self.key_prefix + key, made, ttl) is None, False)

    def set_many(self, mapping: Mapping[str, Any], timeout: Timeout = None) -> list[str]:
        def store(entries: SyncMap[str, Any]) -> list[str]:
            made = {self.key_prefix + key: self._stored(value) for key, value in mapping.items()}
            entries.put_all(made, self._ttl(timeout))
            return list(mapping)

        return self._cached.use(store, []) if mapping else []

    def delete(self, key: str) -> bool:
        return self._cached.use(lambda entries: entries.remove(self.key_prefix + key) is not None, False)

    def inc(self, key: str, delta: float = 1) -> Any:
        """Add to a number in one step at its owner; a key without a value has 0, and then lives for the default timeout. Raises
        `TypeError` if it has no number."""
        made = self.key_prefix + key

        def add(entries: SyncMap[str, Any]) -> Any:
            while True:  # until it has a value, or gets none from others meanwhile
                try:
                    return add_to_number(entries, made, delta, self.serializer.loads)
                except KeyError:
                    if entries.put_if_absent(made, delta, self._ttl(None)) is None:
                        return delta

        return self._cached.use(add, None)

    def dec(self, key: str, delta: float = 1) -> Any:
        return self.inc(key, -delta)

    def clear(self) -> bool:
        """Remove all entries of this `CACHE_KEY_PREFIX`; without one, all of the map."""

        def remove(entries: SyncMap[str, Any]) -> bool:
            if not self.key_prefix:
                entries.clear()
                return True
            for key in entries:
                if isinstance(key, str) and key.startswith(self.key_prefix):
                    entries.remove(key)
            return True

        return self._cached.use(remove, False)

    # --- what programs know of Redis -------------------------------------------------------------------------------

    def ttl(self, key: str) -> int | None:
        """Return how many seconds the value lives; None: without end; 0: there is none."""
        none: int | None = 0
        return self._cached.use(lambda entries: seconds_left(entries, self.key_prefix + key), none)

    def lock(self, key: str, timeout: float | None = None, *, blocking_timeout: float | None = None) -> SyncLock:
        """Return the lock of a key, for `with`. `timeout`: seconds after which it is free when its holder was not heard of (None:
        30). `blocking_timeout`: seconds to wait for it (None: without end). Its errors are never ignored."""
        return self._cached.ask(lambda entries: lock_of(entries, self.key_prefix + key, timeout, blocking_timeout))

    def delete_pattern(self, pattern: str) -> int:
        """Remove the values whose key fits a pattern (`*`, `?`, `[ab]`), and return how many. All keys of the map are read."""
        return self._cached.use(lambda entries: remove_matching(entries, escaped(self.key_prefix) + pattern), 0)

    def _stored(self, value: Any) -> Any:
        return stored(value, self.serializer.dumps)

    def _restored(self, found: Any) -> Any:
        return restored(found, self.serializer.loads)

    def _ttl(self, timeout: Timeout) -> float | None:
        """Return the seconds that an entry lives; None: without end, as Flask-Caching says by 0."""
        seconds = self._normalize_timeout(timeout)
        return float(seconds) if 0 < seconds <= MAX_TTL_MS // 1000 else None
