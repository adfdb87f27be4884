"""The conditions of a scan, evaluated at the owner on the stored bytes.

An entry is left out only if a condition certainly does not hold. So:

* A value that is not of the condition's kind (text instead of a number, a key with other parts, broken bytes) is
  wanted: its reader finds the error and reports it, as without conditions.
* On null, neither a condition nor its negation holds, as in SQL. Only NULL and SAME are always true or false.

Values are compared as Spark SQL compares columns:

| kind | values | order |
|---|---|---|
| BOOLEAN, INTEGER, DATE, INSTANT, LOCAL_TIME, BYTES, DECIMAL | of that Python type; a Decimal can be an int | its own |
| SINGLE, DOUBLE | float, int, where the column has exactly that number | 0.0 is -0.0; NaN is NaN, and greater than all else |
| NUMBER | int, float, Decimal | by their exact values; NaN has none |
| TEXT | str, UUID and Json as their text | by code points, which is that of the bytes of UTF-8 |

A value that is no dict counts as a dict with the single field `value`. A missing field is null, and so is every field
in a null. Only the fields that conditions name are decoded, and no lists and maps (`fields`).

Members take a value longer than `JUDGED_BYTES` (with its stamp) as wanted without examining it, because one value
cannot be split over turns. The caller evaluates the conditions on it (`judge_all`).

A caller that changes entries takes only those that certainly fulfil all conditions (`surely`): what a scan would leave to its
reader is not wanted then.
"""

from __future__ import annotations

import datetime as dt
import math
import operator
import struct
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, NamedTuple

import msgspec

from phalanx.codec.fields import SCALAR, UNREADABLE, Packed, fields_of, key_of, plain, scalar_of, value_of
from phalanx.codec.messagepack import UUID, Json
from phalanx.codec.values import MSGPACK_PREFIX
from phalanx.common.clock import STAMP_BYTES
from phalanx.common.errors import CorruptDataError
from phalanx.grid.serving.update_results import EvaluationRefused, refusal_of
from phalanx.wire.conditions import Condition, Kind, Relation
from phalanx.wire.limits import JUDGED_BYTES, MAX_CONDITIONS, MAX_LITERAL_BYTES, MAX_LITERALS, MAX_PATH

Wanted = Callable[[bytes, bytes], bool]
"""Takes a key and a stamped value, and returns whether the entry is wanted."""

VALUE_FIELD: Final = "value"
_ROW_STARTS: Final = STAMP_BYTES + len(MSGPACK_PREFIX)

_Check = Callable[[Any], bool]
"""Takes a decoded value, and returns whether the condition holds, or can hold."""
_Read = Callable[[Any], Any]
"""Converts a decoded value to the condition's kind, for comparison. Raises `_Unfit` if it is not of the kind."""


class _Field(NamedTuple):
    """The checks of one field."""

    checks: list[_Check]
    within: dict[str, _Field]
    """Name of a field inside this one to its checks."""


class BadCondition(EvaluationRefused):
    """A condition is not valid. The message says why."""


class _Unfit(Exception):
    """A value is not of the condition's kind."""


def check_size(conditions: Sequence[Condition]) -> None:
    """Raise `BadCondition` if evaluating the conditions would take too long. Called before they are compiled."""
    literals = sum(len(each.literals) for each in conditions)
    size = sum(sum(map(len, each.literals)) for each in conditions)
    for many, limit, what in (
        (len(conditions), MAX_CONDITIONS, "conditions"),
        (literals, MAX_LITERALS, "literals"),
        (size, MAX_LITERAL_BYTES, "bytes of literals"),
    ):
        if many > limit:
            raise BadCondition(f"{many} {what} in one scan are over the limit of {limit}: judge some of them yourself")


def fit_one_scan(conditions: Sequence[Condition]) -> bool:
    """Return whether members evaluate these conditions in one scan: they are not too many or too long."""
    try:
        check_size(conditions)
    except BadCondition:
        return False
    return all(len(each.path) <= MAX_PATH for each in conditions)


def wanted_by(
    conditions: Sequence[Condition], key_parts: int, *, judge_all: bool = False, surely: bool = False
) -> Wanted:
    """Compile conditions into a function that tells whether an entry fulfils them all. Raise `BadCondition`.

    `judge_all`: evaluate them on long values, too. `surely`: that, and an entry whose result is not known is not
    wanted.
    """
    try:
        return _compiled(conditions, key_parts, judge_all, surely)
    except BadCondition:
        raise
    except Exception as error:
        raise refusal_of(BadCondition, "a condition", error) from None


def _compiled(conditions: Sequence[Condition], key_parts: int, judge_all: bool, surely: bool) -> Wanted:
    check_size(conditions)
    of_key: list[tuple[int, _Check]] = []
    of_value: dict[str, _Field] = {}
    unknown = not surely
    for condition in conditions:
        check = _check(condition, unknown)
        if condition.part >= 0:
            if condition.path or condition.part >= key_parts:
                raise BadCondition(
                    f"part {condition.part} with the path {condition.path} of a key of {key_parts} parts"
                )
            of_key.append((condition.part, check))
        elif not condition.path:
            raise BadCondition("a condition names neither a part of the key nor a field")
        else:
            _field_at(of_value, condition.path).checks.append(check)
    key_wanted = _of_key(of_key, key_parts, unknown) if of_key else None
    value_wanted = _of_value(of_value, judge_all or surely, unknown) if of_value else None
    if key_wanted is None:
        return (lambda key, stored: value_wanted(stored)) if value_wanted is not None else lambda key, stored: True
    if value_wanted is None:
        return lambda key, stored: key_wanted(key)
    return lambda key, stored: key_wanted(key) and value_wanted(stored)


# --- where the value is ---------------------------------------------------------------------------------------------


def _of_key(checks: Sequence[tuple[int, _Check]], key_parts: int, unknown: bool) -> Callable[[bytes], bool]:
    """Compile the checks of keys. `unknown`: what is returned if the result is not known, here and everywhere below."""

    def wanted(data: bytes) -> bool:
        try:
            key = key_of(data)
            parts = key if isinstance(key, tuple) else (key,)
            if len(parts) != key_parts or (key_parts == 1 and isinstance(key, tuple)):
                return unknown
            return all(check(parts[part]) for part, check in checks)
        except Exception:  # whatever it is: no entry is a reason not to look at the others
            return unknown

    return wanted


def _field_at(fields: dict[str, _Field], path: Sequence[str]) -> _Field:
    """Return the checks of the field at the path, to add to them."""
    field = fields.setdefault(path[0], _Field([], {}))
    for name in path[1:]:
        field = field.within.setdefault(name, _Field([], {}))
    return field


def _of_value(fields: dict[str, _Field], judge_all: bool, unknown: bool) -> Callable[[bytes], bool]:
    decode = _decoder(fields)
    asked = list(fields.values())
    flat = [(place, check) for place, field in enumerate(asked) for check in field.checks if not field.within]
    deep = [(place, field) for place, field in enumerate(asked) if field.within]

    def wanted(stored: bytes) -> bool:
        if len(stored) > JUDGED_BYTES and not judge_all:
            return True
        try:
            if decode is None or stored[STAMP_BYTES:_ROW_STARTS] != MSGPACK_PREFIX:
                return _is_any_wanted(fields, stored, unknown)
            values = _values_of(decode(stored[_ROW_STARTS:]))
            for place, check in flat:
                value = values[place]
                if not check(plain(value) if type(value) is _EXTENSION else value):
                    return False
            return all(_holds(field, values[place], unknown) for place, field in deep)
        except Exception:
            return _is_odd_wanted(fields, stored, unknown)

    return wanted


def _is_odd_wanted(fields: dict[str, _Field], stored: bytes, unknown: bool) -> bool:
    """Return whether a value is wanted that is no row of fields with simple values."""
    try:
        return _is_any_wanted(fields, stored, unknown)
    except Exception:
        return unknown


def _is_any_wanted(fields: dict[str, _Field], stored: bytes, unknown: bool) -> bool:
    """Return whether any value is wanted. Raise `CorruptDataError` and `UNREADABLE`."""
    if stored[STAMP_BYTES:_ROW_STARTS] == MSGPACK_PREFIX:
        packed: Packed = stored[_ROW_STARTS:]
        found = fields_of(packed, fields)
        row: Mapping[str, Packed] = {VALUE_FIELD: packed} if found is None else found
        return all(_holds(field, row.get(name), unknown) for name, field in fields.items())
    value = value_of(stored[STAMP_BYTES:])
    for name, field in fields.items():
        if name != VALUE_FIELD or value is None:
            if not _holds(field, None, unknown):
                return False
        elif not all(check(value) for check in field.checks):
            return False
    return True


def _holds(field: _Field, packed: Packed | None, unknown: bool) -> bool:
    """Return whether a field is as asked; None: it is not there. Raise `UNREADABLE`."""
    if field.checks:
        value = None if packed is None else scalar_of(packed)
        if not all(check(value) for check in field.checks):
            return False
    if not field.within:
        return True
    inner = {} if packed is None else fields_of(packed, field.within)
    if inner is None:
        return unknown
    return all(_holds(each, inner.get(name), unknown) for name, each in field.within.items())


_values_of: Final = msgspec.structs.astuple
_EXTENSION: Final = msgspec.msgpack.Ext


def _decoder(fields: dict[str, _Field]) -> Callable[[bytes], Any] | None:
    """Make a decoder of these fields of a row, None for a missing one, which skips all others; None: names are too odd."""
    kinds = [msgspec.Raw if field.within else SCALAR for field in fields.values()]
    rename = {f"f{place}": name for place, name in enumerate(fields)}
    try:
        row = msgspec.defstruct(
            "Row", list(zip(rename, kinds, [None] * len(kinds), strict=True)), rename=rename, gc=False
        )
    except ValueError:
        return None
    decode: Callable[[bytes], Any] = msgspec.msgpack.Decoder(row).decode
    return decode


# --- checks of one value --------------------------------------------------------------------------------------------


def _check(condition: Condition, unknown: bool) -> _Check:
    relation, negated = condition.relation, condition.negated
    if relation is Relation.NULL:
        return (lambda value: value is not None) if negated else lambda value: value is None
    if condition.kind not in _KINDS:
        raise BadCondition(f"kind {condition.kind} cannot be compared")
    read = _KINDS[condition.kind]
    try:
        literals = [key_of(literal) for literal in condition.literals]
        read_literal = _LITERALS.get(condition.kind, read)
        wanted = [None if literal is None else read_literal(literal) for literal in literals]
    except (CorruptDataError, _Unfit, *UNREADABLE):
        raise BadCondition(f"a literal is not of the kind {condition.kind.name}") from None
    if relation is Relation.IN:
        has_null = any(each is None for each in wanted)
        return _is_in(condition.kind, [each for each in wanted if each is not None], has_null, negated, unknown)
    if len(wanted) != 1:
        raise BadCondition(f"{len(wanted)} literals for {relation.name}, which takes one")
    if relation in _TEXT_RELATIONS and condition.kind not in (Kind.TEXT, Kind.BYTES):
        raise BadCondition(f"{relation.name} is asked of {condition.kind.name}")
    literal = wanted[0]
    if relation is Relation.SAME:
        if literal is None:
            return (lambda value: value is not None) if negated else lambda value: value is None
        return _compared(read, operator.eq, literal, negated, null=negated, unknown=unknown)
    if literal is None:
        return lambda value: False
    return _compared(read, _COMPARISONS[relation], literal, negated, null=False, unknown=unknown)


def _compared(
    read: _Read, compare: Callable[[Any, Any], bool], literal: Any, negated: bool, *, null: bool, unknown: bool
) -> _Check:
    def holds(value: Any) -> bool:
        if value is None:
            return null
        try:
            return compare(read(value), literal) is not negated
        except _Unfit:
            return unknown

    return holds


def _is_in(kind: Kind, literals: Sequence[Any], has_null: bool, negated: bool, unknown: bool) -> _Check:
    read = _KINDS[kind]
    is_among = _among(kind, literals)

    def holds(value: Any) -> bool:
        if value is None:
            return False
        try:
            found = is_among(read(value))
        except _Unfit:
            return unknown
        # With a null among the literals, a value that equals no other one can equal the null: the result is unknown.
        return not negated if found else negated and not has_null

    return holds


def _among(kind: Kind, literals: Sequence[Any]) -> Callable[[Any], bool]:
    """Return a function that tells whether a value equals one of the literals.

    Python hashes only text and bytes with a secret. For other kinds a caller can choose literals with one hash, and a
    set of 10,000 of these takes seconds. So literals of these kinds are sorted and searched.
    """
    if kind in (Kind.TEXT, Kind.BYTES):
        return frozenset(literals).__contains__
    ordered = sorted(literals)

    def is_among(value: Any) -> bool:
        place = bisect_left(ordered, value)
        return place < len(ordered) and bool(ordered[place] == value)

    return is_among


_COMPARISONS: Final[dict[Relation, Callable[[Any, Any], bool]]] = {
    Relation.EQUAL: operator.eq,
    Relation.LESS: operator.lt,
    Relation.AT_MOST: operator.le,
    Relation.GREATER: operator.gt,
    Relation.AT_LEAST: operator.ge,
    Relation.STARTS: lambda value, literal: value.startswith(literal),
    Relation.ENDS: lambda value, literal: value.endswith(literal),
    Relation.CONTAINS: operator.contains,
}
_TEXT_RELATIONS: Final = (Relation.STARTS, Relation.ENDS, Relation.CONTAINS)


# --- values of one kind ---------------------------------------------------------------------------------------------


def _only(*types: type) -> _Read:
    """Return the value itself if it is of exactly one of the types: a bool is no int here, and a datetime no date."""

    def read(value: Any) -> Any:
        if type(value) not in types:
            raise _Unfit
        return value

    return read


def _double(value: Any) -> tuple[bool, float]:
    """Return whether it is NaN, and the number: tuples that compare as the numbers do in SQL."""
    if type(value) is not float:
        if type(value) is not int:
            raise _Unfit
        try:
            number = float(value)
        except OverflowError:
            raise _Unfit from None
        if number != value:
            raise _Unfit
        value = number
    return (False, value) if value == value else (True, 0.0)


_SINGLE: Final = struct.Struct("<f")


def _single(value: Any) -> tuple[bool, float]:
    read = _double(value)
    if _single_literal(value) != read:
        raise _Unfit
    return read


def _single_literal(value: Any) -> tuple[bool, float]:
    is_nan, number = _double(value)
    try:
        return is_nan, _SINGLE.unpack(_SINGLE.pack(number))[0]
    except OverflowError:
        return False, math.copysign(math.inf, number)


def _text(value: Any) -> str:
    if type(value) is str:
        return value
    if type(value) is UUID:
        return str(value)
    if type(value) is Json:
        return value.text
    raise _Unfit


_LARGE_BITS: Final = 512
"""Converting an int to Decimal takes time by the square of its length. A longer int than this is beyond all literals."""
_LARGEST_LITERAL: Final = 150
"""The greatest exponent of ten of a DECIMAL literal, so that every int with more than `_LARGE_BITS` is beyond it."""
_INFINITIES: Final = (Decimal("-Infinity"), Decimal("Infinity"))


def _decimal(value: Any) -> Decimal:
    """Return the value as a Decimal; an infinity if it is an int beyond all literals."""
    if type(value) is int:
        return Decimal(value) if value.bit_length() <= _LARGE_BITS else _INFINITIES[value > 0]
    if type(value) is Decimal and value.is_finite():
        return value
    raise _Unfit


def _decimal_literal(value: Any) -> Decimal:
    literal = _decimal(value)
    if literal.is_infinite() or (literal and literal.adjusted() > _LARGEST_LITERAL):
        raise BadCondition(f"a literal of kind DECIMAL is beyond 1E+{_LARGEST_LITERAL}: compare with it yourself")
    return literal


def _number(value: Any) -> int | float | Decimal:
    """Return the value if it is a number that has a place among all others; Python compares them exactly."""
    if type(value) is int:
        return value if value.bit_length() <= _LARGE_BITS else _INFINITIES[value > 0]
    return value if type(value) is float and value == value else _decimal(value)


def _number_literal(value: Any) -> int | float | Decimal:
    return _number(value) if type(value) is float else _decimal_literal(value)


def _instant(value: Any) -> dt.datetime:
    if type(value) is not dt.datetime or value.tzinfo is None:
        raise _Unfit
    return value


def _local_time(value: Any) -> dt.datetime:
    if type(value) is not dt.datetime or value.tzinfo is not None:
        raise _Unfit
    return value


_KINDS: Final[dict[Kind, _Read]] = {
    Kind.BOOLEAN: _only(bool),
    Kind.INTEGER: _only(int),
    Kind.SINGLE: _single,
    Kind.DOUBLE: _double,
    Kind.TEXT: _text,
    Kind.BYTES: _only(bytes),
    Kind.DATE: _only(dt.date),
    Kind.INSTANT: _instant,
    Kind.LOCAL_TIME: _local_time,
    Kind.DECIMAL: _decimal,
    Kind.NUMBER: _number,
}
_LITERALS: Final[dict[Kind, _Read]] = {
    Kind.DECIMAL: _decimal_literal,
    Kind.NUMBER: _number_literal,
    Kind.SINGLE: _single_literal,
}
"""How literals are read where that differs from values."""
