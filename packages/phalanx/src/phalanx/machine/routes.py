"""Which machine handles which kind of message: each exports a table of routes, and a node makes one dictionary of all.

The types of a route are checked where it is made: the handler takes the kind of its route. The dictionary has handlers
of all kinds, so there a message finds its handler by its own type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar, cast, get_args

from phalanx.common.ids import Millis, Target
from phalanx.common.invariant import invariant
from phalanx.wire.message import WireMessage
from phalanx.wire.messages import Message

M = TypeVar("M", bound=WireMessage)
S = TypeVar("S", bound=Target)

Handler = Callable[[Target, WireMessage, Millis], None]
"""Takes a message from a sender, at a time. Only for the dictionary: a route's handler takes some kinds and some senders."""


class Route(NamedTuple):
    """A kind of message and the method of a machine that handles it."""

    kind: type[WireMessage]
    handler: Handler


Routes = tuple[Route, ...]


def route(kind: type[M], handler: Callable[[S, M, Millis], None]) -> Route:
    return Route(kind, cast(Handler, handler))


def route_untimed(kind: type[M], handler: Callable[[S, M], None]) -> Route:
    """Make a route for a handler that does not need the time."""

    def handle(sender: S, message: M, now: Millis) -> None:
        handler(sender, message)

    return route(kind, handle)


def route_each(kinds: object, handler: Callable[[S, M, Millis], None]) -> Routes:
    """Make a route for each kind of a union of messages."""
    return tuple(Route(kind, cast(Handler, handler)) for kind in get_args(kinds))


def handlers_of(*tables: Iterable[Route]) -> dict[type[WireMessage], Handler]:
    """Return the handler of each kind of message. If several machines handle one kind, all get it, in this order.

    Raise `InvariantViolation` if no machine handles some kind.
    """
    handlers: dict[type[WireMessage], Handler] = {}
    for table in tables:
        for kind, handler in table:
            handlers[kind] = _both(handlers[kind], handler) if kind in handlers else handler
    invariant(set(handlers) == set(get_args(Message)), "every kind of message has a handler")
    return handlers


def _both(first: Handler, second: Handler) -> Handler:
    def handle(sender: Target, message: WireMessage, now: Millis) -> None:
        first(sender, message, now)
        second(sender, message, now)

    return handle
