"""Refuse requests over a limit of `limits` before they are decoded, with an error that names the limit.

The connection stays open: a caller that asks for too much by mistake must get that error, not a connection that breaks
again and again. Only the head of the frame is read: the tag and the id of the request.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple, get_args

import msgspec

from phalanx.wire.bulk_requests import GetAll, PutAll, PutPacked, ScanPacked, ScanPartition, UpdateWhere
from phalanx.wire.limits import MAX_PLAIN_FRAME_BYTES
from phalanx.wire.messages import KeyRequest, MergeRequest, Request

_KINDS: Final[dict[int, Any]] = {kind.__struct_config__.tag: kind for kind in get_args(Request)}
_CARRYING_DATA: Final = frozenset(
    [*get_args(KeyRequest), *get_args(MergeRequest), GetAll, PutAll, PutPacked, ScanPartition, ScanPacked, UpdateWhere]
)
"""Requests that carry keys or values: their length depends on these."""
_TOO_LONG: Final = re.compile(r"Expected `(array|str)` of length <= (\d+) - at `\$\[(\d+)\]")


class UnreadRequest(NamedTuple):
    """A request that was not decoded because it is over a limit."""

    id: int
    text: str
    """The error text: what was too much, and the limit."""


class _Head(msgspec.Struct, array_like=True):
    """The fields with which every request begins."""

    tag: int
    id: int


_head_of = msgspec.msgpack.Decoder(_Head).decode


def refusal_by_length(frame: bytes | bytearray | memoryview) -> UnreadRequest | None:
    """Return the refusal of a frame over `MAX_PLAIN_FRAME_BYTES`, without decoding it; None: it can be this long.

    Raises `msgspec.MsgspecError` if the frame is not a message.
    """
    kind = _KINDS.get(_tag_of(frame))
    if kind is None or kind in _CARRYING_DATA:
        return None
    text = f"a {kind.__name__} request of {len(frame)} bytes is over the limit of {MAX_PLAIN_FRAME_BYTES} bytes for one"
    return UnreadRequest(_head_of(frame).id, f"{text} that carries no entries: ask for less at once")


def refusal_of(frame: bytes | bytearray | memoryview, error: Exception) -> UnreadRequest | None:
    """Return the refusal of a request that is over a limit and was not decoded; None: the error is another one."""
    found = _TOO_LONG.match(str(error))
    if found is None:
        return None
    try:
        head = _head_of(frame)
    except msgspec.MsgspecError:
        return None
    kind = _KINDS.get(head.tag)
    if kind is None:
        return None
    what, limit, place = found.groups()
    field, unit = kind.__struct_fields__[int(place) - 1], "characters" if what == "str" else "items"
    text = f"a {kind.__name__} request has more than {limit} {unit} in, or within, its field {field!r}: ask for less at once"
    return UnreadRequest(head.id, text)


def _tag_of(frame: bytes | bytearray | memoryview) -> int:
    """Return the tag of the message in a frame, from its first bytes; -1: the first bytes are not the tag of a request."""
    at = 1 if frame[0] & 0xF0 == 0x90 else 3
    tag = frame[at]
    return tag if tag < 0x80 else frame[at + 1] if tag == 0xCC else -1
