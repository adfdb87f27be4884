"""How a member rejoins: after a merge, or after others went on without it. It never gives up.

First it asks the members that it rejoins, and no others: another one can be of a side that is to end as well, and
answer first. If none of them is in a cluster, it asks them, the seeds, and all addresses where members were: a few at a
time, from the first again after the last, with growing pauses. The side that it rejoins can be gone: it can have joined
a third side, or all its members can have ended. Members that rejoin must then not wait for each other for ever:

1. Three sides become one, and a message is late: A joins B, B joins C, and C joins A. 2. All have ended. 3. All come
back, and find only others that come back.

So when one round over all addresses found no member in a cluster, the one with the smallest address of those that
answered forms the cluster anew; after `join_attempts` such rounds any member does. If there was a cluster behind a cut,
these are two sides like any others: the new one remembers where to look for it.

When all members of a cluster have been started again, nobody has to wait for the end of a round: all that this member knows of
are there, come back as well, and know nobody else (PX-54, as `MutualSeeds` for new members).
"""

from __future__ import annotations

from phalanx.common.former_incarnation import FormerIncarnation
from phalanx.common.ids import Address, MemberId, Millis, address_of
from phalanx.common.quorum import VoterHistory
from phalanx.machine.local_context import LocalContext
from phalanx.membership.join.joining import Joining, JoinOutcome
from phalanx.wire.messages import JoinRefused, JoinRequest

AT_ONCE = 32
"""One attempt asks so many addresses; the next one continues after them."""


class Rejoining(Joining):
    """The joining of a member that has been in the cluster."""

    can_be_mutual = False

    def __init__(
        self, local: LocalContext, now: Millis, past: FormerIncarnation, memory: VoterHistory | None = None
    ) -> None:
        super().__init__(local, now, memory, past.departures)
        own, config = address_of(local.this), local.config
        members = [address_of(member) for member in (*past.ask_first, *past.members)]
        former = [address for address, _ in reversed(past.former)]
        found = dict.fromkeys([*members[: len(past.ask_first)], *config.seed_addresses, *members, *former])
        self._everywhere = [address for address in found if address != own]
        self._own = own
        if past.lite is not None:
            self.traits = self.traits._replace(lite=past.lite and not local.brings_data)
        self._first_seed = False
        self._known = tuple(self._everywhere)
        self._next = -1
        """Where in `_everywhere` the next attempt begins; -1: it asks only those that this member comes back to."""
        self._first = [address for address in dict.fromkeys(members[: len(past.ask_first)]) if address != own][:AT_ONCE]
        self._turns = 0
        """How many rounds over all addresses were without success."""
        self._found_in_turn = False
        """Whether a process in a cluster was found in the present round."""
        self._also_looking: set[Address] = set()
        """Processes that answered in the present round that they are in no cluster either."""
        self._asked: set[Address] = set()
        """Members that have asked this one in the present round, come back as well, and know exactly the same members."""

    def __repr__(self) -> str:
        return f"Rejoining(turns={self._turns}, of={len(self._everywhere)}, also={sorted(self._also_looking)})"

    def begin(self, now: Millis) -> JoinOutcome:
        if not self._everywhere:
            return JoinOutcome.FORM
        self._begin_attempt(now)
        return JoinOutcome.WAITING

    def on_seeds(self, addresses: tuple[Address, ...], failures: tuple[str, ...], now: Millis) -> JoinOutcome:
        """Add addresses that sources of seeds name to those that it asks."""
        known = dict.fromkeys([*self._everywhere, *(each for each in addresses if each != self._own)])
        self._everywhere = list(known)
        self._known = tuple(known)
        return JoinOutcome.WAITING

    def on_refused(self, sender: MemberId, message: JoinRefused, now: Millis) -> JoinOutcome:
        if self.expects(message.request_id) and message.retry and not message.in_cluster:
            self._also_looking.add(address_of(sender))
        return super().on_refused(sender, message, now)

    def on_joiner(self, sender: MemberId, message: JoinRequest, now: Millis) -> JoinOutcome:
        address = address_of(sender)
        comes_back = message.cluster == self._local.config.cluster and message.memory is not None
        # It asks again and again, and what it knows can be thousands of addresses.
        if comes_back and address not in self._asked and {address, *message.known} == {self._own, *self._everywhere}:
            self._asked.add(address)
        return self._outcome()

    def _gives_up(self, target: MemberId | Address, reason: str) -> bool:
        """Return False: a refusal by a member that has left the cluster does not end the search for the others."""
        return False

    def _may_be_cluster(self) -> bool:
        """Return False: former members know this process' secret, so a peer that has not proved it is another program."""
        return False

    def _begin_attempt(self, now: Millis) -> None:
        if self._next < 0 and self._first:
            self._seeds, self._next = self._first, 0
        else:
            start = max(self._next, 0)
            self._seeds, self._next = self._everywhere[start : start + AT_ONCE], start + AT_ONCE
        super()._begin_attempt(now)

    def _outcome(self) -> JoinOutcome:
        """Return `FORM` if all come back. If none of those that it comes back to is in a cluster, it looks elsewhere at once."""
        everywhere = self._everywhere
        all_come_back = self._asked.issuperset(everywhere) and self._also_looking.issuperset(everywhere)
        if all_come_back and not self._found_cluster and self._own < min(everywhere, default=""):
            self.forms_by = "PX-54 the smallest of those that all come back forms the cluster"
            return JoinOutcome.FORM
        if self._next == 0 and self._without_cluster.issuperset(self._seeds) and not self._waiting_for:
            self._attempt_ends = min([self._attempt_ends, *self._ask_at.values()])
        return JoinOutcome.WAITING

    def _attempt_failed(self, now: Millis) -> JoinOutcome:
        self._note_failed_attempt()
        self._found_in_turn = self._found_in_turn or self._found_cluster
        if self._next > 0 and self._next >= len(self._everywhere):
            self._turns += 1
            if not self._found_in_turn and self._may_form():
                return JoinOutcome.FORM
            self._next = -1
            self._found_in_turn = False
            self._also_looking.clear()
            self._asked.clear()
            longest = max(self._local.config.join_timeout_ms, self._local.config.join_retry_pause_ms)
            self._retry_pause_ms = min(2 * self._retry_pause_ms, longest)
        self._begin_attempt(now)
        return JoinOutcome.WAITING

    def _may_form(self) -> bool:
        """Return whether this member forms the cluster anew, as none that it knows of is in one."""
        if self._turns >= self._local.config.join_attempts:
            return True
        return bool(self._also_looking) and self._own < min(self._also_looking)
