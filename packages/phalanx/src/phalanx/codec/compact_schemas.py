"""Schemas of Compact objects, which clients of Hazelcast send before the first object: names and kinds of fields, and the id by which
objects name them. The schemas of a cluster are entries of a map (`SCHEMAS`)."""

from __future__ import annotations

from typing import Final, NamedTuple

from phalanx.codec.values import from_data, to_data
from phalanx.common.errors import CorruptDataError

SCHEMAS: Final = "phalanx.hazelcast.schemas"
"""The map of a cluster's schemas by their ids."""
MAX_SCHEMA_FIELDS: Final = 1_000
MAX_NAME_LENGTH: Final = 1_000
"""The most characters in the name of a type, and of a field."""
_EMPTY: Final = 0xC15D213AA4D7A795
"""The fingerprint of nothing, and the polynomial."""


class CompactSchema(NamedTuple):
    """What objects of one type have."""

    type_name: str
    fields: list[tuple[str, int]]
    """Names and kinds, in the order in which the client's fingerprint has them."""

    @property
    def id(self) -> int:
        """Return the id by which objects name the schema, a signed number of 64 bits."""
        data = _counted(self.type_name) + len(self.fields).to_bytes(4, "little")
        for name, kind in self.fields:
            data += _counted(name) + kind.to_bytes(4, "little")
        found = fingerprint(data)
        return found - (found >> 63 << 64)

    @property
    def stored(self) -> bytes:
        """Return the schema as the grid stores it."""
        return to_data([self.type_name, [[name, kind] for name, kind in self.fields]])


def _counted(text: str) -> bytes:
    encoded = text.encode()
    return len(encoded).to_bytes(4, "little") + encoded


def _table_entry(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (_EMPTY if byte & 1 else 0)
    return byte


_TABLE: Final = tuple(map(_table_entry, range(256)))


def fingerprint(data: bytes) -> int:
    """Return Rabin's fingerprint of 64 bits, as Avro defines it."""
    found = _EMPTY
    for byte in data:
        found = found >> 8 ^ _TABLE[(found ^ byte) & 0xFF]
    return found


def stored_schema(data: bytes | None) -> CompactSchema | None:
    """Return a stored schema; None: there is none, or somebody else has written it."""
    if data is None:
        return None
    try:
        type_name, described = from_data(data)
        fields = [(name, kind) for name, kind in described]
    except (CorruptDataError, TypeError, ValueError):
        return None
    names = [name for name, _ in fields]
    if len(fields) > MAX_SCHEMA_FIELDS or not all(map(_is_name, [type_name, *names])) or len({*names}) != len(names):
        return None
    if any(type(kind) is not int or not 0 <= kind < 2**31 for _, kind in fields):
        return None
    return CompactSchema(type_name, fields)


def _is_name(name: object) -> bool:
    return type(name) is str and len(name) <= MAX_NAME_LENGTH
