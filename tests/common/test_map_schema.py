"""The schema of a map: as JSON, as SQL writes it, and what a write makes of it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.common.errors import UsageError
from phalanx.common.map_schema import (
    MAX_SCHEMA_LENGTH,
    BoolType,
    BytesType,
    Column,
    ColumnType,
    DateType,
    DecimalType,
    FloatType,
    IntType,
    ListType,
    MapSchema,
    MapType,
    NullType,
    StructType,
    TextType,
    TimestampType,
    make_schema,
    read_schema,
    widened,
)

TEXT, INT = TextType(), IntType(32)


def array(of: Column) -> Column:
    return Column("a", ListType(), (Column("element", of.type, of.children),))


def pairs(key: ColumnType, value: ColumnType) -> Column:
    entry = (Column("key", key, (), False), Column("value", value))
    return Column("a", MapType(), (Column("entries", StructType(), entry, False),))


def struct(*fields: Column) -> Column:
    return Column("a", StructType(), fields)


def schema(*columns: Column, key: str = "id") -> MapSchema:
    return make_schema((Column("id", TEXT), *columns), tuple(key.split(",")))


EVERY_TYPE = schema(
    Column("bo", BoolType()), Column("by", IntType(8)), Column("sh", IntType(16)), Column("i", INT), Column("l", IntType(64)),
    Column("f", FloatType("SINGLE")), Column("d", FloatType("DOUBLE")), Column("bi", BytesType()), Column("da", DateType()),
    Column("ts", TimestampType(timezone="UTC")), Column("tn", TimestampType()), Column("de", DecimalType(12, 2)),
    Column("no", NullType()), array(Column("x", INT)), Column("é`x", StructType(), (pairs(TEXT, INT),)), Column("st", StructType()),
)  # fmt: skip


def test_a_schema_comes_back_from_its_json_and_is_written_as_sql_writes_it() -> None:
    text = EVERY_TYPE.to_json()
    assert text.isascii()
    assert read_schema(text) == EVERY_TYPE
    assert EVERY_TYPE.key == ("id",)
    assert str(EVERY_TYPE) == (
        "id string, bo boolean, by tinyint, sh smallint, i int, l bigint, f float, d double, bi binary, da date, ts timestamp, "
        "tn timestamp_ntz, de decimal(12,2), no void, a array<int>, `é``x` struct<a:map<string,int>>, st struct<>"
    )


def test_it_is_the_json_of_arrow() -> None:
    """As the format's integration tests have it (docs/format/Integration): names and fields of each type."""
    (_, decimal) = json.loads(schema(Column("price", DecimalType(12, 2))).to_json())["fields"]
    assert decimal == {
        "name": "price",
        "nullable": True,
        "type": {"name": "decimal", "precision": 12, "scale": 2, "bitWidth": 128},
        "children": [],
    }


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "is not a schema of Arrow as JSON: Input data was truncated"),
        ("[]", "Expected `object`, got `array`"),
        ('{"fields":[{"name":"a","type":{"name":"int","bitWidth":7}}]}', "Invalid enum value 7"),
        ('{"fields":[{"name":"a","type":{"name":"union"}}]}', "union"),
        ('{"fields":[{"name":"a","type":{"name":"utf8"},"dictionary":{}}]}', "unknown field"),
        ('{"fields":[{"name":"a","type":{"name":"decimal","precision":39,"scale":2}}]}', "the precision is at most 38, and the scale at most the precision"),
        ('{"fields":[{"name":"a","type":{"name":"decimal","precision":3,"scale":4}}]}', "the precision is at most 38, and the scale at most the precision"),
        ('{"fields":[{"name":"a","type":{"name":"list"}}]}', "'a' has 0 inner types"),
        ('{"fields":[{"name":"a","type":{"name":"map"},"children":[{"name":"k","type":{"name":"utf8"}}]}]}', "key and value"),
        ('{"fields":[{"name":"a","type":{"name":"utf8"}},{"name":"a","type":{"name":"bool"}}]}', "'a' twice"),
        ('{"fields":[],"metadata":[{"key":"phalanx.key","value":"id"}]}', "no columns 'id', which it names as the key"),
        ('{"fields":' + '[{"name":"a","type":{"name":"list"},"children":' * 70 + "[]" + "}]" * 70 + "}", "types deep"),
        ('{"fields":' + '[{"name":"a","type":{"name":"list"},"children":' * 1200, "recursion"),
        ("x" * (MAX_SCHEMA_LENGTH + 1), "characters, and a map's has at most"),
    ],
)  # fmt: skip
def test_what_is_no_schema_is_refused_in_words(text: str, told: str) -> None:
    with pytest.raises(UsageError) as error:
        read_schema(text)
    assert told in str(error.value)
    assert len(str(error.value)) < 600


def test_a_schema_that_is_too_large_is_refused_with_what_can_be_done() -> None:
    with pytest.raises(
        UsageError, match=r"at most 65,536 characters as JSON, and this one of 1001 columns has .*: write fewer columns"
    ):
        schema(*(Column(f"column {n}", TEXT) for n in range(1000))).to_json()


@pytest.mark.parametrize(
    ("present", "written", "expected"),
    [
        (Column("a", IntType(8)), Column("a", IntType(16)), "smallint"),
        (Column("a", IntType(64)), Column("a", INT), "bigint"),
        (Column("a", FloatType("SINGLE")), Column("a", FloatType("DOUBLE")), "double"),
        (Column("a", DecimalType(3, 2)), Column("a", DecimalType(12, 2)), "decimal(12,2)"),
        (Column("a", DecimalType(10, 0)), Column("a", DecimalType(6, 4)), "decimal(14,4)"),
        (Column("a", NullType()), array(Column("x", INT)), "array<int>"),
        (array(Column("x", INT)), Column("a", NullType()), "array<int>"),
        (array(Column("x", INT)), array(Column("x", IntType(64))), "array<bigint>"),
        (pairs(TEXT, INT), pairs(TEXT, IntType(64)), "map<string,bigint>"),
        (struct(Column("x", INT)), struct(Column("y", TEXT), Column("x", IntType(64))), "struct<x:bigint,y:string>"),
    ],
)
def test_a_type_is_widened_to_one_that_holds_both(present: Column, written: Column, expected: str) -> None:
    found = widened(schema(present), schema(written), "m")
    assert str(found) == f"id string, a {expected}"
    assert widened(found, schema(written), "m") == found


def test_columns_are_added_behind_the_others_and_none_is_lost() -> None:
    found = widened(schema(Column("b", INT), Column("c", TEXT)), schema(Column("d", INT), Column("c", TEXT)), "m")
    assert str(found) == "id string, b int, c string, d int"


@pytest.mark.parametrize(
    ("present", "written", "told"),
    [
        (Column("a", TEXT), Column("a", INT), "column 'a' is string by the map's schema, and int in this write; cast it to string, or"),
        (Column("a", INT), Column("a", FloatType("DOUBLE")), "'a' is int by the map's schema, and double"),
        (Column("a", DecimalType(38, 0)), Column("a", DecimalType(3, 2)), "'a' is decimal(38,0) by the map's schema, and decimal(3,2)"),
        (Column("a", TimestampType()), Column("a", TimestampType(timezone="UTC")), "'a' is timestamp_ntz by"),
        (array(Column("x", INT)), array(Column("x", TEXT)), "column 'a.element' is int"),
        (pairs(TEXT, INT), pairs(TEXT, TEXT), "column 'a.value' is int"),
        (struct(Column("x", INT)), pairs(TEXT, INT), "column 'a' is struct<x:int> by the map's schema, and map<string,int>"),
        (struct(Column("x", INT)), struct(Column("x", TEXT)), "column 'a.x' is int"),
        (Column("Price", INT), Column("price", INT), "column 'price' is called Price by the map's schema, and called price in this write; rename it"),
    ],
)  # fmt: skip
def test_what_no_type_holds_is_refused_by_column(present: Column, written: Column, told: str) -> None:
    with pytest.raises(UsageError) as error:
        widened(schema(present), schema(written), "m")
    assert told in str(error.value)
    assert "write with mode 'overwrite'" in str(error.value)


def test_another_key_is_refused() -> None:
    with pytest.raises(
        UsageError, match=r"map 'm': its key is 'id' by its schema, and this write's is 'id, a': name the same"
    ):
        widened(schema(Column("a", INT)), schema(Column("a", INT), key="id,a"), "m")


NAMES = st.sampled_from(["a", "b", "c", "é"])
LEAVES: st.SearchStrategy[ColumnType] = st.one_of(
    st.sampled_from([TEXT, BoolType(), BytesType(), DateType(), NullType(), TimestampType(), TimestampType(timezone="UTC")]),
    st.builds(IntType, st.sampled_from([8, 16, 32, 64])),
    st.builds(FloatType, st.sampled_from(["SINGLE", "DOUBLE"])),
    st.integers(1, 38).flatmap(lambda digits: st.builds(DecimalType, st.just(digits), st.integers(0, digits))),
)  # fmt: skip
PARTS = st.recursive(
    LEAVES.map(lambda kind: Column("x", kind)),
    lambda parts: st.one_of(
        parts.map(array),
        st.builds(lambda key, value: pairs_of(key, value), LEAVES, parts),
        st.dictionaries(NAMES, parts, max_size=3).map(
            lambda fields: struct(*(named(name, part) for name, part in fields.items()))
        ),
    ),
    max_leaves=8,
)
SCHEMAS = st.dictionaries(NAMES, PARTS, max_size=4).map(
    lambda fields: schema(*(named(name, part) for name, part in fields.items()))
)


def named(name: str, part: Column) -> Column:
    return Column(name, part.type, part.children)


def pairs_of(key: ColumnType, value: Column) -> Column:
    (entry,) = pairs(key, TEXT).children
    made = (entry.children[0], Column("value", value.type, value.children))
    return Column("a", MapType(), (Column("entries", StructType(), made, False),))


def holds(wide: Column, narrow: Column) -> bool:
    """Whether a column reads each value of another: judged by types alone, apart from the code that widens."""
    match wide.type, narrow.type:
        case (_, NullType()):
            return True
        case (IntType(one), IntType(other)):
            return one >= other
        case (FloatType(one), FloatType(other)):
            return one in ("DOUBLE", other)
        case (DecimalType() as one, DecimalType() as other):
            return one.scale >= other.scale and one.precision - one.scale >= other.precision - other.scale
        case (StructType(), StructType()):
            fields = {child.name: child for child in wide.children}
            return all(child.name in fields and holds(fields[child.name], child) for child in narrow.children)
        case (one, other):
            return one == other and all(map(holds, wide.children, narrow.children))


@given(SCHEMAS, SCHEMAS)
def test_what_is_widened_holds_both_and_stays_as_it_is(one: MapSchema, other: MapSchema) -> None:
    assert read_schema(one.to_json()) == one
    try:
        found = widened(one, other, "m")
    except UsageError:
        return  # no type holds both
    assert read_schema(found.to_json()) == found
    for each in (one, other):
        assert holds(struct(*found.fields), struct(*each.fields))
        assert widened(found, each, "m") == found
