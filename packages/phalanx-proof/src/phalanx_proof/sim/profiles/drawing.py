"""Draws the options of a history from its seed: one way of drawing for each profile."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import msgspec

from phalanx.common.ids import Millis
from phalanx.common.map_settings import EVICTION_POLICIES, Protection
from phalanx_proof.sim.fault import MASTER, Fault, FaultKind
from phalanx_proof.sim.options import APPLIED, NO_SOURCES, REPLACED, HistoryOptions, Profile
from phalanx_proof.sim.profiles.crashes import draw_default, draw_failover
from phalanx_proof.sim.profiles.cuts import draw_cuts
from phalanx_proof.sim.profiles.exhaustion import add_exhaustion
from phalanx_proof.sim.profiles.leases import draw_leases
from phalanx_proof.sim.profiles.membership import draw_membership
from phalanx_proof.sim.profiles.migrations import draw_migrations
from phalanx_proof.sim.profiles.restarts import add_outages, add_outages_of_sides, add_restarts
from phalanx_proof.sim.profiles.timeouts import draw_timeouts

ANTI_ENTROPY_MS = (30_000, 0, 2_000, 0)
"""By the seed. Comparing replicas hides other mistakes, so every second history has none of it."""
ENTRY = 190
"""About the bytes of one entry of the workload, as members count them."""
TOMBSTONE_MS = (14_400_000, 14_400_000, 14_400_000, 5_000, 0)
"""By the seed. Most histories purge none, and none in which sides merge: a side that has forgotten a removal can bring
the entry back."""
WALL_MS = 1_700_000_000_000
"""What a right wall clock shows when a history begins."""
WRONG: Millis = 4 * 3_600_000


WITH_CRASHES_AND_CUTS = (Profile.DEFAULT, Profile.MIGRATIONS, Profile.FAILOVER, Profile.CUTS)
"""Profiles of whose histories several other profiles are made."""


def draw_options(seed: int, profile: Profile = Profile.DEFAULT) -> HistoryOptions:
    """Draw the history of a seed."""
    if profile not in DRAWN:
        return MADE_OF_OTHERS[profile](seed)
    # What is measured without leases are the histories that are judged with them.
    drawn_as = Profile.LEASE if profile is Profile.WINDOW else profile
    options = add_exhaustion(DRAWN[profile](Random(f"{drawn_as}:{seed}"), seed, profile))
    return msgspec.structs.replace(
        options,
        anti_entropy_interval_ms=ANTI_ENTROPY_MS[seed % len(ANTI_ENTROPY_MS)],
        settings_differ=Random(f"settings:{seed}").random() < 0.5,
        protection=_draw_protection(Random(f"protection:{seed}"), options),
        # A side that has forgotten removals takes no entry that can be one of them: then much can be missing rightly.
        tombstone_ms=TOMBSTONE_MS[0 if options.has_sides else seed % len(TOMBSTONE_MS)],
        stalls=options.has_sides and Random(f"stalls:{seed}").random() < 0.5,
        wall_ms=_draw_wall_clocks(Random(f"wall:{seed}"), options.hosts),
        one_machine=Random(f"machine:{seed}").random() < 0.5,
    )


def _draw_as(others: tuple[Profile, ...], profile: Profile, seed: int) -> HistoryOptions:
    """Draw a history of one of the other profiles, by turns, for a profile that adds something to it."""
    options = draw_options(seed // len(others), others[seed % len(others)])
    return msgspec.structs.replace(options, seed=seed, profile=profile, merges_sides=options.has_sides)


def _draw_journals(seed: int) -> HistoryOptions:
    """Draw a history of another profile with journals, some so short that readers miss events."""
    others = Profile.DEFAULT, Profile.MIGRATIONS, Profile.DEFAULT, Profile.CUTS, Profile.MIGRATIONS, Profile.FAILOVER
    options = _draw_as(others, Profile.JOURNAL, seed)
    capacity = Random(f"journal:{seed}").choice((4, 50, 100_000, 100_000))
    # A chunk of some options takes one event only, and each partition has some hundred: its copy is many round trips.
    return msgspec.structs.replace(options, journal=capacity, heal_within_ms=5 * options.heal_within_ms)


def _draw_discovery(seed: int) -> HistoryOptions:
    """Draw a history of MEMBERSHIP in which members find their seeds."""
    rng = Random(f"discovery:{seed}")
    options = msgspec.structs.replace(
        draw_options(seed, Profile.MEMBERSHIP),
        profile=Profile.DISCOVERY,
        seeds_known_at_ms=rng.choice((0, 300, 2_000, 8_000, 60_000)),
        member_settings={"seeds_settle_ms": rng.choice((0, 300, 1_000, 3_000))},
    )
    if options.members == 1 or rng.random() < 0.75:
        return options
    # Members that are seeds of each other: all have to be there at the first start, and it begins anew where they are not.
    return msgspec.structs.replace(options, seeds_known_at_ms=NO_SOURCES, mutual_seeds=True, member_settings={})


def _draw_with_users(others: tuple[Profile, ...], profile: Profile, seed: int, **users: bool) -> HistoryOptions:
    """Draw a history of another profile in which programs of other kinds call members, too, and the usual ones less often. `users`:
    the options that say which."""
    options = _draw_as(others, profile, seed)
    return msgspec.structs.replace(options, operations_per_second=options.operations_per_second // 4, **users)


def _draw_locks(seed: int) -> HistoryOptions:
    """Draw a history of another profile in which programs use locks; in half of them owners forget all tokens but the last."""
    others = Profile.DEFAULT, Profile.MIGRATIONS, Profile.CUTS, Profile.FAILOVER, Profile.LEASE
    options = _draw_with_users(others, Profile.LOCKS, seed, locks=True)
    forgets = Random(f"tokens:{seed}").random() < 0.5
    return msgspec.structs.replace(options, member_settings={"max_lock_tokens": 1} if forgets else {})


def _draw_outages(seed: int) -> HistoryOptions:
    """Draw a history of another profile in which the whole cluster is switched off, up to three times."""
    others = Profile.DEFAULT, Profile.MIGRATIONS, Profile.FAILOVER, Profile.STAGING, Profile.LOCKS
    return add_outages(_draw_as(others, Profile.OUTAGE, seed))


def _draw_restarts(seed: int) -> HistoryOptions:
    """Draw a history of another profile in which processes begin with their folders."""
    others = (
        Profile.DEFAULT, Profile.MIGRATIONS, Profile.CUTS, Profile.STAGING, Profile.LOCKS, Profile.BOUNDED, Profile.REDIS
    )  # fmt: skip
    return add_restarts(_draw_as(others, Profile.RESTART, seed))


def _draw_power_cuts(seed: int) -> HistoryOptions:
    """Draw a history of CUTS in which all processes end, most often during a cut."""
    return add_outages_of_sides(_draw_as((Profile.CUTS,), Profile.POWER_CUTS, seed))


def _draw_restored(seed: int) -> HistoryOptions:
    """Draw a history of another profile in which folders are backed up and restored beside the cluster."""
    options = _draw_as((Profile.OUTAGE, Profile.RESTART), Profile.RESTORED, seed)
    at = Random(f"backed up:{seed}").randrange(options.duration_ms)
    return msgspec.structs.replace(options, restored_hosts=options.hosts, backed_up_at_ms=at)


def _draw_disks(seed: int) -> HistoryOptions:
    """Draw a history of another profile in which disks fail, or are full for a while, more of them than there are backups, too. In half of
    them writes wait for their syncs, also for those that never come.
    """
    options, rng = _draw_as(WITH_CRASHES_AND_CUTS, Profile.DISKS, seed), Random(f"disks:{seed}")
    drawn = [
        Fault(
            rng.randrange(options.duration_ms),
            rng.choice((FaultKind.DISK_FAILS, FaultKind.DISK_FAILS, FaultKind.DISK_FULL)),
            rng.choice((MASTER, rng.randrange(options.hosts))),
            lasts_ms=rng.choice((1, 500, 3_000)),
        )
        for _ in range(rng.choice((1, 1, 2, 3, 5)))
    ]
    faults = tuple(sorted((*options.faults, *drawn), key=lambda fault: fault.at_ms))
    is_synced = rng.random() < 0.5
    return msgspec.structs.replace(options, faults=faults, restarts=is_synced, always=is_synced)


def _draw_redis(seed: int) -> HistoryOptions:
    return _draw_with_users(WITH_CRASHES_AND_CUTS, Profile.REDIS, seed, redis=True)


def _draw_hazelcast(seed: int) -> HistoryOptions:
    others = *WITH_CRASHES_AND_CUTS, Profile.LEASE
    return _draw_with_users(others, Profile.HAZELCAST, seed, redis=True, hazelcast=True)


def _draw_bounds(seed: int) -> HistoryOptions:
    """Draw a history of JOURNAL with bounds between one entry for each partition and one for each key, which can change."""
    options = draw_options(seed, Profile.JOURNAL)
    rng = Random(f"bounds:{seed}")
    keys = options.registers + options.counters
    bounds = (1, keys // 4, keys // 2, keys)
    last = options.duration_ms - 1
    policies = Random(f"eviction:{seed}")
    eviction, max_bytes = policies.choice(EVICTION_POLICIES), policies.choice((0, 0, 10, 40)) * keys
    changes = [
        Fault(
            rng.choice((rng.randrange(last), last)),
            FaultKind.BOUND,
            MASTER,
            nth=rng.choice((0, *bounds)),
            what=policies.choice(("", *EVICTION_POLICIES)),
        )
        for _ in range(rng.choice((0, 0, 1, 3)))
    ]
    faults = tuple(sorted((*options.faults, *changes), key=lambda fault: fault.at_ms))
    return msgspec.structs.replace(
        options,
        profile=Profile.BOUNDED,
        max_entries=max(rng.choice(bounds), 1),
        max_bytes=max_bytes,
        eviction=eviction,
        idle=seed % 4 == 2,
        faults=faults,
    )


def _draw_memory(seed: int) -> HistoryOptions:
    """Draw a history of another profile in which each member has memory for a part of what it is to hold, or for somewhat more."""
    options = _draw_as(WITH_CRASHES_AND_CUTS, Profile.MEMORY, seed)
    share = Random(f"memory:{seed}").choice((0.3, 0.6, 0.8, 1.0, 1.5))
    replicas = min(options.backups + 1, options.members)
    of_one = (options.registers + 2 * options.counters) * ENTRY * replicas // options.members
    return msgspec.structs.replace(options, memory_limit=max(int(of_one * share), 10 * ENTRY))


def _draw_staging(seed: int) -> HistoryOptions:
    return _with_time_for_journals(_draw_staging_jobs(seed))


def _draw_staging_jobs(seed: int) -> HistoryOptions:
    """Draw a history of another profile in which jobs stage what they write."""
    others = Profile.MIGRATIONS, Profile.DEFAULT, Profile.MIGRATIONS, Profile.FAILOVER
    return msgspec.structs.replace(_draw_as(others, Profile.STAGING, seed), staging=True)


def _draw_staging_with_cuts(seed: int) -> HistoryOptions:
    """Draw a history of CUTS, or one of STAGING; in two of three, rows that nobody touches are dropped within seconds."""
    drawn = _draw_staging_jobs(seed // 2) if seed % 2 else draw_options(seed // 2, Profile.CUTS)
    staging_ms = Random(f"staging:{seed}").choice((0, 1_000, 2_500))
    settings = drawn.member_settings | ({"staging_ms": staging_ms} if staging_ms else {})
    staged = msgspec.structs.replace(
        drawn,
        seed=seed,
        profile=Profile.STAGING_CUTS,
        staging=True,
        merges_sides=drawn.has_sides,
        member_settings=settings,
    )
    return _with_time_for_journals(staged)


def _with_time_for_journals(options: HistoryOptions) -> HistoryOptions:
    """Add to the time to heal what copies of full journals of staged maps take at most.

    1. A small chunk takes one event. 2. Two chunks are on the way at a time, so each costs half a round trip. 3. All
    partitions can be copied one after another, to each of their replicas, and twice: for a member to leave, and when it is back.
    """
    events = len((APPLIED, REPLACED)) * options.staging_journal
    copies = 2 * options.partitions * min(options.backups + 1, options.hosts)
    half_round_trip_ms = sum(options.latency_ms) // 2
    heal_within_ms = options.heal_within_ms + copies * events * half_round_trip_ms
    return msgspec.structs.replace(options, heal_within_ms=heal_within_ms)


def _draw_protection(rng: Random, options: HistoryOptions) -> Protection:
    """Let the map ask for more than half of the members that hold data, in some histories with cuts."""
    if options.profile in (Profile.LEASE, Profile.WINDOW):
        return options.protection
    if options.profile is not Profile.CUTS or rng.random() >= 0.3:
        return Protection()
    holding = sum(not options.traits_of(host).lite for host in range(options.members))
    return Protection(holding // 2 + 1, reads=rng.random() < 0.5)


def _draw_wall_clocks(rng: Random, hosts: int) -> tuple[Millis, ...]:
    """Draw wall clocks that are wrong by up to hours; now and then one begins in 1970."""
    return tuple(
        0 if rng.random() < 0.05 else WALL_MS + rng.choice((0, rng.randrange(-500, 500), rng.randrange(-WRONG, WRONG)))
        for _ in range(hosts)
    )  # fmt: skip


def _bench(seed: int) -> HistoryOptions:
    return HistoryOptions(
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
        claim_timeout_ms=10_000,
        call_timeout_ms=10_000,
        copy_chunk_bytes=64 * 1_024,
        duration_ms=60_000,
        heal_within_ms=60_000,
        operations_per_second=200,
        registers=2_000,
        counters=50,
        mix={"get": 50, "put": 40, "increment": 5, "put_all": 2, "get_all": 3},
        timer_slack_ms=5,
        validate_every=0,
    )


DRAWN: dict[Profile, Callable[[Random, int, Profile], HistoryOptions]] = {
    Profile.DEFAULT: draw_default,
    Profile.QUIET: draw_default,
    Profile.FAILOVER: draw_failover,
    Profile.CUTS: draw_cuts,
    Profile.LEASE: draw_leases,
    Profile.WINDOW: draw_leases,
    Profile.MEMBERSHIP: draw_membership,
    Profile.MIGRATIONS: draw_migrations,
}
"""Profiles with faults of their own."""
MADE_OF_OTHERS: dict[Profile, Callable[[int], HistoryOptions]] = {
    Profile.BENCH: _bench,
    Profile.TIMEOUTS: draw_timeouts,
    Profile.JOURNAL: _draw_journals,
    Profile.BOUNDED: _draw_bounds,
    Profile.MEMORY: _draw_memory,
    Profile.STAGING: _draw_staging,
    Profile.STAGING_CUTS: _draw_staging_with_cuts,
    Profile.LOCKS: _draw_locks,
    Profile.DISKS: _draw_disks,
    Profile.OUTAGE: _draw_outages,
    Profile.RESTART: _draw_restarts,
    Profile.POWER_CUTS: _draw_power_cuts,
    Profile.RESTORED: _draw_restored,
    Profile.REDIS: _draw_redis,
    Profile.HAZELCAST: _draw_hazelcast,
    Profile.DISCOVERY: _draw_discovery,
}
"""Profiles whose histories are those of others with something added, or are drawn apart."""
