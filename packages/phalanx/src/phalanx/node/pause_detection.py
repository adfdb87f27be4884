"""A member that was away does not serve before it knows that it is still a member.

A process can stand still for long: stopped, swapped out, its machine asleep. When it continues, all messages sent
meanwhile are still unread, its list is the old one, and for a moment nothing tells it that others went on without it.

1. A owns a key and stands still. 2. The others remove it; its backup B owns the key. 3. A call that A has not answered
is retried at B, which applies it; then a newer value is written. 4. A wakes up, applies the call that has waited for
it, with the present time, and answers reads by what it has.

So a member that finds that it was away (its own deadlines came late) refuses requests for data: callers ask again, and
by then know better which member. It cannot tell which requests have waited for it, and what its master says is no proof
that a caller on the other side of a cut has not had its answer. It asks its master, by a question that could not have
been answered before, whether it is in its list and has its table; if it is the master, it asks all others whether they
follow it, and needs the majority of its list. It repeats the question until

* that is answered: it serves again,
* or it learns that others went on: then its list is another one, or it is over,
* or members without an answer are suspected and leave its list, or it claims: then the new list, or master, is asked.
"""

from __future__ import annotations

from phalanx.common.config import NodeConfig
from phalanx.common.errors import ErrorCode
from phalanx.common.ids import NEVER, MemberId, Millis, Target
from phalanx.machine.alarms import Alarm
from phalanx.machine.outbox import Outbox
from phalanx.machine.routes import Routes, route_each, route_untimed
from phalanx.membership.service import MembershipService
from phalanx.partition.installed_table import InstalledTable
from phalanx.wire.messages import BulkRequest, ErrorReply, KeyRequest, PauseCheck, PauseCheckAnswer
from phalanx.wire.suspicion_events import ServesAgain, WokeUp

ON_ITS_OWN = -1
"""The table version in answers to a master, which does not ask for it."""


class ReviewTime:
    """The deadline of the next review of suspicions, which the membership does. Its alarm shows when the review is late."""

    def __init__(self, membership: MembershipService) -> None:
        self._membership = membership

    def next_deadline(self) -> Millis | None:
        return self._membership.review_at()

    def on_time(self, now: Millis) -> None:
        """Do nothing: the membership is due as well."""


class PauseDetection:
    """The time of one member from a late input, which shows a pause, until it can serve again."""

    def __init__(
        self, config: NodeConfig, membership: MembershipService, installed_table: InstalledTable, outbox: Outbox
    ) -> None:
        self._late_ms = min(
            config.heartbeat_interval_ms,
            config.heartbeat_timeout_ms - config.heartbeat_interval_ms,
            config.confirmation_timeout_ms - config.confirmation_interval_ms,
            config.phi_acceptable_pause_ms or config.heartbeat_timeout_ms,
        )
        """How late an input must be to show that this process was paused. Shorter pauses do no harm: nobody suspects a
        member before its heartbeat or confirmation is later than this."""
        self._retry_ms = config.retry_interval_ms
        self._membership = membership
        self._installed = installed_table
        self._out = outbox
        self.late_after: Millis = NEVER
        """An input later than this shows that the process was paused."""
        self.review = Alarm(ReviewTime(membership))
        self.last: Millis = 0
        """When the last input came. The node sets it, because each input passes through it."""
        self._number = 0
        """The number of the question that counts; every wake-up begins a new one."""
        self._since: Millis | None = None
        """When this member woke up; None: it serves."""
        self._ask_at: Millis = 0
        self._followers: set[MemberId] = set()
        """Members that have answered that they follow this one."""
        self._is_listed = False
        """Whether its master has answered."""
        self._refused = 0
        """The number of requests that were refused since it woke up."""

    def __repr__(self) -> str:
        return f"PauseDetection(since={self._since}, refused={self._refused}, followers={sorted(self._followers)})"

    @property
    def is_awake(self) -> bool:
        """Whether requests are served."""
        return self._since is None

    def serves(self, now: Millis) -> bool:
        """Return whether this member knows that it is a member, also at a moment before the input that follows."""
        return self._since is None and now <= self.late_after  # `is_awake`, without its call: asked for each local read

    def holds_until(self) -> Millis:
        """Return until when a master gives no partition to another owner: `NEVER` before it knows that it is followed."""
        return self._membership.majority.holds_until if self.is_awake else NEVER

    def refusals(self) -> Routes:
        """Return the routes of requests for data while this member is not awake."""
        return route_each(KeyRequest | BulkRequest, self.refuse)

    def refuse(self, caller: Target, request: KeyRequest | BulkRequest, now: Millis) -> None:
        """Refuse a request that came before this member is awake."""
        self._refused += 1
        self._out.send(caller, ErrorReply(request.id, ErrorCode.NOT_READY, "this member was away: ask again"))

    def wakes_up(self, now: Millis) -> bool:
        """Repeat the question if it is time. Return whether this member is awake from now on."""
        self._ask(now)
        return self._end_pause(now)

    # --- time ------------------------------------------------------------------------------------------------------

    def note_deadline(self, deadline: Millis | None) -> Millis | None:
        """Note the deadline that the driver is given, from which a late input is judged."""
        if not self.is_awake and (deadline is None or self._ask_at < deadline):
            deadline = self._ask_at
        if self.review.at != NEVER:
            self._membership.suspicions.note_deadline(self.review.at)
        self.late_after = max(deadline, self.last) + self._late_ms if deadline is not None else NEVER
        return deadline

    def notice(self, now: Millis) -> bool:
        """Note a late input: this member was away. Return whether it was awake before, and has to stop serving."""
        # Judged once for all inputs before the driver gets another deadline.
        self.late_after = NEVER
        was_awake = self.is_awake
        if self._membership.view is None:
            return False
        self._out.record(WokeUp(now - self.last, "C-23"))
        self._number += 1
        self._since = self._since if self._since is not None else now
        self._ask_at = now
        self._followers.clear()
        self._is_listed = False
        return was_awake

    def _ask(self, now: Millis) -> None:
        """Ask the master, or on the master all members, whether this member is still in the cluster, if it is time to."""
        membership = self._membership
        if self.is_awake or now < self._ask_at or membership.view is None:
            return
        self._ask_at = now + self._retry_ms
        asked: tuple[MemberId, ...] = (membership.master,) if membership.master is not None else ()
        if membership.is_master:
            asked = tuple(m for m in membership.view.others(membership.this) if m not in self._followers)
        elif membership.master == membership.this:
            asked = ()  # It claims, or has handed over: it waits for the outcome of that.
        for member in asked:
            self._out.send(member, PauseCheck(self._number))

    def routes(self) -> Routes:
        return route_untimed(PauseCheck, self.on_question), route_untimed(PauseCheckAnswer, self.on_answer)

    # --- answers ---------------------------------------------------------------------------------------------------

    def on_question(self, sender: MemberId, message: PauseCheck) -> None:
        """Answer a member that was away. A master that was away itself does not know the answer yet."""
        membership = self._membership
        view = membership.view
        if view is None or sender not in membership.members:
            return
        if membership.is_master and self.is_awake:
            table = self._installed.table.version
        elif membership.master == sender:
            table = ON_ITS_OWN
        else:
            return
        self._out.send(sender, PauseCheckAnswer(message.number, view.version, view.maker, table))

    def on_answer(self, sender: MemberId, message: PauseCheckAnswer) -> None:
        membership, view = self._membership, self._membership.view
        if self.is_awake or message.number != self._number or view is None:
            return
        if membership.is_master:
            self._followers.add(sender)
        elif sender == membership.master and (message.view_version, message.view_maker) == (view.version, view.maker):
            # What it has published came before this; if it was lost with a connection, the member asks again.
            self._is_listed = self._installed.table.version >= message.table_version

    def _end_pause(self, now: Millis) -> bool:
        """End the pause if this member is awake from now on. Return whether it is, or is over."""
        membership = self._membership
        view = membership.view
        if self.is_awake:
            return False
        if view is not None:
            followed_by = 1 + sum(1 for member in self._followers if member in membership.members)
            is_followed = membership.is_master and 2 * followed_by > len(view.members)
            if not is_followed and not (self._is_listed and membership.master != membership.this):
                return False
        self._out.record(ServesAgain(now - (self._since or 0), self._refused, "C-23"))
        self._since = None
        self._refused = 0
        return True
