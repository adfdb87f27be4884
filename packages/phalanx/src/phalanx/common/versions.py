"""Versions of the protocol: which this build speaks, and what members tell each other of theirs.

A build speaks a range of versions, from `OLDEST_PROTOCOL_VERSION` to `PROTOCOL_VERSION`. Two ends of a connection speak
the newest that both know. A cluster has one *cluster version*, which its view names: every member of the view speaks it.
A message or field that came with version N is used only where the cluster version is N or more, or every member of the view speaks it
(docs/protocol/extensions.md, PX-42 to PX-47; HACKING.md says how one is added).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import msgspec

OLDEST_PROTOCOL_VERSION = 8
"""The oldest version that this build speaks: that of the release before it."""
PROTOCOL_VERSION = 9
"""The newest version that this build speaks."""
DORMANT_FROM = 9
"""From this version on, members know that partitions can wait for members that have them in their folders."""
LOOKUPS_FROM = 9
"""From this version on, members know `FindWrite`."""
STOPS_FROM = 9
"""From this version on, members know `StopOrder`."""
MAX_NAME_LENGTH = 40


class Release(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a member's build speaks, as it told when it asked to join. The defaults are for one of which that is not known."""

    newest: int = OLDEST_PROTOCOL_VERSION
    oldest: int = OLDEST_PROTOCOL_VERSION
    name: Annotated[str, msgspec.Meta(max_length=MAX_NAME_LENGTH)] = ""
    """The version of the package; for people only. Empty: not told."""

    def speaks(self, version: int) -> bool:
        """Return whether the member understands this version."""
        return self.oldest <= version <= self.newest


def this_release(name: str = "") -> Release:
    """Return what this build speaks."""
    return Release(PROTOCOL_VERSION, OLDEST_PROTOCOL_VERSION, name[:MAX_NAME_LENGTH])


def spoken_by_all(releases: Iterable[Release]) -> Release:
    """Return the range of versions that each of them speaks. It is empty (`newest` below `oldest`) if there is none."""
    known = list(releases)
    return Release(min(each.newest for each in known), max(each.oldest for each in known))


def agree(one: Release, other: Release) -> int | None:
    """Return the newest version that both speak; None: there is none."""
    newest, oldest = min(one.newest, other.newest), max(one.oldest, other.oldest)
    return newest if oldest <= newest else None


def range_words(release: Release) -> str:
    """Say which versions these are: "protocol 8" or "protocols 8 to 9"."""
    if release.oldest == release.newest:
        return f"protocol {release.newest}"
    return f"protocols {release.oldest} to {release.newest}"


def no_common_version(this: Release, peer: Release) -> str:
    """Say that two ends have no version in common, and what to do."""
    return f"this member speaks {range_words(this)}, the peer {range_words(peer)}: upgrade the older side"
