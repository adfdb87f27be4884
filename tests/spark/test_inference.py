"""The schema of a map from a sample of its entries."""

import datetime as dt
import decimal
import re
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.codec.values import Json, to_data, to_key_data
from phalanx.common.errors import UsageError
from phalanx_spark.columns.types import arrow_schema
from phalanx_spark.connector import grid as grid_module
from phalanx_spark.connector.options import parse_options
from phalanx_spark.connector.rows import decode_entries
from phalanx_spark.connector.source import PhalanxSource
from spark.fakes import FakeGrid
from spark.schemas import is_same


@pytest.fixture
def grid(monkeypatch: pytest.MonkeyPatch) -> FakeGrid:
    fake = FakeGrid()
    monkeypatch.setattr(grid_module, "connect", fake.connect)
    return fake


def inferred(key: str = "key", **options: str) -> str:
    schema = PhalanxSource({"members": "h:1", "map": "m", "key": key} | options).schema()
    assert all(field.nullable for field in schema.fields)
    return schema.simpleString().removeprefix("struct<").removesuffix(">")


NOON = dt.datetime(2024, 5, 1, 12)


@pytest.mark.parametrize(
    ("contents", "kind"),
    [
        ([True], "boolean"),
        ([1], "bigint"),
        ([2**63], "decimal(38,0)"),
        ([1, 2**70], "decimal(38,0)"),
        ([1.5], "double"),
        ([1, 1.5, None], "double"),
        ([2**53, 1.5, -(2**53)], "double"),
        ([2**62, 0.5], "double"),
        ([2**53 + 1, 1], "bigint"),
        ([1, 2**53 + 1, None], "bigint"),
        ([2**53 + 1, decimal.Decimal("0.5")], "decimal(20,1)"),
        ([[2**53 + 1]], "array<bigint>"),
        ([{"a": 2**53 + 1}], "struct<a:bigint>"),
        ([10**38 - 1], "decimal(38,0)"),
        ([{}], "struct<>"),
        ([{}, {7: "a"}], "map<bigint,string>"),
        ([{7: "a"}, {}, {8: None}], "map<bigint,string>"),
        ([{}, {"a": 1}], "struct<a:bigint>"),
        ([[{}], [{7: {}}], [{8: {9: 1.5}}]], "array<map<bigint,map<bigint,double>>>"),
        ([{"a": {}}, {"a": {7: "b"}}], "struct<a:map<bigint,string>>"),
        ([None], "string"),
        ([None, 5], "bigint"),
        (["a"], "string"),
        ([uuid.UUID(int=5), "a"], "string"),
        ([Json("{}")], "string"),
        ([b"a"], "binary"),
        ([NOON.date()], "date"),
        ([NOON], "timestamp_ntz"),
        ([NOON.replace(tzinfo=dt.UTC)], "timestamp"),
        ([decimal.Decimal("1.50")], "decimal(3,2)"),
        ([decimal.Decimal("100.5"), decimal.Decimal("0.125")], "decimal(6,3)"),
        ([decimal.Decimal("1E+3")], "decimal(4,0)"),
        ([decimal.Decimal("0.001")], "decimal(3,3)"),
        ([decimal.Decimal("1.5"), 7], "decimal(20,1)"),
        ([[]], "array<string>"),
        ([[], [1], [None]], "array<bigint>"),
        ([(1, 2.5)], "array<double>"),
        ([{"a": 1}, {"b": "x"}], "struct<a:bigint,b:string>"),
        ([[{"a": 1}], [{"a": 1.5}]], "array<struct<a:double>>"),
        ([{1: "a"}, {2: None}], "map<bigint,string>"),
        ([{dt.date(2024, 1, 1): 1.5}], "map<date,double>"),
    ],
    ids=repr,
)
def test_the_type_that_holds_all_values_of_a_field(grid: FakeGrid, contents: list[Any], kind: str) -> None:
    grid.put("m", {number: {"x": content} for number, content in enumerate(contents)})
    assert inferred() == f"key:bigint,x:{kind}"


def test_key_columns_keep_their_place_in_the_row_and_come_first_otherwise(grid: FakeGrid) -> None:
    grid.put("m", {"a": {"x": 1, "id": "a", "y": 2.5}})
    assert inferred("id") == "x:bigint,id:string,y:double"
    assert inferred("code") == "code:string,x:bigint,id:string,y:double"


def test_the_key_says_the_type_of_its_column_whatever_the_row_holds(grid: FakeGrid) -> None:
    grid.put("m", {"7": {"id": 7}})
    assert inferred("id") == "id:string"


def test_a_key_of_several_parts_is_several_columns(grid: FakeGrid) -> None:
    grid.put("m", {("LH", 400): {"no": "400", "to": "JFK"}})
    assert inferred("carrier,no") == "carrier:string,no:bigint,to:string"


def test_missing_fields_are_allowed_and_all_are_found(grid: FakeGrid) -> None:
    grid.put("m", {1: {"a": 1}, 2: {"b": 2}, 3: {}})
    assert set(inferred().split(",")) == {"key:bigint", "a:bigint", "b:bigint"}


def test_a_map_of_plain_values_has_the_column_value(grid: FakeGrid) -> None:
    grid.put("m", {"a": 1, "b": 2.5})
    assert inferred() == "key:string,value:double"


def test_dicts_whose_names_are_no_text_are_plain_values(grid: FakeGrid) -> None:
    grid.put("m", {"a": {7: "a"}})
    assert inferred() == "key:string,value:map<bigint,string>"
    grid.put("m", {"b": {}})
    assert inferred() == "key:string,value:map<bigint,string>"
    grid.put("m", {"c": {7: "a", "b": "c"}})
    with pytest.raises(UsageError, match=r"field 'value.key' is (bigint|string) in some entries and"):
        inferred()


def test_no_more_than_the_sample_is_looked_at(grid: FakeGrid) -> None:
    grid.put("m", {number: {"x": 1 if number % 2 else "one"} for number in range(100)})
    assert inferred(sampleSize="1").startswith("key:bigint,x:")
    with pytest.raises(UsageError):
        inferred(sampleSize="100")


@pytest.mark.parametrize(
    ("contents", "field", "kinds"),
    [
        ([1, "one"], "x", ("bigint", "string")),
        ([True, 1], "x", ("boolean", "bigint")),
        ([2**53 + 1, 0.5], "x", ("bigint", "double")),
        ([1, 2**53 + 1, 0.5], "x", ("bigint", "double")),
        ([2**53 + 1, 1, 0.5], "x", ("bigint", "double")),
        ([0.5, 1, -(2**63) + 1], "x", ("bigint", "double")),
        ([[0.5, 2**53 + 1]], "x.element", ("bigint", "double")),
        ([{"a": 2**53 + 1}, {"a": 0.5}], "x.a", ("bigint", "double")),
        ([{1: 2**53 + 1}, {2: 0.5}], "x.value", ("bigint", "double")),
        ([2**70, 0.5], "x", ("decimal(38,0)", "double")),
        ([{"a": 1}, {7: "b"}], "x", ("struct<a:bigint>", "map<bigint,string>")),
        ([NOON, NOON.replace(tzinfo=dt.UTC)], "x", ("timestamp_ntz", "timestamp")),
        ([[1], ["a"]], "x.element", ("bigint", "string")),
        ([[1, "a"]], "x.element", ("bigint", "string")),
        ([{"a": {"b": 1}}, {"a": {"b": "c"}}], "x.a.b", ("bigint", "string")),
        ([decimal.Decimal(10) ** 37, decimal.Decimal("0.01")], "x", ("decimal(38,0)", "decimal(2,2)")),
    ],
    ids=repr,
)
def test_a_field_without_a_common_type_is_named_with_both(
    grid: FakeGrid, contents: list[Any], field: str, kinds: tuple[str, str]
) -> None:
    grid.put("m", {number: {"x": content} for number, content in enumerate(contents)})
    with pytest.raises(UsageError) as error:
        inferred()
    told = re.match(
        r"map 'm': field '(.*)' is (.*) in some entries and (.*) in others \(for example key \d\)", str(error.value)
    )
    assert told is not None, str(error.value)
    assert (told[1], {told[2], told[3]}) == (field, set(kinds))
    assert "spark.read.schema" in str(error.value)
    assert ("2^53" in str(error.value)) == (kinds == ("bigint", "double")), "1 beside 0.5 is read"


@pytest.mark.parametrize(
    "content",
    [
        dt.time(12), dt.timedelta(1), decimal.Decimal("NaN"), 10**38, -(10**38), decimal.Decimal(10) ** 38, decimal.Decimal("1E-39"),
        decimal.Decimal("1E+100"),
    ],
    ids=repr,
)  # fmt: skip
def test_a_value_that_spark_has_no_type_for_is_named(grid: FakeGrid, content: object) -> None:
    grid.put("m", {1: {"x": [content]}})
    with pytest.raises(
        UsageError, match=r"key 1: field 'x.element' holds .*, which is not a value of a Spark column; give"
    ):
        inferred()


def test_keys_of_several_types_are_named(grid: FakeGrid) -> None:
    grid.put("m", {"a": {}, 7: {}})
    with pytest.raises(UsageError, match=r"map 'm': field 'key' is (bigint|string) in some entries and"):
        inferred()
    with pytest.raises(UsageError, match=r"which is one (str|int), but option 'key' names 2 columns \(a, b\)"):
        inferred("a,b")


def test_a_map_without_entries_is_named_with_those_that_have_some(grid: FakeGrid) -> None:
    with pytest.raises(
        UsageError, match=r"map 'm' of the cluster 'phalanx' has no entries .*\(no map has any\).*schema"
    ):
        inferred()
    grid.put("flights", {"a": {}})
    with pytest.raises(
        UsageError, match=r"maps with entries are: 'flights'\); check the name, write into the map first"
    ):
        inferred()


NUMBERS = (
    st.integers(-(2**71), 2**71)
    | st.sampled_from([2**53 + 1, 2**53, 10**38])
    | st.floats()
    | st.decimals(-100, 100, places=2)
)
CONTENTS = st.recursive(
    NUMBERS | st.none() | st.booleans() | st.text(st.characters(codec="utf-8"), max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from("ab"), inner)
        | st.dictionaries(st.integers(), inner, max_size=2)
    ),
    max_leaves=4,
)


@given(st.lists(NUMBERS, max_size=5) | st.lists(CONTENTS, max_size=4))
def test_what_is_inferred_reads_all_of_the_sample_as_it_is(contents: list[Any]) -> None:
    options = parse_options({"members": "h:1", "map": "m", "key": "key"}, "read")
    fake = FakeGrid()
    fake.put("m", {number: {"x": content} for number, content in enumerate(contents)})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grid_module, "connect", fake.connect)
        try:
            schema = arrow_schema(PhalanxSource({"members": "h:1", "map": "m", "key": "key"}).schema())
        except UsageError:
            return
    keys, values = (
        [to_key_data(number) for number in range(len(contents))],
        [to_data({"x": content}) for content in contents],
    )
    found = {
        row["key"]: row["x"]
        for batch in decode_entries(keys, values, schema, options)
        for row in batch.to_pylist(maps_as_pydicts="strict")
    }
    for number, content in enumerate(contents):
        assert is_same(content, found[number], schema.field("x").type), (content, found[number], schema)
