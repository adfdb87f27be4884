"""What all have to know of a member before it is given replicas: where it runs, how much it should hold, if anything."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import msgspec

MAX_WEIGHT = 1_000_000.0
MAX_ZONE_LENGTH = 200
"""The most characters in the name of a zone: it goes along with every confirmation."""


class Traits(NamedTuple):
    """Set when the member starts, and the same for as long as it lives."""

    zone: Annotated[str, msgspec.Meta(max_length=MAX_ZONE_LENGTH)] = ""
    """The name of what can fail as a whole: a rack, an availability zone. Empty: none."""
    weight: Annotated[float, msgspec.Meta(gt=0, le=MAX_WEIGHT)] = 1.0
    """How much data it is to hold, in proportion to the weights of other members."""
    lite: bool = False
    """Whether it holds no replicas, but serves callers and is a member."""


USUAL = Traits()
