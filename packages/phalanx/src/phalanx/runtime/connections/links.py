"""The connections that a member opens: one to each member to which it sends, opened when it is needed."""

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
from phalanx.runtime.connections.call_statistics import CallStatistics, measured_links
from phalanx.runtime.connections.connection_owner import ConnectionOwner
from phalanx.runtime.logs.safe_logger import SafeLogger
from phalanx.wire.message import WireMessage
from phalanx.wire.messages import ErrorReply, MembersUpdate, Message, Reply, Request, TableUpdate

logger = SafeLogger("phalanx.member")

PUBLISHED = frozenset({MembersUpdate, TableUpdate})
"""Kinds of messages of which the same object is sent to all members."""
_REPLIES = frozenset(get_args(Reply))
_REQUESTS = frozenset(get_args(Request))


class Links:
    """Sends the messages of one member to others, and reports to it which connections are open, lost or refused."""

    def __init__(
        self, member: ConnectionOwner, group: ConnectionGroup, statistics: CallStatistics | None = None
    ) -> None:
        """`statistics`: counts the bytes of these connections; None: they are not counted."""
        self._new_link = measured_links(statistics) if statistics is not None else Link
        self._member = member
        self._group = group
        self._of: dict[Target, Link] = {}
        self._logged_targets: set[Target] = set()
        """Seeds about which this incarnation has logged that they cannot be reached."""
        self._gives_up_at = 0.0
        """When the present incarnation stops trying to join, by the wall clock."""

    def begin(self, gives_up_at: float) -> None:
        """Begin to send for a new incarnation, which tries to join until `gives_up_at` by the wall clock."""
        self._logged_targets.clear()
        self._gives_up_at = gives_up_at

    def send(self, to: Target, message: Message) -> None:
        """Send a message; open a connection to a member if there is none. Ignore messages to a client without one."""
        link = self._of.get(to)
        if link is None:
            if is_client(to):
                return  # it has closed its connection
            link = self._of[to] = self._new_link(
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
            # The message is lost, as on a connection that breaks. The link is dropped later, because further effects of
            # this input follow.
            self._member.overload.dropped(link, Drop.FULL, str(error))
            link.give_up(str(error))

    def forget_removed(self, before: MembersView, view: MembersView) -> None:
        """Reset the links to removed members before anything else is sent: waiting messages must not reach them later.

        1. A call is sent to O, and a cut delays it. 2. O is removed, and its successor P gets the call instead. 3. The
        cut heals. O, which may not know yet that it was removed, would execute the call a second time.
        """
        for member in before.members:
            link = self._of.get(member)
            if member not in view and link is not None and link.forget():
                del self._of[member]

    def drop(self) -> None:
        """Close all connections after what was sent has left. Does not report them as lost."""
        links, self._of = self._of, {}
        for link in links.values():
            link.drop()

    def break_off(self) -> None:
        """Abort all connections: messages that the peers have not got will never reach them."""
        links, self._of = self._of, {}
        for link in links.values():
            with contextlib.suppress(Exception):
                link.break_off()

    def _on_too_large(self, link: Link, message: WireMessage, error: EntryTooLarge) -> None:
        """Handle a message over the frame limit. Its caller gets an error. Any other message is lost, and its
        connection is broken off, so that both ends know."""
        refusal = ErrorCode.TOO_LARGE
        if type(message) in _REPLIES:
            link.send(ErrorReply(message.id, refusal, str(error)))  # type: ignore[attr-defined]  # replies have an id
        elif type(message) in _REQUESTS:
            answer = ErrorReply(message.id, refusal, str(error))  # type: ignore[attr-defined]  # requests have an id
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
        """Log once, and at once, that a seed cannot be reached. It can start later, so this member continues joining."""
        member = self._member
        if member.view is not None or target in self._logged_targets or target not in member.config.seeds:
            return
        self._logged_targets.add(target)
        until = time.strftime("%H:%M:%S", time.localtime(self._gives_up_at))
        logger.warning(
            "%s cannot reach the seed %s (%s): trying until %s, in case it starts later",
            member.address, target, reason, until,
        )  # fmt: skip


def _unexpected(link: Link, message: Message) -> None:
    raise ProtocolError(f"members answer on their own connections, not on this one ({type(message).__name__})")
