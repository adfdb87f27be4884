"""Keys that Python and the grid count differently: 1, True, 1.0 and Decimal(1) are one key of a dict, and four keys of a map."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from typing import Any, Final, NoReturn
from uuid import UUID

from phalanx.codec.messagepack import type_name
from phalanx.common.errors import UsageError
from phalanx.common.words import quoted

_NUMBERS: Final = frozenset([bool, int, float])
_ALIKE: Final = frozenset([str, bytes, UUID, dt.date, dt.time, dt.timedelta, *_NUMBERS])
"""Types of which two keys are equal exactly if their bytes are; of numbers, if there is one type of them."""


def check_fit_in_dict(keys: Sequence[Any], datas: Sequence[bytes]) -> None:
    """Raise `UsageError` if a dict cannot hold these keys as the grid does. `datas`: the serialised keys."""
    if _are_alike(keys):
        return
    found: dict[Any, bytes] = {}
    try:
        for key, data in zip(keys, datas, strict=True):
            if found.setdefault(key, data) != data:
                _refuse(
                    next(each for each in found if each == key),
                    key,
                    "two keys here, but equal in Python, so one dict cannot hold both",
                )
    except TypeError as error:
        raise UsageError(f"{error}: it cannot be in a dict of entries; give a tuple") from None
    check_stored_apart(keys, datas)


def check_stored_apart(keys: Sequence[Any], datas: Sequence[bytes]) -> None:
    """Raise `UsageError` if two keys that are not equal are stored as the same bytes: one value would be lost."""
    if _are_alike(keys):
        return
    found: dict[bytes, Any] = {}
    for key, data in zip(keys, datas, strict=True):
        if (other := found.setdefault(data, key)) != key:
            _refuse(other, key, "two keys in Python, but stored as the same bytes here")


def _are_alike(keys: Iterable[Any]) -> bool:
    """Return whether two of these keys are equal exactly if their bytes are."""
    kinds = {*map(type, keys)}
    return kinds <= _ALIKE and len(kinds & _NUMBERS) < 2


def _refuse(one: Any, other: Any, why: str) -> NoReturn:
    raise UsageError(
        f"the keys {quoted(one)} ({type_name(one)}) and {quoted(other)} ({type_name(other)}) are {why}; give them in two calls, or as "
        f"one type"
    )
