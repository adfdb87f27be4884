"""Refuse a joiner whose folder is a copy of that of a member (DU-22).

1. Somebody clones the machine of B, or copies its folder to set up D. 2. B and D are one voter, and each takes what the other one has
written for its own. So only one of them is a member.

The other one can also be B itself, whose folder has moved to another address with its process: then its start is later than that of the
member, which is dead and removed soon. So such a joiner is asked to wait for as long as it takes to notice that, and only then ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from phalanx.common.ids import MemberId, Millis, address_of
from phalanx.common.store import StoreStart
from phalanx.common.view import MembersView
from phalanx.wire.messages import JoinRequest


class CopyRefusal(NamedTuple):
    """Why a joiner with a copied folder is not admitted."""

    reason: str
    is_final: bool
    """Whether waiting cannot help."""


class CopiedFolders:
    """On the master: finds joiners with the folder of a member."""

    def __init__(self, patience_ms: Millis) -> None:
        """`patience_ms`: how long a dead member can stay in the view."""
        self._patience_ms = patience_ms
        self._since: dict[str, tuple[MemberId, Millis]] = {}
        """The identity of a store to the joiner that has asked with it last, and when it did so first."""

    def __repr__(self) -> str:
        return f"CopiedFolders(since={self._since})"

    def refuse(
        self, request: JoinRequest, view: MembersView, queued: Mapping[MemberId, JoinRequest], now: Millis
    ) -> CopyRefusal | None:
        """Return why a joiner cannot be admitted with its folder; None: it can. `queued`: joiners that wait for the next view."""
        mine, at = request.store, address_of(request.member)
        if mine is None:
            return None
        stores = [*view.stores, *((each, asked.store) for each, asked in queued.items() if asked.store is not None)]
        found = next((each for each in stores if each[1].store == mine.store and address_of(each[0]) != at), None)
        if found is None:
            self._since.pop(mine.store, None)
            return None
        joiner, since = self._since.get(mine.store, (request.member, now))
        self._since[mine.store] = request.member, since if joiner == request.member else now
        waited_ms = now - self._since[mine.store][1]
        return CopyRefusal(_reason(at, *found), mine.start <= found[1].start or waited_ms > self._patience_ms)


def _reason(at: str, member: MemberId, store: StoreStart) -> str:
    other = address_of(member)
    return (
        f"the data_dir of {at} is a copy of that of {other}, which is in the cluster (store {store.short}): start {at} with an empty "
        f"data_dir, or stop {other} first if {at} is to take its place"
    )
