"""The members of a cluster as a plain object."""

from __future__ import annotations

from typing import Any

from phalanx.common.ids import MemberId, address_of, incarnation_of
from phalanx.common.view import MembersView


def as_object(cluster: str, asked: MemberId, view: MembersView, suspected: list[MemberId]) -> dict[str, Any]:
    """Return the members, oldest first, as `asked` has them."""
    return {
        "cluster": cluster,
        "asked": asked,
        "size": len(view.members),
        "version": view.version,
        "maker": view.maker,
        "master": view.master,
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
            }
            for member in view.members
        ],
    }
