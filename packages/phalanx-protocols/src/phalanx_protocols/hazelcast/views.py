"""The members and partitions that clients see, as frames."""

from __future__ import annotations

import hashlib
from typing import Final

from phalanx.common.ids import MemberId, address_of
from phalanx.common.table import PartitionTable
from phalanx.common.view import MembersView
from phalanx_protocols.hazelcast.frames import (
    BEGIN_FRAME,
    END_FRAME,
    FRAME_HEAD_BYTES,
    event_head,
    frame,
    int_field,
    ints_frame,
    text_frame,
    uuid_field,
    uuids_frame,
    with_last_flag,
)

SERVER_VERSION: Final = "5.5.0"
"""The release of Hazelcast's server that clients see; some compare it."""
_VERSION_BYTES: Final = bytes(map(int, SERVER_VERSION.split(".")))
MEMBERS_EVENT: Final = 0x000302
PARTITIONS_EVENT: Final = 0x000303


def uuid_from(text: str) -> bytes:
    """Return the 16 bytes of the UUID that stands for a text: the same at every member."""
    made = bytearray(hashlib.sha256(text.encode()).digest()[:16])
    made[6] = made[6] & 0x0F | 0x80  # a UUID that an application makes (version 8) of bytes
    made[8] = made[8] & 0x3F | 0x80
    return bytes(made)


def uuid_of_member(member: MemberId) -> bytes:
    """Return the UUID of one incarnation of a member."""
    return uuid_from(member)


def address_frames(member: MemberId) -> bytes:
    """Return the structure of a member's address."""
    host, _, port = address_of(member).rpartition(":")
    return BEGIN_FRAME + frame(int_field(int(port))) + text_frame(host.strip("[]")) + END_FRAME


def member_frames(view: MembersView) -> bytes:
    """Return the list of the members, oldest first."""
    made = [BEGIN_FRAME]
    for member in view.members:
        is_lite = view.traits_of(member).lite
        made += (
            BEGIN_FRAME,
            frame(uuid_field(uuid_of_member(member)) + bytes((is_lite,))),
            address_frames(member),
            BEGIN_FRAME + END_FRAME,  # attributes
            BEGIN_FRAME + frame(_VERSION_BYTES) + END_FRAME,
            BEGIN_FRAME + END_FRAME,  # further addresses
            END_FRAME,
        )
    made.append(END_FRAME)
    return b"".join(made)


def partition_frames(
    view: MembersView | None, table: PartitionTable | None, partition_count: int
) -> tuple[bytes, bytes]:
    """Return the lists of partitions by owner, and the frame of the owners' UUIDs.

    `partition_count`: how many partitions clients know. If the grid has divided them since, clients get the owner of the first part for
    all: a member that is asked for a key of another part asks its owner.
    """
    by_owner: dict[MemberId, list[int]] = {}
    if view is not None and table is not None:
        present = set(view.members)
        for partition in range(min(partition_count, table.partition_count)):
            owner = table.owner(partition)
            if owner in present and owner is not None:
                by_owner.setdefault(owner, []).append(partition)
    lists = BEGIN_FRAME + b"".join(map(ints_frame, by_owner.values())) + END_FRAME
    return lists, uuids_frame([uuid_of_member(owner) for owner in by_owner])


def members_event(number: int, view: MembersView) -> bytes:
    """Return the event with the list of members."""
    made = bytearray(event_head(MEMBERS_EVENT, number, int_field(view.version)) + member_frames(view))
    return bytes(with_last_flag(made, len(made) - FRAME_HEAD_BYTES))


def partitions_event(number: int, view: MembersView, table: PartitionTable, partition_count: int) -> bytes:
    """Return the event that says which member owns which partitions."""
    lists, owners = partition_frames(view, table, partition_count)
    made = bytearray(event_head(PARTITIONS_EVENT, number, int_field(table.version)) + lists)
    return bytes(with_last_flag(made + owners, len(made)))
