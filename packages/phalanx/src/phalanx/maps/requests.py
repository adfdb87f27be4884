"""Convert keys and values to requests, and replies to values or errors: shared by all kinds of maps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn, TypeVar

from phalanx.calls.lost_members import has_ended_members
from phalanx.codec.hashing import children_of
from phalanx.common.durations import Duration, to_millis
from phalanx.common.errors import (
    MEMBER_STOPPED,
    ClientClosed,
    EntryTooLarge,
    ErrorCode,
    GridFull,
    IndeterminateWrite,
    NotEnoughMembers,
    ProtocolError,
    StaleToken,
    UnavailableError,
    UsageError,
)
from phalanx.common.hidden_maps import HIDDEN, HiddenName, is_hidden
from phalanx.common.ids import Lost, Millis
from phalanx.common.map_settings import MAX_MAP_NAME_LENGTH
from phalanx.common.table import PartitionTable
from phalanx.common.words import check_text, quoted
from phalanx.maps.own_maps import OwnName
from phalanx.wire.messages import ErrorReply

SCAN_PAGE_BYTES = 1024 * 1024
"""Bytes of entries in one page of a scan."""
PACKED_PAGE_BYTES = 4 * 1024 * 1024
"""Bytes in one packed page. Single entries cost the member nothing, so most partitions fit into one page."""
REGROUP = (ErrorCode.NOT_OWNER, ErrorCode.OWNERSHIP_LOST)
"""Errors of one part of a bulk request after which its keys are grouped again, by a newer table."""

UNKNOWN = frozenset({ErrorCode.OWNERSHIP_LOST, ErrorCode.INDETERMINATE})
"""Errors of a part of a write after which the part can be done."""
NOT_DONE = frozenset({ErrorCode.NOT_ENOUGH_MEMBERS, ErrorCode.GRID_FULL, ErrorCode.UNAVAILABLE})
"""Errors that end a call, and mean that this part of a write was not done."""

CLIENT_CLOSED = "the client is closed"
"""The text of the error, of the code `UNAVAILABLE`, with which a client that is closed ends its own calls. No code of the wire says
that, because no member does."""

OPEN_FROM_EVERY = 8
"""While requests are under way, `open_from` is updated once for this many new requests."""

R = TypeVar("R")


def ttl_to_ms(ttl: Duration | None) -> Millis:
    """Convert a time to live to milliseconds; None (no expiry) to 0. Raises `UsageError`."""
    return 0 if ttl is None else to_millis("ttl", ttl, "more than 0 and at most ten years, or None for no limit")


def idle_to_ms(max_idle: Duration | None) -> Millis:
    """Convert an idle time to milliseconds; None (it never expires so) to 0. Raises `UsageError`."""
    return 0 if max_idle is None else to_millis("max_idle", max_idle, "more than 0 and at most ten years, or None")


def check_map_name(name: object) -> str:
    """Return the name. Raises `UsageError` unless it is a valid name of a map, or a name that Phalanx itself gives."""
    if isinstance(name, HiddenName | OwnName):
        return str(name)
    if isinstance(name, str) and is_hidden(name):
        raise UsageError(
            f"{quoted(name)} cannot name a map: names that begin with {HIDDEN!r} are those of data that jobs have staged"
        )
    if not isinstance(name, str) or not name or len(name) > MAX_MAP_NAME_LENGTH:
        raise UsageError(f"{quoted(name)} cannot name a map: give a text of 1 to {MAX_MAP_NAME_LENGTH} characters")
    return check_text(name, "map name")


def raise_error(reply: ErrorReply, what: str) -> NoReturn:
    """Raise the exception that belongs to a member's refusal. `what`: the operation, for the message."""
    code, text = ErrorCode(reply.code), f"{what}: {reply.text}"
    if has_ended_members(reply):
        ended = IndeterminateWrite(text) if code is ErrorCode.INDETERMINATE else UnavailableError(text)
        ended.ended_members = reply.lost
        raise ended
    if code is ErrorCode.TOO_LARGE:
        raise EntryTooLarge(f"{text}; store a smaller entry, or raise the limit on every member")
    if code is ErrorCode.INVALID:
        raise UsageError(text)
    if code is ErrorCode.STALE_TOKEN:
        raise StaleToken(f"{text}; nothing was changed")
    if code in (ErrorCode.INDETERMINATE, ErrorCode.OWNERSHIP_LOST):
        raise IndeterminateWrite(f"{text}; the write was perhaps applied: read before you repeat it")
    if code is ErrorCode.NOT_ENOUGH_MEMBERS:
        raise NotEnoughMembers(f"{text}; nothing was changed")
    if code is ErrorCode.GRID_FULL:
        raise GridFull(f"{text}; nothing was changed")
    if reply.text == CLIENT_CLOSED:
        raise ClientClosed(f"{text}; nothing was changed; use another client")
    if reply.text == MEMBER_STOPPED:
        raise member_stopped(f"{what}: ")
    raise UnavailableError(f"{text}; nothing was changed, calling again is safe")


def member_stopped(what: str = "") -> ClientClosed:
    """Return the error of a call that comes after this program's member has ended. `what`: the operation, as `get: `."""
    return ClientClosed(f"{what}{MEMBER_STOPPED}; nothing was changed; start another member")


def lost_after(lost: Lost, replies: Iterable[Any]) -> Lost:
    """Return which members a call has lost after a round of replies, for the requests that follow (`CallOwners.lost`).

    `lost`: those before it. None are, when no request of the round was refused: those that follow are other ones.
    """
    refused = [reply for reply in replies if isinstance(reply, ErrorReply) and reply.code in REGROUP]
    if not refused:
        return ()
    together = tuple(member for reply in refused for member in reply.lost)
    return (*lost, together) if together else lost


def as_for_the_whole(replies: list[Any], *, may_be_applied: bool) -> tuple[list[Any], bool]:
    """Return the replies to parts of one write, changed to errors of the whole, and whether some of it can be done now.

    A part that was refused for lack of members or memory, or that could not be sent, changed nothing. But the whole write may
    have: another part was done, or can be (`may_be_applied`: one that was answered before).
    """
    if ErrorReply not in map(type, replies):
        return replies, may_be_applied or bool(replies)
    codes = [ErrorCode(reply.code) if isinstance(reply, ErrorReply) else None for reply in replies]
    may_be_applied = may_be_applied or any(code is None or code in UNKNOWN for code in codes)
    if not may_be_applied or NOT_DONE.isdisjoint(codes):
        return replies, may_be_applied
    changed = [
        ErrorReply(reply.id, ErrorCode.INDETERMINATE, f"other parts of it were perhaps done, but {reply.text}")
        if code in NOT_DONE
        else reply
        for reply, code in zip(replies, codes, strict=True)
    ]
    return changed, True


def expect(reply: Any, kind: type[R], what: str) -> R:
    """Return the reply, which must be of this kind. Raises the exception of an error reply."""
    if type(reply) is kind:
        return reply
    if isinstance(reply, ErrorReply):
        raise_error(reply, what)
    raise ProtocolError(f"{what}: the member answered with {type(reply).__name__}, not {kind.__name__}")


def partitions_by_owner(table: PartitionTable) -> list[list[int]]:
    """Return all partitions, grouped by owner; one without an owner is a group of its own."""
    groups: dict[int, list[int]] = {}
    for partition, row in enumerate(table.rows):
        groups.setdefault(row[0] if row else -1 - partition, []).append(partition)
    return list(groups.values())


def regrouped(table: PartitionTable, left: Iterable[int], partition_count: int) -> list[list[int]]:
    """Return the partitions `left`, numbered by `partition_count`, grouped by owner in this table."""
    count = table.partition_count
    wanted = {child for partition in left for child in children_of(partition, count, partition_count)}
    return [kept for group in partitions_by_owner(table) if (kept := [p for p in group if p in wanted])]


def in_pieces(groups: list[list[int]], most: int | None) -> list[list[int]]:
    """Return the groups, cut so that each has at most `most` partitions; None: unchanged."""
    if most is None:
        return groups
    return [group[start : start + most] for group in groups for start in range(0, len(group), most)]
