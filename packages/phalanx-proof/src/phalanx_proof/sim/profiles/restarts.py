"""What is added to histories of other profiles so that processes begin with what is in the folders of their hosts."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import msgspec

from phalanx.common.ids import Millis
from phalanx_proof.sim.fault import BY_OPERATOR, MASTER, Fault, FaultKind
from phalanx_proof.sim.options import HistoryOptions

GRACES_MS: tuple[Millis, ...] = (0, 500, 5_000)


def add_restarts(options: HistoryOptions) -> HistoryOptions:
    """Let processes begin with their folders, and some of the machines lose power on which one crashes."""
    rng = Random(f"restart:{options.seed}")
    share = rng.choice((0.0, 0.3, 1.0))
    faults = tuple(
        msgspec.structs.replace(each, kind=FaultKind.POWER)
        if each.kind is FaultKind.CRASH and rng.random() < share
        else each
        for each in options.faults
    )
    for draw in (_draw_crashes_in_writing, _draw_clock_steps, _draw_rot, _draw_folders, _draw_failures):
        faults = (*faults, *draw(options))
    drawn = _with_folders(options, with_stops(faults, options.seed), rng)
    return msgspec.structs.replace(drawn, bounds_logs=options.seed % 4 == 1)


def with_stops(faults: Iterable[Fault], seed: int) -> tuple[Fault, ...]:
    """Let most members that leave stop instead, and come back with what they have, and some that crash, too."""
    rng = Random(f"comes back:{seed}")
    share = rng.choice((0.5, 1.0))
    crashes = rng.choice((0.0, 0.0, 0.3))

    def changed(fault: Fault) -> Fault:
        draw = rng.random()
        if fault.kind is FaultKind.OUTAGE and fault.what == FaultKind.LEAVE and draw < share:
            by_operator = Random(f"operator:{seed}:{fault.at_ms}").random() < 0.4
            return msgspec.structs.replace(fault, what=BY_OPERATOR if by_operator else FaultKind.STOP)
        stops = (fault.kind is FaultKind.LEAVE and draw < share) or (fault.kind is FaultKind.CRASH and draw < crashes)
        return msgspec.structs.replace(fault, kind=FaultKind.STOP) if stops else fault

    return tuple(map(changed, faults))


def _draw_crashes_in_writing(options: HistoryOptions) -> list[Fault]:
    """Draw, for most histories, processes that end within a write to their folders, in some of which the next one does so, too."""
    rng = Random(f"writing:{options.seed}")
    return [
        Fault(
            rng.randrange(options.duration_ms), FaultKind.CRASH_WRITING, rng.choice((MASTER, rng.randrange(options.hosts))),
            lasts_ms=rng.choice((1, 50, 1_000)), what=rng.choice(("block", "block", "segment", "start")), nth=rng.randrange(1, 30),
        )
        for _ in range(rng.choice((0, 1, 2, 4)))
    ]  # fmt: skip


def _draw_clock_steps(options: HistoryOptions) -> list[Fault]:
    """Draw, for a third of the histories, wall clocks that are set while members run or are off: back, where times to live are judged."""
    rng = Random(f"clock steps:{options.seed}")
    if rng.random() < 0.67:
        return []
    signs = (-1,) if options.locks or options.redis else (-1, -1, 1)
    return [
        Fault(
            rng.randrange(options.duration_ms), FaultKind.CLOCK_BACK, rng.randrange(options.hosts),
            nth=rng.choice(signs) * rng.choice((50, 2_000, 3_600_000)),
        )
        for _ in range(rng.choice((1, 2, 5)))
    ]  # fmt: skip


def _draw_rot(options: HistoryOptions) -> list[Fault]:
    """Draw, for a third of the histories, a folder of one member that is not as it was: more than is promised to be read back."""
    rng = Random(f"rot:{options.seed}")
    if rng.random() < 0.67:
        return []
    what = rng.choice(("bits", "sector", "segment", "folder"))
    at, host = rng.randrange(options.duration_ms // 3, options.duration_ms), rng.randrange(options.hosts)
    lasts_ms = rng.choice((1, 200, 2_000))
    is_repaired = Random(f"operator cuts:{options.seed}").random() < 0.5
    return [Fault(at, FaultKind.ROT, host, lasts_ms=lasts_ms, what=what, nth=int(is_repaired))]


def _draw_failures(options: HistoryOptions) -> list[Fault]:
    """Draw, for a quarter of the histories, disks that fail, one after another: an operator lets processes start with these folders."""
    rng = Random(f"failures:{options.seed}")
    if rng.random() < 0.75:
        return []
    return [
        Fault(
            rng.randrange(options.duration_ms), FaultKind.DISK_FAILS, rng.choice((MASTER, rng.randrange(options.hosts))),
            lasts_ms=rng.choice((1, 500, 3_000)),
        )
        for _ in range(rng.choice((1, 1, 3)))
    ]  # fmt: skip


def _draw_folders(options: HistoryOptions) -> list[Fault]:
    """Draw, for a third of the histories, a folder that is put back, copied to another host, or exchanged with that of one."""
    rng = Random(f"folders:{options.seed}")
    if rng.random() < 0.67 or options.hosts < 3:
        return []
    kind = rng.choice((FaultKind.FOLDER_OLD, FaultKind.FOLDER_COPY, FaultKind.FOLDER_SWAP))
    host, other = rng.sample(range(options.hosts), 2)
    at, age_ms = rng.randrange(options.duration_ms), rng.choice((50, 500, 3_000))
    return [Fault(at, kind, host, other, lasts_ms=rng.choice((1, 200, 2_000)), nth=age_ms)]


def add_outages_of_sides(options: HistoryOptions) -> HistoryOptions:
    """Let all processes end, once or twice, a while after a cut has begun: without power, killed, or stopped, on one side or on both."""
    rng = Random(f"power cuts:{options.seed}")
    cuts = [each.at_ms for each in options.faults if each.kind in (FaultKind.CUT, FaultKind.CUT_GROUP)]
    begin = rng.choice(cuts) if cuts else options.duration_ms // 3
    how = FaultKind.POWER if rng.random() < 0.3 else ""
    stops = Random(f"stopped sides:{options.seed}")
    if stops.random() < 0.3:
        how = stops.choice((FaultKind.STOP, BY_OPERATOR))
    outages = [
        _outage(rng, min(begin + rng.choice((50, 500, 2_500, 5_000)), options.duration_ms - 1), what=how)
        for _ in range(rng.choice((1, 1, 2)))
    ]
    return _with_folders(options, (*options.faults, *outages), rng)


def _with_folders(options: HistoryOptions, faults: tuple[Fault, ...], rng: Random) -> HistoryOptions:
    settings = options.member_settings | {"restart_grace_ms": rng.choice(GRACES_MS)}
    in_order = tuple(sorted(faults, key=lambda fault: fault.at_ms))
    return msgspec.structs.replace(
        options, restarts=True, faults=in_order, member_settings=settings, switches_off=_draw_switch(options)
    )


def _draw_switch(options: HistoryOptions) -> bool:
    """Draw, for half of the histories, that machines are switched off as soon as the processes on them have stopped."""
    return Random(f"switches off:{options.seed}").random() < 0.5


def _outage(rng: Random, at: Millis, what: str = "") -> Fault:
    return Fault(
        at, FaultKind.OUTAGE, MASTER, lasts_ms=rng.choice((2, 500, 5_000)), what=what, nth=rng.randrange(1 << 30)
    )


def add_outages(options: HistoryOptions) -> HistoryOptions:
    """Switch off the whole cluster, up to three times."""
    seed, rng = options.seed, Random(f"outage:{options.seed}")
    outages = [_outage(rng, rng.randrange(options.duration_ms)) for _ in range(rng.choice((1, 1, 2, 3)))]
    stops, power = Random(f"stops:{seed}"), Random(f"power:{seed}")
    outages = [msgspec.structs.replace(each, what=_draw_end(stops, power)) for each in outages]
    settings = options.member_settings | {"restart_grace_ms": rng.choice(GRACES_MS)}
    absent = _draw_absent(Random(f"absent:{seed}"), outages[0].at_ms, options)
    apart = _draw_apart(Random(f"apart:{seed}"), outages[-1].at_ms, options)
    leaves = _draw_orderly_stop(Random(f"stop:{seed}"), options)
    writing = [*_draw_crashes_in_writing(options), *_draw_clock_steps(options)]
    stopping = with_stops((*options.faults, *outages, *absent, *apart, *leaves), seed)
    faults = tuple(sorted((*stopping, *writing), key=lambda fault: fault.at_ms))
    always = Random(f"durability:{seed}").random() < 0.5
    options = msgspec.structs.replace(
        options,
        restarts=True,
        faults=faults,
        member_settings=settings,
        always=always,
        switches_off=_draw_switch(options),
    )
    if Random(f"alone:{seed}").random() < 0.8:
        return options
    return msgspec.structs.replace(options, backups=0)  # each partition waits for one member, and for no other


def _draw_end(stops: Random, power: Random) -> str:
    """Draw how everything ends: by orderly stops, without power, or as processes that are killed."""
    if stops.random() < 0.3:
        return FaultKind.LEAVE
    return FaultKind.POWER if power.random() < 0.5 else ""


def _draw_absent(rng: Random, outage_at: Millis, options: HistoryOptions) -> list[Fault]:
    """Draw, for half of the histories, a member that is away when the cluster is switched off, and is the first one back."""
    away_ms = rng.choice((100, 1_000, 3_000))
    if rng.random() < 0.5 or outage_at < away_ms:
        return []
    return [Fault(outage_at - away_ms, FaultKind.CRASH, rng.randrange(options.members), lasts_ms=away_ms + 1)]


def _draw_orderly_stop(rng: Random, options: HistoryOptions) -> list[Fault]:
    """Draw, for a fifth of the histories, that all members leave, the first seed as the last one, and come back behind it."""
    if rng.random() < 0.8:
        return []
    at = options.duration_ms // 2
    others = [Fault(at, FaultKind.LEAVE, host, lasts_ms=6_000) for host in range(1, options.hosts)]
    return [*others, Fault(at + rng.choice((500, 1_000, 2_000)), FaultKind.LEAVE, 0, lasts_ms=500)]


def _draw_apart(rng: Random, outage_at: Millis, options: HistoryOptions) -> list[Fault]:
    """Draw, for a third of the histories, a network in two parts when members come back, or a while later: both sides wait for others."""
    if rng.random() < 0.67 or options.hosts < 2:
        return []
    bits = rng.randrange(1, (1 << options.hosts) - 1)
    at, lasts_ms = outage_at + rng.choice((0, 300, 1_000, 2_000, 3_000)), rng.choice((2_000, 8_000, 20_000))
    return [Fault(at, FaultKind.CUT_GROUP, 0, nth=bits, lasts_ms=lasts_ms)]
