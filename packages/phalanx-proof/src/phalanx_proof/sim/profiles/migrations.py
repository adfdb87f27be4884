"""How the `migrations` profile is drawn: replicas move all the time, and who takes part is hurt at some step of it.

Members join, leave (several at once, the master among them), come back and start anew under a brisk workload; copies
take many messages. Crashes, lost connections, pauses and lags hit the owner, the destination, another replica or the
master: behind a message that belongs to a migration, or in the middle of sending it. In the greater part of the
histories no more members crash in all than a partition has backups, so that no loss can be excused. In some, members
hold no data, stand in zones, or are to hold more than others. In some, members are asked to hold no data and to hold some
again, and an administrator sets other numbers of backups.
"""

from __future__ import annotations

from random import Random

import msgspec

from phalanx.common.traits import Traits
from phalanx_proof.sim.fault import DESTINATION, MASTER, MIGRATION_KINDS, OTHER_REPLICA, OWNER, SOURCE, Fault, FaultKind
from phalanx_proof.sim.options import HistoryOptions, Profile
from phalanx_proof.sim.profiles.choices import anybody, in_order

LATENCIES = ((1, 2), (1, 2), (1, 5), (1, 5), (2, 10), (5, 15), (1, 30))
MIX = {
    "put": 24, "get": 14, "put_if_absent": 10, "replace": 6, "remove": 8, "put_all": 6, "get_all": 3,
    "increment": 15, "count": 15, "count_where": 8, "get_and_put": 4, "lock": 3,
}  # fmt: skip
SPECIAL = 0.2
"""The share of histories in which members have zones, weights or no data."""
MOVE_AFTER_MS = 700
"""The first calls have been made, and so the first assignment."""

HANDLED = {
    OWNER: ("MigrationOrder", "CopyAck", "ReplicateAck", "TableChanges", "TableUpdate", "Probe", "ProbeAnswer"),
    SOURCE: ("MigrationOrder", "CopyAck", "ReplicateAck", "ReplicatePut", "TableChanges", "TableUpdate"),
    DESTINATION: ("CopyStart", "CopyChunk", "ReplicatePut", "MigrationCommit", "TableChanges", "ProbeAnswer"),
    OTHER_REPLICA: ("ReplicatePut", "Probe", "TableChanges", "TableUpdate", "MembersUpdate"),
    MASTER: ("MigrationReady", "MigrationAnswer", "TableAck", "FetchedTable"),
}
SENT = {
    OWNER: ("CopyStart", "CopyChunk", "MigrationReady", "ReplicatePut", "TableAck"),
    SOURCE: ("CopyStart", "CopyChunk", "MigrationReady", "ReplicatePut", "ReplicateAck", "TableAck"),
    DESTINATION: ("CopyAck", "ReplicateAck", "MigrationAnswer", "Probe", "TableAck"),
    OTHER_REPLICA: ("ReplicateAck", "ProbeAnswer", "TableAck"),
    MASTER: ("MigrationOrder", "MigrationCommit", "TableChanges", "TableUpdate", "FetchTable"),
}
"""Role in a migration to the messages at which it can be hurt."""
OFTEN = frozenset({"CopyChunk", "CopyAck", "ReplicatePut", "ReplicateAck", "TableChanges"})
"""Messages of which a migration has more than one."""
SLOW = (
    (DESTINATION, "ReplicateAck"), (DESTINATION, "CopyAck"), (DESTINATION, "CopyChunk"), (DESTINATION, "MigrationCommit"),
    (OWNER, "MigrationReady"), (MASTER, "MigrationReady"),
)  # fmt: skip
"""Role that is slow, and at which of the last messages of a migration."""


def draw_migrations(rng: Random, seed: int, profile: Profile) -> HistoryOptions:
    """Draw the history of a seed."""
    members = rng.choice((2, 3, 3, 3, 4, 4, 5, 6))
    hosts = members + rng.choice((0, 1, 1, 2, 3))
    timeout = rng.choice((1_200, 2_000))
    options = HistoryOptions(
        seed=seed,
        profile=profile,
        members=members,
        hosts=hosts,
        start_at_ms=tuple(rng.choice((0, rng.randrange(20), rng.randrange(500))) for _ in range(members)),
        backups=rng.choice((0, 1, 1, 1, 2, 2, 3)),
        partitions=rng.randrange(3, 13),
        latency_ms=rng.choice(LATENCIES),
        heartbeat_interval_ms=200,
        heartbeat_timeout_ms=timeout,
        connection_grace_ms=rng.choice((150, 300)),
        claim_timeout_ms=timeout,
        call_timeout_ms=3_000,
        copy_chunk_bytes=rng.choice((40, 100, 300)),
        migrations_per_member=rng.choice((1, 2, 4, 10)),
        duration_ms=rng.randrange(2_500, 5_000),
        heal_within_ms=120_000,
        operations_per_second=rng.choice((10, 25, 50)),
        registers=rng.choice((12, 40, 80)),
        counters=rng.choice((2, 4)),
        mix=MIX,
        timer_slack_ms=rng.choice((0, 0, 2)),
        traits=_draw_traits(Random(f"traits:{seed}"), hosts),
    )
    return msgspec.structs.replace(options, faults=_draw_faults(rng, options))


def _draw_traits(rng: Random, hosts: int) -> tuple[Traits, ...]:
    """Draw zones, weights and lite members, from a stream of its own: all else is the same in histories without."""
    if rng.random() >= SPECIAL:
        return ()
    lite = rng.sample(range(hosts), rng.randrange(1, max(hosts - 1, 2))) if rng.random() < 0.6 else []
    zones = rng.choice((("",), ("x", "y"), ("", "x", "y"), ("x", "y", "z")))
    weights = rng.choice(((1.0,), (1.0, 2.0), (0.5, 1.0, 4.0)))
    return tuple(Traits(rng.choice(zones), rng.choice(weights), host in lite) for host in range(hosts))


def _draw_faults(rng: Random, options: HistoryOptions) -> tuple[Fault, ...]:
    faults = _draw_moves(rng, options)
    crashes = rng.randrange(options.backups + 1) if rng.random() < 0.7 else rng.randrange(1, 6)
    faults += [_draw_crash(rng, options) for _ in range(crashes)]
    faults += [_draw_disturbance(rng, options) for _ in range(rng.choice((0, 1, 2, 4)))]
    if crashes and rng.random() < 0.3:
        faults += _draw_pair(rng, options)
    faults += _draw_divisions(Random(f"divide:{options.seed}"), options)
    faults += _draw_demotions(Random(f"demote:{options.seed}"), options)
    faults += _draw_backups(Random(f"backups:{options.seed}"), options)
    return in_order(faults, options)


def _draw_divisions(rng: Random, options: HistoryOptions) -> list[Fault]:
    """Draw divisions of the partitions, from a stream of its own: all else is the same in histories without."""
    count = rng.choice((0, 0, 0, 1, 2))
    at = [rng.randrange(MOVE_AFTER_MS, options.duration_ms) for _ in range(count)]
    return [Fault(at_ms, FaultKind.DIVIDE, MASTER, nth=rng.choice((2, 2, 3))) for at_ms in at]


def _draw_demotions(rng: Random, options: HistoryOptions) -> list[Fault]:
    """Draw members that hold no data for a while, from a stream of its own: all else is the same in histories without."""
    count = rng.choice((0, 0, 0, 1, 2, 4))
    at = [rng.randrange(MOVE_AFTER_MS, options.duration_ms) for _ in range(count)]
    return [
        Fault(at_ms, FaultKind.DEMOTE, anybody(rng, options), lasts_ms=rng.choice((0, 50, 400, 1_500))) for at_ms in at
    ]


def _draw_backups(rng: Random, options: HistoryOptions) -> list[Fault]:
    """Draw other numbers of backups, as `_draw_demotions` draws; at most one fewer, as what is lost then is excused."""
    count = rng.choice((0, 0, 0, 0, 0, 1, 2, 3))
    at = [rng.randrange(MOVE_AFTER_MS, options.duration_ms) for _ in range(count)]
    return [
        Fault(at_ms, FaultKind.BACKUPS, MASTER, nth=rng.randrange(max(options.backups - 1, 0), options.backups + 3))
        for at_ms in at
    ]


def _draw_moves(rng: Random, options: HistoryOptions) -> list[Fault]:
    """Let members come and go in good order."""
    faults: list[Fault] = []
    at = MOVE_AFTER_MS + rng.randrange(300)
    while at < options.duration_ms:
        kind = rng.choice(("join", "join", "leave", "leave", "several leave"))
        back = rng.choice((rng.randrange(1, 200), rng.randrange(200, 1_500)))
        if kind == "join":
            faults.append(Fault(at, FaultKind.JOIN, rng.randrange(options.hosts)))
        elif kind == "leave":
            faults.append(Fault(at, FaultKind.LEAVE, anybody(rng, options), lasts_ms=back))
        else:
            several = rng.sample(range(options.hosts), rng.randrange(1, options.hosts))
            faults += [Fault(at + rng.randrange(30), FaultKind.LEAVE, host, lasts_ms=back) for host in several]
            faults.append(Fault(at, FaultKind.LEAVE, MASTER, lasts_ms=back))
        at += rng.choice((30, 150, 400, 900))
    # A host that was not there in the beginning is the usual reason why replicas move.
    faults += [
        Fault(rng.randrange(MOVE_AFTER_MS, options.duration_ms), FaultKind.JOIN, host)
        for host in range(options.members, options.hosts)
    ]
    return faults


def _draw_crash(rng: Random, options: HistoryOptions) -> Fault:
    at = rng.randrange(MOVE_AFTER_MS, options.duration_ms)
    back = rng.choice((0, rng.randrange(1, 100), rng.randrange(100, 2_000)))
    if rng.random() < 0.15:
        return Fault(at, FaultKind.CRASH, anybody(rng, options), lasts_ms=back)
    role, what, nth, is_sent = _draw_step(rng)
    kind = FaultKind.CRASH_SENDING if is_sent else FaultKind.CRASH_ON
    if rng.random() < 0.3:
        return Fault(at, kind, anybody(rng, options), lasts_ms=back, what=what, nth=nth)
    return Fault(at, kind, role, lasts_ms=back, what=what, nth=nth, during=_draw_kind(rng))


def _draw_disturbance(rng: Random, options: HistoryOptions) -> Fault:
    """Break a connection or slow somebody down; not for so long that a living member is taken for dead."""
    at = rng.randrange(MOVE_AFTER_MS, options.duration_ms)
    timeout, grace = options.heartbeat_timeout_ms, options.connection_grace_ms
    host, other = anybody(rng, options), anybody(rng, options)
    pause, cut = rng.randrange(20, timeout // 3), rng.randrange(5, grace // 2)
    role, what, nth, _ = _draw_step(rng)
    during = _draw_kind(rng)
    match rng.choice(("lose", "lose one way", "cut", "pause", "lag", "cut on", "cut on", "pause on", "pause on")):
        case "lose":
            return Fault(at, FaultKind.LOSE, host, other)
        case "lose one way":
            return Fault(at, FaultKind.LOSE_ONE_WAY, host, other)
        case "cut":
            return Fault(at, FaultKind.CUT, host, other, lasts_ms=cut)
        case "pause":
            return Fault(at, FaultKind.PAUSE, host, lasts_ms=pause)
        case "lag":
            slower_by = rng.choice((10, 50, timeout // 4))
            return Fault(at, FaultKind.LAG, host, other, lasts_ms=rng.randrange(100, 2_000), nth=slower_by)
        case "cut on":
            return Fault(at, FaultKind.CUT_ON, role, lasts_ms=cut, what=what, nth=nth, during=during)
        case _:
            return Fault(at, FaultKind.PAUSE_ON, role, lasts_ms=pause, what=what, nth=nth, during=during)


def _draw_pair(rng: Random, options: HistoryOptions) -> list[Fault]:
    """Slow down one that takes part in a migration at one of its last steps, and remove another one meanwhile."""
    at = rng.randrange(MOVE_AFTER_MS, options.duration_ms)
    during = rng.choice(("move-owner", "move-owner", "move-backup", "copy", "shift-up", "shift-down"))
    slow, what = rng.choice(SLOW)
    lost = rng.choice([role for role in (OWNER, OTHER_REPLICA, OTHER_REPLICA, DESTINATION, MASTER) if role != slow])
    gone = rng.choice((FaultKind.CRASH, FaultKind.CRASH, FaultKind.LEAVE))
    longest = options.heartbeat_timeout_ms // 3
    pause = rng.randrange(min(options.connection_grace_ms, longest - 50), longest)
    nth = rng.randrange(1, 4) if what in OFTEN else 1
    return [
        Fault(at, FaultKind.PAUSE_ON, slow, lasts_ms=pause, what=what, nth=nth, during=during),
        Fault(at, gone, lost, lasts_ms=rng.choice((0, 500)), during=during, is_apart=lost != MASTER),
    ]


def _draw_step(rng: Random) -> tuple[int, str, int, bool]:
    """Draw a role, a message, which of those messages, and whether the role sends it."""
    role = rng.choice((OWNER, SOURCE, DESTINATION, DESTINATION, OTHER_REPLICA, MASTER, MASTER))
    is_sent = rng.random() < 0.5
    what = rng.choice((SENT if is_sent else HANDLED)[role])
    return role, what, rng.randrange(1, 6) if what in OFTEN else rng.choice((1, 1, 1, 2, 3)), is_sent


def _draw_kind(rng: Random) -> str:
    return rng.choice(("any", *MIGRATION_KINDS))
