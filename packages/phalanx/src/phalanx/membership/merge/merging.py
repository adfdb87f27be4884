"""Two sides of one cluster find each other again and become one (docs/protocol/split-brain.md).

The master of each side looks, at the addresses of former members and of the seeds, for a side that it has no member in
common with. A total order, which both compute alike, says which side joins the other. All members of the losing side
end their incarnations and join the other side as new members, the youngest. A side never joins one that does not exist
any more:

* It acts only on an answer to a recent question of its own that names its present view: then the other side has lived
  just now, has seen what this one is, and has decided the same.
* With that answer the other side has promised to stay for as long as the answer can be acted on. While it is bound by
  that, it joins no other side. Otherwise, of three sides that meet at once, A could join B while B joins C, and C, by
  an earlier message, joins A.
* A side that has found one that it is going to join promises nothing: it passes the question on to that one.

A side joins only one whose cluster version all its members speak (PX-46). Where it cannot, both continue until its
members are upgraded: if the greater side joined it instead, one forgotten member of an older release would take the
whole cluster back.

A cluster that was restored from backups joins only sides of itself, and no other one joins it (DU-23). A side that waits with what it
has read from folders does not join one that serves the data of another cluster (DU-25).

If a master is lost with its promise, the members that come back find each other all the same (`rejoin`).
"""

from __future__ import annotations

from phalanx.common.ids import Address, MemberId, Millis, address_of, may_be_member
from phalanx.common.versions import PROTOCOL_VERSION
from phalanx.common.view import MembersView
from phalanx.machine.local_context import LocalContext
from phalanx.membership.join.gone_members import GoneMembers
from phalanx.membership.merge.own_side import OwnSide, spoken_by
from phalanx.membership.role import Role
from phalanx.membership.state import MembershipState
from phalanx.wire.messages import MergeOrder, MergeProbe
from phalanx.wire.view_events import OtherSideFound

PROBES_AT_ONCE = 8
"""The fewest addresses of one round, if there are so many; the next round continues after them."""
ROUNDS = 8
"""The number of rounds for all addresses."""
COUNTED_FROM = 9
"""The version from which masters say how many partitions their side has."""
RAREST = 16
"""A master that finds no side looks more and more rarely, at least once in so many intervals."""


def side_rank(view: MembersView, has_data: bool, partition_count: int = 0) -> tuple[bool, int, int, int, int, str]:
    """Return a side's rank in the total order (EL-62). The side with the smaller one joins the other, and gives up its
    data. `partition_count`: of its data; 0: it does not count.

    One that has divided its partitions is joined by others, because what these have can be divided, too, and not the other way round.

    A table without replicas is no data. Members that hold none count only between sides that have equally many that do.
    Versions only break ties: a joining member begins without one, so the side that is joined can have the smaller one.
    """
    data_members = len(view.data_members)
    holds = has_data and data_members > 0
    return (holds, partition_count if holds else 0, data_members, len(view.members), view.version, view.master)


class Merging:
    """Looks for the other side while this member is the master, and answers one that looks for this side."""

    def __init__(self, local: LocalContext, state: MembershipState, gone: GoneMembers, side: OwnSide) -> None:
        self._local = local
        self._state = state
        self._gone = gone
        self._side = side
        self._next_look: Millis | None = None
        self._rarity = 1
        self._looked_at = 0
        """How many addresses have been asked, over all rounds."""
        self._seen: tuple[Address, ...] = ()
        """The addresses of the last round; when they change, rounds are frequent again."""
        self._question = 0
        self._asked_at: Millis | None = None
        """When the present question was first sent."""
        self._promised: dict[MemberId, tuple[Millis, MembersView]] = {}
        """Master that was promised that this side stays to the end of the promise, and its view."""
        self._greater: tuple[MembersView, Millis] | None = None
        """The side that this one is going to join, and until when to believe that without a message from it."""

    def __repr__(self) -> str:
        return (
            f"Merging(next_look={self._next_look}, former={list(self._gone.former.addresses)}, promised={list(self._promised)}, "
            f"greater={self._greater})"
        )

    @property
    def _patience_ms(self) -> Millis:
        """Return how old an answer can be, counted from the question."""
        return self._local.config.heartbeat_timeout_ms // 2

    def next_deadline(self) -> Millis | None:
        return self._next_look if self._state.is_master else None

    def on_time(self, now: Millis) -> None:
        if self._state.is_master and self._next_look is not None and now >= self._next_look:
            self._look(now)
            self._next_look = now + self._local.config.merge_interval_ms * self._rarity

    def follow(self, now: Millis) -> None:
        """Begin to look if this member is the master now: it is until its incarnation ends."""
        if self._state.is_master and self._next_look is None:
            self._next_look = now + self._local.config.merge_interval_ms * self._rarity

    def _look(self, now: Millis) -> None:
        # A member that is waited for is looked for, too: its machine can answer that no process is there any more.
        candidates = tuple(
            dict.fromkeys(
                [
                    *self._gone.former.places(now),
                    *self._gone.departures.awaited(PROTOCOL_VERSION, now),
                    *self._gone.departures.kept_elsewhere(),
                ]
            )
        )
        self._rarity = min(2 * self._rarity, RAREST) if candidates == self._seen else 1
        self._seen = candidates
        at_once = max(PROBES_AT_ONCE, -(-len(candidates) // ROUNDS))
        for step in range(min(at_once, len(candidates))):
            self._probe(candidates[(self._looked_at + step) % len(candidates)], now)
        self._looked_at += at_once
        if (greater := self._find_greater(now)) is not None:
            # It can know where this side is, and not the other way round; and its answer can have come too early.
            self._rarity = 1
            self._probe(greater.master, now, greater)

    def _probe(self, to: Address | MemberId, now: Millis, about: MembersView | None = None, answers: int = 0) -> None:
        if self._asked_at is None or now - self._asked_at > self._patience_ms // 2:
            self._question += 1
            self._asked_at = now
        self._local.out.send(to, self._side.probe(about, self._question, answers))

    # --- the other side --------------------------------------------------------------------------------------------

    def on_merge_probe(self, sender: MemberId, message: MergeProbe, now: Millis) -> MembersView | None:
        """Answer another side that exists, or says so. Return its view if this side joins it now."""
        state = self._state
        theirs = message.view
        if not theirs.members or not may_be_member(theirs.master):
            return None
        if state.role is Role.SLAVE and sender not in state.members and state.master is not None:
            if theirs.master not in state.members:
                self._local.out.send(state.master, message)
            return None
        if not state.is_master or not self._side.can_be_one_with(message):
            return None
        mine = state.joined()
        self._rarity = 1
        answers_mine = (message.about_version, message.about_maker) == (mine.version, mine.maker)
        # Members of the release before name the number that they were configured with.
        are_counted = spoken_by(message).speaks(COUNTED_FROM) and self._side.spoken().speaks(COUNTED_FROM)
        counts = (self._side.partition_count, message.partition_count) if are_counted else (0, 0)
        gives_way = side_rank(mine, self._side.has_data, counts[0]) < side_rank(theirs, message.has_data, counts[1])
        spoken = self._side.spoken() if gives_way else spoken_by(message)
        version = theirs.cluster_version if gives_way else max(mine.cluster_version, self._side.needed_version)
        if not spoken.speaks(version):
            whose = "this side's" if gives_way else "the other side's"
            self._record(message, f"{whose} members do not speak cluster version {version}: upgrade them")
        elif gives_way:
            return self._on_greater(message, answers_mine, now)
        elif (greater := self._find_greater(now)) is not None:
            if sender == theirs.master or sender in state.members:
                # Only once: what two sides know of one another can be out of date on both.
                self._local.out.send(greater.master, message)
        else:
            if not answers_mine:
                self._record(message, "this side is joined by the other one")
            # The asker can act on the answer for a while after its question; only the asker knows when that was.
            self._promised[theirs.master] = now + self._patience_ms + self._local.config.heartbeat_interval_ms, theirs
            self._probe(theirs.master, now, theirs, message.question)
        return None

    def _on_greater(self, message: MergeProbe, answers_mine: bool, now: Millis) -> MembersView | None:
        """Join a side that this one is to join, if it has just said so and waits; else ask it."""
        theirs = message.view
        self._greater = theirs, now + self._patience_ms
        if not answers_mine or not self._is_fresh(message.answers, now):
            self._record(message, "it is asked")
            self._probe(theirs.master, now, theirs)
        elif awaited := self._awaited(now):
            self._record(message, f"this side stays until that of {awaited} has joined it")
        else:
            return self._join(message)
        return None

    def promises(self, now: Millis) -> bool:
        """Return whether another side was told recently that this one stays as it is."""
        return self._awaited(now) is not None

    def _is_fresh(self, question: int, now: Millis) -> bool:
        """Return whether this question was asked recently."""
        return question == self._question and self._asked_at is not None and now - self._asked_at <= self._patience_ms

    def _join(self, message: MergeProbe) -> MembersView:
        state, theirs = self._state, message.view
        self._record(message, "this side joins the other one")
        for member in state.joined().others(self._local.this):
            self._local.out.send(member, MergeOrder(theirs))
        return theirs

    def _awaited(self, now: Millis) -> MemberId | None:
        """Return the master of a side that can be on its way here: it was told so recently, and has not come yet."""
        here = {address_of(member) for member in self._state.members}
        for master, (until, theirs) in list(self._promised.items()):
            if until <= now or here.issuperset(address_of(member) for member in theirs.members):
                del self._promised[master]
        return next(iter(self._promised), None)

    def _find_greater(self, now: Millis) -> MembersView | None:
        if self._greater is not None and now >= self._greater[1]:
            self._greater = None
        return self._greater[0] if self._greater is not None else None

    def _record(self, message: MergeProbe, decision: str) -> None:
        theirs, mine = message.view, self._state.joined()
        self._local.out.record(
            OtherSideFound(
                theirs.master, len(theirs.members), theirs.version, message.has_data,
                mine.version, len(mine.members), self._side.has_data, decision, "EL-57 EL-62",
            )
        )  # fmt: skip
