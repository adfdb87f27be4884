"""The change from one view to the next, which machines that depend on the view follow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec

from phalanx.common.ids import MemberId, Millis
from phalanx.common.versions import Release
from phalanx.common.view import MembersView
from phalanx.wire.messages import JoinResponse, MembersUpdate


class ViewChange(msgspec.Struct, frozen=True):
    """One installation."""

    before: MembersView | None
    """The view that was installed before; None: this member has just joined."""
    view: MembersView
    told: MembersUpdate | JoinResponse | None
    """The master's message with the view; None: this member, the master, has made it."""
    seen: Mapping[MemberId, Release] = {}
    """Of a view that was claimed: all members of the lists of those that agreed, and what each speaks."""


class ViewFollower(Protocol):
    """A machine with variables that depend on the view."""

    def on_view(self, change: ViewChange, now: Millis) -> None:
        """Follow a view that was just installed."""
