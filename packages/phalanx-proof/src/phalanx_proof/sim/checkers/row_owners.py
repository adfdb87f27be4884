"""Knows whom members name as the owner of each partition at each of its versions, and finds those of one cluster that disagree."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from phalanx.common.ids import MemberId, Millis
from phalanx.common.table import PartitionTable
from phalanx.common.view import MembersView
from phalanx.wire.event import Event
from phalanx.wire.view_events import MajorityChanged
from phalanx_proof.sim.checkers.findings import Findings


class RowHolder(NamedTuple):
    """A member that has installed a row."""

    member: MemberId
    view: tuple[MemberId, ...]
    """The members of its view then."""
    lacks_majority: bool
    """Whether its side was without the majority then."""

    def is_beyond_cut(self, member: MemberId) -> bool:
        """Tell whether this row was given on a side without the majority on which another member is not.

        1. D, alone behind a cut, goes on, and C, the owner of a partition, is not there: D's next version of that row has no owner. 2. A, the
        master of the others, commits a migration of C, and gives the row the same version. 3. B hears of that before it hears that D is
        gone. Each side numbers its rows for itself, and those of a side without the majority do not count (DU-30).
        """
        return self.lacks_majority and member not in self.view


class RowOwners:
    """Watches the tables of all members."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._holders: dict[tuple[int, int], dict[MemberId | None, list[RowHolder]]] = {}
        """Partition and its version to the owner, and to the members with a table that says so."""
        self._without_majority: set[MemberId] = set()

    def on_event(self, member: MemberId, event: Event) -> None:
        if isinstance(event, MajorityChanged):
            self._without_majority.discard(member)
            if not event.has_majority:
                self._without_majority.add(member)

    def divide(self, spread: Callable[[Any, Callable[[Any], Any]], Any]) -> None:
        """Give each part what is known of the partition that it comes from."""
        self._holders = spread(self._holders, lambda owners: {owner: list(each) for owner, each in owners.items()})

    def check(
        self, part: int, member: MemberId, table: PartitionTable, view: MembersView | None,
        alive: Collection[MemberId], now: Millis,
    ) -> None:  # fmt: skip
        """Judge whom a table that a member has installed names as the owner of a part."""
        partition = part % table.partition_count
        version, owner = table.versions[partition], table.owner(partition)
        owners = self._holders.setdefault((part, version), {})
        members = view.members if view is not None else ()
        owners.setdefault(owner, []).append(RowHolder(member, members, member in self._without_majority))
        for other, holders in owners.items():
            if other == owner:
                continue
            of_its_view = [each for each in holders if each.member in alive and each.member in members]
            against = [each.member for each in of_its_view if not each.is_beyond_cut(member)]
            if against:
                story = f"partition {partition} version {version}: {owner} at {member}, {other} at {against}"
                self._findings.add(now, "one owner per partition and version", story)
