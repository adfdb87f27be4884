"""Compact objects, which clients of Hazelcast store: read as dicts of their fields, and never written.

An object says only the id of its schema. The id is a fingerprint of the schema's content, so one registry serves a whole process,
whatever clusters it uses. A caller that finds an object of another schema gets `UnknownSchema`, fetches the schema, registers it, and reads
the bytes again (`maps.compact_schemas`). What a member decides must not depend on what its process has learned: so `from_data` of
`codec.values` reads no Compact object, and only callers use `from_any_data`.

The bytes of an object, behind the type id (all numbers big-endian):

    schema id   8 bytes
    length      4 bytes, of the data; only if the schema has a field of variable size
    data        first the fields of fixed size: numbers, the longest first, then bools, as bits from the least one on; behind them,
                in any order, the values of fields of variable size
    positions   where in the data each of these values begins, in the schema's order; all bits set: null. A position is a number of
                one byte if the data is shorter than 255 bytes, of two if shorter than 65535, else of four

An array of items of variable size has the same end: length, count, items, positions. No byte belongs to two values: so reading stops
when it has taken more bytes than the object has, however often positions lead to the same place.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

from phalanx.codec.compact_schemas import CompactSchema
from phalanx.codec.messagepack import Corruption
from phalanx.codec.public_types import (
    COMPACT_TYPE_ID,
    LIST_TYPE_IDS,
    MAX_DEPTH,
    PublicReader,
    read_bool,
    read_date,
    read_decimal,
    read_local,
    read_public,
    read_time,
    read_with_offset,
)
from phalanx.codec.values import READERS, prefix_of, reader_of, to_data
from phalanx.common.errors import CorruptDataError, SerializationError, UnknownSchema

MAX_KNOWN_FIELDS: Final = 200_000
"""The most fields of all schemas that a process knows."""

MAX_BYTES: Final = 2**31 - 1
"""No object is longer: its lengths are signed numbers of 32 bits."""

COMPACT_PREFIX: Final = prefix_of(COMPACT_TYPE_ID)
_LONG: Final = struct.Struct(">q")


class _Registry:
    """What a process knows of schemas. Threads share it: each step is one of a dict, and the count need only be about right."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._layouts: dict[int, _Layout] = {}
        """How objects are read, by the ids of their schemas."""
        self._size = 0
        self.find = self._layouts.get
        """Return how objects of a schema are read; None: it is not known."""

    def add(self, schema_id: int, layout: _Layout) -> None:
        """Add a schema; when there are too many, forget all others."""
        if schema_id in self._layouts:
            return
        if self._size + layout.size > self._most:
            self._layouts.clear()
            self._size = 0
        self._layouts[schema_id] = layout
        self._size += layout.size


_KNOWN: Final = _Registry(MAX_KNOWN_FIELDS)


def register(schema: CompactSchema) -> None:
    """Let this process read objects of a schema. Raises `CorruptDataError` if it has a field of a kind that no object has."""
    try:
        layout = _Layout(schema)
    except Corruption as error:
        raise CorruptDataError(str(error)) from None
    _KNOWN.add(schema.id, layout)


# --- objects --------------------------------------------------------------------------------------------------------


class CompactRecord(dict[str, Any]):
    """A Compact object as a dict of its fields. It is for reading: what stores it stores a dict, and no Compact object."""

    __slots__ = ("type_name",)
    type_name: str
    """The name of the object's type, as its client calls it."""


def _read_value(data: bytes) -> Any:
    return read_public(data, _read_object)


def _read_object(data: bytes, at: int) -> tuple[CompactRecord, int]:
    """Return the object whose schema's id begins here, and where it ends."""
    return _Objects(data, at).whole()


class RowsOfObjects:
    """Makes rows of the Compact objects of one scan, so that conditions can look into them. A schema that is not to be had is looked
    for once: many objects can have it."""

    def __init__(self, most_bytes: int = MAX_BYTES) -> None:
        """`most_bytes`: no longer object is read."""
        self._most_bytes = most_bytes
        self._lost: set[int] = set()
        """The ids of such schemas. What an object lacks says nothing of others of its type: they can hold no object of that schema."""

    def known_row(self, data: bytes) -> bytes:
        """Return the data of a dict of an object's fields. Other data, and what cannot be read, is returned as it is. Raises
        `UnknownSchema` for a schema that can be fetched."""
        if data[:4] != COMPACT_PREFIX or len(data) > self._most_bytes:
            return data
        try:
            return to_data(from_any_data(data))
        except UnknownSchema as error:
            if error.schema_id not in self._lost:
                raise
        except (CorruptDataError, SerializationError):  # of the latter: objects in more depth than a dict can have
            pass
        return data

    def row(self, data: bytes, read: Callable[[bytes], Any]) -> bytes:
        """Return what `known_row` does. `read`: deserialises an object of a schema that can be fetched, and fetches it if necessary."""
        try:
            return self.known_row(data)
        except UnknownSchema:
            pass
        try:
            return to_data(read(data))
        except UnknownSchema as error:
            self._lost.add(error.schema_id)
        except (CorruptDataError, SerializationError):
            pass
        return data


class _Objects(PublicReader):
    """Reads one Compact object, and those inside it."""

    __slots__ = ("_end", "_left")

    def __init__(self, data: bytes, at: int) -> None:
        super().__init__(data, at)
        self._end = len(data)
        """Where the data ends to which the present value belongs."""
        self._left = 12
        """How many bytes can still be taken: at first the id and the length, then what the object has."""

    def whole(self) -> tuple[CompactRecord, int]:
        """Return the object, and where it ends."""
        layout, data_at, data_end = self._head()
        end = data_end + layout.position_bytes(data_end - data_at)
        self._left, self._end = end - data_at, end
        try:
            return self._fields(layout, data_at, data_end), end
        except (Corruption, RecursionError) as error:
            raise Corruption(f"the Compact object of type {layout.type_name[:100]!r}: {error}") from None

    def take(self, size: int) -> bytes:
        at = self._at
        if size < 0 or at + size > self._end:
            raise Corruption(f"it ends within {size} bytes at byte {at}")
        self._left -= size
        if self._left < 0:
            raise Corruption("two of its values have the same bytes")
        self._at = at + size
        return self._data[at : self._at]

    def inner(self) -> CompactRecord:
        """Return the next object inside another one."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise Corruption(f"objects are nested more than {MAX_DEPTH} deep")
        layout, data_at, data_end = self._head()
        found = self._fields(layout, data_at, data_end)
        self._depth -= 1
        return found

    def items(self, read: Callable[[Any], Any]) -> list[Any]:
        """Return the next array of items of variable size, each read by this function, or null."""
        length, count, begins = self.length(), self.length(), self._at
        places, null = self._positions(begins, length, count)
        outer, self._end = self._end, begins + length
        found = []
        for place in places:
            self._at = begins + place
            found.append(None if place == null else read(self))
        self._end = outer
        return found

    def bits(self) -> list[bool]:
        """Return the next array of bools."""
        count = self.length()
        if count < 0:
            raise Corruption(f"an array of {count} bools at byte {self._at - 4}")
        return _bools(self.take((count + 7) // 8), count)

    def octets(self) -> bytes:
        """Return the next array of bytes."""
        return self.take(self.length())

    def _head(self) -> tuple[_Layout, int, int]:
        """Read the schema's id, and the data's length. Return the layout, and where the data begins and ends."""
        schema_id: int = self.number(_LONG)
        layout = _KNOWN.find(schema_id)
        if layout is None:
            raise UnknownSchema(
                schema_id,
                f"a Compact object has the schema {schema_id}, which this process does not know: read it through a map of its cluster",
            )
        length = self.length() if layout.variable else layout.fixed.size
        data_at = self._at
        end = data_at + length + layout.position_bytes(length)
        if length < layout.fixed.size or end > self._end:
            raise Corruption(
                f"{length} bytes of data at byte {data_at}, which {layout.fixed.size} bytes at least, and what belongs to them, must fit in"
            )
        return layout, data_at, data_at + length

    def _fields(self, layout: _Layout, data_at: int, data_end: int) -> CompactRecord:
        fixed = layout.fixed_values(self.take(layout.fixed.size))
        places, null = self._positions(data_at, data_end - data_at, layout.variable)
        outer, self._end = self._end, data_end
        found = CompactRecord()
        found.type_name = layout.type_name
        for name, place, read in layout.fields:
            if read is None:
                found[name] = fixed[place]
            elif (at := places[place]) == null:
                found[name] = None
            else:
                self._at = data_at + at
                found[name] = read(self)
        self._end = outer
        return found

    def _positions(self, begins: int, length: int, count: int) -> tuple[Sequence[int], int]:
        """Return where in data that begins here, and has this length, this many values begin; and what stands for null."""
        width = _width(length)
        if length < 0 or count < 0 or begins + length + count * width > self._end:
            raise Corruption(
                f"{count} values in {length} bytes at byte {begins}, but {self._end - begins} bytes follow"
            )
        self._at = begins + length
        places = self.take(count * width)
        return places if width == 1 else struct.unpack(f">{count}{_CODES[width]}", places), _NULLS[width]


def _width(length: int) -> int:
    """Return how many bytes a position within this many bytes has."""
    return 1 if length < 255 else 2 if length < 65_535 else 4


_CODES: Final = {2: "H", 4: "I"}
_NULLS: Final = {width: 256**width - 1 for width in (1, 2, 4)}
_BITS: Final = tuple([bool(byte >> place & 1) for place in range(8)] for byte in range(256))


def _bools(data: bytes, count: int) -> list[bool]:
    found: list[bool] = []
    for byte in data:
        found += _BITS[byte]
    return found[:count]


# --- kinds of fields ------------------------------------------------------------------------------------------------


def _number(code: str) -> Callable[[_Objects], Any]:
    layout = struct.Struct(f">{code}")
    return lambda objects: objects.number(layout)


def _array(code: str) -> Callable[[_Objects], Any]:
    return lambda objects: objects.array(code)


def _many(read: Callable[[Any], Any]) -> Callable[[_Objects], Any]:
    return lambda objects: objects.items(read)


_BOOL: Final = 1
_FIXED: Final = {3: "b", 7: "h", 9: "i", 11: "q", 13: "f", 15: "d"}
"""The kinds of fields of fixed size, besides bools, to their codes of `struct`."""
_ITEMS: Final[dict[int, Callable[[Any], Any]]] = {
    17: _Objects.text,
    19: read_decimal,
    21: read_time,
    23: read_date,
    25: read_local,
    27: read_with_offset,
    29: _Objects.inner,
    33: read_bool,
    **{kind: _number(code) for kind, code in zip(range(35, 46, 2), _FIXED.values(), strict=True)},
}
"""The kinds of fields of variable size, and without an array, to what reads them. An array of such items is of the next kind."""
_VARIABLE: Final[dict[int, Callable[[Any], Any]]] = {
    **_ITEMS,
    **{kind + 1: _many(read) for kind, read in _ITEMS.items()},
    **{kind + 1: _array(code) for kind, code in _FIXED.items()},
    2: _Objects.bits,
    4: _Objects.octets,
}
"""The kinds of fields of variable size to what reads them. An array of bytes is bytes, as it is elsewhere."""


class _Layout:
    """How objects of one schema are read."""

    __slots__ = ("_bools", "fields", "fixed", "size", "type_name", "variable")

    def __init__(self, schema: CompactSchema) -> None:
        """Read the layout from a schema. Raises `Corruption` for a kind of field that no object has."""
        self.type_name = schema.type_name
        for name, kind in schema.fields:
            if kind != _BOOL and kind not in _FIXED and kind not in _VARIABLE:
                raise Corruption(
                    f"the schema {schema.type_name[:100]!r} has the field {name[:100]!r} of kind {kind}, which no Compact object has"
                )
        numbers = [(name, _FIXED[kind]) for name, kind in schema.fields if kind in _FIXED]
        numbers.sort(key=lambda each: struct.calcsize(each[1]), reverse=True)
        bools = [name for name, kind in schema.fields if kind == _BOOL]
        variable = [name for name, kind in schema.fields if kind in _VARIABLE]
        self.variable = len(variable)
        """How many fields have variable size."""
        self._bools = len(bools)
        codes = "".join(code for _, code in numbers)
        self.fixed = struct.Struct(f">{codes}{(len(bools) + 7) // 8}s")
        """The numbers, and bytes whose bits are the bools."""
        fixed = [*(name for name, _ in numbers), *bools]
        places = {name: place for names in (fixed, variable) for place, name in enumerate(names)}
        self.fields = [(name, places[name], _VARIABLE.get(kind)) for name, kind in schema.fields]
        """For each field its name, its place among those of its sort, and what reads it; None: it has fixed size."""
        self.size = len(self.fields) + 1
        """What it counts among all that is known."""

    def fixed_values(self, data: bytes) -> list[Any]:
        """Return the values of the fields of fixed size."""
        *numbers, bits = self.fixed.unpack(data)
        return numbers + _bools(bits, self._bools) if bits else numbers

    def position_bytes(self, length: int) -> int:
        """Return how many bytes the positions have behind this many bytes of data."""
        return self.variable * _width(length)


COMPACT_READERS: Final[dict[bytes, Callable[[bytes], Any]]] = {
    prefix_of(type_id): _read_value for type_id in (COMPACT_TYPE_ID, *LIST_TYPE_IDS)
}
"""What reads values that are, or can hold, Compact objects, by type id as it is stored."""
from_any_data: Final = reader_of({**READERS, **COMPACT_READERS})
"""Deserialise a value as `from_data`, Compact objects too. Raises `CorruptDataError`; `UnknownSchema` if a schema is not known."""
