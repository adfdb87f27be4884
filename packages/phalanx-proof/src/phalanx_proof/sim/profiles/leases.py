"""How the `lease` profile is drawn: as `cuts`, on a map that asks for the majority for reads and writes.

Clocks run wrong by up to one in a hundred, as far as leases allow for; few keys, and many calls on each, so that owners that
should be silent are asked.
"""

from __future__ import annotations

from random import Random

import msgspec

from phalanx.common.map_settings import Protection
from phalanx_proof.sim.options import HistoryOptions, Profile
from phalanx_proof.sim.profiles.cuts import draw_cuts

WRONG_PPM = 10_000
MIX = {"put": 50, "get": 40, "put_if_absent": 5, "remove": 5}


def draw_leases(rng: Random, seed: int, profile: Profile) -> HistoryOptions:
    """Draw the history of a seed; in the profile `window` the same one without leases."""
    options = draw_cuts(rng, seed, profile)
    drift = [
        rng.choice((-WRONG_PPM, WRONG_PPM, rng.randrange(-WRONG_PPM, WRONG_PPM + 1))) for _ in range(options.hosts)
    ]
    lease_ms = options.heartbeat_interval_ms * rng.choice((4, 4, 5, 7, 12))
    return msgspec.structs.replace(
        options,
        protection=Protection(0, majority=True, reads=True, writes=True),
        lease_ms=lease_ms if profile is Profile.LEASE else 0,
        clock_ppm=tuple(drift),
        operations_per_second=rng.choice((30, 60)),
        registers=rng.choice((4, 8)),
        mix=MIX,
    )
