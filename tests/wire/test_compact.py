"""Compact objects: what Hazelcast's own client writes is read, and no bytes do more than raise `CorruptDataError`."""

import copy
import datetime as dt
import math
import pickle
import struct
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from endpoints.hazelcast.compact_objects import CompactObject, Field, written
from phalanx.codec import compact
from phalanx.codec.compact import CompactRecord, RowsOfObjects, from_any_data, register
from phalanx.codec.compact_schemas import MAX_NAME_LENGTH, MAX_SCHEMA_FIELDS, CompactSchema, stored_schema
from phalanx.codec.public_types import MAX_DEPTH
from phalanx.codec.values import from_data, to_data
from phalanx.common.errors import CorruptDataError, UnknownSchema
from phalanx.maps.types import types_of


class Thing(CompactObject):
    """An object of any fields."""


class Part(CompactObject):
    """One inside another."""


@pytest.fixture(autouse=True)
def _nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    forget(monkeypatch)


def forget(monkeypatch: pytest.MonkeyPatch, most: int = compact.MAX_KNOWN_FIELDS) -> None:
    monkeypatch.setattr(compact, "_KNOWN", compact._Registry(most))


def stored(*fields: Field) -> bytes:
    """An object that can be read."""
    return known(Thing(*fields))


def known(made: CompactObject) -> bytes:
    data, schemas = written(made)
    for schema in schemas:
        register(schema)
    return data


HOUR = dt.timezone(dt.timedelta(hours=1))
NOON = dt.datetime(2024, 2, 29, 12, 30, 59, 999_999)
NUMBERS = [
    ("int8", -128, 127), ("int16", -(2**15), 2**15 - 1), ("int32", -(2**31), 2**31 - 1), ("int64", -(2**63), 2**63 - 1),
    ("float32", -1.5, math.inf), ("float64", 0.1, -math.inf), ("boolean", True, False),
]  # fmt: skip
OTHERS: list[tuple[str, Any, Any]] = [
    ("string", "", "Жук" * 100),
    ("decimal", Decimal("-1.250"), Decimal(0)),
    ("time", dt.time(23, 59, 58, 7), dt.time()),
    ("date", dt.date(1, 1, 1), dt.date(9999, 12, 31)),
    ("timestamp", NOON, dt.datetime(1, 1, 1)),
    ("timestamp_with_timezone", NOON.replace(tzinfo=HOUR), NOON.replace(tzinfo=dt.UTC)),
]


def kinds() -> list[tuple[str, Any]]:
    """Each kind of field, with each value that it is tried with."""
    found: list[tuple[str, Any]] = []
    for kind, one, other in NUMBERS:
        found += [(kind, one), (kind, other), (f"nullable_{kind}", one), (f"nullable_{kind}", None)]
        found += [(f"array_of_{kind}", value) for value in ([], [one, other] * 9, None)]
        found += [(f"array_of_nullable_{kind}", value) for value in ([], [None, one, other], None)]
    for kind, one, other in OTHERS:
        found += [(kind, value) for value in (one, other, None)]
        found += [(f"array_of_{kind}", value) for value in ([], [one, None, other], None)]
    return found


@pytest.mark.parametrize(("kind", "value"), kinds())
def test_every_kind_of_field_is_read(kind: str, value: Any) -> None:
    data = stored(("before", "int32", 7), ("field", kind, value), ("flag", "boolean", True), ("last", "string", "end"))
    read = from_any_data(data)
    # A byte[] is bytes, as it is where it is no field.
    expected = bytes(each & 0xFF for each in value) if kind == "array_of_int8" and value is not None else value
    assert read == {"before": 7, "field": expected, "flag": True, "last": "end"}
    assert type(read["field"]) is type(expected)
    assert list(read) == ["before", "field", "flag", "last"]


def test_an_object_without_fields_of_variable_size_and_one_without_any() -> None:
    assert from_any_data(stored(*((f"b{n:02}", "boolean", n % 3 == 0) for n in range(20)))) == {
        f"b{n:02}": n % 3 == 0 for n in range(20)
    }
    assert from_any_data(stored(("b", "boolean", True), ("y", "int8", 1), ("l", "int64", 2))) == {
        "b": True,
        "l": 2,
        "y": 1,
    }
    assert from_any_data(stored()) == {}


@pytest.mark.parametrize("size", [0, 245, 246, 248, 249, 250, 65_526, 65_527, 65_528, 65_529, 65_530])
def test_positions_of_each_width(size: int) -> None:
    """A position has one byte, two or four, by the length of the data; the null beside it has all bits set."""
    data = stored(("a", "string", "x" * size), ("b", "string", None), ("c", "int8", 1), ("d", "nullable_int8", 2))
    assert from_any_data(data) == {"a": "x" * size, "b": None, "c": 1, "d": 2}
    items = ["x" * size, None, "y"]
    assert from_any_data(stored(("a", "array_of_string", items))) == {"a": items}


def test_objects_inside_objects_have_schemas_of_their_own() -> None:
    parts = [Part(("n", "int32", n)) for n in range(3)]
    data, schemas = written(
        Thing(("one", "compact", parts[0]), ("all", "array_of_compact", [*parts, None]), ("no", "compact", None))
    )
    assert [schema.type_name for schema in schemas] == ["Thing", "Part"]
    for schema in schemas:
        with pytest.raises(UnknownSchema, match=str(schema.id)) as raised:
            from_any_data(data)
        assert raised.value.schema_id == schema.id
        register(schema)
    read = from_any_data(data)
    assert read == {"one": {"n": 0}, "all": [{"n": 0}, {"n": 1}, {"n": 2}, None], "no": None}
    assert (read.type_name, read["one"].type_name) == ("Thing", "Part")
    of_list = struct.pack(">iiiii", -29, 3, 0, -11, 1) + b"a" + data
    assert from_any_data(of_list) == [None, "a", read]


def test_a_record_is_a_dict_that_is_stored_as_one() -> None:
    read = from_any_data(known(Thing(("part", "compact", Part(("n", "int32", 1))), ("b", "array_of_int8", [1]))))
    plain = {"b": b"\x01", "part": {"n": 1}}
    assert type(read) is CompactRecord
    assert (read, repr(read), to_data(read)) == (plain, repr(plain), to_data(plain))
    for copied in (pickle.loads(pickle.dumps(read)), copy.deepcopy(read)):
        assert (copied, copied.type_name, copied["part"].type_name) == (plain, "Thing", "Part")


def test_an_error_of_a_schema_crosses_processes() -> None:
    again = pickle.loads(pickle.dumps(UnknownSchema(7, "why")))
    assert (again.schema_id, str(again)) == (7, "why")


def test_a_typed_map_makes_its_objects_of_them() -> None:
    @dataclass
    class Book:
        title: str
        price: int | None = None

    data = stored(("title", "string", "Iliad"), ("price", "nullable_int64", 12))
    types = types_of("books", str, Book)
    assert types.value_of(data) == Book("Iliad", 12)
    assert types.entries_of(["a", "b"], [data, None]) == {"a": Book("Iliad", 12)}
    assert types.plain_of(data) == types.stored_of(data) == {"title": "Iliad", "price": 12}


def test_members_and_keys_read_none_even_if_the_schema_is_known() -> None:
    """What a member decides must not depend on what a program in its process has read."""
    data = stored(("n", "int32", 1))
    for each in (data, struct.pack(">ii", -29, 1) + data):
        with pytest.raises(CorruptDataError, match="read only as values"):
            from_data(each)


def test_conditions_look_into_a_row_of_the_fields() -> None:
    data, rows = stored(("n", "int32", 1)), RowsOfObjects()
    assert rows.row(data, from_any_data) == to_data({"n": 1})
    assert rows.row(to_data({"n": 1}), from_any_data) == to_data({"n": 1})
    assert rows.row(data[:-1], from_any_data) == data[:-1]
    assert rows.row(data, from_any_data) == to_data({"n": 1}), "a broken object says nothing of others"


def test_objects_that_are_too_long_for_who_scans_are_left_as_they_are() -> None:
    data = stored(("n", "int32", 1))
    assert RowsOfObjects(len(data) - 1).row(data, from_any_data) == data
    assert RowsOfObjects(len(data)).row(data, from_any_data) == to_data({"n": 1})


def test_a_schema_that_is_not_to_be_had_is_looked_for_once_in_a_scan() -> None:
    (one, [schema]), (other, _), asked = written(Thing(("n", "int32", 1))), written(Thing(("n", "int32", 2))), []

    def read(data: bytes) -> Any:
        asked.append(data)
        raise UnknownSchema(schema.id, "it is not there")

    rows = RowsOfObjects()
    assert [rows.row(data, read) for data in (one, other, one)] == [one, other, one]
    assert asked == [one]
    assert rows.known_row(other) == other


def test_an_object_that_lacks_a_schema_says_nothing_of_others_of_its_type() -> None:
    whole, schemas = written(Thing(("n", "int32", 1), ("part", "compact", Part(("n", "int32", 1)))))
    register(next(schema for schema in schemas if schema.type_name == "Thing"))
    flat, _ = written(Thing(("n", "int32", 1), ("part", "compact", None)))
    rows = RowsOfObjects()
    with pytest.raises(UnknownSchema):
        rows.known_row(whole)
    assert rows.row(whole, from_any_data) == whole
    assert rows.known_row(flat) == rows.row(flat, from_any_data) == to_data({"n": 1, "part": None})


# --- schemas ----------------------------------------------------------------------------------------------------------

BOOK = CompactSchema("book", [("price", 11), ("title", 17)])


def test_a_schema_is_read_as_it_was_stored() -> None:
    assert stored_schema(BOOK.stored) == BOOK
    assert stored_schema(None) is None


@pytest.mark.parametrize(
    "written",
    [
        7, None, "book", ["book"], ["book", 1], [1, []], ["book", [["a"]]], ["book", [["a", 1, 2]]], ["book", [[1, 1]]],
        ["book", [["a", "1"]]], ["book", [["a", -1]]], ["book", [["a", 2**31]]], ["book", [["a", 1], ["a", 2]]],
        ["b" * (MAX_NAME_LENGTH + 1), []], ["book", [["a" * (MAX_NAME_LENGTH + 1), 1]]], ["book", [["a", True]]],
        ["book", [[f"f{n}", 1] for n in range(MAX_SCHEMA_FIELDS + 1)]],
    ],
)  # fmt: skip
def test_what_is_no_schema_is_none(written: Any) -> None:
    assert stored_schema(to_data(written)) is None
    assert stored_schema(to_data(written)[:-1]) is None


@pytest.mark.parametrize("kind", [0, 5, 6, 31, 32, 47, 2**31 - 1])
def test_a_kind_that_no_object_has_is_refused(kind: int) -> None:
    with pytest.raises(CorruptDataError, match=f"field 'a' of kind {kind}, which no Compact object has"):
        register(CompactSchema("book", [("a", kind)]))


def is_known(data: bytes) -> bool:
    try:
        from_any_data(data)
    except UnknownSchema:
        return False
    return True


def test_a_process_knows_so_many_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    forget(monkeypatch, most=8)
    first = stored(("a", "int32", 1), ("b", "int32", 2))
    second = stored(("c", "int32", 1), ("d", "int32", 2), ("e", "int32", 2))
    stored(("a", "int32", 1), ("b", "int32", 2))  # known already: it counts once
    assert is_known(first)
    assert is_known(second)
    third = stored(("f", "int32", 1))
    assert is_known(third)
    assert not is_known(first), "they are too many"
    assert not is_known(second)


# --- hostile bytes ----------------------------------------------------------------------------------------------------

TEXTS = CompactSchema("texts", [("texts", 18)])
NUMBER = CompactSchema("number", [("n", 11)])


def of(schema: CompactSchema, content: bytes) -> bytes:
    register(schema)
    return struct.pack(">iq", -55, schema.id) + content


def texts(length: int, count: int, content: bytes) -> bytes:
    """An object with one array of texts, whose head says this."""
    array = struct.pack(">ii", length, count) + content
    return of(TEXTS, struct.pack(">i", len(array)) + array + b"\0")


def nested(depth: int) -> CompactObject:
    inner = Thing(("inner", "compact", None))
    for _ in range(depth):
        inner = Thing(("inner", "compact", inner))
    return inner


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: struct.pack(">i", -55), "ends within 8 bytes"),
        (lambda: of(NUMBER, b"1234567"), "8 bytes of data at byte 12"),
        (lambda: of(NUMBER, bytes(9)), "it ends at byte 20, but has 21"),
        (lambda: of(TEXTS, struct.pack(">i", -1)), "-1 bytes of data"),
        (lambda: of(TEXTS, struct.pack(">i", 2**31 - 1) + bytes(50)), "2147483647 bytes of data"),
        (lambda: of(TEXTS, struct.pack(">i", 0)), "0 bytes of data at byte 16"),
        (lambda: of(TEXTS, struct.pack(">i", 4) + bytes(4) + b"\x04"), "ends within 4 bytes at byte 20"),
        (lambda: texts(0, 2**31 - 1, b""), "2147483647 values in 0 bytes"),
        (lambda: texts(0, -1, b""), "-1 values in 0 bytes"),
        (lambda: texts(-5, 0, b""), "0 values in -5 bytes"),
        (lambda: texts(2**31 - 1, 0, b""), "0 values in 2147483647 bytes"),
        (lambda: texts(4, 1, struct.pack(">i", 5) + b"\0"), "ends within 5 bytes"),
        (lambda: texts(4, 1, struct.pack(">i", -2) + b"\0"), "ends within -2 bytes"),
        (lambda: texts(5, 1, struct.pack(">i", 1) + b"\xff\0"), "UTF-8"),
        (lambda: texts(104, 100, struct.pack(">i", 100) + b"x" * 100 + bytes(100)), "two of its values have the same bytes"),
        (lambda: known(nested(MAX_DEPTH + 1)), "objects are nested more than 64 deep"),
        (lambda: of(CompactSchema("bits", [("b", 2)]), struct.pack(">ii", 4, -1) + b"\0"), "an array of -1 bools"),
        (lambda: of(CompactSchema("bits", [("b", 2)]), struct.pack(">ii", 4, 2**31 - 1) + b"\0"), "ends within 268435456 bytes"),
        (lambda: of(CompactSchema("date", [("d", 23)]), struct.pack(">iibb", 6, 0, 1, 1) + b"\0"), "year 0 is out of range"),
    ],
)  # fmt: skip
def test_what_is_no_object_says_why(make: Any, why: str) -> None:
    with pytest.raises(CorruptDataError, match=why):
        from_any_data(make())


def test_objects_in_the_greatest_depth_are_read() -> None:
    read, depth = from_any_data(known(nested(MAX_DEPTH))), 0
    while (read := read["inner"]) is not None:
        depth += 1
    assert depth == MAX_DEPTH


def test_many_positions_of_one_place_cost_no_more_than_the_object_has() -> None:
    """A schema of many fields that all begin at one long text, and arrays whose items are the array's own object."""
    many = CompactSchema("many", [(f"f{n:03}", 17) for n in range(MAX_SCHEMA_FIELDS)])
    data = struct.pack(">i", 200_000) + b"x" * 200_000
    whole = of(
        many, struct.pack(">i", len(data)) + data + struct.pack(f">{MAX_SCHEMA_FIELDS}i", *[0] * MAX_SCHEMA_FIELDS)
    )
    with pytest.raises(CorruptDataError, match="two of its values have the same bytes"):
        from_any_data(whole)
    tree = CompactSchema("tree", [("t", 30)])
    register(tree)
    inner = struct.pack(">qi", tree.id, 9) + struct.pack(">ii", 0, 1) + b"\xff" + b"\0"
    for _ in range(20):  # 2 to the power of 20 objects, if both items of each array were read
        array = struct.pack(">ii", len(inner), 2) + inner + (b"\0\0" if len(inner) < 255 else bytes(4))
        head = struct.pack(">qi", tree.id, len(array))
        inner = head + array + (b"\0" if len(array) < 255 else b"\0\0")
    with pytest.raises(CorruptDataError, match="two of its values have the same bytes"):
        from_any_data(struct.pack(">i", -55) + inner)


VALID = Thing(
    ("flag", "boolean", True),
    ("number", "int64", 7),
    ("flags", "array_of_boolean", [True] * 11),
    ("texts", "array_of_string", ["a", None, "bc"]),
    ("price", "decimal", Decimal("1.5")),
    ("when", "timestamp_with_timezone", NOON.replace(tzinfo=HOUR)),
    ("parts", "array_of_compact", [Part(("n", "nullable_int16", 3)), None]),
    ("numbers", "array_of_nullable_float64", [1.5, None]),
    ("octets", "array_of_int8", [1, 2]),
)


@given(st.data())
def test_changed_bytes_are_read_or_refused(data: st.DataObject) -> None:
    whole = bytearray(known(VALID))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(4, len(whole) - 1))
        whole[at : at + 1] = data.draw(st.binary(max_size=4))
    try:
        found = from_any_data(bytes(whole))
    except CorruptDataError:
        return
    assert set(found) == {name for name, _, _ in VALID.fields} or found.type_name == "Part"


@given(
    st.lists(st.integers(1, 46).filter(lambda kind: kind not in (5, 6, 31, 32)), max_size=6), st.binary(max_size=200)
)
def test_any_bytes_are_read_or_refused(kinds: list[int], content: bytes) -> None:
    schema = CompactSchema("any", [(f"f{place}", kind) for place, kind in enumerate(kinds)])
    try:
        found = from_any_data(of(schema, content))
    except CorruptDataError:
        return
    assert list(found) == [name for name, _ in schema.fields]


values = {
    "int64": st.integers(-(2**63), 2**63 - 1),
    "boolean": st.booleans(),
    "float64": st.floats(allow_nan=False),
    "nullable_int32": st.none() | st.integers(-(2**31), 2**31 - 1),
    "string": st.none() | st.text(max_size=300),
    "array_of_boolean": st.none() | st.lists(st.booleans(), max_size=20),
    "array_of_string": st.none() | st.lists(st.none() | st.text(max_size=100), max_size=5),
    "decimal": st.none() | st.decimals(allow_nan=False, allow_infinity=False),
    "array_of_nullable_int64": st.none() | st.lists(st.none() | st.integers(-9, 9), max_size=5),
}


@given(
    st.lists(st.sampled_from(sorted(values)).flatmap(lambda kind: st.tuples(st.just(kind), values[kind])), max_size=20)
)
def test_what_a_client_writes_is_read(written: list[tuple[str, Any]]) -> None:
    fields = [(f"f{len(written) - place}", kind, value) for place, (kind, value) in enumerate(written)]
    assert from_any_data(stored(*fields)) == {name: value for name, _, value in fields}
