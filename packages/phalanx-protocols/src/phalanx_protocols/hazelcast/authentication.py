"""Who a client is: the first request of a connection, and what is answered."""

from __future__ import annotations

import struct
from typing import Final

import msgspec

from phalanx.common.ids import MemberId
from phalanx.common.words import quoted
from phalanx.endpoints.protocol import Credentials
from phalanx_protocols.hazelcast.fields import Fields
from phalanx_protocols.hazelcast.frames import (
    BEGIN_FRAME,
    END_FRAME,
    FRAME_HEAD_BYTES,
    NULL_FRAME,
    BadFrame,
    answer_head,
    int_field,
    text_frame,
    uuid_field,
    uuid_of,
    with_last_flag,
)
from phalanx_protocols.hazelcast.names import name_of
from phalanx_protocols.hazelcast.views import SERVER_VERSION, address_frames, partition_frames, uuid_of_member

AUTHENTICATION: Final = 0x000100
CUSTOM_AUTHENTICATION: Final = 0x000200
OK, WRONG_CREDENTIALS, WRONG_SERIALISATION = 0, 1, 2
SERIALISATION_VERSION: Final = 1
_FIXED: Final = struct.Struct("<17sB")


class Admitted(msgspec.Struct, frozen=True):
    """A client that is admitted."""

    client: bytes
    """Its UUID."""


class Denied(msgspec.Struct, frozen=True):
    """A client that is refused."""

    reason: str
    """The reason, in the log of this member."""
    status: int = WRONG_CREDENTIALS
    """The reason that the client gets."""

    def answer(self, kind: int, number: int) -> bytes:
        """Return the text that the client gets."""
        if kind not in (AUTHENTICATION, CUSTOM_AUTHENTICATION):
            return b""
        fixed = bytes((self.status,)) + uuid_field(None) + bytes((SERIALISATION_VERSION,)) + int_field(0)
        fixed += uuid_field(None) + bytes(1) + int_field(0) * 2
        made = answer_head(kind + 1, number, fixed, is_last=False) + NULL_FRAME + text_frame(SERVER_VERSION)
        return _with_rest(made, BEGIN_FRAME + END_FRAME, *partition_frames(None, None, 0))


def admission_of(credentials: Credentials | None, cluster: str, kind: int, fields: Fields) -> Admitted | Denied:
    """Judge the first request of a connection. Raises `BadFrame`."""
    if kind not in (AUTHENTICATION, CUSTOM_AUTHENTICATION):
        return Denied(
            f"its first request was {name_of(kind)}, not an authentication: its client can be of another protocol version"
        )
    field, version = fields.fixed(_FIXED)
    client = uuid_of(field)
    if client is None:
        raise BadFrame("the client has no UUID")
    called = fields.text()
    if kind == AUTHENTICATION:
        name, password = fields.nullable(fields.text) or "", (fields.nullable(fields.text) or "").encode()
    else:
        name, password = "", fields.payload()
    if called != cluster:
        return Denied(
            f"its client has the cluster name {quoted(called, 100)}, and this cluster is {cluster!r}: set cluster_name of the client"
        )
    if credentials is not None and not credentials.are_shown(name, password):
        return Denied("its client showed no token, or name and password, that this member takes (serve_token_file)")
    if version != SERIALISATION_VERSION:
        return Denied(
            f"its client has serialisation version {version}, and there is {SERIALISATION_VERSION} here",
            WRONG_SERIALISATION,
        )
    return Admitted(client)


def welcome(
    kind: int,
    number: int,
    member: MemberId,
    cluster_id: bytes,
    partition_count: int,
    versions: tuple[int, int],
    members: bytes,
    partitions: tuple[bytes, bytes],
) -> bytes:
    """Return the answer to a client that is let in."""
    fixed = bytes((OK,)) + uuid_field(uuid_of_member(member)) + bytes((SERIALISATION_VERSION,))
    fixed += int_field(partition_count) + uuid_field(cluster_id) + bytes(1) + b"".join(map(int_field, versions))
    made = answer_head(kind + 1, number, fixed, is_last=False) + address_frames(member) + text_frame(SERVER_VERSION)
    return _with_rest(made, members, *partitions)


def _with_rest(made: bytes, members: bytes, lists: bytes, owners: bytes) -> bytes:
    """Add what newer clients read: no ports and no token of another transport, members, partitions, properties."""
    rest = bytearray(made + NULL_FRAME + NULL_FRAME + members + lists + owners + BEGIN_FRAME + END_FRAME)
    return bytes(with_last_flag(rest, len(rest) - FRAME_HEAD_BYTES))
