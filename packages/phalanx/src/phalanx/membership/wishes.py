"""Requests of this member's operator: to leave, or to hold no data. It repeats them to its master until they are fulfilled."""

from __future__ import annotations

from phalanx.common.ids import MemberId, Millis
from phalanx.machine.facts import FolderTakenUp
from phalanx.machine.local_context import LocalContext
from phalanx.membership.master_duties import MasterDuties
from phalanx.membership.state import MembershipState
from phalanx.membership.table_news import TableNews
from phalanx.membership.view_change import ViewChange
from phalanx.wire.messages import LeaveRequest, LiteRequest


class OwnWishes:
    """Requests that are not fulfilled yet."""

    def __init__(self, local: LocalContext, state: MembershipState, duties: MasterDuties, table: TableNews) -> None:
        self._local = local
        self._state = state
        self._duties = duties
        self._table = table
        self._by_operator = False
        """Whether this member was told to leave."""
        self._lacks_disk = False
        """Whether its disk has failed, and it is to leave when it holds nothing."""
        self.keeps = False
        """Whether it then comes back with what it has in its folder."""
        self._brings_data = local.brings_data
        """Whether a cluster can still go on with what this member has read from its folder."""
        self.lite: bool | None = self._after_bringing(local.config.lite)
        """Whether this member is to be a lite member; None: nothing is to change."""
        self._lite_before: bool | None = None
        """Whether the incarnation before this one was a lite member; None: there was none."""

    @property
    def to_leave(self) -> bool:
        """Whether this member is to leave. Because of its disk only while the table does not name it:

        1. A's disk has failed, B has what it held, and A asks to leave. 2. B crashes. 3. A's memory is better than none.
        """
        return self._by_operator or (self._lacks_disk and not self._table.replicas_of(self._local.this))

    @property
    def may_leave_at_once(self) -> bool:
        """Whether this member is to leave, and there can be no data that it alone holds."""
        return self.to_leave and not self._table.has_data

    @property
    def stays_for_others(self) -> bool:
        """Whether this member stays, or leaves only when another one has come that takes its data."""
        return not self.to_leave or self._duties.wait_for_joiners

    def want_to_leave(self, *, keeps: bool, because_of_disk: bool = False) -> None:
        """Note that this member is to leave. `keeps`: as `LeaveWanted`; who was told to hand over everything still does."""
        if because_of_disk:
            self._lacks_disk = True
            return
        self.keeps = keeps and (self.keeps or not self._by_operator)
        self._by_operator = True

    def to_ask(self) -> LeaveRequest:
        """Return how this member asks to leave."""
        return LeaveRequest(self.keeps, because_of_disk=not self._by_operator)

    def come_back(self, lite: bool | None) -> None:
        """Note whether the incarnation before this one was a lite member, or was to be one."""
        self._lite_before = lite
        if lite is not None:
            self.lite = self._after_bringing(lite)

    def _after_bringing(self, lite: bool) -> bool | None:
        """Return what to ask for. A member that has read replicas is a data member until a cluster has them, and then others.

        1. A ends, and holds the only replica of a partition, in its folder. 2. It is started again, as a lite member.
        """
        return True if lite and self._brings_data else None

    def on_folder_taken_up(self, fact: FolderTakenUp, now: Millis) -> None:
        """Ask from now on to be lite, if that is wanted: the table names all that this member holds."""
        self._brings_data = False

    @property
    def lite_now(self) -> bool | None:
        """Whether to ask to be a lite member, or a data member; None: neither, or not yet."""
        return None if self.lite and self._brings_data else self.lite

    def lite_to_carry(self) -> bool | None:
        """Return whether the next incarnation is to be a lite member; None: it is not known."""
        view = self._state.view
        lite = view.traits_of(self._local.this).lite if view is not None else self._lite_before
        return self.lite if self.lite is not None else lite

    def on_view(self, change: ViewChange, now: Millis) -> None:
        """Forget what is fulfilled. A new master that had asked the former one to leave begins to leave itself."""
        this = self._local.this
        if self._state.is_master and self.to_leave:
            self._duties.begin_leaving(this, self.to_ask(), change.view, now)
        if self.lite == change.view.traits_of(this).lite:
            self.lite = None

    def want_lite(self, lite: bool) -> bool:
        """Note that this member is to be lite, or to hold data, unless that is so. Return whether the master is to know now."""
        self.lite = lite if lite != self._state.joined().traits_of(self._local.this).lite else None
        return not lite or self.lite_now is not None

    def why_not_lite(self, lite: bool) -> str:
        """Say why this member is not lite, or not a data member, as it was asked to become; empty: it is."""
        view, this = self._state.view, self._local.this
        if view is None:
            return "this member is in no cluster now"
        if view.traits_of(this).lite == lite:
            return ""
        if not lite:
            return "the master has yet to say so"
        if view.data_members == (this,):
            return "no other member holds data: start one, or promote one first"
        if self._brings_data:
            return "no cluster has taken up yet what was read from its folder"
        held = self._table.replicas_of(this)
        return f"{held} replicas are still here" if held else "the master has yet to say so"

    def ask(self, master: MemberId) -> None:
        """Ask the master for what is not fulfilled yet."""
        if self.to_leave:
            self._local.out.send(master, self.to_ask())
        if self.lite_now is not None:
            self._local.out.send(master, LiteRequest(self.lite_now))
