"""Decide whose table a client believes: only that of its own cluster or of the cluster's successor.

`staleness` compares a received view with the known one by their members, and `two_clusters` compares founders, ages and
addresses. This module holds the variables: when the cluster was heard last, and which other cluster answers meanwhile.

When a cut parts a cluster, both sides can continue, each with a newer view, and a client can reach both. It stays with the side
that it uses: that of the members that have answered its calls, for as long as they answer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

from phalanx.client.core.staleness import Staleness, judge
from phalanx.client.core.two_clusters import Side, are_apart, could_be_restart, side_of
from phalanx.common.ids import Address, MemberId, Millis, Target, address_of
from phalanx.common.restored_cluster import is_restored
from phalanx.common.table import PartitionTable
from phalanx.common.view import MembersView
from phalanx.wire.messages import TableReply


class ClusterState(NamedTuple):
    """What a client knows about the cluster. Immutable, so that threads can share it."""

    view: MembersView | None = None
    """The newest view known; None: no member has answered yet."""
    table: PartitionTable | None = None
    """The newest assigned partition table known; None: no member has sent one yet."""
    partition_count: int | None = None
    """How many partitions the cluster has; None until a member has answered."""
    side: Side | None = None
    """The side of the cluster with this `view`, by the last answer of a member that had the view."""


class Contact:
    """When a client's cluster was heard last. Threads can share it: it does not matter whose write remains."""

    def __init__(self, wall_ahead_ms: Callable[[], Millis] = lambda: 0) -> None:
        """`wall_ahead_ms`: how far the wall clock is ahead of the clock that drives the client."""
        self.heard_at: Millis = 0
        """When the latest answered request was sent: the cluster was alive after that."""
        self.through: dict[MemberId, MemberId] = {}
        """Member that cannot be reached directly to the one through which it is asked (`detours`)."""
        self.served: dict[MemberId, Millis] = {}
        """Members that have answered calls, and when the last call began that each of them did."""
        self.warned_of: MemberId | None = None
        """The founder of the other cluster about which the log was warned."""
        self._wall_ahead_ms = wall_ahead_ms
        self._ahead_ms = wall_ahead_ms()

    def heard(self, at: Millis) -> None:
        """Note that a member has answered a request for its table that was sent at time `at`."""
        self.heard_at = max(self.heard_at, at)
        self._ahead_ms = self._wall_ahead_ms()

    def silent_ms(self, now: Millis) -> Millis:
        """Return how long ago the cluster was heard, also by the wall clock: only it runs while a machine sleeps."""
        return now - self.heard_at + max(self._wall_ahead_ms() - self._ahead_ms, 0)


ANSWERS_WITHIN_MS: Millis = 2_000
"""A member that was heard within this time answers."""
ASKED_WITHIN_MS: Millis = 10_000
"""Two tellings of another side's view within this time are of one cut."""


class ClusterAffinity:
    """Decides whether a client stays with its cluster or follows another one, which can be its successor."""

    def __init__(self, cluster: str, seeds: Collection[Address], contact: Contact) -> None:
        self._cluster = cluster
        self._seeds = frozenset(seeds)
        self.contact = contact
        self.conflict = ""
        """The text for callers while another cluster answers instead of the known one; empty: none does."""
        self.remarks: list[str] = []
        """Texts for the log."""
        self._parted_at: Millis = -2 * ASKED_WITHIN_MS
        """When a view without the members that serve the client was told, and these are asked since."""

    def learn_seeds(self, seeds: Collection[Address]) -> None:
        """Take other seeds instead."""
        self._seeds = frozenset(seeds)

    def judge(
        self, state: ClusterState, sender: Target, reply: TableReply, silent: Collection[Address], now: Millis
    ) -> Staleness:
        """Judge the view that `sender` sent against the known one; `silent`: as for `staleness.judge`.

        While no table is known, every member of the cluster is believed: the client has used no data yet.
        """
        side, other = state.side, side_of(reply)
        if side is None:
            return Staleness.ANOTHER
        is_apart = are_apart(side, other)
        if state.table is None and not is_apart:
            return Staleness.ANOTHER
        standing = judge(side.view, sender, other.view, silent)
        if not is_apart:
            return standing
        if standing is Staleness.ANOTHER and not self._goes_over(side, other, reply.age_ms, now):
            return Staleness.APART
        if standing is Staleness.APART:
            self._stay(side, other, reply.age_ms, now)
        return standing

    def others_used(
        self,
        state: ClusterState,
        sent: MembersView,
        silent: Collection[Address],
        heard: Callable[[MemberId], Millis],
        now: Millis,
    ) -> list[MemberId]:
        """Return the members that serve the client and that a newer view lacks, if the client stays with them; they are to be
        asked for their table. None: the view is to be believed.

        It stays if they answer; if they have answered nothing lately, until they had time for it. `heard`: when a member was heard last.
        """
        view = state.view
        if view is None or sent.version <= view.version:
            return []
        serving = [m for m in list(self.contact.served) if m in view and address_of(m) not in silent]
        left = [member for member in serving if member not in sent]
        if not left or (len(left) < len(serving) and view.master not in left):
            return []
        if any(now - heard(member) <= ANSWERS_WITHIN_MS for member in left):
            self._parted_at = now
            return left
        if now - self._parted_at > ASKED_WITHIN_MS:
            self._parted_at = now
        return left if now - self._parted_at < ANSWERS_WITHIN_MS else []

    def note_table(self, asked_at: Millis) -> None:
        """Note that a member of the client's present cluster has sent its table."""
        self.contact.heard(asked_at)
        self.conflict = ""

    def _goes_over(self, known: Side, other: Side, age_ms: Millis, now: Millis) -> bool:
        """Return whether another cluster, `age_ms` old, is the successor of the known one, which is silent."""
        if self._may_follow(known, other, age_ms, now):
            is_of_backup = is_restored(other.founders[0])
            has = "has the data of a backup" if is_of_backup else "does not have the data of the former one"
            self.remarks.append(
                f"{known.described(self._cluster)} is gone: this client now uses {other.described(self._cluster)}, which was founded "
                f"later, or has taken all its addresses. It {has}"
            )
            return True
        self._stay(known, other, age_ms, now)
        if self.contact.warned_of != other.founders[0]:
            self.contact.warned_of = other.founders[0]
            self.remarks.append(self.conflict)
        return False

    def _stay(self, known: Side, other: Side, age_ms: Millis, now: Millis) -> None:
        """Stay with the known cluster, and set the text which says that another one answers (`conflict`)."""
        is_beside = not self._may_follow(known, other, age_ms, now)
        why = (
            "existed at the same time"
            if is_beside
            else "counts as another one, because members of the former perhaps only hang"
        )
        self.conflict = (
            f"the addresses of this client lead to two clusters of one name: it uses {known.described(self._cluster)}, and does "
            f"not change to {other.described(self._cluster)}, which {why}, and has other data. Repair the former, or make a "
            f"new client with the addresses of the cluster that you want"
        )

    def _may_follow(self, known: Side, other: Side, age_ms: Millis, now: Millis) -> bool:
        return could_be_restart(age_ms, self.contact.silent_ms(now)) or self._is_in_its_place(known, other)

    def _is_in_its_place(self, known: Side, other: Side) -> bool:
        return known.addresses <= other.addresses <= known.addresses | self._seeds
