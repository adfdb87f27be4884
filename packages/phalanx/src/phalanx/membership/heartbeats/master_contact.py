"""How a slave keeps in contact with its master: it confirms that it follows, asks for a lease, and repeats its requests."""

from __future__ import annotations

from phalanx.common.ids import MemberId, Millis
from phalanx.machine.local_context import LocalContext
from phalanx.membership.join.gone_members import GoneMembers
from phalanx.membership.majority import Majority
from phalanx.membership.role import Role
from phalanx.membership.state import MembershipState
from phalanx.membership.table_news import TableNews
from phalanx.membership.wishes import OwnWishes
from phalanx.wire.messages import MasterConfirmation


class ConfirmationSender:
    """Confirms the master."""

    def __init__(self, local: LocalContext, state: MembershipState, table: TableNews, gone: GoneMembers) -> None:
        self._local = local
        self._state = state
        self._table = table
        self._gone = gone
        self._next = 0
        self._confirmed: MemberId | None = None
        """The master that this member confirmed last; a new master is confirmed at the next tick."""

    def note_time(self, now: Millis) -> None:
        """Note the time: what a confirmation says of former members is relative to it."""
        self._gone.note_time(now)

    def is_due(self, master: MemberId, now: Millis) -> bool:
        """Return whether it is time to confirm."""
        return now >= self._next or master != self._confirmed

    def send(self, master: MemberId, now: Millis) -> None:
        """Confirm that this member follows the master, and say what the master cannot know yet."""
        state, local, config = self._state, self._local, self._local.config
        view = state.joined()
        self._confirmed = master
        pause_ms = config.confirmation_interval_ms * state.watching.pace
        # In a large cluster, too, a lease must be renewed before it is over.
        self._next = now + (min(pause_ms, config.lease_ms // 4) if config.lease_ms else pause_ms)
        wants_answer = state.watching.is_ring and master not in state.watching.watched
        departures = self._gone.to_send_master(view)
        confirmation = MasterConfirmation(
            view.version, view.maker, self._table.version, wants_answer, local.read_clock(now),
            departures=departures, store=local.store if departures is not None else None,
        )  # fmt: skip
        local.out.send(master, confirmation)


class MasterContact:
    """What a slave does for its master, and a master for itself, at each tick."""

    def __init__(
        self, state: MembershipState, confirmations: ConfirmationSender, majority: Majority, wishes: OwnWishes
    ) -> None:
        self._state = state
        self._confirmations = confirmations
        self._majority = majority
        self._wishes = wishes
        self._asked_for_version = 0
        """The version of the newest list that a heartbeat named and that this member has requested from its master."""

    def begin_tick(self, now: Millis) -> None:
        """Note the time, and renew the lease of a master."""
        self._confirmations.note_time(now)
        if self._state.is_master:
            self._majority.renew(now)

    def on_tick(self, master: MemberId, now: Millis) -> None:
        """Confirm the master and repeat this member's requests to it, if it is time."""
        if self._confirmations.is_due(master, now):
            self._confirm(master, now)
            self._wishes.ask(master)

    def _confirm(self, master: MemberId, now: Millis) -> None:
        self._confirmations.send(master, now)
        self._majority.ask(master, now)

    def on_version(self, version: int, master: MemberId | None, now: Millis) -> None:
        """Confirm, in large clusters, a trusted master when another member names a list newer than this member's."""
        state = self._state
        is_news = version > state.joined().version and version > self._asked_for_version
        if is_news and state.watching.is_ring and state.role is Role.SLAVE:
            self._asked_for_version = version
            if master is not None:
                self._confirm(master, now)
