"""What goes into a machine: the closed union `Input`. Drivers turn what happens into inputs; machines see nothing else
of it.

A message that is sent can be lost with its connection, and both ends then get `LinkLost`; messages on one connection
arrive in order.
"""

from __future__ import annotations

import msgspec

from phalanx.common.disk_state import DiskState
from phalanx.common.former_incarnation import FormerIncarnation
from phalanx.common.ids import Address, ClientId, Lost, MemberId, Millis, Target
from phalanx.wire.figures import ActivityPoint, DiskStatus, MapCalls
from phalanx.wire.messages import Message, Request


class Started(msgspec.Struct, frozen=True):
    """The member's driver listens: begin to join, or come back where an incarnation before this one was."""

    past: FormerIncarnation | None = None
    """What the incarnation before this one handed over; None: the process has just started."""


class Received(msgspec.Struct, frozen=True, gc=False):
    """A message from a member or a client."""

    sender: MemberId | ClientId
    message: Message


class ReceivedTogether(msgspec.Struct, frozen=True, gc=False):
    """Messages from one peer that arrived together, in order: like `Received` for each, at less cost."""

    sender: MemberId | ClientId
    messages: list[Message]


class LinkLost(msgspec.Struct, frozen=True):
    """A connection with the peer, in either direction, broke: messages to or from it can be lost."""

    peer: Target


class LinkRefused(msgspec.Struct, frozen=True):
    """No process accepts connections at the peer's address, or one that refuses this member."""

    peer: Target
    reason: str
    final: bool = False
    """Whether the peer answered and refuses for good (for example because of another cluster's name): do not retry."""
    is_deserted: bool = False
    """Whether the machine answered that no process listens there: the process that did has ended."""
    is_same_host: bool = False
    """Whether that machine is this one: no firewall, router or forwarded port can have answered instead."""
    is_unproved: bool = False
    """Whether a process answered, refuses to talk, and has not proved to know the cluster's secret: it can be any
    program, or a member with another secret.
    """


class LinkUp(msgspec.Struct, frozen=True):
    """The connection to the peer is open."""

    peer: Target


class TimePassed(msgspec.Struct, frozen=True):
    """The machine's deadline came, or some time went by."""


class Call(msgspec.Struct, frozen=True, gc=False):
    """The embedding program calls the grid. `request.id` names the call."""

    partition: int
    """The partition whose owner must answer. Every partition that the request names must have that owner."""
    request: Request
    to: Target | None = None
    """Ask exactly this member instead; if it is lost, so is the call."""
    within_ms: Millis = 0
    """The time limit of this call, if it is shorter than that of all calls; 0: it is not."""
    lost: Lost = ()
    """Members that were lost while they possibly served requests in whose place this one is made (`ErrorReply.lost`)."""


class MemoryMeasured(msgspec.Struct, frozen=True):
    """The memory that the process of this member uses now."""

    resident: int
    """Bytes in memory, with those that are free inside of the process."""
    limit: int
    """The member's memory limit in bytes; 0: it has none."""
    ceiling: int
    """The most bytes that can be in memory, between the limit and what the system allows."""
    base: int
    """Bytes that were in memory when the process began, without data."""


class SeedsFound(msgspec.Struct, frozen=True):
    """The driver has looked into the sources of seeds (names of the DNS, files): now, or before this incarnation began."""

    addresses: tuple[Address, ...]
    """All that they have given last, in the same order everywhere, bounded (`common/seeds.py`)."""
    failures: tuple[str, ...] = ()
    """Sources that did not answer when they were last asked, and why."""


class EventLogChecked(msgspec.Struct, frozen=True):
    """Whether this member's event log can be written has changed, or this incarnation begins while it cannot."""

    problem: str
    """Why it cannot be written; empty: it can."""


class DiskMeasured(msgspec.Struct, frozen=True):
    """How the disk of this member does."""

    report: DiskStatus


class ActivityMeasured(msgspec.Struct, frozen=True):
    """What this member did recently, by the counters of its driver; measured every few seconds."""

    recorded: int
    """As in `ActivityReply`, like the fields that follow."""
    points: tuple[ActivityPoint, ...]
    counts_calls: bool
    over_ms: Millis
    maps: tuple[MapCalls, ...]


class DiskChecked(msgspec.Struct, frozen=True):
    """How this member's disk does: when that changes, and each second while it is full or has failed."""

    state: DiskState
    why: str
    """In words; empty where nothing is wrong."""


class CopyToDisk(msgspec.Struct, frozen=True):
    """The log is long: copy a replica to the disk, so that older parts of the log are not needed for it."""

    partition: int


class Synced(msgspec.Struct, frozen=True):
    """A sync of the log of this member has ended."""

    lsn: int
    """All records up to this one are synced."""


class LeaveWanted(msgspec.Struct, frozen=True):
    """The embedding program or the operator wants this member to leave in good order."""

    keeps: bool = False
    """Whether it comes back with what it has in its folder; False: others get all that it holds."""


RareInput = (
    Started | LinkLost | LinkRefused | LinkUp | LeaveWanted | MemoryMeasured | SeedsFound | EventLogChecked | ActivityMeasured
    | CopyToDisk | DiskMeasured | DiskChecked
)  # fmt: skip
"""All but messages, calls, time and syncs."""
Input = Received | ReceivedTogether | TimePassed | Call | Synced | RareInput
