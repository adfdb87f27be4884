"""What the cluster has lost, as a value that travels with the partition table until an operator acknowledges it.

Only the master changes it. A loss is in the same version of the table that gives its partitions to others, so a member that
knows that they began empty knows of the loss. Beside losses stand the members that were removed, perhaps still run, and then
keep data that no other member has (`AbsentMember`).

Two such values of one cluster are united by the identities of their losses: a new master unites what all members tell it,
and the loss records of a side that has ended come along with its members.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Mapping

import msgspec

from phalanx.common.ids import MemberId, incarnation_of

MAX_LOSSES = 16
"""The most losses that are told one by one; older ones are summed up."""
MAX_SETTLED = 64
"""The most identities of losses that are told no more: a member that comes back late must not bring them back."""
MAX_AWAY = 64
MAX_GONE = 16
"""The most members that one loss names."""
MAX_WORDS = 200
"""The most characters of a reason, or of a name that an operator gives."""
EARLIER = "earlier"
"""The identity of all losses that are only summed up."""


class LossKind(enum.StrEnum):
    EMPTY = "empty"
    """Every replica left the cluster: the partitions began empty."""
    BEHIND = "behind"
    """The owner left, and the first replica that is left need not have all that was acknowledged: for some map it confirms
    no write, or has no entries at all."""
    KEPT = "kept"
    """A member left with replicas of a side that gave up its cluster, before they were merged."""


class DepartedHolder(msgspec.Struct, frozen=True, array_like=True):
    """A member whose removal lost the last replica of something."""

    member: MemberId
    how: str = ""
    """Why it was removed, in words. Empty if the master that records the loss does not know."""


class Loss(msgspec.Struct, frozen=True, array_like=True):
    """Partitions that were lost at one time, by one decision."""

    version: int
    """The version of the first table that tells of it."""
    by: MemberId
    """The master that found it; of `KEPT` the member that left."""
    view_version: int
    at_ms: int
    """Milliseconds since 1970 by the grid's clock."""
    kind: LossKind
    of: int
    """How many partitions there were."""
    partitions: bytes
    """Which of them, as `bits_of` writes them."""
    gone: tuple[DepartedHolder, ...]
    gone_count: int
    """The number of members that were gone; at most `MAX_GONE` of them are named."""
    entries: int = -1
    """-1: not known."""
    returned: bytes = b""
    """As `partitions`: those of them that a process which came back later still had, and gave to their owners as it had them."""

    @property
    def id(self) -> str:
        # Incarnations of one second begin alike.
        return f"{self.version}-{incarnation_of(self.by)[-6:]}"

    @property
    def count(self) -> int:
        return count_of(self.partitions)

    def holds(self, partition: int, count: int) -> bool:
        """Return whether this loss includes a partition, numbered among `count` ones. Parts of a lost partition are included too."""
        number = partition % self.of if count % self.of == 0 else partition
        return _has(self.partitions, number)


class AbsentMember(msgspec.Struct, frozen=True, array_like=True):
    """A member that was removed, and whose process perhaps still runs, with data that only it has."""

    member: MemberId
    at_ms: int
    """When it was removed, by the grid's clock."""
    how: str


class LossBook(msgspec.Struct, frozen=True, array_like=True):
    """All that is told of losses. `version` grows with every change."""

    version: int = 0
    losses: tuple[Loss, ...] = ()
    """The losses that are not acknowledged, oldest first."""
    earlier: int = 0
    """The sum of older losses that are not acknowledged either."""
    earlier_partitions: int = 0
    settled: tuple[str, ...] = ()
    """Identities of the last losses that were acknowledged or summed up."""
    away: tuple[AbsentMember, ...] = ()
    """Members that perhaps still run, with data, oldest first."""

    def __bool__(self) -> bool:
        """Return whether there is a loss or an absent member to report."""
        return bool(self.losses or self.earlier or self.away)

    @property
    def ids(self) -> frozenset[str]:
        """Return the ids of all known losses, acknowledged ones too."""
        return frozenset(loss.id for loss in self.losses) | frozenset(self.settled)

    def find(self, loss_id: str) -> Loss | None:
        return next((loss for loss in self.losses if loss.id == loss_id), None)

    def with_losses(self, losses: Iterable[Loss]) -> LossBook:
        """Add losses that are not in the book. Of losses in both, unite the partitions that were given back.

        Losses that were acknowledged or summed up are not added again.
        """
        known = {loss.id: loss for loss in self.losses}
        for loss in losses:
            if loss.id in self.settled:
                continue
            before = known.get(loss.id)
            if before is None:
                known[loss.id] = loss
            elif before.returned != loss.returned:
                known[loss.id] = msgspec.structs.replace(before, returned=united(before.returned, loss.returned))
        return self._with(losses=tuple(sorted(known.values(), key=lambda loss: (loss.at_ms, loss.id))))

    def with_returned(self, returned: Mapping[str, bytes]) -> LossBook:
        """Note the partitions of some losses that were given back. `returned`: id of the loss to a set of partitions."""
        losses = tuple(
            msgspec.structs.replace(loss, returned=united(loss.returned, common(returned[loss.id], loss.partitions)))
            if loss.id in returned
            else loss
            for loss in self.losses
        )
        return self._with(losses=losses)

    def with_away(self, away: Iterable[AbsentMember]) -> LossBook:
        """Add members that can still run and hold data. Only the latest `MAX_AWAY` are kept."""
        found = {each.member: each for each in (*self.away, *away)}
        return self._with(away=tuple(found.values())[-MAX_AWAY:])

    def without_away(self, members: Collection[MemberId]) -> LossBook:
        """Return the book without members that are not expected to bring anything back any more."""
        return self._with(away=tuple(each for each in self.away if each.member not in members))

    def acknowledged(self, ids: Collection[str]) -> LossBook:
        """Return the book without the losses and members that an operator has acknowledged. Unknown ids are ignored."""
        known = tuple(loss.id for loss in self.losses if loss.id in ids)
        book = self._with(
            losses=tuple(loss for loss in self.losses if loss.id not in ids),
            settled=(*self.settled, *known)[-MAX_SETTLED:],
            away=tuple(each for each in self.away if each.member not in ids),
        )
        return book._with(earlier=0, earlier_partitions=0) if EARLIER in ids else book  # its own class

    def united_with(self, other: LossBook) -> LossBook:
        """Return what both know. Members that are away are those of the newer book: some of the older can be back."""
        newer, older = (self, other) if self.version >= other.version else (other, self)
        settled = tuple(dict.fromkeys([*older.settled, *newer.settled]))[-MAX_SETTLED:]
        book = newer
        if set(settled) != set(newer.settled):
            losses = tuple(loss for loss in newer.losses if loss.id not in settled)
            book = newer._with(settled=settled, losses=losses)  # its own class
        return book.with_losses(older.losses)

    def _with(self, **changes: object) -> LossBook:
        """Return the book with these changes and the next version, or the same book if nothing changes.

        The oldest losses beyond `MAX_LOSSES` are only counted.
        """
        book = msgspec.structs.replace(self, **changes)
        if book == self:
            return self
        if surplus := book.losses[:-MAX_LOSSES]:
            book = msgspec.structs.replace(
                book,
                losses=book.losses[-MAX_LOSSES:],
                earlier=book.earlier + len(surplus),
                earlier_partitions=book.earlier_partitions + sum(loss.count for loss in surplus),
                settled=(*book.settled, *(loss.id for loss in surplus))[-MAX_SETTLED:],
            )
        return msgspec.structs.replace(book, version=self.version + 1)


NO_LOSSES = LossBook()


# --- sets of partitions ---------------------------------------------------------------------------------------------


def bits_of(partitions: Iterable[int]) -> bytes:
    """Pack a set of partitions: partition p is bit p % 8 of byte p // 8. So a loss of many partitions stays small."""
    bits = bytearray()
    for partition in partitions:
        place = partition >> 3
        if place >= len(bits):
            bits.extend(bytes(place + 1 - len(bits)))
        bits[place] |= 1 << (partition & 7)
    return bytes(bits)


def numbers_in(bits: bytes) -> list[int]:
    """List the partitions of a packed set in ascending order."""
    return [place * 8 + bit for place, byte in enumerate(bits) if byte for bit in range(8) if byte >> bit & 1]


def count_of(bits: bytes) -> int:
    return int.from_bytes(bits).bit_count()


def united(one: bytes, other: bytes) -> bytes:
    size = max(len(one), len(other))
    return (int.from_bytes(one, "little") | int.from_bytes(other, "little")).to_bytes(size, "little")


def common(one: bytes, other: bytes) -> bytes:
    return (int.from_bytes(one, "little") & int.from_bytes(other, "little")).to_bytes(len(one), "little")


def _has(bits: bytes, partition: int) -> bool:
    return partition >> 3 < len(bits) and bool(bits[partition >> 3] >> (partition & 7) & 1)


def named(gone: Iterable[tuple[MemberId, str]]) -> tuple[DepartedHolder, ...]:
    """Record which members went and how, at most `MAX_GONE` of them, each with at most `MAX_WORDS` characters."""
    return tuple(DepartedHolder(member, how[:MAX_WORDS]) for member, how in list(gone)[:MAX_GONE])
