"""The members of folders that an operator has restored from backups, beside the cluster of these backups, which goes on (DU-23).

The folder of each host is backed up, one after another, and restored on a host of its own. Their seeds are all hosts, also
those of the other cluster, which has the same name. Nobody calls the restored members: so what they hold is what was in the backups.

* No list has members of both clusters.
* No value is in the restored cluster that was in none of the backups: what is written to the other one does not come here.

Whether the cluster of the backups is as it was, all other checkers say: they hear nothing of the restored members.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from phalanx.common.ids import Address, MemberId, Millis, address_of
from phalanx.common.table import PartitionTable
from phalanx.wire.event import Event
from phalanx.wire.messages import Reply
from phalanx.wire.view_events import ViewInstalled
from phalanx_proof.sim.cluster.host import Host
from phalanx_proof.sim.cluster.observer import Observer
from phalanx_proof.sim.cluster.restored_folder import RestoredFolder, entries_of, founder_in
from phalanx_proof.sim.cluster.world import World

APART = "a restored cluster and that of the backup stay apart"
ONLY_BACKED_UP = "a restored cluster has only what was backed up"
FOUND_WITHIN_MS: Millis = 90_000
"""So long restored members look for each other at most, and wait for those that are missing."""


class RestoredCluster:
    """Backs folders up, restores them, and judges what becomes of that. It hears all, and passes on what is not of restored members."""

    def __init__(self, hosts: int, others: Observer, tell: Callable[[str, str], None]) -> None:
        """`hosts`: how many are not for restored members. `tell`: is told what does not hold, and why."""
        self._hosts = hosts
        self._others = others
        self._tell = tell
        self._addresses: set[Address] = set()
        """Where restored members run."""
        self._folders: list[RestoredFolder] = []
        self.serving = 0
        """How many restored members were judged that know who owns each partition."""

    def plan(self, world: World) -> None:
        """Plan the backups, and what is restored from them."""
        if not world.restored_hosts:
            return
        chance = Random(f"backups:{world.options.seed}")
        self._addresses = {host.address for host in world.restored_hosts}
        for host, place in zip(world.hosts, world.restored_hosts, strict=True):
            at = world.options.backed_up_at_ms + chance.choice((0, 0, 5, 200))
            world.queue.call_at(at, self._back_up, world, host, place, chance.randrange(5_000))

    def _back_up(self, world: World, host: Host, place: Host, restored_after_ms: Millis) -> None:
        folder = host.folder
        if folder is None or folder.is_hurt or folder.has_failed or folder.differs:
            return
        backup = folder.copy(world.now)
        founder = founder_in(backup)
        if founder is None:
            return
        restored = world.restored_folder_type(f"restored:{place.number}", backup, founder)
        self._folders.append(restored)
        place.folder = restored
        world.start_later(place, 1 + restored_after_ms)

    def judge(self, world: World) -> None:
        """Wait until the restored members have found each other, and judge what they hold."""
        end = world.now + FOUND_WITHIN_MS
        while world.now < end and not world.is_over and not _are_together(world):
            world.run_until(world.now + 1_000)
        backed_up = set[tuple[bytes, bytes]]().union(*(folder.backed_up for folder in self._folders))
        for host in world.restored_hosts:
            if not host.has_joined:
                continue
            grid, node = host.running_node.grid, host.running_node
            self.serving += node.installed_table.is_assigned
            held = (*(owned.replica for owned in grid.ownership.all_owned()), *grid.follower.replicas.values())
            if others := {entry for replica in held for entry in entries_of(replica)} - backed_up:
                self._tell(ONLY_BACKED_UP, f"{node.this} has {min(others)}")

    # --- what the world tells ------------------------------------------------------------------------------------------

    def _is_restored(self, host: Host) -> bool:
        return host.number >= self._hosts

    def on_event(self, host: Host, event: Event, now: Millis) -> None:
        if isinstance(event, ViewInstalled):
            restored = [each for each in event.members if address_of(each) in self._addresses]
            if restored and len(restored) < len(event.members):
                self._tell(APART, f"{host.member} has a list with {restored} and others: {event.members}")
        if not self._is_restored(host):
            self._others.on_event(host, event, now)

    def on_table(self, host: Host, table: PartitionTable, now: Millis) -> None:
        if not self._is_restored(host):
            self._others.on_table(host, table, now)

    def on_answer(self, host: Host, reply: Reply, replier: MemberId, now: Millis) -> None:
        self._others.on_answer(host, reply, replier, now)

    def on_last_input(self, host: Host, now: Millis) -> None:
        if not self._is_restored(host):
            self._others.on_last_input(host, now)

    def on_process(self, host: Host, member: MemberId, what: str, now: Millis) -> None:
        if not self._is_restored(host):
            self._others.on_process(host, member, what, now)

    def on_pause(self, host: Host, until: Millis, now: Millis) -> None:
        self._others.on_pause(host, until, now)

    def on_power_cut(self, now: Millis) -> None:
        self._others.on_power_cut(now)

    def on_log_differs(self, host: Host, why: str, now: Millis) -> None:
        self._others.on_log_differs(host, why, now)

    def on_wrong_log(self, host: Host, what: str, why: str, now: Millis) -> None:
        self._others.on_wrong_log(host, what, why, now)

    def on_broken(self, host: Host, error: BaseException, now: Millis) -> None:
        self._others.on_broken(host, error, now)


def _are_together(world: World) -> bool:
    """Return whether all restored members have one list, and one table with owners."""
    nodes = [host.running_node if host.has_joined else None for host in world.restored_hosts if host.folder is not None]
    return (
        all(node is not None and node.installed_table.is_assigned for node in nodes)
        and len({node.membership.view for node in nodes if node is not None}) <= 1
    )
