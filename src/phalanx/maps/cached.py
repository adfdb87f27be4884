"""Functions whose results the grid keeps: what both kinds of clients share (`client.sync_cached`, `maps.async_cached`)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import msgspec

from phalanx.codec.values import to_key_data
from phalanx.common.durations import Duration, to_seconds
from phalanx.common.errors import SerializationError, UsageError
from phalanx.common.ids import MAX_TTL_MS
from phalanx.maps.locks import LEASE_S

CACHED: Final = "phalanx.cached"
"""The map that keeps the results, unless the program names another one."""
LONGEST_S: Final = MAX_TTL_MS / 1000
MISSING: Any = object()
"""Says that nothing is kept."""


class CachedTerms(msgspec.Struct, frozen=True):
    """How the results of one function are kept."""

    name: str
    """Tells the function from others: the first part of each key."""
    ttl_s: float
    """How long a result is new."""
    stale_s: float
    """How much longer an old one is given while a new one is made; 0: callers wait for the new one."""
    key: Callable[..., Any] | None
    lease_s: float

    def key_of(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
        """Return the key of a call. Raises `UsageError` if the arguments cannot be part of one."""
        if self.key is None:
            # The count tells f(1, "a", 2) from f(1, a=2): keys are flat.
            made = (self.name, len(arguments), *arguments, *(part for each in sorted(named.items()) for part in each))
        else:
            own = self.key(*arguments, **named)
            made = (self.name, *own) if isinstance(own, tuple | list) else (self.name, own)
        try:
            to_key_data(made)
        except SerializationError as error:
            raise UsageError(
                f"cached {self.name}: its arguments make no key ({error}); give key=, a function of them"
            ) from None
        return made

    def kept(self, value: Any) -> Any:
        """Return what is stored of a result: with the time until which it is new, where old ones are given too."""
        return [time.time() + self.ttl_s, value] if self.stale_s else value

    def read(self, stored: Any) -> tuple[Any, bool]:
        """Return a result, and whether it is new."""
        if not self.stale_s:
            return stored, True
        try:
            until, value = stored
            return value, time.time() < until
        except (TypeError, ValueError):
            return MISSING, False  # kept by a release of the program that gave no old ones

    @property
    def lives_s(self) -> float:
        """Return how long a result is kept."""
        return self.ttl_s + self.stale_s


def cached_terms(
    function: Callable[..., Any],
    ttl: Duration,
    key: Callable[..., Any] | None,
    stale: Duration,
    lease: Duration = LEASE_S,
) -> CachedTerms:
    """Check the arguments of `cached`. Raises `UsageError`."""
    ttl_s = to_seconds("ttl", ttl, "more than 0 and at most ten years", at_most=LONGEST_S)
    stale_s = to_seconds(
        "stale", stale, "0 or more, and with ttl at most ten years", at_most=LONGEST_S - ttl_s, may_be_zero=True
    )
    if key is not None and not callable(key):
        raise UsageError(f"key is {key!r}: give a function of the arguments that returns a key")
    name = f"{function.__module__}.{function.__qualname__}"
    return CachedTerms(name, ttl_s, stale_s, key, to_seconds("lease", lease, "more than 0", at_most=86_400))
