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


class _Kind(enum.Enum):
    """How a value is written."""

    PLAIN = enum.auto()
    NUMBER = enum.auto()
    SEQUENCE = enum.auto()
    MAPPING = enum.auto()
    SET = enum.auto()
    WITHOUT_STATE = enum.auto()
    """Settings do not change, and the outbox is empty between two inputs."""
    OBJECT = enum.auto()


_TYPES: dict[_Kind, tuple[type, ...]] = {
    _Kind.PLAIN: (str, bytes, bool, float, type(None), enum.Enum, MembersView),
    _Kind.NUMBER: (int,),
    _Kind.SEQUENCE: (tuple, list, deque),
    _Kind.MAPPING: (dict,),
    _Kind.SET: (set, frozenset),
    _Kind.WITHOUT_STATE: (NodeConfig, Outbox),
}
"""The first line counts that has a type."""
_kinds: dict[type, _Kind] = {}


def form_of(value: Any, now: Millis) -> Hashable:
    """Return a hashable value that is equal for equal states. Order counts in lists and dicts, not in sets."""
    return _form(value, now, {})


def _form(value: Any, now: Millis, seen: dict[int, int]) -> Hashable:
    kind = _kinds.get(type(value)) or _kind_of(type(value))
    if kind is _Kind.PLAIN:
        return value  # type: ignore[no-any-return]
    if kind is _Kind.NUMBER:
        if value < CLOCK_START // 2:
            return value  # type: ignore[no-any-return]
        return ("in", min(value - now, FAR_MS))
    if kind is _Kind.SEQUENCE:
        # Most are long, and hold next to nothing: calls for that would be most of the work.
        return tuple([each if _kinds.get(type(each)) is _Kind.PLAIN else _form(each, now, seen) for each in value])
    if kind is _Kind.MAPPING:
        return tuple([(_form(key, now, seen), _form(each, now, seen)) for key, each in value.items()])
    if kind is _Kind.SET:
        return tuple(sorted((_form(each, now, seen) for each in value), key=repr))
    return None if kind is _Kind.WITHOUT_STATE else _form_of_object(value, now, seen)


def _kind_of(of: type) -> _Kind:
    """Return how values of a type are written, and remember it."""
    kind = next((kind for kind, types in _TYPES.items() if issubclass(of, types)), _Kind.OBJECT)
    _kinds[of] = kind
    return kind


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
