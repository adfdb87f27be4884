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
| `CACHE_PHALANX_CLUSTER`, `…_SECRET_FILE`, `…_CALL_TIMEOUT` | as of `Client` | |
| `CACHE_PHALANX_MAP` | `"flask"` | the map that holds the entries |
| `CACHE_KEY_PREFIX` | | what its keys begin with; `clear` removes only these |
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from cachelib.serializers import SimpleSerializer
from flask_caching.backends.base import BaseCache
from werkzeug.utils import import_string

from phalanx.common.errors import UsageError
from phalanx.common.ids import MAX_TTL_MS
from phalanx.integrations.shared_clients import client_of_this_process
from phalanx.integrations.stored_values import MISSING, add_to_number, restored, stored

if TYPE_CHECKING:
    from phalanx.client.sync_map import SyncMap

PREFIX: Final = "CACHE_PHALANX_"
OF_CLIENTS: Final = {"CLUSTER": "cluster", "SECRET_FILE": "secret_file", "CALL_TIMEOUT": "call_timeout_s"}
SETTINGS: Final = ("MEMBERS", "GRID", "MAP", *OF_CLIENTS)

Timeout = int | dt.timedelta | None


class FlaskCachingBackend(BaseCache):
    """The backend. Threads and forked processes may use it. Errors of the grid (`phalanx.PhalanxError`) reach the caller."""

    def __init__(
        self,
        *,
        members: str | None = None,
        grid: Any = None,
        map: str = "flask",
        key_prefix: str = "",
        default_timeout: int = 300,
        ignore_delete_many_errors: bool = False,
        **of_client: Any,
    ) -> None:
        """Give `members`, or the `grid` that the program has. `of_client`: further arguments of `Client`. Raises `UsageError`."""
        super().__init__(default_timeout, ignore_delete_many_errors)
        if (members is None) == (grid is None):
            raise UsageError("FlaskCachingBackend: give members, or the grid that the program has, and not both")
        self.serializer: Any = SimpleSerializer()
        """Flask-Caching puts that of `CACHE_SERIALIZER` here."""
        self.key_prefix = key_prefix or ""
        self._members, self._grid, self._of_client, self._name = members, grid, of_client, map
        self._map: SyncMap[str, Any] | None = None

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

    @property
    def _entries(self) -> SyncMap[str, Any]:
        # At the first use: an application may be loaded before its processes are forked.
        if self._map is None:
            grid = import_string(self._grid) if isinstance(self._grid, str) else self._grid
            if grid is None:
                grid = client_of_this_process(str(self._members), self._of_client)
            self._map = grid.map(self._name)
        return self._map

    # --- what Flask-Caching calls ----------------------------------------------------------------------------------

    def get(self, key: str) -> Any:
        value = self._entries.get(self.key_prefix + key, MISSING)
        return None if value is MISSING else self._restored(value)

    def get_many(self, *keys: str) -> list[Any]:
        found = self._entries.get_all([self.key_prefix + key for key in keys])
        return [self._restored(found.get(self.key_prefix + key)) for key in keys]

    def has(self, key: str) -> bool:
        return self._entries.contains(self.key_prefix + key)

    def set(self, key: str, value: Any, timeout: Timeout = None) -> bool:
        self._entries.put(self.key_prefix + key, self._stored(value), self._ttl(timeout))
        return True

    def add(self, key: str, value: Any, timeout: Timeout = None) -> bool:
        return self._entries.put_if_absent(self.key_prefix + key, self._stored(value), self._ttl(timeout)) is None

    def set_many(self, mapping: Mapping[str, Any], timeout: Timeout = None) -> list[str]:
        if mapping:
            entries = {self.key_prefix + key: self._stored(value) for key, value in mapping.items()}
            self._entries.put_all(entries, self._ttl(timeout))
        return list(mapping)

    def delete(self, key: str) -> bool:
        return self._entries.remove(self.key_prefix + key) is not None

    def inc(self, key: str, delta: float = 1) -> Any:
        """Add to a number in one step at its owner; a key without a value has 0, and then lives for the default timeout. Raises
        `TypeError` if it has no number."""
        made, entries = self.key_prefix + key, self._entries
        while True:  # until it has a value, or gets none from others meanwhile
            try:
                return add_to_number(entries, made, delta, self.serializer.loads)
            except KeyError:
                if entries.put_if_absent(made, delta, self._ttl(None)) is None:
                    return delta

    def dec(self, key: str, delta: float = 1) -> Any:
        return self.inc(key, -delta)

    def clear(self) -> bool:
        """Remove all entries of this `CACHE_KEY_PREFIX`; without one, all of the map."""
        entries = self._entries
        if not self.key_prefix:
            entries.clear()
            return True
        for key in entries:
            if isinstance(key, str) and key.startswith(self.key_prefix):
                entries.remove(key)
        return True

    def _stored(self, value: Any) -> Any:
        return stored(value, self.serializer.dumps)

    def _restored(self, found: Any) -> Any:
        return restored(found, self.serializer.loads)

    def _ttl(self, timeout: Timeout) -> float | None:
        """Return the seconds that an entry lives; None: for ever, as Flask-Caching says by 0."""
        seconds = self._normalize_timeout(timeout)
        return float(seconds) if 0 < seconds <= MAX_TTL_MS // 1000 else None
