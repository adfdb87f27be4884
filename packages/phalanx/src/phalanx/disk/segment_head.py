"""The first 64 bytes of a segment file: which log it belongs to, and which release writes it. The format is in `disk.blocks`."""

from __future__ import annotations

import struct
import zlib
from mmap import mmap
from typing import NamedTuple

from phalanx.common.errors import CorruptDataError
from phalanx.common.invariant import invariant
from phalanx.common.words import quoted
from phalanx.wire.disk_records import FORMAT

Buffer = bytes | bytearray | mmap
"""The bytes of a segment file."""
HEAD_BYTES = 64
STORE_BYTES = 16
MAGIC_BYTES = 8
RELEASE_BYTES = 16
NAME = b"PHALANX\n"
"""With it every segment file begins, of whatever format."""

_HEAD = struct.Struct("<8sIQ8s16s16s")
_CHECKSUM = struct.Struct("<I")


class UnknownFormat(CorruptDataError):
    """A log has what this release cannot read, although its checksums are right: another release has written it."""


class SegmentHead(NamedTuple):
    """What the head of a segment file says."""

    number: int
    """The number of the segment, by which its file is called."""
    magic: bytes
    """With these bytes begins every block of the segment, and nothing else in it contains them (`make_magic`)."""
    store: bytes
    """The identity of the folder, 16 bytes."""
    release: str
    """The release that writes the segment; not more than 16 characters are kept."""

    @property
    def escaped(self) -> bytes:
        """Return the bytes that are escaped where they occur in the body of a block."""
        return self.magic[: MAGIC_BYTES - 1]


def make_magic(drawn: bytes) -> bytes:
    """Make the magic of a segment of 8 random bytes.

    Its first byte occurs in it only once, so no two places where it occurs overlap. It contains neither 0 nor 255, so it cannot arise
    where bytes were not written, or at the end of the header of a block.
    """
    invariant(len(drawn) == MAGIC_BYTES, "a magic is made of 8 bytes", drawn=len(drawn))
    return bytes([drawn[0] & 0x7E | 0x80, *(byte & 0x7F or 1 for byte in drawn[1:])])


def encode_head(head: SegmentHead) -> bytes:
    """Encode the head of a segment file."""
    invariant(make_magic(head.magic) == head.magic, "the magic of a segment is from make_magic", magic=head.magic)
    invariant(len(head.store) == STORE_BYTES, "the identity of a store has 16 bytes", store=head.store)
    release = head.release.encode("ascii", "replace")
    encoded = _HEAD.pack(NAME, FORMAT, head.number, head.magic, head.store, release)
    return encoded + _CHECKSUM.pack(zlib.crc32(encoded))


def decode_head(buffer: Buffer) -> SegmentHead | None:
    """Decode the head of a segment file; None: it has no valid one. Raises `UnknownFormat`."""
    encoded = bytes(memoryview(buffer)[:HEAD_BYTES])
    if len(encoded) < HEAD_BYTES or _CHECKSUM.unpack_from(encoded, _HEAD.size)[0] != zlib.crc32(encoded[: _HEAD.size]):
        return None
    name, version, number, magic, store, release = _HEAD.unpack_from(encoded)
    head = SegmentHead(number, magic, store, release.rstrip(b"\0").decode("ascii", "replace"))
    if name != NAME:
        return None
    if version != FORMAT:
        raise unknown(head, f"its format is {version}, and this release reads format {FORMAT}")
    return head if make_magic(magic) == magic else None


def unknown(head: SegmentHead, why: str) -> UnknownFormat:
    """Return the error that a segment has what this release cannot read."""
    return UnknownFormat(
        f"segment {head.number} of the log was written by release {quoted(head.release)} and cannot be read: {why}. Start that "
        f"release, or a newer one, with this data_dir"
    )
