"""Requests to one member, without a client of its cluster: for operators and for monitoring programs.

A client finds the owners of keys and follows them. An `Inquirer` asks only the member at one address, and raises an
error if that does not answer. Connecting changes nothing in the cluster; only some requests do.
"""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

from phalanx.client.blocking.connection import BlockingConnection, ConnectAttempt, RefusedByPeer
from phalanx.client.core.seeds import WAIT_MS
from phalanx.client.core.two_clusters import conflict_of_seeds, side_of
from phalanx.client.parallel_connections import ask_in_parallel, connect_in_parallel
from phalanx.common.errors import ConnectError, ProtocolError, TwoClusters, UnavailableError
from phalanx.common.ids import Address, MemberId, address_of
from phalanx.common.map_settings import MapChange
from phalanx.common.versions import PROTOCOL_VERSION
from phalanx.common.words import check_text
from phalanx.maps.requests import expect
from phalanx.net.secret import find_secret
from phalanx.net.seed_lookups import find_addresses
from phalanx.reports.placement import Placement, placement_of
from phalanx.wire.codec import DEFAULT_MAX_FRAME_BYTES
from phalanx.wire.messages import (
    AcceptView,
    AcknowledgeLosses,
    ActivityReply,
    ChangeLite,
    ChangeMap,
    ChangePartitionCount,
    DoneReply,
    ForgetMember,
    GetActivity,
    GetHistory,
    GetLosses,
    GetMembers,
    GetMigrations,
    GetReplicas,
    GetSafety,
    GetTable,
    GiveUpHolders,
    HistoryReply,
    HoldClusterVersion,
    LeaveCluster,
    LossesReply,
    MembersReply,
    MigrationsReply,
    RaiseClusterVersion,
    ReplicasReply,
    SafetyReply,
    StopCluster,
    TableReply,
)

DEFAULT_TIMEOUT_S = 3.0
ASKED_AT_ONCE = 16


class _Reply(Protocol):
    @property
    def id(self) -> int: ...


R = TypeVar("R", bound=_Reply)
T = TypeVar("T")


class Inquirer:
    """A connection to the member at one address. Close it, or use it as a context manager.

    Each question raises `ConnectError` when the member cannot be reached, or does not answer within `timeout_s`, and
    `UnavailableError` when it has not joined its cluster yet. After such an error the next question connects again.
    """

    def __init__(
        self,
        address: Address,
        *,
        cluster: str = "phalanx",
        timeout_s: float = DEFAULT_TIMEOUT_S,
        secret_file: str | os.PathLike[str] | None = None,
    ) -> None:
        """`secret_file`: the file with the cluster's secret; by default the variable PHALANX_SECRET_FILE names it."""
        self.address = address
        self.cluster = check_text(cluster, "cluster")
        self._secret = find_secret(None, secret_file)
        self._timeout_s = timeout_s
        self._sender = f"client/{uuid.uuid4()}"
        self._connection: BlockingConnection | None = None
        self._last_id = 0

    def __enter__(self) -> Inquirer:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.socket.close()
            self._connection = None

    def member(self) -> MemberId:
        """Return the member incarnation that listens at the address."""
        return self._connected().member

    def members(self) -> MembersReply:
        """Return the view that this member has installed, and the members that it suspects."""
        return self._ask(GetMembers, MembersReply, "members")

    def table(self) -> TableReply:
        """Return the member's installed partition table. Does not make the cluster assign its partitions."""
        return self._ask(lambda request_id: GetTable(request_id, False), TableReply, "partitions")

    def placement(self) -> Placement:
        """Return the members and their replicas, by the list and the table that this member has installed."""
        return placement_of(self.table())

    def replicas(self) -> ReplicasReply:
        """Return statistics of this member's replicas: entries, bytes, and partitions with unacknowledged writes."""
        return self._ask(GetReplicas, ReplicasReply, "replicas")

    def change_map(self, name: str, change: MapChange) -> None:
        """Change the settings of a map (an empty name: of all maps without own settings). Only the master can do so.

        Raises `UsageError` for invalid settings, `UnavailableError` if this member is not the master.
        """
        check_text(name, "map name")
        self._ask(lambda request_id: ChangeMap(request_id, name, change), DoneReply, "map")

    def change_lite(self, lite: bool) -> None:
        """Make this member a lite member, which holds no data, or (not `lite`) a data member.

        Raises `UnavailableError`, which says what the member waits for, until it is done: ask again.
        """
        self._ask(lambda request_id: ChangeLite(request_id, lite), DoneReply, "lite")

    def leave(self) -> None:
        """Let this member hand over all that it holds, and leave for good. Raises `UsageError` if no other one holds data."""
        self._ask(LeaveCluster, DoneReply, "leave")

    def stop_cluster(self) -> None:
        """Let all members end, to be started again with their folders. Only the master does so. Raises `UsageError` if one has none."""
        self._ask(StopCluster, DoneReply, "stop")

    def forget(self, address: Address) -> None:
        """Let the cluster await no member any more that was at an address. Only the master does so. Raises `UsageError` unless one is."""
        self._ask(lambda request_id: ForgetMember(request_id, address), DoneReply, "decision")

    def accept_view(self, view_version: int) -> None:
        """Make the master declare its present view stable. Raises `UnavailableError` if that has another version."""
        self._ask(lambda request_id: AcceptView(request_id, view_version), DoneReply, "accept")

    def raise_cluster_version(self, to: int = PROTOCOL_VERSION) -> None:
        """Raise the cluster version, and hold it back no longer. Only the master can do so, and members of older releases
        cannot join any more.

        Raises `UnavailableError`, which says what stands against it.
        """
        self._ask(lambda request_id: RaiseClusterVersion(request_id, to), DoneReply, "cluster version")

    def hold_cluster_version(self, holds: bool) -> None:
        """Let no master raise the cluster version by itself, or (not `holds`) let them again. Only the master can do so.

        Raises as `raise_cluster_version`.
        """
        self._ask(lambda request_id: HoldClusterVersion(request_id, holds), DoneReply, "cluster version")

    def change_partition_count(self, count: int) -> None:
        """Divide the partitions of the live cluster. `count`: the new partition count, a multiple of the present one.

        Only the master can do so. Raises `UsageError` for an impossible count, `UnavailableError` if this member is not
        the master, or if migrations have to end first: then no new one begins, so ask again.
        """
        self._ask(lambda request_id: ChangePartitionCount(request_id, count), DoneReply, "partition count")

    def losses(self) -> LossesReply:
        """Return the cluster's losses that no operator has acknowledged, by this member's table."""
        return self._ask(GetLosses, LossesReply, "losses")

    def acknowledge_losses(self, ids: list[str], by: str) -> None:
        """Acknowledge losses, or members that are away: the cluster reports them no longer. Only the master can do so.

        `by`: the name of the operator. Raises `UsageError` for unknown ids, `UnavailableError` if this member is not
        the master, or if not every member knows yet: ask again.
        """
        self._ask(lambda request_id: AcknowledgeLosses(request_id, ids, by), DoneReply, "acknowledgement")

    def give_up(self, holders: list[str], begin_empty: int, by: str) -> None:
        """Let dormant partitions go on without holders at these addresses, which do not come back. Only the master can do so.

        What only these have is lost. `begin_empty`: how many partitions begin empty by that; `by`: the name of the operator. Raises
        `UsageError` if it is another number, or if no partition waits for these alone.
        """
        self._ask(lambda request_id: GiveUpHolders(request_id, holders, begin_empty, by), DoneReply, "decision")

    def history(self, partition: int = -1) -> HistoryReply:
        """Return the decisions that this member remembers (about a partition, if given), its view and its suspects."""
        return self._ask(lambda request_id: GetHistory(request_id, partition), HistoryReply, "history")

    def safety(self) -> SafetyReply:
        """Return what would be lost if this member were stopped now, and what is under way, as far as it knows."""
        return self._ask(GetSafety, SafetyReply, "safety")

    def activity(self, most: int) -> ActivityReply:
        """Return what this member did lately, with this many of its last points."""
        return self._ask(lambda request_id: GetActivity(request_id, most), ActivityReply, "activity")

    def migrations(self) -> MigrationsReply:
        """Return the migrations under way, if this member is the master; otherwise who the master is."""
        return self._ask(GetMigrations, MigrationsReply, "migrations")

    def _ask(self, request: Callable[[int], Any], kind: type[R], what: str) -> R:
        connection = self._connected()
        self._last_id += 1
        try:
            connection.send(request(self._last_id))
            return expect(self._answer(connection), kind, f"{what} of {self.address}")
        except OSError as error:
            self.close()
            raise ConnectError(f"{self.address}: {error.strerror or error}") from error
        except (ConnectError, ProtocolError):
            self.close()
            raise

    def _answer(self, connection: BlockingConnection) -> Any:
        deadline = time.monotonic() + self._timeout_s
        while (left_s := deadline - time.monotonic()) > 0:
            for message in connection.receive(left_s):
                if getattr(message, "id", None) == self._last_id:
                    return message
        raise ConnectError(f"{self.address} did not answer within {self._timeout_s:g} s: it may hang, or be overloaded")

    def _connected(self) -> BlockingConnection:
        if self._connection is None:
            attempt: ConnectAttempt | None = None
            try:
                attempt = ConnectAttempt(self.address, self.cluster, self._sender, self._secret)
                attempt.go_on_for(self._timeout_s)
                if attempt.member is not None:
                    self._connection = BlockingConnection(attempt, DEFAULT_MAX_FRAME_BYTES)
                    return self._connection
            except RefusedByPeer as error:
                raise RefusedByPeer(f"{self.address}: {error}") from error
            except OSError as error:
                raise ConnectError(
                    f"cannot connect to {self.address}: {error.strerror or error}; check the address, and that a member "
                    f"runs there"
                ) from error
            finally:
                if attempt is not None and self._connection is None:
                    attempt.socket.close()
            raise ConnectError(
                f"{self.address} did not answer within {self._timeout_s:g} s: it may hang, or it is not a member of Phalanx"
            )
        return self._connection


def ask_any(
    addresses: str | Sequence[Address],
    cluster: str,
    ask: Callable[[Inquirer], T],
    *,
    secret_file: str | os.PathLike[str] | None = None,
) -> T:
    """Return the answer of the address that answers first. All are tried at once, earlier ones with a head start.

    Raises `ConnectError` with the problem of each address if none can be reached, `UnavailableError` if one cannot
    answer now, and `TwoClusters`, before anything is asked, if another address answers soon and belongs to another
    cluster.
    """
    wanted = find_addresses(addresses) if isinstance(addresses, str) else addresses

    def ask_one(inquirer: Inquirer) -> T:
        _check_one_cluster(inquirer, wanted, secret_file)
        return ask(inquirer)

    return _ask_first(wanted, cluster, ask_one, secret_file)


def _ask_first(
    wanted: Sequence[Address], cluster: str, ask: Callable[[Inquirer], T], secret_file: str | os.PathLike[str] | None
) -> T:
    inquirers = [Inquirer(address, cluster=cluster, secret_file=secret_file) for address in wanted]
    problems: list[UnavailableError] = []
    with contextlib.closing(connect_in_parallel(inquirers, DEFAULT_TIMEOUT_S)) as connected:
        for each in connected:
            if isinstance(each, UnavailableError):
                problems.append(each)
                continue
            try:
                return ask(each)
            except TwoClusters:
                raise
            except UnavailableError as error:
                problems.append(error)
    raise _as_one(problems)


def _check_one_cluster(
    first: Inquirer, addresses: Sequence[Address], secret_file: str | os.PathLike[str] | None
) -> None:
    """Raise `TwoClusters` if one of these addresses answers within `WAIT_MS` for another cluster than `first`."""
    others = [address for address in addresses if address != first.address]
    if not others:
        return
    try:
        listed = set(map(address_of, first.members().view.members))
        if listed.issuperset(others):
            return
        side = side_of(first.table())
    except ConnectError:
        raise
    except UnavailableError:
        return  # The member is in no cluster yet.
    asked = [
        Inquirer(address, cluster=first.cluster, timeout_s=WAIT_MS / 1000, secret_file=secret_file)
        for address in others
        if address not in listed
    ]
    for other, reply in ask_in_parallel(asked, Inquirer.table, WAIT_MS / 1000):
        if conflict := conflict_of_seeds(first.cluster, side, side_of(reply), other.address):
            raise TwoClusters(conflict)


def ask_member(member: MemberId, cluster: str, ask: Callable[[Inquirer], T]) -> T | None:
    """Return the answer of the process at a member's address; None: none. `ask` must check which incarnation it is."""
    try:
        with Inquirer(address_of(member), cluster=cluster) as inquirer:
            return ask(inquirer)
    except UnavailableError:
        return None


def ask_each(members: Sequence[MemberId], cluster: str, ask: Callable[[Inquirer], T]) -> dict[MemberId, T | None]:
    """Ask all members side by side, like `ask_member`: a member that hangs delays no other."""
    with ThreadPoolExecutor(ASKED_AT_ONCE) as pool:
        return dict(zip(members, pool.map(lambda member: ask_member(member, cluster, ask), members), strict=True))


def put_living_first(
    addresses: str, cluster: str, *, secret_file: str | os.PathLike[str] | None = None
) -> list[Address]:
    """Return the addresses with the one that answers first in front, so that a client need not wait for dead ones.

    Raises `ConnectError` if none answers. The client itself checks that all are of one cluster.
    """
    wanted = find_addresses(addresses)
    living = _ask_first(wanted, cluster, _connected_address, secret_file)
    return list(dict.fromkeys([living, *wanted]))


def _connected_address(inquirer: Inquirer) -> Address:
    inquirer.member()
    return inquirer.address


def _as_one(problems: list[UnavailableError]) -> UnavailableError:
    """Return one error for all problems: `RefusedByPeer` if a peer refused, for which no retry helps."""
    if len(problems) == 1:
        return problems[0]
    text = "; ".join(map(str, problems))
    if not all(isinstance(problem, ConnectError) for problem in problems):
        return UnavailableError(text)
    is_refused = any(isinstance(problem, RefusedByPeer) for problem in problems)
    return RefusedByPeer(text) if is_refused else ConnectError(text)


def find_master(addresses: str, cluster: str, *, secret_file: str | os.PathLike[str] | None = None) -> Address:
    """Return the address of the master: only the master changes settings of maps and the partition count."""
    return address_of(ask_any(addresses, cluster, Inquirer.placement, secret_file=secret_file).view.master)
