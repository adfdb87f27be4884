"""Keys and values as bytes: golden bytes, round trips, refusals that say where, and corrupt data that never surprises."""

import collections
import dataclasses
import datetime as dt
import decimal
import enum
import math
import re
import struct
import types
import typing
import zoneinfo
from collections.abc import Iterator
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from phalanx.codec import messagepack
from phalanx.codec import values as serialization
from phalanx.codec.values import (
    MSGPACK_PREFIX,
    MSGPACK_TYPE_ID,
    Json,
    from_data,
    from_key_data,
    to_data,
    to_key_data,
)
from phalanx.common.errors import CorruptDataError, PhalanxError, SerializationError, UsageError

AN_ID = UUID("00112233-4455-6677-8899-aabbccddeeff")
UTC = dt.UTC


class Colour(enum.IntEnum):
    RED = 1


class Mode(enum.StrEnum):
    FAST = "fast"


class Plain(enum.Enum):
    ONE = 1


class Point(typing.NamedTuple):
    x: int
    y: Any


@dataclasses.dataclass(frozen=True)
class Flight:
    number: int
    day: Any


# The bytes themselves. A change here means that stored data of an earlier release cannot be read any more.

GOLDEN = [
    (None, "00000000"),
    (False, "fffffffc 00"),
    (True, "fffffffc 01"),
    (0, "fffffff8 0000000000000000"),
    (-2, "fffffff8 fffffffffffffffe"),
    (2**63 - 1, "fffffff8 7fffffffffffffff"),
    (-(2**63), "fffffff8 8000000000000000"),
    (1.5, "fffffff6 3ff8000000000000"),
    (-0.0, "fffffff6 8000000000000000"),
    ("", "fffffff5 00000000"),
    ("aé€😀", "fffffff5 0000000a 61 c3a9 e282ac f09f9880"),
    (b"", "fffffff4 00000000"),
    (b"\x00\xff", "fffffff4 00000002 00ff"),
    (AN_ID, "ffffffeb 0011223344556677 8899aabbccddeeff"),
    (2**63, "ffffffe6 00000009 008000000000000000"),
    (-(2**63) - 1, "ffffffe6 00000009 ff7fffffffffffffff"),
    (-(2**71), "ffffffe6 00000009 800000000000000000"),
    (Json('{"a":1}'), "ffffff7e 00000007 7b2261223a317d"),
    ({}, "00004d50 80"),
    ([], "00004d50 90"),
    ({"id": 1, "on": None}, "00004d50 82 a26964 01 a26f6e c0"),
    ([1, -1, 128, 2**64 - 1, -(2**63)], "00004d50 95 01 ff cc80 cfffffffffffffffff d38000000000000000"),
    ([1.0, True, "x", b"x"], "00004d50 94 cb3ff0000000000000 c3 a178 c40178"),
    (dt.date(1970, 1, 2), "00004d50 d601 00000001"),
    (dt.date(1, 1, 1), "00004d50 d601 fff506c6"),
    (dt.datetime(1970, 1, 1, 0, 0, 1, 5), "00004d50 d702 00000000000f4245"),
    (dt.datetime(1969, 12, 31, 23, 59, 59, 999999), "00004d50 d702 ffffffffffffffff"),
    (dt.datetime(1970, 1, 1, 0, 0, 1, 5, UTC), "00004d50 d703 00000000000f4245"),
    (dt.time(0, 0, 0, 7), "00004d50 d704 0000000000000007"),
    (dt.timedelta(microseconds=-1), "00004d50 d705 ffffffffffffffff"),
    (dt.timedelta.max, "00004d50 d805 0000000000000004 af0a763bb1bfffff"),
    (Decimal("-1.50"), "00004d50 c70506 2d312e3530"),
    (Decimal("1E+3"), "00004d50 d606 31452b33"),
    ([AN_ID], "00004d50 91 d807 00112233445566778899aabbccddeeff"),
    ([2**64], "00004d50 91 c70908 010000000000000000"),
    ([-(2**63) - 1], "00004d50 91 c70908 ff7fffffffffffffff"),
    ([Json("[]")], "00004d50 91 d509 5b5d"),
]


@pytest.mark.parametrize(("value", "golden"), GOLDEN, ids=lambda each: repr(each)[:40])
def test_golden_bytes(value: object, golden: str) -> None:
    data = to_data(value)
    assert data.hex() == golden.replace(" ", "")
    back = from_data(data)
    assert same(back, value)


def test_constants_are_what_the_bytes_say() -> None:
    assert MSGPACK_PREFIX == struct.pack(">i", MSGPACK_TYPE_ID) == to_data({})[:4]
    ids = {name: number for name, number in vars(serialization).items() if name.endswith("_TYPE_ID")}
    assert ids == {
        "NONE_TYPE_ID": 0,
        "BOOL_TYPE_ID": -4,
        "INT_TYPE_ID": -8,
        "FLOAT_TYPE_ID": -10,
        "STR_TYPE_ID": -11,
        "BYTES_TYPE_ID": -12,
        "UUID_TYPE_ID": -21,
        "BIG_INT_TYPE_ID": -26,
        "JSON_TYPE_ID": -130,
        "MSGPACK_TYPE_ID": 19792,
    }
    seen = {struct.unpack_from(">i", to_data(value))[0] for value, _ in GOLDEN}
    assert seen == set(ids.values())


def same(left: object, right: object) -> bool:
    """Equal in type and content, all the way down: 1 is not True, 0.0 is not -0.0, NaN is NaN."""
    if type(left) is not type(right):
        return False
    if isinstance(left, float) and isinstance(right, float):
        return struct.pack(">d", left) == struct.pack(">d", right)
    if isinstance(left, Decimal) and isinstance(right, Decimal):
        return left.as_tuple() == right.as_tuple()
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return same(list(left.items()), list(right.items()))
    if isinstance(left, dt.datetime) and isinstance(right, dt.datetime):
        # Compared without zones: two moments in a fold compare unequal across zones.
        return left.isoformat() == right.isoformat()
    return left == right


# Round trips.

texts = st.text(st.characters(codec="utf-8"), max_size=20)
zones = st.builds(lambda minutes: dt.timezone(dt.timedelta(minutes=minutes)), st.integers(-1439, 1439))
moments = st.datetimes(timezones=st.just(UTC)).map(lambda moment: moment.replace(fold=0))
hashable_scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.integers()
    | st.integers(-(2**200), 2**200)
    | st.floats(allow_nan=False)
    | texts
    | st.binary(max_size=20)
    | st.uuids(allow_nil=True)
    | st.dates()
    | st.datetimes().map(lambda moment: moment.replace(fold=0))
    | moments
    | st.times()
    | st.timedeltas()
    | st.decimals(allow_nan=False)
    | texts.map(Json)
)
scalars = hashable_scalars | st.floats() | st.decimals() | st.just(Decimal("-sNaN123"))
dict_keys = hashable_scalars | st.lists(hashable_scalars, max_size=3).map(tuple)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=5) | st.dictionaries(dict_keys, inner, max_size=5) | st.dictionaries(texts, inner)
    ),
    max_leaves=20,
)


@given(values)
@example([[], {}, "", b"", [None, [None, {"": None}]]])
@example({"nan": math.nan, "inf": -math.inf, "zero": -0.0})
@example({(1, ("a", dt.date(2020, 2, 29), 2**70)): [2**70], 2**64: {AN_ID: {None: 1}}})
@example({"x": [{"y": (2**64 - 1)}], "é": [2**64]})
@example(
    [Decimal("0E-10"), Decimal("-0"), Decimal("1.10"), Decimal("NaN12"), Decimal("-Infinity"), Decimal("1E+99999")]
)
@example({index: index for index in range(70_000)} | {dt.date(2020, 1, 1): 0})
@example({dt.date(2020, 1, 1): 0} | {index: index for index in range(20)})
def test_every_value_comes_back_exactly(value: object) -> None:
    data = to_data(value)
    assert type(data) is bytes
    assert same(from_data(data), value)


@given(st.datetimes(timezones=zones))
def test_a_moment_comes_back_in_utc(moment: dt.datetime) -> None:
    try:
        in_utc = moment.astimezone(UTC)
    except OverflowError:
        with pytest.raises(SerializationError, match="outside the years 1 to 9999 in UTC"):
            to_data(moment)
        return
    back = from_data(to_data({"at": moment}))["at"]
    assert back.tzinfo is UTC
    assert back == in_utc == moment


def test_both_hours_of_a_fold_are_kept_apart() -> None:
    berlin = zoneinfo.ZoneInfo("Europe/Berlin")
    hours = [dt.datetime(2024, 10, 27, 2, 30, tzinfo=berlin, fold=fold) for fold in (0, 1)]
    assert [from_data(to_data(hour)).hour for hour in hours] == [0, 1]


@pytest.mark.parametrize("size", [0, 1, 1015, 1016, 1023, 1024, 1025, 70_000])
def test_text_and_bytes_of_every_size_class(size: int) -> None:
    for value in ("x" * size, b"x" * size):
        data = to_data(value)
        assert data[4:8] == size.to_bytes(4, "big")
        assert from_data(data) == value
    assert to_key_data("x" * size) == to_data("x" * size)


def test_dict_of_plain_values_is_what_any_messagepack_library_writes() -> None:
    row = {"id": 7, "name": "Ada", "score": 1.5, "tags": ["a", None], "inner": {"x": b"1"}, 5: True}
    assert to_data(row) == MSGPACK_PREFIX + msgspec.msgpack.encode(row)


@pytest.mark.parametrize("size", [0, 1, 15, 16, 65535, 65536])
def test_a_map_written_piece_by_piece_has_the_same_bytes(size: int) -> None:
    plain = dict.fromkeys(range(size))
    assert bytes(messagepack._raw_map(plain, 0, True)) == msgspec.msgpack.encode(plain)


# What comes back as something else.


def pyspark_row() -> Any:
    from pyspark.sql import Row

    return Row(id=1, inner=Row(day=dt.date(2013, 1, 1), tags=["a"]))


CONVERTED = [
    ((1, (2, dt.date(2020, 1, 1))), [1, [2, dt.date(2020, 1, 1)]]),
    (Flight(1, [Flight(2, dt.date(2020, 1, 1))]), {"number": 1, "day": [{"number": 2, "day": dt.date(2020, 1, 1)}]}),
    (Point(1, Point(2, None)), {"x": 1, "y": {"x": 2, "y": None}}),
    (collections.OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
    (collections.defaultdict(list, a=[1]), {"a": [1]}),
    (Colour.RED, 1),
    ({"c": Colour.RED, "m": Mode.FAST}, {"c": 1, "m": "fast"}),
    ({Mode.FAST: 1, Colour.RED: 2}, {"fast": 1, 1: 2}),
    (Mode.FAST, "fast"),
    (bytearray(b"ab"), b"ab"),
    (memoryview(b"abcd")[::2], b"ac"),
    ({"b": bytearray(b"ab")}, {"b": b"ab"}),
    ({Point(1, 2): 3}, {(1, 2): 3}),
    (type("Text", (str,), {"encode": None})("x"), "x"),
    (type("Number", (int,), {})(2**80), 2**80),
    (type("Real", (float,), {})(1.5), 1.5),
    (type("Blob", (bytes,), {})(b"x"), b"x"),
    (type("Items", (list,), {})([1]), [1]),
]


# Ids without the address that a memoryview shows: workers that run tests beside each other must agree on them.
@pytest.mark.parametrize(("value", "back"), CONVERTED, ids=lambda each: repr(each)[:40].partition(" at 0x")[0])
def test_what_comes_back_as_another_type(value: object, back: object) -> None:
    assert same(from_data(to_data(value)), back)
    assert same(from_data(to_data([value])), [back])
    assert to_data(value) == to_data(back)


def test_a_spark_row_is_a_dict_of_its_columns() -> None:
    row = pyspark_row()
    assert from_data(to_data(row)) == {"id": 1, "inner": {"day": dt.date(2013, 1, 1), "tags": ["a"]}}
    assert to_data(row) == to_data(row.asDict(recursive=True))


def test_decimals_do_not_depend_on_the_context_of_the_thread() -> None:
    number = Decimal("1.23456789012345678901234567890E+50")
    data = to_data(number)
    with decimal.localcontext(decimal.Context(prec=3, capitals=0, traps=[decimal.Inexact, decimal.FloatOperation])):
        assert to_data(number) == data
        assert same(from_data(data), number)


# Refusals.


class Opaque:
    def __repr__(self) -> str:
        raise RuntimeError("no repr either")


class NoOffset(dt.tzinfo):
    def utcoffset(self, moment: dt.datetime | None) -> None:
        return None

    dst = tzname = utcoffset


def itself() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


@dataclasses.dataclass
class Unset:
    given: int
    missing: int = dataclasses.field(init=False)


class Model:
    """As Pydantic's models: its fields can be iterated over, but a list of them is not what anybody wants."""

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def model_dump(self) -> dict[str, Any]:
        return {}


class Attrs:
    __attrs_attrs__ = ()


REFUSED: list[tuple[object, str]] = [
    (Opaque(), "value: test_serialization.Opaque cannot be stored; use a dict of its fields, a dataclass, or bytes"),
    ({"a": [1, 2, Opaque()]}, "value['a'][2]: test_serialization.Opaque cannot be stored; use a dict of its fields"),
    ([{"a": {(1, 2): {1, 2}}}], "value[0]['a'][(1, 2)]: set cannot be stored; use sorted(value)"),
    (Flight(1, {"k": Opaque()}), "value['day']['k']: "),
    ([Point(1, complex(1, 2))], "value[0]['y']: complex cannot be stored; use [value.real, value.imag]"),
    ({frozenset([1]): 1}, "value (its key frozenset({1})): frozenset cannot be stored; use sorted(value)"),
    ({"a": {(1, Opaque()): 1}}, "value['a'] (its key "),
    ({"a": {Flight(1, 2): 1}}, "Flight cannot be a dict's key; use a scalar or a tuple of scalars"),
    ({(1, Flight(1, 2)): 1}, "Flight cannot be a dict's key; use a scalar or a tuple of scalars"),
    ({"a": [Plain.ONE]}, "value['a'][0]: test_serialization.Plain cannot be stored; use its value.value"),
    (Model(), "value: test_serialization.Model cannot be stored; use value.model_dump(), or a map that knows its type"),
    (
        [Attrs()],
        "value[0]: test_serialization.Attrs cannot be stored; use attrs.asdict(value), or a map that knows its type",
    ),
    (range(3), "value: range cannot be stored; use list(value)"),
    (types.MappingProxyType({}), "value: mappingproxy cannot be stored; use dict(value)"),
    (len, "cannot be stored; store data, such as its name, not code"),
    (Flight, "value: type cannot be stored; store data"),
    (ValueError("x"), "value: ValueError cannot be stored"),
    (
        type("Stamp", (dt.datetime,), {})(2020, 1, 1),
        "convert it to the plain datetime type (pandas: value.to_pydatetime()",
    ),
    (type("Money", (Decimal,), {})(1), "convert it to a plain Decimal"),
    (np.float64(1.5), "value: numpy.float64 cannot be stored; use value.item()"),
    ({"n": np.int64(1)}, "value['n']: numpy.int64 cannot be stored; use value.item()"),
    ([np.bool_(True)], "cannot be stored; use value.item()"),
    (np.str_("x"), "value: numpy.str_ cannot be stored; use value.tolist()"),
    (np.arange(3), "value: numpy.ndarray cannot be stored; use value.tolist()"),
    ("ab\ud800", "value: str holds a lone surrogate at index 2"),
    ({"a": ["", "x\udc80"]}, "value['a'][1]: str holds a lone surrogate at index 1"),
    ({"\udc80": 1}, "): str holds a lone surrogate at index 0"),
    (Json("\udc80"), "value: str holds a lone surrogate at index 0"),
    ([Json("\udc80")], "value[0]: str holds a lone surrogate at index 0"),
    (dt.time(1, tzinfo=UTC), "value: time with a zone is not a moment in UTC; use a datetime"),
    ([dt.datetime(2020, 1, 1, tzinfo=NoOffset())], "value[0]: datetime's tzinfo gives no UTC offset"),
    (itself(), "[0][0]…: containers are nested deeper than 200; does the value contain itself?"),
    (nested(201), "containers are nested deeper than 200"),
    (Unset(1), "value: test_serialization.Unset has no value for its field 'missing'; set it first"),
]


@pytest.mark.parametrize(("value", "message"), REFUSED, ids=lambda each: each[:40] if isinstance(each, str) else "")
def test_refusals_name_the_type_the_place_and_the_remedy(value: object, message: str) -> None:
    with pytest.raises(SerializationError) as raised:
        to_data(value)
    told = re.sub(r"\b(?:\w+\.)*test_serialization\.", "test_serialization.", str(raised.value))
    assert message in told
    assert len(told) < 400
    assert isinstance(raised.value, UsageError)


def test_keys_of_a_dict_that_are_stored_as_one_are_refused() -> None:
    """In the hour that a zone has twice, no datetime of it equals one of another zone (PEP 495)."""
    here = dt.datetime(2026, 10, 25, 2, 30, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin"))
    there = here.astimezone(UTC)
    for value in ({here: 1, there: 2}, {(here, 1): 1, (there, 1): 2}, {"a": [{here: 1, there: 2}]}):
        with pytest.raises(SerializationError, match="another key of the dict is stored as the same bytes"):
            to_data(value)


def test_a_row_with_two_columns_of_one_name_is_refused() -> None:
    from pyspark.sql import Row

    with pytest.raises(SerializationError, match="two fields of one name"):
        to_data(Row("a", "a")(1, 2))


def test_the_deepest_values_come_back() -> None:
    assert from_data(to_data(nested(200))) == nested(200)
    deep: Any = {2**70: 1}
    for _ in range(199):
        deep = {"a": deep}
    assert from_data(to_data(deep)) == deep


def test_json_takes_text_only() -> None:
    with pytest.raises(UsageError, match=re.escape("Json takes JSON text, not dict; use Json(json.dumps(value))")):
        Json({})  # type: ignore[arg-type]


def test_a_length_beyond_its_field_is_refused() -> None:
    with pytest.raises(SerializationError, match="2147483648 bytes are more than one value can have"):
        serialization._head(-11, 2**31)


# Keys.

KEYS = [
    "a",
    "",
    b"a",
    b"",
    0,
    1,
    2**70,
    1.0,
    0.0,
    math.inf,
    True,
    AN_ID,
    dt.date(2020, 1, 1),
    dt.datetime(2020, 1, 1),
    dt.datetime(2020, 1, 1, tzinfo=UTC),
    dt.time(1),
    dt.timedelta(1),
    Decimal(1),
    Decimal("1.0"),
    (),
    (1, "a"),
    ("a", 1),
    (1.0, "a"),
    ("a", None, AN_ID, dt.date(2020, 1, 1), Decimal("1.5"), 2**70),
]


def test_keys_come_back_and_differ_in_bytes() -> None:
    assert len({to_key_data(key) for key in KEYS}) == len(KEYS)
    for key in KEYS:
        back = from_key_data(to_key_data(key))
        assert same(back, key)
        hash(back)


@pytest.mark.parametrize("key", KEYS, ids=repr)
def test_key_and_value_are_the_same_bytes(key: object) -> None:
    assert to_key_data(key) == to_data(key)


EQUAL_KEYS = [
    (-0.0, 0.0),
    ((1, -0.0), (1, 0.0)),
    ([1, "a"], (1, "a")),
    (Point(1, 2), (1, 2)),
    (Colour.RED, 1),
    (Mode.FAST, "fast"),
    ((Mode.FAST,), ("fast",)),
    (bytearray(b"x"), b"x"),
    (dt.datetime(2020, 1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1))), dt.datetime(2020, 1, 1, tzinfo=UTC)),
    (dt.datetime(2020, 1, 1, fold=1), dt.datetime(2020, 1, 1)),
    (dt.time(1, fold=1), dt.time(1)),
]


@pytest.mark.parametrize(("left", "right"), EQUAL_KEYS, ids=repr)
def test_equal_keys_have_equal_bytes(left: object, right: object) -> None:
    assert to_key_data(left) == to_key_data(right)


ONE_KIND = [
    st.integers(-3, 3) | st.integers(),
    st.floats(allow_nan=False) | st.sampled_from([0.0, -0.0]),
    texts,
    st.dates(),
    st.datetimes(),
    st.datetimes(timezones=st.just(UTC)),
    st.times(),
    st.timedeltas(),
    st.uuids(),
]


@given(st.sampled_from(ONE_KIND).flatmap(lambda kind: st.tuples(kind, kind)))
@example((0.0, -0.0))
def test_keys_of_one_type_are_equal_if_their_bytes_are(keys: tuple[object, object]) -> None:
    left, right = keys
    assert (to_key_data(left) == to_key_data(right)) == (left == right)
    assert (to_key_data(("x", left)) == to_key_data(("x", right))) == (left == right)


REFUSED_KEYS: list[tuple[object, str]] = [
    (None, "key: None cannot be a key"),
    (math.nan, "key: NaN cannot be a key"),
    (Decimal("NaN"), "key: NaN cannot be a key"),
    (Decimal("sNaN"), "key: NaN cannot be a key"),
    (("a", math.nan), "key[1]: NaN cannot be a key"),
    ({"a": 1}, "key: dict cannot be a key; use a scalar (such as its id), or a tuple of scalars"),
    (Flight(1, 2), "Flight cannot be a key; use a scalar (such as its id)"),
    (Json("1"), "Json cannot be a key"),
    ((1, Json("1")), "key[1]: phalanx.codec.messagepack.Json cannot be a key"),
    ((1, {}), "key[1]: dict cannot be a key"),
    ((1, (2,)), "key[1]: tuple within a key; a composite key is one tuple of scalars, so flatten it"),
    ([1, [2]], "key[1]: list within a key"),
    ({1}, "key: set cannot be stored; use sorted(value)"),
    (Opaque(), "Opaque cannot be stored"),
    (np.int64(1), "key: numpy.int64 cannot be stored; use value.item()"),
    (("a", np.str_("b")), "key[1]: numpy.str_ cannot be stored"),
    ("\ud800", "key: str holds a lone surrogate at index 0"),
    (("\ud800",), "key[0]: str holds a lone surrogate at index 0"),
    (dt.time(1, tzinfo=UTC), "key: time with a zone"),
]


@pytest.mark.parametrize(("key", "message"), REFUSED_KEYS, ids=lambda each: each[:40] if isinstance(each, str) else "")
def test_what_cannot_be_a_key(key: object, message: str) -> None:
    with pytest.raises(SerializationError) as raised:
        to_key_data(key)
    assert message in str(raised.value)


# Corrupt data.

PACKED = MSGPACK_PREFIX.hex()
CORRUPT = [
    ("", "0 bytes are too few for a type id"),
    ("ffff", "2 bytes are too few for a type id"),
    ("00000000 00", "type id 0, 5 bytes: the payload has 1 bytes, not 0"),
    ("fffffffc", "type id -4, 4 bytes: the payload has 0 bytes, not 1"),
    ("fffffffc 02", "type id -4, 5 bytes: byte 4 is 2, not 0 or 1"),
    ("fffffff8 00", "type id -8, 5 bytes: the payload has 1 bytes, not 8"),
    ("fffffff6 00", "type id -10, 5 bytes: the payload has 1 bytes, not 8"),
    ("fffffff5 0000", "type id -11, 6 bytes: it ends within the length"),
    ("fffffff5 00000002 61", "type id -11, 9 bytes: the length at byte 4 says 2, but 1 bytes follow"),
    ("fffffff5 ffffffff", "the length at byte 4 says -1, but 0 bytes follow"),
    ("fffffff5 00000002 61ff", "type id -11, 10 bytes: invalid start byte in UTF-8 at byte 9"),
    ("fffffff5 00000003 eda080", "invalid continuation byte in UTF-8 at byte 8"),
    ("fffffff5 00000800" + "ff" * 2048, "invalid start byte in UTF-8 at byte 8"),
    ("fffffff4 00000000 00", "type id -12, 9 bytes: the length at byte 4 says 0, but 1 bytes follow"),
    ("ffffffeb 00", "type id -21, 5 bytes: the payload has 1 bytes, not 16"),
    ("ffffffe6 00000000", "type id -26, 8 bytes: an integer of no bytes"),
    ("ffffff7e 00000001 ff", "type id -130, 9 bytes: invalid start byte in UTF-8 at byte 8"),
    ("00000001 00", "type id 1, 5 bytes: this type id is unknown here"),
    (PACKED, "type id 19792, 4 bytes: Input data was truncated"),
    (PACKED + "9201", "Input data was truncated"),
    (PACKED + "0101", "trailing characters"),
    (PACKED + "c1", "invalid opcode"),
    (PACKED + "a1ff", "utf-8"),
    (PACKED + "818001", "map keys must be hashable"),
    (PACKED + "81 c70406 734e614e 01", "map keys must be hashable"),
    (PACKED + "91" * 20000 + "01", "containers are nested deeper than 200"),
    (PACKED + "ddffffffff01", "Input data was truncated"),
    (PACKED + "d40000", "extension code 0 is unknown"),
    (PACKED + "d40100", "extension 1 has 1 bytes, not 4"),
    (PACKED + "d6017fffffff", "extension 1: "),
    (PACKED + "d702 7fffffffffffffff", "extension 2: "),
    (PACKED + "d703 8000000000000000", "extension 3: "),
    (PACKED + "d704 000000141dd76000", "extension 4: 86400000000 microseconds are not a time of day"),
    (PACKED + "d805" + "7f" * 16, "extension 5: "),
    (PACKED + "d405 00", "extension 5 has 1 bytes, not 8 or 16"),
    (PACKED + "d506 3132" + "00", "trailing characters"),
    (PACKED + "d506 2d2d", "extension 6: "),
    (PACKED + "d506 c3a9", "extension 6: 'ascii' codec"),
    (PACKED + "d407 00", "extension 7 has 1 bytes, not 16"),
    (PACKED + "c70008", "extension 8: an integer of no bytes"),
    (PACKED + "d409 ff", "extension 9: 'utf-8' codec"),
]


@pytest.mark.parametrize(("hexadecimal", "message"), CORRUPT, ids=lambda each: each[:50])
def test_corrupt_data_is_told_as_such(hexadecimal: str, message: str) -> None:
    with pytest.raises(CorruptDataError) as raised:
        from_data(bytes.fromhex(hexadecimal))
    assert message.lower() in str(raised.value).lower()
    assert isinstance(raised.value, PhalanxError)
    assert not isinstance(raised.value, UsageError)


def test_a_malformed_decimal_is_corrupt_whatever_the_context_traps() -> None:
    with decimal.localcontext(decimal.Context(traps=[])), pytest.raises(CorruptDataError, match="extension 6"):
        from_data(MSGPACK_PREFIX + bytes.fromhex("d5062d2d"))


PREFIXES = sorted({to_data(value)[:4] for value, _ in GOLDEN})
extensions = st.builds(
    lambda code, payload: bytes([0xC7, len(payload), code]) + payload, st.integers(0, 12), st.binary()
)


@given(st.sampled_from(PREFIXES), st.binary(max_size=60) | extensions | st.lists(extensions, max_size=4).map(b"".join))
def test_no_bytes_raise_anything_else(prefix: bytes, payload: bytes) -> None:
    check_readable(prefix + payload)


@given(values, st.integers(0), st.integers(0, 7), st.integers(0))
def test_no_flipped_bit_and_no_cut_raises_anything_else(value: object, place: int, bit: int, cut: int) -> None:
    data = bytearray(to_data(value))
    data[place % len(data)] ^= 1 << bit
    check_readable(bytes(data))
    check_readable(bytes(data[: cut % len(data)]))


def check_readable(data: bytes) -> None:
    """Whatever can be read can be written, and is then the same again."""
    try:
        value = from_data(data)
    except CorruptDataError:
        return
    again = from_data(to_data(value))
    assert repr(again) == repr(value)
