"""Whether this member's side has the majority, and what it passes on of that: the variable behind `common.quorum`.

* The master computes the next footing with each view that it makes, and publishes both together.
* Others take over what their master says. It knows all that they knew when they came under it, because a joiner sends
  its memory with its request, and a member that agrees with a claim with its answer. What came later they have from the
  master.
* The present view is stable when every voter of it has confirmed that it has it. The master says so at once, and its
  heartbeats repeat it.
* A removal is committed when the majority has the view without the removed members. Before that, another member can
  claim the mastership together with them, and have the majority as well.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import msgspec

from phalanx.common import quorum as rules
from phalanx.common.ids import MemberId
from phalanx.common.quorum import QuorumHandover, QuorumRecord, QuorumView, VoterHistory
from phalanx.common.view import MembersView, ViewId
from phalanx.machine.local_context import LocalContext
from phalanx.membership.table_news import TableNews
from phalanx.wire.view_events import MajorityChanged, ViewAccepted, ViewStable


def _has_no_disk(view: ViewId) -> bool:
    """Return True: nothing has to be synced. (A lambda could not be copied with the member.)"""
    return True


class _Missing:
    """How many more voters of one view must have the present one. Counted, because thousands of members confirm it."""

    __slots__ = ("_voters", "count")

    def __init__(self, view: QuorumView, have: frozenset[MemberId]) -> None:
        self._voters = set(view.voters) - have
        """Voters that are not known to have it."""
        self.count = len(view.voters) // 2 + 1 - view.count(have)

    def take(self, voter: MemberId) -> None:
        """Count a voter that has the present view."""
        if voter in self._voters:
            self._voters.discard(voter)
            self.count -= 1


class QuorumState:
    """The footing of the present view, as this member knows it."""

    def __init__(self, local: LocalContext, carried: QuorumHandover | None, table: TableNews | None = None) -> None:
        """`table`: what this member knows of its table; None: it never has one."""
        self._table = table
        self._this = this = local.this
        self._out = local.out
        self._awaits_itself = local.config.lease_ms > 0
        """Whether this member is told, like others, when it has a view itself."""
        self.has_synced: Callable[[ViewId], bool] = _has_no_disk
        """Returns whether this member's disk has a view; the member sets it."""
        self._has_folder = local.has_folder
        """Whether what members hold outlives their processes."""
        memory = carried.memory if carried is not None else None
        self._remembered = memory.footing if memory is not None else None
        """What this process knew when its last incarnation ended."""
        before = carried.voter if carried is not None else MemberId("")
        self.voter = (memory.voter if memory is not None else before) or this
        """The identity for which this member votes."""
        self.footing: QuorumRecord | None = None
        """None: not joined yet."""
        self.has_majority = False
        self._view: MembersView | None = None
        self.handed_over: tuple[MembersView, QuorumRecord] | None = None
        """The last view of this member, a master that leaves, and what it stands on, with its vote; None: it has left it to nobody."""
        self._voices: dict[MemberId, MemberId] = {} if self.voter == this else {this: self.voter}
        """Member to the identity for which it votes, where that is another one."""
        self._learned: list[QuorumRecord] = []
        """Footings of joiners and of members that agreed to a claim that are in no view of this master yet."""
        self._has_heard_of_table = False
        """Whether somebody has come with the table of another cluster, which this one is to take up."""
        self._merged: list[MemberId] = []
        """The founders of other clusters from which joiners came, that are not in a view of this master yet."""
        self._waiting_for: set[MemberId] = set()
        """On the master: voters that have not confirmed the present view yet."""
        self.left: set[MemberId] = set(self._remembered.left) if self._remembered is not None else set()
        """On the master: voters that have left in good order since the last stable view. Only this master counts their
        votes, and its successor: a leaving member promises not to agree with any other.
        """
        self._uncommitted: list[_Missing] = []
        """On the master: for each view that is or can be stable, its voters that are not known to have the present view."""
        self._has_removed = False
        """On the master: whether members were removed by a view that no majority has had so far."""

    def __repr__(self) -> str:
        return (
            f"QuorumState({self.footing}, waiting_for={sorted(self._waiting_for)}, left={sorted(self.left)}, "
            f"has_removed={self._has_removed})"
        )

    @property
    def is_stable(self) -> bool:
        """Whether all voters of the present view are known to have it."""
        return self.footing is not None and self.footing.is_stable

    @property
    def is_removal_committed(self) -> bool:
        """On the master: whether no removed member can still be counted by a member without the present view."""
        return not self._has_removed

    # --- views -----------------------------------------------------------------------------------------------------

    def learn_history(
        self, member: MemberId, memory: VoterHistory | None, voter: MemberId | None = None, start: int = 0
    ) -> None:
        """Take over, for the next view, what a member knows that comes under this master. `voter`: its vote, if it has
        no memory. `start`: that of its folder; 0: it has none. An old folder has no vote.

        1. M admits X, and is cut off before X hears of it. 2. The others go on, and cannot know whether M's view became
        stable: they need X's vote. 3. The process of X joins them with another identity. It has promised X's vote to no
        other side.
        """
        is_old = start and self._is_old(memory.voter if memory is not None else voter, start)
        if memory is None and voter and not is_old:
            self._voices[member] = voter
        elif memory is not None and self._is_of_ours(memory.footing):
            self._learned.append(memory.footing)
            self.left.update(memory.footing.left)
            if memory.voter != member and not is_old:
                self._voices[member] = memory.voter
        elif memory is not None:
            self._merged += memory.footing.founders
            self._has_heard_of_table |= memory.footing.has_table

    def _is_old(self, voter: MemberId | None, start: int) -> bool:
        """Return whether a later start is known of the folder for which a joiner votes."""
        known = self.footing or self._remembered
        return bool(voter and known is not None and known.find_later_start(voter, start))

    def _is_of_ours(self, footing: QuorumRecord) -> bool:
        """Return whether a footing is of this member's cluster, and not of one that was founded apart.

        1. X was cut off from Y and Z, and comes to a cluster that was founded apart. 2. It takes over what that one
        knows, and forgets the rest. 3. It comes back to Y: it has no vote there, because it can have promised it.
        """
        known = self.footing or self._remembered
        return known is None or footing.root == known.root

    def take_votes(self, footing: QuorumRecord) -> bool:
        """Take the votes of a leaving master's last list, which this member cannot install (before `on_view_made`). Return
        whether it got any.

        1. B suspects A wrongly, and claims. 2. A, which leaves, has handed the mastership over to it. 3. If B ignored
        A's last list, no member would have the vote of A, or of those that left before it.
        """
        if self.footing is None or not self._is_of_ours(footing) or self.left.issuperset(footing.left):
            return False
        self.left.update(footing.left)
        # The master can know of a later stable view: of that one they can be no majority.
        self._learned.append(rules.without_view(footing))
        return True

    def on_master_lost(self) -> None:
        """Note that the master of the present view is gone: whether that view became stable is open (before `on_view_made`)."""
        if self.footing is not None and self._view is not None:
            self._learned.append(rules.after_master_loss(self.footing, self._view))

    def on_view_made(self, view: MembersView) -> None:
        """Enter a view that this member, the master, has made."""
        footing = self.next_footing(view)
        self._has_removed = self._has_removed or self._lacks_members(view)
        staying = {*view.members, *(self._view.members if self._view is not None else ())}
        self._voices = {member: voter for member, voter in self._voices.items() if member in staying}
        self._learned.clear()
        self._merged.clear()
        self._enter(view, footing)
        self._await(view)

    def next_footing(self, view: MembersView, left: MemberId | None = None) -> QuorumRecord:
        """Return the footing of this master's next view. `left`: the vote of this master, if it leaves with that view."""
        known = [*self._learned]
        if self.footing is not None:
            # The number of the present view stays known: no other view must have it.
            known.append(rules.without_view(self.footing))
        elif self._remembered is not None:
            known.append(self._remembered)
        if not known:
            return rules.first_record(view)
        base = rules.with_merged(rules.combine_records(known), self._merged)
        number = self.footing.number if self.footing is not None else 0
        keeps_table = self._has_folder and self._table is not None and self._table.has_data
        has_table = base.has_table or self._has_heard_of_table or keeps_table
        base = msgspec.structs.replace(base, number=number, has_table=has_table)
        former = tuple((member, self._voices[member]) for member in view.members if member in self._voices)
        if left is None or self.keep_votes(view):
            return rules.next_record(base, view, former, self.left)
        all_left = {*self.left, left}
        return msgspec.structs.replace(rules.next_record(base, view, former, all_left), left=tuple(sorted(all_left)))

    def hand_over(self, view: MembersView) -> QuorumRecord:
        """Leave, as the master, its vote, and those of members that have left, to the members of its last view; return its footing."""
        footing = self.next_footing(view, left=self.voter)
        if footing.left:
            self.handed_over = view, footing
        return footing

    def keep_votes(self, view: MembersView) -> bool:
        """Return whether members that leave to this view keep their votes: nobody in it holds data, and they come back with theirs.

        1. A, which has all data in its folder, leaves C, which holds none. 2. A is started again, cannot reach C, and goes on
        with its data and its vote. 3. C, which counts A's vote too, gets a member, and begins everything empty.
        """
        return self._has_folder and not view.data_members and self._view is not None and bool(self._view.data_members)

    def adopt(self, view: MembersView, footing: QuorumRecord | None, *, is_master: bool) -> None:
        """Enter a view of this member's master, with the footing that came with it."""
        if footing is None:
            footing = self.next_footing(view)
        self._voices = dict(footing.former)
        self.voter = self._voices.get(self._this, self._this)
        self._learned.clear()
        self._merged.clear()
        self._has_removed = is_master and self._lacks_members(view)
        # 1. C and A, the master, leave B and D. 2. E joins B before all have A's last list. 3. Were the votes of C and A
        # forgotten, B would have two of four, and nobody more, although all went in good order.
        self.left = set(footing.left) if is_master else set()
        self._enter(view, footing)
        if is_master:
            # The mastership was handed over with it: the former master waits for nobody.
            self._await(view)

    def on_view_repeated(self, view: MembersView, footing: QuorumRecord | None) -> None:
        """Take over a newer footing of the present view, which the master has sent again."""
        if footing is not None and self.footing is not None and footing.stable.number >= self.footing.stable.number:
            self.adopt(view, footing, is_master=False)

    def end(self) -> None:
        self._view = None
        self.has_majority = False
        self._waiting_for.clear()

    def _enter(self, view: MembersView, footing: QuorumRecord) -> None:
        is_first = self.footing is None
        self._view, self.footing = view, footing
        self._waiting_for.clear()
        if is_first:
            self.has_majority = True  # As it is everywhere, unless it is said.
        self._judge()
        self._await_majority()

    def _lacks_members(self, view: MembersView) -> bool:
        """Return whether a member of the present view is not in this one."""
        return self._view is not None and not frozenset(view.members).issuperset(self._view.members)

    def _judge(self) -> None:
        had, self.has_majority = self.has_majority, self.footing is not None and self.footing.has_majority
        if had != self.has_majority and self._view is not None:
            self._out.record(MajorityChanged(self._view.version, self.has_majority, self.words(), "EL-50 EL-63"))

    # --- becoming stable -------------------------------------------------------------------------------------------

    def _await(self, view: MembersView) -> None:
        """Wait for the voters of a view that can become stable."""
        if self.footing is not None and self.footing.has_majority and not self.footing.is_stable:
            self._waiting_for = set(view.data_members or view.members)
            if not self._awaits_itself and self.has_synced(view.id):
                self._waiting_for.discard(self._this)
            self._settle_if_known()

    def record_removal_ack(self, member: MemberId, version: int, maker: str) -> bool:
        """Note, on the master, that a member has installed this view. Return whether that commits a removal."""
        view = self._view
        if not self._has_removed or view is None or (version, maker) != (view.version, view.maker):
            return False
        voter = self._voices.get(member, member)
        for missing in self._uncommitted:
            missing.take(voter)
        return self._commit_removal()

    def _await_majority(self) -> None:
        """Wait until the majority has the present view, if members were removed."""
        if self._has_removed and self.footing is not None:
            have = frozenset({self.voter, *self.left})
            self._uncommitted = [_Missing(view, have) for view in (self.footing.stable, *self.footing.pending)]
            self._commit_removal()

    def _commit_removal(self) -> bool:
        """Note whether the majority has the present view. Return whether it has."""
        self._has_removed = any(missing.count > 0 for missing in self._uncommitted)
        return not self._has_removed

    def awaits(self, member: MemberId) -> bool:
        """Return whether this member, the master, waits until another one, or itself, has the present view."""
        return member in self._waiting_for

    def record_view_ack(self, member: MemberId, version: int, maker: str) -> bool:
        """Note, on the master, that a member has installed this view. Return whether that makes the present one stable."""
        view = self._view
        if view is None or (version, maker) != (view.version, view.maker) or member not in self._waiting_for:
            return False
        self._waiting_for.discard(member)
        return self._settle_if_known()

    def _settle_if_known(self) -> bool:
        footing, view = self.footing, self._view
        if self._waiting_for or footing is None or view is None or not footing.has_majority or footing.is_stable:
            return False
        self.footing = settled = rules.stable_record(footing, view)
        self.left.clear()
        # 1. Master M, one of four, removes D. 2. M leaves, and A is the master: it has two of four, and M's vote, of which only
        # M knew. 3. All have the view that M left them: a member outside it has no majority any more, by any count.
        self._has_removed = False
        stable = settled.stable
        besides = tuple(sorted(rules.present_in(view, settled.former).difference(stable.voters)))
        self._out.record(ViewStable(stable.version, stable.number, stable.voters, besides))
        return True

    def on_stable(self, version: int, maker: str) -> None:
        """Note that this member's master says that all voters of the view have it."""
        footing, view = self.footing, self._view
        if footing is None or view is None or (version, maker) != (view.version, view.maker):
            return
        if footing.has_majority and not footing.is_stable:
            self.footing = rules.stable_record(footing, view)

    def record_departure(self, voter: MemberId) -> bool:
        """Note the vote of a member that left, and said that it is over. Return whether the next view has the majority
        by that.

        The present one never gets it: members were told that it does not become stable, and can count with others by
        now.
        """
        footing, view = self.footing, self._view
        if footing is None or view is None or footing.is_stable:
            return False
        self.left.add(voter)
        present = rules.present_in(view, footing.former) | self.left
        return not footing.has_majority and rules.find_lacking(footing, present) is None

    def accept(self) -> None:
        """Make the present view the stable one, because an operator says so, and forget what was known of others."""
        if self.footing is not None and self._view is not None:
            before = self.words()
            self.footing = rules.accept_view(self.footing, self._view)
            self._has_heard_of_table = False
            self._waiting_for.clear()
            self.left.clear()
            self._has_removed = False
            stable = self.footing.stable
            self._out.record(
                ViewAccepted(self._view.version, self._view.members, before, "EL-63", stable.number, stable.voters)
            )
            self._judge()

    # --- for others ------------------------------------------------------------------------------------------------

    @property
    def voices(self) -> Mapping[MemberId, MemberId]:
        """Member to the identity for which it votes, where that is another one."""
        return self._voices

    def memory(self, claimer: MemberId | None = None) -> VoterHistory | None:
        """Return what this member knows, for a master that it comes under or for its next incarnation.

        `claimer`: the member that claims the mastership. If it was handed over to that one, it gets the votes of those
        that left.
        """
        if self.footing is None or self._view is None:
            return VoterHistory(self.voter, self._remembered) if self._remembered is not None else None
        footing = rules.after_master_loss(self.footing, self._view)
        if self.footing.left and claimer == self._view.master:
            footing = msgspec.structs.replace(footing, left=self.footing.left)
        return VoterHistory(self.voter, footing)

    @property
    def known_number(self) -> int:
        """The number of the latest view that this process knows, and that is or can be stable; 0: it knows none."""
        memory = self.memory()
        return memory.footing.latest_number if memory is not None else 0

    def has_left(self, member: MemberId) -> bool:
        """Return whether a member has left in good order since the last stable view, as the master knows."""
        return self._voices.get(member, member) in self.left

    def founders(self) -> tuple[MemberId, ...]:
        """Return who founded the cluster, and those that have merged into it; none before this member has joined."""
        return self.footing.founders if self.footing is not None else ()

    def footing_with_departures(self) -> QuorumRecord | None:
        """Return the footing, with the votes of those that have left, which only this master counts."""
        footing = self.footing
        return msgspec.structs.replace(footing, left=tuple(sorted(self.left))) if footing and self.left else footing

    def has_table(self) -> bool:
        """Return whether somebody of the cluster has a table in a folder, as `QuorumRecord.has_table` says."""
        return self.footing is not None and self.footing.has_table

    def view_number(self) -> int | None:
        """Return the number of the present view, or of the latest one that is known to be stable or can be; 0: none is known. None: not
        all voters are known to have synced the present view, and it becomes stable once they have."""
        footing = self.footing
        if footing is None:
            return 0
        if footing.has_majority and not footing.is_stable:
            return None
        return max(footing.number, footing.latest_number)

    def missing_voters(self) -> tuple[MemberId, ...] | None:
        """Return the voters that are not here, where the majority is not; None: it is here, or no voter has a folder."""
        footing, view = self.footing, self._view
        if self.has_majority or footing is None or view is None:
            return None
        of, present = self._needed(footing, view)
        have_folders = self._has_folder or any(of.starts)
        return tuple(voter for voter in of.voters if voter not in present) if have_folders else None

    def voters_besides(self, members: Collection[MemberId]) -> frozenset[MemberId]:
        """Return for whom those vote that are present, without these members."""
        view = self._view
        there = (
            {self._voices.get(each, each) for each in view.members if each not in members} if view is not None else ()
        )
        return frozenset(there)

    def is_majority(self, members: Collection[MemberId]) -> bool | None:
        """Return whether these members, with those that have left, are the majority of each view that is stable or can be. None: the
        present view lacks it, or nobody has a folder, so nobody asks for it after a power cut.
        """
        footing, view = self.footing, self._view
        if footing is None or view is None or not footing.has_majority or not (self._has_folder or view.stores):
            return None
        if 2 * len(members) <= len(view.data_members):
            return False  # which of them they are is looked at only where it can matter: thousands of members confirm tables
        voters = {self._voices.get(member, member) for member in members}
        return rules.find_lacking(rules.after_master_loss(footing, view), frozenset(voters | self.left)) is None

    def _needed(self, footing: QuorumRecord, view: MembersView) -> tuple[QuorumView, frozenset[MemberId]]:
        """Return the view of which the present one needs the majority, and the voters that are here."""
        present = rules.present_in(view, footing.former) | self.left
        return rules.find_lacking(footing, present) or footing.stable, present

    def words(self) -> str:
        """Say in words of which stable view the present one needs the majority, and how many of its members are here."""
        footing, view = self.footing, self._view
        if footing is None or view is None:
            return "this member is in no cluster"
        of, present = self._needed(footing, view)
        is_known = "the last stable view" if of == footing.stable else "a view that may have become stable"
        size, here = len(of.voters), of.count(present)
        are = "is" if here == 1 else "are"
        return f"{here} of the {size} members of {is_known} (member list {of.version}) {are} here, and {size // 2 + 1} must be"
