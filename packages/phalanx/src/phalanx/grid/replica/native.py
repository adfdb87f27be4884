"""The native functions of the grid (`codec.native`): they read and write entries of replicas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from phalanx.codec.native import find_native


class NativeReads(Protocol):
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
        """Look up values: native version of `grid.serving.many_keys.find_values`."""


class NativeWrites(Protocol):
    """The functions that change the stores of a member's partitions: nothing but `grid.replication.leader` imports it."""

    def put_values(
        self,
        owned: list[Any],
        name: str,
        keys: Sequence[bytes],
        values: Sequence[bytes],
        prefix: bytes,
        seed: int,
        log_keys: list[bytes] | None = None,
        log_values: list[bytes] | None = None,
    ) -> bool:
        """Store values: native version of `Leader.commit_values`. `log_keys`, `log_values`: get what was set, in order."""

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
        log_keys: list[bytes] | None = None,
        log_values: list[bytes] | None = None,
    ) -> tuple[int, bytes, int, int, int, int, int]:
        """Carry out commands of a Redis client one after another: native version of `Leader.commit_commands`.

        `log_keys`, `log_values`: get the entries that were set, in the order of the writes.
        """


class NativeReplay(Protocol):
    """The function that follows records of a log: only `disk.replay` imports it."""

    def follow(
        self,
        replicas: dict[int, Any],
        copies: dict[int, Any],
        now: int,
        seed: int,
        body: bytes | bytearray | memoryview,
        start: int,
        most: int,
    ) -> tuple[int, int]:
        """Follow records of puts from the bytes of a block: native version of `disk.replay.Replay.take`.

        Return where the next one begins, and how many it has followed.
        """


class NativeGrid(Protocol):
    """The native functions of the grid."""

    def next_rows(
        self, entries: dict[bytes, bytes], left: list[bytes], most: int, max_bytes: int, overhead: int
    ) -> tuple[bytes, list[bytes], int, int]:
        """Pack the next entries to copy: native version of `grid.replication.copying.next_rows`. `overhead`: bytes of an entry beside key and value."""

    def page_of_entries(self, entries: dict[bytes, bytes], max_bytes: int) -> tuple[bytes, bytes, bytes, bytes] | None:
        """Pack all entries as one page, and return its fields: native version of `grid.serving.packing.page_of_entries`."""

    def Stores(self, owned: type, replica: type, store: type) -> NativeReads:  # a class of the module
        """Make the functions that read objects of these classes: OwnedPartition, Replica and MapStore. They access the slots."""

    def Commands(self, owned: type, replica: type, store: type) -> NativeWrites:  # a class of the module
        """Make the functions that change objects of these classes."""

    def Follower(self, replica: type, store: type, copy: type) -> NativeReplay:  # a class of the module
        """Make the function that follows records in objects of these classes: Replica, MapStore and IncomingCopy."""


NATIVE: NativeGrid | None = find_native()
