"""Count the calls of clients at a member, by map and operation: how they ended, and how long they took; and the bytes of all
connections of the grid.

A call counts from the moment when its request was read to the moment when its reply is queued, with the time that it
waited for its turn. Only a member with an HTTP port counts: without one, connections are of a class that does not.
"""

from __future__ import annotations

from time import perf_counter
from typing import Any, Final

from phalanx.common.errors import ErrorCode
from phalanx.common.ids import is_client
from phalanx.http.durations import CALL_ENDS_S, Durations
from phalanx.net.connection import ConnectionGroup
from phalanx.net.link import Link
from phalanx.runtime.connections.busiest_maps import BusiestMaps
from phalanx.runtime.connections.inbound import AcceptingMember, Acceptor, Inbound
from phalanx.wire.messages import ErrorReply, Handshake, Message

MOST_UNDER_WAY: Final = 100_000
"""Requests of one connection whose time of arrival is kept; a client that sends more at once is not timed."""


class Calls(Durations):
    """The calls of one operation on one map."""

    __slots__ = ("errors",)

    def __init__(self) -> None:
        super().__init__(CALL_ENDS_S)
        self.errors: dict[ErrorCode, int] = {}

    def note_end(self, took_s: float, error: ErrorCode | None) -> None:
        """Count a call that has ended."""
        self.note(took_s)
        if error is not None:
            self.errors[error] = self.errors.get(error, 0) + 1


class CallStatistics:
    """The calls of all clients at one member, and the bytes of its connections."""

    def __init__(self) -> None:
        self.of: dict[tuple[str, type], Calls] = {}
        """Map and kind of request to its calls; a request of no map, or of several, has the empty name."""
        self._busiest = BusiestMaps(self._calls_of, self._drop)
        self.received_bytes = {"client": 0, "member": 0}
        self.sent_bytes = {"client": 0, "member": 0}
        """Of connections that are closed; of open ones each knows its own (`MeasuredInbound`, `MeasuredLink`)."""
        self.links: set[MeasuredLink] = set()
        """The open connections that this member has opened, also those that are only written out now."""

    def find(self, name: str, kind: type) -> Calls:
        """Return the calls of this kind on this map."""
        calls = self.of.get((name, kind))
        if calls is None:
            calls = self.of.setdefault((self._busiest.name_of(name), kind), Calls())
        return calls

    def _calls_of(self, name: str) -> int:
        return sum(sum(calls.classes) for (map_name, _), calls in self.of.items() if map_name == name)

    def _drop(self, name: str) -> None:
        for key in [key for key in self.of if key[0] == name]:
            del self.of[key]


class MeasuredInbound(Inbound):
    """An accepted connection whose calls are counted."""

    def __init__(
        self, member: AcceptingMember, acceptor: Acceptor, group: ConnectionGroup, statistics: CallStatistics
    ) -> None:
        super().__init__(member, acceptor, group)
        self._statistics = statistics
        self._under_way: dict[int, tuple[float, Message]] | None = None
        """Request id to its arrival; None: the peer is not a client."""
        self.received = 0

    @property
    def kind(self) -> str:
        return "member" if self._under_way is None else "client"

    def on_greeting(self, message: Handshake) -> None:
        super().on_greeting(message)
        if self.sender is not None and is_client(self.sender):
            self._under_way = {}

    def data_received(self, data: bytes) -> None:
        self.received += len(data)
        super().data_received(data)

    def on_messages(self, messages: list[Any]) -> None:
        if (under_way := self._under_way) is not None and len(under_way) < MOST_UNDER_WAY:
            now_s = perf_counter()
            for message in messages:
                under_way[message.id] = now_s, message
        super().on_messages(messages)

    def reply(self, message: Message) -> None:
        if self._under_way is not None:
            begun = self._under_way.pop(getattr(message, "id", 0), None)
            if begun is not None:
                began_s, request = begun
                error = message.code if isinstance(message, ErrorReply) else None
                calls = self._statistics.find(getattr(request, "map", ""), type(request))
                calls.note_end(perf_counter() - began_s, error)
        super().reply(message)

    def on_closed(self, error: Exception | None) -> None:
        self._statistics.received_bytes[self.kind] += self.received
        self._statistics.sent_bytes[self.kind] += self.written
        self.received = 0
        if self._under_way is not None:
            self._under_way.clear()
        super().on_closed(error)


class MeasuredLink(Link):
    """A connection that this member opens, whose bytes are counted. It is made as any `Link`: `measured_links` makes its class."""

    _statistics: CallStatistics
    """What counts them: of all links of one member the same."""
    received = 0

    def on_opened(self) -> None:
        self._statistics.links.add(self)
        super().on_opened()

    def data_received(self, data: bytes) -> None:
        self.received += len(data)
        super().data_received(data)

    def on_closed(self, error: Exception | None) -> None:
        self._statistics.links.discard(self)
        self._statistics.received_bytes["member"] += self.received
        self._statistics.sent_bytes["member"] += self.written
        super().on_closed(error)


def measured_links(statistics: CallStatistics) -> type[Link]:
    """Return the class of the connections that a member opens and whose bytes are counted by these statistics."""

    class OfMember(MeasuredLink):
        _statistics = statistics

    return OfMember
