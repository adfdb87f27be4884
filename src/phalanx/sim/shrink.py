"""Makes a history that violates something smaller, as long as it violates the same property.

Greedy: leave out faults, many at once and then one by one; switch off what makes the network and the clocks bad; leave
out the last host; shorten what lasts. Whatever is left is needed, in the sense that without it (alone) the property holds.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from phalanx.sim.options import FaultKind, Options
from phalanx.sim.run import run

MOST_TRIES = 600
PLAIN = {
    "lost_permille": 0, "doubled_permille": 0, "clock_ppm": (), "timer_slack_ms": 0, "ring_above_members": 100,
    "initial_members": 1, "latency_ms": (5, 5), "traits": (), "wall_ms": (),
}  # fmt: skip
"""Options with the value at which they do no harm."""
SHORTEST_MS = 50


def shrink(options: Options, canary: str = "") -> Options:
    """The smallest history found; the options themselves where nothing is violated."""
    violations = run(options, canary).violations
    if not violations:
        return options
    wanted = violations[0].what
    tries = 0
    has_shrunk = True
    while has_shrunk and tries < MOST_TRIES:
        has_shrunk = False
        for smaller in _smaller(options):
            tries += 1
            if any(violation.what == wanted for violation in run(smaller, canary).violations):
                options, has_shrunk = smaller, True
                break
            if tries >= MOST_TRIES:
                break
    return options


def _smaller(options: Options) -> Iterator[Options]:
    """Histories with a little less in them, those with much less first."""
    yield from _with_fewer_faults(options)
    if options.hosts > 1:
        yield _without_last_host(options)
    for name, plain in PLAIN.items():
        if getattr(options, name) != plain:
            yield msgspec.structs.replace(options, **{name: plain})
    if any(options.start_at_ms):
        yield msgspec.structs.replace(options, start_at_ms=(0,) * options.members)
    for index, fault in enumerate(options.faults):
        if fault.lasts_ms > SHORTEST_MS:
            shorter = msgspec.structs.replace(fault, lasts_ms=fault.lasts_ms // 2)
            yield msgspec.structs.replace(
                options, faults=(*options.faults[:index], shorter, *options.faults[index + 1 :])
            )


def _with_fewer_faults(options: Options) -> Iterator[Options]:
    faults = options.faults
    size = len(faults)
    while size:
        for first in range(0, len(faults), size):
            yield msgspec.structs.replace(options, faults=faults[:first] + faults[first + size :])
        size //= 2


def _without_last_host(options: Options) -> Options:
    """Whatever would have happened to the last host does not happen; groups are cut without it."""
    last = options.hosts - 1
    faults = []
    for fault in options.faults:
        if fault.kind is FaultKind.CUT_GROUP:
            faults.append(msgspec.structs.replace(fault, nth=fault.nth & ~(1 << last)))
        elif last not in (fault.host, fault.other):
            faults.append(fault)
    members = min(options.members, last)
    return msgspec.structs.replace(
        options,
        hosts=last,
        members=members,
        start_at_ms=options.start_at_ms[:members],
        clock_ppm=options.clock_ppm[:last],
        wall_ms=options.wall_ms[:last],
        initial_members=min(options.initial_members, members),
        faults=tuple(faults),
    )
