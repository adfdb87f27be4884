"""What a running member says of itself, to the program that embeds it, to its process and to its HTTP port. Nothing here changes it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from phalanx.common.ids import Address, MemberId, address_of
from phalanx.common.public_names import PublicNames
from phalanx.common.table import PartitionTable
from phalanx.common.view import MembersView
from phalanx.node.node import Node
from phalanx.runtime.disk.disk_driver import DiskDriver
from phalanx.runtime.disk.member_disk import MemberDisk
from phalanx.runtime.disk.reading_progress import ReadingProgress
from phalanx.runtime.logs.event_log import EventLog

if TYPE_CHECKING:
    from phalanx.http.server import HttpServer


class MemberStatus(PublicNames):
    """The state of a member, as others read it; `MemberDriver` sets it."""

    _internal = frozenset({"disk", "has_started", "keeps_data", "node", "not_begun", "receivers"})

    node: Node
    """The machines of the present incarnation."""
    _http: HttpServer | None
    """The HTTP port; None: there is none."""
    _disk: DiskDriver | None
    """What it writes its data to, from its start to its end; None: it has no folder."""
    _reading: ReadingProgress | None
    """How far its log is read back, before it has a node; None: it has one, or no log."""
    _events: EventLog
    _started: asyncio.Future[None]
    _is_over: bool
    """Whether this member has stopped, or failed: its node gets no input any more."""
    _has_left: bool
    _is_to_leave: bool
    """Whether this member was asked to leave in good order, which also holds for later incarnations."""
    _keeps: bool
    """Whether it then comes back with what its folder has."""

    @property
    def id(self) -> MemberId:
        """Return this incarnation's identity."""
        return self.node.this

    @property
    def address(self) -> Address:
        """Return the address (`host:port`) under which others reach this member."""
        return address_of(self.node.this)

    @property
    def view(self) -> MembersView | None:
        """Return the installed view; None: this member is not in a cluster."""
        return self.node.membership.view

    @property
    def table(self) -> PartitionTable:
        """Return the installed partition table."""
        return self.node.installed_table.table

    @property
    def disk(self) -> MemberDisk | None:
        """Return what it writes its data to; None: it has no folder."""
        return self._disk.disk if self._disk is not None else None

    @property
    def replicas_held(self) -> int:
        """Return how many replicas this member holds by the installed table, and hands over when it leaves."""
        return self.table.loads().get(self.id, 0)

    def receivers(self) -> list[Address]:
        """Return the addresses of the members to which this member sends copies of replicas now."""
        under_way = self.node.grid.outgoing.active.values()
        return sorted({address_of(each.destination.member) for each in under_way})

    @property
    def http_port(self) -> int:
        """Return the port at which this member answers HTTP; 0: at none."""
        return self._http.port if self._http is not None else 0

    @property
    def event_log_problem(self) -> str:
        """Return why its event log cannot be written now; empty: it can, or there is none."""
        return self._events.problem

    @property
    def is_over(self) -> bool:
        """Return whether this member has stopped, or failed."""
        return self._is_over

    @property
    def has_started(self) -> bool:
        """Return whether it has joined, and the cluster has had the members that it waits for."""
        return self._started.done() and not self._started.cancelled() and self._started.exception() is None

    @property
    def not_begun(self) -> str:
        """Return why this member is nothing yet that can be asked; empty: it can be."""
        return self._reading.in_words() if self._reading is not None else ""

    @property
    def is_leaving(self) -> bool:
        """Return whether it was asked to hand over what it holds and leave."""
        return self._is_to_leave

    @property
    def has_left(self) -> bool:
        """Return whether this member has left its cluster in order, or stopped to come back."""
        return self._has_left

    @property
    def keeps_data(self) -> bool:
        """Return whether it comes back with what its folder has when it is stopped: it has one, and its disk works."""
        return self.disk is not None and self.disk.lost is None

    @property
    def waits_for(self) -> list[Address]:
        """Return where the members were for which this one stays, though it was asked to leave: nobody else is there to take
        what it holds. Only as far as it is the master."""
        return list(map(address_of, self.node.coordinator.draining.waits_for()))
