"""The box in which the effects of one input gather, and the facts that machines of one member tell each other."""

from __future__ import annotations

from collections import deque

from phalanx.common.ids import MemberId, Target
from phalanx.machine.effects import Effect, Record, Send
from phalanx.machine.facts import Fact
from phalanx.wire.event import Event
from phalanx.wire.messages import Message


class Outbox:
    """Gathers the effects of one input, in order. All machines of one member share it.

    What a member sends to itself does not leave: it waits in `loopback` and is handled within the same input. Nor do the facts
    that its machines tell each other.
    """

    __slots__ = ("effects", "facts", "has_news", "loopback", "recorded", "this")

    def __init__(self, this: MemberId | None = None) -> None:
        self.this = this
        self.effects: list[Effect] = []
        self.recorded: list[Event] = []
        """The events among the effects, for the member's history."""
        self.loopback: deque[Message] = deque()
        self.facts: dict[type[Fact], Fact] = {}
        """The latest fact of each kind."""
        self.has_news = False
        """Whether a fact is not delivered yet."""

    def send(self, to: Target, message: Message) -> None:
        if to == self.this:
            self.loopback.append(message)
        else:
            self.effects.append(Send(to, message))

    def record(self, event: Event) -> None:
        self.effects.append(Record(event))
        self.recorded.append(event)

    def tell(self, fact: Fact) -> None:
        """Tell the interested machines of this member a fact, within the same input."""
        self.facts[type(fact)] = fact
        self.has_news = True

    def add(self, effect: Effect) -> None:
        self.effects.append(effect)

    def take(self) -> list[Effect]:
        """Return the effects gathered so far, and empty the box."""
        effects, self.effects = self.effects, []
        if self.recorded:
            self.recorded.clear()
        return effects
