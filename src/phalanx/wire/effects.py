"""What goes into a machine and what comes out: two closed unions, and the box in which effects gather.

Drivers turn the world into inputs and carry out effects; machines do nothing else. A call ends in exactly one `Reply`.
A message that is sent may be lost with its connection, and both ends then get `LinkLost`; messages on one connection
arrive in order.
"""

from __future__ import annotations

from collections import deque

import msgspec

from phalanx.common.former_incarnation import KeptData, Past
from phalanx.common.ids import ClientId, MemberId, Millis, Target
from phalanx.common.quorum import Carried
from phalanx.wire.events import Event
from phalanx.wire.facts import Fact
from phalanx.wire.messages import Message, Reply, Request


class Started(msgspec.Struct, frozen=True):
    """The member's driver is listening: begin to join, or come back where an incarnation before this one was."""

    past: Past | None = None
    """What that one left; None: the process has just started."""


class Received(msgspec.Struct, frozen=True, gc=False):
    """A message from a member or a client."""

    sender: MemberId | ClientId
    message: Message


class ReceivedTogether(msgspec.Struct, frozen=True, gc=False):
    """Messages from one peer that arrived in one piece, in order. As if each were received alone, at less cost."""

    sender: MemberId | ClientId
    messages: list[Message]


class LinkLost(msgspec.Struct, frozen=True):
    """A connection with the peer, in either direction, broke: messages to or from it may be lost."""

    peer: Target


class LinkRefused(msgspec.Struct, frozen=True):
    """Nobody accepts connections at the peer's address, or somebody else does."""

    peer: Target
    reason: str
    final: bool = False
    """Whether the peer answered and will not talk with this one (another cluster's name, say): trying again is vain."""
    is_deserted: bool = False
    """Whether the machine answered that no process listens there: what did has ended."""
    is_unproved: bool = False
    """Whether somebody answered and will not talk, and has not shown that it is of the cluster: it may be anybody, or a member
    with another secret."""


class LinkUp(msgspec.Struct, frozen=True):
    """The connection to the peer is open."""

    peer: Target


class TimePassed(msgspec.Struct, frozen=True):
    """The machine's deadline came, or simply some time went by."""


class Call(msgspec.Struct, frozen=True, gc=False):
    """The embedding program wants something of the grid. `request.id` names the call."""

    partition: int
    """Whose owner must answer. Every partition that the request names must have that owner."""
    request: Request
    to: Target | None = None
    """Ask exactly this member instead; if it is lost, so is the call."""
    within_ms: Millis = 0
    """How long the call may take, where that is less than any call; 0: as long as any."""


class LeaveWanted(msgspec.Struct, frozen=True):
    """The embedding program or the operator wants this member to leave in good order."""


Input = Started | Received | ReceivedTogether | LinkLost | LinkRefused | LinkUp | TimePassed | Call | LeaveWanted


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


class Outbox:
    """Gathers the effects of one input, in order. All machines of one member share it.

    What a member sends to itself does not leave: it waits in `loopback` and is handled within the same input. Nor do the facts
    that its machines tell each other.
    """

    __slots__ = ("effects", "has_news", "loopback", "recorded", "this", "told")

    def __init__(self, this: MemberId | None = None) -> None:
        self.this = this
        self.effects: list[Effect] = []
        self.recorded: list[Event] = []
        """The events among the effects, for the member's history."""
        self.loopback: deque[Message] = deque()
        self.told: dict[type[Fact], Fact] = {}
        """The latest fact of each kind."""
        self.has_news = False
        """Whether one was told that was not handed on to those who are interested."""

    def send(self, to: Target, message: Message) -> None:
        if to == self.this:
            self.loopback.append(message)
        else:
            self.effects.append(Send(to, message))

    def record(self, event: Event) -> None:
        self.effects.append(Record(event))
        self.recorded.append(event)

    def tell(self, fact: Fact) -> None:
        """Have the machines of this member that are interested know of this, within the same input."""
        self.told[type(fact)] = fact
        self.has_news = True

    def add(self, effect: Effect) -> None:
        self.effects.append(effect)

    def take(self) -> list[Effect]:
        """The effects gathered so far; the box is empty afterwards."""
        effects, self.effects = self.effects, []
        if self.recorded:
            self.recorded.clear()
        return effects
