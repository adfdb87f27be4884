"""What must be moved before the master removes members that still reach it: a value, from membership to partitions."""

from __future__ import annotations

import msgspec

from phalanx.common.ids import MemberId, Millis

Link = tuple[MemberId, MemberId]
"""Two members, at least one of which does not hear the other; in the order of their names."""


def link_of(one: MemberId, other: MemberId) -> Link:
    return (one, other) if one < other else (other, one)


class Evacuation(msgspec.Struct, frozen=True):
    """Move what only the removed hold to those that are kept."""

    kept: frozenset[MemberId]
    removed: tuple[MemberId, ...]
    links: frozenset[Link]
    """The broken links: no data goes over them."""
    until: Millis

    def are_apart(self, one: MemberId, other: MemberId) -> bool:
        return link_of(one, other) in self.links
