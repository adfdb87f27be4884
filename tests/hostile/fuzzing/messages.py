"""Messages of clients and members, made from their own types, and from what a member is likely to know."""

from __future__ import annotations

import types
from collections.abc import Callable
from enum import Enum
from random import Random
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from hostile.fuzzing import values
from hostile.fuzzing.changes import ODD_NUMBERS
from phalanx.codec.values import to_data
from phalanx.common.traits import Traits
from phalanx.grid.serving.updates import BUILT_IN
from phalanx.wire.conditions import Condition, Kind, Relation
from phalanx.wire.key_requests import LifeRule

Draw = Callable[[Random], Any]
_FUNCTIONS = tuple(sorted(BUILT_IN))
_PLAIN = tuple(name for name in _FUNCTIONS if not name.startswith("redis"))
_KEYS = tuple(to_data(key) for key in ("k", "s", "l", "d", "x", "none", b"big", b"h", b"bighash"))
_TEXTS = ("", "m", "A:5701/1", "A:5701/A1", "client/1", "client/fuzz", "A:5701", "phalanx.locks", "é", "x" * 200)
_PATHS = (("a",), ("f",), ("value",), ("f", "a"), ("a",) * 32, ())


def _condition(rng: Random) -> Condition:
    literals = tuple(values.data(rng) for _ in range(rng.choice((0, 1, 1, 1, 3))))
    part = rng.choice((-1, -1, 0))
    path = rng.choice(_PATHS) if part < 0 else ()
    return Condition(part, path, rng.choice(tuple(Kind)), rng.choice(tuple(Relation)), literals, rng.random() < 0.3)


def _number(rng: Random) -> int:
    return rng.choice(ODD_NUMBERS) if rng.random() < 0.3 else rng.randrange(-1, 8)


_NAMED: dict[str, Draw] = {
    "map": lambda rng: "m" if rng.random() < 0.9 else rng.choice(_TEXTS),
    "key": lambda rng: rng.choice(_KEYS) if rng.random() < 0.9 else values.data(rng),
    "keys": lambda rng: [rng.choice(_KEYS)] * rng.choice((1, 2, 300)) if rng.random() < 0.2 else [rng.choice(_KEYS) for _ in range(rng.randrange(5))],
    "function": lambda rng: rng.choice(_FUNCTIONS),
    "value": values.data, "expected": values.data,
    "arguments": lambda rng: [values.data(rng) for _ in range(rng.choice((0, 1, 1, 1, 2)))],
    "partition": lambda rng: rng.randrange(7) if rng.random() < 0.9 else _number(rng),
    "partition_count": lambda rng: 7 if rng.random() < 0.9 else _number(rng),
    "partitions": lambda rng: list(range(7)) if rng.random() < 0.5 else [_number(rng) for _ in range(rng.randrange(4))],
    "id": lambda rng: rng.randrange(1, 2**40),
    "ttl_ms": lambda rng: 0 if rng.random() < 0.8 else _number(rng),
    "max_idle_ms": lambda rng: 0 if rng.random() < 0.8 else _number(rng),
    "life": lambda rng: LifeRule.ANY if rng.random() < 0.8 else rng.choice(tuple(LifeRule)),
    "op": lambda rng: 0 if rng.random() < 0.8 else _number(rng),
    "open_from": lambda rng: 0 if rng.random() < 0.8 else _number(rng),
}  # fmt: skip
"""What a field of this name is likely to be."""


_KEYS_OF: dict[type, tuple[bytes, ...]] = {
    list: (to_data("l"),),
    dict: (to_data("d"),),
    int: (to_data("k"), to_data("x")),
}


def _fitting(rng: Random, request: Any) -> Any:
    """Return the request of an update with a function, a key and arguments that fit each other."""
    function = rng.choice(_PLAIN if rng.random() < 0.7 else _FUNCTIONS)
    kind = values.FUNCTION_KINDS.get(function)
    many = rng.choice((0, 1, 1, 1, 1, 1, 1, 2))
    changes: dict[str, Any] = {"function": function, "arguments": [values.argument(rng, function) for _ in range(many)]}
    if kind is not None and hasattr(request, "key"):
        changes["key"] = rng.choice(_KEYS_OF[kind])
    return msgspec.structs.replace(request, **changes)


def _of_struct(kind: type) -> Draw:
    hints = get_type_hints(kind)
    fields = [(name, of_type(hints[name]), _NAMED.get(name)) for name in kind.__struct_fields__]  # type: ignore[attr-defined]

    is_update = {"function", "arguments"} <= set(hints)

    def draw(rng: Random) -> Any:
        made = kind(
            *[(named if named is not None and rng.random() < 0.9 else other)(rng) for name, other, named in fields]
        )
        return _fitting(rng, made) if is_update and rng.random() < 0.9 else made

    return draw


def of_type(kind: Any) -> Draw:
    """Return what draws values of a type, as the wire can carry them."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is int:
        return _number
    if kind is bool:
        return lambda rng: rng.random() < 0.5
    if kind is float:
        return lambda rng: rng.choice(values.ODD_FLOATS)
    if kind is str or isinstance(kind, TypeVar):
        return lambda rng: rng.choice(_TEXTS)
    if kind is bytes:
        return values.data
    if kind is Condition:
        return _condition
    if kind is Traits:
        return lambda rng: Traits("zone", 1.0, False)
    if kind is type(None):
        return lambda rng: None
    if origin in (Union, types.UnionType):
        several = [of_type(each) for each in arguments]
        return lambda rng: rng.choice(several)(rng)
    if origin in (list, tuple) and (origin is list or arguments[-1] is Ellipsis):
        one = of_type(arguments[0])
        return lambda rng: origin(one(rng) for _ in range(rng.randrange(4)))
    if origin is tuple:
        all_of = [of_type(each) for each in arguments]
        return lambda rng: tuple(each(rng) for each in all_of)
    if origin is dict:
        key, value = map(of_type, arguments)
        return lambda rng: {key(rng): value(rng)}
    if isinstance(kind, type) and issubclass(kind, Enum):
        members = tuple(kind)
        return lambda rng: rng.choice(members)
    found = kind if isinstance(kind, type) else origin
    if isinstance(found, type) and issubclass(found, msgspec.Struct):
        return _of_struct(found)
    if hasattr(kind, "__supertype__"):
        return of_type(kind.__supertype__)
    raise NotImplementedError(f"no values for {kind!r}")
