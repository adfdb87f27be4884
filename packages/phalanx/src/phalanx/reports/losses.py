"""What the cluster has lost, in words and as plain objects, until an operator acknowledges it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable
from typing import Any

import msgspec

from phalanx.common.ids import MemberId, address_of
from phalanx.common.losses import AbsentMember, DepartedHolder, Loss, LossBook, LossKind, count_of, numbers_in
from phalanx.common.words import counted
from phalanx.wire.messages import LossesReply

MOST_RANGES = 12
"""The most ranges of partitions that one line shows."""


def select(book: LossBook, only: Collection[str] | None) -> LossBook:
    """Return the book with only these losses and members; None: all."""
    if only is None:
        return book
    return LossBook(
        losses=tuple(loss for loss in book.losses if loss.id in only),
        away=tuple(each for each in book.away if each.member in only),
    )


def about_members(book: LossBook, members: Collection[MemberId]) -> set[str]:
    """Return the ids of the losses that these members caused, and the identities of those that are absent."""
    losses = {loss.id for loss in book.losses if any(each.member in members for each in loss.gone)}
    return losses | {each.member for each in book.away if each.member in members}


def about_partition(book: LossBook, partition: int, count: int) -> set[str]:
    """Return the ids of the losses of a partition, numbered among `count` ones."""
    return {loss.id for loss in book.losses if loss.holds(partition, count)}


def in_words(loss: Loss, now_ms: int) -> str:
    """Describe one loss: what was lost, when, how, and who decided."""
    when = f"Loss {loss.id}, {ago(now_ms - loss.at_ms)} ({_clock(loss.at_ms)})"
    partitions, which = counted(loss.count, "partition"), ranges(numbers_in(loss.partitions))
    gone = _names(loss.gone, loss.gone_count)
    decided = f"Decided by {address_of(loss.by)} in member list {loss.view_version}."
    match loss.kind:
        case LossKind.EMPTY:
            held = "It is not known whether these partitions had data."
            said = f"{partitions} of {loss.of} began empty ({which}), because only these members held them, and they are gone: {gone}. {held}"
        case LossKind.BEHIND:
            said = (
                f"{partitions} of {loss.of} continue with replicas that perhaps lack acknowledged writes ({which}): for "
                f"some map they confirm no writes, or have no entries. These members are gone: {gone}."
            )
        case LossKind.KEPT:
            entries = counted(loss.entries, "entry", "entries")
            who = address_of(loss.by)
            said = (
                f"{who} left with {entries} in {partitions} that it kept of a side that gave up its cluster, and nobody has "
                f"taken ({which})."
            )
    return " ".join([f"{when}: {said}", *_returned(loss), decided])


def _returned(loss: Loss) -> list[str]:
    back = count_of(loss.returned)
    if not back:
        return []
    which = "All" if back == loss.count else f"{back}"
    return [f"{which} of them were given back by members that came back, as these had them."]


def away_in_words(away: AbsentMember, now_ms: int) -> str:
    how = f" ({away.how})" if away.how else ""
    return (
        f"{address_of(away.member)} was removed {ago(now_ms - away.at_ms)}{how}, and perhaps still runs, with data that no other "
        f"member has: it has not come back yet."
    )


def _names(gone: Iterable[DepartedHolder], count: int) -> str:
    names = [f"{address_of(each.member)} ({each.how or 'not known how'})" for each in gone]
    return ", ".join(names) + (f" and {count - len(names)} more" if count > len(names) else "")


def ranges(numbers: list[int], most: int = MOST_RANGES) -> str:
    """Write numbers as ranges, and how many more there are: `3-5, 9, 12-14 and 20 more`."""
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1] = found[-1][0], number
        else:
            found.append((number, number))
    text = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in found[:most])
    more = sum(last - first + 1 for first, last in found[most:])
    return f"{text} and {more} more" if more else text


def ago(age_ms: int) -> str:
    """Write an age in the largest unit that fits: `40.0 s ago`, `5 min ago`, `3.2 h ago`."""
    seconds = max(age_ms, 0) / 1000
    if seconds < 120:
        return f"{seconds:.1f} s ago"
    return f"{seconds / 60:.0f} min ago" if seconds < 7200 else f"{seconds / 3600:.1f} h ago"


def _clock(at_ms: int) -> str:
    return dt.datetime.fromtimestamp(at_ms / 1000).astimezone().isoformat(sep=" ", timespec="seconds")


# --- for machines ---------------------------------------------------------------------------------------------------


def as_objects(reply: LossesReply, only: Collection[str] | None = None) -> dict[str, Any]:
    """Return the losses that are not acknowledged as fields of a command's JSON object."""
    book = select(reply.losses, only)
    return {
        "unacknowledged_losses": [_loss_as_object(loss, reply.now_ms) for loss in book.losses],
        "earlier_losses": {"losses": book.earlier, "partitions": book.earlier_partitions},
        "away": [
            {"member": each.member, "address": address_of(each.member), "at": each.at_ms, "age_ms": reply.now_ms - each.at_ms,
             "how": each.how}
            for each in book.away
        ],
    }  # fmt: skip


def _loss_as_object(loss: Loss, now_ms: int) -> dict[str, Any]:
    return {
        "id": loss.id,
        "kind": str(loss.kind),
        "at": loss.at_ms,
        "age_ms": now_ms - loss.at_ms,
        "by": loss.by,
        "view_version": loss.view_version,
        "partition_count": loss.of,
        "count": loss.count,
        "partitions": numbers_in(loss.partitions),
        "gone": [msgspec.structs.asdict(each) for each in loss.gone],
        "gone_count": loss.gone_count,
        "entries": loss.entries if loss.entries >= 0 else None,
        "returned": numbers_in(loss.returned),
        "said": in_words(loss, now_ms),
    }
