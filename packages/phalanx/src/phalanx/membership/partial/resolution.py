"""On the master: remove members that others cannot reach, so that all that stay reach each other
(docs/protocol/partial-partitions.md).

Slaves report the members that they cannot reach with their heartbeats to the master (in large clusters: one by one).
When the reports have settled (`connectivity_reports`), the master searches for the best fully connected set of members
(`connectivity`), always with itself in it. Data that only the others hold is moved first, by members that both sides
reach. Then a view without them is published like any other, so that all rules for views hold for it (PD-24).

The search runs in slices between inputs, so that it never blocks the member, and ends with the best set found so far
when its time is over. A link that is added or taken back before the view changes starts everything anew; with the last
broken link the decision is taken back. Once links that come and go have been waited for long enough, new reports change
nothing, and a decision is taken back only if one of the members to remove has no broken link left that requires it.

A member that is removed so is told, and comes back instead of continuing alone: the master that removed it reaches it,
and all that only it held is with the others. A partial cut makes no second cluster.

1. N2, removed while it still reaches the master, comes back as a new incarnation at once. 2. It would be a member
again, with its links to N3 and N4 still cut. So the links are remembered (`links_to_prove`): it waits until it has
reached both.

A large cluster knows only the links that its ring watches, between neighbours. When the view changes and others become
neighbours, their broken links are found, and resolved in the same way.
"""

from __future__ import annotations

import enum

from phalanx.common.evacuation import Evacuation, Link
from phalanx.common.ids import MemberId, Millis, address_of
from phalanx.common.invariant import invariant
from phalanx.common.transitions import TransitionTable
from phalanx.common.view import MembersView
from phalanx.machine.facts import EvacuationOver
from phalanx.machine.local_context import LocalContext
from phalanx.membership.connectivity import ConnectedSet, Search, count_holders
from phalanx.membership.partial.connectivity_reports import ConnectivityReports
from phalanx.membership.peer_watch import PeerWatch
from phalanx.membership.state import MembershipState
from phalanx.membership.views.removals import ForcedRemovals
from phalanx.wire.messages import Heartbeat, SuspicionReport
from phalanx.wire.suspicion_events import LinksReported, ResolutionDecided, ResolutionTakenBack

RULE = "PD-24"


class ResolutionStage(enum.StrEnum):
    """How far the resolution is."""

    WHOLE = "no broken link is known"
    REPORTED = "broken links are reported"
    SEARCHING = "it is searched for the members to keep"
    EVACUATING = "what only the others hold is moved"


class ResolutionEvent(enum.StrEnum):
    """What changes the stage."""

    REPORT = "a member reports that it cannot reach another one"
    CHANGE = "a link is added or taken back"
    WITHDRAWN = "no broken link is left"
    QUIET = "there was no news for so many heartbeats, or it was waited long enough"
    FOUND = "the best set is found, or the time for that is over"
    REMOVED = "nothing is left to move, or the time for that is over: a view without them is published"
    DEMOTED = "this member is no master any more"


RESOLUTION_CHANGES = TransitionTable[ResolutionStage, ResolutionEvent](
    "a resolution",
    {
        (ResolutionStage.WHOLE, ResolutionEvent.REPORT): ResolutionStage.REPORTED,
        (ResolutionStage.REPORTED, ResolutionEvent.CHANGE): ResolutionStage.REPORTED,
        (ResolutionStage.REPORTED, ResolutionEvent.WITHDRAWN): ResolutionStage.WHOLE,
        (ResolutionStage.REPORTED, ResolutionEvent.QUIET): ResolutionStage.SEARCHING,
        (ResolutionStage.SEARCHING, ResolutionEvent.CHANGE): ResolutionStage.REPORTED,
        (ResolutionStage.SEARCHING, ResolutionEvent.WITHDRAWN): ResolutionStage.WHOLE,
        (ResolutionStage.SEARCHING, ResolutionEvent.FOUND): ResolutionStage.EVACUATING,
        (ResolutionStage.EVACUATING, ResolutionEvent.CHANGE): ResolutionStage.REPORTED,
        (ResolutionStage.EVACUATING, ResolutionEvent.WITHDRAWN): ResolutionStage.WHOLE,
        (ResolutionStage.EVACUATING, ResolutionEvent.REMOVED): ResolutionStage.WHOLE,
        (ResolutionStage.WHOLE, ResolutionEvent.DEMOTED): ResolutionStage.WHOLE,
        (ResolutionStage.REPORTED, ResolutionEvent.DEMOTED): ResolutionStage.WHOLE,
        (ResolutionStage.SEARCHING, ResolutionEvent.DEMOTED): ResolutionStage.WHOLE,
        (ResolutionStage.EVACUATING, ResolutionEvent.DEMOTED): ResolutionStage.WHOLE,
    },
)


class Resolution:
    """What is reported, and what is done about it; it does nothing on members that are no master."""

    def __init__(
        self, local: LocalContext, state: MembershipState, watch: PeerWatch, forced_removals: ForcedRemovals
    ) -> None:
        self._local = local
        self._state = state
        self._watch = watch
        self._forced_removals = forced_removals
        self.stage = ResolutionStage.WHOLE
        self.reports = self._no_reports()
        self._search: Search[MemberId] | None = None
        self._searched: list[Link] = []
        """The broken links that the search resolves."""
        self._search_ends = self._go_on_at = 0
        self._due_since: Millis | None = None
        """Since when the decision waits only for signs of life of both ends of all links; None: it does not."""
        self._view: MembersView | None = None
        """The view to which the reports were last fitted; None: this member is no master, or the feature is off."""

    def __repr__(self) -> str:
        return f"Resolution({self.stage.name}, {self.reports}, {self._search or self.evacuation or 'nothing to do'})"

    @property
    def evacuation(self) -> Evacuation | None:
        """Return what is to be moved before members are removed, while EVACUATING."""
        return self._forced_removals.duties.evacuation

    def _no_reports(self) -> ConnectivityReports:
        config = self._local.config
        rounds = config.partial_resolution_heartbeats
        return ConnectivityReports(rounds, rounds + -(-config.heartbeat_timeout_ms // config.heartbeat_interval_ms))

    def validate(self) -> None:
        """Raise `InvariantViolation` unless what must hold between any two inputs does."""
        state, reports, evacuation = self._state, self.reports, self.evacuation
        if self.stage is ResolutionStage.WHOLE and not reports and self._search is None and evacuation is None:
            return  # usual, and all of it holds
        invariant(state.is_master or not reports, "only the master keeps reports", me=self)
        invariant(bool(reports) == (self.stage is not ResolutionStage.WHOLE), "broken links are worked on", me=self)
        invariant(
            (self._search is not None) == (self.stage is ResolutionStage.SEARCHING),
            "who searches has a search",
            me=self,
        )
        invariant(
            (evacuation is not None) == (self.stage is ResolutionStage.EVACUATING), "what is moved is known", me=self
        )
        for reporter, suspects in reports.by_reporter.items():
            named = {reporter, *suspects}
            invariant(named <= state.members and self._local.this not in named, "reports are about slaves", me=self)
        if evacuation is not None:
            kept, removed = evacuation.kept, evacuation.removed
            invariant(self._local.this in kept, "the master stays (A.6-9)", me=self)
            invariant(bool(removed) and kept.isdisjoint(removed), "who is removed is not kept", me=self)

    # --- reports ---------------------------------------------------------------------------------------------------

    def on_heartbeat(self, sender: MemberId, message: Heartbeat, now: Millis) -> None:
        """Note, on the master, the members that the sender cannot reach; in large clusters see `on_suspicion_report`."""
        if self._state.is_master and not self._state.watching.is_ring:
            self._on_report(sender, message.suspects)

    def _on_report(self, reporter: MemberId, suspects: tuple[MemberId, ...]) -> None:
        """Take the whole list of the members that a member cannot reach, which replaces its last one."""
        if not suspects and not self.reports.of(reporter):
            return
        if self._follows():
            known = self._known_slaves(reporter, suspects)
            before = self.reports.of(reporter)
            is_changed = self.reports.replace(reporter, known)
            self._note(reporter, before, is_changed)

    def on_suspicion_report(self, sender: MemberId, message: SuspicionReport, now: Millis) -> None:
        """Take one suspect of a member of a large cluster, which it repeats with every heartbeat interval; but first ask
        the suspect whether it lives.
        """
        state, suspect = self._state, message.suspect
        if sender not in state.members:
            return
        self._watch.question((suspect,), sender, now)
        if state.watching.is_ring and self._follows() and self._known_slaves(sender, (suspect,)):
            before = self.reports.of(sender)
            is_changed = self.reports.add(sender, suspect)
            self._note(sender, before, is_changed)

    def _known_slaves(self, reporter: MemberId, suspects: tuple[MemberId, ...]) -> list[MemberId]:
        """Return the suspects that are slaves of the view: the reporter's list can be older or newer than this one."""
        state = self._state
        return [each for each in suspects if each in state.members and each not in (reporter, self._local.this)]

    def _note(self, reporter: MemberId, before: tuple[MemberId, ...], is_changed: bool) -> None:
        cannot_reach = self.reports.of(reporter)
        if cannot_reach != before:
            again = tuple(member for member in before if member not in cannot_reach)
            self._local.out.record(LinksReported(reporter, cannot_reach, again, "PD-13 PD-23"))
        if is_changed:
            self._on_change()

    def _follows(self) -> bool:
        """Fit the reports to the present view. Return False where no reports are kept: on a slave, or with the feature
        off (PD-16).
        """
        state = self._state
        if not state.is_master or not self._local.config.partial_resolution_heartbeats:
            if self._view is not None:
                self._forget()
            return False
        view = state.joined()
        if view is not self._view:
            self._view = view
            if self.reports.keep_only(view.members):
                self._on_change()
        return True

    def _forget(self) -> None:
        """Drop everything: another master begins without reports, and members repeat theirs to it."""
        self._transition(ResolutionEvent.DEMOTED)
        self.reports = self._no_reports()
        self._search = self._view = self._due_since = None
        self._state.evacuate(None)

    def follow(self) -> None:
        """Follow a change of the view or of this member's role."""
        if self._view is not None or self._state.is_master:
            self._follows()

    def _transition(self, event: ResolutionEvent) -> None:
        self.stage = RESOLUTION_CHANGES.next(self.stage, event, me=self)

    def _on_change(self) -> None:
        """Follow links that were added or taken back."""
        if self.stage is ResolutionStage.WHOLE:
            if self.reports:
                self._transition(ResolutionEvent.REPORT)
        elif not self.reports:
            self._take_back("no member reports a broken link any more")
            self._transition(ResolutionEvent.WITHDRAWN)
        elif self.stage is not ResolutionStage.EVACUATING or self._must_begin_anew():
            self._take_back("links were added or taken back")
            self._transition(ResolutionEvent.CHANGE)

    def _must_begin_anew(self) -> bool:
        """Return whether the changes since the decision can make it another one."""
        evacuation = self.evacuation
        links = frozenset(self.reports.links)
        if evacuation is None or not self.reports.is_overdue:
            return evacuation is None or links != evacuation.links
        # A link that comes and goes would delay it for ever; but no member is removed without a broken link that is left.
        cut_off = {end for link in links & evacuation.links if evacuation.kept & {*link} for end in link}
        return not cut_off.issuperset(evacuation.removed)

    def _take_back(self, reason: str) -> None:
        evacuation, self._search = self.evacuation, None
        self._state.evacuate(None)
        if evacuation is not None:
            self._local.out.record(ResolutionTakenBack(evacuation.removed, reason, "PD-21"))

    # --- time ------------------------------------------------------------------------------------------------------

    def on_tick(self, now: Millis) -> None:
        """Count a heartbeat of this master as quiet time, and begin to search when reports have settled."""
        if not self._follows():
            return
        links = self.reports.links
        for reporter, suspect in self.reports.tick():
            self._local.out.record(LinksReported(reporter, self.reports.of(reporter), (suspect,), "PD-13 EL-45"))
        if links != self.reports.links:
            self._on_change()
        if self.stage is ResolutionStage.REPORTED and (to_resolve := self.reports.to_resolve()):
            if self._finish_wait(to_resolve, now):
                self._begin_search(to_resolve, now)
        else:
            self._due_since = None

    def _finish_wait(self, links: list[Link], now: Millis) -> bool:
        """Return whether the wait for both ends of each link is over: they are alive, or it was long enough. Begin it
        if necessary.

        1. X dies. 2. B misses it sooner than the master A does, and reports it. 3. If A decided now, it would keep the
        older of both: perhaps X. So it waits for its own verdict, one heartbeat timeout at the most.
        """
        if self._due_since is None:
            self._due_since = now
        is_in_doubt = any(self._watch.is_in_doubt(end, now) for link in links for end in link)
        return not is_in_doubt or now - self._due_since >= self._local.config.heartbeat_timeout_ms

    def next_deadline(self) -> Millis | None:
        """Return when to continue; ticks come by themselves."""
        if self._search is not None:
            return self._go_on_at
        return self.evacuation.until if self.evacuation is not None else None

    def on_time(self, now: Millis) -> None:
        deadline = self.next_deadline()
        if deadline is None or now < deadline or not self._follows():
            return
        if self._search is not None:
            self._go_on_searching(self._search, now)
        elif self.evacuation is not None and now >= self.evacuation.until:
            self._remove(self.evacuation, now)

    # --- the decision ----------------------------------------------------------------------------------------------

    def _begin_search(self, links: list[Link], now: Millis) -> None:
        state = self._state
        self._transition(ResolutionEvent.QUIET)
        self._due_since = None
        view = state.joined()
        traits = dict(view.traits)
        zones = {member: its.zone for member, its in traits.items() if its.zone}
        # A member that leaves, or becomes lite, soon holds nothing. 1. A, the master, and B leave, and B and C cannot reach each
        # other. 2. If A and B, which are older, were kept, C's replicas would move to them. 3. They go, and all data with them.
        duties = self._forced_removals.duties
        goes = duties.draining(view) | duties.without_disk
        lite = [member for member in view.members if view.traits_of(member).lite or member in goes]
        apart: dict[MemberId, list[MemberId]] = {}
        for one, other in links:
            apart.setdefault(one, []).append(other)
        holders = count_holders(duties.holders())
        self._searched = links
        self._search = Search(view.members, apart, master=self._local.this, lite=lite, zones=zones, holders=holders)
        self._search_ends = now + self._local.config.partial_resolution_timeout_ms
        self._go_on_searching(self._search, now)

    def _go_on_searching(self, search: Search[MemberId], now: Millis) -> None:
        if search.run() or now >= self._search_ends:
            self._decide(search.best(), now)
        else:
            self._go_on_at = now + 1

    def _decide(self, found: ConnectedSet[MemberId], now: Millis) -> None:
        self._search = None
        self._transition(ResolutionEvent.FOUND)
        reported = tuple((reporter, *suspects) for reporter, suspects in self.reports.by_reporter.items())
        self._local.out.record(
            ResolutionDecided(
                tuple(self._searched), reported, found.members, found.removed, found.narrowed,
                found.optimal, found.could_be_larger_by, found.because,
                "PD-22 PD-26" if found.optimal else "PD-19",
            )
        )  # fmt: skip
        until = now + self._local.config.evacuation_timeout_ms
        order = Evacuation(frozenset(found.members), found.removed, frozenset(self._searched), until)
        self._state.evacuate(order)
        if until == now:
            self._remove(order, now)

    def on_evacuation_over(self, fact: EvacuationOver, now: Millis) -> None:
        """Remove the members of this order, because all that only they held has been moved, as far as it can be."""
        if fact.order is self.evacuation:
            self._remove(fact.order, now)

    def _remove(self, evacuation: Evacuation, now: Millis) -> None:
        """Publish the view without the removed members, as any other view is published."""
        state = self._state
        self._state.evacuate(None)
        self._transition(ResolutionEvent.REMOVED)
        gone = [member for member in evacuation.removed if member in state.members]
        links = [link for link in self.reports.links if not set(link).isdisjoint(gone)]
        reasons = {}
        for member in gone:
            others = [other for link in links if member in link for other in link if other in evacuation.kept]
            reasons[member] = f"it and {', '.join(map(address_of, others))} cannot reach each other"
        self._forced_removals.remove(reasons, links, RULE, now)
        self._view = state.joined()
        self.reports.keep_only(state.members)
        self.reports.begin_anew()
        if self.reports:
            self._transition(ResolutionEvent.REPORT)
