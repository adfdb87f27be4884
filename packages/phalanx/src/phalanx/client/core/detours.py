"""Decide when a client asks a member through another one, because its own way to that member is cut.

A cluster continues without a member that its members do not reach. A member that they reach and one client does not stays, and
owns its partitions. So the client has another member pass on a connection to it (`Hello.onward`), and asks there what it
would have asked directly, as the same sender: a write that has arrived both ways is applied once.

* *When it begins.* A call waits for a member; for `QUIET_MS` nothing has come from that, nor an answer to the question whether
  it is there, if a connection to it is open; and another member, which answers, has it in its list. If it has ended, the other
  one cannot connect to it either, and nothing changes.
* *When it ends.* While calls are made, the client tries the direct way every `LOOK_BACK_MS`, beside the detour.

A connection that is opened, directly or not, takes the place of the one before, at both ends.
"""

from __future__ import annotations

from phalanx.common.ids import MemberId, Millis, Target
from phalanx.common.view import MembersView

QUIET_MS: Millis = 1_000
"""For so long nothing is heard of a member before it is asked whether it is there, and then before there is a detour."""
FRESH_MS: Millis = 3_000
"""A member has answered lately if it told its table within this time."""
LOOK_BACK_MS: Millis = 5_000
"""The pause between two tries of the direct way."""


class Detours:
    """The ways of one core to members. `through` is shared by all cores of a client."""

    def __init__(self, through: dict[MemberId, MemberId]) -> None:
        """`through`: member that was not reached directly last, to the one through which it is asked."""
        self.through = through
        self.wanted: list[tuple[MemberId, MemberId | None]] = []
        """Connections for the driver to open beside the present ones: to a member, and through which one; None: directly."""
        self.remarks: list[str] = []
        """Texts for the log."""
        self._ways: dict[MemberId, MemberId | None] = {}
        """Member with an open connection to the one through which it goes; None: it is direct."""
        self._helpers: dict[MemberId, Millis] = {}
        """Members that can pass connections on, to when they told their table last."""
        self.heard: dict[MemberId, Millis] = {}
        """Member to when it was heard last."""
        self._asked: dict[MemberId, Millis] = {}
        """Member to when it was asked whether it is there."""
        self._tried: dict[MemberId, Millis] = {}
        """Member to when a detour to it was wanted last."""
        self._look_back_at: Millis = 0

    def way_to(self, target: Target) -> MemberId | None:
        """Return the member through which a new connection to the target is opened; None: directly."""
        return self.through.get(MemberId(target)) if self.through else None

    def note_table(self, member: Target, now: Millis) -> None:
        """Note that a member of the client's cluster has told its table."""
        if member in self._helpers:
            self._helpers[member] = now  # type: ignore[index]  # it is a key

    def opened(self, member: MemberId, through: MemberId | None) -> None:
        """Note an open connection. `through`: the member that passes it on; None: it is direct."""
        self._ways[member] = through
        if through is not None:
            if self.through.get(member) is None:
                self.remarks.append(
                    f"{member} cannot be reached from here: asking it through {through}, until a direct connection works again"
                )
            self.through[member] = through
            return
        self._helpers.setdefault(member, 0)
        if self.through.pop(member, None) is not None:
            self.remarks.append(f"{member} can be reached from here again")

    def lost(self, target: Target) -> None:
        """Note a connection that broke, or could not be opened."""
        member = MemberId(target)
        self._helpers.pop(member, None)
        if member in self._ways:
            del self._ways[member]
        else:
            self.through.pop(member, None)  # there is no such way any more

    def keep_to(self, view: MembersView) -> None:
        """Forget what is known of others than the members of a view."""
        for known in (self.through, self.heard, self._asked, self._tried):
            for member in [member for member in known if member not in view]:
                del known[member]

    def begin_probe(self, target: Target, since: Millis, view: MembersView, now: Millis) -> bool:
        """Decide how to reach a member for which a call has waited since `since`. Return whether to ask it now if it is there.

        A detour that is to be tried is in `wanted` afterwards.
        """
        member = MemberId(target)
        if member not in view:
            return False
        quiet_since = max(since, self.heard.get(member, 0))
        if now - quiet_since < QUIET_MS:
            return False
        if member in self._ways:
            asked_at = self._asked.get(member, -1)
            if asked_at < quiet_since:
                self._asked[member] = now
                return True
            if now - asked_at < QUIET_MS:
                return False
        helper = self._helper(member, view, now)
        if helper is not None and now - self._tried.get(member, -QUIET_MS) >= QUIET_MS:
            self._tried[member] = now
            self._look_back_at = now + LOOK_BACK_MS
            self.wanted.append((member, helper))
        return False

    def look_back(self, now: Millis) -> None:
        """Want a direct connection to each member that is asked through another one, from time to time."""
        if now < self._look_back_at:
            return
        self._look_back_at = now + LOOK_BACK_MS
        self.wanted += [(member, None) for member, through in self._ways.items() if through is not None]

    def _helper(self, member: MemberId, view: MembersView, now: Millis) -> MemberId | None:
        """Return the member that told its table last, of those that are reached directly: another one than before, if possible."""
        before = self._ways.get(member)
        able = [
            (helper != before, sent_at, helper)
            for helper, sent_at in self._helpers.items()
            if helper != member
            and helper in view
            and self._ways.get(helper, member) is None
            and now - sent_at <= FRESH_MS
        ]
        return max(able)[2] if able else None
