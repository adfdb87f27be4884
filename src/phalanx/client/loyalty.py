"""Whose table a client believes: its own cluster's, or that of what became of it, and nobody else's.

`standing` says what a told list is to the known one by who is in them, `two_clusters` what the rest of the answer says. This
is the variable behind them: when the cluster was heard last, and which other one answers meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

from phalanx.client.staleness import Staleness, judge
from phalanx.client.two_clusters import Side, are_apart, could_be_restart, side_of
from phalanx.common.ids import Address, MemberId, Millis, Target
from phalanx.common.table import PartitionTable
from phalanx.common.view import MembersView
from phalanx.wire.messages import TableReply


class Known(NamedTuple):
    """What a client knows of the cluster. Never changed, so that threads may share it."""

    view: MembersView | None = None
    """The newest member list known; None: no member has answered yet."""
    table: PartitionTable | None = None
    """The newest partition table known; None until a member has told an assigned one."""
    partition_count: int | None = None
    """How many partitions the cluster has; None until a member has answered."""
    side: Side | None = None
    """That of `view`, as the last member told it that had it."""


class Contact:
    """When a client's cluster gave its last sign of life. Threads may share it: what one overwrites is as good."""

    def __init__(self, wall_ahead_ms: Callable[[], Millis] = lambda: 0) -> None:
        """`wall_ahead_ms`: how far the wall clock is ahead of the time by which the client is driven."""
        self.heard_at: Millis = 0
        """When the latest request was sent that a member has answered: then the cluster lived."""
        self.warned_of: MemberId | None = None
        """The founder of the other cluster of which the log was told."""
        self._wall_ahead_ms = wall_ahead_ms
        self._ahead_ms = wall_ahead_ms()

    def heard(self, at: Millis) -> None:
        """A member told its table, and was asked `at` that time."""
        self.heard_at = max(self.heard_at, at)
        self._ahead_ms = self._wall_ahead_ms()

    def silent_ms(self, now: Millis) -> Millis:
        """Return how long ago that was. Only the wall clock shows that a machine slept or was moved."""
        return now - self.heard_at + max(self._wall_ahead_ms() - self._ahead_ms, 0)


class Loyalty:
    """Keeps a client with its cluster: decides which other one may be what became of it."""

    def __init__(self, cluster: str, seeds: Collection[Address], contact: Contact) -> None:
        self._cluster = cluster
        self._seeds = frozenset(seeds)
        self.contact = contact
        self.conflict = ""
        """What to tell callers while another cluster answers where the known one should; empty: none does."""
        self.remarks: list[str] = []
        """What the log is to be told."""

    def judge(
        self, known: Known, sender: Target, reply: TableReply, silent: Collection[Address], now: Millis
    ) -> Staleness:
        """Judge the list that `sender` told against the known one; `silent`: as for `staleness.judge`.

        As long as no table is known, there is nothing to lose: whoever of the cluster answers is believed.
        """
        side, told = known.side, side_of(reply)
        if side is None:
            return Staleness.ANOTHER
        is_apart = are_apart(side, told)
        if known.table is None and not is_apart:
            return Staleness.ANOTHER
        standing = judge(side.view, sender, told.view, silent)
        if not is_apart:
            return standing
        if standing is Staleness.ANOTHER and not self._goes_over(side, told, reply.age_ms, now):
            return Staleness.APART
        if standing is Staleness.APART:
            self._stay(side, told, reply.age_ms, now)
        return standing

    def on_told(self, asked_at: Millis) -> None:
        """A member of the client's cluster, whichever that is now, has told its table."""
        self.contact.heard(asked_at)
        self.conflict = ""

    def _goes_over(self, known: Side, told: Side, age_ms: Millis, now: Millis) -> bool:
        """Whether another cluster, `age_ms` old, is what became of the known one, of which nobody answers."""
        if self._may_follow(known, told, age_ms, now):
            self.remarks.append(
                f"{known.described(self._cluster)} is gone: going on with {told.described(self._cluster)}, which was founded "
                f"since, or has taken all its addresses. What the former one held is not there"
            )
            return True
        self._stay(known, told, age_ms, now)
        if self.contact.warned_of != told.founders[0]:
            self.contact.warned_of = told.founders[0]
            self.remarks.append(self.conflict)
        return False

    def _stay(self, known: Side, told: Side, age_ms: Millis, now: Millis) -> None:
        """Another cluster answers, and this client stays with its own one, of which somebody may answer yet."""
        is_beside = not self._may_follow(known, told, age_ms, now)
        why = "existed beside it" if is_beside else "is another one as long as members of the former may only hang"
        self.conflict = (
            f"the addresses of this client lead to two clusters of one name: it uses {known.described(self._cluster)}, and does "
            f"not go over to {told.described(self._cluster)}, which {why}, and has other data. Look after the former, or make a "
            f"new client with the addresses of the one that is meant"
        )

    def _may_follow(self, known: Side, told: Side, age_ms: Millis, now: Millis) -> bool:
        return could_be_restart(age_ms, self.contact.silent_ms(now)) or self._is_in_its_place(known, told)

    def _is_in_its_place(self, known: Side, told: Side) -> bool:
        return known.addresses <= told.addresses <= known.addresses | self._seeds
