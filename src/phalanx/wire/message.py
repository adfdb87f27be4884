"""What every message between processes has in common."""

from __future__ import annotations

import msgspec

PROTOCOL_VERSION = 7


class WireMessage(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An array of its tag and its fields. No message refers back to itself, so none needs the cycle collector.

    Integer tags are the wire contract: a number is never reused.
    """
