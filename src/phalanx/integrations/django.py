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
| `CLUSTER`, `SECRET_FILE`, `CALL_TIMEOUT` | as of `Client` | |

`clear` removes what has the `KEY_PREFIX` of the cache. With a `KEY_FUNCTION` it removes all of the map: give each site a map of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from django.core.cache.backends.base import DEFAULT_TIMEOUT, BaseCache, default_key_func
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from phalanx.common.ids import MAX_TTL_MS
from phalanx.integrations.shared_clients import client_of_this_process
from phalanx.integrations.stored_values import MISSING, add_to_number, restored, stored

if TYPE_CHECKING:
    from phalanx.client.sync_map import SyncMap

OF_CLIENTS: Final = {"CLUSTER": "cluster", "SECRET_FILE": "secret_file", "CALL_TIMEOUT": "call_timeout_s"}
LONGEST_S: Final = MAX_TTL_MS // 1000
"""The longest time to live; Django's sites give longer ones, and mean for ever."""


class PhalanxCache(BaseCache):  # type: ignore[misc]  # Django has no types
    """The backend. Errors of the grid (`phalanx.PhalanxError`) reach the caller, as those of Django's Redis backend do."""

    def __init__(self, location: str | Iterable[str], params: Mapping[str, Any]) -> None:
        super().__init__(params)
        options = dict(params.get("OPTIONS") or {})
        self._name = options.pop("MAP", "django")
        self._grid: str | None = options.pop("GRID", None)
        known = {OF_CLIENTS[name]: options.pop(name) for name in OF_CLIENTS if name in options}
        for django_s_own in ("MAX_ENTRIES", "CULL_FREQUENCY"):
            options.pop(django_s_own, None)
        if options:
            fits = ", ".join(("MAP", "GRID", *OF_CLIENTS))
            raise ImproperlyConfigured(f"CACHES: OPTIONS has {', '.join(sorted(options))}; PhalanxCache knows {fits}")
        if not location and self._grid is None:
            raise ImproperlyConfigured(
                "CACHES: give PhalanxCache a LOCATION (host:port of members), or OPTIONS['GRID']"
            )
        self._members = location if isinstance(location, str) else ",".join(location)
        self._settings = known
        self._map: SyncMap[str, Any] | None = None

    @property
    def _entries(self) -> SyncMap[str, Any]:
        if self._map is None:
            self._map = self._connected().map(self._name)
        return self._map

    def _connected(self) -> Any:
        """Return the grid: connections are made at the first use, because settings are read before processes are forked."""
        if self._grid is not None:
            return import_string(self._grid)
        return client_of_this_process(self._members, self._settings)  # Django makes a backend for each thread

    # --- what Django calls -----------------------------------------------------------------------------------------

    def add(self, key: str, value: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None) -> bool:
        key, ttl = self.make_and_validate_key(key, version=version), self._ttl(timeout)
        if ttl == 0:
            return key not in self._entries
        return self._entries.put_if_absent(key, stored(value), ttl) is None

    def get(self, key: str, default: Any = None, version: int | None = None) -> Any:
        value = self._entries.get(self.make_and_validate_key(key, version=version), MISSING)
        return default if value is MISSING else restored(value)

    def set(self, key: str, value: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None) -> None:
        key, ttl = self.make_and_validate_key(key, version=version), self._ttl(timeout)
        if ttl == 0:
            self._entries.remove(key)
        else:
            self._entries.put(key, stored(value), ttl)

    def touch(self, key: str, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None) -> bool:
        key, ttl = self.make_and_validate_key(key, version=version), self._ttl(timeout)
        if ttl == 0:
            return self._entries.remove(key) is not None
        return self._entries.persist(key) if ttl is None else self._entries.touch(key, ttl)

    def delete(self, key: str, version: int | None = None) -> bool:
        return self._entries.remove(self.make_and_validate_key(key, version=version)) is not None

    def has_key(self, key: str, version: int | None = None) -> bool:
        return self._entries.contains(self.make_and_validate_key(key, version=version))

    def incr(self, key: str, delta: int = 1, version: int | None = None) -> Any:
        """Add to a number, in one step at its owner. Raises `ValueError` if the key has no value, `TypeError` if it is no number."""
        try:
            return add_to_number(self._entries, self.make_and_validate_key(key, version=version), delta)
        except KeyError:
            raise ValueError(f"Key {key!r} not found") from None

    def get_many(self, keys: Iterable[str], version: int | None = None) -> dict[str, Any]:
        made = {self.make_and_validate_key(key, version=version): key for key in keys}
        return {made[key]: restored(value) for key, value in self._entries.get_all(made).items()}

    def set_many(
        self, data: Mapping[str, Any], timeout: Any = DEFAULT_TIMEOUT, version: int | None = None
    ) -> list[str]:
        ttl = self._ttl(timeout)
        if ttl == 0:
            self.delete_many(data, version=version)
        elif data:
            self._entries.put_all(
                {self.make_and_validate_key(key, version=version): stored(value) for key, value in data.items()}, ttl
            )
        return []

    def delete_many(self, keys: Iterable[str], version: int | None = None) -> None:
        for key in keys:
            self._entries.remove(self.make_and_validate_key(key, version=version))

    def clear(self) -> None:
        """Remove all entries of this `KEY_PREFIX`, in all versions. Without one, or with a `KEY_FUNCTION`, whose keys do not tell
        whose they are, remove all of the map."""
        if not self.key_prefix or self.key_func is not default_key_func:
            self._entries.clear()
            return
        begin = f"{self.key_prefix}:"
        for key in self._entries:
            if isinstance(key, str) and key.startswith(begin):
                version, is_key, _ = key[len(begin) :].partition(":")
                # The entries of the prefix "site:eu" begin with "site:", too.
                if is_key and (version.removeprefix("-").isdecimal() or version == str(self.version)):
                    self._entries.remove(key)

    def _ttl(self, timeout: Any) -> float | None:
        """Return the seconds that an entry lives; None: for ever; 0: it is over at once."""
        seconds = self.default_timeout if timeout is DEFAULT_TIMEOUT else timeout
        if seconds is None or seconds > LONGEST_S:
            return None
        return max(float(seconds), 0.0)
