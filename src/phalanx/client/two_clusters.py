"""Whether two member lists are of one cluster; and whether a client whose cluster is gone may go on with another one.

Two members that were started without each other's address form two clusters of one name, and stay two. A client that went
from one to the other would read what its program never wrote there. The two sides of a cut are something else, as are the
same cluster after a merge, and its successor after a restart: a client has to work on whatever side it is. What tells these
apart:

* *Founders.* A cluster has the member that founded it in its footing (`common.quorum`), and both sides of a cut keep it. A
  cluster to which others have come, by a merge, names their founders too. Lists that share a founder are of one cluster.
* *Sides that look for each other* will be one, whoever founded them.
* *Age.* A restart begins after the last sign of life of what was there before. So a cluster that was founded before the
  client's own last answered existed beside it. Ages and waits are lengths of time, each measured by one clock: they need no
  clocks that agree.
* *Places.* A cluster that has taken all the addresses of the known one, and no address that the client was not given, is
  what an operator made of it, member by member.

A cluster that was founded while a client was at rest, or while its own one hung, is taken for a restart: nobody can tell.
Members of an earlier version do not name founders: then nobody can tell either, and the client goes over.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from phalanx.common.errors import TwoClusters
from phalanx.common.ids import Address, MemberId, Millis, address_of
from phalanx.common.view import MembersView
from phalanx.wire.messages import TableReply

DRIFT = 1_000
"""Clocks that measure one time may differ by one part in so many."""
ROUNDING_MS: Millis = 2


class Side(NamedTuple):
    """A cluster, or one side of it after a cut, as one of its members told it."""

    view: MembersView
    sought: tuple[Address, ...] = ()
    """Where it looks for others of its cluster."""
    founders: tuple[MemberId, ...] = ()
    """Its own first; empty: not told."""

    @property
    def addresses(self) -> frozenset[Address]:
        """Return the addresses of its members."""
        return frozenset(map(address_of, self.view.members))

    def described(self, cluster: str) -> str:
        """Name, founder, master and list, for people."""
        view, count = self.view, len(self.view.members)
        others = f" and {count - 1} more" if count > 1 else ""
        founded = f"founded by {self.founders[0]}, " if self.founders else ""
        at = address_of(view.master)
        return (
            f"cluster {cluster!r} of {at}{others} ({founded}master {view.master}, list {view.version} of {view.maker})"
        )


def side_of(reply: TableReply, known: Side | None = None) -> Side:
    """The side whose member answered; `known`: what is known of it, where that member does not name founders."""
    return Side(reply.view, reply.sought, reply.founders or (known.founders if known is not None else ()))


def look_for_each_other(one: Side, other: Side) -> bool:
    """Whether one of the two looks for members where the other one has some."""
    return not (one.addresses.isdisjoint(other.sought) and other.addresses.isdisjoint(one.sought))


def are_apart(one: Side, other: Side) -> bool:
    """Whether these are known to be two clusters: others founded them, and neither looks for the other."""
    if not one.founders or not other.founders or not set(one.founders).isdisjoint(other.founders):
        return False
    return not look_for_each_other(one, other)


def conflict_of_seeds(cluster: str, one: Side, other: Side, seed: Address) -> str:
    """Return what to tell a user whose addresses lead to two clusters; empty: they lead to one."""
    if one.addresses & other.addresses or look_for_each_other(one, other):
        return ""
    return (
        f"the addresses belong to two clusters of one name: {one.described(cluster)}; and {other.described(cluster)}, by "
        f"{seed}. Neither knows of the other: give the addresses of one, or start the members of one again with --seed "
        f"(setting seeds) and an address of the other"
    )


def check_founders(cluster: str, begun: Collection[str], reached: Collection[str]) -> None:
    """A job began with one cluster, and one of its tasks has reached another. Raises `TwoClusters` if that is known."""
    if begun and reached and set(begun).isdisjoint(reached):
        raise TwoClusters(
            f"the job began with the cluster {cluster!r} that {next(iter(begun))} founded, and a task has reached another one, "
            f"founded by {next(iter(reached))}: the cluster was started anew meanwhile, or the addresses are those of two "
            f"clusters. Run the job again, with the addresses of the one that is meant"
        )


def could_be_restart(age_ms: Millis, silent_ms: Millis) -> bool:
    """Whether a cluster may have been founded after the last sign of life of another one, so long ago."""
    return age_ms <= silent_ms + silent_ms // DRIFT + ROUNDING_MS
