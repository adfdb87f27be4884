"""What comes out of a machine: the closed union `Effect`. Drivers carry effects out. A call ends in exactly one `Answer`."""

from __future__ import annotations

import msgspec

from phalanx.common.former_incarnation import KeptData, Past
from phalanx.common.ids import MemberId, Target
from phalanx.common.quorum import Carried
from phalanx.wire.events import Event
from phalanx.wire.messages import Message, Reply


class Send(msgspec.Struct, frozen=True, gc=False):
    """Send a message. The driver opens the connection where there is none."""

    to: Target
    message: Message


class Answer(msgspec.Struct, frozen=True, gc=False):
    """A call of the embedding program has ended."""

    reply: Reply


class Record(msgspec.Struct, frozen=True):
    """A fact for people and for the event log."""

    event: Event


class Finished(msgspec.Struct, frozen=True):
    """This incarnation is over. `rejoin`: start a new one on the same address with `past`; it asks these members first."""

    reason: str
    rejoin: tuple[MemberId, ...] = ()
    failed: bool = False
    """It could not do what it was started for."""
    kept: KeptData | None = None
    """What the next incarnation of this process is to be given; if there is none, it is lost."""
    carried: Carried | None = None
    """The same, of what this one knows of views and has promised."""
    past: Past = Past()
    """For the incarnation that is to be started."""


Effect = Send | Answer | Record | Finished
