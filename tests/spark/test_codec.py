"""The row codec against the grid's own serialisation: the same bytes one way, the same columns the other."""

import datetime as dt
import math
import random
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.codec.values import to_data, to_key_data
from phalanx.common.errors import UsageError
from phalanx_spark.columns import fallback
from phalanx_spark.columns import layouts as layouts_module
from phalanx_spark.columns.arrow import to_bytes_list
from phalanx_spark.connector import keys as keys_module
from phalanx_spark.connector import rows as rows_module
from phalanx_spark.connector.options import SparkOptions, parse_options
from phalanx_spark.connector.rows import decode_entries
from spark.schemas import as_batch, is_same, key_scalars, tables, types


def encode_keys(batch: Any, chosen: SparkOptions) -> list[bytes]:
    return to_bytes_list(keys_module.encode_keys(batch, chosen))


def encode_rows(batch: Any, chosen: SparkOptions) -> list[bytes]:
    return to_bytes_list(rows_module.encode_rows(batch, chosen))


def options(**changes: str) -> SparkOptions:
    given_options = {"members": "127.0.0.1:5701", "map": "rows", "key": "__key"} | changes
    return parse_options(given_options, "write")


def key_of(row_number: int) -> bytes:
    return to_key_data(row_number)


def decoded(values: list[bytes], schema: Any, chosen: SparkOptions) -> list[dict[str, Any]]:
    """The rows in their order, whatever the order in which their batches come."""
    numbered = pa.schema([pa.field("__key", pa.int64()), *schema])
    found: dict[int, dict[str, Any]] = {}
    for batch in decode_entries([key_of(number) for number in range(len(values))], values, numbered, chosen):
        assert batch.schema.equals(numbered)
        batch.validate(full=True)
        for row in batch.to_pylist(maps_as_pydicts="strict"):
            number = row.pop("__key")
            assert number not in found
            found[number] = row
    assert sorted(found) == list(range(len(values)))
    return [found[number] for number in range(len(values))]


@pytest.fixture(scope="module", params=["columns", "rows"])
def way(request: pytest.FixtureRequest) -> Iterator[str]:
    """Small pages are read row by row; here every page goes one way."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows_module, "_MIN_ROWS", 1 if request.param == "columns" else 10**9)
        patch.setattr(layouts_module, "_MIN_ROWS", 0)
        yield str(request.param)


@given(table=tables(types()))
def test_a_row_is_encoded_as_the_same_bytes_as_the_equal_dict(table: tuple[Any, list[dict[str, Any]]]) -> None:
    schema, rows = table
    assert encode_rows(as_batch(schema, rows), options()) == [to_data(row) for row in rows]


@given(table=tables(types()), start=st.integers(0, 3))
def test_a_slice_of_a_batch_is_encoded_as_its_rows_alone(table: tuple[Any, list[dict[str, Any]]], start: int) -> None:
    schema, rows = table
    sliced = as_batch(schema, rows).slice(start, 2)
    assert encode_rows(sliced, options()) == [to_data(row) for row in rows[start : start + 2]]


@given(table=tables(types(), max_columns=3), copies=st.integers(1, 5))
def test_nested_values_are_read_as_columns(table: tuple[Any, list[dict[str, Any]]], copies: int) -> None:
    """None of what Spark wrote is left to the slow way."""
    schema, rows = table
    stored = encode_rows(as_batch(schema, rows * copies), options())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows_module, "_MIN_ROWS", 1)
        patch.setattr(layouts_module, "_MIN_ROWS", 0)
        patch.setattr(fallback, "decode", None)
        assert len(decoded(stored, schema, options())) == len(stored)


@given(table=tables(types()))
def test_rows_come_back_as_they_were(table: tuple[Any, list[dict[str, Any]]], way: str) -> None:
    schema, rows = table
    batch = as_batch(schema, rows)
    wanted = batch.to_pylist(maps_as_pydicts="strict")
    assert repr(decoded(encode_rows(batch, options()), schema, options())) == repr(wanted)


@given(table=tables(types()), random_seed=st.integers(0, 2**32))
def test_rows_of_python_programs_are_read_whatever_their_layout(
    table: tuple[Any, list[dict[str, Any]]], random_seed: int, way: str
) -> None:
    """Fields in another order, left out where they are None, and more of them than anybody asked for."""
    schema, rows = table
    wanted = as_batch(schema, rows).to_pylist(maps_as_pydicts="strict")
    chance = random.Random(random_seed)
    stored = []
    for row in rows:
        items = [(name, value) for name, value in row.items() if value is not None or chance.random() < 0.5]
        extra: list[tuple[str, Any]] = chance.choice(
            [[], [("unasked", [1, {"deep": 2.5}])], [("unasked", "text" * chance.randrange(30))]]
        )
        items += [item for item in extra if item[0] not in row]
        chance.shuffle(items)
        stored.append(to_data(dict(items)))
    assert repr(decoded(stored, schema, options())) == repr(wanted)


@given(table=tables(key_scalars(), max_columns=3))
def test_keys_are_the_bytes_of_to_key_data_and_come_back(table: tuple[Any, list[dict[str, Any]]]) -> None:
    schema, rows = table
    rows = [row for row in rows if None not in row.values()]
    chosen = options(key=",".join(schema.names)) if all("," not in n and n.strip() == n for n in schema.names) else None
    if chosen is None:
        return
    batch = as_batch(schema, rows)
    parts = [tuple(row[name] for name in schema.names) for row in rows]
    keys = encode_keys(batch, chosen)
    assert keys == [to_key_data(part if len(part) > 1 else part[0]) for part in parts]
    back = pa.Table.from_batches(decode_entries(keys, [to_data({})] * len(keys), schema, chosen), schema=schema)
    assert back.equals(pa.Table.from_batches([batch], schema=schema))


def test_numbers_are_widened_where_nothing_is_lost(way: str) -> None:
    stored = [
        to_data({"x": 5}),
        to_data({"x": 2.5}),
        to_data({"x": None}),
        to_data({}),
        to_data({"x": 2**62}),
        to_data({"x": -(2**63)}),
    ]
    stored += [to_data({"x": 2**63}), to_data({"x": 2**53 - 1}), to_data({"x": 2**70})]
    found = decoded(stored, pa.schema([("x", pa.float64())]), options())
    assert [row["x"] for row in found] == [5.0, 2.5, None, None, 2.0**62, -(2.0**63), 2.0**63, 2.0**53 - 1, 2.0**70]


@pytest.mark.parametrize("special", [math.inf, -math.inf, -0.0, 1.5, 2.0**127, 2.0**-149, 2**24], ids=repr)
def test_what_a_float_has_exactly_is_read_as_it_is(special: float, way: str) -> None:
    found = decoded([to_data({"x": special})] * 30, pa.schema([("x", pa.float32())]), options())
    assert {float(row["x"]).hex() for row in found} == {float(special).hex()}
    nan = decoded([to_data({"x": math.nan}), to_data({"x": None})], pa.schema([("x", pa.float32())]), options())
    assert math.isnan(nan[0]["x"])
    assert nan[1]["x"] is None


@pytest.mark.parametrize(("key", "kind"), [(0.1, pa.float32()), (1e300, pa.float32()), (2**53 + 1, pa.float64())])
def test_a_key_that_the_column_has_not_exactly_is_named(key: float, kind: Any) -> None:
    for stored, named in ((key, "id"), ((key, 1), "id,no")):
        schema = pa.schema([("id", kind)])
        with pytest.raises(
            UsageError, match=rf"field 'id' holds {re.escape(repr(key))} .*, which no (float|double) holds exactly"
        ):
            list(decode_entries([to_key_data(stored)] * 30, [to_data({})] * 30, schema, options(key=named)))


def test_a_value_that_is_no_dict_is_the_field_value(way: str) -> None:
    stored = [to_data(1), to_data(2), to_data({"value": 3}), to_data(None)]
    found = decoded(stored, pa.schema([("value", pa.int64())]), options())
    assert [row["value"] for row in found] == [1, 2, 3, None]


def test_a_dict_whose_names_are_no_text_is_the_field_value(way: str) -> None:
    contents: list[Any] = [{7: "a"}, {}, {8: None}, None, {"value": {9: "b"}}]
    schema = pa.schema([("value", pa.map_(pa.int64(), pa.string()))])
    found = decoded([to_data(content) for content in contents], schema, options())
    assert [row["value"] for row in found] == [{7: "a"}, {}, {8: None}, None, {9: "b"}]
    with pytest.raises(
        UsageError, match=r"key 0: field 'value' holds {'a': 1, 7: 2} \(dict\), which is not of type map<bigint,string>"
    ):
        decoded([to_data({"a": 1, 7: 2})], schema, options())


MISMATCHES = [
    (pa.int64(), "seven", "'seven' (str), which is not of type bigint"),
    (pa.int64(), 7.0, "7.0 (float), which is not of type bigint"),
    (pa.int64(), True, "True (bool), which is not of type bigint"),
    (pa.int8(), 128, "128 (int), which is not of type tinyint"),
    (pa.int64(), 2**63, "9223372036854775808 (int), which is not of type bigint"),
    (pa.string(), 7, "7 (int), which is not of type string"),
    (pa.binary(), "text", "'text' (str), which is not of type binary"),
    (pa.bool_(), 1, "1 (int), which is not of type boolean"),
    (pa.float64(), "1.5", "'1.5' (str), which is not of type double"),
    (pa.float64(), 2**53 + 1, "9007199254740993 (int), which no double holds exactly"),
    (pa.float64(), -(2**53) - 1, "-9007199254740993 (int), which no double holds exactly"),
    (pa.float64(), 2**63 - 1, "9223372036854775807 (int), which no double holds exactly"),
    (pa.float64(), 2**64 + 1, "18446744073709551617 (int), which no double holds exactly"),
    (pa.float64(), 10**400, " (int), which no double holds exactly"),
    (pa.float64(), 10**5_000, " (int), which no double holds exactly"),
    (pa.float32(), 1e300, "1e+300 (float), which no float holds exactly"),
    (pa.float32(), 1e-300, "1e-300 (float), which no float holds exactly"),
    (pa.float32(), 0.1, "0.1 (float), which no float holds exactly"),
    (pa.float32(), 2**24 + 1, "16777217 (int), which no float holds exactly"),
    (pa.list_(pa.float64()), [0.5, 2**53 + 1], "[0.5, 9007199254740993] (list), which is not of type array<double>"),
    (
        pa.map_(pa.float64(), pa.int64()),
        {2**53 + 1: 1},
        "{9007199254740993: 1} (dict), which is not of type map<double,bigint>",
    ),
    (pa.int32(), 2**31, "2147483648 (int), which is not of type int"),
    (pa.int16(), -(2**15) - 1, "-32769 (int), which is not of type smallint"),
    (pa.int8(), False, "False (bool), which is not of type tinyint"),
    (pa.int64(), 2**64, "18446744073709551616 (int), which is not of type bigint"),
    (pa.decimal128(5, 2), Decimal("1.234"), "Decimal('1.234') (Decimal), which is not of type decimal(5,2)"),
    (pa.decimal128(5, 2), Decimal(1000), "Decimal('1000') (Decimal), which is not of type decimal(5,2)"),
    (pa.decimal128(5, 2), 10_000, "10000 (int), which is not of type decimal(5,2)"),
    (pa.decimal128(5, 2), Decimal("NaN"), "Decimal('NaN') (Decimal), which is not of type decimal(5,2)"),
    (pa.timestamp("us", tz="UTC"), dt.datetime(2026, 1, 1), "which is not of type timestamp"),
    (pa.timestamp("us"), dt.datetime(2026, 1, 1, tzinfo=dt.UTC), "which is not of type timestamp_ntz"),
    (pa.date32(), dt.datetime(2026, 1, 1), "which is not of type date"),
    (pa.timestamp("us"), dt.date(2026, 1, 1), "which is not of type timestamp_ntz"),
    (pa.string(), b"a", "b'a' (bytes), which is not of type string"),
    (pa.string(), True, "True (bool), which is not of type string"),
    (pa.date32(), "2020-01-01", "'2020-01-01' (str), which is not of type date"),
    (pa.decimal128(4, 2), 1.5, "1.5 (float), which is not of type decimal(4,2)"),
    (pa.list_(pa.int64()), 7, "7 (int), which is not of type array<bigint>"),
    (pa.list_(pa.int64()), ["a"], "['a'] (list), which is not of type array<bigint>"),
    (pa.map_(pa.string(), pa.int64()), [1], "[1] (list), which is not of type map<string,bigint>"),
    (pa.struct([("a", pa.int64())]), {"a": "b"}, "{'a': 'b'} (dict), which is not of type struct<a:bigint>"),
]


@pytest.mark.parametrize(("kind", "value", "told"), MISMATCHES, ids=[case[2] for case in MISMATCHES])
def test_a_value_of_another_type_is_named_with_its_key_and_both_types(
    kind: Any, value: object, told: str, way: str
) -> None:
    stored = [to_data({"x": None})] * 3 + [to_data({"x": value})]
    with pytest.raises(UsageError) as error:
        decoded(stored, pa.schema([("x", kind)]), options())
    assert str(error.value).startswith("map 'rows', key 3: field 'x' holds ")
    assert told in str(error.value)


def test_a_missing_value_of_a_field_that_may_not_be_null_is_named(way: str) -> None:
    with pytest.raises(UsageError, match=r"key 1: field 'x' has no value, but the schema says NOT NULL"):
        decoded([to_data({"x": 1}), to_data({})], pa.schema([pa.field("x", pa.int64(), nullable=False)]), options())


def test_only_wanted_fields_are_read_and_none_is_fine_too(way: str) -> None:
    stored = [to_data({"x": 1, "y": "a"}), to_data({"x": 2, "y": "b"})]
    assert decoded(stored, pa.schema([("y", pa.string())]), options()) == [{"y": "a"}, {"y": "b"}]
    assert [batch.num_rows for batch in decode_entries([b""] * 2, stored, pa.schema([]), options())] == [2]


def test_rows_with_far_more_elements_than_others_are_read_too() -> None:
    lists = [[number] * (number % 3) for number in range(100)] + [list(range(1000)), None, [1] * 60]
    found = decoded([to_data({"x": each}) for each in lists], pa.schema([("x", pa.list_(pa.int64()))]), options())
    assert [row["x"] for row in found] == lists
    assert (
        len(decoded([to_data({"y": each, "x": 1}) for each in lists], pa.schema([("x", pa.int64())]), options())) == 103
    )


def test_null_lists_that_hide_elements_are_nil() -> None:
    hiding = pa.ListArray.from_arrays(pa.array([0, 2, 4]), pa.array([1, 2, 3, 4]), mask=pa.array([True, False]))
    batch = pa.RecordBatch.from_arrays([hiding], names=["x"])
    assert encode_rows(batch, options()) == [to_data({"x": None}), to_data({"x": [3, 4]})]


def test_a_column_that_is_neither_asked_for_nor_flat_does_not_stop_the_others() -> None:
    stored = [to_data({"nested": {"a": number}, "x": number}) for number in range(100)]
    found = decoded(stored, pa.schema([("x", pa.int64())]), options())
    assert [row["x"] for row in found] == list(range(100))


def test_broken_bytes_are_no_row(way: str) -> None:
    good = [to_data({"x": number}) for number in range(5)]
    for bad in (good[0][:-1], good[0] + b"\x00", b"", b"\x00\x00"):
        with pytest.raises(Exception, match="corrupt data"):
            decoded([*good, bad], pa.schema([("x", pa.int64())]), options())


def test_text_that_is_no_utf8_is_refused_with_its_column() -> None:
    broken = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe")])
    batch = pa.RecordBatch.from_arrays([broken, pa.array([1])], names=["name", "id"])
    with pytest.raises(UsageError, match=r"column 'name' holds a string that is not UTF-8.*cast the column to binary"):
        encode_rows(batch, options())
    nested = pa.RecordBatch.from_arrays([pa.StructArray.from_arrays([broken], names=["name"])], names=["person"])
    with pytest.raises(UsageError, match=r"column 'person\.name' holds a string"):
        encode_rows(nested, options())
    with pytest.raises(UsageError, match="key column"):
        encode_keys(batch, options(key="name"))


@pytest.mark.parametrize("kind", [pa.date32(), pa.timestamp("us"), pa.timestamp("us", tz="UTC")], ids=str)
def test_days_that_python_has_not_are_refused_with_their_column(kind: Any) -> None:
    far = pa.array([3_000_000], pa.int32()).cast(pa.date32())
    column = far if kind == pa.date32() else pa.array([3_000_000 * 86_400_000_000], pa.int64()).cast(kind)
    with pytest.raises(UsageError, match=r"column 'day' holds a date outside the years 1 to 9999"):
        encode_rows(pa.RecordBatch.from_arrays([column], names=["day"]), options())


@pytest.mark.parametrize(
    ("column", "told"),
    [
        (
            pa.array(["a", None, None]),
            "key column 'id' is null in 2 of 3 rows of a batch; nothing of that batch was written",
        ),
        (pa.array([1.0, math.nan]), "key column 'id' is NaN in 1 of 2 rows of a batch"),
    ],
)
def test_what_is_no_key_is_refused_with_its_column(column: Any, told: str) -> None:
    batch = pa.RecordBatch.from_arrays([column], names=["id"])
    for key in ("id", "id,other"):
        whole = batch if key == "id" else pa.RecordBatch.from_arrays([column, column.is_valid()], names=["id", "other"])
        with pytest.raises(UsageError) as error:
            encode_keys(whole, options(key=key))
        assert told in str(error.value)


def test_keys_of_several_types_are_named() -> None:
    keys = [to_key_data("a"), to_key_data(7)]
    with pytest.raises(UsageError, match=r"key 7: field 'id' holds 7 \(int\), which is not of type string"):
        list(decode_entries(keys, [to_data({})] * 2, pa.schema([("id", pa.string())]), options(key="id")))
    with pytest.raises(UsageError, match=r"key 'a', which is one str, but option 'key' names 2 columns \(a, b\)"):
        list(decode_entries(keys, [to_data({})] * 2, pa.schema([("a", pa.string())]), options(key="a,b")))
    with pytest.raises(UsageError, match=r"key \(1, 2\), which is a list of 2, but option 'key' names 1 column \(a\)"):
        list(decode_entries([to_key_data((1, 2))], [to_data({})], pa.schema([("a", pa.int64())]), options(key="a")))


def test_the_key_column_comes_from_the_key_whatever_the_value_holds() -> None:
    schema = pa.schema([("id", pa.string()), ("n", pa.int64())])
    values = [to_data({"id": "other", "n": 1}), to_data({"n": 2})]
    (batch,) = decode_entries([to_key_data("a"), to_key_data("b")], values, schema, options(key="id"))
    assert batch.to_pylist() == [{"id": "a", "n": 1}, {"id": "b", "n": 2}]


def test_the_stored_row_holds_the_key_unless_told_otherwise() -> None:
    batch = pa.RecordBatch.from_pylist([{"id": "a", "n": 1}])
    assert encode_rows(batch, options(key="id")) == [to_data({"id": "a", "n": 1})]
    assert encode_rows(batch, options(key="id", keyInValue="false")) == [to_data({"n": 1})]
    assert encode_rows(batch.select(["id"]), options(key="id", keyInValue="false")) == [to_data({})]


HOSTILE = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**71), 2**71), st.sampled_from([2**53 + 1, 2**24 + 1, 127, 128, 10**38, 10**400]),
    st.floats(), st.floats(width=32), st.text(), st.binary(), st.dates(), st.datetimes(), st.datetimes(timezones=st.just(dt.UTC)),
    st.decimals(), st.decimals(-100, 100, places=2), st.uuids(), st.timedeltas(), st.times(),
)  # fmt: skip
NESTED = st.recursive(
    HOSTILE,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab") | st.integers(0, 2), inner, max_size=2)
    ),
    max_leaves=5,
)
KINDS = [
    pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string(), pa.binary(), pa.date32(),
    pa.timestamp("us"), pa.timestamp("us", tz="UTC"), pa.decimal128(5, 2), pa.decimal128(38, 0), pa.list_(pa.float64()),
    pa.list_(pa.float32()), pa.map_(pa.float64(), pa.float32()), pa.map_(pa.int64(), pa.string()), pa.list_(pa.list_(pa.int8())),
    pa.struct([("a", pa.float64()), ("b", pa.int16())]), pa.map_(pa.string(), pa.decimal128(5, 2)),
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_value_is_read_as_it_is_or_refused(kind: Any, way: str) -> None:
    @given(st.lists(NESTED, min_size=1, max_size=3))
    def try_it(contents: list[Any]) -> None:
        try:
            found = decoded([to_data({"x": content}) for content in contents], pa.schema([("x", kind)]), options())
        except UsageError:
            return
        for content, row in zip(contents, found, strict=True):
            assert is_same(content, row["x"], kind), (content, row["x"])

    try_it()
