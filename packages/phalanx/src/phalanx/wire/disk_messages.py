"""Messages about the disks of members."""

from __future__ import annotations

from phalanx.common.disk_state import DiskState
from phalanx.wire.message import WireMessage


class DiskReport(WireMessage, tag=178, frozen=True):
    """How a member's disk does: to all members where that changes, and again while it is full or has failed."""

    state: DiskState
    why: str
    """In words; empty where nothing is wrong."""
