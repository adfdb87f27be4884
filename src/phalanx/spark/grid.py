"""The seam between the data source and the grid: the few calls that a read or a write makes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol, cast

from phalanx.client.journal import Bounds, JournalEvent, Position
from phalanx.client.journal import Journal as MapJournal
from phalanx.client.staging import StagedRows, new_job_id
from phalanx.client.staging import Staging as JobStaging
from phalanx.client.sync import Client
from phalanx.client.two_clusters import check_founders
from phalanx.spark.options import Options
from phalanx.wire.conditions import Condition
from phalanx.wire.messages import PackedReply

__all__ = ["StagedRows", "connect", "journal", "new_job_id", "staging"]

MOST_NAMES = 20
"""Of maps, in a message."""


class Table(Protocol):
    """Who owns what."""

    def owners(self) -> Sequence[str | None]:
        """The owner of each partition; None where there is none at this moment."""


class Grid(Protocol):
    """What the data source needs of a client. Keys and values are in serialised form."""

    def partition_table(self) -> Table: ...

    @property
    def partition_count(self) -> int: ...

    @property
    def founders(self) -> tuple[str, ...]: ...

    def put_packed(self, map_name: str, parts: Mapping[int, bytes], of: int, ttl_ms: int = 0) -> None: ...

    def get_data(self, map_name: str, keys: list[bytes]) -> list[bytes | None]: ...

    def scan_data(
        self, map_name: str, partitions: list[int], of: int | None = None
    ) -> Iterator[tuple[list[bytes], list[bytes]]]:
        """`of`: how many partitions there were when these were listed."""

    def scan_packed(
        self,
        map_name: str,
        partitions: list[int],
        of: int | None = None,
        key_parts: int = 1,
        conditions: Sequence[Condition] = (),
    ) -> Iterator[PackedReply]: ...

    def map_names(self, *, with_empty: bool = False) -> list[str]: ...


class Journal(Protocol):
    """What a stream needs of the journal of a map."""

    def bounds(
        self, partitions: Iterable[int] | None = None, lineages: Mapping[int, int] | None = None
    ) -> dict[int, Bounds]: ...

    def read_range(self, partition: int, begin: Position, end: Position) -> Iterator[list[JournalEvent]]: ...


class StagedAttempt(Protocol):
    """Where a task puts its rows."""

    def put_packed(self, parts: Mapping[int, bytes], of: int, ttl_ms: int = 0) -> None: ...

    def delete_keys(self, keys: list[bytes]) -> None: ...

    def staged(self) -> StagedRows: ...


class Staging(Protocol):
    """What a job stages for a map."""

    def attempt(self, attempt_id: str) -> StagedAttempt: ...

    def apply(self, attempts: Sequence[StagedRows], batch: tuple[str, int] | None = None) -> int: ...

    def prepare_replace(self, attempts: Sequence[StagedRows], batch: tuple[str, int] | None = None) -> None: ...

    def decide_replace(self) -> None: ...

    def abort(self) -> bool: ...

    def snapshot(self) -> str: ...

    def drop(self) -> None: ...


def journal(client: Grid, map_name: str) -> Journal:
    """The journal of a map."""
    return MapJournal(map_name, cast(Client, client))


def staging(client: Grid, map_name: str, job: str) -> Staging:
    """What a job stages for a map."""
    return JobStaging(cast(Client, client), map_name, job)


def has_entries(client: Grid, map_name: str) -> bool:
    """Whether there is anything in a map."""
    return cast(Client, client).map(map_name).size() > 0


def is_known(client: Grid, map_name: str) -> bool:
    """Whether anything is known of a map: it has entries, a setting or a content of its own, or had entries."""
    if has_entries(client, map_name):
        return True
    plan = cast(Client, client).partition_table().maps
    named = {name for name, _ in plan.maps} | {content.map for content in plan.contents}
    return map_name in named or map_name in client.map_names(with_empty=True)


def told_names(client: Grid) -> str:
    """Which maps there are, for who named another."""
    names = client.map_names()
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return f"maps with entries are: {', '.join(map(repr, names[:MOST_NAMES]))}{more}" if names else "no map has any"


@contextmanager
def connect(options: Options, founders: Collection[str] = ()) -> Iterator[Grid]:
    """A client of the cluster that the options name. Raises `ConnectError` when no member can be reached.

    `founders`: of the cluster with which the job began. Raises `TwoClusters` where another one answers now: a task would read
    from it, or write into it, beside tasks that had the first one.
    """
    with Client(options.members, cluster=options.cluster, secret_file=options.secret_file) as client:
        check_founders(options.cluster, founders, client.founders)
        yield client
