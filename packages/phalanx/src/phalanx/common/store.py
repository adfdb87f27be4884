"""How others know the folder of a member: by the identity of its store, and how often a process has started with it."""

from __future__ import annotations

from typing import Annotated

import msgspec

SHOWN_DIGITS = 8
"""How many digits of the identity of a store people are shown."""


class StoreStart(msgspec.Struct, frozen=True, array_like=True):
    """One start of a process with a folder."""

    store: Annotated[str, msgspec.Meta(max_length=32)]
    """The identity of the folder; a copy of it has the same one."""
    start: int
    """How often a process has started with it: that of the present process."""

    @property
    def short(self) -> str:
        """Return the identity as people are shown it."""
        return self.store[:SHOWN_DIGITS]
