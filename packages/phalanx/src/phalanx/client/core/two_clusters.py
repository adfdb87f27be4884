"""Decide whether two views belong to one cluster, and whether a client whose cluster is gone can follow another one.

Two members that were started without each other's address form two clusters of one name, and stay two. A client that
changed from one to the other would read data that its program never wrote. Two sides of a cut are another case, and so
are the same cluster after a merge and its successor after a restart: there the client has to work on. The differences:

* *Founders.* The quorum state of a cluster (`common.quorum`) names the member that founded it, and both sides of a cut
  keep it. After a merge it also names the founders of the merged clusters. Views that share a founder are of one
  cluster.
* *Sides that look for each other* will be one cluster, whichever member founded them.
* *Age.* A restarted cluster is founded after the last sign of life of the former one. So a cluster that was founded
  before the known one answered last existed beside it. Ages are durations, each measured by one clock, so the clocks of
  members and clients need not agree.
* *Places.* A cluster that has all addresses of the known one, and otherwise only addresses that the client was given,
  is its successor: an operator replaced it member by member.

A cluster that was founded while the client was idle, or while its own cluster hung, counts as a restart: this cannot be
told apart. Members of an earlier version name no founders: this cannot be told apart either, and the client follows.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from phalanx.common.errors import TwoClusters
from phalanx.common.ids import Address, MemberId, Millis, address_of
from phalanx.common.restored_cluster import stay_apart
from phalanx.common.view import MembersView
from phalanx.wire.messages import TableReply

DRIFT = 1_000
"""Two clocks that measure the same duration can differ by one part in this many."""
ROUNDING_MS: Millis = 2


class Side(NamedTuple):
    """A cluster, or one side of it after a cut, as one of its members describes it."""

    view: MembersView
    sought: tuple[Address, ...] = ()
    """The addresses where it looks for other sides of its cluster."""
    founders: tuple[MemberId, ...] = ()
    """The founder of this cluster, then those of merged clusters; empty: not told."""

    @property
    def addresses(self) -> frozenset[Address]:
        """Return the addresses of its members."""
        return frozenset(map(address_of, self.view.members))

    def described(self, cluster: str) -> str:
        """Return a text with the name, founder, master and members, for people."""
        view, count = self.view, len(self.view.members)
        others = f" and {count - 1} more" if count > 1 else ""
        founded = f"founded by {self.founders[0]}, " if self.founders else ""
        at = address_of(view.master)
        return (
            f"cluster {cluster!r} of {at}{others} ({founded}master {view.master}, list {view.version} of {view.maker})"
        )


def side_of(reply: TableReply, known: Side | None = None) -> Side:
    """Return the side of the member that answered; `known` gives the founders if the member does not name them."""
    return Side(reply.view, reply.sought, reply.founders or (known.founders if known is not None else ()))


def look_for_each_other(one: Side, other: Side) -> bool:
    """Return whether one of the two sides looks for members at an address of the other."""
    return not (one.addresses.isdisjoint(other.sought) and other.addresses.isdisjoint(one.sought))


def are_apart(one: Side, other: Side) -> bool:
    """Return whether these are surely two clusters: they have no founder in common, and neither looks for the other, or one was
    restored from a backup."""
    if not one.founders or not other.founders or not set(one.founders).isdisjoint(other.founders):
        return False
    return stay_apart(one.founders, other.founders) or not look_for_each_other(one, other)


def conflict_of_seeds(cluster: str, one: Side, other: Side, seed: Address) -> str:
    """Return the error text for a user whose addresses lead to two clusters; empty: they lead to one."""
    if one.addresses & other.addresses or look_for_each_other(one, other):
        return ""
    return (
        f"the addresses belong to two clusters of one name: {one.described(cluster)}; and {other.described(cluster)}, by "
        f"{seed}. Neither knows of the other: give the addresses of one, or start the members of one again with --seed "
        f"(setting seeds) and an address of the other"
    )


def check_founders(cluster: str, begun: Collection[str], reached: Collection[str]) -> None:
    """Raise `TwoClusters` if a job began with one cluster and one of its tasks has surely reached another."""
    if begun and reached and set(begun).isdisjoint(reached):
        raise TwoClusters(
            f"the job began with the cluster {cluster!r} that {next(iter(begun))} founded, and a task has reached another one, "
            f"founded by {next(iter(reached))}: the cluster was started again meanwhile, or the addresses are those of two "
            f"clusters. Run the job again, with the addresses of the cluster that you want"
        )


def could_be_restart(age_ms: Millis, silent_ms: Millis) -> bool:
    """Return whether a cluster that is `age_ms` old may have been founded after the other one was heard last."""
    return age_ms <= silent_ms + silent_ms // DRIFT + ROUNDING_MS
