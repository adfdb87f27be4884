"""Which senders' messages count: what any process can send to a member, what clients can, and what only members of the installed
view can.

Messages about membership judge their senders themselves: a joiner, or a member of another side, is no member here.
"""

from __future__ import annotations

from collections.abc import Set
from typing import get_args

from phalanx.common.errors import ErrorCode
from phalanx.common.ids import Target, is_client
from phalanx.machine.outbox import Outbox
from phalanx.wire.message import WireMessage
from phalanx.wire.messages import (
    WRITES,
    ErrorReply,
    MemoryMessage,
    MergeMessage,
    MergeRequest,
    ReplicationMessage,
    Request,
    TableMessage,
)

OF_CLIENTS: Set[type[WireMessage]] = frozenset(get_args(Request)).difference(get_args(MergeRequest))
BETWEEN_MEMBERS: Set[type[WireMessage]] = frozenset(
    [
        *get_args(TableMessage),
        *get_args(ReplicationMessage),
        *get_args(MemoryMessage),
        *get_args(MergeMessage),
        *get_args(MergeRequest),
    ]
)
OF_MEMBERS_ONLY: Set[type[WireMessage]] = BETWEEN_MEMBERS | frozenset(WRITES)
"""Writes too, where a member and no client calls."""


def admits_stranger(sender: Target, message: WireMessage, outbox: Outbox) -> bool:
    """Return whether a message of `OF_MEMBERS_ONLY` is handled although its sender is not in the view. Answer it if not."""
    if type(message) in BETWEEN_MEMBERS:
        return False
    if is_client(sender):
        return True
    # Sent across a cut, and late: its sender is in another cluster, and has been answered there.
    outbox.send(sender, ErrorReply(message.id, ErrorCode.NOT_READY, "its sender is no member here"))  # type: ignore[attr-defined]
    return False
