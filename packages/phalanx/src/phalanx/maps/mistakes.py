"""What programs write that mix asyncio with what blocks, or that knew another client before: an error says what to write instead.

Checkers of types see none of these methods, so they continue reporting the mistake themselves; `dir()` and `help()` show none.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn, TypeVar, cast

from phalanx.common.errors import UsageError
from phalanx.common.public_names import AbsentName, PublicNames
from phalanx.common.words import quoted

M = TypeVar("M", bound=Callable[..., Any])
C = TypeVar("C")

_OF_DICTS: Final = {
    "pop": "await map.remove(key)",
    "setdefault": "await map.put_if_absent(key, value)",
    "popitem": "await map.remove(key)",
}
"""What a dict has and a map of asyncio has not, and what to write instead."""

OF_OTHER_CLIENTS: Final = {
    "get": "get(key)",
    "put": "put(key, value)",
    "set": "put(key, value)",
    "delete": "remove(key)",
    "exists": "contains(key)",
    "incr": "increment(key)",
    "incrby": "increment(key, by=…)",
    "decr": "increment(key, by=-1)",
    "setnx": "put_if_absent(key, value)",
    "setex": "put(key, value, ttl=seconds)",
    "mget": "get_all(keys)",
    "mset": "put_all(entries)",
    "getset": "get_and_put(key, value)",
    "getdel": "remove(key)",
    "expire": "touch(key, seconds)",
    "ttl": "time_to_live(key)",
    "hset": 'update(key, "merge", fields)',
    "hget": "get(key)",
    "hgetall": "get(key)",
    "rpush": 'update(key, "append", value)',
    "sadd": 'update(key, "add_to_set", value)',
    "contains_key": "contains(key)",
    "replace_if_same": "compare_and_set(key, expected, value)",
    "remove_if_same": "remove_if(key, expected)",
    "set_ttl": "touch(key, seconds)",
    "execute_on_key": "update(key, name)",
}
"""What clients of Redis and Hazelcast call it, and which call of a map does it (docs/coming-from.md)."""

_ENDS: Final = ("close", "stop", "shutdown", "aclose")
"""What a client, a member, and clients of others call their end."""


def _name_absent(names: Iterable[str], error: Callable[[Any, str], AttributeError]) -> Callable[[type[C]], type[C]]:
    """Return a decorator of a last base: objects without one of these names raise the error that is made of the object and the name."""

    def decorate(base: type[C]) -> type[C]:
        for name in names:
            setattr(base, name, AbsentName(name, error))
        return base

    return decorate


class NeedsAsyncWith(PublicNames):
    """Base of what is used with `async with`."""

    _internal: ClassVar[frozenset[str]] = frozenset({"__enter__", "__exit__"})

    if not TYPE_CHECKING:

        def __enter__(self) -> NoReturn:
            raise TypeError(f"write `async with` instead of `with`: {_name_of(self)} belongs to an event loop")

        def __exit__(self, *error: object) -> None:
            """Do nothing: Python looks for it before it calls `__enter__`."""


class NeedsPlainWith(PublicNames):
    """Base of what is used with `with`."""

    _internal: ClassVar[frozenset[str]] = frozenset({"__aenter__", "__aexit__"})

    if not TYPE_CHECKING:

        async def __aenter__(self) -> NoReturn:
            raise TypeError(
                f"write `with` instead of `async with`: {_name_of(self)} blocks its thread. For asyncio there are phalanx.connect and "
                f"phalanx.start_member"
            )

        async def __aexit__(self, *error: object) -> None:
            """Do nothing: Python looks for it before it calls `__aenter__`."""


def _no_name_of_grid(grid: object, name: str) -> AttributeError:
    waits = "await " if isinstance(grid, NeedsAsyncWith) else ""
    if name == "get_map":
        return AttributeError(f"{_name_of(grid)} has no {name!r}: write `grid.map(name)`")
    if name in _ENDS:
        end = "stop" if hasattr(type(grid), "stop") else "close"
        return AttributeError(f"{_name_of(grid)} has no {name!r}: write `{waits}grid.{end}()`")
    return AttributeError(
        f"{_name_of(grid)} has no {name!r}, because each key belongs to a map: write `{waits}grid.map(name).{OF_OTHER_CLIENTS[name]}`"
    )


@_name_absent(("get_map", *_ENDS, *OF_OTHER_CLIENTS), _no_name_of_grid)
class HoldsMaps(PublicNames):
    """Last base of what has maps, and no entries itself."""

    _internal: ClassVar[frozenset[str]] = frozenset({"__getitem__"})

    if not TYPE_CHECKING:

        def __getitem__(self, name: object) -> NoReturn:
            raise TypeError(f"{_name_of(self)} has maps, and no entries: write `grid.map(name)`")


@_name_absent(OF_OTHER_CLIENTS, lambda map_, name: _no_method(map_, name, f"map.{OF_OTHER_CLIENTS[name]}"))
class KnowsOtherClients(PublicNames):
    """Last base of a map that blocks."""


_INSTEAD_OF_AWAITED: Final = {name: f"await map.{call}" for name, call in OF_OTHER_CLIENTS.items()} | _OF_DICTS


@_name_absent(_INSTEAD_OF_AWAITED, lambda map_, name: _no_method(map_, name, _INSTEAD_OF_AWAITED[name]))
class NoDict(PublicNames):
    """Last base of a map whose calls are awaited, and which therefore has none of a dict's operators."""

    _internal: ClassVar[frozenset[str]] = frozenset(
        {
            "__getitem__",
            "__setitem__",
            "__delitem__",
            "__contains__",
            "__len__",
            "__bool__",
            "__iter__",
            "__aiter__",
        }
    )

    if not TYPE_CHECKING:

        def __getitem__(self, key: object) -> NoReturn:
            raise _no_operator(self, "map[key]", "await map.get(key)")

        def __setitem__(self, key: object, value: object) -> NoReturn:
            raise _no_operator(self, "map[key] = value", "await map.put(key, value)")

        def __delitem__(self, key: object) -> NoReturn:
            raise _no_operator(self, "del map[key]", "await map.remove(key)")

        def __contains__(self, key: object) -> NoReturn:
            raise _no_operator(self, "key in map", "await map.contains(key)")

        def __len__(self) -> NoReturn:
            raise _no_operator(self, "len(map)", "await map.size()")

        def __bool__(self) -> bool:
            return True  # `given or default` asks whether there is a map at all: `__len__` must not be called for that

        def __iter__(self) -> NoReturn:
            raise _no_operator(self, "for key in map", "async for key in map.keys()")

        def __aiter__(self) -> NoReturn:
            raise _no_operator(self, "async for key in map", "async for key in map.keys()")


def in_parentheses(method: M) -> M:
    """Return a method that makes a decorator, and says so where it is used as one itself."""

    @functools.wraps(method)
    def checked(self: Any, *mistaken: object, **named: Any) -> Any:
        if mistaken and not callable(mistaken[0]):
            raise UsageError(
                f"{method.__name__}({quoted(mistaken[0])}): give its arguments by name, as in @{method.__name__}(ttl=60), where ttl is the "
                f"number of seconds for which a result is used"
            )
        if mistaken:
            function = getattr(mistaken[0], "__qualname__", None) or quoted(mistaken[0])
            raise UsageError(
                f"@{method.__name__} above {function} has no parentheses: write @{method.__name__}(ttl=60), where ttl is the number "
                f"of seconds for which a result is used"
            )
        return method(self, **named)

    return cast("M", checked)


def not_connected(name: str) -> AttributeError:
    """Return the error for an attribute of what `connect` returns."""
    return AttributeError(
        f"phalanx.connect(…) has no {name!r}, because it is not connected yet: write `async with phalanx.connect(…) as client:`, or "
        f"`client = await phalanx.connect(…)`; {name!r} is the client's"
    )


def _no_method(entries: object, name: str, instead: str) -> AttributeError:
    return AttributeError(f"{type(entries).__name__} has no {name!r}: write `{instead}`")


def _no_operator(entries: object, written: str, instead: str) -> TypeError:
    return TypeError(f"{entries!r} belongs to an event loop: instead of `{written}` write `{instead}`")


def _name_of(value: object) -> str:
    return type(value).__name__.lstrip("_")
