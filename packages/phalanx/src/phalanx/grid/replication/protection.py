"""Split-brain protection: whether a map can be used on this side of the cluster, checked at each request and each
answer.

A map can require a number of members, or the majority of the last stable view (`common.map_settings`). The owner judges
by its installed view. It learns of a new view here before it looks at any write that waited for backups. So a side
whose view is already too small acknowledges no write, whenever that arrived:

1. A owns a key and B is its backup, in a map that needs three members. A write comes to A while C is there, too.
2. C and B are cut off. A waits for B. 3. The view without them comes: A has no backup left to wait for, but it must not
acknowledge the write, because the other side never hears of it.

Only members that hold data are counted. Lite members come and go without any data at stake, and any number of them
beside a single owner would protect nothing.

A side that was cut off answers as before until its view shrinks; the failure detector decides how long that takes.
With `lease_ms`, a map that needs the majority stops earlier: when the lease of its owner is over.

Every map refuses writes at a member whose disk has failed (`disk_guard`), in the same way.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from phalanx.common.errors import ErrorCode
from phalanx.common.hidden_maps import target_of
from phalanx.common.ids import Millis
from phalanx.common.map_plan import REMEMBERED_NAMES, MapPlan
from phalanx.common.map_settings import Protection
from phalanx.common.view import MembersView
from phalanx.machine.outbox import Outbox
from phalanx.wire.table_events import ProtectionChanged

REMEDY = "start or reconnect members, or change this with 'phalanx map protect'"


class WriteRefusal(NamedTuple):
    """Why a request is refused, or a write not acknowledged."""

    code: ErrorCode
    text: str


class MajorityQuestion(Protocol):
    """Knows whether this side has the majority of the last stable view."""

    def may_acknowledge(self, now: Millis) -> bool:
        """Return whether this side has the majority, and that is certain at this moment."""
        ...

    def majority_words(self) -> str:
        """Say in words which majority is required and how much of it is here."""
        ...


class ProtectionGuard:
    """Decides at one member which maps can be used. That changes with the view, the table and, for the majority, time."""

    def __init__(self, plan: MapPlan, look_every_ms: Millis, majority: MajorityQuestion, outbox: Outbox) -> None:
        """`look_every_ms`: between two questions whether the majority was lost with time alone, for the events."""
        self.is_watchful = False
        """Whether any map can be refused. If not, this check is all that an operation costs."""
        self.live = 0
        """The number of members of the installed view that hold data."""
        self.disk: WriteRefusal | None = None
        """What writes are told because this member's disk has failed; None: it has not."""
        self._plan = plan
        self._majority = majority
        self._out = outbox
        self._view: MembersView | None = None
        self._wants_majority = False
        self._look_every_ms = look_every_ms
        self._look_at: Millis = 0
        self._is_protected: dict[str, bool] = {}
        """Map to whether it is protected, for maps that were used since the settings changed."""
        self._refusing: dict[str, Protection] = {}
        """Name for which a protection is set (a map, or `*`) to the protection that refuses requests at present."""

    def __repr__(self) -> str:
        return f"ProtectionGuard(live={self.live}, watchful={self.is_watchful}, refusing={list(self._refusing)})"

    def on_view(self, view: MembersView, now: Millis) -> None:
        """Take a new view; called before any request is answered under it."""
        self._view, self.live = view, len(view.data_members)
        self._look(now)

    def on_plan(self, plan: MapPlan, now: Millis) -> None:
        """Take the settings of maps from a new table."""
        if plan is not self._plan:
            self._plan = plan
            self._is_protected.clear()
            self._look(now)

    def on_disk(self, refusal: WriteRefusal | None, now: Millis) -> None:
        """Refuse all writes because the disk of this member has failed. None: it has not."""
        self.disk = refusal
        self._look(now)

    def next_deadline(self) -> Millis | None:
        """Return when to check the majority again: it can be lost, or come back, with time alone."""
        return self._look_at if self._wants_majority else None

    def on_time(self, now: Millis) -> None:
        """Check the majority again, if it is time to."""
        if self._wants_majority and now >= self._look_at:
            self._look(now)

    def watches(self, name: str) -> bool:
        """Return whether each operation on the map must be checked, so that fast paths past the checks are closed. `name`: "" of a merge."""
        is_protected = self._is_protected.get(name)
        if is_protected is None:
            if len(self._is_protected) >= REMEMBERED_NAMES:
                self._is_protected.clear()
            is_protected = self._is_protected[name] = bool(name) and self._plan.of(name).protection.is_on
        return (is_protected or self.disk is not None) and self.is_watchful

    def find_refusal(self, name: str, *, is_write: bool, now: Millis) -> WriteRefusal | None:
        """Return why the map must not be read or written here now; None: it can be."""
        why = self.why_refused(name, is_write=is_write, now=now)
        if why:
            return WriteRefusal(ErrorCode.NOT_ENOUGH_MEMBERS, why)
        return self.disk if is_write else None

    def why_refused(self, name: str, *, is_write: bool, now: Millis) -> str:
        """Say why the map's protection forbids to read or write it here now; empty: it does not."""
        protection = self._plan.of(name).protection
        if not (protection.writes if is_write else protection.reads):
            return ""
        lacking = self._lacking(protection, now)
        if not lacking:
            return ""
        return f"map {target_of(name)!r} refuses {'writes' if is_write else 'reads'}: {lacking}; {REMEDY}"

    def find_withheld(self, name: str, now: Millis) -> WriteRefusal | None:
        """Return why a write that was applied here must not be acknowledged; None: it can be. `name`: "" of a merge, which no protection of
        a map refuses.

        A caller that can ask another owner soon asks that one: its answer holds.
        """
        refusal = self.find_refusal(name, is_write=True, now=now) if name else self.disk
        if refusal is None:
            return None
        code = ErrorCode.OWNERSHIP_LOST if refusal.code is ErrorCode.NOT_READY else ErrorCode.INDETERMINATE
        return WriteRefusal(code, f"it was applied here and is not confirmed: {refusal.text}")

    def _lacking(self, protection: Protection, now: Millis) -> str:
        """Say which requirement is not met here; empty: all are met."""
        if self._is_too_small(protection):
            by = f" by member list {self._view.version}" if self._view is not None else ""
            verb = "is" if self.live == 1 else "are"
            return f"it needs at least {protection.minimum} members that hold data, and {self.live} {verb} here{by}"
        if protection.majority and not self._majority.may_acknowledge(now):
            return f"it needs the majority: {self._majority.majority_words()}"
        return ""

    def _is_too_small(self, protection: Protection) -> bool:
        """Return whether fewer members are here than are required: exactly as many suffice (A.6-2)."""
        return self.live < protection.minimum

    def _look(self, now: Millis) -> None:
        """Find out, after a change, which protections refuse requests now, and record those that begin or end to."""
        plan = self._plan
        protections = plan.protections
        self._look_at = now + self._look_every_ms
        self._wants_majority = any(protection.majority for protection in protections)
        self.is_watchful = self._wants_majority or self.disk is not None or any(map(self._is_too_small, protections))
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
            ProtectionChanged(
                name, bool(lacking), protection.minimum, protection.majority, protection.reads, protection.writes,
                self.live, view_version, lacking, owner=self._out.this,
            )
        )  # fmt: skip
