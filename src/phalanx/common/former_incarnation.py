"""What one incarnation of a member leaves to the next one on its address, when it is to come back."""

from __future__ import annotations

import msgspec

from phalanx.common.ids import Address, MemberId

Former = tuple[tuple[Address, int], ...]
"""Addresses at which members of the cluster were, the latest last, and for how many minutes to remember each."""


class KeptData:
    """What a process keeps from one incarnation to the next to merge it: of its own to the grid (`grid.kept`), and to nobody else."""


class Past(msgspec.Struct, frozen=True):
    """Who comes back from a merge, or to those that went on without it, never depends on one contact."""

    ask_first: tuple[MemberId, ...] = ()
    """The members of the cluster to which the next incarnation comes back, as far as this one knows."""
    members: tuple[MemberId, ...] = ()
    """The members of its own last view: they may come back elsewhere."""
    former: Former = ()
    """Where members were before that."""
    lite: bool | None = None
    """Whether it was a lite member at its end, however the process was started; None: it had no view."""
    has_started: bool = False
    """Whether its cluster has once had its initial members."""
