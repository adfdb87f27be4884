"""Whose word counts: what the member list that somebody tells is to a client that knows one already.

A member that hung, or was cut off, still has the list and the table of then, and tells them when it is asked: the list
of a cluster that went on without it. It may even have made a list of its own since, with itself alone. A client that
took its table would ask it for everything. But where a cluster was started anew there is nothing of the known one left,
and its successor counts its versions from the start. What tells these apart is who is in the lists:

* A list is never followed by one of a lower version (docs/protocol/membership.md).
* The master is the oldest member. So while anybody of the known list is left, the master of what became of it is one
  of that list, too: all others have joined later.
* Another cluster is believed only when each member of the known list is seen to be gone.
"""

from __future__ import annotations

import enum
from collections.abc import Collection

from phalanx.common.ids import Address, Target, address_of
from phalanx.common.view import MembersView


class Staleness(enum.Enum):
    """Of a list that was told, beside the known one."""

    CURRENT = enum.auto()
    """The known list, or what became of it."""
    BEHIND = enum.auto()
    """An older list, or one of the same version, of a member that the known list has: it has not got that list yet."""
    APART = enum.auto()
    """Of one who is in the cluster no more, or never was, while that goes on."""
    ANOTHER = enum.auto()
    """Of another cluster; of the known one nobody is left."""


def judge(known: MembersView, sender: Target, told: MembersView, silent: Collection[Address]) -> Staleness:
    """Judge the list `told` by `sender` against the known one.

    `silent`: where nobody, or another incarnation, was found when a member of the known list was looked for last.
    """
    occupied = {address_of(member) for member in told.members}
    left = [
        member
        for member in known.members
        if member in told or not (address_of(member) in occupied or address_of(member) in silent)
    ]
    if not left:
        return Staleness.ANOTHER
    if (told.version, told.maker) == (known.version, known.maker):
        return Staleness.CURRENT
    has_known_master = told.master in known
    if told.version > known.version and (has_known_master or all(member in told for member in left)):
        return Staleness.CURRENT
    return Staleness.BEHIND if has_known_master and sender in known else Staleness.APART
