"""On the master: which partitions need another replica, who copies it to whom, and when a member may leave.

A partition should have `backup_count + 1` replicas on members that stay, or one on each where there are fewer
members. What is missing is copied by the owner to the least loaded member. A copy is in the table only when the
destination holds everything; it is over as soon as the partition's version passes the one that it was ordered for.
Stateless beyond the copies under way: whatever changed, the next look at the table finds what is still missing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import NamedTuple

from phalanx.common.config import NodeConfig
from phalanx.common.ids import MemberId, Millis
from phalanx.common.table import PartitionTable, Replicas
from phalanx.common.view import MembersView
from phalanx.partition.assignment import least_loaded
from phalanx.wire import events
from phalanx.wire.effects import Outbox
from phalanx.wire.messages import CopyOrder, CopyReport

REPEAT_ORDER_AFTER_MS = 1_000
FIRST_PAUSE_MS = 200
"""After an owner gave up a copy to a member, before it is told to try that member again; doubles up to the next figure."""
LONGEST_PAUSE_MS = 12_800


class Copy(NamedTuple):
    """A copy of one partition that was ordered and is not in the table yet."""

    partition: int
    base_version: int
    source: MemberId
    destination: MemberId
    ordered_at: Millis


class Redundancy:
    """The copies under way."""

    def __init__(self, config: NodeConfig, outbox: Outbox) -> None:
        self._config = config
        self._out = outbox
        self.copies: dict[int, Copy] = {}
        """Partition to its copy."""
        self.degraded_since: Millis | None = None
        self._pauses: dict[tuple[MemberId, MemberId], tuple[Millis, Millis]] = {}
        """Of an owner and a destination between which a copy broke off: until when to try others, and the next pause."""
        self._next_pause_end: Millis | None = None

    @property
    def is_busy(self) -> bool:
        """Whether replicas are missing or being copied, or a pause is to end, so that time alone may matter."""
        return bool(self.copies) or self.degraded_since is not None or self._next_pause_end is not None

    def forget_all(self) -> None:
        """This member is not the master any more, or a new search begins."""
        self.copies.clear()
        self._pauses.clear()
        self._next_pause_end = None
        self.degraded_since = None

    def ended_by_departure(self, table: PartitionTable, view: MembersView) -> list[int]:
        """Drop copies whose source or destination left; the partitions whose owner must learn of it by the table."""
        self._pauses = {pair: pause for pair, pause in self._pauses.items() if all(member in view for member in pair)}
        over = [copy for copy in self.copies.values() if copy.source not in view or copy.destination not in view]
        for copy in over:
            self._give_up(copy, "a participant left")
        return [copy.partition for copy in over if table.versions[copy.partition] == copy.base_version]

    def on_report(self, sender: MemberId, message: CopyReport, table: PartitionTable, now: Millis) -> Replicas | None:
        """The new replicas of the partition if this report completes a copy that is still valid."""
        copy = self.copies.get(message.partition)
        if copy is None or (copy.base_version, copy.destination, copy.source) != (
            message.base_version, message.destination, sender,
        ):  # fmt: skip
            return None
        pair = copy.source, copy.destination
        if not message.done:
            self._give_up(copy, "the owner gave it up")
            pause_ms = self._pauses.get(pair, (0, FIRST_PAUSE_MS))[1]
            self._pauses[pair] = now + pause_ms, min(2 * pause_ms, LONGEST_PAUSE_MS)
            return None
        self._pauses.pop(pair, None)
        del self.copies[message.partition]
        replicas = (*table.replicas(message.partition), message.destination)
        index, version = len(replicas) - 1, table.version + 1
        self._out.record(events.CopyCommitted(copy.partition, copy.source, copy.destination, index, version))
        return replicas

    def order_missing(
        self,
        table: PartitionTable,
        view: MembersView,
        leaving: Collection[MemberId],
        ready: Collection[MemberId],
        unpublished: Collection[int],
        now: Millis,
    ) -> int:
        """Order copies for what is missing, as many at a time as owners may send; repeat orders that may be lost.

        `ready`: who can take copies. Returns how many partitions miss a replica.
        """
        for copy in [copy for copy in self.copies.values() if table.versions[copy.partition] != copy.base_version]:
            self._give_up(copy, "the partition changed meanwhile")
        staying = [member for member in view.members if member not in leaving]
        wanted = min(self._config.backup_count + 1, len(staying))
        loads = table.loads()
        busy = Counter(copy.source for copy in self.copies.values())
        for copy in self.copies.values():
            loads[copy.destination] = loads.get(copy.destination, 0) + 1
        missing = 0
        for partition, row in enumerate(table.rows):
            replicas = [table.members[index] for index in row]
            lacking = wanted - sum(1 for member in replicas if member not in leaving)
            if lacking <= 0 or not replicas:
                continue
            missing += 1
            owner = replicas[0]
            if partition in self.copies or partition in unpublished or busy[owner] >= self._config.copies_per_member:
                continue
            candidates = [
                member
                for member in staying
                if member in ready and member not in replicas and self._pauses.get((owner, member), (0, 0))[0] <= now
            ]
            if not candidates:
                continue
            destination = least_loaded(candidates, loads)
            loads[destination] = loads.get(destination, 0) + 1
            busy[owner] += 1
            self._order(Copy(partition, table.versions[partition], owner, destination, now), table)
        self._repeat_orders(now)
        self._next_pause_end = min((until for until, _ in self._pauses.values() if until > now), default=None)
        return missing

    def still_needed(self, member: MemberId, table: PartitionTable, view: MembersView, leaving: set[MemberId]) -> int:
        """How many partitions would lack a replica, or be lost, if this leaving member went now."""
        staying = [other for other in view.members if other not in leaving]
        if member not in table.members or not staying:
            return 0
        wanted = min(self._config.backup_count + 1, len(staying))
        index = table.members.index(member)
        return sum(
            1
            for row in table.rows
            if index in row and sum(1 for other in row if table.members[other] not in leaving) < wanted
        )

    def next_deadline(self) -> Millis | None:
        deadlines = [copy.ordered_at + REPEAT_ORDER_AFTER_MS for copy in self.copies.values()]
        if self._next_pause_end is not None:
            deadlines.append(self._next_pause_end)
        return min(deadlines, default=None)

    def _order(self, copy: Copy, table: PartitionTable) -> None:
        self.copies[copy.partition] = copy
        self._out.record(events.CopyBegun(copy.partition, copy.source, copy.destination, table.version))
        self._out.send(copy.source, CopyOrder(copy.partition, copy.base_version, copy.destination))

    def _repeat_orders(self, now: Millis) -> None:
        for copy in list(self.copies.values()):
            if now - copy.ordered_at >= REPEAT_ORDER_AFTER_MS:
                self.copies[copy.partition] = copy._replace(ordered_at=now)
                self._out.send(copy.source, CopyOrder(copy.partition, copy.base_version, copy.destination))

    def _give_up(self, copy: Copy, reason: str) -> None:
        del self.copies[copy.partition]
        self._out.record(events.CopyGivenUp(copy.partition, copy.source, copy.destination, reason))

    def note(self, missing: int, table: PartitionTable, is_known_to_all: bool, now: Millis) -> None:
        """Record when redundancy is back: when every member knows so, and not only the master, which may die."""
        if missing and self.degraded_since is None:
            self.degraded_since = now
        elif not missing and is_known_to_all and self.degraded_since is not None:
            self._out.record(events.FullyReplicated(table.version, now - self.degraded_since))
            self.degraded_since = None
