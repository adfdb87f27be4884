"""Conditions of a scan: filters on a part of the key or a field of the value.

An entry matches if every condition holds. Nulls follow SQL: neither a comparison with null nor its negation holds.
`phalanx.grid.serving.conditions` evaluates conditions at the owner and defines their exact meaning.
"""

from __future__ import annotations

from enum import IntEnum

import msgspec

from phalanx.wire.limits import Literals, Path


class Relation(IntEnum):
    """The comparison of a value with the literals. The numbers are the wire contract."""

    EQUAL = 1
    SAME = 2
    """As EQUAL, but null equals null, and nothing else equals null."""
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
    """The type as which a value is read: that of its column. The numbers are the wire contract."""

    ANY = 0
    """Any type: the condition only asks whether the value is null."""
    BOOLEAN = 1
    INTEGER = 2
    SINGLE = 3
    """A float of four bytes: stored values are rounded to it."""
    DOUBLE = 4
    TEXT = 5
    BYTES = 6
    DATE = 7
    INSTANT = 8
    LOCAL_TIME = 9
    """A date and time without a zone."""
    DECIMAL = 10
    NUMBER = 11
    """Any number: int, float or Decimal."""


class Condition(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A condition on one value."""

    part: int
    """The part of the key to compare, counted from 0; -1: a field of the value."""
    path: Path
    """The names from the value's field to the nested field; empty for a part of the key."""
    kind: Kind
    relation: Relation
    literals: Literals = ()
    """Serialised like values: the literal to compare with, or the set that must contain the value."""
    negated: bool = False
    """Whether the entry matches where the comparison does not hold."""
