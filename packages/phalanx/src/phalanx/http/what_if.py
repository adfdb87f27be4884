"""What if pairs of members could not talk, as `/api/what-if` and the console answer it: in steps, with turns of the member between them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any, Final

from phalanx.common.errors import UsageError
from phalanx.reports import what_if
from phalanx.reports.cuts import read_cuts
from phalanx.reports.placement import Placement

MOST_CUTS: Final = 64
MOST_LETTERS: Final = 4_096
"""Of all cuts together."""
MOST_PAIRS: Final = 5_000
"""Of all cuts together. More take longer to read than a member should be kept busy."""
SEARCH_S: Final = 1.0
"""How long a search for the best set can take."""
STEPS: Final = 200
"""Of a search in one turn of the loop: about a millisecond."""
SETS: Final = 20
"""So many of the largest sets are told."""
LISTING: Final = 1_000
"""Steps for each hard component to look for further largest sets."""


async def answer_what_if(placement: Placement, asked: Sequence[str]) -> dict[str, Any]:
    """Return who would continue, as `phalanx what-if` does. Raises `UsageError` if the text is not a cut, and for more than is read here."""
    if len(asked) > MOST_CUTS:
        raise UsageError(f"{len(asked)} cuts are given, and {MOST_CUTS} may be: put members of one side together")
    if sum(map(len, asked)) > MOST_LETTERS:
        raise UsageError(f"the cuts have more than {MOST_LETTERS:,} letters; ask by the command phalanx what-if")
    given = what_if.given_by(placement)
    cuts = read_cuts(asked, given.members, given.find, MOST_PAIRS)
    search = what_if.SidesSearch(given, cuts)
    deadline = time.monotonic() + SEARCH_S
    while True:
        if search.run(STEPS) or time.monotonic() >= deadline:
            break
        await asyncio.sleep(0)
    return what_if.as_object(given, cuts, search, what_if.largest_sets(search, SETS, LISTING)[:SETS])
