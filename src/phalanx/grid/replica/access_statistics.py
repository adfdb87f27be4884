"""When and how often entries are read: recorded by the owner, for maps whose merge policy compares that.

Reads are recorded from the moment at which such a policy is chosen; other maps pay nothing. The statistics travel with
copies of the partition. They are not replicated with each read, so a failover forgets the reads since the last copy:
then an entry counts as last read when it was written, and as often as the backup knows.
"""

from __future__ import annotations

from collections.abc import Sequence

from phalanx.common.ids import Millis
from phalanx.common.map_settings import MapPlan
from phalanx.grid.replica.merge_policies import COUNTING

SPARE = 64
"""With so many more than twice the map's present keys, the statistics of removed keys are dropped."""

Reading = tuple[int, Millis]
"""How often an entry was read, and when it was last read, by the grid's clock."""
NEVER: Reading = (0, 0)


def counts_reads(plan: MapPlan) -> bool:
    """Whether the settings give any map a policy that compares access statistics."""
    policies = [plan.usual.merge_policy, *(change.merge_policy for _, change in plan.maps)]
    return not COUNTING.isdisjoint(policies)


class AccessStatistics:
    """The access statistics of the entries of one replica."""

    __slots__ = ("of",)

    def __init__(self) -> None:
        self.of: dict[str, dict[bytes, Reading]] = {}
        """Map to the statistics of its keys."""

    def note(self, name: str, key: bytes, entries: dict[bytes, bytes], at: Millis) -> None:
        """Count a read of one of the entries of a map."""
        of = self.of.get(name)
        if of is None:
            of = self.of[name] = {}
        elif len(of) > 2 * len(entries) + SPARE:
            # Most of these keys are removed.
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
