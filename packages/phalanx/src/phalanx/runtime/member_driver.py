"""The asyncio driver of one `Node` after another on one address: inputs in, effects out.

Inputs come from connections, timers and the embedding program; effects go to connections, futures and the event log. No
rule of the protocol is decided here. One turn of the loop can bring many inputs; all their messages leave in one write
per connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import Callable
from contextvars import Context
from typing import Any

import msgspec

import phalanx
from phalanx.common.durations import Duration, to_seconds
from phalanx.common.errors import ErrorCode, JoinFailed, MemberFailed
from phalanx.common.ids import Address, address_of, member_id
from phalanx.common.view import MembersView
from phalanx.machine.effects import Answer, Effect, Finished, Record, Send, TableChanged, ViewChanged
from phalanx.machine.inputs import Input, LeaveWanted, Started, TimePassed
from phalanx.maps.time_limit import LONGEST_S
from phalanx.net.connection import ConnectionGroup, Dial
from phalanx.net.deadline_timer import DeadlineTimer
from phalanx.net.member_threads import enter, leave
from phalanx.net.own_loop import in_own_loop
from phalanx.node.node import Node
from phalanx.node.step import take_step
from phalanx.runtime.accepted_connections import AcceptedConnections
from phalanx.runtime.connections.call_statistics import CallStatistics
from phalanx.runtime.connections.host_counter import HostCounter
from phalanx.runtime.connections.links import Links
from phalanx.runtime.connections.overload import Overload
from phalanx.runtime.discovery.port_range import find_members
from phalanx.runtime.discovery.presence import Presence
from phalanx.runtime.disk.disk_driver import DiskDriver, open_disk
from phalanx.runtime.disk.member_disk import UNWRITTEN
from phalanx.runtime.disk.reading_progress import ReadingProgress
from phalanx.runtime.endpoints.measured_grid import grid_for_endpoints
from phalanx.runtime.http_port import make_http_server
from phalanx.runtime.local.embedded import EmbeddedCaller, EmbeddedMap
from phalanx.runtime.logs.event_log import EventLog
from phalanx.runtime.logs.safe_logger import SafeLogger
from phalanx.runtime.member_status import MemberStatus
from phalanx.runtime.process.failure import MemoryShortage, tell_failure
from phalanx.runtime.settings.config import Config
from phalanx.runtime.settings.memory_limit import available_memory, limits_of
from phalanx.runtime.statistics.activity import Activity
from phalanx.runtime.statistics.event_figures import EventFigures
from phalanx.runtime.statistics.measurements import Measurements
from phalanx.runtime.statistics.memory_use import MemoryUse
from phalanx.runtime.statistics.recent_events import RecentEvents
from phalanx.runtime.statistics.slow_turns import SlowTurns
from phalanx.runtime.statistics.slow_updates import SlowUpdates
from phalanx.wire.join_events import Joined, Left, Stopped
from phalanx.wire.messages import ErrorReply
from phalanx.wire.view_events import ClusterStarted

logger = SafeLogger("phalanx.member")

REARM_PAUSE_S = 0.001
"""The pause between two reads of the node's deadline. A read after each input would cost a third of serving a request;
deadlines are tens of milliseconds away, or more."""

EVENTS_WRITTEN_WITHIN_S = 5.0
"""How long a stopping member waits for its event log: a disk that hangs does not prevent the stop."""

FRAME_SLACK_BYTES = 64 * 1024
"""What members add to the callers' frame limit: a write that fits a caller's frame must fit the one to backups."""


class MemberDriver(MemberStatus):
    """A member without the calls of the embedding program (`runtime.member.Member` adds them)."""

    _internal = frozenset(
        {
            *("accepted", "break_off", "caller", "config", "crash", "distrusted", "event_figures", "fail", "feed"),
            *(
                "flush_events",
                "now",
                "own_addresses",
                "recent_events",
                "refused_strangers",
                "start",
                "untraced_map",
                "wait_closed",
            ),
        }
    )

    def __init__(
        self,
        config: Config,
        on_failure: Callable[[BaseException], None] | None = None,
        dial: Dial | None = None,
    ) -> None:
        """`on_failure`: called when this member fails, to end the process; None: the process continues. `dial`: what it opens
        connections to other members with; None: its event loop.
        """
        self.config = config
        self.refused_strangers = HostCounter()
        """Counts the connections that were refused because of the secret, because they were dialled to another member,
        or because no greeting came; and those that this member gave up because they were forwarded to a wrong peer."""
        self.own_addresses: frozenset[Address] = frozenset()
        """The addresses under which others can dial this member, normalised, without its local ones."""
        self.slow_turns = SlowTurns(config.slow_turn_warning_ms)
        """Counts the turns in which this member was busy for long."""
        self.memory_shortage = MemoryShortage()
        self._loop = asyncio.get_running_loop()
        self._context = Context()
        """That of its timers: a member outlives the call that starts it, and that in which it takes an input."""
        self._on_failure = on_failure
        self._is_over = False
        self._events = EventLog(config)
        self._presence = Presence()
        self.overload = Overload(lambda: self.address, self._loop.time)
        """Counts what was refused or dropped because buffers, places and descriptors are bounded."""
        self._group = ConnectionGroup(
            config.max_frame_bytes + FRAME_SLACK_BYTES,
            config.find_secret(),
            config.limits,
            self.overload.dropped,
            self.overload.no_descriptor,
            self.fail,
            dial,
        )
        self.event_figures = EventFigures()
        """What is counted of the events that this process has recorded."""
        self.recent_events = RecentEvents() if config.http_port is not None else None
        """The last of them, for the console; None: it has none."""
        self._statistics = CallStatistics() if config.http_port is not None else None
        """The calls of clients; None: they are not counted."""
        memory_use = MemoryUse(limits_of(config.memory_limit, available_memory()))
        activity = Activity(self._statistics, self.event_figures.counts)
        self._measurements = Measurements(
            memory_use, activity, self._events, self._group, self.feed,
            lambda: self.disk.report() if self.disk is not None else None,
        )  # fmt: skip
        self._http = make_http_server(self, config, self._statistics) if self._statistics is not None else None
        self._disk: DiskDriver | None = None
        self._reading: ReadingProgress | None = None
        self._links = Links(self, self._group, self._statistics)
        self._view: MembersView | None = None
        """The node's view after the last input."""
        self._has_other_cluster = False
        """Whether its view or table is another one than endpoints have heard of."""
        self._timer = DeadlineTimer(self._loop, lambda: self._group.call(self.feed, TimePassed()))
        self._rearm_scheduled = False
        self._clock_offset_ms = 0
        """How far the grid's clock was ahead of `now` when the last incarnation ended."""
        self._has_left = False
        self._is_to_leave = self._keeps = False
        self._started: asyncio.Future[None] = self._loop.create_future()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self.caller = EmbeddedCaller(config, self.feed, self.now, self.fail, self._measurements.measure_memory)
        grid = grid_for_endpoints(self.caller, config, self.overload.failed, self._statistics)
        self.accepted = AcceptedConnections(self, self._group, grid, self._statistics)

    def untraced_map(self, name: str) -> EmbeddedMap[Any, Any]:
        """Return the map of that name for calls that are not the program's: they are never spans."""
        return EmbeddedMap(name, self.caller)

    # --- start and restart -----------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Listen, then join the cluster. Raises `UsageError` if it cannot listen at the address, and `JoinFailed`."""
        try:
            if self._http is not None:
                self._http.bind()
            await self._loop.create_task(self._find_and_start(), context=Context())
        except BaseException:
            if self._http is not None:
                self._http.end_soon()
            raise

    async def _find_and_start(self) -> None:
        lock = None
        if len(self.config.ports) > 1 and not self.config.seeds:
            seeds, lock = await find_members(self.config)
            self.config = msgspec.structs.replace(self.config, seeds=seeds)
        try:
            await self._start(self.config)
        finally:
            if lock is not None:
                lock.release()

    async def _start(self, config: Config) -> None:
        if config.data_dir is not None:
            self._reading = ReadingProgress()
            if self._http is not None:
                await self._http.start()  # probes ask how far it is
            disk, config = await open_disk(config, config.data_dir, phalanx.__version__, self._reading)
            self.config = config
            self._disk = DiskDriver(disk, self, self._group, self.accepted.endpoints)
            self.caller.before_output = disk.write_for_program
        try:
            await self._listen_and_join(config)
        except BaseException:
            if self._disk is not None:
                self._disk.end(is_orderly=False)
                await self._disk.wait_closed()
            raise

    async def _listen_and_join(self, config: Config) -> None:
        port = await self._presence.open(config, self.accepted.accept, self.feed)
        enter(self)
        for warning in config.warnings():
            logger.warning("%s", warning)
        self._new_incarnation(config, port)
        plan = self.accepted.places.plan
        logger.debug("%s has places for %d clients and, in the %d descriptors kept for them, %d other members",
                    self.address, plan.clients, plan.members, plan.members // 2)  # fmt: skip
        try:
            if self._http is not None:
                await self._http.start()  # before it has joined: probes ask how far it is
                self._http.begin()
            await asyncio.shield(self._started)
        except BaseException:
            await self.stop(drain=False)
            raise

    def _new_incarnation(self, config: Config, port: int, after: Finished | None = None) -> None:
        self._clock_offset_ms = max(self._clock_offset_ms, int(time.time() * 1000) - self.now())
        of_node = config
        if config.functions and config.update_warning_ms:
            slow = SlowUpdates(config.update_warning_ms, self._events.record)
            of_node = msgspec.structs.replace(config, functions=slow.measured(config.functions))
        disk = self.disk
        before = after if after is not None or disk is None else disk.restoration
        self.node = Node(
            member_id(config.address(port), str(uuid.uuid4())),
            of_node,
            self._clock_offset_ms,
            kept=before.kept if before is not None else None,
            carried=before.carried if before is not None else None,
            release_name=phalanx.__version__,
            log=disk.log if disk is not None else None,
        )
        if self._disk is not None and after is None:
            self._disk.begin(config.disk_timeout_ms / 1000)
        self._reading = None
        self.own_addresses = config.own_addresses(port)
        self.caller.attach(self.node)
        self._events.begin(self.node.this)
        self._links.begin(time.time() + config.join_attempts * config.join_timeout_ms / 1000)
        self.feed(Started(before.past if before is not None else None))
        self._presence.look_for_seeds(lambda: self.view, self._group.call)
        if not self._is_over:
            self._measurements.begin(self.node.grid.memory, lambda: self.accepted.client_count)
        if self._is_to_leave:
            self.feed(LeaveWanted(self._keeps))

    # --- inputs ----------------------------------------------------------------------------------------------------

    def now(self) -> int:
        """Return the milliseconds of the loop's monotonic clock, read now.

        The loop's own time is that of its last turn: a member that was paused in the middle of a turn would not notice
        it.
        """
        return int(time.monotonic() * 1000)

    def feed(self, event: Input) -> None:
        """Give the node an input, and carry out the effects. Nothing happens after the member has ended."""
        if self._is_over:
            return
        began_s = time.monotonic()
        take_step(self.node, event, int(began_s * 1000), self._carry_out_all, self.fail)
        ended_s = time.monotonic()
        if ended_s - began_s > self.slow_turns.limit_s:
            with contextlib.suppress(Exception):  # the warning is only for people
                self.slow_turns.note(self.address, event, ended_s - began_s, ended_s)

    def _carry_out_all(self, effects: list[Effect]) -> None:
        clients = self.accepted.clients
        for effect in effects:
            if type(effect) is Send:
                client = clients.get(effect.to)
                if client is not None:
                    client.reply(effect.message)
                else:
                    self._links.send(effect.to, effect.message)
            else:
                self._carry_out(effect)
        if not self._rearm_scheduled:
            self._rearm_scheduled = True
            # One timer sets the next: they would hand the context variables of one call on without end.
            self._loop.call_later(REARM_PAUSE_S, self._group.call, self._rearm, context=self._context)
        if self._disk is not None:
            self._disk.follow_input()

    def _note_view(self, view: MembersView | None) -> None:
        before, self._view = self._view, view
        if view is not None and (warning := self.accepted.places.warning(len(view.members))):
            logger.warning("%s: %s", self.address, warning)
        if view is not None and before is not None:
            self._links.forget_removed(before, view)
        if view is not None:
            self.accepted.passed_on.keep_to(view)
            self.accepted.places.note_view()

    def _rearm(self) -> None:
        """Set the timer that wakes the node at its next deadline."""
        self._rearm_scheduled = False
        if self._disk is not None:
            self._disk.look()
        if self._has_other_cluster:
            self._has_other_cluster = False
            self.accepted.endpoints.note_cluster()
        self._timer.follow(self.node.next_deadline() if not self._ended.done() else None)

    # --- effects ---------------------------------------------------------------------------------------------------

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Answer(reply):
                if self._disk is not None and not self._disk.disk.write():
                    reply = ErrorReply(reply.id, ErrorCode.INDETERMINATE, UNWRITTEN)
                self.caller.answered(reply)
            case Record(event):
                self._events.record(event)
                self.event_figures.note(event)
                if self.recent_events is not None:
                    self.recent_events.add(self.node.this, event)
                if isinstance(event, ClusterStarted) and not self._started.done():
                    self._started.set_result(None)
                self._has_left = self._has_left or isinstance(event, Left | Stopped)
                if isinstance(event, Joined) and event.members == (self.node.this,):
                    self._presence.warn_of_others(self.node.this)
            case ViewChanged(view):
                self._has_other_cluster = True
                self._note_view(view)
            case TableChanged():
                self._has_other_cluster = True
            case Finished():
                self._loop.call_soon(self._group.call, self._on_finished, effect)

    def _on_finished(self, effect: Finished) -> None:
        """Begin the next incarnation on the same address, or end: the present one is over."""
        if self._ended.done():
            return
        if not effect.rejoin:
            lost = self.disk.lost if self.disk is not None and not self._is_to_leave else None
            self._end(JoinFailed(effect.reason) if effect.failed else lost)
            return
        port = int(self.address.rpartition(":")[2])
        logger.info("%s rejoins through %s", self.address, ", ".join(map(address_of, effect.rejoin)))
        self._drop_connections()
        # The next incarnation continues the grid's clock, not this machine's.
        self._clock_offset_ms = self.node.clock.offset_ms
        self._new_incarnation(self.config, port, effect)

    def _end(self, error: Exception | None) -> None:
        """Stop for good, with the error that `wait_ended` raises, or None."""
        if self._ended.done():
            return
        self._is_over = True
        leave(self)
        for waiting in (self._started, self._ended):
            if waiting.done():
                continue
            if error is not None:
                waiting.set_exception(error)
                waiting.exception()
            else:
                waiting.set_result(None)
        self._timer.cancel()
        self._measurements.end()
        if self._http is not None:
            self._http.end_soon()
        self._drop_connections()
        self.caller.detach()
        self._events.close()
        is_orderly = error is None and self._has_left
        if self._disk is not None:
            self._disk.end(is_orderly=is_orderly, on_closed=self._stop_listening)
        if self._disk is None or not is_orderly:
            self._stop_listening()

    def _stop_listening(self) -> None:
        """Give up the address. A member that has stopped keeps it until its last sync: whoever finds nobody there can cut the power."""
        self._presence.close()
        self.accepted.drop()

    def fail(self, error: BaseException) -> None:
        """End at once, as in a crash, after an unexpected error (see `failure`)."""
        if self._is_over:
            logger.error("%s had ended when something else failed: %r", self.address, error)
            return
        self._is_over = True
        if self._on_failure is not None:
            self._on_failure(error)
        failed = MemberFailed(f"the member has failed: {type(error).__name__}: {error}")
        failed.__cause__ = error
        # Each of these steps is done even if the one before it fails: perhaps there is no memory left.
        with contextlib.suppress(Exception):
            tell_failure(self, error)
        with contextlib.suppress(Exception):
            self.break_off()
        with contextlib.suppress(Exception):
            self._end(failed)

    def crash(self) -> None:
        """End at once, as if the process was killed: nothing is handed over, and what was not sent is lost. For tests."""
        if not self._is_over:
            self._is_over = True
            self.break_off()
            self._end(None)

    def _drop_connections(self) -> None:
        self._links.drop()
        self.accepted.drop()

    def break_off(self) -> None:
        """Abort connections instead of closing them: a part of a message must not be sent."""
        self._links.break_off()
        self.accepted.break_off()

    def distrusted(self, where: str, reason: str) -> None:
        """Count a connection that was refused, from or to `where`, and log it from time to time."""
        count = self.refused_strangers.count(where, self._loop.time())
        if count:
            logger.warning("%s refused %d connections %s, the last because %s", self.address, count, where, reason)

    async def stop(self, *, drain: bool | None = None, timeout_s: Duration = 60.0) -> None:
        """Leave the cluster and stop. `drain`: True: first hand all replicas over to other members; False: at once; None: a member with a
        folder lets others own what they have, too, and comes back with what the folder has. One without drains.

        If that takes longer than `timeout_s` seconds, the member stops nevertheless, and its backups take over as
        after a crash. In another event loop than its own, it is stopped in that one. Raises `UsageError` in a process that was
        forked from the member's, and if its loop does not run.
        """
        self.caller.check_process()
        if asyncio.get_running_loop() is not self._loop:
            await in_own_loop(self._loop, lambda: self.stop(drain=drain, timeout_s=timeout_s), "this member")
            return
        timeout_s = to_seconds("timeout_s", timeout_s, "0 or more, at most a year", at_most=LONGEST_S, may_be_zero=True)
        if not self._ended.done():
            await self.caller.locks.release_all()
        if drain is not False and not self._ended.done():
            self._is_to_leave, self._keeps = True, drain is None and self.keeps_data
            self._events.expect_leave()
            self.feed(LeaveWanted(self._keeps))
            await asyncio.wait([self._ended], timeout=timeout_s)
            if not self._ended.done():
                logger.warning(
                    "%s could not hand over everything within %g s: it leaves with %d replicas that it holds%s",
                    self.address, timeout_s, self.replicas_held, ", which stay in its folder" if self.keeps_data else "",
                )  # fmt: skip
        self._end(None)
        await self.wait_closed()

    async def wait_closed(self) -> None:
        """Wait until a member that has ended has written all that it still writes, and has given up its address."""
        await asyncio.sleep(0)  # the dropped connections close
        if self._http is not None:
            await self._http.wait_ended()
        await self._events.wait_written(EVENTS_WRITTEN_WITHIN_S)
        if self._disk is not None:
            await self._disk.wait_closed()
        self._stop_listening()

    async def wait_ended(self) -> None:
        """Wait until this member has ended.

        Raises the error that ended it, if any: `JoinFailed`, or `MemberFailed` if it ended as in a crash after an
        unexpected error.
        """
        await asyncio.shield(self._ended)

    def flush_events(self, within_s: float) -> bool:
        """Close the event log, and wait in this thread for `within_s` at most. Return whether all of it is written."""
        return self._events.flush(within_s)
