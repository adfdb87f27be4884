"""The connections that a member opens to others: one to each member that it sends to, made when it is needed."""

from __future__ import annotations

import contextlib
import time
from typing import get_args

from phalanx.common.errors import EntryTooLarge, ErrorCode, ProtocolError
from phalanx.common.ids import Target, address_of, host_and_port, is_client
from phalanx.common.view import MembersView
from phalanx.machine.inputs import LinkLost, LinkRefused, LinkUp, Received
from phalanx.net.addresses import is_of_this_machine
from phalanx.net.connection import ConnectionGroup
from phalanx.net.flow import BacklogFull, Drop
from phalanx.net.link import Link
from phalanx.runtime.connection_owner import ConnectionOwner
from phalanx.runtime.safe_logger import SafeLogger
from phalanx.wire.messages import ErrorReply, MembersUpdate, Message, Reply, Request, TableUpdate

logger = SafeLogger("phalanx.member")

PUBLISHED = frozenset({MembersUpdate, TableUpdate})
"""Messages of which one object goes to all members."""
_REPLIES = frozenset(get_args(Reply))
_REQUESTS = frozenset(get_args(Request))


class Links:
    """Sends the messages of one member to others, and tells it what becomes of the connections."""

    def __init__(self, member: ConnectionOwner, group: ConnectionGroup) -> None:
        self._member = member
        self._group = group
        self._of: dict[Target, Link] = {}
        self._told_of: set[Target] = set()
        """Seeds of which this incarnation said that they do not let it connect."""
        self._gives_up_at = 0.0
        """When the present incarnation stops trying to join, by the wall clock."""

    def begin(self, gives_up_at: float) -> None:
        """A new incarnation sends from now on, and tries to join until a time of the wall clock."""
        self._told_of.clear()
        self._gives_up_at = gives_up_at

    def send(self, to: Target, message: Message) -> None:
        """Send a message, over a new connection where there is none. To a client that is not connected: nothing."""
        link = self._of.get(to)
        if link is None:
            if is_client(to):
                return  # it has closed its connection
            link = self._of[to] = Link(
                to,
                self._member.config.cluster,
                self._member.id,
                self._group,
                on_up=self._on_up,
                on_down=self._on_down,
                on_message=_unexpected,
            )
        try:
            if type(message) in PUBLISHED:
                link.publish(message)
            else:
                link.send(message)
        except EntryTooLarge as error:
            self._on_too_large(link, message, error)
        except BacklogFull as error:
            # Lost like anything on a connection that breaks; not at once, for other effects of this input follow.
            self._member.overload.dropped(link, Drop.FULL, str(error))
            link.give_up(str(error))

    def forget_removed(self, before: MembersView, view: MembersView) -> None:
        """Drop what waits for members that were removed, before anything else is sent: it must not reach them later.

        1. A call is sent to O, and a cut swallows it. 2. O is removed, and P, which owns its partitions now, is asked
        instead. 3. The cut heals. O, which may not know yet that it was removed, would carry out the call once more.
        """
        for member in before.members:
            link = self._of.get(member)
            if member not in view and link is not None and link.forget():
                del self._of[member]

    def drop(self) -> None:
        """Close all connections when what was sent has left, and tell nobody."""
        links, self._of = self._of, {}
        for link in links.values():
            link.drop()

    def break_off(self) -> None:
        """Close all connections at once: what the peers have not got never reaches them."""
        links, self._of = self._of, {}
        for link in links.values():
            with contextlib.suppress(Exception):
                link.break_off()

    def _on_too_large(self, link: Link, message: Message, error: EntryTooLarge) -> None:
        """Only this message cannot be sent. Who waits for it is answered; what else it was is lost with its connection, as
        any message may be, so that both ends know."""
        refusal = ErrorCode.TOO_LARGE
        if type(message) in _REPLIES:
            link.send(ErrorReply(message.id, refusal, str(error)))  # type: ignore[union-attr]  # replies have an id
        elif type(message) in _REQUESTS:
            answer = ErrorReply(message.id, refusal, str(error))  # type: ignore[union-attr]  # requests have an id
            # Not within the input that is being handled.
            self._group.loop.call_soon(self._member.feed, Received(link.target, answer))  # type: ignore[arg-type]
        else:
            logger.error("%s breaks off its connection to %s: %s", self._member.address, link.target, error)
            link.reset()

    def _on_up(self, link: Link) -> None:
        self._member.feed(LinkUp(link.target))

    def _on_down(self, link: Link, reason: str) -> None:
        if self._of.get(link.target) is not link:
            return
        del self._of[link.target]
        if link.is_misled or link.is_unproved:
            self._member.distrusted(f"to {address_of(link.target)}", reason)  # type: ignore[arg-type]  # links go to members
        if link.broke_protocol:
            host, _ = host_and_port(address_of(link.target))  # type: ignore[arg-type]  # links go to members
            self._member.overload.broke_protocol(f"to {link.target}", host, reason)
        if link.is_up:
            self._member.feed(LinkLost(link.target))
            return
        if not link.was_refused_by_peer:
            self._tell_unreachable(link.target, reason)
        self._member.feed(
            LinkRefused(
                link.target,
                reason,
                link.was_refused_by_peer,
                is_deserted=link.is_deserted,
                is_same_host=link.is_deserted and is_of_this_machine(host_and_port(address_of(link.target))[0]),  # type: ignore[arg-type]  # links go to members
                is_unproved=link.is_unproved,
            )
        )

    def _tell_unreachable(self, target: Target, reason: str) -> None:
        """Say at once, and once, that a seed is not there: it may start a little later, so joining goes on for long."""
        member = self._member
        if member.view is not None or target in self._told_of or target not in member.config.seeds:
            return
        self._told_of.add(target)
        until = time.strftime("%H:%M:%S", time.localtime(self._gives_up_at))
        logger.warning(
            "%s cannot reach the seed %s (%s): trying until %s, in case it starts later",
            member.address, target, reason, until,
        )  # fmt: skip


def _unexpected(link: Link, message: Message) -> None:
    raise ProtocolError(f"members answer on their own connections, not on this one ({type(message).__name__})")
