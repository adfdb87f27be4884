"""Draws the options of a history from its seed: one way of drawing for each profile."""

from __future__ import annotations

from random import Random

import msgspec

from phalanx.common.ids import Millis
from phalanx.common.map_settings import Protection
from phalanx.sim.fault import MASTER, Fault, FaultKind
from phalanx.sim.options import APPLIED, REPLACED, Options, Profile
from phalanx.sim.profiles.cuts import draw_cuts
from phalanx.sim.profiles.exhaustion import add_exhaustion
from phalanx.sim.profiles.leases import draw_leases
from phalanx.sim.profiles.membership import draw_membership
from phalanx.sim.profiles.migrations import draw_migrations
from phalanx.sim.profiles.timeouts import draw_timeouts

USUAL_MIX = {
    "put": 30, "get": 30, "put_if_absent": 4, "replace": 8, "remove": 5, "put_all": 5, "get_all": 5,
    "increment": 10, "lock": 3,
}  # fmt: skip

JOURNALS_AS = (Profile.DEFAULT, Profile.MIGRATIONS, Profile.DEFAULT, Profile.CUTS, Profile.MIGRATIONS, Profile.FAILOVER)
CRASH_POINTS = (
    "MembersUpdate", "MembersAck", "MastershipClaim", "ClaimAnswer", "FetchTable", "FetchedTable", "TableUpdate",
    "TableChanges", "MigrationOrder", "CopyStart", "CopyChunk", "CopyAck",
    "MigrationReady", "MigrationCommit", "MigrationAnswer", "Probe", "ProbeAnswer", "ReplicatePut",
    "ReplicateAck", "JoinRequest", "JoinResponse", "LeaveRequest", "Put", "Replace", "PutAll", "DoneReply",
)  # fmt: skip
"""Messages behind which a crash is of interest."""
BROADCASTS = ("MembersUpdate", "TableUpdate", "TableChanges", "MastershipClaim", "FetchTable", "ReplicatePut", "Probe",
    "MigrationOrder")  # fmt: skip
"""Messages to several members, in the middle of which a crash is of interest."""
ANTI_ENTROPY_MS = (30_000, 0, 2_000, 0)
"""By the seed. Where replicas are compared, less comes to light of what else went wrong; so in every second history none are."""


STAGING_AS = (Profile.MIGRATIONS, Profile.DEFAULT, Profile.MIGRATIONS, Profile.FAILOVER)
TOMBSTONE_MS = (14_400_000, 14_400_000, 14_400_000, 5_000, 0)
"""By the seed. In most histories none is purged, and in none in which sides merge: what they forget, they may bring back."""
WALL_MS = 1_700_000_000_000
"""What a right wall clock shows when a history begins."""
WRONG: Millis = 4 * 3_600_000


def draw_options(seed: int, profile: Profile = Profile.DEFAULT) -> Options:
    """The history of a seed."""
    if profile is Profile.BENCH:
        return _bench(seed)
    if profile is Profile.TIMEOUTS:
        return draw_timeouts(seed)
    if profile is Profile.JOURNAL:
        return _draw_journals(seed)
    if profile is Profile.BOUNDED:
        return _draw_bounds(seed)
    if profile is Profile.STAGING:
        return _with_time_for_journals(_draw_staging(seed))
    if profile is Profile.STAGING_CUTS:
        return _with_time_for_journals(_draw_staging_with_cuts(seed))
    # What is measured without leases are the histories that are judged with them.
    drawn_as = Profile.LEASE if profile is Profile.WINDOW else profile
    options = add_exhaustion(_draw(Random(f"{drawn_as}:{seed}"), seed, profile))
    return msgspec.structs.replace(
        options,
        anti_entropy_interval_ms=ANTI_ENTROPY_MS[seed % len(ANTI_ENTROPY_MS)],
        settings_differ=Random(f"settings:{seed}").random() < 0.5,
        protection=_draw_protection(Random(f"protection:{seed}"), options),
        # A side that has forgotten removals takes no entry that may be one of them: then much may be missing rightly.
        tombstone_ms=TOMBSTONE_MS[0 if options.has_sides else seed % len(TOMBSTONE_MS)],
        stalls=options.has_sides and Random(f"stalls:{seed}").random() < 0.5,
        wall_ms=_draw_wall_clocks(Random(f"wall:{seed}"), options.hosts),
    )


def _draw_journals(seed: int) -> Options:
    """A history of another profile, in which journals are kept: some so short that readers miss events."""
    options = draw_options(seed // len(JOURNALS_AS), JOURNALS_AS[seed % len(JOURNALS_AS)])
    capacity = Random(f"journal:{seed}").choice((4, 50, 100_000, 100_000))
    # A chunk of some options takes one event only, and each partition has some hundred: its copy is many round trips.
    return msgspec.structs.replace(
        options,
        seed=seed,
        profile=Profile.JOURNAL,
        journal=capacity,
        merges_sides=options.has_sides,
        heal_within_ms=5 * options.heal_within_ms,
    )


def _draw_bounds(seed: int) -> Options:
    """A history of JOURNAL with bounds between one entry for each partition and one for each key, which may change."""
    options = draw_options(seed, Profile.JOURNAL)
    rng = Random(f"bounds:{seed}")
    keys = options.registers + options.counters
    bounds = (1, keys // 4, keys // 2, keys)
    last = options.duration_ms - 1
    changes = [
        Fault(rng.choice((rng.randrange(last), last)), FaultKind.BOUND, MASTER, nth=rng.choice((0, *bounds)))
        for _ in range(rng.choice((0, 0, 1, 3)))
    ]
    faults = tuple(sorted((*options.faults, *changes), key=lambda fault: fault.at_ms))
    return msgspec.structs.replace(
        options, profile=Profile.BOUNDED, max_entries=max(rng.choice(bounds), 1), faults=faults
    )


def _draw_staging(seed: int) -> Options:
    """A history of another profile, in which jobs stage what they write."""
    drawn = draw_options(seed // len(STAGING_AS), STAGING_AS[seed % len(STAGING_AS)])
    return msgspec.structs.replace(drawn, seed=seed, profile=Profile.STAGING, staging=True)


def _draw_staging_with_cuts(seed: int) -> Options:
    """A history of CUTS, or one of those of STAGING; what nobody touches is dropped within seconds in two of three."""
    drawn = _draw_staging(seed // 2) if seed % 2 else draw_options(seed // 2, Profile.CUTS)
    staging_ms = Random(f"staging:{seed}").choice((0, 1_000, 2_500))
    return msgspec.structs.replace(
        drawn,
        seed=seed,
        profile=Profile.STAGING_CUTS,
        staging=True,
        merges_sides=drawn.has_sides,
        member_settings=drawn.member_settings | ({"staging_ms": staging_ms} if staging_ms else {}),
    )


def _with_time_for_journals(options: Options) -> Options:
    """Add to the time to heal what copies of full journals of staged maps take at most.

    1. A small chunk takes one event. 2. Two chunks are on the way at a time, so each costs half a round trip. 3. All
    partitions may be copied one after another, to each of their replicas, and twice: for a member to leave, and when it is back.
    """
    events = len((APPLIED, REPLACED)) * options.staging_journal
    copies = 2 * options.partitions * min(options.backups + 1, options.hosts)
    half_round_trip_ms = sum(options.latency_ms) // 2
    heal_within_ms = options.heal_within_ms + copies * events * half_round_trip_ms
    return msgspec.structs.replace(options, heal_within_ms=heal_within_ms)


def _draw_protection(rng: Random, options: Options) -> Protection:
    """In some histories with cuts the map asks for more than half of the members that hold data."""
    if options.profile in (Profile.LEASE, Profile.WINDOW):
        return options.protection
    if options.profile is not Profile.CUTS or rng.random() >= 0.3:
        return Protection()
    holding = sum(not options.traits_of(host).lite for host in range(options.members))
    return Protection(holding // 2 + 1, reads=rng.random() < 0.5)


def _draw_wall_clocks(rng: Random, hosts: int) -> tuple[Millis, ...]:
    """Wall clocks that are wrong by up to hours; now and then one begins in 1970."""
    return tuple(
        0 if rng.random() < 0.05 else WALL_MS + rng.choice((0, rng.randrange(-500, 500), rng.randrange(-WRONG, WRONG)))
        for _ in range(hosts)
    )  # fmt: skip


def _draw(rng: Random, seed: int, profile: Profile) -> Options:
    if profile is Profile.FAILOVER:
        return _failover(rng, seed)
    if profile is Profile.MEMBERSHIP:
        return draw_membership(rng, seed)
    if profile is Profile.MIGRATIONS:
        return draw_migrations(rng, seed)
    if profile is Profile.CUTS:
        return draw_cuts(rng, seed)
    if profile in (Profile.LEASE, Profile.WINDOW):
        return draw_leases(rng, seed, profile)
    members = rng.choice((1, 2, 2, 3, 3, 3, 3, 4, 4, 4, 5, 5, 6, 7))
    hosts = members + rng.choice((0, 0, 1, 1, 2))
    interval = rng.choice((200, 500, 1_000))
    timeout = interval * rng.choice((6, 10))
    duration = rng.randrange(5_000, 15_000)
    options = Options(
        seed=seed,
        profile=profile,
        members=members,
        hosts=hosts,
        start_at_ms=tuple(rng.choice((0, rng.randrange(50), rng.randrange(1_500))) for _ in range(members)),
        backups=rng.choice((0, 1, 1, 1, 2, 2, 3)),
        partitions=rng.randrange(7, 32),
        latency_ms=rng.choice(((1, 2), (1, 5), (1, 30), (5, 15), (10, 60), (20, 120))),
        heartbeat_interval_ms=interval,
        heartbeat_timeout_ms=timeout,
        connection_grace_ms=300,
        claim_timeout_ms=rng.choice((timeout, 10_000)),
        call_timeout_ms=rng.choice((3_000, 10_000)),
        copy_chunk_bytes=rng.choice((64, 300, 4_096)),
        migrations_per_member=rng.choice((1, 2, 4)),
        duration_ms=duration,
        heal_within_ms=240_000,
        operations_per_second=rng.choice((5, 20, 50, 100)),
        registers=rng.choice((5, 50, 400)),
        counters=rng.choice((1, 4)),
        mix=USUAL_MIX,
        faults=(),
        timer_slack_ms=rng.choice((0, 0, 2, 15)),
    )
    if profile is Profile.QUIET:
        return options
    return msgspec.structs.replace(options, faults=_draw_faults(rng, options))


def _draw_faults(rng: Random, options: Options) -> tuple[Fault, ...]:
    per_second = rng.choice((0.1, 0.3, 0.6, 1.2))
    together = rng.choice((0.0, 0.3, 0.7))
    faults: list[Fault] = []
    at = 0
    for _ in range(max(1, int(options.duration_ms / 1_000 * per_second))):
        # Many mistakes need a second fault while the cluster still deals with the first.
        is_close = faults and rng.random() < together
        at = at + rng.choice((5, 50, 400, 1_500)) if is_close else rng.randrange(1_000, options.duration_ms)
        faults.append(_draw_fault(rng, options, at))
    for _ in range(rng.choice((0, 0, 1, 2))):
        at = rng.randrange(1_000, options.duration_ms)
        faults += rng.choice(RUDE_RECIPES)(rng, options, at)
    for joiner in range(options.members, options.hosts):
        faults.append(Fault(rng.randrange(options.duration_ms), FaultKind.JOIN, joiner))
    return tuple(sorted((f for f in faults if f.at_ms < options.duration_ms), key=lambda fault: fault.at_ms))


# --- faults that belong together ------------------------------------------------------------------------------------


def _lag_and_crash(rng: Random, options: Options, at: Millis) -> list[Fault]:
    """What a member sends to another is long on its way, and some of it is lost with the sender."""
    host, other = _two(rng, options)
    slower_by = min(rng.choice((100, 300, 800)), options.heartbeat_timeout_ms // 4)
    lag = Fault(at, FaultKind.LAG, host, other, lasts_ms=2_000, nth=slower_by)
    return [lag, Fault(at + rng.randrange(50, 800), FaultKind.CRASH, host, lasts_ms=rng.choice((50, 1_000)))]


def _slow_master(rng: Random, options: Options, at: Millis) -> list[Fault]:
    """One member hears late from the master, which changes the view and dies."""
    other, third = _two(rng, options)
    lag = Fault(at, FaultKind.LAG, MASTER, other, lasts_ms=3_000, nth=min(1_500, options.heartbeat_timeout_ms // 3))
    change = Fault(at + 50, rng.choice((FaultKind.LEAVE, FaultKind.CRASH)), third, lasts_ms=10)
    return [lag, change, Fault(at + rng.randrange(200, 900), FaultKind.CRASH, MASTER, lasts_ms=3_000)]


def _half_told(rng: Random, options: Options, at: Millis) -> list[Fault]:
    """A member dies; the master dies when it has told only some of the others what follows from that."""
    third = rng.randrange(options.hosts)
    what, nth = (
        rng.choice(("TableUpdate", "TableChanges", "MembersUpdate", "MigrationOrder", "MigrationCommit")),
        rng.randrange(1, max(options.hosts, 2)),
    )
    crash = Fault(at + 20, FaultKind.CRASH, third, lasts_ms=1_500)
    return [Fault(at, FaultKind.CRASH_SENDING, MASTER, lasts_ms=1_500, what=what, nth=nth), crash]


def _lose_and_crash(rng: Random, options: Options, at: Millis) -> list[Fault]:
    """A connection breaks, and soon after one of its ends dies."""
    host, other = _two(rng, options)
    lose = Fault(at, rng.choice((FaultKind.LOSE, FaultKind.LOSE_ONE_WAY)), host, other)
    return [lose, Fault(at + rng.randrange(5, 400), FaultKind.CRASH, rng.choice((host, other)), lasts_ms=1_000)]


def _crash_while_copying(rng: Random, options: Options, at: Millis) -> list[Fault]:
    """A member comes back, and another one dies while the first is given its replicas."""
    host, other = _two(rng, options)
    what = rng.choice(
        (
            "MigrationOrder",
            "CopyChunk",
            "CopyAck",
            "MigrationReady",
            "MigrationCommit",
            "MigrationAnswer",
            "TableChanges",
            "ReplicateAck",
        )
    )
    second = Fault(at + 700, FaultKind.CRASH_ON, other, lasts_ms=1_500, what=what, nth=rng.randrange(1, 20))
    return [Fault(at, FaultKind.CRASH, host, lasts_ms=500), second]


def _leave_and_crash(rng: Random, options: Options, at: Millis) -> list[Fault]:
    """A member leaves in good order, and another one dies meanwhile."""
    host, other = _two(rng, options)
    crash = Fault(at + rng.randrange(1, 600), FaultKind.CRASH, rng.choice((MASTER, other)), lasts_ms=1_500)
    return [Fault(at, FaultKind.LEAVE, rng.choice((MASTER, host)), lasts_ms=1_000), crash]


def _flapping(rng: Random, options: Options, at: Millis) -> list[Fault]:
    """One connection breaks again and again."""
    host, other = _two(rng, options)
    every = rng.choice((7, 90))
    return [Fault(at + n * every, FaultKind.LOSE, host, other) for n in range(rng.randrange(3, 12))]


def _restarts(rng: Random, options: Options, at: Millis) -> list[Fault]:
    """One host crashes as soon as it is back."""
    host, back, every = rng.randrange(options.hosts), rng.choice((1, 100)), rng.choice((200, 700, 2_000))
    return [Fault(at + n * every, FaultKind.CRASH, host, lasts_ms=back) for n in range(rng.randrange(2, 6))]


def _all_leave(rng: Random, options: Options, at: Millis) -> list[Fault]:
    """Everybody but one wants to leave at once; they come back."""
    return [
        Fault(at + rng.randrange(50), FaultKind.LEAVE, host, lasts_ms=rng.randrange(100, 3_000))
        for host in range(options.hosts)
    ]


RECIPES = (_lag_and_crash, _slow_master, _half_told, _lose_and_crash, _crash_while_copying, _leave_and_crash, _flapping)
RUDE_RECIPES = (*RECIPES, _restarts, _all_leave)


def _two(rng: Random, options: Options) -> tuple[int, int]:
    """Two different hosts, where there are two."""
    host = rng.randrange(options.hosts)
    return host, (host + 1 + rng.randrange(max(options.hosts - 1, 1))) % options.hosts


def _failover(rng: Random, seed: int) -> Options:
    members = rng.choice((3, 3, 4, 5))
    interval = rng.choice((300, 500))
    options = Options(
        seed=seed,
        profile=Profile.FAILOVER,
        members=members,
        hosts=members,
        start_at_ms=tuple(rng.randrange(50) for _ in range(members)),
        backups=rng.choice((1, 1, 2)),
        partitions=rng.randrange(7, 20),
        latency_ms=rng.choice(((1, 5), (5, 15), (10, 40))),
        heartbeat_interval_ms=interval,
        heartbeat_timeout_ms=10 * interval,
        connection_grace_ms=300,
        claim_timeout_ms=10_000,
        call_timeout_ms=5_000,
        copy_chunk_bytes=2_048,
        migrations_per_member=4,
        duration_ms=1_000,
        heal_within_ms=240_000,
        operations_per_second=100,
        registers=rng.choice((100, 600)),
        counters=10,
        mix={"put": 40, "get": 20, "remove": 3, "put_all": 5, "get_all": 2, "increment": 25, "lock": 1},
        faults=(),
    )
    faults: list[Fault] = []
    at = 2_500
    for _ in range(3):
        faults += rng.choice(RECIPES)(rng, options, at)
        at += rng.randrange(3_500, 5_000)
    duration = at - 2_500
    return msgspec.structs.replace(
        options, duration_ms=duration, faults=tuple(sorted(faults, key=lambda fault: fault.at_ms))
    )


# --- single faults --------------------------------------------------------------------------------------------------


FAULT_WEIGHTS = {
    FaultKind.CRASH: 5, FaultKind.CRASH_ON: 5, FaultKind.CRASH_SENDING: 4, FaultKind.LEAVE: 4, FaultKind.LOSE: 4,
    FaultKind.LOSE_ONE_WAY: 3, FaultKind.CUT: 2, FaultKind.LAG: 3, FaultKind.PAUSE: 2,
}  # fmt: skip


def _draw_fault(rng: Random, options: Options, at: Millis) -> Fault:
    hosts = options.hosts
    host = rng.choice((MASTER, rng.randrange(hosts), rng.randrange(hosts)))
    other = rng.choice((MASTER, rng.randrange(hosts), rng.randrange(hosts)))
    back = rng.choice((0, rng.randrange(1, 100), rng.randrange(100, 1_000), rng.randrange(1_000, 10_000)))
    kind = rng.choices(tuple(FAULT_WEIGHTS), tuple(FAULT_WEIGHTS.values()))[0]
    match kind:
        case FaultKind.CRASH_ON:
            return Fault(at, kind, host, lasts_ms=back, what=rng.choice(CRASH_POINTS), nth=rng.randrange(1, 6))
        case FaultKind.CRASH_SENDING:
            return Fault(at, kind, host, lasts_ms=back, what=rng.choice(BROADCASTS), nth=rng.randrange(1, 6))
        case FaultKind.CUT:
            return Fault(at, kind, host, other, lasts_ms=rng.randrange(10, options.connection_grace_ms // 2))
        case FaultKind.LAG:
            slower_by = min(rng.choice((10, 50, 200, 600)), options.heartbeat_timeout_ms // 4)
            return Fault(at, kind, host, other, lasts_ms=rng.randrange(100, 2_000), nth=slower_by)
        case FaultKind.PAUSE:
            return Fault(at, kind, host, lasts_ms=rng.randrange(20, options.heartbeat_timeout_ms // 3))
        case FaultKind.LOSE | FaultKind.LOSE_ONE_WAY:
            return Fault(at, kind, host, other)
        case _:
            return Fault(at, kind, host, lasts_ms=back)


def _bench(seed: int) -> Options:
    return Options(
        seed=seed,
        profile=Profile.BENCH,
        members=5,
        hosts=5,
        start_at_ms=(0, 5, 10, 15, 20),
        backups=1,
        partitions=271,
        latency_ms=(1, 3),
        heartbeat_interval_ms=1_000,
        heartbeat_timeout_ms=10_000,
        connection_grace_ms=300,
        claim_timeout_ms=10_000,
        call_timeout_ms=10_000,
        copy_chunk_bytes=64 * 1_024,
        migrations_per_member=4,
        duration_ms=60_000,
        heal_within_ms=60_000,
        operations_per_second=200,
        registers=2_000,
        counters=50,
        mix={"get": 50, "put": 40, "increment": 5, "put_all": 2, "get_all": 3},
        faults=(),
        timer_slack_ms=5,
        validate_every=0,
    )
