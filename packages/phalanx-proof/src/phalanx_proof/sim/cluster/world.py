"""One simulated world: the clock's loop, the hosts and their members, and what becomes of each effect.

The world knows no rule of the protocol. Those that must know what happens (checkers, workload, story) hear it from the
few methods of an `Observer`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from random import Random

import msgspec

from phalanx.common.errors import PhalanxError
from phalanx.common.ids import MemberId, Millis, member_id
from phalanx.common.invariant import invariant
from phalanx.common.view import MembersView
from phalanx.disk.restoring import Restoration
from phalanx.machine.effects import Answer, Effect, Finished, Record, Send, TableChanged, ViewChanged
from phalanx.machine.inputs import (
    CopyToDisk,
    Input,
    LeaveWanted,
    Received,
    ReceivedTogether,
    Started,
    TimePassed,
)
from phalanx.node.node import Node
from phalanx.node.step import take_step
from phalanx.wire.codec import message_decoder
from phalanx.wire.messages import Message, Reply
from phalanx_proof.sim.cluster.crash_points import Crash
from phalanx_proof.sim.cluster.event_queue import EventQueue
from phalanx_proof.sim.cluster.folder import SimFolder
from phalanx_proof.sim.cluster.history_digest import HistoryDigest
from phalanx_proof.sim.cluster.host import Channel, Host, count_down
from phalanx_proof.sim.cluster.host_disks import HostDisks
from phalanx_proof.sim.cluster.network import Network
from phalanx_proof.sim.cluster.observer import Observer
from phalanx_proof.sim.cluster.restored_folder import RestoredFolder
from phalanx_proof.sim.cluster.scarce_memory import SHOWN
from phalanx_proof.sim.cluster.seed_answers import SeedAnswers
from phalanx_proof.sim.fault import FaultKind
from phalanx_proof.sim.options import HistoryOptions

CODEC_CHECK_EVERY = 128
"""One in so many delivered messages is encoded, decoded and compared."""
DIVIDED_AT_ONCE = 3
"""Entries that a division of a partition sorts in one turn: histories have few entries, and much is to happen between
turns."""
REPAIRED_AFTER_MS: Millis = 500
"""So long it takes an operator to repair or to empty a folder that is refused."""
ROWS_AT_ONCE = 1
"""Pages of staged rows, or events of a cleared journal, in one turn: each is a part of its own."""


class World:
    """The hosts of one history and their clock, driven by `run_until`."""

    folder_type = SimFolder
    restored_folder_type = RestoredFolder

    def __init__(
        self, options: HistoryOptions, observer: Observer, adapt: Callable[[Node], None] | None = None
    ) -> None:
        """`adapt`: changes each new member (to plant a bug, or to watch it)."""
        self.options = options
        self.queue = EventQueue()
        self.rng = Random(f"world:{options.profile}:{options.seed}")
        hosts = [Host(number, options.address(number)) for number in range(options.hosts + options.restored_hosts)]
        self.hosts, self.restored_hosts = hosts[: options.hosts], hosts[options.hosts :]
        self.network = Network(self.queue, hosts, options.latency_ms, self.rng)
        self.network.lost_permille = options.lost_permille
        self.network.doubled_permille = options.doubled_permille
        self.network.is_one_machine = options.one_machine
        self.network.stalls = options.stalls
        self.network.feed = self.feed
        self.seed_answers = SeedAnswers(options, self.queue.call_at, lambda: self.queue.now, self.feed)
        self.inputs = 0
        self.refused_folders = 0
        """How often a process did not start because its folder was damaged, or its disk had failed."""
        self.points_reached = 0
        """How many faults that waited for a message have happened."""
        self.is_over = False
        """Set by the observer: the history ends here."""
        self._observer = observer
        self._disks = HostDisks(options, observer, self.queue, self.feed, self.folder_type)
        self._adapt = adapt
        self._touched: list[Host] = []
        """Hosts whose members are asked for their deadlines at the end of this millisecond."""
        self._slack_ms = options.timer_slack_ms
        self._validate_every = options.validate_every
        self._clocks_differ = bool(options.clock_ppm) or any(f.kind is FaultKind.CLOCK_STEP for f in options.faults)
        for host, wall_ms in zip(self.hosts, options.wall_ms, strict=False):
            host.wall_ms = wall_ms
        for host, ppm in zip(self.hosts, options.clock_ppm, strict=False):
            host.clock_ppm = ppm
        self._digest = HistoryDigest()

    @property
    def now(self) -> Millis:
        return self.queue.now

    def digest(self) -> str:
        """Return the digest of the history so far: every input and every recorded fact, in order."""
        return self._digest.value()

    # --- the loop --------------------------------------------------------------------------------------------------

    def run_until(self, end: Millis) -> None:
        """Let everything happen that happens before a time."""
        queue = self.queue
        times = queue.times
        while times and times[0] < end and not self.is_over:
            for entry in queue.next_bucket():
                channel, what = entry
                if channel is None:
                    what[0](*what[1:])
                elif channel.is_open:
                    host = channel.receiver
                    if host.paused_until:
                        host.backlog.append(entry)
                    else:
                        self._deliver(host, channel, what)
            queue.done()
            if self._touched:
                self._plan_wakes()
        queue.now = max(queue.now, end)

    def _deliver(self, host: Host, channel: Channel, what: Message | list[Message]) -> None:
        node = host.node
        if node is None:
            return
        self._digest.add((self.queue.now, channel.number, what))
        self.inputs += 1
        if type(what) is list:
            self._handle(host, node, ReceivedTogether(channel.sender, what))
        else:
            if self.inputs % CODEC_CHECK_EVERY == 0:
                decoded: object = message_decoder.decode(msgspec.msgpack.encode(what))
                invariant(decoded == what, "a message survives encoding", message=what, decoded=decoded)
            self._handle(host, node, Received(channel.sender, what))  # type: ignore[arg-type]  # no list
        if host.disturb_on:
            self._disturb_if_due(
                host, [type(message).__name__ for message in (what if type(what) is list else (what,))]
            )
        if host.crash_on:
            for message in what if type(what) is list else (what,):
                self._crash_if_due(host, type(message).__name__)

    def feed(self, host: Host, member: MemberId, event: Input) -> None:
        """Give an input other than a message to a member, unless that incarnation is over."""
        node = host.node
        if node is None or node.this != member:
            return
        if host.paused_until:
            host.backlog.append((None, (self.feed, host, member, event)))
            return
        self._digest.add((self.queue.now, host.number, type(event).__name__, event))
        self.inputs += 1
        self._handle(host, node, event)

    def _handle(self, host: Host, node: Node, event: Input) -> None:
        now = self.queue.now
        if host.is_leaving:
            self._observer.on_last_input(host, now)
        fail = partial(self._on_failure, host)
        if host.shortage is not None:
            try:
                host.shortage.before(node)
            except MemoryError as error:
                fail(error)
                return
        shown = host.clock(now) if self._clocks_differ else now
        take_step(node, event, shown, partial(self._carry_out, host, node, event), fail)

    def _carry_out(self, host: Host, node: Node, event: Input, effects: list[Effect]) -> None:
        now = self.queue.now
        if host.disk is not None and host.disk.log.is_on:
            crash = self._disks.write(host, node)
            if crash is not None:
                self._crash_writing(host, crash)
                return
            if host.folder is not None and (partition := host.folder.draw_copy()) is not None:
                self.queue.call_at(now, self.feed, host, node.this, CopyToDisk(partition))
        if self._validate_every and self.inputs % self._validate_every == 0:
            node.validate()
            self._disks.compare(host, node)
        shortage = host.shortage
        if shortage is not None:
            effects = shortage.cut(effects)
        if host.crash_sending:
            effects = self._cut_short(host, effects)
        send = self.network.send
        table = finished = None
        for effect in effects:
            kind = type(effect)
            if kind is Send:
                send(host, effect.to, effect.message)  # type: ignore[union-attr]  # by its kind
            elif kind is Answer:
                reply = effect.reply  # type: ignore[union-attr]  # by its kind
                replier = _replier(event, reply) or node.this
                self._observer.on_answer(host, reply, replier, now)
            elif kind is Record:
                self._digest.add((now, host.number, effect.event))  # type: ignore[union-attr]  # by its kind
                self._observer.on_event(host, effect.event, now)  # type: ignore[union-attr]  # by its kind
            elif kind is ViewChanged:
                self._note_view(host, node, effect.view)  # type: ignore[union-attr]  # by its kind
            elif kind is TableChanged:
                table = effect.table  # type: ignore[union-attr]  # by its kind
            else:
                finished = effect
        if host.disturb_on:
            self._disturb_if_due(host, [type(effect.message).__name__ for effect in effects if type(effect) is Send])
        if table is not None:
            host.table = table
            self._observer.on_table(host, table, now)
        if not host.is_touched:
            host.is_touched = True
            if self._slack_ms:
                self.queue.put(now + self._slack_ms, (None, (self._touched.append, host)))
            else:
                self._touched.append(host)
        if shortage is not None and shortage.has_struck:
            shortage.strike()
        if finished is not None:
            self._finish(host, finished)  # type: ignore[arg-type]  # by its kind

    def _on_failure(self, host: Host, error: BaseException) -> None:
        """End a member whose memory ran out, as was drawn; report any other error that it raises."""
        shortage = host.shortage
        if shortage is None or not shortage.has_struck or not isinstance(error, MemoryError):
            self._observer.on_broken(host, error, self.now)
            return
        self.points_reached += 1
        self._end_process(host, "crashed out of memory", delivers_all=self.rng.random() < 0.5)
        if shortage.comes_back_after_ms:
            self.start_later(host, shortage.comes_back_after_ms)

    def _note_view(self, host: Host, node: Node, view: MembersView | None) -> None:
        """Close connections to members that the new view removes, as the runtime does: what is stuck there never arrives."""
        before, host.view = host.view, view
        if view is not None and before is not None:
            for member in before.members:
                if member not in view:
                    self.network.forget(host, member)

    # --- time ------------------------------------------------------------------------------------------------------

    def _plan_wakes(self) -> None:
        """Ask each member that took an input for its next deadline, and schedule it."""
        queue = self.queue
        for host in self._touched:
            host.is_touched = False
            if host.node is None:
                continue
            deadline = host.node.next_deadline()
            if deadline is None:
                continue
            if self._clocks_differ:
                deadline = host.when(deadline)
            at = deadline if deadline > queue.now else queue.now + 1
            if host.wake_at < 0 or at < host.wake_at:
                host.wake_at = at
                queue.put(at, (None, (self._wake, host, host.node.this, at)))
        self._touched.clear()

    def _wake(self, host: Host, member: MemberId, at: Millis) -> None:
        if host.wake_at != at or host.member != member:
            return
        host.wake_at = -1
        self.feed(host, member, TimePassed())

    # --- processes -------------------------------------------------------------------------------------------------

    def start(self, host: Host, after: Finished | None = None) -> None:
        """Start a process on a host where none runs, or (`after`) the next incarnation in the one that runs there."""
        host.comes_back = host.kept = None
        if host.node is not None or self.is_over:
            return
        host.incarnations += 1
        this = member_id(host.address, self._draw_incarnation())
        try:
            restoration = self._disks.open(host) if after is None else None
        except PhalanxError as error:
            if host.folder is not None and (host.folder.is_hurt or host.folder.has_failed):
                self.refused_folders += 1
                host.repair_folder()
                self.start_later(host, REPAIRED_AFTER_MS)
            else:
                self._observer.on_broken(host, error, self.now)
            return
        node = self._new_node(host, this, after, restoration)
        if after is None and host.folder is not None:
            crash = self._disks.begin_log(host, host.folder, node)
            if crash is not None:
                self._crash_writing(host, crash)
                return
        node.grid.follower.undivided.entries_at_once = DIVIDED_AT_ONCE
        node.grid.turns.rows_at_once = node.grid.staging.rows_at_once = ROWS_AT_ONCE
        if self._adapt is not None:
            self._adapt(node)
        host.node = node
        host.table = node.installed_table.table
        host.view = None
        host.wake_at = -1
        is_leaving = host.is_leaving and after is not None
        host.is_leaving = is_leaving
        self._observer.on_process(host, this, "started", self.now)
        past = after.past if after is not None else restoration.past if restoration is not None else None
        self.feed(host, this, Started(past))
        if self.seed_answers.is_used:
            self.seed_answers.begin(host, this)
        if is_leaving:
            self.feed(host, this, LeaveWanted(host.keeps))

    def _new_node(
        self, host: Host, this: MemberId, after: Finished | None, restoration: Restoration | None = None
    ) -> Node:
        """Return the node of a new incarnation on a host."""
        carried = after.carried if after is not None and after.rejoin else None
        config = self.options.node_config(host.number)
        if after is None:
            host.partition_count = restoration.partition_count if restoration is not None else 0
        if host.partition_count:
            config = msgspec.structs.replace(config, partition_count=host.partition_count)
        return Node(
            this,
            config,
            host.wall_ms,
            kept=after.kept if after is not None else restoration.kept if restoration is not None else None,
            carried=restoration.carried if restoration is not None else carried,
            log=host.disk.log if host.disk is not None else None,
        )

    def start_later(self, host: Host, after_ms: Millis, after: Finished | None = None) -> None:
        """Plan to start a process, or its next incarnation."""
        host.comes_back = self.now + after_ms
        self.queue.call_at(host.comes_back, self._come_back, host, host.comes_back, after)

    def _come_back(self, host: Host, at: Millis, after: Finished | None) -> None:
        if host.comes_back == at:
            self.start(host, after)

    def crash(self, host: Host, comes_back_after_ms: Millis, how: str = "crashed") -> None:
        """End a process without a word, and start it again after a time; 0: never."""
        self._end_process(host, how, delivers_all=False)
        if comes_back_after_ms:
            self.start_later(host, comes_back_after_ms)

    def cut_power(self, hosts: Sequence[Host]) -> None:
        """Cut the power of machines on which no process runs any more."""
        for host in hosts:
            if host.folder is not None:
                host.folder.cut_power(self.now)
        # Where a partition has no backup one machine is enough to lose something.
        if (
            not self.joined_count()
            or not self.options.backups
            or any(host.folder is not None and host.folder.holds_alone for host in hosts)
        ):
            self._observer.on_power_cut(self.now)

    def pause(self, host: Host, lasts_ms: Millis) -> None:
        """Let a process do nothing for a while; what arrives waits."""
        if host.node is None or host.paused_until:
            return
        host.paused_until = self.now + lasts_ms
        self.queue.call_at(host.paused_until, self._resume, host, host.node.this)
        self._observer.on_pause(host, host.paused_until, self.now)

    def wake_up(self, host: Host) -> None:
        """End a pause before its time."""
        if host.paused_until:
            self._resume(host, host.member)

    def touch(self, host: Host) -> None:
        """Ask a member again for its next deadline: its clock was changed from outside."""
        host.wake_at = -1
        if not host.is_touched:
            host.is_touched = True
            self._touched.append(host)

    def _resume(self, host: Host, member: MemberId | None) -> None:
        if host.member != member or member is None:
            return
        if host.paused_until:
            host.paused_until = 0
            self._observer.on_pause(host, 0, self.now)
        backlog, host.backlog = host.backlog, []
        for channel, what in backlog:
            if channel is None:
                what[0](*what[1:])
            elif channel.is_open and host.member == member:
                self._deliver(host, channel, what)

    def _crash_writing(self, host: Host, crash: Crash) -> None:
        """Let a process end within a write to its folder."""
        self.points_reached += 1
        if host.node is not None:
            self._end_process(host, "crashed", delivers_all=False)
        if crash.cuts_power:
            self.cut_power([host])
        self.start_later(host, host.crash_back_ms)

    def _crash_if_due(self, host: Host, handled: str) -> None:
        comes_back_after_ms = count_down(host.crash_on, handled)
        if comes_back_after_ms is not None and host.node is not None and self.joined_count() > 1:
            self.points_reached += 1
            self.crash(host, comes_back_after_ms)

    def _disturb_if_due(self, host: Host, names: list[str]) -> None:
        for name in names:
            for index, (wanted, left, lasts_ms, is_cut) in enumerate(host.disturb_on):
                if wanted != name:
                    continue
                if left > 1:
                    host.disturb_on[index] = (wanted, left - 1, lasts_ms, is_cut)
                    break
                del host.disturb_on[index]
                self.points_reached += 1
                # Behind what this input has brought about: that is on its way.
                self.queue.call_at(self.now, self.network.cut_off if is_cut else self.pause, host, lasts_ms)
                break

    def _cut_short(self, host: Host, effects: list[Effect]) -> list[Effect]:
        """Return the effects up to the message at which the process crashes, if it crashes here."""
        for index, effect in enumerate(effects):
            if type(effect) is not Send:
                continue
            comes_back_after_ms = count_down(host.crash_sending, type(effect.message).__name__)
            if comes_back_after_ms is not None and self.joined_count() > 1:
                self.points_reached += 1
                member: MemberId = host.running_node.this
                host.paused_until = self.now + 1
                self.queue.call_at(self.now, self._crash_sender, host, member, comes_back_after_ms)
                return effects[: index + 1] + [each for each in effects[index + 1 :] if type(each) in SHOWN]
        return effects

    def _crash_sender(self, host: Host, member: MemberId, comes_back_after_ms: Millis) -> None:
        if host.member == member:
            self._end_process(host, "crashed while sending", delivers_all=self.rng.random() < 0.5)
            if comes_back_after_ms:
                self.start_later(host, comes_back_after_ms)

    def holds_data(self, host: Host) -> bool:
        """Tell whether members on this host can hold replicas, by what it was told last."""
        if self.options.traits_of(host.number).lite:
            return False
        view = host.node.membership.view if host.node is not None and host.wants_lite is not None else None
        return view is None or not view.traits_of(host.running_node.this).lite

    def joined_count(self) -> int:
        """Count the members that are in a cluster."""
        return sum(1 for host in self.hosts if host.has_joined)

    def _finish(self, host: Host, effect: Finished) -> None:
        """End an incarnation by its own decision, and plan the next one where there is to be one."""
        wants_lite = host.wants_lite
        if not effect.rejoin and not effect.failed:
            self._disks.end_log(host)
        self._end_process(host, effect.reason, delivers_all=True)
        host.kept = effect.kept
        if effect.rejoin:
            host.wants_lite = wants_lite
            self.start_later(host, 1 + self.network.latency(), effect)
        elif effect.failed:
            self.refused_folders += host.empty_copied_folder()
            self.start_later(host, 1_000 + self.network.latency())

    def _end_process(self, host: Host, how: str, *, delivers_all: bool) -> None:
        member: MemberId = host.running_node.this
        if how.startswith("crashed"):
            self._observer.on_last_input(host, self.now)
        host.node = None
        host.table = None
        host.wants_lite = None
        host.paused_until = 0
        host.backlog.clear()
        host.crash_on.clear()
        host.crash_sending.clear()
        host.disturb_on.clear()
        host.shortage = None
        self.network.process_ended(host, delivers_all=delivers_all)
        self._observer.on_process(host, member, how, self.now)

    def _draw_incarnation(self) -> str:
        text = f"{self.rng.getrandbits(128):032x}"
        return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def _replier(event: Input, reply: Reply) -> MemberId | None:
    """Return who sent the answer that the input contains; None: it is this member's own."""
    if type(event) is Received and event.message is reply:
        return MemberId(event.sender)
    if type(event) is ReceivedTogether and any(message is reply for message in event.messages):
        return MemberId(event.sender)
    return None
