"""On the master: which members reported that they cannot reach which others, and whether the reports have settled.

A report is the whole list of one member, and replaces its last one: a suspect that is not repeated is taken back.
Reports name *links*, pairs without a direction: one-way counts as both ways (PD-28), and the report of the other end of
a known link is no news. Time is counted in the master's own heartbeats (PD-21).

Settled means that no link was added or taken back for `rounds` heartbeats. A link that comes and goes must not delay
for ever what is to be done about others, so the wait ends `most` heartbeats after the first report. Members that lose
the same link find it within one heartbeat timeout of each other, so the wait is at least that long. After `most`, only
links count that are reported now and were first reported `rounds` heartbeats ago, whether or not they were reported
throughout.
"""

from __future__ import annotations

from collections.abc import Collection

from phalanx.common.evacuation import Link, link_of
from phalanx.common.ids import MemberId

UNREPEATED = 3
"""Large clusters, where each suspect is reported by itself: heartbeats after which one that is not repeated is taken
back. Two messages can be lost with their connections.
"""


class ConnectivityReports:
    """What slaves have reported to this master since it is the master."""

    def __init__(self, rounds: int, most: int) -> None:
        self._rounds = rounds
        self._most = max(most, rounds)
        self._by: dict[MemberId, tuple[MemberId, ...]] = {}
        """Reporter to the members that it cannot reach; no list is empty."""
        self._repeated: dict[Link, int] = {}
        """(reporter, suspect) of reports that come one by one to the tick of the last report."""
        self._ticks = 0
        self._since: dict[Link, int] = {}
        """Link that is reported now to the tick of its first report; a link that comes and goes keeps its age."""
        self._gone: dict[Link, tuple[int, int]] = {}
        """Link that was taken back recently to the ticks of its first report and of its end."""
        self._changed = 0
        self._began = 0

    def __repr__(self) -> str:
        return f"ConnectivityReports({self._by}, {self._ticks - self._changed} heartbeats without a change, of {self._rounds})"

    def __bool__(self) -> bool:
        return bool(self._since)

    @property
    def links(self) -> list[Link]:
        """Return the links that are reported now, in a fixed order."""
        return sorted(self._since)

    @property
    def by_reporter(self) -> dict[MemberId, tuple[MemberId, ...]]:
        return {reporter: self._by[reporter] for reporter in sorted(self._by)}

    def of(self, reporter: MemberId) -> tuple[MemberId, ...]:
        """Return the members that this one reported as unreachable."""
        return self._by.get(reporter, ())

    # --- what is reported ------------------------------------------------------------------------------------------

    def replace(self, reporter: MemberId, suspects: Collection[MemberId]) -> bool:
        """Take a member's whole list. Return whether it adds links or takes links back."""
        if suspects:
            self._by[reporter] = tuple(sorted(suspects))
        else:
            self._by.pop(reporter, None)
        return self._look()

    def add(self, reporter: MemberId, suspect: MemberId) -> bool:
        """Add one suspect to a member's list (large clusters). Return as `replace`."""
        self._repeated[reporter, suspect] = self._ticks
        return self.replace(reporter, {*self.of(reporter), suspect})

    def keep_only(self, members: Collection[MemberId]) -> bool:
        """Drop reports from and about members that are not in the view. Return as `replace`."""
        self._by = {
            reporter: left
            for reporter, suspects in self._by.items()
            if reporter in members and (left := tuple(suspect for suspect in suspects if suspect in members))
        }
        self._repeated = {pair: at for pair, at in self._repeated.items() if pair[1] in self.of(pair[0])}
        is_changed = self._look()
        self._gone = {link: times for link, times in self._gone.items() if all(end in members for end in link)}
        return is_changed

    def _look(self) -> bool:
        links = {link_of(reporter, suspect) for reporter, suspects in self._by.items() for suspect in suspects}
        if links == self._since.keys():
            return False
        if not self._since and not self._gone:
            self._began = self._ticks
        for link in sorted(links - self._since.keys()):
            self._since[link] = self._gone.pop(link, (self._ticks, 0))[0]
        for link in sorted(self._since.keys() - links):
            self._gone[link] = self._since.pop(link), self._ticks
        self._changed = self._ticks
        return True

    # --- time ------------------------------------------------------------------------------------------------------

    def tick(self) -> list[Link]:
        """Count a heartbeat of this master. Return reporter and suspect of each report that was not repeated, and is
        dropped.
        """
        self._ticks += 1
        # A link that stays whole for `rounds` heartbeats does not come and go.
        self._gone = {link: times for link, times in self._gone.items() if self._ticks - times[1] < self._rounds}
        unrepeated = [pair for pair, at in self._repeated.items() if self._ticks - at >= UNREPEATED]
        for reporter, suspect in unrepeated:
            del self._repeated[reporter, suspect]
            self.replace(reporter, [other for other in self.of(reporter) if other != suspect])
        return unrepeated

    @property
    def is_quiet(self) -> bool:
        """Whether all members have had time to report."""
        return bool(self._since) and self._ticks - self._changed >= self._rounds

    @property
    def is_overdue(self) -> bool:
        """Whether links that come and go are not waited for any more."""
        return bool(self._since) and self._ticks - self._began >= self._most

    def to_resolve(self) -> list[Link]:
        """Return the links that are to be resolved now; empty: none yet."""
        if self.is_quiet:
            return self.links
        if self.is_overdue:
            return [link for link in self.links if self._ticks - self._since[link] >= self._rounds]
        return []

    def begin_anew(self) -> None:
        """Begin the wait anew for the remaining links: the decision has been carried out."""
        self._changed = self._began = self._ticks
        self._gone.clear()
        self._since = dict.fromkeys(self._since, self._ticks)
