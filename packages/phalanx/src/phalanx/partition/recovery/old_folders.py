"""Which of the folders of a cluster that comes back are older than others know of them: pure rules (DU-56).

A folder can be put back from an earlier time: with a snapshot of its volume, of its machine, or from a backup. What was promised and
acknowledged since is not in it, and it does not know that. Others can: each stable view names the starts of its voters' folders, and no
view is stable before each of its voters has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from phalanx.common.ids import MemberId
from phalanx.common.quorum import QuorumRecord
from phalanx.wire.table_messages import StoredSide

Held = TypeVar("Held")


def find_without_vote(sides: Mapping[MemberId, StoredSide], footing: QuorumRecord) -> dict[MemberId, int]:
    """Return the members whose folder had a later start, with that start. `footing`: what all of them know together."""
    starts = {member: footing.find_later_start(side.history.voter, side.start) for member, side in sides.items()}
    return {member: start for member, start in starts.items() if start}


def find_old(sides: Mapping[MemberId, StoredSide], footing: QuorumRecord) -> frozenset[MemberId]:
    """Return the members whose replicas can lack what others have acknowledged: also those that have forgotten a stable view, or whose
    disk has failed. One that has handed over its vote, and left with what it held, has acknowledged nothing since.

    One whose present process has taken part in that view has forgotten nothing:

    1. A and B come back, and their view becomes stable. 2. A ends, and starts again: its folder tells of that view, and B's, as it was
    read, does not.
    """
    stable = footing.stable
    forgetful = {
        member
        for member, side in sides.items()
        if side.history.voter in stable.voters
        and stable.number > max(side.known_number, side.history.footing.latest_number)
    }
    failed = {member for member, side in sides.items() if side.disk_failed}
    return frozenset(forgetful | failed | find_without_vote(sides, footing).keys())


def leave_out_old(held: dict[MemberId, Held], old: frozenset[MemberId], *, is_awaited: bool) -> dict[MemberId, Held]:
    """Return what holders have of a partition, without old folders where another one rules, or can still come (`is_awaited`)."""
    trusted = {member: each for member, each in held.items() if member not in old}
    return trusted if trusted or is_awaited else held
