"""Whether a map may be used on this side of the cluster: asked when a request comes, and again when it is answered.

A map can ask for so many members, or for the majority of the last stable view (`common.map_settings`). The owner judges by
the view that it has installed, so what is checked and what is acted upon are one piece of state: the view is told here
before any write that waited for its backups is looked at again. Hence no write is acknowledged by a side whose view is
already too small, whenever it came:

1. A owns a key and B is its backup, in a map that needs three members. A write comes to A while C is there, too.
2. C and B are cut off. A waits for B. 3. The view without them comes: nobody is left to be waited for, but the caller must
not be told that the write is done, for the other side never hears of it.

Members that hold data are counted, and lite ones are not: those come and go without any data being at stake, and any number
of them beside a single owner would be no protection.

Until the view has shrunk a side that was cut off answers as before; how long that is, the failure detector says.
"""

from __future__ import annotations

from typing import Protocol

from phalanx.common.hidden_maps import target_of
from phalanx.common.ids import MemberId, Millis
from phalanx.common.map_settings import REMEMBERED_NAMES, MapPlan, Protection
from phalanx.common.view import MembersView
from phalanx.machine.outbox import Outbox
from phalanx.wire import events

REMEDY = "start or reconnect members, or change this with 'phalanx map protect'"


class MajorityQuestion(Protocol):
    """Who knows whether this side has the majority of the last stable view."""

    def may_acknowledge(self, now: Millis) -> bool:
        """Whether it has, and is sure of it at this moment."""
        ...

    def majority_words(self) -> str:
        """Say in words which majority is required and how much of it is here."""
        ...


class ProtectionGuard:
    """What one member knows of the protection of maps. It changes with the view, the table and, for the majority, time."""

    def __init__(self, this: MemberId, plan: MapPlan, majority: MajorityQuestion, outbox: Outbox) -> None:
        self.is_watchful = False
        """Whether any map may have to be refused: all that an operation costs where none is."""
        self.live = 0
        """Members of the installed view that hold data."""
        self._this = this
        self._plan = plan
        self._majority = majority
        self._out = outbox
        self._view: MembersView | None = None
        self._wants_majority = False
        self._is_protected: dict[str, bool] = {}
        """Of maps that were asked for since the settings changed."""
        self._refusing: dict[str, Protection] = {}
        """What is refused at present, by the name for which it was set."""

    def __repr__(self) -> str:
        return f"ProtectionGuard(live={self.live}, watchful={self.is_watchful}, refusing={list(self._refusing)})"

    def on_view(self, view: MembersView, now: Millis) -> None:
        """The view was installed: before anything is answered by it."""
        self._view, self.live = view, len(view.data_members)
        self._look(now)

    def on_plan(self, plan: MapPlan, now: Millis) -> None:
        """Settings of maps came with the table."""
        if plan is not self._plan:
            self._plan = plan
            self._is_protected.clear()
            self._look(now)

    def on_time(self, now: Millis) -> None:
        """The majority may have been lost, or come back, by time alone."""
        if self._wants_majority:
            self._look(now)

    def watches(self, name: str) -> bool:
        """Whether each operation on the map must be asked for: then nothing goes a short way past the owner."""
        is_protected = self._is_protected.get(name)
        if is_protected is None:
            if len(self._is_protected) >= REMEMBERED_NAMES:
                self._is_protected.clear()
            is_protected = self._is_protected[name] = self._plan.of(name).protection.is_on
        return is_protected and self.is_watchful

    def why_refused(self, name: str, *, is_write: bool, now: Millis) -> str:
        """Why the map must not be read or written here now; empty: it may be."""
        protection = self._plan.of(name).protection
        if not (protection.writes if is_write else protection.reads):
            return ""
        lacking = self._lacking(protection, now)
        if not lacking:
            return ""
        return f"map {target_of(name)!r} refuses {'writes' if is_write else 'reads'}: {lacking}; {REMEDY}"

    def why_withheld(self, name: str, now: Millis) -> str:
        """Why a write that was applied here must not be acknowledged; empty: it may be."""
        refusal = self.why_refused(name, is_write=True, now=now)
        return f"it was applied here and is not confirmed: {refusal}" if refusal else ""

    def _lacking(self, protection: Protection, now: Millis) -> str:
        """Say in words what is required and not here; empty: nothing."""
        if self._is_too_small(protection):
            by = f" by member list ver {self._view.version}" if self._view is not None else ""
            verb = "is" if self.live == 1 else "are"
            return f"it needs at least {protection.minimum} members that hold data, and {self.live} {verb} here{by}"
        if protection.majority and not self._majority.may_acknowledge(now):
            return f"it needs the majority: {self._majority.majority_words()}"
        return ""

    def _is_too_small(self, protection: Protection) -> bool:
        """Whether fewer are here than are required: as many will do (A.6-2)."""
        return self.live < protection.minimum

    def _look(self, now: Millis) -> None:
        """Something has changed: may anything be refused now, and is that told?"""
        plan = self._plan
        protections = plan.protections
        self._wants_majority = any(protection.majority for protection in protections)
        self.is_watchful = self._wants_majority or any(map(self._is_too_small, protections))
        if self._view is None or not (protections or self._refusing):
            return
        wished = {"*": plan.usual.protection} | {n: c.protection for n, c in plan.maps if c.protection is not None}
        for name, protection in self._refusing.copy().items():
            if name not in wished or not wished[name].is_on or not self._lacking(wished[name], now):
                del self._refusing[name]
                self._tell(name, wished.get(name, protection), "")
        for name, protection in wished.items():
            if protection.is_on and name not in self._refusing and (lacking := self._lacking(protection, now)):
                self._refusing[name] = protection
                self._tell(name, protection, lacking)

    def _tell(self, name: str, protection: Protection, lacking: str) -> None:
        view_version = self._view.version if self._view is not None else 0
        self._out.record(
            events.ProtectionChanged(
                name, bool(lacking), protection.minimum, protection.majority, protection.reads, protection.writes,
                self.live, view_version, lacking, owner=self._this,
            )
        )  # fmt: skip
