"""How caches of frameworks store any Python object: numbers as they are, so that the grid can count with them; all else as bytes."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any, Final


class Missing:
    """Says that a key has no value: None is one."""


MISSING: Final = Missing()


def pickled(value: Any) -> bytes:
    return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)


def stored(value: Any, dumps: Callable[[Any], Any] = pickled) -> Any:
    """Return what is stored of a value: a number as it is, bytes for all else."""
    return value if type(value) is int or type(value) is float else dumps(value)


def restored(found: Any, loads: Callable[[bytes], Any] = pickle.loads) -> Any:
    """Return the value of which this was stored. Unpickling runs what was pickled: only who may run code here may write there."""
    return loads(found) if isinstance(found, bytes) else found
