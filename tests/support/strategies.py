"""Hypothesis strategies for every message there is, built from the messages' own types; and fewer examples where each takes long.

How many examples a test plays says the profile (`conftest.py`), and no test plays more.
"""

import types
from collections.abc import Iterable
from enum import Enum
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from hypothesis import settings
from hypothesis import strategies as st

from phalanx.common.invariant import known
from phalanx.common.traits import MAX_WEIGHT, Traits
from phalanx.wire import messages as m

ALL_KINDS = (*get_args(m.Handshake), *get_args(m.Message))
REQUESTS = get_args(m.Request)

INTEGERS = st.one_of(
    st.sampled_from([0, 1, 2, 3, -1, 2**31, 2**63 - 1, 2**64 - 1, -(2**63)]), st.integers(-(2**63), 2**64 - 1)
)
TEXTS = st.one_of(st.sampled_from(["", "m", "A:5701/1", "client/1", "A:5701"]), st.text(max_size=20))
BYTES = st.one_of(st.sampled_from([b"", b"\xff\xff\xff\xf5k0", b"\0" * 4]), st.binary(max_size=40))


def examples(share: float) -> settings:
    """The settings of a test that plays so much of the profile's examples: each takes long."""
    return settings(max_examples=round(known(settings.default, "a profile is loaded").max_examples * share))


def values_of(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a type as the wire can carry them."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is int:
        return INTEGERS
    if kind is bool:
        return st.booleans()
    if kind is str:
        return TEXTS
    if kind is bytes:
        return BYTES
    if kind is Traits:
        return st.builds(Traits, st.text(max_size=20), st.floats(0, MAX_WEIGHT, exclude_min=True), st.booleans())
    if kind is type(None):
        return st.none()
    if origin in (Union, types.UnionType):
        return st.one_of([values_of(argument) for argument in arguments])
    if origin is list:
        return st.lists(values_of(arguments[0]), max_size=4)
    if origin is tuple and arguments[-1] is not Ellipsis:
        return st.tuples(*map(values_of, arguments))
    if origin is tuple:
        return st.lists(values_of(arguments[0]), max_size=4).map(tuple)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return st.sampled_from(kind)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return structs(kind)
    if isinstance(origin, type) and issubclass(origin, msgspec.Struct):
        return structs(origin)
    if isinstance(kind, TypeVar):
        return TEXTS
    if hasattr(kind, "__supertype__"):
        return values_of(kind.__supertype__)
    raise NotImplementedError(f"no values for {kind!r}")


@cache
def structs(kind: type) -> st.SearchStrategy[Any]:
    """Any value of one kind of message. Built once: tests ask for it in each example, and building it took them two fifths of their time."""
    hints = get_type_hints(kind)
    fields = [values_of(hints[name]) for name in kind.__struct_fields__]  # type: ignore[attr-defined]
    return st.tuples(*fields).map(lambda values: kind(*values))


def messages(kinds: Iterable[type] = ALL_KINDS) -> st.SearchStrategy[Any]:
    """Any message of these kinds."""
    return st.one_of([structs(kind) for kind in kinds])
