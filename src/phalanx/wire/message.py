"""The base class of all messages between processes, and the version of the protocol."""

from __future__ import annotations

import msgspec

PROTOCOL_VERSION = 7


class WireMessage(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A message, encoded as an array of its tag and its fields.

    Tags are the wire contract: a number is never reused. No message refers to itself, so none needs the cycle
    collector.
    """
