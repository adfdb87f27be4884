"""The digest of a history: two histories with one digest had the same inputs and recorded the same facts, in the same order."""

from __future__ import annotations

import hashlib

import msgspec

DIGEST_AFTER_BYTES = 1 << 16


class HistoryDigest:
    """Takes in what happens."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=16)
        self._undigested = bytearray()
        """What the hash has yet to take in."""
        self._encode_into = msgspec.msgpack.Encoder().encode_into

    def add(self, what: object) -> None:
        """Take in something that has happened."""
        undigested = self._undigested
        self._encode_into(what, undigested, -1)
        if len(undigested) > DIGEST_AFTER_BYTES:
            self._hash.update(undigested)
            undigested.clear()

    def value(self) -> str:
        """Return the digest of all that was taken in so far."""
        self._hash.update(self._undigested)
        self._undigested.clear()
        return self._hash.hexdigest()
