"""The seam between the data source and the grid: the few calls that a read or a write makes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from phalanx.client.sync import Client
from phalanx.spark.options import Options


class Table(Protocol):
    """Who owns what."""

    def owners(self) -> Sequence[str | None]:
        """The owner of each partition; None where there is none at this moment."""


class Grid(Protocol):
    """What the data source needs of a client. Keys and values are in serialised form."""

    def partition_table(self) -> Table: ...

    def put_data(self, map_name: str, keys: list[bytes], values: list[bytes], ttl_ms: int = 0) -> None: ...

    def get_data(self, map_name: str, keys: list[bytes]) -> list[bytes | None]: ...

    def scan_data(
        self, map_name: str, partitions: list[int], of: int | None = None
    ) -> Iterator[tuple[list[bytes], list[bytes]]]:
        """`of`: how many partitions there were when these were listed."""

    def map_names(self) -> list[str]: ...


@contextmanager
def connect(options: Options) -> Iterator[Grid]:
    """A client of the cluster that the options name. Raises `ConnectError` when no member can be reached."""
    with Client(options.members, cluster=options.cluster, secret_file=options.secret_file) as client:
        yield client
