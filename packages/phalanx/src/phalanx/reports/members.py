"""The members of a cluster as a plain object."""

from __future__ import annotations

from typing import Any

from phalanx.common.departure import Departure
from phalanx.common.ids import MemberId, address_of, incarnation_of
from phalanx.common.view import MembersView


def version_words(view: MembersView, waits_for: str) -> str:
    """Say which cluster version there is, and why it is no newer where some member speaks a newer one; `waits_for`: from the
    master."""
    newest = max(release.newest for release in view.all_releases().values())
    version = f"cluster version {view.cluster_version}" + (", held back" if view.is_version_held else "")
    if newest <= view.cluster_version:
        return version
    older = [address_of(m) for m, release in view.all_releases().items() if not release.speaks(newest)]
    if not waits_for and older:
        waits_for = (
            f"{', '.join(older)} does not speak it" if len(older) == 1 else f"{len(older)} members do not speak it"
        )
    return f"{version}, not {newest} yet: {waits_for or f'phalanx members --at {address_of(view.master)} says why'}"


def as_object(
    cluster: str, asked: MemberId, view: MembersView, suspected: list[MemberId], waits_for: str = ""
) -> dict[str, Any]:
    """Return the members, oldest first, as `asked` has them. `waits_for`: why the cluster version is not raised, if `asked` is the
    master and it is not."""
    releases = view.all_releases()
    newest = max(release.newest for release in releases.values())
    return {
        "cluster": cluster,
        "asked": asked,
        "size": len(view.members),
        "version": view.version,
        "maker": view.maker,
        "master": view.master,
        "cluster_version": view.cluster_version,
        "cluster_version_held": view.is_version_held,
        "raise_waits_for": (waits_for or None) if newest > view.cluster_version else None,
        "members": [
            {
                "member": member,
                "address": address_of(member),
                "incarnation": incarnation_of(member),
                "master": member == view.master,
                "suspected": member in suspected,
                "zone": view.traits_of(member).zone,
                "weight": view.traits_of(member).weight,
                "lite": view.traits_of(member).lite,
                "release": releases[member].name,
                "protocols": [releases[member].oldest, releases[member].newest],
            }
            for member in view.members
        ],
    }


def away_as_object(each: Departure) -> dict[str, Any]:
    """Return a member that is awaited, because its folder has what it held."""
    return {"member": each.member, "address": address_of(each.member), "stopped": each.returns}
