"""From keys and values to requests, and from replies to values or errors: what every kind of map shares.

A request for many keys goes to their owners in parts. A part is at most `BATCH_BYTES` long, so that no frame grows
beyond its limit and no member is held up for long.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NoReturn, TypeVar

from phalanx.common.errors import (
    EntryTooLarge,
    ErrorCode,
    IndeterminateWrite,
    ProtocolError,
    UnavailableError,
    UsageError,
)
from phalanx.common.table import PartitionTable
from phalanx.partition.hashing import partition_of
from phalanx.wire.messages import ErrorReply

BATCH_BYTES = 4 * 1024 * 1024
"""Keys and values in one request of a bulk operation."""
SCAN_PAGE_BYTES = 1024 * 1024
"""Entries in one page of a scan."""
REGROUP = (ErrorCode.NOT_OWNER, ErrorCode.OWNERSHIP_LOST)
"""Answers to one part of a bulk request after which its keys are grouped anew, by a newer table."""

R = TypeVar("R")


def ttl_to_ms(ttl: float | None) -> int:
    """A time to live in seconds as whole milliseconds; None: for ever (0). Raises `UsageError` unless positive."""
    if ttl is None:
        return 0
    if not ttl > 0 or ttl > 10 * 365 * 86_400:
        raise UsageError(f"ttl is {ttl!r}: give seconds, more than 0 and at most ten years, or None for ever")
    return max(int(ttl * 1000), 1)


def check_map_name(name: object) -> str:
    """Raises `UsageError` unless it is a text that can name a map."""
    if not isinstance(name, str) or not name or len(name) > 200:
        raise UsageError(f"{name!r} cannot name a map: give a text of 1 to 200 characters")
    return name


def raise_error(reply: ErrorReply, what: str) -> NoReturn:
    """Raise the exception that belongs to a member's refusal. `what`: the operation, for the message."""
    code, text = ErrorCode(reply.code), f"{what}: {reply.text}"
    if code is ErrorCode.TOO_LARGE:
        raise EntryTooLarge(f"{text}; store a smaller entry, or raise the limit on every member")
    if code is ErrorCode.INVALID:
        raise UsageError(text)
    if code in (ErrorCode.INDETERMINATE, ErrorCode.OWNERSHIP_LOST):
        raise IndeterminateWrite(f"{text}; the write may or may not have been applied: read before you repeat it")
    raise UnavailableError(f"{text}; nothing was changed, calling again is safe")


def expect(reply: Any, kind: type[R], what: str) -> R:
    """The reply, if it is of the kind that the request calls for. Raises what an error reply means."""
    if type(reply) is kind:
        return reply
    if isinstance(reply, ErrorReply):
        raise_error(reply, what)
    raise ProtocolError(f"{what}: the member answered with {type(reply).__name__}, not {kind.__name__}")


def group_by_owner(
    keys: Iterable[bytes], indexes: Iterable[int], table: PartitionTable, sizes: Sequence[int] | None
) -> list[tuple[int, list[int]]]:
    """Cut keys into parts that one owner can answer: (a partition of that owner, indexes of the keys).

    `indexes`: of each key; `sizes`: of the entries at these indexes, in bytes, None where nothing is sent but the key.
    Keys of partitions without an owner form parts of their own: the call waits until there is one.
    """
    rows, count = table.rows, len(table.rows)
    parts: list[tuple[int, list[int]]] = []
    open_parts: dict[int, tuple[list[int], int]] = {}
    for index, key in zip(indexes, keys, strict=True):
        partition = partition_of(key, count)
        row = rows[partition]
        owner = row[0] if row else -1 - partition
        part = open_parts.get(owner)
        size = sizes[index] if sizes is not None else len(key)
        if part is None or part[1] + size > BATCH_BYTES:
            part = ([], 0)
            parts.append((partition, part[0]))
        part[0].append(index)
        open_parts[owner] = (part[0], part[1] + size)
    return parts


def partitions_by_owner(table: PartitionTable) -> list[list[int]]:
    """All partitions, grouped by owner; one without an owner is a group of its own."""
    groups: dict[int, list[int]] = {}
    for partition, row in enumerate(table.rows):
        groups.setdefault(row[0] if row else -1 - partition, []).append(partition)
    return list(groups.values())
