"""How caches of frameworks store any Python object: numbers as they are, so that the grid can count with them; all else as bytes."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from phalanx.common.errors import UsageError

if TYPE_CHECKING:
    from phalanx.client.blocking.sync_map import SyncMap


class Missing:
    """Says that a key has no value: None is one."""


MISSING: Final = Missing()


def pickled(value: Any) -> bytes:
    return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)


def stored(value: Any, dumps: Callable[[Any], Any] = pickled) -> Any:
    """Return what is stored of a value: a number as it is, bytes for all else."""
    return value if type(value) is int or type(value) is float else dumps(value)


def restored(found: Any, loads: Callable[[bytes], Any] = pickle.loads) -> Any:
    """Return the value of which this was stored. Unpickling runs what was pickled: only who can run code here can write there."""
    return loads(found) if isinstance(found, bytes) else found


def add_to_number(
    entries: SyncMap[str, Any], key: str, delta: Any, loads: Callable[[bytes], Any] = pickle.loads
) -> Any:
    """Add to the number of a key in one step at its owner, whose time to live stays; return the sum. Raises `KeyError` if the key
    has no value, and `TypeError` if this or `delta` is not a number."""
    try:
        return entries.increment(key, delta, initial=None)
    except UsageError as error:
        if isinstance(present := entries.get(key), bytes):
            raise TypeError(f"the value of key {key!r} is not a number: {type(loads(present)).__name__}") from None
        raise TypeError(f"the value of key {key!r} cannot be added to: {error}") from None
