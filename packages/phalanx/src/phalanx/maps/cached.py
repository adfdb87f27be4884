"""Functions whose results the grid keeps: what both kinds of clients share (`client.blocking.sync_cached`, `maps.async_cached`).

All functions of all programs can keep their results in one map. So a function's name is part of its keys, and must be its own:
names that several functions can have (in a script, in a function, without a name) are refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Generic, ParamSpec, TypeVar

import msgspec

from phalanx.codec.values import to_key_data
from phalanx.common.durations import Duration, to_seconds
from phalanx.common.errors import SerializationError, UsageError
from phalanx.common.ids import MAX_TTL_MS
from phalanx.common.words import check_text, quoted
from phalanx.maps.locks import LEASE_S
from phalanx.maps.own_maps import CACHED, OwnName

P = ParamSpec("P")
R = TypeVar("R")

LONGEST_S: Final = MAX_TTL_MS / 1000
MISSING: Any = object()
"""Says that nothing is kept."""


class CachedTerms(msgspec.Struct, frozen=True):
    """How the results of one function are kept."""

    name: str
    """Tells the function from all others."""
    ttl_s: float
    """How long a result is new."""
    stale_s: float
    """How much longer an old one is given while a new one is made; 0: callers wait for the new one."""
    key: Callable[..., Any] | None
    lease_s: float

    def __str__(self) -> str:
        stale = f", stale={self.stale_s:g}" if self.stale_s else ""
        return f"{quoted(self.name)}, ttl={self.ttl_s:g}{stale}"

    def key_of(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
        """Return the key of a call. Raises `UsageError` if the arguments cannot be part of one."""
        # Under the plain name, earlier releases stored old results with the time until which they were new.
        first = f"{self.name}~" if self.stale_s else self.name
        if self.key is None:
            # The count tells f(1, "a", 2) from f(1, a=2): keys are flat.
            made = (first, len(arguments), *arguments, *(part for each in sorted(named.items()) for part in each))
        else:
            own = self.key(*arguments, **named)
            made = (first, *own) if isinstance(own, tuple | list) else (first, own)
        try:
            to_key_data(made)
        except SerializationError as error:
            raise UsageError(
                f"cached {self.name}: its arguments make no key ({error}); give key=, a function of them"
            ) from None
        return made

    def is_new(self, left_s: float | None) -> bool:
        """Return whether a result that lives for this many more seconds (None: without end) is new. Owners send that time: no clock of a
        caller counts."""
        return left_s is None or left_s > self.stale_s

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
    name: str | None = None,
) -> CachedTerms:
    """Check the arguments of `cached`. Raises `UsageError`."""
    ttl_s = to_seconds("ttl", ttl, "more than 0 and at most ten years", at_most=LONGEST_S)
    stale_s = to_seconds(
        "stale", stale, "0 or more, and with ttl at most ten years", at_most=LONGEST_S - ttl_s, may_be_zero=True
    )
    if key is not None and not callable(key):
        raise UsageError(f"key is {key!r}: give a function of the arguments that returns a key")
    lease_s = to_seconds("lease", lease, "more than 0", at_most=86_400)
    return CachedTerms(_own_name(function, name), ttl_s, stale_s, key, lease_s)


def map_of_results(name: str) -> str:
    """Return the name of the map in which `cached` keeps results."""
    return OwnName(name) if name == CACHED else name


def _own_name(function: object, name: str | None) -> str:
    """Return the name that tells a function from all others: the given one, or that of the function. Raises `UsageError`."""
    if not callable(function):
        raise UsageError(f"cached: {quoted(function)} cannot be called: put @classmethod or @property above @cached")
    if name is not None:
        if not isinstance(name, str) or not name:
            raise UsageError(f"name is {quoted(name)}: give the function a name that no other one has")
        return check_text(name, "name")
    module, own = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if not own or not module:
        why = "has no name of its own"
    elif module == "__main__":
        why = f"is {quoted(own)} of a script, as functions of other scripts are"
    elif "<" in own:  # <lambda>, <locals>
        why = f"is {quoted(own)}, as other functions can be"
    else:
        return f"{module}.{own}"
    raise UsageError(f"cached: {quoted(function)} {why}, and would share its results with them: give name=")


class CachedMethod(Generic[P, R]):
    """A function whose results the grid keeps, as a method of one object, which is its first argument."""

    def __init__(self, cached: Any, of: object) -> None:
        self._cached, self._of = cached, of

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Do as the function does."""
        result: R = self._cached(self._of, *args, **kwargs)
        return result

    def forget(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Do as the function's `forget` does."""
        return self._cached.forget(self._of, *args, **kwargs)


def method_of(cached: Any, terms: CachedTerms, of: object) -> CachedMethod[Any, Any]:
    """Return a function as a method of an object. Raises `UsageError` if nothing says what the object is in a key."""
    if terms.key is None:
        raise UsageError(
            f"cached {terms.name}: it is a method, and its object cannot be part of a key; give key=, a function of the object and "
            f"the arguments"
        )
    return CachedMethod(cached, of)
