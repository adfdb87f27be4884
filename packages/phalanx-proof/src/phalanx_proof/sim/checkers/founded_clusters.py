"""Which cluster the lines of partitions belong to, where a process that knows nothing of it founds another one."""

from __future__ import annotations

from phalanx.common.ids import MemberId
from phalanx.common.view import MembersView


class FoundedClusters:
    """Tells the cluster that was first from those that others found.

    1. The folder of A is emptied. 2. B and C end. 3. A, a seed, founds a cluster: it cannot know that there was one. 4. B and C come back,
    and A's cluster refuses them (DU-24). What callers find at A says nothing of what B and C have.

    As soon as a member is in the view that has had a table of the first cluster, the two are one.
    """

    def __init__(self) -> None:
        self.founder_of: dict[MemberId, MemberId] = {}
        """Member to who founded its cluster, as it says. The owner sets it."""
        self._root: MemberId | None = None
        """Who founded the first cluster, or the one that it has become part of."""
        self._known_to: set[str] = set()
        """The folders, and members without one, that have had a table of that cluster."""

    def note_table(self, member: MemberId, view: MembersView | None) -> bool:
        """Note that a member has installed a table, and tell whether it is of another cluster."""
        root = self.founder_of.get(member)
        if view is None or root is None:
            return False
        if self._root is None or any(self._name_of(each, view) in self._known_to for each in view.members):
            self._root = root
        if root != self._root:
            return True
        self._known_to.add(self._name_of(member, view))
        return False

    def _name_of(self, member: MemberId, view: MembersView) -> str:
        start = dict(view.stores).get(member)
        return start.store if start is not None else member
