"""Leases: no owner acknowledges operations on maps that need the majority while another member can own what it owned.

Without leases there is a window: a side that was cut off answers until it notices. With `lease_ms`:

* A slave asks its master with each confirmation and says what its clock shows. The master grants it some time from
  there.
* The master needs a lease too, from its members. Its answers carry stamps of its clock, slaves echo the latest one, and
  the master's lease lasts for `lease_ms` from the latest stamp that a majority has echoed (of the last stable view, and
  of all that can be later). It grants no member more than it has itself.
* A member that echoes has promised to echo no other master's stamps for `lease_ms` (and a bit) from then: it is
  *bound*. A member that is bound to another master neither echoes nor counts when a view becomes stable.

Two masters never have a lease at the same time: let M be the members whose echoes one has, and S the stable view of
which they are the majority. If the other master knows of no other stable view, the majority that it needs has a member
in common with M, and that one is bound. If it knows of a later one, its voters were all unbound when it became stable,
and one of them is in M. So a lease of one master ends before another's begins, and with it all that it granted.

A master knows what it grants: it gives the partitions of a member that it removes to others only when that one's lease
is over (`holds_until`). A claimer waits likewise for the promises of those that agree.

Each member measures by its own clock; the granter adds `MARGIN_PERCENT` and a moment, for clocks that run up to one in
a hundred too fast or too slow. They must be monotonic and run while a process sleeps. A member that was away finds its
lease over by its own clock before it serves anything.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from phalanx.common.ids import NEVER, MemberId, Millis
from phalanx.common.quorum import UNKNOWN_MASTER, QuorumHandover, QuorumRecord

MARGIN_PERCENT = 3
"""More than the difference of two clocks that are each wrong by one in a hundred."""
MOMENT_MS = 2
"""Clocks are read in whole milliseconds."""


def with_margin(ms: Millis) -> Millis:
    """Return how long to wait by this clock for what can last that long by another clock."""
    return ms + ms * MARGIN_PERCENT // 100 + MOMENT_MS


class Lease:
    """What one member was granted, has promised and, as the master, has granted. With `lease_ms` 0 nothing of that."""

    def __init__(self, this: MemberId, lease_ms: Millis, carried: QuorumHandover | None) -> None:
        self.lease_ms = lease_ms
        self._this = this
        self.until: Millis = 0
        """This member can acknowledge before this time, by its own clock."""
        self.bound_to = carried.bound_to if carried is not None else None
        """The master whose stamps this member echoed last."""
        self.bound_until = carried.bound_until if carried is not None else 0
        self.holds_until: Millis = 0
        """On the master: before this time no member gets partitions of members that are gone."""
        self._follows: MemberId | None = None
        """This member's master."""
        self._inherited: Millis = 0
        """On a master to which the mastership was handed over: the end of its lease from the former master."""
        self._stamp: tuple[MemberId | None, Millis] = (None, 0)
        """The latest stamp of this member's master."""
        self._echoes: dict[MemberId, Millis] = {}
        """On the master: the latest of its stamps that each member has echoed."""
        self._clocks: dict[MemberId, Millis] = {}
        """On the master: what each member's clock showed when it asked last."""
        self._granted: dict[MemberId, Millis] = {}
        """On the master: when each member's lease is over at the latest, by the master's clock."""

    def __repr__(self) -> str:
        return f"Lease(until={self.until}, bound_to={self.bound_to}, bound_until={self.bound_until}, holds_until={self.holds_until})"

    def start(self, now: Millis) -> None:
        """Bind a process that comes back from a folder: the one before it can have echoed a master until it ended (DU-08).

        1. B echoes A, so A has the majority of A, B and C for a while. 2. A is cut off, and B is killed and starts again. 3. Did it
        echo C at once, C would have the majority, and confirm writes that A, whose lease is not over, does not have.
        """
        if self.lease_ms and self.bound_to == UNKNOWN_MASTER and not self.bound_until:
            self.bind(UNKNOWN_MASTER, now)

    def is_bound(self, to: MemberId, now: Millis) -> bool:
        """Return whether this member has promised another master than `to`, for a while, to follow no other."""
        return self.bound_to not in (None, to) and now < self.bound_until

    def bound_ms(self, now: Millis) -> Millis:
        """Return for how long this member's promise still holds."""
        return max(0, self.bound_until - now) if self.bound_to is not None else 0

    # --- the slave -------------------------------------------------------------------------------------------------

    def follow(self, master: MemberId | None) -> None:
        """Follow a master: what another one granted is void."""
        if master != self._follows:
            self._follows = master
            self.until = self._inherited = 0
            self._stamp = (None, 0)

    def inherit(self, before: MemberId, after: MemberId) -> None:
        """Carry over to the next master, to which the mastership was handed over, grants and promises of the former one."""
        if self._follows == before:
            self._follows, self._inherited = after, self.until
            self._stamp = (None, 0)
        if self.bound_to == before:
            self.bound_to = after

    def echo(self, master: MemberId, now: Millis) -> Millis:
        """Bind this member to the master, and return the stamp to send back; 0: there is none to send."""
        whose, stamp = self._stamp
        if whose != master or not stamp or self.is_bound(master, now):
            return 0
        self.bind(master, now)
        return stamp

    def bind(self, master: MemberId, now: Millis) -> None:
        self.bound_to, self.bound_until = master, now + with_margin(self.lease_ms)

    def on_grant(self, master: MemberId, stamp: Millis, clock: Millis, granted_ms: Millis) -> bool:
        """Take the master's answer. Return whether to ask once more at once, because it is the first stamp of this master."""
        is_first = self._stamp[0] != master
        self._stamp = master, max(stamp, self._stamp[1] if not is_first else 0)
        if granted_ms:
            self.until = max(self.until, clock + granted_ms)
        return is_first

    # --- the master ------------------------------------------------------------------------------------------------

    def become_master(
        self, others: Collection[MemberId], now: Millis, promised_until: Millis, *, inherits: bool
    ) -> None:
        """Become the master. `inherits`: another one, whose grants this one does not know, has handed the mastership over."""
        self.until = self._inherited = self.until if inherits else 0
        self._echoes.clear()
        self._clocks.clear()
        most = now + with_margin(self.lease_ms)
        self._granted = dict.fromkeys(others, most) if inherits else {}
        bound_until = self.bound_until if self.bound_to is not None else 0
        self.holds_until = 0 if inherits else max(promised_until, bound_until)

    def await_grants(self, now: Millis) -> None:
        """Wait until all leases of a former master, whose vote counts here and whose grants are unknown, have run out."""
        if self.lease_ms:
            self.holds_until = max(self.holds_until, now + with_margin(self.lease_ms))

    def keep_only(self, members: Collection[MemberId]) -> None:
        """Follow a view with these members: wait until the leases of others have run out."""
        for member in [member for member in self._granted if member not in members]:
            self.holds_until = max(self.holds_until, self._granted.pop(member))
        for by_member in (self._echoes, self._clocks):
            for member in [member for member in by_member if member not in members]:
                del by_member[member]

    def on_request(self, member: MemberId, clock: Millis, echo: Millis) -> None:
        """Note a member's request, and the stamp that it echoes; 0: none."""
        self._clocks[member] = clock
        if echo:
            self._echoes[member] = max(echo, self._echoes.get(member, 0))

    def renew(self, footing: QuorumRecord | None, left: Collection[MemberId], now: Millis) -> bool:
        """Renew the master's own lease by the echoes. Return whether it has one, and had none before."""
        had = now < self.until
        if footing is None or not footing.has_majority:
            # Partitions that are reassigned meanwhile are served only by leases from echoes after the majority is back.
            self.until = 0
            self._echoes.clear()
            return False
        voices = dict(footing.former)
        heard = {voices.get(member, member): stamp for member, stamp in self._echoes.items()}
        heard |= dict.fromkeys(left, NEVER)
        if not self.is_bound(self._this, now):
            heard[voices.get(self._this, self._this)] = NEVER
        since = min(_echoed_by_most(view.voters, heard) for view in (footing.stable, *footing.pending))
        lasts_until = NEVER if since == NEVER else since + self.lease_ms if since else 0
        self.until = max(lasts_until, self._inherited)
        if since and not self.is_bound(self._this, now):
            # It counts itself, so it is bound like all others: it must not agree with another claimer before.
            self.bind(self._this, now)
        return now < self.until and not had

    def grant(self, member: MemberId, now: Millis) -> tuple[Millis, Millis]:
        """Return what the member's clock showed, and for how long from then on it can acknowledge."""
        granted_ms = max(0, min(self.lease_ms, self.until - now))
        if granted_ms:
            self._granted[member] = max(self._granted.get(member, 0), now + with_margin(granted_ms))
        return self._clocks.get(member, 0), granted_ms

    def requesters(self) -> list[MemberId]:
        """Return the members that have asked."""
        return list(self._clocks)


def _echoed_by_most(voters: tuple[MemberId, ...], heard: Mapping[MemberId, Millis]) -> Millis:
    """Return the latest stamp such that more than half of the voters have echoed it or a later one; 0: none."""
    stamps = sorted((heard.get(voter, 0) for voter in voters), reverse=True)
    return stamps[len(voters) // 2]
