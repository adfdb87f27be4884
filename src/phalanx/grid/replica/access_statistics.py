"""When and how often entries are read: noted by the owner, for maps whose merge policy compares that.

Who chooses such a policy has it noted, from then on; nobody else pays for it. What is noted goes along with copies of the
partition. It is not replicated with each read, so a failover forgets what was read since the last copy: then an entry
counts as read when it was written, and no more often than its backup knows.
"""

from __future__ import annotations

from collections.abc import Sequence

from phalanx.common.ids import Millis
from phalanx.common.map_settings import MapPlan
from phalanx.grid.replica.merge_policies import COUNTING

SPARE = 64
"""So many keys more than twice those that there are, and the readings of removed ones are dropped."""

Reading = tuple[int, Millis]
"""How often an entry was read, and when last by the grid's clock."""
NEVER: Reading = (0, 0)


def counts_reads(plan: MapPlan) -> bool:
    """Whether some map may have a policy that wants readings."""
    policies = [plan.usual.merge_policy, *(change.merge_policy for _, change in plan.maps)]
    return not COUNTING.isdisjoint(policies)


class AccessStatistics:
    """Of the entries of one replica."""

    __slots__ = ("of",)

    def __init__(self) -> None:
        self.of: dict[str, dict[bytes, Reading]] = {}
        """Map to the readings of its keys."""

    def note(self, name: str, key: bytes, entries: dict[bytes, bytes], at: Millis) -> None:
        """One of the entries of a map is read."""
        of = self.of.get(name)
        if of is None:
            of = self.of[name] = {}
        elif len(of) > 2 * len(entries) + SPARE:
            # Most of it is of removed keys.
            of = self.of[name] = {each: reading for each, reading in of.items() if each in entries}
        of[key] = of.get(key, NEVER)[0] + 1, at

    def find(self, name: str, key: bytes) -> Reading:
        of = self.of.get(name)
        return of.get(key, NEVER) if of is not None else NEVER

    def columns(self, name: str, keys: Sequence[bytes]) -> tuple[tuple[int, ...], tuple[Millis, ...]]:
        """Return the statistics of several keys; nothing if none of them was read."""
        of = self.of.get(name)
        if not of:
            return (), ()
        found = [of.get(key, NEVER) for key in keys]
        if not any(hits for hits, _ in found):
            return (), ()
        return tuple([hits for hits, _ in found]), tuple([at for _, at in found])

    def take(self, name: str, keys: Sequence[bytes], hits: Sequence[int], accessed: Sequence[Millis]) -> None:
        """Store statistics that a copy or a merge brings; without `hits`: nothing is known of these keys."""
        if not hits and name not in self.of:
            return
        of = self.of.setdefault(name, {})
        for index, key in enumerate(keys):
            if hits and hits[index]:
                of[key] = hits[index], accessed[index]
            else:
                of.pop(key, None)
