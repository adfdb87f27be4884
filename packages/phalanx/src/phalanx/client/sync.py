"""The blocking client: no event loop, no thread of its own; a request and its answer on one socket.

Threads can share it: their calls run at the same time, and each waits only for its own owner (`session_pool`). A forked
process can use the client of its parent, and its maps: the client makes connections and an identity of its own there. A
client cannot be pickled and sent to another process.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NoReturn, overload

from phalanx.client.blocking.facade import BlockingFacade
from phalanx.client.blocking.journal import Journal
from phalanx.client.blocking.session import SessionSettings
from phalanx.client.blocking.session_pool import SessionPool
from phalanx.client.blocking.sync_leases import SyncLocks
from phalanx.client.blocking.sync_map import SyncMap
from phalanx.common.errors import ErrorCode, UnavailableError
from phalanx.common.ids import Lost, MemberId, Millis, Target
from phalanx.common.map_plan import MapPlan
from phalanx.common.seeds import DEFAULT_CLUSTER, DEFAULT_MEMBERS
from phalanx.common.table import PartitionTable
from phalanx.common.words import quoted
from phalanx.maps.mistakes import HoldsMaps, NeedsPlainWith
from phalanx.maps.own_maps import map_class
from phalanx.maps.requests import check_map_name, expect
from phalanx.maps.time_limit import TimeLimit, call_limit, connecting_limit
from phalanx.maps.tracing import find_tracing, make_tracing
from phalanx.maps.types import K, TypesOfMaps, V
from phalanx.net.secret import find_secret
from phalanx.net.seed_lookups import SeedPlaces
from phalanx.wire.codec import DEFAULT_MAX_FRAME_BYTES
from phalanx.wire.messages import (
    ErrorReply,
    GetMapNames,
    GetMembers,
    GetReplicas,
    MembersReply,
    NamesReply,
    ReplicasReply,
)


class Client(NeedsPlainWith, BlockingFacade, HoldsMaps):
    """A blocking connection to a cluster. Close it, or use it as a context manager.

    `members`: `host:port,host:port` of any members, or a list of such; `phalanx://host1,host2/cluster`, with port 5701 where none is
    given; also `dns:NAME:PORT`, all addresses of a name, and `file:PATH`, a file with one address a line: both are asked again when
    no member answers. Left out: 127.0.0.1:5701. `cluster`: the cluster's name, if the address has none. `call_timeout_s`:
    a call without an answer ends with an error after this time. `secret_file`: the file with the cluster's secret; by
    default the variable PHALANX_SECRET_FILE names it. `tracing`: whether calls of maps are spans of OpenTelemetry; None: what
    the variable PHALANX_TRACING says. Raises `UsageError` for a malformed address, `ConnectError` if no
    member is ready within `connect_timeout_s` (by default 10 s, but no more than `call_timeout_s`) or if the cluster
    has another name or secret, and `TwoClusters` if the members belong to two clusters. A `Duration` is a number of seconds, or a
    `datetime.timedelta`.
    """

    _internal = frozenset(
        {
            *("ask", "call", "call_all", "founders", "locks", "members", "next_id", "partition_table"),
            *("refresh", "replicas"),
        }
    )

    def __init__(
        self,
        members: str | Sequence[str] = DEFAULT_MEMBERS,
        *,
        cluster: str = DEFAULT_CLUSTER,
        connect_timeout_s: float | None = None,
        call_timeout_s: float = 30.0,
        max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES,
        secret: str | None = None,
        secret_file: str | os.PathLike[str] | None = None,
        tracing: bool | None = None,
    ) -> None:
        self.call_timeout_s = call_timeout_s = call_limit(call_timeout_s)
        connect_timeout_s = connecting_limit(connect_timeout_s, call_timeout_s)
        places = SeedPlaces(members)
        cluster = places.cluster_or(cluster)
        secret_of_cluster = find_secret(secret, secret_file)
        self._tracing = make_tracing(find_tracing(tracing), lambda: places.only_address)
        connect_timeout_s = places.wait(connect_timeout_s)
        self._sessions = SessionPool(
            SessionSettings(
                places,
                cluster,
                call_timeout_s,
                max_frame_bytes,
                secret_of_cluster,
            )
        )
        self._shared = self._sessions.shared
        self.next_id = self._sessions.next_id
        """Return the number for the next request."""
        self.call = self._sessions.call
        """Send a request (the second argument) to the owner of a partition (the first) and wait for its one reply."""
        self._types = TypesOfMaps(self._map_plan)
        self._locks = self.locks = SyncLocks(self)
        """The locks that this client holds."""
        try:
            self._wait_ready(connect_timeout_s)
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        settings, end = self._sessions.settings, ", closed" if self._sessions.is_closed else ""
        return f"Client({quoted(str(settings.places))}, cluster={quoted(settings.cluster)}{end})"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a phalanx.Client holds connections, and cannot be sent to another process: pass the addresses to that process, and make "
            "a client there, for example in the initializer of a pool (a forked process may use what it inherits)"
        )

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the locks that are held, and close the connections. Calls of other threads end at once, with an error.

        In a forked process only its own connections are closed; the parent's stay open.
        """
        self.locks.release_all()
        self._sessions.close()

    @overload
    def map(self, name: str, *, dicts: str | None = None) -> SyncMap[Any, Any]: ...
    @overload
    def map(self, name: str, *, key: type[K], value: type[V], dicts: str | None = None) -> SyncMap[K, V]: ...
    @overload
    def map(self, name: str, *, key: Any = None, value: Any = None, dicts: str | None = None) -> SyncMap[Any, Any]: ...
    def map(self, name: str, *, key: Any = None, value: Any = None, dicts: str | None = None) -> SyncMap[Any, Any]:
        """Return the distributed map of that name, a `MutableMapping`; it exists as soon as something is stored in it.

        `key`, `value`: the types of keys and values (docs/how-to/typed-maps.md); None: any that can be stored.
        `dicts`: how dicts are stored, "rows"; or "json", so that programs in other languages read them, too. None: as the map's
        setting `dicts` says; as rows if it has none. Raises `UsageError` if the name is invalid, or a type cannot be used;
        calls about dicts do if `dicts` contradicts the setting.
        """
        made = map_class(SyncMap, name)(check_map_name(name), self, self._types.of(name, key, value, dicts))
        return made if self._tracing is None else self._tracing.traced(made)

    def journal(self, map_name: str) -> Journal:
        """Return the journal of a map: the events of its entries. An operator gives a map a journal with
        `phalanx map journal NAME --capacity N`."""
        return Journal(map_name, self)

    def map_names(self, *, with_empty: bool = False) -> list[str]:
        """Return the names of the maps that have entries, sorted.

        `with_empty`: also of maps that had entries before. Members forget such maps when their partitions move.
        """
        members = self.partition_table().members
        limit = TimeLimit(self.call_timeout_s)
        found = [self.ask(member, GetMapNames(self.next_id(), with_empty), limit.within_ms) for member in members]
        return sorted({name for reply in found for name in expect(reply, NamesReply, "map_names").names})

    def partition_table(self) -> PartitionTable:
        """Return the newest partition table that this client knows."""
        table = self._shared.state.table
        if table is not None:
            return table
        with self._sessions.session() as session:
            session.wait_table()
            table, why = session.core.table, session.core.no_owners or "no member told who owns the partitions"
        if table is None:
            raise UnavailableError(f"no answer within {self.call_timeout_s:g} s: {why}")
        return table

    def _map_plan(self) -> MapPlan:
        """Return the settings of maps by the newest partition table known; wait for the first one."""
        return self.partition_table().maps

    def refresh(self, within_s: float | None = None) -> PartitionTable:
        """Ask a member for the table now, and return the newest table.

        `within_s`: how long to wait for the answer; None: as long as for any call.
        """
        with self._sessions.session() as session:
            session.refresh(self.call_timeout_s if within_s is None else within_s)
        return self.partition_table()

    @property
    def partition_count(self) -> int:
        """Return how many partitions the cluster has, by the newest table known."""
        return self._shared.partition_count

    @property
    def founders(self) -> tuple[MemberId, ...]:
        """Return the founders of the cluster and of clusters merged into it; empty: members do not name them. A
        restarted cluster has another founder."""
        side = self._shared.state.side
        return side.founders if side is not None else ()

    def members(self, limit: TimeLimit | None = None) -> MembersReply:
        """Return the view of the first member that answers within the time limit (None: that of a call)."""
        limit = limit or TimeLimit(self.call_timeout_s)
        with self._sessions.session() as session:
            for member in session.members():
                reply = session.ask(member, GetMembers(self.next_id()), limit.within_ms)
                if not (isinstance(reply, ErrorReply) and reply.code is ErrorCode.UNAVAILABLE) or limit.is_over:
                    break
        return expect(reply, MembersReply, "members")

    def replicas(self, member: Target) -> ReplicasReply:
        """Return statistics of a member's replicas: entries, bytes, and partitions with unacknowledged writes."""
        return expect(self.ask(member, GetReplicas(self.next_id())), ReplicasReply, "replicas")

    # --- serialised entries ----------------------------------------------------------------------------------------

    def put_data(self, map_name: str, keys: list[bytes], values: list[bytes], ttl_ms: int = 0) -> None:
        """Store serialised entries. After an error some of them can be stored."""
        self.map(map_name).put_data(keys, values, ttl_ms)

    def get_data(self, map_name: str, keys: list[bytes]) -> list[bytes | None]:
        """Return the serialised value of each serialised key; None: the key has no value."""
        return self.map(map_name).get_data(keys)

    def scan_data(
        self, map_name: str, partitions: Iterable[int] | None = None, of: int | None = None
    ) -> Iterator[tuple[list[bytes], list[bytes]]]:
        """Yield pages of serialised keys and values of some partitions, or all; each entry exactly once.

        `of`: the partition count to which the partition numbers refer; None: the present one.
        """
        return self.map(map_name).scan_data(partitions, of)

    # --- what maps need --------------------------------------------------------------------------------------------

    def ask(self, member: Target, request: Any, within_ms: Millis = 0, lost: Lost = ()) -> Any:
        """Send a request to a member and return its reply. `within_ms`: a shorter time limit; 0: none. `lost`: as in
        `CallOwners`."""
        with self._sessions.session() as session:
            return session.ask(member, request, within_ms, lost)

    def call_all(self, requests: list[tuple[int, Any]], within_ms: Millis = 0, lost: Lost = ()) -> list[Any]:
        """Send all requests to the owners of their partitions, and return the replies in the same order."""
        if len(requests) == 1 and not lost:
            return [self.call(*requests[0], within_ms)]
        with self._sessions.session() as session:
            return session.call_all(requests, within_ms, lost)

    def _wait_ready(self, timeout_s: float) -> None:
        """Wait until a member answers. Raises `ConnectError` with each member's problem, and `TwoClusters`."""
        with self._sessions.session() as session:
            if why_not := session.connect(timeout_s):
                raise why_not
