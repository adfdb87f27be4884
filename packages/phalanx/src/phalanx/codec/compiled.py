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
        """That of `grid.serving.many_keys`."""


class CommandTwins(Protocol):
    """What changes the stores of a member's partitions: nothing but `grid.replication.leader` imports it."""

    def put_values(
        self, owned: list[Any], name: str, keys: Sequence[bytes], values: Sequence[bytes], prefix: bytes, seed: int
    ) -> bool:
        """`commit_values`."""

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
        """`commit_commands`: the loop over commands of Redis clients."""


class Twins(Protocol):
    """The functions of the module; each has its meaning from the function that calls it."""

    def partitions_of(self, keys_data: Sequence[bytes], partition_count: int, seed: int) -> list[int]:
        """That of `codec.hashing`."""

    def group_by_owner(
        self, keys: Sequence[bytes], values: Sequence[bytes], owner_of: Sequence[int], seed: int
    ) -> list[tuple[int, list[int], list[bytes], list[bytes]]]:
        """That of `maps.grouping`."""

    def put_at(self, to: list[Any], indexes: Sequence[int], items: Sequence[Any]) -> None:
        """That of `maps.grouping`."""

    def keys_to_data(self, keys: Sequence[object], other: Callable[[object], bytes]) -> list[bytes]:
        """That of `codec.values`. `other` serialises a key that is neither text nor a number, or raises."""

    def values_to_data(self, values: Sequence[object], other: Callable[[object], bytes]) -> list[bytes]:
        """That of `codec.values`. `other` serialises a value of any other type, or raises."""

    def values_from_data(self, datas: Sequence[bytes], other: Callable[[bytes], object]) -> list[object]:
        """That of `codec.values`. `other` reads what is of any other type, or corrupt, or raises."""

    def entries_from_data(
        self, keys: Sequence[Any], datas: Sequence[bytes | None], other: Callable[[bytes], object]
    ) -> dict[Any, Any]:
        """That of `codec.values`. `other`: as in `values_from_data`."""

    def sizes_of(self, items: Iterable[bytes]) -> tuple[int, int, int, int]:
        """The fields of `codec.rows.Extent`."""

    def sizes_in(self, sizes: bytes) -> tuple[int, int, int, int]:
        """The fields of `codec.rows.Extent`, from sizes as they stand in packed rows."""

    def without_prefixes(self, values: Sequence[bytes | None], prefix_bytes: int) -> list[bytes | None]:
        """That of `codec.rows`."""

    def pack_rows(self, keys: Sequence[bytes], values: Sequence[bytes]) -> bytes:
        """That of `codec.rows`."""

    def split_rows(self, data: bytes, sizes: int, begin: int, many: int, prefix: bytes) -> list[bytes]:
        """The loop of `codec.rows.unpack_rows`, for keys or values."""

    def greatest_head(self, data: bytes, head_bytes: int) -> bytes:
        """That of `codec.rows`."""

    def add_rows(self, entries: dict[bytes, bytes], data: bytes) -> tuple[int, int]:
        """That of `codec.rows`."""

    def next_rows(
        self, entries: dict[bytes, bytes], left: list[bytes], most: int, max_bytes: int, overhead: int
    ) -> tuple[bytes, list[bytes], int, int]:
        """That of `grid.replication.copying`. `overhead`: bytes of each entry besides key and value."""

    def page_of_entries(self, entries: dict[bytes, bytes], max_bytes: int) -> tuple[bytes, bytes, bytes, bytes] | None:
        """That of `grid.serving.packing`, as the fields of its page."""

    def whole_message(
        self, data: bytes, at: int, most: int, max_frames: int, begin: bytes, end: bytes, null: bytes
    ) -> tuple[list[bytes], int] | None:
        """The frames of a message of Hazelcast's protocol that begins here, and where it ends; None: it has not arrived whole, or is
        none. `begin`, `end`, `null`: the marks of frames that have no payload."""

    def present_frames(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> bytes:
        """That of `phalanx_protocols.hazelcast.data`."""

    def Stores(self, owned: type, replica: type, store: type) -> StoreTwins:  # a class of the module
        """The twins for objects of these classes: OwnedPartition, Replica and MapStore. They read and write their slots."""

    def Commands(self, owned: type, replica: type, store: type) -> CommandTwins:  # a class of the module
        """The same for what changes them."""

    def pack_by_partition(
        self,
        key_data: object,
        key_ends: object,
        value_data: object,
        value_ends: object,
        partition_count: int,
        seed: int,
    ) -> dict[int, bytes]:
        """That of `phalanx_spark.columns.packing`, of arrays: octets, and numbers of 64 bits."""

    def match_literal(self, data: object, at: object, literal: bytes, fits: object) -> None:
        """That of `phalanx_spark.columns.pages.PageWalk.expect`: sets the flag of each row to 0 where the literal does not stand."""

    def read_integers(self, data: object, tags: object, at: object, values: object, fits: object) -> None:
        """That of `phalanx_spark.columns.scalars.integers_at`, into the last two arrays."""

    def write_integers(self, head: bytes, values: object) -> tuple[bytes, bytes]:
        """That of `phalanx_spark.columns.cells`: the bytes and offsets of a binary array."""

    def join_pieces(self, columns: list[tuple[object, object]]) -> tuple[bytes, bytes]:
        """That of `phalanx_spark.columns.cells.join`, of the octets and offsets of each piece: the bytes and offsets of a binary array."""


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
