"""Cursors of SCAN: a partition and a place in its scan order, as one number that means the same at every member.

The scan order is that of (hash of the key, key). A place is a hash: the scan goes on with the keys of this hash. What a member is
given is a key behind which it begins; so one is made whose hash is the place, and which is before all others of that hash. Where
partitions were divided meanwhile, all parts of those that are still to come have higher numbers: nothing is missed, and some keys
may come twice, which SCAN allows.
"""

from __future__ import annotations

from typing import Any, Final

from phalanx.codec.hashing import HASH_SEED, scan_position
from phalanx.common.errors import ErrorCode
from phalanx.endpoints.resp.connection import RespConnection
from phalanx.grid.serving.update_results import UpdateRefused
from phalanx.maps.call_plans import FIND_TABLE, BulkCall, CallPlan
from phalanx.maps.requests import expect
from phalanx.wire.messages import ErrorReply, PageReply, ScanPartition

PLACES: Final = 2**32
BYTES_OF_ENTRY: Final = 256
"""What an entry is taken to have, to choose the size of a page."""
LEAST_PAGE_BYTES, MOST_PAGE_BYTES = 4 * 1024, 1024 * 1024
MOST_PARTITIONS: Final = 512
"""One call looks at no more partitions, if they are empty."""

_MASK: Final = 0xFFFFFFFF
_FIRST_BYTES: Final = bytes(4)
"""A type id that no key has, and that is before those of all keys of Redis clients."""


def position_of(cursor: bytes) -> tuple[int, int]:
    """Return the partition and the place of a cursor. Raises `UpdateRefused`."""
    if not cursor.isdigit() or len(cursor) > 20 or int(cursor) >= 2**63:
        raise UpdateRefused("ERR invalid cursor")
    return divmod(int(cursor), PLACES)


def key_before(place: int) -> bytes:
    """Return a serialised key that is before all keys with this hash, and behind all with a lower one; empty for 0."""
    if place == 0:
        return b""
    mixed = _unmixed(place) ^ 4
    mixed = (mixed - 0xE6546B64) * _inverse(5) & _MASK
    block = _rotated(mixed, 19) ^ HASH_SEED
    block = block * _inverse(0x1B873593) & _MASK
    block = _rotated(block, 17) * _inverse(0xCC9E2D51) & _MASK
    return _FIRST_BYTES + block.to_bytes(4, "little")


def _unmixed(number: int) -> int:
    """Undo the last steps of murmur3."""
    number ^= number >> 16
    number = number * _inverse(0xC2B2AE35) & _MASK
    number ^= (number >> 13) ^ (number >> 26)
    number = number * _inverse(0x85EBCA6B) & _MASK
    return number ^ (number >> 16)


def _inverse(factor: int) -> int:
    return pow(factor, -1, PLACES)


def _rotated(number: int, bits: int) -> int:
    return ((number << bits) | (number >> (32 - bits))) & _MASK


def page(
    c: RespConnection, partition: int, place: int, max_bytes: int, after: bytes = b""
) -> CallPlan[PageReply | None]:
    """Plan to return a page of a partition from a place on, or behind a key; None: there is no such partition."""
    call = BulkCall("scan", c.plans().time_limit())
    call.table = yield FIND_TABLE
    found: list[PageReply] = []

    def take(group: int, reply: Any) -> None:
        found.append(expect(reply, PageReply, "scan"))

    while True:
        of = call.table.partition_count
        if partition >= of:
            return None
        request = ScanPartition(c.grid.next_id(), c.map, partition, of, after or key_before(place), max_bytes)
        replies = yield call.ask([(partition, request)])
        _, refused = call.take_replies([partition], replies, take)
        if refused is None:
            return found[0]
        yield from call.find_newer_table(ErrorReply(0, ErrorCode(refused.code), refused.text))


def keys_of_page(
    c: RespConnection, partition: int, place: int, count: int
) -> CallPlan[tuple[int, list[tuple[bytes, bytes]]]]:
    """Plan to return some entries from a place on, about `count`, and the cursor behind them; 0: these were the last."""
    entries: list[tuple[bytes, bytes]] = []
    for _ in range(MOST_PARTITIONS):
        wanted = count - len(entries)
        found = yield from _entries_of(c, partition, place, wanted)
        if found is None:
            return 0, entries
        kept = _whole_places(*found, wanted)
        entries += kept
        if len(kept) < len(found[0]):
            return partition * PLACES + scan_position(found[0][len(kept)][0]), entries
        partition, place = partition + 1, 0
        if partition >= c.grid.partition_count:
            return 0, entries
        if len(entries) >= count:
            break
    return partition * PLACES, entries


def _entries_of(
    c: RespConnection, partition: int, place: int, count: int
) -> CallPlan[tuple[list[tuple[bytes, bytes]], bool] | None]:
    """Plan to return entries of a partition in scan order, of two places at least if there are more than these, and whether
    there are more; None: there is no such partition."""
    max_bytes = min(max(count * BYTES_OF_ENTRY, LEAST_PAGE_BYTES), MOST_PAGE_BYTES)
    found = yield from page(c, partition, place, max_bytes)
    if found is None:
        return None
    entries = list(zip(found.keys, found.values, strict=True))
    # A place names all keys of one hash: those of the last one come together.
    while found.more and not (entries and scan_position(entries[0][0]) != scan_position(entries[-1][0])):
        after = found.after_key or found.keys[-1]
        more = yield from page(c, partition, place, MOST_PAGE_BYTES, after)
        if more is None:
            return None
        found = more
        entries += zip(found.keys, found.values, strict=True)
    entries.sort(key=lambda entry: (scan_position(entry[0]), entry[0]))
    return entries, found.more


def _whole_places(entries: list[tuple[bytes, bytes]], is_cut: bool, count: int) -> list[tuple[bytes, bytes]]:
    """Return the first entries, at least `count` if there are, up to the end of a place. `is_cut`: more may be of the last."""
    end = len(entries)
    if is_cut:
        last = scan_position(entries[-1][0])
        while end and scan_position(entries[end - 1][0]) == last:
            end -= 1
    stop = min(count, end)
    while 0 < stop < end and scan_position(entries[stop][0]) == scan_position(entries[stop - 1][0]):
        stop += 1
    return entries[:stop]
