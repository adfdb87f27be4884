"""Makes the faults of the options happen, as far as each is possible when its time comes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

from phalanx.common.backups import BackupCount
from phalanx.common.ids import MemberId, Millis
from phalanx.common.invariant import invariant, known
from phalanx.common.map_settings import MapChange
from phalanx.machine.inputs import Call, LeaveWanted
from phalanx.wire.messages import AcceptView, ChangeLite, ChangeMap, ChangePartitionCount, ClientRequest, StopCluster
from phalanx.wire.table_events import MigrationStarted
from phalanx_proof.sim.cluster.disk_faults import DiskFaults
from phalanx_proof.sim.cluster.folder_faults import FolderFaults
from phalanx_proof.sim.cluster.host import Host
from phalanx_proof.sim.cluster.scarce_memory import ScarceMemory
from phalanx_proof.sim.cluster.world import World
from phalanx_proof.sim.fault import BY_OPERATOR, DESTINATION, MASTER, OTHER_REPLICA, OWNER, Fault, FaultKind
from phalanx_proof.sim.history.request_ids import ADMIN_FROM
from phalanx_proof.sim.options import MAP
from phalanx_proof.sim.story import Story

LEFT_FOR_GOOD = 0
CRASHED_WITH_ALL = "crashed with all others"
"""How a process ends whose folder goes on."""
MOST_PARTITIONS = 48
ASK_AGAIN_MS = 400
"""How often a member that is asked to hold no data, or some again, is asked until it is so."""
OPERATOR_WAITS_MS = 15_000
"""After so long an operator lets a cluster go on without the members that it waits for."""
ASKED_FOR_CERTAIN = 5
"""So often a master is asked for what is so already: it has possibly not carried out an earlier request yet."""


class Faults:
    """Carries out the faults of one history. It never takes away the last member of a cluster, or the last one with
    data, except by a crash at a step: nothing would be left to judge."""

    def __init__(self, world: World, story: Story, failed_disks: dict[MemberId, Millis]) -> None:
        """`failed_disks`: to note when which member's disk has failed."""
        self._world = world
        self._disks = DiskFaults(world, failed_disks)
        self._folders = FolderFaults(world)
        self._story = story
        self.happened: Counter[str] = Counter()
        self.at_migrations = 0
        """Faults that had waited for a migration."""
        self._comes_back_after_leaving: dict[int, int] = {}
        self._waiting: list[Fault] = []
        """Faults that wait until a migration is ordered."""
        self._requests = 0
        self._restart_waits_since: Millis | None = None
        """Since when the cluster waits for former members; None: it does not."""
        self._restart_waits_for: tuple[MemberId, ...] = ()
        self._wants_backups = -1
        """How many backups an administrator has asked for; -1: nobody has."""

    def plan(self) -> None:
        for fault in self._world.options.faults:
            self._world.queue.call_at(fault.at_ms, self._happen, fault)

    def heal(self) -> None:
        """End all faults."""
        self._world.network.heal()
        self._world.seed_answers.heal()
        self._waiting.clear()
        if self.happened[FaultKind.BACKUPS]:
            self._ask_for_backups(self._world.options.backups)
        for host in self._world.hosts:
            self._world.wake_up(host)
            host.crash_on.clear()
            host.crash_sending.clear()
            if host.folder is not None:
                host.folder.crash_point = None
            host.disturb_on.clear()
            host.shortage = None
            host.disk_fails_until = 0
            host.has_lost_logs = False
            self._disks.make_room(host)
            if host.wants_lite and host.node is not None:
                self._ask_to_be_lite(host, wants_lite=False)
            elif host.wants_lite:
                host.wants_lite = False  # Between two incarnations: the next one is asked.

    def unmet(self) -> list[str]:
        """Say which faults that were planned for later are not over: nothing is at rest before."""
        begin, now = self._world.options.duration_ms, self._world.now
        later = [each for each in self._world.options.faults if each.at_ms >= begin]
        return [f"{each.kind} of {each.at_ms} ms is not over" for each in later if now < each.at_ms + each.lasts_ms]

    def revive(self) -> None:
        """Start a process as an operator would: the first seed if nobody is in a cluster, because only it can make one;
        and one that holds data where none does, or only such that are to leave and wait for another one to take what they have.
        """
        world = self._world
        down = [host for host in world.hosts if host.node is None and host.comes_back is None]
        if world.options.restarts:
            for host in down:
                # A partition can wait for one that has not heard of its table before it ended.
                if host.folder is not None and (host.folder.holds_replicas or self._folders.is_awaited(host)):
                    world.start(host)
            self._accept_restart()
            self._folders.give_up_lost(self._host(MASTER), self._ask)
        if world.options.mutual_seeds:
            # All of these must run where a cluster is to begin anew: the last member can be about to go.
            for host in down:
                if host.number < world.options.members or world.joined_count() == 0:
                    world.start(host)
        elif world.hosts[0] in down and world.joined_count() == 0:
            world.start(world.hosts[0])
        elif all(host in down or host.is_leaving for host in world.hosts if world.holds_data(host)):
            for host in [host for host in down if world.holds_data(host)][:1]:
                world.start(host)

    def _accept_restart(self) -> None:
        """Let a cluster go on without those that it waits for, as an operator does who knows that nobody else has anything."""
        master = self._host(MASTER)
        if master is None or (restarting := master.running_node.coordinator.restarting).wait is None:
            self._restart_waits_since = None
            return
        if self._restart_waits_since is None or restarting.waits_for != self._restart_waits_for:
            self._restart_waits_since, self._restart_waits_for = self._world.now, restarting.waits_for
        elif self._world.now - self._restart_waits_since >= OPERATOR_WAITS_MS:
            self._restart_waits_since = self._world.now
            view = known(master.running_node.membership.view, "a master has a view", host=master)
            self.happened["accepted restarts"] += 1
            self._ask(master, lambda request_id: AcceptView(request_id, view.version))

    def on_process_started(self, host: Host) -> None:
        """Go on asking the next incarnation in a process what its member was asked, and tell it how its disk does."""
        self._disks.on_process_started(host)
        if host.wants_lite is not None:
            self._world.queue.call_at(self._world.now + ASK_AGAIN_MS, self._go_on_asking, host, host.running_node.this)

    def _go_on_asking(self, host: Host, member: MemberId) -> None:
        if host.member == member and host.wants_lite is not None:
            self._ask_to_be_lite(host, wants_lite=host.wants_lite)

    def on_process_ended(self, host: Host, how: str) -> None:
        """Start a member that has left again later, if its fault says so."""
        after_ms = self._comes_back_after_leaving.pop(host.number, LEFT_FOR_GOOD)
        if how == "left" and after_ms:
            self._world.start_later(host, after_ms)

    def on_migration(self, master: Host, event: MigrationStarted) -> None:
        """Let the faults happen that wait for a migration of the kind that was ordered.

        Faults that wait for the same kind since the same time are about one and the same migration.
        """
        together: dict[tuple[int, str], list[Fault]] = {}
        for fault in self._waiting:
            if fault.during in ("any", event.kind, f"{event.kind}-{'backup' if _index_of(event) else 'owner'}"):
                together.setdefault((fault.at_ms, fault.during), []).append(fault)
        for faults in together.values():
            hosts = [self._who(fault.host, master, event) for fault in faults]
            if any(h is None or (f.is_apart and h is master) for f, h in zip(faults, hosts, strict=True)):
                continue
            for fault, host in zip(faults, hosts, strict=True):
                self._waiting.remove(fault)
                # Not within the input that is being handled.
                self._world.queue.call_at(self._world.now, self._happen_to, fault, host)

    def _who(self, role: int, master: Host, event: MigrationStarted) -> Host | None:
        """Return the host that has a role in a migration; None: nobody has it here."""
        match role:
            case _ if role >= 0:
                return self._world.hosts[role]
            case _ if role == MASTER:
                return master
            case _ if role == OWNER:
                member: MemberId | None = event.owner
            case _ if role == DESTINATION:
                member = event.destination
            case _ if role == OTHER_REPLICA:
                replicas = (
                    master.node.installed_table.table.replicas(event.partition) if master.node is not None else ()
                )
                backups = [each for each in replicas if each not in (event.owner, event.destination)]
                member = next((each for each in backups if each != event.source), next(iter(backups), None))
            case _:
                member = event.source or event.owner
        return next((host for host in self._world.hosts if member is not None and host.member == member), None)

    def _happen(self, fault: Fault) -> None:
        if fault.during:
            self._waiting.append(fault)
        else:
            self._happen_to(fault, self._host(fault.host))

    def _happen_to(self, fault: Fault, host: Host | None) -> None:
        world = self._world
        other = self._host(fault.other) if fault.other != fault.host else None
        if host is None or not self._is_possible(fault, host, other):
            return
        self.happened[fault.kind] += 1
        self.at_migrations += bool(fault.during)
        self._story.tell(world.now, f"h{host.number + 1}", f"*** {fault.kind} {fault}")
        match fault.kind:
            case FaultKind.CRASH:
                world.crash(host, fault.lasts_ms)
            case FaultKind.POWER:
                world.crash(host, fault.lasts_ms)
                world.cut_power([host])
            case FaultKind.CRASH_WRITING:
                self._crash_writing(fault, host)
            case FaultKind.ROT:
                self._rot(fault, host)
            case FaultKind.FOLDER_OLD:
                self._folders.put_back_later(host, fault)
            case FaultKind.FOLDER_COPY | FaultKind.FOLDER_SWAP:
                known_other = known(other, "the fault is about two hosts", fault=fault)
                self._folders.exchange(host, known_other, fault)
            case FaultKind.OUTAGE:
                self._end_all(fault)
            case FaultKind.CRASH_ON:
                host.crash_on.append((fault.what, fault.nth, fault.lasts_ms))
            case FaultKind.CRASH_SENDING:
                host.crash_sending.append((fault.what, fault.nth, fault.lasts_ms))
            case FaultKind.CUT_ON | FaultKind.PAUSE_ON:
                host.disturb_on.append((fault.what, fault.nth, fault.lasts_ms, fault.kind is FaultKind.CUT_ON))
            case FaultKind.LEAVE | FaultKind.STOP:
                self._leave(host, fault.lasts_ms, keeps=fault.kind is FaultKind.STOP)
            case FaultKind.DEMOTE:
                # Asked for first: it can end with this input.
                if fault.lasts_ms:
                    world.queue.call_at(world.now + fault.lasts_ms, self._promote, host, host.running_node.this)
                self._ask_to_be_lite(host, wants_lite=True)
            case FaultKind.JOIN:
                world.start(host)
            case FaultKind.PAUSE:
                world.pause(host, fault.lasts_ms)
            case FaultKind.CLOCK_STEP:
                host.clock_ahead_ms += fault.nth
                world.touch(host)
            case FaultKind.CLOCK_BACK:
                host.wall_ms = max(host.wall_ms + fault.nth, -host.clock(world.now))  # no system is before 1970
            case FaultKind.MEMORY:
                host.shortage = ScarceMemory(fault.what, fault.nth, fault.lasts_ms)
            case FaultKind.DISK:
                host.disk_fails_until = world.now + fault.lasts_ms
            case FaultKind.LOSE_LOG:
                host.has_lost_logs = True
            case FaultKind.DISK_FAILS:
                self._comes_back_after_leaving[host.number] = fault.lasts_ms
                self._disks.fail(host)
            case FaultKind.DISK_FULL:
                self._disks.fill(host, fault.lasts_ms)
            case FaultKind.DIVIDE:
                self._divide(host, fault.nth)
            case FaultKind.BACKUPS:
                self._ask_for_backups(fault.nth)
            case FaultKind.BOUND:
                change = MapChange(max_entries=fault.nth, eviction=fault.what or None)
                self._ask(host, lambda request_id: ChangeMap(request_id, MAP, change))
            case FaultKind.DESERT:
                world.network.desert(host, world.now + fault.lasts_ms)
            case FaultKind.CUT_GROUP:
                self._cut_group(fault.nth, world.now + fault.lasts_ms)
            case _:
                invariant(other is not None, "the fault is between two hosts", fault=fault)
                self._between(fault, host, other)  # type: ignore[arg-type]  # held by the invariant

    def _crash_writing(self, fault: Fault, host: Host) -> None:
        folder = known(host.folder, "a process that runs has a folder", host=host)
        host.crash_back_ms = max(1, fault.lasts_ms)
        if fault.what == "start":
            self._world.crash(host, host.crash_back_ms)
            folder.draw_crash("segment", 1)
        else:
            folder.draw_crash(fault.what, fault.nth)

    def _rot(self, fault: Fault, host: Host) -> None:
        folder = known(host.folder, "a process that runs has a folder", host=host)
        if fault.nth and fault.what != "folder":
            # What is cut off was there from any time on.
            folder.is_cut_where_hurt, folder.gone_from = True, 0
        self._world.crash(host, fault.lasts_ms)
        folder.gone_from = None
        if fault.what == "folder":
            host.empty_folder()
        else:
            folder.hurt(fault.what)

    def _end_all(self, fault: Fault) -> None:
        """Let all processes end, and each begin again at a time of its own."""
        order = Random(f"outage:{fault.nth}")
        for host in self._world.hosts:
            back_ms = order.randrange(1, fault.lasts_ms)
            if fault.what == BY_OPERATOR:
                self._comes_back_after_leaving[host.number] = back_ms
            elif fault.what in (FaultKind.LEAVE, FaultKind.STOP) and host.has_joined:
                self._leave(host, back_ms, keeps=fault.what == FaultKind.STOP)
            elif host.node is not None:
                host.is_leaving = False
                self._world.crash(host, back_ms, CRASHED_WITH_ALL)
        if fault.what == FaultKind.POWER:
            self._world.cut_power(self._world.hosts)
        elif fault.what == BY_OPERATOR and (master := self._host(MASTER)) is not None:
            self._ask(master, StopCluster)

    def _between(self, fault: Fault, host: Host, other: Host) -> None:
        network, now = self._world.network, self._world.now
        match fault.kind:
            case FaultKind.LOSE:
                network.lose(host, other)
            case FaultKind.LOSE_ONE_WAY:
                network.lose(host, other, one_way=True)
            case FaultKind.CUT_ONE_WAY:
                network.cut_one_way(host, other, now + fault.lasts_ms)
            case FaultKind.CUT:
                network.cut(host, other, now + fault.lasts_ms)
            case _:
                network.lag(host, other, fault.nth, now + fault.lasts_ms)

    def _cut_group(self, bits: int, until: int) -> None:
        hosts = self._world.hosts
        inside = [host for host in hosts if bits >> host.number & 1]
        outside = [host for host in hosts if not bits >> host.number & 1]
        for host in inside:
            for other in outside:
                self._world.network.cut(host, other, until)

    def _is_possible(self, fault: Fault, host: Host, other: Host | None) -> bool:
        match fault.kind:
            case FaultKind.JOIN:
                return host.node is None and host.comes_back is None
            case FaultKind.OUTAGE:
                return host.has_joined
            case FaultKind.DISK | FaultKind.LOSE_LOG | FaultKind.CLOCK_BACK:
                return True
            case FaultKind.CRASH_WRITING:
                return host.node is not None and host.folder is not None
            case FaultKind.ROT | FaultKind.FOLDER_OLD:
                return host.node is not None and self._world.joined_count() > 2
            case FaultKind.DISK_FAILS if self._world.options.restarts:
                others = [other for other in self._world.hosts if other.folder is not None and other.folder.has_failed]
                return host.has_joined and self._world.joined_count() > 2 and not others
            case FaultKind.FOLDER_COPY | FaultKind.FOLDER_SWAP:
                return host.has_joined and other is not None and other.has_joined and self._world.joined_count() > 2
            case FaultKind.CRASH | FaultKind.POWER | FaultKind.MEMORY:
                return host.node is not None and (not host.has_joined or self._others(host, staying=False))
            case FaultKind.LEAVE | FaultKind.STOP:
                takes_along = not (self._world.options.restarts or self._others(host, staying=True))
                return host.has_joined and not host.is_leaving and not takes_along
            case FaultKind.DEMOTE:
                return host.has_joined and self._world.holds_data(host) and host.wants_lite is None
            case (
                FaultKind.CRASH_ON | FaultKind.CRASH_SENDING | FaultKind.CUT_ON | FaultKind.PAUSE_ON | FaultKind.DESERT
                | FaultKind.DISK_FAILS | FaultKind.DISK_FULL | FaultKind.PAUSE | FaultKind.CLOCK_STEP | FaultKind.DIVIDE | FaultKind.BOUND | FaultKind.BACKUPS
            ):  # fmt: skip
                return host.node is not None
            case FaultKind.CUT_GROUP:
                return True
            case _:
                return other is not None and other is not host

    def _others(self, host: Host, *, staying: bool) -> bool:
        """Tell whether others are in a cluster (and stay), one of them with data if this one holds data."""
        others = [o for o in self._world.hosts if o is not host and o.has_joined and not (staying and o.is_leaving)]
        return any(self._world.holds_data(other) or not self._world.holds_data(host) for other in others)

    def _leave(self, host: Host, comes_back_after_ms: int, *, keeps: bool) -> None:
        host.is_leaving, host.keeps = True, keeps and host.folder is not None
        self._comes_back_after_leaving[host.number] = comes_back_after_ms
        self._world.feed(host, host.running_node.this, LeaveWanted(host.keeps))

    def _ask_to_be_lite(self, host: Host, *, wants_lite: bool) -> None:
        host.wants_lite = wants_lite
        self._repeat_wish(host, host.running_node.this, wants_lite, 0)

    def _promote(self, host: Host, member: MemberId) -> None:
        if host.member == member and host.wants_lite:
            self._ask_to_be_lite(host, wants_lite=False)

    def _repeat_wish(self, host: Host, member: MemberId, wants_lite: bool, asked: int) -> None:
        """Ask a member to hold no data, or some again, as an operator does: until it is so.

        `asked`: how often it was, since it last held no data.
        """
        if host.member != member or host.wants_lite is not wants_lite:
            return
        holds_data = self._world.holds_data(host)
        if not wants_lite and holds_data and asked >= ASKED_FOR_CERTAIN:
            host.wants_lite = None
            return
        self._ask(host, lambda request_id: ChangeLite(request_id, wants_lite))
        asked = asked + 1 if holds_data else 0
        self._world.queue.call_at(self._world.now + ASK_AGAIN_MS, self._repeat_wish, host, member, wants_lite, asked)

    def _ask_for_backups(self, count: int) -> None:
        self._wants_backups = count
        self._repeat_backups(count, 0)

    def _repeat_backups(self, count: int, asked: int) -> None:
        """Ask the master for this number of backups, as an operator does: until its table has it, after it was asked while
        its table had it. A table that has it before can be that of a master with an earlier request to come."""
        master = self._host(MASTER)
        if self._wants_backups != count:
            return
        if master is not None:
            node = master.running_node
            has_it = node.coordinator.decides and node.installed_table.table.maps.depth == count
            # What is changed on a side without the majority does not count when the cluster has been off.
            has_it = has_it and (node.membership.has_majority or not self._world.options.restarts)
            if has_it and asked >= ASKED_FOR_CERTAIN:
                return
            self._ask(master, lambda request_id: ChangeMap(request_id, "", MapChange(BackupCount(count))))
            asked = asked + 1 if has_it else 0
        self._world.queue.call_at(self._world.now + ASK_AGAIN_MS, self._repeat_backups, count, asked)

    def _divide(self, host: Host, times: int) -> None:
        count = host.running_node.installed_table.table.partition_count * times
        if count <= MOST_PARTITIONS:
            self._ask(host, lambda request_id: ChangePartitionCount(request_id, count))

    def _ask(self, host: Host, make_request: Callable[[int], ClientRequest]) -> None:
        """Give the member on a host a request of an administrator. `make_request`: by the request's id."""
        self._requests += 1
        this = host.running_node.this
        self._world.feed(host, this, Call(0, make_request(ADMIN_FROM + self._requests), this))

    def _host(self, number: int) -> Host | None:
        hosts = self._world.hosts
        if number != MASTER:
            return hosts[number]
        return next((host for host in hosts if host.has_joined and host.running_node.membership.is_master), None)


def _index_of(event: MigrationStarted) -> int:
    """Return the replica index that changes hands."""
    return event.destination_new_index if event.destination is not None else event.source_current_index
