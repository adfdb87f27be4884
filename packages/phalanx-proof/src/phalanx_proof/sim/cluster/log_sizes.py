"""Judges at rest how long logs are: what a member holds can be copied to its disk, and then only these copies are needed.

All replicas are copied twice. Then each begins in a copy, and a segment that began behind the first copies says so. So of all that is
older than the first copies nothing is left, but the segment in which they begin (DU-12).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from phalanx.common.ids import Millis
from phalanx.machine.inputs import CopyToDisk
from phalanx_proof.sim.cluster.folder import SEGMENT_RECORDS, SimFolder
from phalanx_proof.sim.cluster.host import Host
from phalanx_proof.sim.cluster.world import World

BOUNDED = "a log is no longer than what is needed"
STEP_MS: Millis = 20
QUIET_MS: Millis = 5_000
"""So long what members have read from their folders waits for a migration that brings it back, before it is dropped."""
LONGEST_MS: Millis = 120_000
"""So long copies of everything take at most."""


class Copying(NamedTuple):
    """A member that copies all its replicas."""

    host: Host
    folder: SimFolder
    from_lsn: int
    """The last record before these copies."""

    @property
    def is_over(self) -> bool:
        """Whether all that it holds begins behind `from_lsn`, and enough was written for a segment; or it has ended.

        It has not as long as replicas wait for a merge: their records are needed, and none of them is copied.
        """
        index = self.folder.replay.index
        if self.host.node is None or not (index.began or index.kept):
            return True
        is_long = self.folder.log.last_lsn >= self.from_lsn + 2 * SEGMENT_RECORDS
        return is_long and index.needed_from(self.folder.log.last_lsn) > self.from_lsn


def judge_sizes(world: World, tell: Callable[[Host, str], None]) -> int:
    """Let members copy what they hold, and judge their logs. Return how many were judged. `tell`: is told what is wrong."""
    world.run_until(world.now + QUIET_MS)
    first = _copy_all(world, _begin(world))
    _copy_all(world, _begin(world))
    world.run_until(world.now + 1_000)  # the last syncs
    judged = 0
    for each in first:
        is_copied = each.folder.log.last_lsn >= each.from_lsn + 4 * SEGMENT_RECORDS
        # What waits for a merge is not copied, and needs what is older.
        if not is_copied or each.folder.replay.index.kept or each.host.folder is not each.folder or each.folder.differs:
            continue
        judged += 1
        if why := each.folder.why_too_long(each.from_lsn):
            tell(each.host, why)
    return judged


def _begin(world: World) -> list[Copying]:
    return [
        Copying(host, host.folder, host.folder.log.last_lsn)
        for host in world.hosts
        if host.has_joined and host.folder is not None and host.folder.log.is_on
    ]


def _copy_all(world: World, members: list[Copying]) -> list[Copying]:
    """Copy all that these members hold. Return those that have done so."""
    end = world.now + LONGEST_MS
    copying = members
    while copying and world.now < end and not world.is_over:
        for each in copying:
            if (partition := each.folder.replay.index.oldest()) is not None:
                world.feed(each.host, each.host.running_node.this, CopyToDisk(partition))
        world.run_until(world.now + STEP_MS)
        copying = [each for each in copying if not each.is_over]
    return [each for each in members if each not in copying]
