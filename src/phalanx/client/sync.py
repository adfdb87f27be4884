"""The blocking client: no event loop, no thread of its own; a request and its answer on one socket.

Safe to share between threads: one call at a time. To a process that was forked from another, the client of the parent
is of no use; connect again there.
"""

from __future__ import annotations

import itertools
import os
import select
import threading
import uuid
from collections.abc import Iterable, Iterator, Sequence
from time import monotonic, sleep
from types import TracebackType
from typing import Any

import msgspec

from phalanx.client.core import DOUBT_AFTER_MS, ClientCore
from phalanx.client.journal import Journal
from phalanx.client.sync_map import SyncMap
from phalanx.client.wire import Opening, RefusedByPeer, Wire
from phalanx.common.errors import (
    ConnectError,
    EntryTooLarge,
    ErrorCode,
    ProtocolError,
    UnavailableError,
    UsageError,
)
from phalanx.common.ids import Address, Target, is_member, parse_addresses
from phalanx.common.table import PartitionTable
from phalanx.maps.requests import check_map_name, expect
from phalanx.net.secret import find_secret
from phalanx.wire.codec import DEFAULT_MAX_FRAME_BYTES
from phalanx.wire.conditions import Condition
from phalanx.wire.effects import Answer, Call, Effect, LinkLost, LinkRefused, Send
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
        self._cluster = cluster
        self._sender = f"client/{uuid.uuid4()}"
        self._max_frame_bytes = max_frame_bytes
        self._secret = find_secret(secret, secret_file)
        self._core = ClientCore(parse_addresses(text), int(call_timeout_s * 1000))
        self._wires: dict[Target, Wire] = {}
        self._openings: dict[Target, Opening] = {}
        """Connections that were not there within `_patience_s`: others are talked with meanwhile."""
        self._view = self._core.view
        """The member list by which connections were last looked through."""
        self._answers: dict[int, Any] = {}
        """Of the calls that are waited for: the reply, None until it has come."""
        self.next_id = itertools.count(1).__next__
        """A number for the next request."""
        self.open_from = 0
        """No request with a lower number is under way, or will be: one that comes late gets another number."""
        self._lock = threading.RLock()
        self._patience_s = min(call_timeout_s, DOUBT_AFTER_MS / 1000)
        """How long the one who was asked is waited for before anything else is looked at."""
        self._is_closed = False
        self._refusals: dict[str, str] = {}
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
        for wire in list(self._wires.values()):
            wire.socket.close()
        self._wires.clear()
        for opening in self._openings.values():
            opening.socket.close()
        self._openings.clear()

    def map(self, name: str) -> SyncMap:
        """The distributed map of that name, as a `MutableMapping`; it exists as soon as something is stored in it."""
        return SyncMap(check_map_name(name), self)

    def journal(self, map_name: str) -> Journal:
        """What happens to the entries of a map that has a journal (`phalanx map journal NAME --capacity N`)."""
        return Journal(map_name, self)

    def map_names(self) -> list[str]:
        """Names of the maps that have entries, sorted."""
        found = [self.ask(member, GetMapNames(self.next_id())) for member in self.partition_table().members]
        return sorted({name for reply in found for name in expect(reply, NamesReply, "map_names").names})

    def partition_table(self) -> PartitionTable:
        """The newest partition table known to this client."""
        core = self._core
        if core.table is None:
            with self._lock:
                core.wants_assignment = True
                self._carry_out(core.time_passed(self._now()))
                self._run_until(lambda: core.table is not None, monotonic() + self.call_timeout_s)
        if core.table is None:
            why = core.no_owners or "no member told who owns the partitions"
            raise UnavailableError(f"no answer within {self.call_timeout_s:g} s: {why}")
        return core.table

    def refresh(self) -> PartitionTable:
        """Ask a member for the table now."""
        with self._lock:
            self._carry_out(self._core.refresh(self._now()))
            self._run_until(lambda: not self._core.is_asking, monotonic() + self.call_timeout_s)
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
            wire = self._wires.get(owner) if owner is not None else None
            if wire is None:
                return self._call_all([Call(partition, request)])[0]
            # The usual course: the next that comes from the owner is the answer. Whatever else comes, or if nothing does
            # for a while, the machine knows how to go on.
            messages, failure = [], None
            try:
                messages = wire.exchange(request, self._patience_s)
                if len(messages) == 1 and (reply := messages[0]).id == request.id and type(reply) is not ErrorReply:
                    self.open_from = request.id + 1
                    return reply
            except EntryTooLarge as error:
                return ErrorReply(request.id, ErrorCode.TOO_LARGE, str(error))
            except (OSError, ProtocolError) as error:
                failure = error
            self._core.was_sent(Call(partition, request), wire.member, started)
            effects = self._lost(wire) if failure is not None else []
            for message in messages:
                effects += self._core.received(wire.member, message, self._now())
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
                effects += self._core.call(call, self._now())
            return self._finish([call.request.id for call in calls], effects)

    def _in_turn(self, request: Any) -> Any:
        """The request with a new number: another thread took one after it and was first."""
        return msgspec.structs.replace(request, id=self.next_id())

    def _finish(self, ids: list[int], effects: list[Effect]) -> list[Any]:
        """Carry on until these calls are answered; their replies. Answers to calls that were interrupted are dropped."""
        answers = self._answers = dict.fromkeys(ids)
        self._carry_out(effects)
        # The machine ends every call by its deadline; the margin is for a defect of the machine itself.
        deadline = monotonic() + self.call_timeout_s + 10
        self._run_until(lambda: None not in answers.values(), deadline)
        return list(answers.values())

    # --- driving the machine ---------------------------------------------------------------------------------------

    def _now(self) -> int:
        return int(monotonic() * 1000)

    def _any_member(self) -> Target:
        view = self._core.view
        wires = [wire.member for wire in self._wires.values()]
        return wires[0] if wires else (view.master if view is not None else Address(""))

    def _wait_ready(self, timeout_s: float) -> None:
        """Until a member has answered. Raises `ConnectError` that says what went wrong with each."""
        core = self._core
        with self._lock:
            self._carry_out(core.time_passed(self._now()))
            self._run_until(lambda: core.partition_count is not None or bool(self._refusals), monotonic() + timeout_s)
        if core.partition_count is not None:
            return
        problems = self._refusals or core.problems
        told = "; ".join(f"{target}: {text}" for target, text in sorted(problems.items())) or "no answer"
        what = "cannot connect" if self._refusals else f"no member was ready within {timeout_s:g} s"
        raise ConnectError(f"{what}: {told}")

    def _run_until(self, is_done: Any, deadline: float) -> None:
        """Receive and let time pass until it is done or the deadline is over."""
        while not is_done():
            now = monotonic()
            if now >= deadline:
                return
            due = self._core.next_deadline()
            wait_s = min(max((due - now * 1000) / 1000, 0.001), 1.0) if due is not None else 0.05
            self._receive(wait_s)
            if due is not None and monotonic() * 1000 >= due:
                self._carry_out(self._core.time_passed(self._now()))

    def _receive(self, wait_s: float) -> None:
        wires = {id(wire): wire for wire in self._wires.values()}
        if not wires and not self._openings:
            sleep(min(wait_s, 0.02))
            return
        if len(wires) == 1 and not self._openings:
            # Kept to a few values, so that the kernel need not be told at every call.
            ready = list(wires.values())
            wait_s = 1.0 if wait_s >= 1.0 else 0.01
        else:
            by_socket = {wire.socket: wire for wire in wires.values()}
            opening = {each.socket: each for each in self._openings.values()}
            answering = [sock for sock, each in opening.items() if each.waits_to_read]
            connecting = [sock for sock, each in opening.items() if not each.waits_to_read]
            readable, writable, _ = select.select([*by_socket, *answering], connecting, [], wait_s)
            for sock in [*readable, *writable]:
                if sock in opening:
                    self._go_on(opening[sock], 0.0)
            self._give_up_late()
            ready = [by_socket[sock] for sock in readable if sock in by_socket]
            wait_s = self._patience_s
        for wire in ready:
            try:
                messages = wire.receive(wait_s)
            except (OSError, ProtocolError):
                self._lose(wire)
                continue
            for message in messages:
                self._carry_out(self._core.received(wire.member, message, self._now()))

    def _carry_out(self, effects: list[Effect]) -> None:
        if self._core.view is not self._view:
            effects = self._forsake() + effects
        for effect in effects:
            if type(effect) is Send:
                self._send(effect.to, effect.message)
            elif type(effect) is Answer and effect.reply.id in self._answers:
                self._answers[effect.reply.id] = effect.reply

    def _send(self, target: Target, message: Any) -> None:
        wire = self._wires.get(target)
        if wire is None:
            self._open_for(target, message)
            return
        try:
            wire.send(message)
        except EntryTooLarge as error:
            self._carry_out(self._core.cannot_send(Send(target, message), str(error)))
        except OSError:
            self._lose(wire)

    def _open_for(self, target: Target, message: Any) -> None:
        """Connect, and send the message then. One who hangs is not waited for: it may have been replaced meanwhile."""
        opening = self._openings.get(target)
        if opening is not None:
            opening.waiting.append(message)
            return
        try:
            opening = Opening(target, self._cluster, self._sender, self._secret)
        except OSError as error:
            self._refused(target, error)
            return
        self._openings[target] = opening
        opening.waiting.append(message)
        self._go_on(opening, self._patience_s)

    def _go_on(self, opening: Opening, wait_s: float) -> None:
        """The opening's socket is ready, or is waited for."""
        target = opening.target
        if self._openings.get(target) is not opening:
            return
        try:
            if wait_s:
                opening.go_on_for(wait_s)
            else:
                opening.go_on()
        except (OSError, RefusedByPeer) as error:
            self._close(opening)
            self._refused(target, error)
            return
        if opening.member is not None:
            del self._openings[target]
            self._opened(Wire(opening, self._max_frame_bytes))
            for message in opening.waiting:
                self._send(target, message)

    def _close(self, opening: Opening) -> None:
        opening.socket.close()
        del self._openings[opening.target]

    def _give_up_late(self) -> None:
        """Nobody is waited for longer than a greeting may take."""
        now = monotonic()
        for opening in [opening for opening in self._openings.values() if now >= opening.ends_at]:
            self._close(opening)
            self._refused(opening.target, TimeoutError("no whole answer to the greeting in time"))

    def _refused(self, target: Target, error: OSError | RefusedByPeer) -> None:
        reason = str(error)
        if isinstance(error, RefusedByPeer):
            self._refusals[target] = reason
        else:
            reason = error.strerror or reason
        self._carry_out(self._core.link_lost(LinkRefused(target, reason), self._now()))

    def _opened(self, wire: Wire) -> None:
        self._wires[wire.target] = wire
        earlier = self._wires.get(wire.member)
        if earlier is not None and earlier is not wire:
            # The member keeps only the newest connection of a client.
            self._lose(earlier)
        self._wires[wire.member] = wire
        self._core.known_as(wire.target, wire.member)

    def _forsake(self) -> list[Effect]:
        """There is another member list: who is not in it is asked nothing any more, not even what is on its way."""
        view = self._view = self._core.view
        effects: list[Effect] = []
        for wire in dict.fromkeys(self._wires.values()):
            if view is not None and wire.member not in view.members:
                wire.reset()
                effects += self._lost(wire)
        for target, opening in list(self._openings.items()):
            if view is not None and is_member(target) and target not in view.members:
                self._close(opening)
                effects += self._core.link_lost(LinkLost(target), self._now())
        return effects

    def _lose(self, wire: Wire) -> None:
        self._carry_out(self._lost(wire))

    def _lost(self, wire: Wire) -> list[Effect]:
        """Close a connection; what is to be done because of it."""
        wire.socket.close()
        effects: list[Effect] = []
        for target in [target for target, other in self._wires.items() if other is wire]:
            del self._wires[target]
            effects += self._core.link_lost(LinkLost(target), self._now())
        return effects
