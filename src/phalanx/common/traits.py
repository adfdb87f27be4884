"""What all have to know of a member before it is given replicas: where it runs, how much it should hold, if anything."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import msgspec

MAX_WEIGHT = 1_000_000.0
MAX_ZONE_LENGTH = 200
"""Characters in the name of a zone: it goes along with every confirmation."""


class Traits(NamedTuple):
    """Set when the member starts, and the same for as long as it lives."""

    zone: Annotated[str, msgspec.Meta(max_length=MAX_ZONE_LENGTH)] = ""
    """What may fail as a whole: a rack, an availability zone. Empty: it names none."""
    weight: Annotated[float, msgspec.Meta(gt=0, le=MAX_WEIGHT)] = 1.0
    """In proportion to the other members'."""
    lite: bool = False
    """It holds no replicas: it serves callers, and is a member."""


USUAL = Traits()
