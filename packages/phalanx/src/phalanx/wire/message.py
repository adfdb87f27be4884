"""The base class of all messages between processes, and the versions of the protocol."""

from __future__ import annotations

import msgspec

from phalanx.common.versions import OLDEST_PROTOCOL_VERSION, PROTOCOL_VERSION

__all__ = ["OLDEST_PROTOCOL_VERSION", "PROTOCOL_VERSION", "WireMessage"]


class WireMessage(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A message, encoded as an array of its tag and its fields.

    Tags are the wire contract: a number is never reused. Fields are only added, at the end and with a default: a reader
    that does not know them ignores them, and one that misses them takes the default. No message refers to itself, so none needs the cycle
    collector.
    """
