"""Read values of the other default types of Hazelcast's public serialisation, which its clients store: Python never writes them.

A value is its type id and its payload; in a list each item is one again. All numbers are big-endian. Where a type has more than
Python's, the rest is cut off: nanoseconds of dates. Compact objects (`compact`) are read only for callers that can find their schemas. The types that only an
application knows (Java, Portable, its own) and pickled objects are not read: what stores them gets them back as they are.
"""

from __future__ import annotations

import datetime as dt
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

from phalanx.codec.messagepack import UUID, Corruption, Json

MAX_DEPTH: Final = 64
"""Lists within lists."""
MAX_DECIMAL_BYTES: Final = 1024
"""Bytes of the digits of a decimal: to convert a longer one takes time by the square of its length."""
_INT: Final = struct.Struct(">i")
NULL_LENGTH: Final = -1

COMPACT_TYPE_ID: Final = -55
LIST_TYPE_IDS: Final = (-28, -29, -30)
"""Lists of values of any type, Compact objects included."""

UNREAD: Final = {
    -1: "Portable objects are read only by clients that know their class",
    -2: "objects of an application's own serialisation are read only by clients that know their class",
    COMPACT_TYPE_ID: "Compact objects are read only as values, by maps and by Spark: no key, function or condition sees their fields",
    -100: "serialised Java objects are read only by Java",
    -110: "serialised Java objects are read only by Java",
    -120: "it is a pickled Python object, and nothing is ever unpickled here: give the client another type, such as JSON",
}
"""Type ids that are known and never read, to why."""


class PublicReader:
    """Reads values out of bytes, one behind the other. Every method raises `Corruption` for bytes that are none."""

    __slots__ = ("_at", "_data", "_depth", "_read_compact")

    def __init__(
        self, data: bytes, at: int = 0, read_compact: Callable[[bytes, int], tuple[Any, int]] | None = None
    ) -> None:
        """`read_compact`: reads a Compact object behind its type id, and returns it and where it ends; None: Compact objects are not allowed here."""
        self._data, self._at, self._depth, self._read_compact = data, at, 0, read_compact

    @property
    def at(self) -> int:
        """Return how many bytes were read."""
        return self._at

    def take(self, size: int) -> bytes:
        """Return the next bytes."""
        at = self._at
        if size < 0 or at + size > len(self._data):
            raise Corruption(f"it ends within {size} bytes at byte {at}")
        self._at = at + size
        return self._data[at : self._at]

    def number(self, layout: struct.Struct) -> Any:
        """Return the next number of this layout."""
        return layout.unpack(self.take(layout.size))[0]

    def length(self) -> int:
        """Return the next whole number of 32 bits: a length, or a type id."""
        found: int = _INT.unpack(self.take(4))[0]
        return found

    def text(self) -> str:
        """Return the next text."""
        try:
            return self.take(self.length()).decode()
        except UnicodeDecodeError as error:
            raise Corruption(f"{error.reason} in UTF-8 before byte {self._at}") from None

    def value(self) -> Any:
        """Return the next value, which begins with its type id."""
        type_id = self.length()
        read = _READERS.get(type_id)
        if read is None:
            if type_id == COMPACT_TYPE_ID and self._read_compact is not None:
                found, self._at = self._read_compact(self._data, self._at)
                return found
            why = UNREAD.get(type_id, "its type id is unknown here")
            raise Corruption(f"the value inside of type id {type_id} cannot be read: {why}")
        return read(self)

    def value_data(self) -> bytes:
        """Return the bytes of the next value, which begins with its type id."""
        begins = self._at
        self.value()
        return self._data[begins : self._at]

    def list(self) -> Any:
        """Return the next list of values; None: it is null."""
        count = self._count(4)
        if count is None:
            return None
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise Corruption(f"lists are nested more than {MAX_DEPTH} deep")
        found = [self.value() for _ in range(count)]
        self._depth -= 1
        return found

    def array(self, code: str) -> Any:
        """Return the next array of numbers, by the code of `struct`; None: it is null."""
        count = self._count(struct.calcsize(f">{code}"))
        return (
            None
            if count is None
            else list(struct.unpack(f">{count}{code}", self.take(count * struct.calcsize(f">{code}"))))
        )

    def texts(self) -> Any:
        """Return the next array of texts; None: it is null."""
        count = self._count(4)
        return None if count is None else [self.text() for _ in range(count)]

    def _count(self, least: int) -> int | None:
        """Return the length of the next list, whose items have at least this many bytes."""
        count = self.length()
        if count == NULL_LENGTH:
            return None
        if not 0 <= count * least <= len(self._data) - self._at:
            raise Corruption(f"a list of {count} at byte {self._at - 4}, but {len(self._data) - self._at} bytes follow")
        return count


def read_bool(reader: PublicReader) -> bool:
    """Return the next bool."""
    byte = reader.take(1)[0]
    if byte > 1:
        raise Corruption(f"a bool is {byte}, not 0 or 1")
    return byte == 1


def _chars(reader: PublicReader) -> Any:
    units = reader.array("H")
    return None if units is None else _text_of(units)


def _text_of(units: list[int]) -> str:
    return struct.pack(f">{len(units)}H", *units).decode("utf-16-be", "surrogatepass")


def _whole(reader: PublicReader) -> int:
    return int.from_bytes(reader.take(reader.length()), "big", signed=True)


def read_decimal(reader: PublicReader) -> Decimal:
    """Return the next decimal."""
    size = reader.length()
    if size > MAX_DECIMAL_BYTES:
        raise Corruption(f"a decimal of {size} bytes: at most {MAX_DECIMAL_BYTES} are read")
    unscaled = int.from_bytes(reader.take(size), "big", signed=True)
    digits = tuple(map(int, str(abs(unscaled))))
    return Decimal((int(unscaled < 0), digits, -reader.length()))


def read_date(reader: PublicReader) -> dt.date:
    """Return the next date."""
    date: dt.date = _checked(dt.date, reader.length(), *reader.take(2))
    return date


def read_time(reader: PublicReader) -> dt.time:
    """Return the next time of day."""
    time: dt.time = _checked(dt.time, *reader.take(3), reader.length() // 1000)
    return time


def read_local(reader: PublicReader) -> dt.datetime:
    """Return the next date and time without a zone."""
    date, time = read_date(reader), read_time(reader)
    return dt.datetime.combine(date, time)


def read_with_offset(reader: PublicReader) -> dt.datetime:
    """Return the next date and time with an offset from UTC."""
    local, seconds = read_local(reader), reader.length()
    zone = _checked(lambda: dt.timezone(dt.timedelta(seconds=seconds)))
    return local.replace(tzinfo=zone)


def _checked(make: Callable[..., Any], *parts: int) -> Any:
    try:
        return make(*parts)
    except ValueError as error:
        raise Corruption(str(error)) from None


def _uuid(reader: PublicReader) -> UUID:
    return UUID(bytes=reader.take(16))


def _bytes(reader: PublicReader) -> Any:
    size = reader.length()
    return None if size == NULL_LENGTH else reader.take(size)


def _number(code: str) -> Callable[[PublicReader], Any]:
    layout = struct.Struct(f">{code}")
    return lambda reader: reader.number(layout)


def _array(code: str) -> Callable[[PublicReader], Any]:
    return lambda reader: reader.array(code)


_READERS: Final[dict[int, Callable[[PublicReader], Any]]] = {
    0: lambda reader: None,
    -3: _number("b"),
    -4: read_bool,
    -5: lambda reader: _text_of([reader.number(struct.Struct(">H"))]),
    -6: _number("h"),
    -7: _number("i"),
    -8: _number("q"),
    -9: _number("f"),
    -10: _number("d"),
    -11: PublicReader.text,
    -12: _bytes,
    -13: _array("?"),
    -14: _chars,
    -15: _array("h"),
    -16: _array("i"),
    -17: _array("q"),
    -18: _array("f"),
    -19: _array("d"),
    -20: PublicReader.texts,
    -21: _uuid,
    -24: PublicReader.text,
    -26: _whole,
    -27: read_decimal,
    -28: PublicReader.list,
    -29: PublicReader.list,
    -30: PublicReader.list,
    -51: read_date,
    -52: read_time,
    -53: read_local,
    -54: read_with_offset,
    -130: lambda reader: Json(reader.text()),
}
"""Type id to what reads the payload."""


def read_public(data: bytes, read_compact: Callable[[bytes, int], tuple[Any, int]] | None = None) -> Any:
    """Return a whole stored value of one of these types. `read_compact`: as `PublicReader` takes it. Raises `Corruption`."""
    reader = PublicReader(data, 0, read_compact)
    found = reader.value()
    if reader.at != len(data):
        raise Corruption(f"it ends at byte {reader.at}, but has {len(data)}")
    return found


MORE_TYPE_IDS: Final = (-3, -5, -6, -7, -9, *range(-20, -12), -24, -27, *LIST_TYPE_IDS, -51, -52, -53, -54)
"""The type ids that `codec.values` does not read itself."""
