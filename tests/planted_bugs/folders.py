"""Bugs of folders to plant: worlds whose folders are written, synced and read back wrongly."""

from __future__ import annotations

from random import Random
from unittest.mock import patch

import msgspec

from phalanx.common.clock import ClockStart
from phalanx.common.ids import MemberId, Millis
from phalanx.disk.blocks import BlockTimes
from phalanx.disk.log_index import LogIndex
from phalanx.disk.reading import LogAges, StartTimes
from phalanx.disk.replay import Replay
from phalanx.disk.restoring import Restoration
from phalanx.disk.scanning import LogScan
from phalanx.grid.replication.restored import RestoredReplicas
from phalanx.machine.effects import Finished
from phalanx.node.node import Node
from phalanx_proof.sim.cluster.folder import SimFolder, SyncUnderWay
from phalanx_proof.sim.cluster.host import Host
from phalanx_proof.sim.cluster.restored_folder import RestoredFolder
from phalanx_proof.sim.cluster.sector_disk import Image, SectorDisk
from phalanx_proof.sim.cluster.world import World

from .replacing import replace


def _folder(kind: type[SimFolder]) -> type[World]:
    """Return a world whose hosts have folders of this kind."""
    return type(f"WorldOf{kind.__name__}", (World,), {"folder_type": kind})


class _BelievesEveryBeginning(SimFolder):
    """A replica begins with the first record that can be a beginning, although the log before that is gone."""

    def read(self, image: Image, at: StartTimes) -> tuple[LogScan, Replay]:
        with patch.object(LogIndex, "begins", lambda self, lsn: True):
            return super().read(image, at)


class _BeginsTimesAnew(SimFolder):
    """Times to live begin when a process reads its folder."""

    def read(self, image: Image, at: StartTimes) -> tuple[LogScan, Replay]:
        with patch.object(LogAges, "now_of", lambda self, lsn, times: at.mono_ms):
            return super().read(image, at)


class _ForgetsWhatIsKept(SimFolder):
    """Segments go that only replicas need which wait for a merge."""

    def _begin_segment(self, member: MemberId, times: BlockTimes) -> None:
        def needed_from(index: LogIndex, end: int) -> int:
            return min([*index.began.values(), *index.arriving.values(), *index.to_disk.values()], default=end)

        with patch.object(LogIndex, "needed_from", needed_from):
            super()._begin_segment(member, times)


class _ReservesNoStamps(SimFolder):
    """No stamps are reserved: what a power cut takes from the log can be stamped again."""

    def begin_process(self, cluster: str, wall_ms: Millis, shown: Millis) -> Restoration | None:
        restoration = super().begin_process(cluster, wall_ms, shown)
        replace(self._writer._reservation, "extend", lambda log, clock: None)
        return restoration


class _TakesErrorsForTheEnd(SimFolder):
    """A log ends before the first segment that cannot be read."""

    def read(self, image: Image, at: StartTimes) -> tuple[LogScan, Replay]:
        if self._unreadable in image:
            image = {number: content for number, content in image.items() if number < self._unreadable}
        return super().read(image, at)


class _BelievesTheCache(SimFolder):
    """What a process reads is not synced first, so the next power cut can take it."""

    def begin_process(self, cluster: str, wall_ms: Millis, shown: Millis) -> Restoration | None:
        with patch.object(SectorDisk, "end_sync", lambda self, begun: None):
            return super().begin_process(cluster, wall_ms, shown)


class _RemovesOneTooMany(SimFolder):
    """The oldest segment that is needed is removed with those before it."""

    def _end_sync(self, sync: SyncUnderWay) -> None:
        note, last = self._writer.note_synced, self.files.numbers[-2]

        def note_synced(lsn: int) -> int | None:
            needed = note(lsn)
            return needed if needed is None else min(needed + 1, last)

        with patch.object(self._writer, "note_synced", note_synced):
            super()._end_sync(sync)


class _RemovesBeforeTheSync(SimFolder):
    """Segments are removed as soon as a later one says that nothing needs them, and not when that is on the disk."""

    def write(self, now: Millis, times: BlockTimes) -> None:
        super().write(now, times)
        synced = self._writer._synced_lsn
        if (needed := self._writer.note_synced(self._last_lsn)) is not None:
            self._remove_before(needed, self.synced_lsn)
        self._writer._synced_lsn = synced


class _SaysSyncedTooEarly(SimFolder):
    """A block says of all before it that it is on the disk."""

    def write(self, now: Millis, times: BlockTimes) -> None:
        self._writer._synced_lsn = self._last_lsn
        super().write(now, times)


class _TakesTheTailForTheEnd(SimFolder):
    """A log ends where the last sync was, whatever was written behind that."""

    def begin_process(self, cluster: str, wall_ms: Millis, shown: Millis) -> Restoration | None:
        self.files.cut_power(Random(0))
        return super().begin_process(cluster, wall_ms, shown)


class _EndsBeforeTheSync(SimFolder):
    """A process that stops has ended when it has written all, and does not wait for the sync."""

    def end_log(self, now: Millis, times: BlockTimes) -> Millis:
        super().end_log(now, times)
        return now


class _WritesBehindTheEnd(SimFolder):
    """A process says that nothing follows, and writes again."""

    def end_log(self, now: Millis, times: BlockTimes) -> Millis:
        if self.log.is_on:
            self._writer.end(times, self)
        return super().end_log(now, times)


class _SyncsAgain(SimFolder):
    """A sync that has failed is tried again on the same file, and succeeds: of what it did not write the system says that it has."""

    def fail(self) -> None:
        self.files.cut_power(self._chance)


class _KeepsTheFounder(RestoredFolder):
    """What is restored from a backup counts as the cluster that was backed up."""

    def name_founder(self, founder: MemberId) -> MemberId:
        return founder


class _RestoresTheSameCluster(World):
    restored_folder_type = _KeepsTheFounder


class _KeepsTheNewest(SimFolder):
    """Of the segments that nobody needs any more, the newest one is forgotten, and stays for ever."""

    def _remove_before(self, needed: int, synced_lsn: int) -> None:
        super()._remove_before(needed - 1, synced_lsn)


class _Misreads(World):
    """A process goes on with something else than what its folder gives."""

    def misread(self, read: RestoredReplicas, host: Host) -> RestoredReplicas:
        raise NotImplementedError

    def _new_node(
        self, host: Host, this: MemberId, after: Finished | None, restoration: Restoration | None = None
    ) -> Node:
        if restoration is not None and (read := restoration.kept.restored) is not None:
            restoration.kept.restored = self.misread(read, host)
        return super()._new_node(host, this, after, restoration)


class _BeginsClocksAnew(_Misreads):
    """A process begins with the clock of its machine, whatever its folder says, and tells nobody what that has reserved."""

    def misread(self, read: RestoredReplicas, host: Host) -> RestoredReplicas:
        side = msgspec.structs.replace(read.side, seen_ms=0)
        return read._replace(side=side, clock=ClockStart(0, 0, host.wall_ms, 0))


class _TakesTheReservationAlong(_Misreads):
    """A process goes on behind all that its log has reserved, also where it joins a cluster that runs."""

    def misread(self, read: RestoredReplicas, host: Host) -> RestoredReplicas:
        ahead = max(read.clock.last_stamp, read.clock.reserved)
        return read._replace(clock=read.clock._replace(last_stamp=ahead))


DISK_WORLDS: dict[str, type[World]] = {
    "believe-every-beginning": _folder(_BelievesEveryBeginning),
    "begin-times-anew": _folder(_BeginsTimesAnew),
    "begin-clocks-anew": _BeginsClocksAnew,
    "believe-the-cache": _folder(_BelievesTheCache),
    "forget-what-is-kept": _folder(_ForgetsWhatIsKept),
    "take-the-reservation-along": _TakesTheReservationAlong,
    "reserve-no-stamps": _folder(_ReservesNoStamps),
    "take-errors-for-the-end": _folder(_TakesErrorsForTheEnd),
    "keep-a-segment": _folder(_KeepsTheNewest),
    "remove-one-segment-too-many": _folder(_RemovesOneTooMany),
    "remove-segments-before-the-sync": _folder(_RemovesBeforeTheSync),
    "say-synced-too-early": _folder(_SaysSyncedTooEarly),
    "end-before-the-sync": _folder(_EndsBeforeTheSync),
    "write-behind-the-end": _folder(_WritesBehindTheEnd),
    "sync-again": _folder(_SyncsAgain),
    "restore-the-same-cluster": _RestoresTheSameCluster,
    "forget-what-is-not-synced": _folder(_TakesTheTailForTheEnd),
}
"""Name to the world that does so."""
