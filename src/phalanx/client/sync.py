"""The blocking client: no event loop, no thread of its own; a request and its answer on one socket.

Safe to share between threads: one call at a time. To a process that was forked from another, the client of the parent
is of no use; connect again there.
"""

from __future__ import annotations

import itertools
import os
import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from time import monotonic
from types import TracebackType
from typing import Any

import msgspec

from phalanx.client.core import ClientCore
from phalanx.client.driver import Driver
from phalanx.client.journal import Journal
from phalanx.client.sync_map import SyncMap
from phalanx.common.errors import (
    ConnectError,
    EntryTooLarge,
    ErrorCode,
    ProtocolError,
    UnavailableError,
    UsageError,
)
from phalanx.common.ids import Address, Target, parse_addresses
from phalanx.common.table import PartitionTable
from phalanx.common.words import check_text
from phalanx.maps.requests import check_map_name, expect
from phalanx.net.secret import find_secret
from phalanx.wire.codec import DEFAULT_MAX_FRAME_BYTES
from phalanx.wire.conditions import Condition
from phalanx.wire.effects import Call, Effect
from phalanx.wire.messages import (
    ErrorReply,
    GetMapNames,
    GetMembers,
    GetReplicas,
    MembersReply,
    NamesReply,
    PackedReply,
    ReplicasReply,
)


class Client:
    """A blocking connection to a cluster. Close it, or use it as a context manager.

    `members`: `host:port,host:port` of any members, or a list of such. `secret_file` holds the cluster's secret; where
    it is not given, the variable PHALANX_SECRET_FILE names it. Raises `UsageError` for a malformed address,
    `ConnectError` when no member is ready within `connect_timeout_s`, or the cluster has another name or secret.
    """

    def __init__(
        self,
        members: str | Sequence[str],
        *,
        cluster: str = "phalanx",
        connect_timeout_s: float = 10.0,
        call_timeout_s: float = 30.0,
        max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES,
        secret: str | None = None,
        secret_file: str | os.PathLike[str] | None = None,
    ) -> None:
        if not call_timeout_s > 0:
            raise UsageError(f"call_timeout_s is {call_timeout_s!r}: give more than 0 seconds")
        text = members if isinstance(members, str) else ",".join(members)
        self.call_timeout_s = call_timeout_s
        self._core = ClientCore(parse_addresses(text), int(call_timeout_s * 1000))
        self._driver = Driver(
            self._core,
            check_text(cluster, "cluster"),
            f"client/{uuid.uuid4()}",
            max_frame_bytes,
            find_secret(secret, secret_file),
            call_timeout_s,
        )
        self.next_id = itertools.count(1).__next__
        """A number for the next request."""
        self.open_from = 0
        """No request with a lower number is under way, or will be: one that comes late gets another number."""
        self._lock = threading.RLock()
        self._is_closed = False
        try:
            self._wait_ready(connect_timeout_s)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._is_closed = True
        self._driver.close()

    def map(self, name: str) -> SyncMap:
        """The distributed map of that name, as a `MutableMapping`; it exists as soon as something is stored in it."""
        return SyncMap(check_map_name(name), self)

    def journal(self, map_name: str) -> Journal:
        """What happens to the entries of a map that has a journal (`phalanx map journal NAME --capacity N`)."""
        return Journal(map_name, self)

    def map_names(self, *, with_empty: bool = False) -> list[str]:
        """Names of the maps that have entries, sorted; `with_empty`: and of those that had some, as far as members know.

        What had entries once is forgotten when its partitions move to other members.
        """
        members = self.partition_table().members
        found = [self.ask(member, GetMapNames(self.next_id(), with_empty)) for member in members]
        return sorted({name for reply in found for name in expect(reply, NamesReply, "map_names").names})

    def partition_table(self) -> PartitionTable:
        """The newest partition table known to this client."""
        core = self._core
        if core.table is None:
            with self._lock:
                core.wants_assignment = True
                self._driver.carry_out(core.time_passed(self._driver.now()))
                self._driver.run_until(lambda: core.table is not None, monotonic() + self.call_timeout_s)
        if core.table is None:
            why = core.no_owners or "no member told who owns the partitions"
            raise UnavailableError(f"no answer within {self.call_timeout_s:g} s: {why}")
        return core.table

    def refresh(self) -> PartitionTable:
        """Ask a member for the table now."""
        with self._lock:
            self._driver.carry_out(self._core.refresh(self._driver.now()))
            self._driver.run_until(lambda: not self._core.is_asking, monotonic() + self.call_timeout_s)
        return self.partition_table()

    @property
    def partition_count(self) -> int:
        """How many partitions the cluster has, by the newest table known."""
        return self._core.partition_count or 0

    def members(self) -> MembersReply:
        """The member list as the first member that answers has it."""
        reply = self.ask(self._any_member(), GetMembers(self.next_id()))
        return expect(reply, MembersReply, "members")

    def replicas(self, member: Target) -> ReplicasReply:
        """What a member holds: entries, bytes, and what is not confirmed yet."""
        return expect(self.ask(member, GetReplicas(self.next_id())), ReplicasReply, "replicas")

    # --- serialised entries ----------------------------------------------------------------------------------------

    def put_data(self, map_name: str, keys: list[bytes], values: list[bytes], ttl_ms: int = 0) -> None:
        """Store serialised entries. On an error some of them may be stored, each of them whole."""
        self.map(map_name).put_data(keys, values, ttl_ms)

    def put_packed(self, map_name: str, parts: Mapping[int, bytes], of: int, ttl_ms: int = 0) -> None:
        """As `put_data`, of rows packed by their partitions among `of` (`grid.rows`): what costs a member least."""
        self.map(map_name).put_packed(parts, of, ttl_ms)

    def get_data(self, map_name: str, keys: list[bytes]) -> list[bytes | None]:
        """The serialised values of serialised keys, None where there is none."""
        return self.map(map_name).get_data(keys)

    def scan_data(
        self, map_name: str, partitions: Iterable[int] | None = None, of: int | None = None
    ) -> Iterator[tuple[list[bytes], list[bytes]]]:
        """Pages of serialised keys and values of some partitions, or all; each entry exactly once.

        `of`: how many partitions there were when they were listed; None: as many as there are now.
        """
        return self.map(map_name).scan_data(partitions, of)

    def scan_packed(
        self,
        map_name: str,
        partitions: Iterable[int] | None = None,
        of: int | None = None,
        key_parts: int = 1,
        conditions: Sequence[Condition] = (),
    ) -> Iterator[PackedReply]:
        """As `scan_data`, for programs that take entries as columns: pages of those that fulfil the conditions."""
        return self.map(map_name).scan_packed(partitions, of, key_parts, conditions)

    # --- what maps need --------------------------------------------------------------------------------------------

    def call(self, partition: int, request: Any) -> Any:
        """Send a request to the owner of a partition and wait for its one reply."""
        with self._lock:
            if request.id < self.open_from:
                request = self._in_turn(request)
            started = int(monotonic() * 1000)
            owner = self._core.owner_for_only_call(partition, started)
            wire = self._driver.wires.get(owner) if owner is not None else None
            if wire is None:
                return self._call_all([Call(partition, request)])[0]
            # The usual course: the next that comes from the owner is the answer. Whatever else comes, or if nothing does
            # for a while, the machine knows how to go on.
            messages, failure = [], None
            try:
                messages = wire.exchange(request, self._driver.patience_s)
                if len(messages) == 1 and (reply := messages[0]).id == request.id and type(reply) is not ErrorReply:
                    self.open_from = request.id + 1
                    return reply
            except EntryTooLarge as error:
                return ErrorReply(request.id, ErrorCode.TOO_LARGE, str(error))
            except (OSError, ProtocolError) as error:
                failure = error
            self._core.was_sent(Call(partition, request), wire.member, started)
            effects = self._driver.lost(wire) if failure is not None else []
            for message in messages:
                effects += self._core.received(wire.member, message, self._driver.now())
            return self._finish([request.id], effects)[0]

    def ask(self, member: Target, request: Any) -> Any:
        """Send a request to a member and wait for its one reply."""
        return self._call_all([Call(0, request, member)])[0]

    def call_all(self, requests: list[tuple[int, Any]]) -> list[Any]:
        """Send requests to the owners of their partitions at once; their replies in the same order."""
        if len(requests) == 1:
            return [self.call(*requests[0])]
        return self._call_all([Call(partition, request) for partition, request in requests])

    def _call_all(self, calls: list[Call]) -> list[Any]:
        with self._lock:
            if self._is_closed:
                closed = "the client is closed"
                return [ErrorReply(call.request.id, ErrorCode.UNAVAILABLE, closed) for call in calls]
            if any(call.request.id < self.open_from for call in calls):
                calls = [msgspec.structs.replace(call, request=self._in_turn(call.request)) for call in calls]
            effects: list[Effect] = []
            for call in calls:
                effects += self._core.call(call, self._driver.now())
            return self._finish([call.request.id for call in calls], effects)

    def _in_turn(self, request: Any) -> Any:
        """The request with a new number: another thread took one after it and was first."""
        return msgspec.structs.replace(request, id=self.next_id())

    def _finish(self, ids: list[int], effects: list[Effect]) -> list[Any]:
        """Carry on until these calls are answered; their replies. Answers to calls that were interrupted are dropped."""
        answers = self._driver.answers = dict.fromkeys(ids)
        self._driver.carry_out(effects)
        # The machine ends every call by its deadline; the margin is for a defect of the machine itself.
        deadline = monotonic() + self.call_timeout_s + 10
        self._driver.run_until(lambda: None not in answers.values(), deadline)
        return list(answers.values())

    def _any_member(self) -> Target:
        view = self._core.view
        wires = [wire.member for wire in self._driver.wires.values()]
        return wires[0] if wires else (view.master if view is not None else Address(""))

    def _wait_ready(self, timeout_s: float) -> None:
        """Until a member has answered. Raises `ConnectError` that says what went wrong with each."""
        core, driver = self._core, self._driver
        with self._lock:
            driver.carry_out(core.time_passed(driver.now()))
            driver.run_until(
                lambda: core.partition_count is not None or core.is_refused_by_all(driver.refusals),
                monotonic() + timeout_s,
            )
        if core.partition_count is not None:
            return
        raise ConnectError(core.why_not_ready(driver.refusals, timeout_s))
