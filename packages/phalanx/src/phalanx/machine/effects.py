"""What comes out of a machine: the closed union `Effect`. Drivers carry effects out. A call ends in exactly one `Answer`."""

from __future__ import annotations

import msgspec

from phalanx.common.former_incarnation import DataHandover, FormerIncarnation
from phalanx.common.ids import MemberId, Target
from phalanx.common.quorum import QuorumHandover
from phalanx.common.table import PartitionTable
from phalanx.common.view import MembersView
from phalanx.wire.event import Event
from phalanx.wire.messages import Message, Reply


class Send(msgspec.Struct, frozen=True, gc=False):
    """Send a message. The driver opens a connection if there is none."""

    to: Target
    message: Message


class Answer(msgspec.Struct, frozen=True, gc=False):
    """A call of the embedding program has ended."""

    reply: Reply


class Record(msgspec.Struct, frozen=True):
    """An event for people and for the event log."""

    event: Event


class Finished(msgspec.Struct, frozen=True):
    """This incarnation is over. `rejoin`: start a new one on the same address with `past`; it asks these members first."""

    reason: str
    rejoin: tuple[MemberId, ...] = ()
    failed: bool = False
    """Whether it failed to do what it was started for."""
    kept: DataHandover | None = None
    """Data for the next incarnation of this process; it is lost if there is none."""
    carried: QuorumHandover | None = None
    """What this incarnation knows of views and has promised, for the next one."""
    past: FormerIncarnation = FormerIncarnation()
    """What the incarnation that is to be started must know."""


class ViewChanged(msgspec.Struct, frozen=True):
    """The member has another view.

    It comes before all other effects of its input: what is sent to members that are not in it any more is not to wait
    for a connection.
    """

    view: MembersView | None
    """None: it is in no cluster."""


class TableChanged(msgspec.Struct, frozen=True):
    """The member has installed another partition table."""

    table: PartitionTable


Effect = Send | Answer | Record | Finished | ViewChanged | TableChanged
