"""Which side of a cut network has the majority, and of which views it must have one. Values and pure rules.

A majority of the present view is not enough. Five members become three, and three become two: the two have a majority of
the three, but not of the five. So a side must have a majority of the *last stable view*, the last one that all its voters
are known to have installed. A member can be wrong about which view that is:

1. A removes D and E: the view {A,B,C}. 2. A and B install it, and C never hears of it. 3. A and B are cut off from C. Had
the view become stable, they would have the majority of it; it has not, and C, D and E have the majority of the five.
4. The other way round A knows that all three have it, and C, which D and E find, knows of it too, but not that.

Hence `QuorumRecord`: the last view known to be stable, the present one if it can become stable, and those of which it is
not known. A side has the majority if it has it of each of them. Only the master of a view makes it stable, so it forgets the
one before that did not become so; it sends its members what it knows with every view, and a member that accepts it, by a
claim or by joining, sends it what that member knows. The rule is that of dynamic voting with ambiguous attempts.

Who votes: the members that hold data (if there are none, all). A process that ends one incarnation and begins another
keeps its vote: it votes for the first identity that it had, because it remembers; a process that was started again does
not. That holds for a member, too, that was admitted and removed without ever hearing of it: a view may have counted with its vote.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from phalanx.common.ids import MemberId, Millis
from phalanx.common.view import MembersView

MERGED = 16
"""The most clusters that merged into this one and are remembered: the latest."""

Former = tuple[tuple[MemberId, MemberId], ...]
"""Members of a view that vote for an earlier identity of their process, and that identity."""


class QuorumView(msgspec.Struct, frozen=True, array_like=True):
    """A view that is stable, or can be, as far as votes go."""

    number: int
    """The number of the view: greater than that of every stable view whose majority it had."""
    version: int
    maker: MemberId
    voters: tuple[MemberId, ...]
    starts: tuple[int, ...] = ()
    """By voter: how often a process had started with its folder, 0 without one; empty: none has a folder."""

    def start_of(self, voter: MemberId) -> int:
        """Return how often a process had started with the folder of a voter; 0: it has none, or is no voter here."""
        return dict(zip(self.voters, self.starts, strict=False)).get(voter, 0)

    def has_majority(self, present: frozenset[MemberId]) -> bool:
        """Return whether more than half of the voters are present. Exactly half is not a majority: two sides could have it."""
        return 2 * self.count(present) > len(self.voters)

    def count(self, present: frozenset[MemberId]) -> int:
        """Return how many of its voters are among those present."""
        return sum(1 for voter in self.voters if voter in present)


class QuorumRecord(msgspec.Struct, frozen=True, array_like=True):
    """The views of which a side must have a majority, and the number of its present view among them."""

    root: MemberId
    """The member that founded the cluster. Views and votes of a cluster with another founder do not count."""
    stable: QuorumView
    """The last view known to be stable."""
    number: int
    """The number of the present view. 0: it lacks the majority; that of `stable`: it is stable; greater: it can become stable."""
    pending: tuple[QuorumView, ...] = ()
    """Other views that may have become stable, the lowest number first."""
    former: Former = ()
    """Members of the present view that vote for an earlier identity."""
    merged: tuple[MemberId, ...] = ()
    """Who founded clusters that have come to this one, the latest last. It decides nothing here: clients ask for it."""
    left: tuple[MemberId, ...] = ()
    """In the last view of a master that leaves: voters that have left in good order, itself among them. Only the master that
    follows it counts their votes; what others continue from does not have them."""
    has_table: bool = False
    """Whether somebody of the cluster has had a table with owners, and has it in a folder: whoever has none waits for one (DU-29)."""

    @property
    def founders(self) -> tuple[MemberId, ...]:
        """Return the founders of this cluster, and of those that have merged into it."""
        return (self.root, *self.merged)

    @property
    def has_majority(self) -> bool:
        return self.number > 0

    @property
    def latest_number(self) -> int:
        """The number of the latest view that is stable or can be."""
        return max(each.number for each in (self.stable, *self.pending))

    @property
    def is_stable(self) -> bool:
        """Whether the present view is known to be stable."""
        return self.number == self.stable.number

    def find_later_start(self, voter: MemberId, start: int) -> int:
        """Return a later start of the folder that this voter had; 0: none is known. `start`: that of the present process.

        A folder that comes back with an earlier start was put back, or copied: it does not know what its voter has promised since.
        """
        latest = max(each.start_of(voter) for each in (self.stable, *self.pending))
        return latest if latest > start > 0 else 0


class VoterHistory(msgspec.Struct, frozen=True, array_like=True):
    """What a process takes along from one incarnation to the next, and tells the master that admits it."""

    voter: MemberId
    """The identity for which it votes."""
    footing: QuorumRecord
    """What the process knows, without a present view."""


UNKNOWN_MASTER = MemberId("?")
"""The master that a process before this one has promised to follow no other: a folder does not say which, nor for how long."""


class QuorumHandover(msgspec.Struct, frozen=True):
    """All that one incarnation hands over to the next one of the same process, whose clock continues."""

    memory: VoterHistory | None
    """None: the process was in no cluster, as far as it knows."""
    bound_to: MemberId | None = None
    """The master that it has promised to follow no other (`membership.quorum.lease`), and until when."""
    bound_until: Millis = 0
    """0 where the promise is of an earlier process (`UNKNOWN_MASTER`): it is counted from the start of this one."""
    founded_at: Millis | None = None
    """When the cluster had been founded at the latest; None: the process was in none."""
    voter: MemberId = MemberId("")
    """The identity for which the process votes; empty: its next one."""


def voters_of(view: MembersView, former: Former) -> tuple[MemberId, ...]:
    """Return the members whose votes this view counts towards a majority."""
    voices = dict(former)
    return tuple(voices.get(member, member) for member in view.data_members or view.members)


def _quorum_view(number: int, view: MembersView, former: Former) -> QuorumView:
    folders = dict(view.stores)
    starts = tuple(folders[each].start if each in folders else 0 for each in view.data_members or view.members)
    return QuorumView(number, view.version, view.maker, voters_of(view, former), starts if any(starts) else ())


def present_in(view: MembersView, former: Former) -> frozenset[MemberId]:
    """Return the members whose votes this view brings along: also those that hold no data any more."""
    voices = dict(former)
    return frozenset(voices.get(member, member) for member in view.members)


def first_record(view: MembersView) -> QuorumRecord:
    """Return the record of a cluster that begins with this view, which is stable."""
    return QuorumRecord(view.maker, _quorum_view(1, view, ()), 1)


def find_lacking(footing: QuorumRecord, present: frozenset[MemberId]) -> QuorumView | None:
    """Return the newest view of whose voters no majority is present; None: there is none."""
    return next((view for view in (*reversed(footing.pending), footing.stable) if not view.has_majority(present)), None)


def next_record(
    footing: QuorumRecord, view: MembersView, former: Former, left: Iterable[MemberId] = ()
) -> QuorumRecord:
    """Return the record of the next view, as its master makes it. The present view, if not stable, never becomes so.

    `left`: voters that have left in good order. Only this master counts their votes.
    """
    staying = tuple(pair for pair in former if pair[0] in view)
    base = msgspec.structs.replace(footing, number=0, former=staying, left=())
    if find_lacking(base, present_in(view, base.former).union(left)) is not None:
        return base
    highest = max(each.number for each in (base.stable, *base.pending))
    return msgspec.structs.replace(base, number=max(highest, footing.number) + 1)


def stable_record(footing: QuorumRecord, view: MembersView) -> QuorumRecord:
    """Return the record once all voters have the present view: it is stable, and earlier views do not count any more."""
    stable = _quorum_view(footing.number, view, footing.former)
    return msgspec.structs.replace(footing, stable=stable, pending=(), left=())


def without_view(footing: QuorumRecord) -> QuorumRecord:
    """Return the record of a master that continues from a view that is not stable: that view never becomes so."""
    return msgspec.structs.replace(footing, number=0, former=(), left=())


def after_master_loss(footing: QuorumRecord, view: MembersView) -> QuorumRecord:
    """Return what a member knows that continues from this view without its master: whether it became stable is open."""
    if not footing.has_majority or footing.is_stable:
        return without_view(footing)
    present = _quorum_view(footing.number, view, footing.former)
    return msgspec.structs.replace(without_view(footing), pending=(*footing.pending, present))


def combine_records(footings: Iterable[QuorumRecord]) -> QuorumRecord:
    """Combine what members of one cluster know: the latest stable view, and all that can be as late or later."""
    known = list(footings)
    stable = max((footing.stable for footing in known), key=_place)
    others = {each for footing in known for each in (footing.stable, *footing.pending)}
    # One number means two sides that did not know of each other; both cannot be stable, but who knows which.
    pending = sorted((each for each in others if each.number >= stable.number and each != stable), key=_place)
    merged = dict.fromkeys(founder for footing in known for founder in footing.merged)
    has_table = any(footing.has_table for footing in known)
    return QuorumRecord(known[0].root, stable, 0, tuple(pending), merged=tuple(merged), has_table=has_table)


def with_merged(footing: QuorumRecord, founders: Iterable[MemberId]) -> QuorumRecord:
    """Return the record with members of clusters that others founded, which have come to this one."""
    merged = dict.fromkeys([*footing.merged, *founders])
    merged.pop(footing.root, None)
    return msgspec.structs.replace(footing, merged=tuple(merged)[-MERGED:]) if merged else footing


def accept_view(footing: QuorumRecord, view: MembersView) -> QuorumRecord:
    """Return the record of a view that an operator declares stable, whatever became of the others, and of what they had."""
    number = max(footing.latest_number, footing.number) + 1
    return stable_record(msgspec.structs.replace(footing, number=number, has_table=False), view)


def _place(view: QuorumView) -> tuple[int, int, MemberId, tuple[MemberId, ...]]:
    return view.number, view.version, view.maker, view.voters
