"""The asyncio client, for any number of tasks: one connection to each member to which it sends requests."""

from __future__ import annotations

import asyncio
import logging
import os
import uuid
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import suppress
from functools import partial
from random import random
from typing import TYPE_CHECKING, Any, NoReturn, overload

from phalanx.client.backlog import Backlog
from phalanx.client.core.client_core import ClientCore
from phalanx.client.core.cluster_affinity import Contact
from phalanx.client.core.pauses import Pauses
from phalanx.client.core.shared_state import wall_ahead_ms
from phalanx.common.errors import ClientClosed, EntryTooLarge, ErrorCode, UnavailableError, UsageError
from phalanx.common.ids import Lost, MemberId, Target, address_of, is_member
from phalanx.common.map_plan import MapPlan
from phalanx.common.seeds import DEFAULT_CLUSTER, DEFAULT_MEMBERS
from phalanx.common.table import PartitionTable
from phalanx.common.words import check_text, quoted
from phalanx.machine.effects import Answer, Effect, Send
from phalanx.machine.inputs import Call, LinkLost, LinkRefused
from phalanx.maps.async_facade import AsyncFacade
from phalanx.maps.async_leases import AsyncLocks
from phalanx.maps.async_map import AsyncMap
from phalanx.maps.dict_formats import NO_SETTINGS
from phalanx.maps.mistakes import HoldsMaps, NeedsAsyncWith, not_connected
from phalanx.maps.own_maps import map_class
from phalanx.maps.requests import CLIENT_CLOSED, OPEN_FROM_EVERY, check_map_name, expect
from phalanx.maps.time_limit import call_limit, connecting_limit
from phalanx.maps.tracing import find_tracing, make_tracing
from phalanx.maps.types import K, TypesOfMaps, V
from phalanx.net.connection import ConnectionGroup
from phalanx.net.deadline_timer import DeadlineTimer
from phalanx.net.flow import BacklogFull
from phalanx.net.forking import FORKED, tell_forks
from phalanx.net.link import Link
from phalanx.net.own_loop import OTHER_LOOP, in_own_loop
from phalanx.net.secret import Secret, find_secret
from phalanx.net.seed_lookups import SeedPlaces
from phalanx.wire.codec import DEFAULT_MAX_FRAME_BYTES
from phalanx.wire.messages import ErrorReply, GetMapNames, Message, NamesReply, TableReply

logger = logging.getLogger("phalanx.client")

DEFAULT_CALL_TIMEOUT_S = 30.0


class AsyncClient(NeedsAsyncWith, AsyncFacade, HoldsMaps):
    """A connection to a cluster, for asyncio. Made by `connect`; close it, or use it as an async context manager. A `Duration` is a
    number of seconds, or a `datetime.timedelta`."""

    _internal = frozenset({"call", "locks", "next_id", "open_from", "refresh", "table", "wait_ready"})

    def __init__(
        self,
        places: SeedPlaces,
        cluster: str,
        call_timeout_s: float,
        max_frame_bytes: int,
        secret: Secret | None = None,
        tracing: bool = False,
    ) -> None:
        self.call_timeout_s = call_timeout_s
        self._cluster = check_text(cluster, "cluster")
        self._sender = f"client/{uuid.uuid4()}"
        self._group = ConnectionGroup(max_frame_bytes, secret)
        self._loop = asyncio.get_running_loop()
        self._core = ClientCore(places.addresses, int(call_timeout_s * 1000), self._cluster, Contact(wall_ahead_ms))
        self._detours = self._core.detours
        self._places = places
        """Where members are looked for."""
        self._tracing = make_tracing(tracing, lambda: places.only_address)
        """What makes spans of calls; None: they are not traced."""
        self._links: dict[Target, Link] = {}
        self._pauses = Pauses(random)
        self._spares: dict[MemberId, Link] = {}
        """Member to the connection to it that is being opened beside the present one, another way (`detours`)."""
        self._queued: dict[Link, Backlog] = {}
        """The requests for each connection that is not open yet; those still wanted are sent when it is open."""
        self._view = self._core.view
        """The view by which connections to former members were closed last."""
        self._futures: dict[int, asyncio.Future[Any]] = {}
        self._last_id = 0
        self.open_from = 0
        """The lowest number of a request that can be under way."""
        self._timer = DeadlineTimer(self._loop, self._on_timer)
        self._refusals: dict[str, str] = {}
        self._is_closed = False
        self._is_forked = False
        """Whether this is the copy of a client that another process uses."""
        self._types = TypesOfMaps(self._map_plan)
        self._locks = self.locks = AsyncLocks(self)
        """The locks that this client holds."""
        self._asking_ended = asyncio.Event()
        """Set when a request for the table has ended: by an answer, a lost connection, or its deadline."""
        tell_forks(self)

    def on_forked(self) -> None:
        """Make the client unusable in a forked process: the connections and the loop are the parent's."""
        self._is_closed = self._is_forked = True

    def __repr__(self) -> str:
        return f"AsyncClient({quoted(str(self._places))}, cluster={quoted(self._cluster)}{', closed' if self._is_closed else ''})"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a client of phalanx.connect holds connections, and cannot be sent to another process: pass the addresses to that process"
        )

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    @overload
    def map(self, name: str, *, dicts: str | None = None) -> AsyncMap[Any, Any]: ...
    @overload
    def map(self, name: str, *, key: type[K], value: type[V], dicts: str | None = None) -> AsyncMap[K, V]: ...
    @overload
    def map(self, name: str, *, key: Any = None, value: Any = None, dicts: str | None = None) -> AsyncMap[Any, Any]: ...
    def map(self, name: str, *, key: Any = None, value: Any = None, dicts: str | None = None) -> AsyncMap[Any, Any]:
        """Return the distributed map of that name; it exists as soon as something is stored in it.

        `key`, `value`: the types of keys and values (docs/how-to/typed-maps.md); None: any that can be stored.
        `dicts`: how dicts are stored, "rows"; or "json", so that programs in other languages read them, too. None: as the map's
        setting `dicts` says; as rows if it has none. Raises `UsageError` if the name is invalid, or a type cannot be used;
        calls about dicts do if `dicts` contradicts the setting.
        """
        made = map_class(AsyncMap, name)(check_map_name(name), self, self._types.of(name, key, value, dicts))
        return made if self._tracing is None else self._tracing.traced(made)

    async def map_names(self, *, with_empty: bool = False) -> list[str]:
        """Return the names of the maps that have entries, sorted.

        `with_empty`: also of maps that had entries before, as far as the members remember.
        """
        table = await self.table()
        requests = [GetMapNames(self.next_id(), with_empty) for _ in table.members]
        calls = [self.call(0, r, member) for r, member in zip(requests, table.members, strict=True)]
        replies = [expect(reply, NamesReply, "map_names") for reply in await asyncio.gather(*calls)]
        return sorted({name for reply in replies for name in reply.names})

    async def close(self) -> None:
        """Release the locks that are held, and close the connections. Calls under way end with an error. In another event loop
        than its own, it is closed in that one. Raises `UsageError` if that does not run."""
        if self._is_forked:
            return
        if asyncio.get_running_loop() is not self._loop:
            await in_own_loop(self._loop, self.close, "this client")
            self._is_closed = True
            return
        if not self._is_closed:
            await self.locks.release_all()
        self._is_closed = True
        self._asking_ended.set()
        self._timer.cancel()
        for link in [*self._links.values(), *self._spares.values()]:
            link.drop()
        self._links.clear()
        self._spares.clear()
        self._queued.clear()
        for effect in self._core.end(CLIENT_CLOSED):
            if isinstance(effect, Answer):
                self._answer(effect.reply)
        futures, self._futures = self._futures, {}
        for request_id, future in futures.items():
            if not future.done():
                future.set_result(ErrorReply(request_id, ErrorCode.INDETERMINATE, CLIENT_CLOSED))
        await asyncio.sleep(0)

    # --- what maps need --------------------------------------------------------------------------------------------

    def next_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def call(
        self, partition: int, request: Any, to: Target | None = None, *, within_ms: int = 0, lost: Lost = ()
    ) -> Awaitable[Any]:
        """Send a request to the owner of a partition, or to the member `to`. Return a future of its one reply.

        `within_ms`: a time limit shorter than `call_timeout_s`; 0: none. `lost`: as in `CallOwners`.
        """
        future: asyncio.Future[Any] = self._loop.create_future()
        if self._is_closed:
            self._check_process()
            future.set_result(ErrorReply(request.id, ErrorCode.UNAVAILABLE, CLIENT_CLOSED))
            return future
        self._check_loop()
        futures = self._futures
        if futures and request.id % OPEN_FROM_EVERY == 0:
            self.open_from = next(iter(futures))
        futures[request.id] = future
        self._carry_out(self._core.call(Call(partition, request, to, within_ms, lost), self._now()))
        if self._timer.handle is None or within_ms or self._core.wants_table:
            self._rearm()
        return future

    async def table(self) -> PartitionTable:
        """Return the newest partition table known; wait for the first one. Raises `UnavailableError`."""
        core = self._core
        self._check_process()
        self._check_loop()  # in another one nobody would hear of a table
        if self._is_closed and core.table is None:
            raise ClientClosed(f"{CLIENT_CLOSED}; use another client")
        if core.table is None:
            core.wants_assignment = True
            await self._wait_for(lambda: core.table is not None, self.call_timeout_s)
        if core.table is None:
            why = core.no_owners or "no member has sent a table of the partitions"
            raise UnavailableError(f"no answer within {self.call_timeout_s:g} s: {why}")
        return core.table

    def _map_plan(self) -> MapPlan:
        """Return the settings of maps by the newest partition table known. Raises `UnavailableError` if none is."""
        if self._core.table is None:
            raise UnavailableError(NO_SETTINGS)
        return self._core.table.maps

    async def refresh(self, within_s: float) -> None:
        """Ask a member for the table now. Return when it has answered, the request has failed, or the time is over."""
        self._check_process()
        self._check_loop()
        self._carry_out(self._core.refresh(self._now()))
        self._rearm()
        if self._core.is_asking:
            self._asking_ended.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._asking_ended.wait(), within_s)

    async def wait_ready(self, timeout_s: float) -> None:
        """Wait until a member answers. Raises `ConnectError` with each member's problem, and `TwoClusters`."""
        core = self._core
        self._carry_out(core.connect(self._now()))
        await self._wait_for(lambda: core.is_connected or core.is_refused_by_all(self._refusals), timeout_s)
        if why_not := core.why_not_connected(self._refusals, timeout_s):
            raise why_not

    @property
    def partition_count(self) -> int:
        """Return how many partitions the cluster has, by the newest table known."""
        return self._core.state.partition_count or 0

    def _check_process(self) -> None:
        """Raise `UsageError` in a forked process."""
        if self._is_forked:
            raise UsageError(f"this client cannot be used here: {FORKED}")

    def _check_loop(self) -> None:
        """Raise `UsageError` in another event loop than the one that its connections belong to."""
        if asyncio._get_running_loop() is not self._loop:
            raise UsageError(f"this client cannot be used here: {OTHER_LOOP}")

    async def _wait_for(self, is_there: Callable[[], bool], timeout_s: float) -> None:
        """Drive the core until the condition holds, or the time is over."""
        deadline = self._loop.time() + timeout_s
        while not is_there() and self._loop.time() < deadline:
            self._learn_seeds()
            self._carry_out(self._core.time_passed(self._now()))
            await asyncio.sleep(0.005)

    def _learn_seeds(self) -> None:
        """Look whether sources of seeds give other addresses, as long as no member has answered what the core wants to know."""
        if self._places.may_change and self._core.wants_table:
            self._places.look()
            self._core.learn_seeds(self._places.addresses)

    # --- driving the machine ---------------------------------------------------------------------------------------

    def _now(self) -> int:
        return int(self._loop.time() * 1000)

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            if type(effect) is Send:
                self._send(effect)
            elif type(effect) is Answer:
                self._answer(effect.reply)
        if self._detours.wanted:
            self._open_spares()

    def _send(self, effect: Send) -> None:
        """Send a message, or queue it while the connection is not open: it may not be wanted any more by then."""
        link = self._link(effect.to)
        try:
            if link.is_up:
                link.send(effect.message)
            else:
                self._queued.setdefault(link, Backlog(self._group)).add(effect.message)
        except EntryTooLarge as error:
            self._carry_out(self._core.cannot_send(effect, str(error)))
        except BacklogFull as error:
            self._carry_out(self._core.cannot_send(effect, str(error), ErrorCode.UNAVAILABLE))

    def _answer(self, reply: Any) -> None:
        future = self._futures.pop(reply.id, None)
        if not self._futures:
            self.open_from = reply.id + 1
        if future is not None and not future.done():
            future.set_result(reply)

    def _link(self, target: Target) -> Link:
        link = self._links.get(target)
        if link is None:
            link = self._links[target] = self._new_link(target, self._detours.way_to(target), self._link_down)
        return link

    def _new_link(self, target: Target, through: MemberId | None, on_down: Callable[[Link, str], None]) -> Link:
        return Link(
            target,
            self._cluster,
            self._sender,
            self._group,
            on_up=self._link_up,
            on_down=on_down,
            on_message=self._received,
            through=through,
            pause_s=partial(self._pauses.next_s, address_of(target)),  # type: ignore[arg-type]  # of a member, or one
        )

    def _open_spares(self) -> None:
        """Begin to open the connections that the core wants beside the present ones."""
        wanted, self._detours.wanted = self._detours.wanted, []
        for member, through in wanted:
            if member not in self._spares and not self._is_closed:
                self._spares[member] = self._new_link(member, through, self._spare_down)

    def _spare_up(self, link: Link) -> None:
        """Let such a connection take the place of the one before: the member has closed that."""
        del self._spares[MemberId(link.target)]
        if (earlier := self._links.get(link.target)) is not None:
            earlier.break_off()
            self._link_down(earlier, "it is reached another way")
        self._links[link.target] = link

    def _spare_down(self, link: Link, reason: str) -> None:
        if self._spares.get(MemberId(link.target)) is link:
            del self._spares[MemberId(link.target)]
        else:
            self._link_down(link, reason)

    def _link_up(self, link: Link) -> None:
        """Register an open connection under its member's identity, too, and send the requests still wanted."""
        if self._spares.get(MemberId(link.target)) is link:
            self._spare_up(link)
        if link.member is not None:
            self._links.setdefault(link.member, link)
            self._core.known_as(link.target, link.member, link.through)
            self._pauses.greeted(address_of(link.member))
            self._pauses.greeted(address_of(link.target))  # type: ignore[arg-type]  # of a member, or one
            self._tell_remarks()
        queue = self._queued.pop(link, None)
        for message in queue.messages if queue is not None else ():
            if self._core.is_current_try(message):
                self._send(Send(link.target, message))

    def _link_down(self, link: Link, reason: str) -> None:
        self._queued.pop(link, None)
        names = [target for target, other in self._links.items() if other is link]
        for target in names:
            del self._links[target]
        if self._is_closed:
            return
        if link.broke_protocol:
            logger.warning("closing the connection to %s: %s", link.member or link.target, reason)
        if link.was_refused_by_peer or link.is_unproved or link.is_misled:
            self._refusals[link.target] = reason
        for target in names:
            event = LinkLost(target) if link.is_up else LinkRefused(target, reason)
            self._carry_out(self._core.link_lost(event, self._now()))
        self._asking_ended.set()
        self._rearm()

    def _forsake(self) -> None:
        """Drop connections to members outside the new view. This cancels their requests, also sent ones."""
        view = self._view = self._core.view
        for link in dict.fromkeys(self._links.values()):
            who = link.member or link.target
            if view is not None and is_member(who) and who not in view.members:
                link.reset()
                link.drop()
                self._link_down(link, "it is not a member any more")
        for member in [member for member in self._spares if view is not None and member not in view.members]:
            self._spares.pop(member).break_off()

    def _received(self, link: Link, message: Message) -> None:
        core = self._core
        effects = core.received(link.member or link.target, message, self._now())
        if core.view is not self._view:
            self._forsake()
        self._carry_out(effects)
        if type(message) is TableReply:
            self._tell_remarks()
        if not core.is_asking:
            self._asking_ended.set()
        if core.wants_table:
            self._rearm()

    def _tell_remarks(self) -> None:
        for remark in self._core.take_remarks():
            logger.warning("%s", remark)

    def _rearm(self) -> None:
        self._timer.follow(self._core.next_deadline() if not self._is_closed else None)

    def _on_timer(self) -> None:
        self._learn_seeds()
        self._carry_out(self._core.time_passed(self._now()))
        self._asking_ended.set()
        self._rearm()


class _Connecting(NeedsAsyncWith):
    """The result of `connect`: await it to get a client, or use it with `async with`."""

    def __init__(
        self,
        members: str | Sequence[str],
        cluster: str,
        timeouts: tuple[float, float],
        max_frame_bytes: int,
        secret: Secret | None,
        tracing: bool,
    ) -> None:
        self._places = SeedPlaces(members)
        self._arguments = (self._places.cluster_or(cluster), timeouts[1], max_frame_bytes, secret, tracing)
        self._connect_timeout_s = timeouts[0]
        self._client: AsyncClient | None = None

    def __repr__(self) -> str:
        return f"<phalanx.connect({quoted(str(self._places))}): not connected yet>"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            raise not_connected(name)

    async def _connect(self) -> AsyncClient:
        left_s = await self._places.wait_async(self._connect_timeout_s)
        client = AsyncClient(self._places, *self._arguments)
        try:
            await client.wait_ready(left_s)
        except BaseException:
            await client.close()
            raise
        return client

    def __await__(self) -> Generator[Any, None, AsyncClient]:
        return self._connect().__await__()

    async def __aenter__(self) -> AsyncClient:
        self._client = await self._connect()
        return self._client

    async def __aexit__(self, *error: object) -> None:
        if self._client is not None:
            await self._client.close()


def connect(
    members: str | Sequence[str] = DEFAULT_MEMBERS,
    *,
    cluster: str = DEFAULT_CLUSTER,
    connect_timeout_s: float | None = None,
    call_timeout_s: float = DEFAULT_CALL_TIMEOUT_S,
    max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES,
    secret: str | None = None,
    secret_file: str | os.PathLike[str] | None = None,
    tracing: bool | None = None,
) -> _Connecting:
    """Connect to a cluster through any of its members: `host:port,host:port`, or a list of such; `phalanx://host1,host2/cluster`, with
    port 5701 where none is given; also `dns:NAME:PORT`, all addresses of a name, and `file:PATH`, a file with one address a line:
    both are asked again when no member answers. Left out: 127.0.0.1:5701.

    `cluster`: the cluster's name, if the address has none. `secret_file` is the file with the cluster's secret; by default the variable PHALANX_SECRET_FILE names it. `tracing`: whether
    calls of maps are spans of OpenTelemetry; None: what the variable PHALANX_TRACING says. Use the result with `async with`, or
    await it and close the client yourself. Raises `UsageError` for a malformed address,
    `ConnectError` if no member answers within `connect_timeout_s` (by default 10 s, but no more than `call_timeout_s`),
    or if the cluster has another name or secret, and `TwoClusters` if the addresses belong to two clusters.
    """
    call_timeout_s = call_limit(call_timeout_s)
    timeouts = connecting_limit(connect_timeout_s, call_timeout_s), call_timeout_s
    secret_found, is_traced = find_secret(secret, secret_file), find_tracing(tracing)
    return _Connecting(members, cluster, timeouts, max_frame_bytes, secret_found, is_traced)
