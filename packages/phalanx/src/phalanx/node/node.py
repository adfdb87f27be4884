"""One member: its machines side by side behind one door.

`handle(input, now)` is the only way in for messages, connections, calls and time, and the effects that it returns are the
only way out. Beside it, callers within the process read and write entries of owned partitions at once (`local_access`), if
no other member has to know. This file composes; it holds no rule. Messages go to the machines that have a route for them, and the facts that machines tell go to those that are
interested (`_interests`).
"""

from __future__ import annotations

from collections.abc import Set
from typing import assert_never

from phalanx.calls.call_router import CallRouter, why_no_owners
from phalanx.common.clock import GridClock
from phalanx.common.config import NodeConfig
from phalanx.common.errors import ErrorCode
from phalanx.common.former_incarnation import DataHandover
from phalanx.common.ids import MemberId, Millis, Target, is_client
from phalanx.common.invariant import invariant
from phalanx.common.quorum import QuorumHandover
from phalanx.common.table import PartitionTable
from phalanx.common.versions import this_release
from phalanx.common.view import MembersView
from phalanx.grid.merge.loss_reports import LossReports
from phalanx.grid.merge.merging import FIRST_ID, DataMerging
from phalanx.grid.merge.orphaned_replicas import OrphanedReplicas
from phalanx.grid.replication.ownership import Ownership
from phalanx.grid.replication.protection import ProtectionGuard
from phalanx.grid.replication.replica_log import ReplicaLog
from phalanx.grid.routes import grid_routes
from phalanx.grid.service import GridService
from phalanx.machine.alarms import Alarm, Alarms
from phalanx.machine.effects import Effect, TableChanged, ViewChanged
from phalanx.machine.facts import (
    DisksKnown,
    EvacuationOver,
    IncarnationOver,
    LeaveAsked,
    MembershipChanged,
    MemoryKnown,
    NewTable,
    NewView,
    OrphansMerged,
    ReplicasHandedOver,
    ReplicasSetAside,
    RestartWaited,
    RowsDoubted,
    TableConfirmed,
)
from phalanx.machine.inputs import (
    ActivityMeasured,
    Call,
    CopyToDisk,
    DiskChecked,
    DiskMeasured,
    EventLogChecked,
    Input,
    LeaveWanted,
    LinkLost,
    LinkRefused,
    LinkUp,
    MemoryMeasured,
    RareInput,
    Received,
    ReceivedTogether,
    SeedsFound,
    Started,
    Synced,
    TimePassed,
)
from phalanx.machine.interests import Facts, Interest, interest, interest_in_both
from phalanx.machine.local_context import LocalContext
from phalanx.machine.outbox import Outbox
from phalanx.machine.routes import Handler, handlers_of, route_each
from phalanx.membership.service import MembershipService
from phalanx.node.counting import Counts
from phalanx.node.departure_reasons import DepartureReasons
from phalanx.node.history import History
from phalanx.node.incarnation_end import last_record
from phalanx.node.inquiries import HistoryInquiries, Inquiries
from phalanx.node.message_kinds import OF_ONE_PARTITION, OF_PARTITIONS, SET_ALARMS
from phalanx.node.operator_requests import OperatorRequests
from phalanx.node.pause_detection import PauseDetection
from phalanx.node.recent_activity import RecentActivity
from phalanx.node.safety import SafetyInquiries
from phalanx.node.sender_rules import OF_CLIENTS, OF_MEMBERS_ONLY, admits_stranger
from phalanx.node.sync_gate import SyncGate
from phalanx.node.table_wish import TableWish
from phalanx.partition.coordinator.coordinator import CoordinatorQuestions, PartitionCoordinator
from phalanx.partition.installed_table import InstalledTable
from phalanx.wire import messages as m
from phalanx.wire.disk_records import TableRecord
from phalanx.wire.message import WireMessage
from phalanx.wire.table_messages import StoredSide

SERVED_IN_A_TURN = 64
"""How many parked requests one turn serves if each has one key; one with several keys counts as all. All at once could
take seconds.
"""


class Node:
    """One incarnation of one member, from its start to its end."""

    def __init__(
        self,
        this: MemberId,
        config: NodeConfig,
        clock_offset_ms: Millis = 0,
        *,
        kept: DataHandover | None = None,
        carried: QuorumHandover | None = None,
        release_name: str = "",
        log: ReplicaLog | None = None,
    ) -> None:
        """`clock_offset_ms`: how far the driver's wall clock is ahead of the `now` that it gives with each input.
        `kept`, `carried`: what the incarnation before this one of the same process has handed over (`Finished`).
        `release_name`: the version of the package, for people. `log`: that of the member's folder; None: it has none.
        """
        orphaned = kept if isinstance(kept, OrphanedReplicas) else OrphanedReplicas()
        restored = orphaned.take_restored()
        config = restored.configure(config) if restored is not None else config
        self.this, self.config = this, config
        self.clock = GridClock(clock_offset_ms)
        self._out = Outbox(this)
        voter = carried.voter if carried is not None else MemberId("")
        read = restored.side if restored is not None else None
        store = log.store if log is not None else None
        local = LocalContext(this, config, this_release(release_name), self._out, self.clock, store, read, voter)
        self.membership = MembershipService(local, carried)
        ownership = Ownership(this, config, log)
        majority = self.membership.majority
        guard = ProtectionGuard(ownership.table.maps, config.heartbeat_interval_ms, majority, self._out)
        self.grid = GridService(ownership, guard, self.clock, self._out)
        self.installed_table = InstalledTable(local, self.grid)
        self.installed_table.known_number = lambda: majority.quorum.known_number
        self.pause_detection = PauseDetection(config, self.membership, self.installed_table, self._out)
        self.serves = self.pause_detection.serves
        """Returns whether this member knows that it is a member, also at a moment before the input that follows."""
        history = History()
        self._departures = DepartureReasons(history, self._out)
        questions = CoordinatorQuestions(
            self.pause_detection.holds_until,
            self._departures.of,
            self._has_entries,
            majority.quorum.missing_voters,
            majority.quorum.has_table,
            majority.quorum.view_number,
            majority.quorum.voters_besides,
            majority.quorum.is_majority,
        )
        self.coordinator = PartitionCoordinator(local, self.installed_table, questions)
        self.data_merging = DataMerging(orphaned, ownership, self.grid.follower, self.grid.copies)
        if restored is not None:
            self.grid.follower.restore(restored)
        self.grid.held.kept = orphaned.all_replicas
        self._released = self.grid.parked.released
        self._room = SERVED_IN_A_TURN
        """How many parked requests can still be served in this turn."""
        self.calls = CallRouter(config.call_timeout_ms, self._out)
        table_wish = TableWish(self._wants_table, self.coordinator.want_table, config.retry_interval_ms)
        self.loss_reports = LossReports(this, orphaned, self.clock, self._out)
        self._counts = Counts(self.membership, self.grid, orphaned, self._out)
        self._activity = RecentActivity(self._out)
        self._safety = SafetyInquiries(self.membership, self.grid, orphaned, self._out)
        handlers = handlers_of(
            self.membership.routes(),
            self.pause_detection.routes(),
            self.installed_table.routes(),
            self.coordinator.routes(),
            grid_routes(self.grid),
            self.data_merging.routes(),
            Inquiries(local, self.membership, self.installed_table, self.coordinator).routes(),
            HistoryInquiries(history, self.membership, self._out).routes(),
            self._activity.routes(),
            self._safety.routes(),
            self._counts.routes(),
            OperatorRequests(local, self.membership, self.coordinator, self.grid.guard).routes(),
            route_each(m.Reply, self._on_reply),
        )
        self._handlers = self._awake = {
            kind: handler if kind in SET_ALARMS else self._moving(handler) for kind, handler in handlers.items()
        }
        self._members: frozenset[MemberId] = frozenset()
        """The members of the installed view."""
        self._facts = Facts(self._out.facts, self._interests())
        self.alarms = Alarms(
            [
                self.pause_detection.review,
                Alarm(self.membership, others_follow=True),
                Alarm(self.coordinator, others_follow=True),
                *self.grid.alarms(),
                Alarm(self.installed_table),
                self.calls.alarm,
                self.data_merging.alarm,
                self._counts.alarm,
                Alarm(self.loss_reports),
                Alarm(table_wish, others_follow=True),
            ]
        )
        self._driver_has: tuple[MembersView | None, PartitionTable] = None, self.installed_table.table
        """The view and the table that the driver was given last."""
        self._has_moved = True
        """Whether this input can have changed when machines are due that do not set their alarms themselves."""
        self._has_ended = False
        self._sync_gate = SyncGate(self.this, self.log)
        majority.quorum.has_synced = self._sync_gate.has_synced
        self._is_serving = False
        """Whether the partitions are assigned, and this incarnation is not over."""

    @property
    def log(self) -> ReplicaLog:
        """Return where each change of a replica goes: that of the member's folder, if it has one."""
        return self.grid.ownership.log

    def __repr__(self) -> str:
        return f"Node({self.membership!r}, {self.installed_table!r}, {self.coordinator!r}, {self.grid!r}, {self.calls!r}, {self.data_merging!r})"

    def handle(self, event: Input, now: Millis) -> list[Effect]:
        """Take one input; return the effects that it requires, in order. `now` never goes backwards."""
        out, pauses = self._out, self.pause_detection
        if now > pauses.late_after and not self._has_ended and pauses.notice(now):
            self._handlers = self._awake | dict(pauses.refusals())
        pauses.last = now
        self._room = SERVED_IN_A_TURN
        if isinstance(event, Received):
            self._on_message(event.sender, event.message, now)
        elif isinstance(event, ReceivedTogether):
            for message in event.messages:
                self._on_message(event.sender, message, now)
        elif isinstance(event, Call):
            self.calls.begin_call(event, now)
            if not self._is_serving:
                if event.to is None:  # a request to one named member only looks, and assigns nothing
                    self.coordinator.want_table(now)
                self._follow_up(now)
            elif out.loopback:
                self._follow_up(now)
        elif isinstance(event, TimePassed):
            self.alarms.ring(now)
            self._follow_up(now)
        elif isinstance(event, Synced):
            self.grid.on_synced(event.lsn, now)
            self._has_moved |= self.membership.majority.on_synced(now)
            self._follow_up(now)
        else:
            self._handle_other(event, now)
            self._has_moved = True
            self._follow_up(now)
        if self._handlers is not self._awake and not pauses.is_awake and pauses.wakes_up(now) and not self._has_ended:
            self._handlers = self._awake
        self.grid.follower.acknowledge()
        if out.recorded:
            self._departures.history.add(out.recorded, now)
        if self.log.is_on and (record := self.membership.view_log.take_record()) is not None:
            self._sync_gate.add(record)
            if self.membership.majority.quorum.awaits(self.this):
                self.log.want_sync()
        effects = out.take()
        if self._has_moved:
            self.alarms.follow()
            self._has_moved = not self._is_serving  # until then any call can wish for a table
            effects = self._with_changes(effects)
        return self._sync_gate.pass_on(effects) if self.log.store is not None and self._sync_gate.is_closed else effects

    def _with_changes(self, effects: list[Effect]) -> list[Effect]:
        """Return the effects of an input, with a new view before them and a new table behind them."""
        view, table = self.membership.view, self.installed_table.table
        if table is not self._driver_has[1]:
            version = self.installed_table.installed_version
            self._sync_gate.add_table(TableRecord(table, self.this), version, is_own=self.membership.is_master)
            effects = [*effects, TableChanged(table)]
        elif self.log.is_on:
            self._sync_gate.confirm(self.installed_table.installed_version)
        if view is not self._driver_has[0]:
            effects = [ViewChanged(view), *effects]
        self._driver_has = view, table
        return effects

    def _on_message(self, sender: Target, message: WireMessage, now: Millis) -> None:
        kind = type(message)
        if sender not in self._members and kind in OF_MEMBERS_ONLY and not admits_stranger(sender, message, self._out):
            return
        if (
            kind in OF_ONE_PARTITION
            and message.partition >= len(self.grid.ownership.owned)  # type: ignore[attr-defined]
            and not self.grid.knows(message.partition)  # type: ignore[attr-defined]
        ):
            return
        if self._released and kind in OF_PARTITIONS:
            # Behind those that wait longer: some can be of the same caller.
            self.grid.parked.queue(sender, message)  # type: ignore[arg-type]  # one of these kinds
        else:
            self._handlers[kind](sender, message, now)
        if not self._is_serving and kind in OF_PARTITIONS:
            self.coordinator.want_table(now)
        out = self._out
        if out.has_news or out.loopback or self._released:
            self._follow_up(now)

    def _follow_up(self, now: Millis) -> None:
        """Deliver facts to machines, and what this member sent to itself."""
        loopback = self._out.loopback
        while True:
            # Facts first: a message to this member itself can depend on the table that has just been installed.
            if self._out.has_news:
                self._facts.deliver(now)
                self._out.has_news = False
                self._has_moved = True
            elif self._released and (self._room > 0 or self._has_ended):
                # Their partition is decided: they are served as if they came now. When this member ends, all are refused.
                caller, request = self.grid.parked.take()
                self._room -= 1 if isinstance(request, m.KeyRequest) else SERVED_IN_A_TURN
                self._handlers[type(request)](caller, request, now)
            elif loopback:
                message = loopback.popleft()
                if self._released and type(message) in OF_PARTITIONS:
                    self.grid.parked.queue(self.this, message)  # type: ignore[arg-type]  # one of these kinds
                else:
                    self._handlers[type(message)](self.this, message, now)
            else:
                break
        if self._released:
            self.grid.parked.alarm.follow()

    def next_deadline(self) -> Millis | None:
        """Return when time alone will matter next; an input `TimePassed` is due then.

        A driver that comes back much later was away, so it must ask for this before it waits, and not in between.
        """
        return self.pause_detection.note_deadline(self.alarms.earliest())

    def validate(self) -> None:
        """Raise `InvariantViolation` if the state as a whole is broken. Costly: for tests and the simulator."""
        self.alarms.validate()
        view, table = self._driver_has
        is_known = view is self.membership.view and table is self.installed_table.table
        invariant(is_known, "the driver is told of each view and table", node=self)
        self.membership.validate()
        self.installed_table.validate()
        self.grid.validate()
        grid = self.grid
        waiting = len(grid.parked) + len(grid.scans) + len(grid.turns) + grid.locks.waiters + len(self._counts)
        invariant(grid.waiting.total == waiting, "requests that wait are counted", node=self, waiting=waiting)
        if self.membership.view is not None:
            invariant(self.grid.ownership.table is self.installed_table.table, "the grid works by the installed table")
            live = len(self.membership.view.data_members)
            invariant(self.grid.guard.live == live, "maps are protected by the installed view", node=self)

    def accepted_from(self, sender: str) -> Set[type]:
        """Return the kinds of messages that the sender can send at all: clients send requests only."""
        return OF_CLIENTS if is_client(sender) else self._handlers.keys()

    def _moving(self, handler: Handler) -> Handler:
        """Make a handler after which all alarms follow."""

        def handle(sender: Target, message: WireMessage, now: Millis) -> None:
            self._has_moved = True
            handler(sender, message, now)

        return handle

    # --- routing ---------------------------------------------------------------------------------------------------

    def _handle_other(self, event: RareInput, now: Millis) -> None:
        match event:
            case LinkLost(peer) | LinkRefused(peer):
                deserted = self._departures.on_link(event)
                self.membership.on_link(event, now)
                if deserted is not None:
                    self.coordinator.on_deserted(deserted, now)
                self.calls.on_link(event, now)
                self.grid.on_link_lost(MemberId(peer), now, is_refused=isinstance(event, LinkRefused))
                self.data_merging.on_link_lost(MemberId(peer), now)
            case LinkUp(peer):
                self._departures.on_link(event)
                self.membership.on_link(event, now)
                self.grid.on_link_up(MemberId(peer), now)
            case Started(past):
                self.membership.start(now, past)
            case MemoryMeasured():
                self.grid.on_measured(event, now)
            case SeedsFound():
                self.membership.on_seeds(event, now)
            case EventLogChecked(problem):
                self._safety.event_log_problem = problem
            case DiskMeasured(report):
                self._safety.disk = report
            case ActivityMeasured():
                self._activity.on_measured(event, now)
            case CopyToDisk(partition):
                self.grid.disk_copies.begin(partition, now)
            case DiskChecked():
                self.grid.on_disk_checked(event, now)
                self.membership.majority.on_synced(now)
                if self.grid.disks.lets_leave(self.installed_table.table):
                    self.data_merging.on_leave_wanted(now, because_of_disk=True)
            case LeaveWanted(keeps=True):
                self.membership.leave(
                    now, keeps=True
                )  # what waits for a merge is in the folder, too, and is offered again
            case LeaveWanted():
                self.data_merging.on_leave_wanted(now)
            case _:
                assert_never(event)

    # --- facts -----------------------------------------------------------------------------------------------------

    def _interests(self) -> list[Interest]:
        """Return which machine takes which facts. In a round, machines get theirs from the first line to the last."""
        membership, coordinator, grid, data_merging = self.membership, self.coordinator, self.grid, self.data_merging
        return [
            *membership.interests(),
            interest_in_both(ReplicasHandedOver, TableConfirmed, membership.on_replicas_handed_over),
            interest(LeaveAsked, data_merging.on_leave_asked),
            interest(EvacuationOver, membership.resolution.on_evacuation_over),
            interest(ReplicasSetAside, self.data_merging.on_aside),
            interest(OrphansMerged, self.loss_reports.on_orphans_merged),
            interest(OrphansMerged, membership.on_orphans_merged),
            interest(MembershipChanged, self.installed_table.on_membership),
            interest_in_both(MembershipChanged, TableConfirmed, coordinator.on_membership),
            interest(MemoryKnown, coordinator.on_memory),
            interest(DisksKnown, coordinator.on_disks),
            interest(NewView, self._on_view),
            interest(NewView, data_merging.on_view),
            interest(NewView, grid.on_view),
            interest(TableConfirmed, self._on_table_confirmed),
            interest(RowsDoubted, grid.on_rows_doubted),
            interest(TableConfirmed, grid.on_table),
            interest(NewTable, lambda fact, now: self.calls.on_table(fact.table, now)),
            interest(RestartWaited, self._on_restart_wait),
            interest(NewTable, data_merging.on_table),
            interest_in_both(MembershipChanged, TableConfirmed, self.loss_reports.on_news),
            interest_in_both(MembershipChanged, TableConfirmed, membership.table_news.on_table),
            interest(IncarnationOver, data_merging.on_over),
            interest(IncarnationOver, self.loss_reports.on_over),
            interest(IncarnationOver, self.installed_table.on_over),
            interest(IncarnationOver, coordinator.on_over),
            interest(IncarnationOver, grid.on_over),
            interest(IncarnationOver, self._on_over),
        ]

    def _on_view(self, fact: NewView, now: Millis) -> None:
        self.calls.no_owners = why_no_owners(fact.view, self.installed_table.restart_wait)
        if fact.members != self._members:
            self._members = fact.members
            self.calls.on_view(fact.members, now)

    def _on_restart_wait(self, fact: RestartWaited, now: Millis) -> None:
        self._safety.restart_wait = fact.wait
        if (view := self.membership.view) is not None:
            self.calls.no_owners = why_no_owners(view, fact.wait)

    def _on_table_confirmed(self, fact: TableConfirmed, now: Millis) -> None:
        self._is_serving = fact.table.is_assigned

    def _wants_table(self) -> bool:
        """Return whether a call, the merge of orphaned replicas, or what was read from the folder waits for the assignment."""
        if self.installed_table.is_assigned or self.membership.view is None:
            return False
        return bool(self.calls.waiting) or bool(self.data_merging) or self._stored() is not None

    def _stored(self) -> StoredSide | None:
        """Return what the folder gave and no cluster has taken up yet; None: nothing."""
        return self.grid.stored()

    def _has_entries(self) -> bool:
        return any(replica.maps for replica in self.grid.held.all())

    def _on_over(self, fact: IncarnationOver, now: Millis) -> None:
        """End this incarnation for its callers: others serve what it held."""
        self._has_ended = True
        self._is_serving = False
        self._members = frozenset()
        self._log_end()
        self.calls.end("this member has left its cluster")
        self._handlers = dict.fromkeys(self._handlers, _ignore) | dict(route_each(m.Request, self._refuse))

    def _log_end(self) -> None:
        """Log what becomes of the replicas that this incarnation had."""
        stored, table = self._stored(), self.installed_table.table
        if (record := last_record(self._out.effects, self.this, self.membership, stored, table)) is not None:
            self._sync_gate.add(record)

    def _refuse(self, caller: Target, request: m.Request, now: Millis) -> None:
        self._out.send(caller, m.ErrorReply(request.id, ErrorCode.NOT_READY, "this member has left its cluster"))

    def _on_reply(self, sender: MemberId, message: m.Reply, now: Millis) -> None:
        if message.id >= FIRST_ID:
            self.data_merging.on_reply(sender, message, now)
        else:
            self.calls.on_reply(sender, message, now)


def _ignore(sender: Target, message: WireMessage, now: Millis) -> None:
    """Ignore a message to an incarnation that is over."""
