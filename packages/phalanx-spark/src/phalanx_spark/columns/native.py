"""The native functions of Spark's columns (`phalanx.codec.native`). They take arrays of bytes and of 64-bit numbers."""

from __future__ import annotations

from typing import Protocol

from phalanx.codec.native import find_native


class NativeColumns(Protocol):
    """The native functions that read and write columns."""

    def pack_by_partition(
        self,
        key_data: object,
        key_ends: object,
        value_data: object,
        value_ends: object,
        partition_count: int,
        seed: int,
    ) -> dict[int, bytes]:
        """Pack the rows of each partition: native version of `packing.rows_by_partition`."""

    def match_literal(self, data: object, at: object, literal: bytes, fits: object) -> None:
        """Compare the bytes at each place with a literal, and set the flag of the row to 0 where they differ.

        Native version of `pages.PageWalk.expect`.
        """

    def read_integers(self, data: object, tags: object, at: object, values: object, fits: object) -> None:
        """Read integers into `values`, and into `fits` whether a long can hold each: native version of `scalars.integers_at`."""

    def write_integers(self, head: bytes, values: object) -> tuple[bytes, bytes]:
        """Write integers as serialised values: native version of a function of `cells`. Return bytes and offsets of a binary array."""

    def join_pieces(self, columns: list[tuple[object, object]]) -> tuple[bytes, bytes]:
        """Concatenate the pieces of each row, given as bytes and offsets: native version of `cells.join`.

        Returns bytes and offsets of a binary array.
        """


NATIVE: NativeColumns | None = find_native()
