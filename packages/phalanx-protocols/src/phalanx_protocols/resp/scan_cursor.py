"""Cursors of SCAN: a partition and a place in its scan order, as one number that means the same at every member.

The scan order is that of (hash of the key, key). A place is a hash: the scan goes on with the keys of this hash. What a member is
given is a key behind which it begins; so one is made whose hash is the place, and which is before all others of that hash. Where
partitions were divided meanwhile, all parts of those that are still to come have higher numbers: nothing is missed, and some keys
can come twice, which SCAN allows.
"""

from __future__ import annotations

from typing import Any, Final

from phalanx.codec.hashing import HASH_SEED, scan_position
from phalanx.common.errors import ErrorCode
from phalanx.grid.serving.update_results import UpdateRefused
from phalanx.maps.call_plans import FIND_TABLE, BulkCall, CallOwners, CallPlan
from phalanx.maps.requests import expect
from phalanx.wire.messages import ErrorReply, PageReply, ScanPartition
from phalanx_protocols.resp.connection import RespConnection

PLACES: Final = 2**32
BYTES_OF_ENTRY: Final = 256
"""What an entry is taken to have, to choose the size of a page."""
LEAST_PAGE_BYTES, MOST_PAGE_BYTES = 4 * 1024, 256 * 1024
MOST_CALL_BYTES: Final = 1024 * 1024
"""A call that has found keys and values of so many bytes looks for no more."""
MOST_ENTRIES: Final = 5_000
"""The most entries of one call, more or less: to look at them is one turn."""
PAGES_AT_ONCE: Final = 16
"""Of so many partitions entries are asked for at once."""

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
    call.table = c.grid.table or (yield FIND_TABLE)
    found: list[PageReply] = []

    def take(group: int, reply: Any) -> None:
        found.append(expect(reply, PageReply, "scan"))

    while True:
        partition_count = call.table.partition_count
        if partition >= partition_count:
            return None
        request = ScanPartition(
            c.grid.next_id(), c.map, partition, partition_count, after or key_before(place), max_bytes
        )
        replies = yield call.ask([(partition, request)])
        _, refused = call.take_replies([partition], replies, take)
        if refused is None:
            return found[0]
        yield from call.find_newer_table(ErrorReply(0, ErrorCode(refused.code), refused.text))


Entries = list[tuple[bytes, bytes]]


class _Found:
    """What one call of SCAN has found."""

    def __init__(self, count: int) -> None:
        self.entries: Entries = []
        self._count = count
        self._left_bytes = MOST_CALL_BYTES

    @property
    def wanted(self) -> int:
        """Return how many entries are still wanted; 0 or less: the call has done its work."""
        return self._count - len(self.entries) if self._left_bytes > 0 else 0

    def take(self, entries: Entries, is_cut: bool) -> int | None:
        """Take entries in scan order, up to the end of a place. Return the place of the first one that is left; None: none is."""
        kept = _whole_places(entries, is_cut, max(self.wanted, 1))
        self.entries += kept
        self._left_bytes -= sum([len(key) + len(value) for key, value in kept])
        return scan_position(entries[len(kept)][0]) if len(kept) < len(entries) else None


def keys_of_page(c: RespConnection, partition: int, place: int, count: int) -> CallPlan[tuple[int, Entries]]:
    """Plan to return some entries from a place on, about `count`, and the cursor behind them; 0: these were the last.

    Where the first partition has too few, those behind it that have any are asked for at once, so empty ones cost nothing.
    """
    found = _Found(min(count, MOST_ENTRIES))
    present = yield from _entries_of(c, partition, place, found.wanted)
    if present is None:
        return 0, []
    if (rest := found.take(*present)) is not None:
        return partition * PLACES + rest, found.entries
    partition += 1
    partition_count, filled = (yield from c.plans().filled_partitions()) if found.wanted > 0 else (0, {})
    while found.wanted > 0:
        behind = [each for each in sorted(filled) if each >= partition]
        if not behind:
            return 0, found.entries
        some, sum_of_some = [], 0
        for each in behind[:PAGES_AT_ONCE]:
            some.append(each)
            sum_of_some += filled[each]
            if sum_of_some >= found.wanted:
                break
        pages = yield from _first_pages(c, some, partition_count, found.wanted)
        if not pages:  # a partition has moved, or was divided: ask for one, as long as that takes
            present = yield from _entries_of(c, some[0], 0, found.wanted)
            if present is None:
                return 0, found.entries
            pages = [present]
            partition_count, filled = yield from c.plans().filled_partitions()
        for each, (entries, is_cut) in zip(some, pages, strict=False):
            if (rest := found.take(entries, is_cut)) is not None:
                return each * PLACES + rest, found.entries
            partition = each + 1
            if found.wanted <= 0:
                break
    return (partition * PLACES if partition < c.grid.partition_count else 0), found.entries


def _page_bytes(count: int) -> int:
    return min(max(count * BYTES_OF_ENTRY, LEAST_PAGE_BYTES), MOST_PAGE_BYTES)


def _first_pages(
    c: RespConnection, partitions: list[int], partition_count: int, count: int
) -> CallPlan[list[tuple[Entries, bool]]]:
    """Plan to return the first entries of partitions, and whether there are more, up to one that was refused."""
    requests = [
        (partition, ScanPartition(c.grid.next_id(), c.map, partition, partition_count, b"", _page_bytes(count)))
        for partition in partitions
    ]
    replies = yield CallOwners(requests, 0)
    found: list[tuple[Entries, bool]] = []
    for reply in replies:
        if not isinstance(reply, PageReply):
            break
        found.append((_in_scan_order(reply), reply.more))
    return found


def _in_scan_order(found: PageReply) -> Entries:
    return sorted(zip(found.keys, found.values, strict=True), key=lambda entry: (scan_position(entry[0]), entry[0]))


def _has_two_places(entries: Entries) -> bool:
    return bool(entries) and scan_position(entries[0][0]) != scan_position(entries[-1][0])


def _entries_of(c: RespConnection, partition: int, place: int, count: int) -> CallPlan[tuple[Entries, bool] | None]:
    """Plan to return entries of a partition in scan order, of two places at least if there are more than these, and whether
    there are more; None: there is no such partition."""
    found = yield from page(c, partition, place, _page_bytes(count))
    if found is None:
        return None
    entries = _in_scan_order(found)
    # A place names all keys of one hash: those of the last one come together.
    while found.more and not _has_two_places(entries):
        after = found.after_key or found.keys[-1]
        more = yield from page(c, partition, place, MOST_PAGE_BYTES, after)
        if more is None:
            return None
        found = more
        entries += _in_scan_order(found)
    return entries, found.more


def _whole_places(entries: Entries, is_cut: bool, count: int) -> Entries:
    """Return the first entries, at least `count` if there are, up to the end of a place. `is_cut`: the last one can have more."""
    end = len(entries)
    if is_cut:
        last = scan_position(entries[-1][0])
        while end and scan_position(entries[end - 1][0]) == last:
            end -= 1
    stop = min(count, end)
    while 0 < stop < end and scan_position(entries[stop][0]) == scan_position(entries[stop - 1][0]):
        stop += 1
    return entries[:stop]
