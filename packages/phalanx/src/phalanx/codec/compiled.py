"""The compiled twins of functions on many keys or values: those of the package `phalanx-native`, where it is installed.

A function that has a twin calls it if there is one, and else does the same in Python. Both give the same result.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

INTERFACE = 7
"""What the twins must be like; a package with another number is not used."""


class StoreTwins(Protocol):
    """The functions that read the stores of a member's partitions."""

    def find_values(
        self,
        owned: list[Any],
        name: str,
        keys: Sequence[bytes],
        now: int,
        max_bytes: int,
        prefix_bytes: int,
        seed: int,
    ) -> list[bytes | None] | None:
        """Look up values: twin of `grid.serving.many_keys.find_values`."""


class CommandTwins(Protocol):
    """What changes the stores of a member's partitions: nothing but `grid.replication.leader` imports it."""

    def put_values(
        self, owned: list[Any], name: str, keys: Sequence[bytes], values: Sequence[bytes], prefix: bytes, seed: int
    ) -> bool:
        """Store values: twin of `Leader.commit_values`."""

    def carry_out(
        self,
        owned: list[Any],
        name: str,
        data: bytes,
        start: int,
        most: int,
        most_bytes: int,
        nil: bytes,
        now: int,
        stamp: int,
        may_write: bool,
        max_key: int,
        max_value: int,
        seed: int,
    ) -> tuple[int, bytes, int, int, int, int, int]:
        """Carry out commands of a Redis client one after another: twin of `Leader.commit_commands`."""


class Twins(Protocol):
    """The functions of the module; each has its meaning from the function that calls it."""

    def partitions_of(self, keys_data: Sequence[bytes], partition_count: int, seed: int) -> list[int]:
        """Compute the partition of each key: twin of `codec.hashing.partitions_of`."""

    def group_by_owner(
        self, keys: Sequence[bytes], values: Sequence[bytes], owner_of: Sequence[int], seed: int
    ) -> list[tuple[int, list[int], list[bytes], list[bytes]]]:
        """Group keys and values by owner: twin of `maps.grouping.group_by_owner`."""

    def put_at(self, to: list[Any], indexes: Sequence[int], items: Sequence[Any]) -> None:
        """Put items at places of a list: twin of `maps.grouping.put_at`."""

    def keys_to_data(self, keys: Sequence[object], other: Callable[[object], bytes]) -> list[bytes]:
        """Serialise keys: twin of `codec.values.keys_to_data`. `other` serialises a key that is not a text or a number, or raises."""

    def values_to_data(self, values: Sequence[object], other: Callable[[object], bytes]) -> list[bytes]:
        """Serialise values: twin of `codec.values.values_to_data`. `other` serialises a value of any other type, or raises."""

    def values_from_data(self, datas: Sequence[bytes], other: Callable[[bytes], object]) -> list[object]:
        """Deserialise values: twin of `codec.values.values_from_data`. `other` reads a value of any other type, or raises."""

    def entries_from_data(
        self, keys: Sequence[Any], datas: Sequence[bytes | None], other: Callable[[bytes], object]
    ) -> dict[Any, Any]:
        """Deserialise values and return them by key: twin of `codec.values.entries_from_data`. `other`: as in `values_from_data`."""

    def sizes_of(self, items: Iterable[bytes]) -> tuple[int, int, int, int]:
        """Return number, total, smallest and largest size of these items: the fields of `codec.rows.Extent`."""

    def sizes_in(self, sizes: bytes) -> tuple[int, int, int, int]:
        """Return the fields of `codec.rows.Extent` from the sizes in packed rows."""

    def without_prefixes(self, values: Sequence[bytes | None], prefix_bytes: int) -> list[bytes | None]:
        """Remove the prefix of each value: twin of `codec.rows.without_prefixes`."""

    def pack_rows(self, keys: Sequence[bytes], values: Sequence[bytes]) -> bytes:
        """Pack keys and values: twin of `codec.rows.pack_rows`."""

    def split_rows(self, data: bytes, sizes: int, begin: int, many: int, prefix: bytes) -> list[bytes]:
        """Unpack the keys, or the values, of packed rows: the loop of `codec.rows.unpack_rows`."""

    def greatest_head(self, data: bytes, head_bytes: int) -> bytes:
        """Return the greatest beginning of a value: twin of `codec.rows.greatest_head`."""

    def add_rows(self, entries: dict[bytes, bytes], data: bytes) -> tuple[int, int]:
        """Put packed rows into a dict: twin of `codec.rows.add_rows`."""

    def next_rows(
        self, entries: dict[bytes, bytes], left: list[bytes], most: int, max_bytes: int, overhead: int
    ) -> tuple[bytes, list[bytes], int, int]:
        """Pack the next entries to copy: twin of `grid.replication.copying.next_rows`. `overhead`: bytes of an entry beside key and value."""

    def page_of_entries(self, entries: dict[bytes, bytes], max_bytes: int) -> tuple[bytes, bytes, bytes, bytes] | None:
        """Pack all entries as one page, and return its fields: twin of `grid.serving.packing.page_of_entries`."""

    def whole_message(
        self, data: bytes, at: int, most: int, max_frames: int, begin: bytes, end: bytes, null: bytes
    ) -> tuple[list[bytes], int] | None:
        """Return the frames of the message of Hazelcast's protocol that begins at `at`, and where it ends.

        None: it has not arrived completely, or it is not a message. `begin`, `end`, `null`: the marks of frames without payload.
        """

    def present_frames(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> bytes:
        """Write the frames of entries that have a value: twin of `phalanx_protocols.hazelcast.data.present_frames`."""

    def Stores(self, owned: type, replica: type, store: type) -> StoreTwins:  # a class of the module
        """Make the twins that read objects of these classes: OwnedPartition, Replica and MapStore. They access the slots."""

    def Commands(self, owned: type, replica: type, store: type) -> CommandTwins:  # a class of the module
        """Make the twins that change objects of these classes."""

    def pack_by_partition(
        self,
        key_data: object,
        key_ends: object,
        value_data: object,
        value_ends: object,
        partition_count: int,
        seed: int,
    ) -> dict[int, bytes]:
        """Pack the rows of each partition: twin of `rows_by_partition` of Spark's columns. Takes arrays of bytes and of 64-bit numbers."""

    def match_literal(self, data: object, at: object, literal: bytes, fits: object) -> None:
        """Compare the bytes at each place with a literal, and set the flag of the row to 0 where they differ.

        Twin of `PageWalk.expect` of Spark's columns.
        """

    def read_integers(self, data: object, tags: object, at: object, values: object, fits: object) -> None:
        """Read integers into `values`, and into `fits` whether a long can hold each: twin of `integers_at` of Spark's columns."""

    def write_integers(self, head: bytes, values: object) -> tuple[bytes, bytes]:
        """Write integers as serialised values: twin of a function of Spark's columns. Return bytes and offsets of a binary array."""

    def join_pieces(self, columns: list[tuple[object, object]]) -> tuple[bytes, bytes]:
        """Concatenate the pieces of each row, given as bytes and offsets: twin of `join` of Spark's columns.

        Returns bytes and offsets of a binary array.
        """


def find_twins() -> Twins | None:
    """Return the module of the twins; None: it is not installed, not wanted (it cannot be imported with PHALANX_PURE
    set), or does not fit. Then everything works as well, only slower. Warns of a package that does not fit."""
    try:
        import phalanx_native
    except ImportError:
        return None
    if phalanx_native.INTERFACE != INTERFACE:
        warnings.warn(
            f"phalanx-native is not used: it has interface {phalanx_native.INTERFACE}, and this release of phalanx needs "
            f"{INTERFACE}; install the two of one release",
            stacklevel=2,
        )
        return None
    return phalanx_native


TWINS = find_twins()
