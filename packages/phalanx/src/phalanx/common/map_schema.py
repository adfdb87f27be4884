"""The schema of a map: which columns its rows have, and of which types. A setting of the map, which programs that write tables store.

It travels, and is kept in archives, as the JSON that Arrow defines for a schema, so that other programs read it. The columns that
are the map's key are named in its metadata. Columns are nullable: programs that know no schema write into the map, too.

How a schema is widened by a write (`widened`), so that what was stored before and what is stored now are both read by it:

* a column that it lacks is added, behind the others; one that the write lacks stays;
* of whole numbers the wider type stays, of `float` and `double` `double`, of decimals one with all digits of both;
* structs are widened field by field, lists and maps in what they hold;
* all else is refused, by column: other columns as the key, and names that differ in case only, which SQL takes for one.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from phalanx.common.errors import UsageError
from phalanx.common.words import quoted, shown

MAX_SCHEMA_LENGTH = 65_536
"""The most characters of one schema as JSON, which are ASCII."""
MAX_SCHEMA_DEPTH = 64
"""How deep types stand within each other."""
MAX_DIGITS = 38
"""Of a decimal."""
KEY_COLUMNS = "phalanx.key"
"""The name in the metadata behind which the columns of the key stand, with a comma between two."""


class _Type(msgspec.Struct, frozen=True, tag_field="name", rename="camel", forbid_unknown_fields=True):
    """A type of a column, as Arrow names it."""


class NullType(_Type, tag="null", frozen=True):
    """Of a column that has no value."""


class BoolType(_Type, tag="bool", frozen=True):
    """True or false."""


class IntType(_Type, tag="int", frozen=True):
    """Whole numbers with a sign."""

    bit_width: Literal[8, 16, 32, 64]
    is_signed: Literal[True] = True


class FloatType(_Type, tag="floatingpoint", frozen=True):
    """Floating-point numbers."""

    precision: Literal["SINGLE", "DOUBLE"]


class DecimalType(_Type, tag="decimal", frozen=True):
    """Decimals with this many digits, `scale` of them behind the point."""

    precision: int
    scale: int
    bit_width: Literal[128] = 128

    def __post_init__(self) -> None:
        if not 0 < self.precision <= MAX_DIGITS or not 0 <= self.scale <= self.precision:
            raise ValueError(
                f"decimal({self.precision},{self.scale}): the precision is at most {MAX_DIGITS}, and the scale at most the precision"
            )


class TextType(_Type, tag="utf8", frozen=True):
    """Text."""


class BytesType(_Type, tag="binary", frozen=True):
    """Bytes."""


class DateType(_Type, tag="date", frozen=True):
    """Days."""

    unit: Literal["DAY"] = "DAY"


class TimestampType(_Type, tag="timestamp", frozen=True):
    """Moments, with a zone; without one, what a clock on the wall shows."""

    unit: Literal["MICROSECOND"] = "MICROSECOND"
    timezone: Literal["UTC"] | None = None


class ListType(_Type, tag="list", frozen=True):
    """Lists of the one child."""


class MapType(_Type, tag="map", frozen=True):
    """Maps: the one child is a struct of key and value."""

    keys_sorted: Literal[False] = False


class StructType(_Type, tag="struct", frozen=True):
    """The children, by their names."""


ColumnType = (
    NullType | BoolType | IntType | FloatType | DecimalType | TextType | BytesType | DateType | TimestampType
    | ListType | MapType | StructType
)  # fmt: skip
_CHILDREN: dict[type[_Type], int] = {ListType: 1, MapType: 1}
"""How many children a type has; all others but structs have none."""


class Column(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A column, or a part of one."""

    name: str
    type: ColumnType
    children: tuple[Column, ...] = ()
    nullable: bool = True


class Note(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A name and what stands behind it in the metadata."""

    key: str
    value: str


class MapSchema(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The columns of a map's rows, those of its key included."""

    fields: tuple[Column, ...]
    metadata: tuple[Note, ...] = ()

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that are the key, in its order; empty: it is not said."""
        found = next((note.value for note in self.metadata if note.key == KEY_COLUMNS), "")
        return tuple(found.split(",")) if found else ()

    def to_json(self) -> str:
        """Return it as a setting of a map. Raises `UsageError` if it is too large."""
        text = msgspec.json.encode(self).decode()
        text = text if text.isascii() else _as_ascii(text)
        if len(text) > MAX_SCHEMA_LENGTH:
            raise UsageError(
                f"the schema of a map has at most {MAX_SCHEMA_LENGTH:,} characters as JSON, and this one of {len(self.fields)} columns has "
                f"{len(text):,}: write fewer columns, or put some of them together in a map or an array"
            )
        return text

    def __str__(self) -> str:
        """Return the columns as SQL writes them: `carrier string, price decimal(12,2)`."""
        return ", ".join(f"{name_in_sql(column.name)} {type_in_sql(column)}" for column in self.fields)


def make_schema(fields: tuple[Column, ...], key: tuple[str, ...]) -> MapSchema:
    """Return the schema of these columns, of which some are the key."""
    return MapSchema(fields, (Note(KEY_COLUMNS, ",".join(key)),))


def read_schema(text: str) -> MapSchema:
    """Return the schema that stands in a map's setting. Raises `UsageError` for text that is none."""
    if len(text) > MAX_SCHEMA_LENGTH:
        raise UsageError(f"schema: {len(text):,} characters, and a map's has at most {MAX_SCHEMA_LENGTH:,}")
    try:
        found = msgspec.json.decode(text, type=MapSchema)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise UsageError(
            f"schema: {quoted(text, 80)} is not a schema of Arrow as JSON: {shown(str(error), 200)}"
        ) from None
    _check_columns(found.fields, "", MAX_SCHEMA_DEPTH)
    if len(set(found.key)) < len(found.key) or not {column.name for column in found.fields}.issuperset(found.key):
        raise UsageError(f"schema: it has no columns {quoted(', '.join(found.key))}, which it names as the key")
    return found


def _check_columns(columns: tuple[Column, ...], where: str, depth: int) -> None:
    names = [column.name for column in columns]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise UsageError(f"schema: it has {quoted(where + twice)} twice")
    for column in columns:
        path = where + column.name
        if not depth:
            raise UsageError(f"schema: {quoted(path)} is more than {MAX_SCHEMA_DEPTH} types deep")
        kind, count = type(column.type), len(column.children)
        if kind is not StructType and count != _CHILDREN.get(kind, 0):
            raise UsageError(
                f"schema: {quoted(path)} has {count} inner types, and {kind.__name__} has another number of them"
            )
        if kind is MapType and not (
            isinstance(column.children[0].type, StructType) and len(column.children[0].children) == 2
        ):
            raise UsageError(f"schema: {quoted(path)} is a map without key and value")
        _check_columns(column.children, f"{path}.", depth - 1)


def widened(present: MapSchema, written: MapSchema, name: str) -> MapSchema:
    """Return the schema by which rows of both are read. Raises `UsageError` that names the column and both types, of the map `name`."""
    if present.key != written.key:
        raise UsageError(
            f"map {quoted(name)}: its key is {quoted(', '.join(present.key))} by its schema, and this write's is "
            f"{quoted(', '.join(written.key))}: name the same columns as the key, or write with mode 'overwrite'"
        )
    try:
        fields = _widened_columns(present.fields, written.fields, "")
    except _Unlike as unlike:
        path, there, here = unlike.args
        what = "rename it" if there.startswith("called ") else f"cast it to {there}"
        raise UsageError(
            f"map {quoted(name)}: column {quoted(path)} is {there} by the map's schema, and {here} in this write; {what}, or write with "
            f"mode 'overwrite', which replaces rows and schema"
        ) from None
    return MapSchema(fields, present.metadata)


class _Unlike(Exception):
    """Two types of one column of which none holds both: where, and which."""


def _widened_columns(present: tuple[Column, ...], written: tuple[Column, ...], where: str) -> tuple[Column, ...]:
    others = {column.name: column for column in written}
    fields = [
        _widened_column(column, others.pop(column.name), where) if column.name in others else column
        for column in present
    ]
    folded = {column.name.casefold(): column.name for column in present}
    for name in others:
        if (there := folded.get(name.casefold())) is not None:
            raise _Unlike(where + name, f"called {there}", f"called {name}")
    return (*fields, *others.values())


def _widened_column(one: Column, other: Column, where: str) -> Column:
    path = where + one.name
    match one.type, other.type:
        case (first, second) if first == second:
            if not one.children:
                return other if other.children else one
            if isinstance(first, StructType):
                return msgspec.structs.replace(one, children=_widened_columns(one.children, other.children, f"{path}."))
            # What the parts of lists and maps are called is nobody's choice: they are compared by their place.
            pairs = zip(parts_of(one), parts_of(other), strict=True)
            parts = tuple(
                _widened_column(part, msgspec.structs.replace(its, name=part.name), f"{path}.") for part, its in pairs
            )
            return _with_parts(one, parts)
        case (NullType(), _):
            return msgspec.structs.replace(other, name=one.name)
        case (_, NullType()):
            return one
        case (IntType(first), IntType(second)):
            return msgspec.structs.replace(one, type=IntType(max(first, second)))
        case (FloatType(), FloatType()):
            return msgspec.structs.replace(one, type=FloatType("DOUBLE"))
        case (DecimalType() as first, DecimalType() as second):
            scale = max(first.scale, second.scale)
            precision = max(first.precision - first.scale, second.precision - second.scale) + scale
            if precision <= MAX_DIGITS:
                return msgspec.structs.replace(one, type=DecimalType(precision, scale))
        case _:
            pass
    raise _Unlike(path, type_in_sql(one), type_in_sql(other))


def parts_of(column: Column) -> tuple[Column, ...]:
    """Return what a list holds, or a struct; of a map, keys and values."""
    return column.children[0].children if isinstance(column.type, MapType) else column.children


def _with_parts(column: Column, parts: tuple[Column, ...]) -> Column:
    if isinstance(column.type, MapType):
        parts = (msgspec.structs.replace(column.children[0], children=parts),)
    return msgspec.structs.replace(column, children=parts)


def type_in_sql(column: Column) -> str:
    """Return a column's type as Spark's SQL writes it: `decimal(12,2)`, `map<string,int>`."""
    match column.type:
        case IntType(bits):
            return {8: "tinyint", 16: "smallint", 32: "int", 64: "bigint"}[bits]
        case FloatType(precision):
            return "float" if precision == "SINGLE" else "double"
        case DecimalType(precision, scale):
            return f"decimal({precision},{scale})"
        case TimestampType(timezone=zone):
            return "timestamp" if zone else "timestamp_ntz"
        case ListType():
            return f"array<{type_in_sql(column.children[0])}>"
        case MapType():
            return f"map<{','.join(map(type_in_sql, parts_of(column)))}>"
        case StructType():
            return f"struct<{','.join(f'{name_in_sql(each.name)}:{type_in_sql(each)}' for each in column.children)}>"
        case _:
            return _IN_SQL[type(column.type)]


_IN_SQL: dict[type[_Type], str] = {
    NullType: "void", BoolType: "boolean", TextType: "string", BytesType: "binary", DateType: "date",
}  # fmt: skip


def name_in_sql(name: str) -> str:
    """Return a name as SQL writes it: in backquotes, if it is not a plain word."""
    if name.isascii() and name.replace("_", "a").isalnum() and not name[:1].isdigit():
        return name
    return f"`{name.replace('`', '``')}`"


def _as_ascii(text: str) -> str:
    """Return JSON in which all characters beyond ASCII are escapes: so its length is its size."""
    units = text.encode("utf-16-be")
    codes = (int.from_bytes(units[at : at + 2]) for at in range(0, len(units), 2))
    return "".join(chr(code) if code < 128 else f"\\u{code:04x}" for code in codes)
