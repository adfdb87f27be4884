"""Members that each name all others as seeds, and not themselves: which of them forms the cluster (PX-53).

None of them is the first by configuration. If each waited for another, none would ever have a cluster. So the one with
the smallest address forms it, when in one attempt all others

* have said that they are in no cluster, and
* have asked it to be admitted, and name exactly the same members.

Then all know the same members, and only one of these is the smallest. A member that does not answer can be in a cluster
that this member does not reach: 1. A, B and C are a cluster. 2. A is started again, and reaches only C, which is
started again, too. 3. If A did not wait for B, it would form another cluster. A member that can form one by another
rule (it names itself first, it finds its seeds, it comes back, or its release does not say) has precedence as long as
this member tries to join.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from phalanx.common.ids import Address

SHOWN = 8
"""How many addresses an error names."""


class MutualSeeds:
    """What one member knows of its seeds while it tries to join."""

    def __init__(self, own: Address, seeds: Collection[Address]) -> None:
        self._own = own
        self._seeds = frozenset(seeds)
        self._all = self._seeds | {own}
        self._answered: set[Address] = set()
        """Seeds that said in this attempt that they are in no cluster."""
        self._asked: set[Address] = set()
        """Seeds that asked this member in this attempt, and name the same members."""
        self._others: dict[Address, None] = {}
        """Members that asked this one, and can form a cluster by another rule."""
        self._differ: dict[Address, None] = {}
        """Seeds that asked this member, and name other members."""
        self._were_there: set[Address] = set()
        """Seeds that were found in no cluster, in any attempt."""

    def begin_attempt(self) -> None:
        """Count answers and questions anew: a process may have been started again since."""
        self._answered.clear()
        self._asked.clear()

    def on_answer(self, seed: Address) -> None:
        """Note that a seed is in no cluster."""
        self._answered.add(seed)
        self._were_there.add(seed)

    def on_joiner(self, address: Address, known: Iterable[Address], *, may_found: bool) -> None:
        """Note that a member asks this one to be admitted: `known` are its seeds."""
        if may_found:
            self._others[address] = None
        elif {address, *known} == self._all:
            self._asked.add(address)
        elif address in self._seeds:
            self._differ[address] = None

    def is_founder(self) -> bool:
        """Return whether this member forms the cluster now."""
        is_smallest = all(self._own < seed for seed in self._seeds)
        return is_smallest and not self._others and self._answered >= self._seeds and self._asked >= self._seeds

    def why_not(self) -> str:
        """Return why no cluster was formed, and what to do, for the end of an error; empty: nobody else was there."""
        if not self._were_there:
            return ""
        if self._others:
            return f"; {_names(self._others)} may form the cluster, and has not"
        why = ""
        if self._differ:
            why = f" and {_names(self._differ)} names others"
        elif absent := self._seeds - self._were_there:
            why = f" and {_names(absent)} does not answer"
        return (
            f"; no member names itself as the first seed{why}: name one of them first on all members, also on itself, or let all "
            f"name each other and run at the same time"
        )


def _names(addresses: Iterable[Address]) -> str:
    return ", ".join(sorted(addresses)[:SHOWN])
