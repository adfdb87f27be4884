"""The native functions: compiled versions of functions on many keys or values, from the package `phalanx-native`.

A function that has a native version calls it if the package is installed, and else does the same in Python. Both give the same result.
What other packages call of it is declared there: `grid.replica.native`, `maps.grouping`, and those of Spark and Hazelcast.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

INTERFACE = 10
"""The number of what `phalanx-native` contains; a package with another number is not used."""


class NativeCodec(Protocol):
    """The native functions of this package."""

    def partition_of(self, key_data: bytes, partition_count: int) -> int:
        """Compute the partition of a key: native version of `codec.hashing.partition_in_python`, with its seed."""

    def partitions_of(self, keys_data: Sequence[bytes], partition_count: int, seed: int) -> list[int]:
        """Compute the partition of each key: native version of `codec.hashing.partitions_of`."""

    def keys_to_data(self, keys: Sequence[object], other: Callable[[object], bytes]) -> list[bytes]:
        """Serialise keys: native version of `codec.values.keys_to_data`. `other` serialises a key that is not a text or a number, or raises."""

    def values_to_data(self, values: Sequence[object], other: Callable[[object], bytes]) -> list[bytes]:
        """Serialise values: native version of `codec.values.values_to_data`. `other` serialises a value of any other type, or raises."""

    def values_from_data(self, datas: Sequence[bytes], other: Callable[[bytes], object]) -> list[object]:
        """Deserialise values: native version of `codec.values.values_from_data`. `other` reads a value of any other type, or raises."""

    def entries_from_data(
        self, keys: Sequence[Any], datas: Sequence[bytes | None], other: Callable[[bytes], object]
    ) -> dict[Any, Any]:
        """Deserialise values and return them by key: native version of `codec.values.entries_from_data`. `other`: as in `values_from_data`."""

    def sizes_of(self, items: Iterable[bytes]) -> tuple[int, int, int, int]:
        """Return number, total, smallest and largest size of these items: the fields of `codec.rows.Extent`."""

    def sizes_in(self, sizes: bytes) -> tuple[int, int, int, int]:
        """Return the fields of `codec.rows.Extent` from the sizes in packed rows."""

    def without_prefixes(self, values: Sequence[bytes | None], prefix_bytes: int) -> list[bytes | None]:
        """Remove the prefix of each value: native version of `codec.rows.without_prefixes`."""

    def pack_rows(self, keys: Sequence[bytes], values: Sequence[bytes]) -> bytes:
        """Pack keys and values: native version of `codec.rows.pack_rows`."""

    def split_rows(self, data: bytes, sizes: int, begin: int, many: int, prefix: bytes) -> list[bytes]:
        """Unpack the keys, or the values, of packed rows: the loop of `codec.rows.unpack_rows`."""

    def greatest_head(self, data: bytes, head_bytes: int) -> bytes:
        """Return the greatest beginning of a value: native version of `codec.rows.greatest_head`."""

    def add_rows(self, entries: dict[bytes, bytes], data: bytes) -> tuple[int, int]:
        """Put packed rows into a dict: native version of `codec.rows.add_rows`."""


def find_native() -> Any:
    """Return the module of the native functions; None: it is not installed, not wanted (it cannot be imported with PHALANX_PURE
    set), or does not fit. Then everything works as well, only slower. Warns of a package that does not fit.

    Each caller gives the module the type of what it calls; `tests/wire/test_compiled.py` lets mypy compare these types with the package.
    """
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


NATIVE: NativeCodec | None = find_native()
