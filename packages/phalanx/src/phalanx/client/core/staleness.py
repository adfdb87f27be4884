"""Judge whether a view that a member sends is newer or staler than the view that a client knows.

A member that hung, or was cut off, answers with its old view and table, from before the cluster continued without it. It
can even have made a view of its own since, with itself alone. A client that took its table would ask it for everything.
But after a restart of the whole cluster no known member is left, and the new cluster counts its versions from the
start. The members of the views show the difference:

* The version of the view never decreases (docs/protocol/membership.md).
* The master is the oldest member. So while any member of the known view is left, the master of a newer view is a member
  of the known view, too: all others have joined later.
* Another cluster is believed only when each member of the known view is found to be gone.
"""

from __future__ import annotations

import enum
from collections.abc import Collection

from phalanx.common.ids import Address, Target, address_of
from phalanx.common.view import MembersView


class Staleness(enum.Enum):
    """How a received view compares with the known one."""

    CURRENT = enum.auto()
    """It is the known view, or a newer view of the same cluster."""
    BEHIND = enum.auto()
    """It is an older view, or another one of the same version, from a member of the known view."""
    APART = enum.auto()
    """Its sender is not, or no longer, a member of the known cluster, and that cluster still runs."""
    ANOTHER = enum.auto()
    """It is a view of another cluster, and no member of the known one is left."""


def judge(known: MembersView, sender: Target, sent: MembersView, silent: Collection[Address]) -> Staleness:
    """Compare the view `sent` by `sender` with the known one.

    `silent`: addresses of known members where the last attempt found nobody, or another incarnation.
    """
    occupied = {address_of(member) for member in sent.members}
    left = [
        member
        for member in known.members
        if member in sent or not (address_of(member) in occupied or address_of(member) in silent)
    ]
    if not left:
        return Staleness.ANOTHER
    if (sent.version, sent.maker) == (known.version, known.maker):
        return Staleness.CURRENT
    has_known_master = sent.master in known
    if sent.version > known.version and (has_known_master or all(member in sent for member in left)):
        return Staleness.CURRENT
    return Staleness.BEHIND if has_known_master and sender in known else Staleness.APART
