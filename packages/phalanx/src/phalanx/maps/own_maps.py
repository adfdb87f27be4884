"""Phalanx's own maps, `phalanx.*`: programs can read them, but not write into them.

Results of functions (`phalanx.cached`), locks and schemas of Hazelcast's clients are kept there. What writes them by right names them by
`OwnName` (`cached`), asks the owners itself (locks, and schemas, which come by Hazelcast's protocol), or stages rows (a restore from
an archive). Results of functions can be removed: they are made again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from typing import Any, Final, NoReturn, TypeVar, cast

from phalanx.common.errors import UsageError
from phalanx.common.words import quoted

M = TypeVar("M")

OURS: Final = "phalanx."
"""What the names of these maps begin with."""
CACHED: Final = "phalanx.cached"
"""The map that keeps results of functions, unless the program names another one."""
REMOVALS: Final = ("__delitem__", "clear", "pop", "popitem", "remove", "remove_if")
WRITES: Final = (
    "__setitem__", "compare_and_set", "get_and_put", "get_and_replace", "increment", "persist", "put", "put_all", "put_data",
    "put_if_absent", "put_packed", "replace", "setdefault", "touch", "update", "update_all", "update_where",
)  # fmt: skip


class OwnName(str):
    """The name of such a map as Phalanx itself gives it. What a program makes up is none."""

    __slots__ = ()


def check_not_ours(name: str) -> str:
    """Return the name of a map that is to be written. Raises `UsageError` if it is one of Phalanx's own."""
    if name.startswith(OURS):
        raise _not_yours(name)
    return name


def map_class(kind: type[M], name: object) -> type[M]:
    """Return the class for a map of this name: `kind`, or the same without what programs must not do."""
    if not isinstance(name, str) or not name.startswith(OURS) or isinstance(name, OwnName):
        return kind
    made: type[M] = _reading_class(cast("Hashable", kind), name == CACHED)
    return made


@functools.cache
def _reading_class(kind: Any, may_be_removed: bool) -> Any:
    refused = WRITES if may_be_removed else (*WRITES, *REMOVALS)
    methods = {name: _refusing(getattr(kind, name)) for name in refused if hasattr(kind, name)}
    return type(kind.__name__, (kind,), methods | {"__module__": __name__})


def _refusing(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def refuse(self: Any, *args: object, **named: object) -> NoReturn:
        raise _not_yours(self.name)

    return refuse


def _not_yours(name: str) -> UsageError:
    return UsageError(
        f"map {quoted(name)}: names that begin with {OURS!r} belong to Phalanx, and programs cannot write into these maps; give your map another name"
    )
