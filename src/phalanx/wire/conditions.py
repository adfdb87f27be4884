"""What a scan asks of the entries that it wants: conditions on a part of the key or a field of the value.

An entry is wanted if each condition holds. Nulls are those of SQL: a comparison with a null neither holds nor does its
negation. What the conditions mean exactly stands in `phalanx.grid.serving.conditions`, which evaluates them at the owner.
"""

from __future__ import annotations

from enum import IntEnum

import msgspec

from phalanx.wire.limits import Literals, Path


class Relation(IntEnum):
    """How a value is to be to the literals. Numbers are the wire contract."""

    EQUAL = 1
    SAME = 2
    """As EQUAL, but null is the same as null, and nothing else is."""
    LESS = 3
    AT_MOST = 4
    GREATER = 5
    AT_LEAST = 6
    IN = 7
    NULL = 8
    STARTS = 9
    ENDS = 10
    CONTAINS = 11


class Kind(IntEnum):
    """As what a value is read: the type of the column that it is in. Numbers are the wire contract."""

    ANY = 0
    """Nothing but null or not null is asked of it."""
    BOOLEAN = 1
    INTEGER = 2
    SINGLE = 3
    """A float of four bytes: what is stored is rounded to one."""
    DOUBLE = 4
    TEXT = 5
    BYTES = 6
    DATE = 7
    INSTANT = 8
    LOCAL_TIME = 9
    """A date and time without a zone."""
    DECIMAL = 10


class Condition(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What one value must be."""

    part: int
    """Which part of the key is looked at, counted from 0; -1: a field of the value."""
    path: Path
    """The field's name, and those of fields within it; empty for a part of the key."""
    kind: Kind
    relation: Relation
    literals: Literals = ()
    """Serialised, as values are; the one to compare with, or those of which it is to be one."""
    negated: bool = False
