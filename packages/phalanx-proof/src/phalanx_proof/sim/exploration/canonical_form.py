"""The canonical form of a member's variables: two members with one form do the same for ever after.

A pure walk over all objects, so that nothing in the core has to help and a new variable is never forgotten. Times are
told from other numbers by their size (an explored clock starts at `CLOCK_START`) and are taken relative to the
member's own clock: members know nothing of each other's clocks. What is as far as `FAR_MS` off never comes.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Hashable
from typing import Any

import msgspec

from phalanx.common.config import NodeConfig
from phalanx.common.ids import Millis
from phalanx.common.view import MembersView
from phalanx.machine.outbox import Outbox

CLOCK_START: Millis = 10**12
FAR_MS: Millis = 10**8

_PLAIN = (str, bytes, bool, float, type(None), enum.Enum, MembersView)
_WITHOUT_STATE = (NodeConfig, Outbox)
"""Settings do not change, and the outbox is empty between two inputs."""


def form_of(value: Any, now: Millis) -> Hashable:
    """Return a hashable value that is equal for equal states. Order counts in lists and dicts, not in sets."""
    return _form(value, now, {})


def _form(value: Any, now: Millis, seen: dict[int, int]) -> Hashable:
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, int):
        if value < CLOCK_START // 2:
            return value
        return ("in", min(value - now, FAR_MS))
    if isinstance(value, tuple | list | deque):
        return tuple([_form(each, now, seen) for each in value])
    if isinstance(value, dict):
        return tuple([(_form(key, now, seen), _form(each, now, seen)) for key, each in value.items()])
    if isinstance(value, set | frozenset):
        return tuple(sorted((_form(each, now, seen) for each in value), key=repr))
    if isinstance(value, _WITHOUT_STATE):
        return None
    return _form_of_object(value, now, seen)


def _form_of_object(value: Any, now: Millis, seen: dict[int, int]) -> Hashable:
    if id(value) in seen:
        return ("seen", seen[id(value)])
    seen[id(value)] = len(seen)
    if isinstance(value, msgspec.Struct):
        fields = [getattr(value, name) for name in value.__struct_fields__]
    elif callable(value):
        fields = [value.__qualname__, getattr(value, "__self__", None)]
    elif hasattr(value, "__dict__"):
        fields = list(vars(value).values())
    else:
        fields = [getattr(value, name, None) for name in value.__slots__]
    return (type(value).__name__, *[_form(each, now, seen) for each in fields])
