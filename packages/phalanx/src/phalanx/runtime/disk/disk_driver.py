"""The disk of one member beside its event loop: opened before the member listens, written before anything leaves, closed last.

What the disk promises is in `member_disk`. This module says when it is called: in each turn of the loop, and for the node of the
present incarnation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import Protocol

import msgspec

from phalanx.common.disk_state import DiskState
from phalanx.grid.replication.replica_log import ReplicaLog
from phalanx.machine.inputs import CopyToDisk, DiskChecked, Input, Synced
from phalanx.net.connection import ConnectionGroup
from phalanx.node.node import Node
from phalanx.runtime.disk.member_disk import DiskUser, FolderSettings, MemberDisk
from phalanx.runtime.disk.reading_progress import ReadingProgress
from phalanx.runtime.settings.config import Config
from phalanx.runtime.settings.memory_limit import available_memory, limits_of


class DrivenMember(Protocol):
    """The member whose disk is driven (`runtime.member_driver`)."""

    node: Node

    @property
    def is_over(self) -> bool: ...

    def feed(self, event: Input) -> None: ...

    def break_off(self) -> None: ...


class AnswerHolders(Protocol):
    """The connections that hold answers until what they tell of is synced (`runtime.endpoints`)."""

    log: ReplicaLog | None

    def on_synced(self, lsn: int) -> None:
        """Write the answers that waited for the sync of records up to this one."""

    def on_disk_failed(self) -> None:
        """Reset the connections whose answers wait for a sync."""


class DiskDriver:
    """Drives the disk of one member, over all its incarnations."""

    def __init__(self, disk: MemberDisk, member: DrivenMember, group: ConnectionGroup, holders: AnswerHolders) -> None:
        self.disk = disk
        self._member = member
        self._holders = holders
        holders.log = disk.log
        self._group = group
        self._loop = asyncio.get_running_loop()
        self._context = Context()
        self._sync_scheduled = False
        self._closing: asyncio.Task[None] | None = None
        """The end of the log, once the member has ended."""
        group.before_output, group.gathers_output = disk.write, disk.is_due

    def __repr__(self) -> str:
        return f"DiskDriver({self.disk!r})"

    def begin(self, timeout_s: float) -> None:
        """Begin to write, for the first incarnation and all later ones. `timeout_s`: a call of the disk that lasts longer hangs."""
        member, group = self._member, self._group
        user = DiskUser(
            lambda: (member.node.this, member.node.clock),
            lambda state, why: group.call(self._note_state, state, why),
            lambda lsn: group.call(self._note_synced, lsn),
            member.break_off,
        )
        self.disk.begin(user, lambda: member.node.grid.held.sizes(), timeout_s)

    def _note_state(self, state: DiskState, why: str) -> None:
        self._member.feed(DiskChecked(state, why))
        if state is DiskState.FAILED:
            self._holders.on_disk_failed()

    def _note_synced(self, lsn: int) -> None:
        self._member.feed(Synced(lsn))
        self._holders.on_synced(lsn)

    def follow_input(self) -> None:
        """Let a sync begin behind the other inputs of this turn, if somebody waits for one: it is for all of them."""
        if not self._sync_scheduled and self.disk.log.is_wanted and self.disk.is_due():
            self._sync_scheduled = True
            self._loop.call_soon(self._group.call, self._begin_sync, context=self._context)

    def _begin_sync(self) -> None:
        """Write what was logged, so that a sync can begin for those who wait for it: perhaps nothing else leaves that would do so."""
        self._sync_scheduled = False
        if not self._member.is_over:
            self.disk.write()

    def look(self) -> None:
        """Write what nothing was sent for, and begin the copy that makes a long log shorter."""
        if self._member.is_over:
            return
        self.disk.write()
        if (partition := self.disk.find_copy(self._member.node.grid.held.count_bytes)) is not None:
            self._member.feed(CopyToDisk(partition))

    def end(self, *, is_orderly: bool, on_closed: Callable[[], None] | None = None) -> None:
        """Begin to close the disk. `is_orderly`: the member has ended as it was asked to. `on_closed`: called when it is closed."""
        if self._closing is None:
            self._closing = self._loop.create_task(self.disk.close(is_orderly=is_orderly))
            if on_closed is not None:
                self._closing.add_done_callback(lambda _: on_closed())

    async def wait_closed(self) -> None:
        """Wait until the disk is closed, if that has begun."""
        if self._closing is not None:
            await asyncio.shield(self._closing)


async def open_disk(config: Config, path: str, release: str, progress: ReadingProgress) -> tuple[MemberDisk, Config]:
    """Open the folder of a member, and read it back in a thread. Return the disk, and the settings that the member has with it.

    What is on the disk counts: the number of partitions changes while the cluster runs. Raises `DataFolderRefused`.
    """
    settings = FolderSettings(path, config.cluster, release, config.data_dir_is_lasting, config.disk_lag_ms)
    may_hold = limits_of(config.memory_limit, available_memory()).ceiling
    disk = await asyncio.to_thread(MemberDisk.open, settings, may_hold, progress)
    if disk.restoration is not None and disk.restoration.partition_count:
        config = msgspec.structs.replace(config, partition_count=disk.restoration.partition_count)
    return disk, config
