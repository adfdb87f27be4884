"""How a member joins a cluster whose seeds are found over time, by names of the DNS or in a file
(docs/protocol/joining.md).

Members that start together see each other at different times: one finds nothing in the DNS, one itself, one all others.
As in `Joining`, a member asks all that it knows of, also those that asked it, and those that they know of. When none is
in a cluster, one of them forms it, and the others wait: the one with the smallest address of those that run, and only
when

* a source has given an address, or another member has asked (an empty answer says nothing about which members exist),
  and
* for `seeds_settle_ms` it has learnt of no new member, and
* each member that it knows of said in this attempt that it has no cluster either, or could not be reached twice in a
  row; or two attempts found no member in a cluster.

Two members that know nothing of each other can still both do so. They are then two sides of one cluster, and find each
other as such: masters look at what sources give (`merge/merging.py`).
"""

from __future__ import annotations

from collections.abc import Collection

from phalanx.common.ids import Address, MemberId, Millis, address_of
from phalanx.common.quorum import VoterHistory
from phalanx.common.seeds import MOST_FOUND
from phalanx.machine.inputs import LinkLost, LinkRefused
from phalanx.machine.local_context import LocalContext
from phalanx.membership.join.joining import Joining, JoinOutcome
from phalanx.wire.messages import JoinRefused, JoinRequest

QUIET_ATTEMPTS = 2
"""After so many attempts without a trace of a cluster, members that do not answer count as absent."""
MOST_SENT = 64
"""How many addresses a joiner tells others."""


class Discovering(Joining):
    """The joining of a member with sources of seeds."""

    can_be_mutual = False
    forms_by = "PX-40 the smallest of those that were found forms the cluster"

    def __init__(self, local: LocalContext, now: Millis, memory: VoterHistory | None = None) -> None:
        super().__init__(local, now, memory)
        self._own = address_of(local.this)
        self._first_seed = False
        self._fixed = tuple(self._seeds)
        self._found: tuple[Address, ...] = ()
        """What sources have given last."""
        self._heard_of: dict[Address, None] = {}
        """Addresses of members that asked this one, and of those that they know of."""
        self._failures: tuple[str, ...] = ()
        """Why sources failed when they were asked last."""
        self._settles_at: Millis | None = None
        """Until when no new member must appear; None: that time is over, or has not begun."""
        self._quiet = 0
        """How many attempts in a row found no trace of a cluster."""
        self._also_looking: set[Address] = set()
        """Members that answered in this attempt that they are in no cluster either."""

    def __repr__(self) -> str:
        return (
            f"Discovering(attempt={self._attempt}, found={list(self._found)}, heard_of={list(self._heard_of)}, "
            f"settles_at={self._settles_at}, also={sorted(self._also_looking)}, failures={self._failures})"
        )

    @property
    def heard_of(self) -> Collection[Address]:
        return self._heard_of

    def begin(self, now: Millis) -> JoinOutcome:
        self._begin_attempt(now)
        return JoinOutcome.WAITING

    def next_deadline(self) -> Millis:
        deadline = super().next_deadline()
        return deadline if self._settles_at is None else min(deadline, self._settles_at)

    def on_time(self, now: Millis) -> JoinOutcome:
        if self._settles_at is not None and now >= self._settles_at:
            self._settles_at = None
            if self._outcome() is JoinOutcome.FORM:
                return JoinOutcome.FORM
        return super().on_time(now)

    # --- whom it learns of -----------------------------------------------------------------------------------------

    def on_seeds(self, addresses: tuple[Address, ...], failures: tuple[str, ...], now: Millis) -> JoinOutcome:
        """Take the addresses that sources have given, or their failures."""
        is_first = not self._found and bool(addresses)
        self._found, self._failures = addresses, failures
        self._follow_known(now, settles_anew=is_first)
        return self._outcome()

    def on_joiner(self, sender: MemberId, message: JoinRequest, now: Millis) -> JoinOutcome:
        """Note a member that looks for a cluster, too. It is possible that only one of the two knows of the other."""
        if message.cluster != self._local.config.cluster:
            return JoinOutcome.WAITING
        for address in (address_of(sender), *message.known[:MOST_SENT]):
            if address != self._own and len(self._heard_of) < MOST_FOUND:
                self._heard_of.setdefault(address)
        self._follow_known(now, settles_anew=False)
        return JoinOutcome.WAITING

    def _follow_known(self, now: Millis, *, settles_anew: bool) -> None:
        """Ask new members at once, and drop those that sources name no more."""
        before = self._seeds
        wanted = dict.fromkeys([*self._fixed, *self._found, *self._heard_of])
        self._seeds = [address for address in wanted if address != self._own]
        self._known = tuple(self._seeds[:MOST_SENT])
        for gone in set(before).difference(self._seeds):
            self._ask_at.pop(gone, None)
            for kept in (self._waiting_for, self._without_cluster, self._unreachable, self._also_looking):
                kept.discard(gone)
        new = [address for address in self._seeds if address not in before]
        if new or settles_anew:
            self._settles_at = now + self._local.config.seeds_settle_ms
        for address in new:
            self._ask(address)

    # --- what they answer ------------------------------------------------------------------------------------------

    def on_refused(self, sender: MemberId, message: JoinRefused, now: Millis) -> JoinOutcome:
        if self.expects(message.request_id) and message.retry and not message.in_cluster:
            self._also_looking.add(address_of(sender))
        outcome = super().on_refused(sender, message, now)
        if self.expects(message.request_id) and not message.retry:
            # It is there and belongs to something else, or this member is configured wrongly: no reason to found anything.
            self._note_cluster(address_of(sender))
            return JoinOutcome.WAITING if outcome is JoinOutcome.FORM else outcome
        return outcome

    def on_unreachable(self, event: LinkLost | LinkRefused, now: Millis) -> JoinOutcome:
        was_asked = event.peer in self._waiting_for
        outcome = super().on_unreachable(event, now)
        if was_asked and isinstance(event, LinkRefused) and event.final:
            self._note_cluster(address_of(event.peer))  # type: ignore[arg-type]  # only members and their addresses are asked
            return JoinOutcome.WAITING if outcome is JoinOutcome.FORM else outcome
        return outcome

    def _gives_up(self, target: MemberId | Address, reason: str) -> bool:
        """Return whether the refusal is of a configured seed. A DNS record can lead to a stranger by now."""
        return address_of(target) in self._fixed and super()._gives_up(target, reason)

    # --- its end ---------------------------------------------------------------------------------------------------

    def _outcome(self) -> JoinOutcome:
        is_asked_anew = self._waiting_for <= self._without_cluster
        if self._may_form() and self._without_cluster.issuperset(self._seeds) and is_asked_anew:
            return JoinOutcome.FORM
        return JoinOutcome.WAITING

    def _may_form(self) -> bool:
        """Return whether this member forms the cluster, as far as that does not depend on missing answers."""
        knows = bool(self._found or self._heard_of)
        is_smallest = all(self._own < other for other in self._also_looking)
        return knows and self._settles_at is None and not self._found_cluster and is_smallest

    def _begin_attempt(self, now: Millis) -> None:
        self._also_looking.clear()
        super()._begin_attempt(now)

    def _attempt_failed(self, now: Millis) -> JoinOutcome:
        self._note_failed_attempt()
        self._quiet = 0 if self._found_cluster else self._quiet + 1
        if self._quiet >= QUIET_ATTEMPTS and self._may_form():
            return JoinOutcome.FORM
        if self._attempt < self._local.config.join_attempts:
            self._begin_attempt(now)
            return JoinOutcome.WAITING
        reasons = [*self._failures, *(f"{seed}: {self._reasons.get(seed, 'no answer')}" for seed in self._seeds[:8])]
        self.failure = (
            f"Unable to join the cluster after {self._attempt} attempts ({'; '.join(reasons) or 'no seed was found'}). Look at what "
            f"the seeds {', '.join(self._local.config.seeds)} give on this machine"
        )
        return JoinOutcome.FAILED
