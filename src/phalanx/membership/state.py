"""The variables of one member's membership, and the few operations that every rule needs.

One object, shared by the rules' own objects (`administration`, `succession`, `divergence`, `merging`, `ticker`): each
decides about its part, and what it decides changes the variables here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from phalanx.common.clock import GridClock
from phalanx.common.config import NodeConfig
from phalanx.common.evacuation import Evacuation
from phalanx.common.former_incarnation import Former, Past
from phalanx.common.ids import Address, MemberId, Millis, address_of, may_be_member
from phalanx.common.invariant import invariant
from phalanx.common.quorum import Carried
from phalanx.common.table import PartitionTable
from phalanx.common.view import MembersView
from phalanx.machine.effects import Finished
from phalanx.machine.facts import IncarnationOver, MembershipChanged, NewView
from phalanx.machine.outbox import Outbox
from phalanx.membership.detect.ring import Watching, plan_watching
from phalanx.membership.detect.suspicion import Suspicions
from phalanx.membership.quorum.exclusion import Exclusion
from phalanx.membership.quorum.lease import Lease
from phalanx.membership.quorum.quorum_state import QuorumState
from phalanx.membership.role import ROLE_CHANGES, Role, RoleTurn
from phalanx.wire import events
from phalanx.wire.messages import (
    ExplicitSuspicion,
    Heartbeat,
    JoinResponse,
    LeaseGrant,
    LeaseRequest,
    MembersUpdate,
    ViewIsStable,
)

REMEMBERED = 4_096
"""Former members of whom something is kept; the oldest are forgotten first."""
MINUTE_MS: Millis = 60_000
TOLD = 256
"""Addresses of former members that one message names: the latest."""


class MembershipState:
    """View, master, role and suspicions of one incarnation."""

    def __init__(
        self,
        this: MemberId,
        config: NodeConfig,
        outbox: Outbox,
        clock: GridClock | None = None,
        carried: Carried | None = None,
    ) -> None:
        self.this = this
        self.config = config
        self.out = outbox
        self.clock = clock
        """The grid's; None: this member has none, and tells and hears nothing of it."""
        self.role = Role.JOINING
        self.view: MembersView | None = None
        """None until this member has joined, and again when this incarnation is over."""
        self.members: frozenset[MemberId] = frozenset()
        """Those of the view."""
        self.lease = Lease(this, config.lease_ms, carried)
        self._master: MemberId | None = None
        self.founded_at = carried.founded_at if carried is not None else None
        """When this member's cluster had been founded at the latest, by the clock of this process; None: it was in none."""
        self.has_started = False
        """Whether the cluster has once had the members that it was to wait for."""
        self.leaving: set[MemberId] = set()
        """On the master: members that asked to leave and are still in the view."""
        self.wants_to_leave = False
        self.lite_before: bool | None = None
        """What the incarnation before this one had become."""
        self.demoting: set[MemberId] = set()
        """On the master: members that are to hold no data any more, and still hold some."""
        self.evacuation: Evacuation | None = None
        """On the master: what is to be moved before members are removed that still reach it; None: nothing."""
        self.wants_lite: bool | None = None
        """What this member was asked to become; None: nothing that it is not."""
        self.suspicions = Suspicions(this, config, outbox)
        self.watching = Watching((), (), 1)
        self.former: dict[Address, Millis] = {}
        """Addresses of members that are in the view no more, to when they may be forgotten; the latest last."""
        self.hints: dict[Address, Millis] = {}
        """As `former`, but of what others know: where members were, and their seeds."""
        self.looked_at: Millis = 0
        """When the clock was looked at last, here: often enough for times in hours."""
        self.removed: dict[MemberId, None] = {}
        """Incarnations that are in the view no more, the latest last: they never come back."""
        self.parted: dict[MemberId, None] = {}
        """Those of them that this member, as the master, removed because others could not reach them."""
        self.parting: Exclusion | None = None
        """Somebody said that it went on without this member, and it is open who are the many: no claim meanwhile."""
        self.table_version = 0
        """Of the installed partition table, as this member's master has confirmed it; -1: it has not."""
        self.partition_count = config.partition_count
        """What the cluster has, as far as this member knows."""
        self.table: PartitionTable | None = None
        """The installed partition table; None: not told yet."""
        self.has_data = False
        """Whether the partitions are assigned."""
        self.standing = QuorumState(this, carried, outbox, awaits_itself=config.lease_ms > 0)

    @property
    def master(self) -> MemberId | None:
        """Whom this member follows: itself, the master of its view, or a claimer that it agreed with."""
        return self._master

    @master.setter
    def master(self, master: MemberId | None) -> None:
        is_other = master != self._master
        self._master = master
        self.lease.follow(master)
        if is_other:
            self.tell_change()

    @property
    def is_master(self) -> bool:
        """Whether this member administrates the cluster: its claim, if it needed one, is over."""
        return self.role is Role.MASTER

    def joined(self) -> MembersView:
        """The view of a member that has one."""
        invariant(self.view is not None, "this member has joined")
        return self.view  # type: ignore[return-value]  # held by the invariant

    def turn(self, turn: RoleTurn) -> None:
        was_master = self.is_master
        self.role = ROLE_CHANGES.next(self.role, turn)
        if self.is_master != was_master:
            self.tell_change()

    # --- what the other machines of this member work from ----------------------------------------------------------

    def tell_change(self) -> None:
        """Tell them how the membership is now, if this member has a view."""
        if self.view is not None:
            leaving = tuple(sorted(self.leaving | self.demoting))
            self.out.tell(
                MembershipChanged(self.view, self.master, self.is_master, leaving, self.evacuation, self.has_started)
            )

    def begin_leaving(self, member: MemberId) -> None:
        """On the master: a member asked to leave."""
        if member not in self.leaving:
            self.leaving.add(member)
            self.tell_change()

    def begin_demotion(self, member: MemberId) -> None:
        """On the master: a member is to hold no data any more."""
        self.demoting.add(member)
        self.tell_change()

    def end_demotion(self, member: MemberId) -> None:
        """On the master: a member holds no data any more, or is to hold some again."""
        self.demoting.discard(member)
        self.tell_change()

    def evacuate(self, order: Evacuation | None) -> None:
        """On the master: see to this before members are removed; None: not any more."""
        if order is not self.evacuation:
            self.evacuation = order
            self.tell_change()

    # --- views -----------------------------------------------------------------------------------------------------

    def install(
        self, view: MembersView, rule: str, now: Millis, told: MembersUpdate | JoinResponse | None = None
    ) -> None:
        """Make a view this member's own: `told` by its master, or, if nobody has, made by itself, which is the master."""
        invariant(self.this in view, "an installed view contains its installer (M3)", view=view)
        invariant(self.view is None or view.version > self.view.version, "views only move on (M1)", view=view)
        self.looked_at = now
        before = self.view.members if self.view is not None else ()
        self.view = view
        self.parting = None
        self.members = frozenset(view.members)
        self.forget_members(before, view.members, now)
        for member in self.members.difference(before):
            # Its address is in use again: there is no other side to look for.
            self.former.pop(address_of(member), None)
            self.hints.pop(address_of(member), None)
        self.leaving &= self.members
        self.demoting &= self.members
        if self.wants_lite == view.traits_of(self.this).lite:
            self.wants_lite = None
        self.has_started = self.has_started or len(view.members) >= self.config.initial_members
        self.watching = plan_watching(view, self.this, self.config.ring_above_members, self.config.ring_neighbours)
        self.suspicions.watch(self.members, self.watching.watched, now)
        self.expect_confirmations(now)
        self.out.record(events.ViewInstalled(view.version, view.maker, view.master, view.members, rule))
        if told is None:
            self.standing.make(view)
        else:
            self.standing.adopt(view, told.footing, is_master=self.is_master)
        self.out.tell(NewView(view, self.members))
        self.tell_change()
        if self.is_master:
            self.lease.keep_only(self.members)
            self.renew_lease(now)

    def note_view(self, member: MemberId, version: int, maker: str) -> None:
        """A member says that it has a view. With leases it must not be bound to another master: it says so when it echoes."""
        if not self.config.lease_ms:
            self.note_voter(member, version, maker)

    def note_voter(self, member: MemberId, version: int, maker: str) -> None:
        """A voter has this view. When all have it they are told at once: 1. the list of A, B and C becomes stable at A.
        2. B and C are cut off from A before its next heartbeat. 3. They have the majority of that list, but may need that
        of the list before, too.
        """
        if self.standing.has_view(member, version, maker):
            view = self.joined()
            told = ViewIsStable(view.version, view.maker)
            for other in view.others(self.this):
                if other not in self.suspicions.suspected:
                    self.out.send(other, told)

    def renew_lease(self, now: Millis) -> None:
        """On the master: its own lease, by what it has heard. All are told when it gets one."""
        lease, standing = self.lease, self.standing
        if not self.config.lease_ms or self.view is None:
            return
        if not lease.is_bound(self.this, now):
            self.note_voter(self.this, self.view.version, self.view.maker)
        if lease.renew(standing.footing, standing.left, now):
            for member in lease.waiting():
                self.grant_lease(member, now)

    def grant_lease(self, member: MemberId, now: Millis) -> None:
        """Answer a member that has asked."""
        self.out.send(member, LeaseGrant(now, *self.lease.grant(member, now)))

    def ask_for_lease(self, master: MemberId, now: Millis) -> None:
        """A slave asks its master."""
        view, lease = self.joined(), self.lease
        if self.config.lease_ms:
            self.out.send(master, LeaseRequest(view.version, view.maker, now, lease.echo(master, now)))

    def expect_confirmations(self, now: Millis) -> None:
        """The master expects every slave to confirm it; in a large cluster slaves expect its answers (CS-29)."""
        expected: Collection[MemberId] = ()
        if self.is_master:
            expected = self.joined().others(self.this)
        elif self.watching.is_ring and self.master is not None and self.master not in self.watching.watched:
            expected = (self.master,)
        # Two rare confirmations may be lost with their connections; a limit as many times longer as they are rarer would
        # let a member that only the master does not hear stay for minutes.
        config, rarer = self.config, self.watching.pace - 1
        timeout_ms = config.confirmation_timeout_ms + 2 * rarer * config.confirmation_interval_ms
        self.suspicions.expect_confirmations(expected, timeout_ms, now)

    def forget_members(self, before: Collection[MemberId], staying: Collection[MemberId], now: Millis) -> None:
        """EL-22: who was a member and is no more may live on another side of a cut; and never comes back as the same."""
        staying = frozenset(staying)
        for member in before:
            if member not in staying:
                address = address_of(member)
                self.former.pop(address, None)
                self.former[address] = now + self.config.former_members_ms
                self.removed[member] = None
        while len(self.former) > REMEMBERED:
            del self.former[next(iter(self.former))]
        while len(self.removed) > REMEMBERED:
            self.parted.pop(next(iter(self.removed)), None)
            del self.removed[next(iter(self.removed))]

    def remember(self, addresses: Iterable[Address], now: Millis) -> None:
        """Somebody who knows the cluster says that members may be there."""
        minutes = -(-self.config.former_members_ms // MINUTE_MS)
        self.learn(tuple((address, minutes) for address in addresses), now)

    def learn(self, former: Former, now: Millis) -> None:
        """What others remember; whoever becomes the master looks everywhere where any member would have looked."""
        present = {address_of(member) for member in self.members} | {address_of(self.this)}
        for address, minutes in former:
            until = now + min(minutes * MINUTE_MS, self.config.former_members_ms)
            if until > self.hints.get(address, now) and address not in present and may_be_member(f"{address}/?"):
                self.hints[address] = until
        while len(self.hints) > REMEMBERED:
            del self.hints[next(iter(self.hints))]

    def places(self, now: Millis) -> list[Address]:
        """Where members may be that are not in the view; what is too old is forgotten."""
        for remembered in (self.former, self.hints):
            for address in [address for address, until in remembered.items() if until <= now]:
                del remembered[address]
        present = {address_of(member) for member in self.members}
        return [a for a in dict.fromkeys([*self.former, *self.hints, *self.config.seeds]) if a not in present]

    def told_former(self) -> Former:
        """What this member remembers, for others: their clocks show something else."""
        latest = list((self.hints | self.former).items())[-TOLD:]
        minutes = ((address, (until - self.looked_at) // MINUTE_MS) for address, until in latest)
        return tuple((address, left) for address, left in minutes if left > 0)

    def send_view(self, view: MembersView, skip: Collection[MemberId] = ()) -> None:
        """Publish: to each member of the view a message with all of it (CS-18)."""
        update = self.update(view)
        for member in view.members:
            if member != self.this and member not in skip:
                self.out.send(member, update)

    def update(self, view: MembersView) -> MembersUpdate:
        """The present view as this member tells it to others."""
        return MembersUpdate(view, self.has_started, self.standing.footing, self.told_former())

    def question(self, suspects: Collection[MemberId], reported_by: MemberId, now: Millis) -> None:
        """Large clusters: ask members that another one suspects, and that this one does not watch, whether they live."""
        if not self.watching.is_ring:
            return
        for suspect in suspects:
            if suspect != self.this and self.suspicions.question(suspect, now):
                self.out.record(events.MemberQuestioned(suspect, reported_by, "EL-45"))
                self.send_heartbeat(suspect)

    def send_heartbeat(self, to: MemberId, clock: int = 0) -> None:
        """Whoever is being asked whether it lives is asked by this one too: a question is lost with its connection."""
        self.out.send(to, self.heartbeat_to(to, clock, wants_answer=self.suspicions.is_questioned(to)))

    def heartbeat_to(self, to: MemberId, clock: int = 0, *, wants_answer: bool = False) -> Heartbeat:
        """Only the master hears whom this member cannot reach, and it always does: an empty list takes reports back."""
        view, config = self.joined(), self.config
        suspects: tuple[MemberId, ...] = ()
        if to == self.master and self.suspicions.suspected and config.partial_resolution_heartbeats:
            # In a large cluster suspicions are reported as they come (`ticker`), to whoever has to act on them.
            suspects = tuple(sorted(self.suspicions.suspected)) if not self.watching.is_ring else ()
        is_stable = self.is_master and self.standing.is_stable
        return Heartbeat(view.version, view.maker, wants_answer, clock, suspects, is_stable)

    def age_ms(self, now: Millis) -> Millis:
        """For how long this member's cluster has existed at least; members of it differ by what their messages took."""
        return max(now - self.founded_at, 0) if self.founded_at is not None else 0

    def read_clock(self, now: Millis) -> int:
        """What others are told of this member's clock."""
        return self.clock.read(now) if self.clock is not None else 0

    def adopt_clock(self, told: int, now: Millis) -> None:
        """The master that has admitted this member has told what the cluster's clock shows."""
        if self.clock is not None:
            self.clock.adopt(told, now)

    def observe_clock(self, told: int, now: Millis) -> None:
        """A member of this cluster has told what its clock shows."""
        if self.clock is not None:
            self.clock.observe(told, now)

    def tell_diverged(self, peer: MemberId, version: int, maker: MemberId, what: str, rule: str) -> None:
        """Explicit suspicion: assume that I am dead, as far as your view `version` by `maker` goes (CS-40)."""
        self.out.record(events.ViewsDiverged(peer, what, rule))
        self.out.send(peer, ExplicitSuspicion(version, maker, self.view, peer in self.parted))

    # --- ends ------------------------------------------------------------------------------------------------------

    def leave(self) -> None:
        self.out.record(events.Left(self.joined().version))
        self.end("left")

    def eject(self, by: MemberId, view: MembersView, rule: str) -> None:
        """Others go on without this member: it comes back to them as a new one."""
        self.out.record(events.Ejected(by, view.version, rule))
        self.end_or_leave("the cluster went on without this member", view)

    def end_or_leave(self, reason: str, view: MembersView) -> None:
        """Come back to that view; who meant to leave does so at once, unless there may be data that it alone holds."""
        if self.wants_to_leave and not self.has_data:
            self.leave()
        else:
            self.end(reason, rejoin=view.members)

    def end(self, reason: str, rejoin: tuple[MemberId, ...] = (), *, failed: bool = False) -> None:
        """This incarnation is over."""
        past = self._past(rejoin) if rejoin else Past()
        self.turn(RoleTurn.ENDS)
        memory = self.standing.memory()
        self.standing.end()
        self.view = self.master = self.parting = None
        self.members = frozenset()
        lease = self.lease
        carried = Carried(memory, lease.bound_to, lease.bound_until, self.founded_at) if memory is not None else None
        self.out.add(Finished(reason, rejoin, failed, carried=carried, past=past))
        self.out.tell(IncarnationOver())

    def _past(self, rejoin: tuple[MemberId, ...]) -> Past:
        members = self.view.others(self.this) if self.view is not None else ()
        lite = self.view.traits_of(self.this).lite if self.view is not None else self.lite_before
        wanted = self.wants_lite if self.wants_lite is not None else lite
        return Past(rejoin, members, self.told_former(), wanted, self.has_started)
