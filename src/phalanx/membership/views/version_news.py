"""How the master learns what members' builds speak where its view does not say it (PX-43).

1. New B joins old A, whose views say nothing of releases. 2. A leaves, and new C is the master. 3. B tells C, with its
confirmation, what C's view does not say; the next view says it.
"""

from __future__ import annotations

from phalanx.common.ids import MemberId
from phalanx.common.versions import FIRST_RELEASE, Release
from phalanx.membership.state import MembershipState


def note_release(state: MembershipState, sender: MemberId, release: Release | None) -> None:
    """On the master: a member tells what its build speaks, because its view does not say it right."""
    if release is not None and sender in state.members and release.newest >= release.oldest:
        state.told_releases[sender] = release


def release_to_tell(state: MembershipState) -> Release | None:
    """Return what a slave's view does not say of its build; None: it says it."""
    told = state.joined().known_releases().get(state.this, FIRST_RELEASE)
    return state.release if told != state.release else None
