"""Small histories in which members come and go so that migrations of one kind are ordered again and again."""

from __future__ import annotations

from typing import NamedTuple

from phalanx_proof.sim.fault import MASTER, Fault, FaultKind
from phalanx_proof.sim.options import HistoryOptions, Profile


class Plot(NamedTuple):
    """Members that come and go, so that migrations of a kind are ordered."""

    members: int
    hosts: int
    backups: int
    moves: tuple[Fault, ...]
    partitions: int = 8
    seeds: tuple[int, ...] = (1, 2, 3, 4, 5)
    """Of what the programs write meanwhile, and of who is given what: not every one brings a migration of the kind. In some
    the first member is alone when they begin to write, and may crash before anything was copied: those are not here."""


def join(at: int, host: int) -> Fault:
    return Fault(at, FaultKind.JOIN, host)


def leave(at: int, host: int, back: int) -> Fault:
    return Fault(at, FaultKind.LEAVE, host, lasts_ms=back)


CHANGES = (join(900, 4), leave(1_100, MASTER, 200), leave(1_400, 2, 100), leave(1_420, 3, 100))
FEWER = (leave(1_000, 1, 200), leave(1_500, MASTER, 200), leave(1_900, 2, 100))
PLOTS = {
    "move-owner": Plot(4, 6, 2, CHANGES),
    "move-backup": Plot(4, 6, 2, CHANGES),
    "copy": Plot(3, 4, 3, (join(900, 3), *FEWER)),
    "shift-up": Plot(4, 5, 3, (leave(950, 2, 300),), 11),
    "shift-down": Plot(3, 3, 2, FEWER, 8, (1, 2, 4, 6, 9, 7)),
    "shift-up-down": Plot(4, 4, 3, (leave(1_150, 0, 300),), 11, (4, 11, 19, 31, 44, 52)),
}


def spare(kind: str) -> int:
    """A host that starts only if a fault says so."""
    return PLOTS[kind].hosts


def options(kind: str, *faults: Fault, seed: int = 0) -> HistoryOptions:
    """The history of a kind of migration, with these faults besides the coming and going."""
    plot = PLOTS[kind]
    return HistoryOptions(
        seed=seed or plot.seeds[0],
        profile=Profile.MIGRATIONS,
        members=plot.members,
        hosts=plot.hosts + 1,
        start_at_ms=(0,) * plot.members,
        backups=plot.backups,
        partitions=plot.partitions,
        latency_ms=(1, 4),
        heartbeat_interval_ms=200,
        heartbeat_timeout_ms=1_200,
        connection_grace_ms=100,
        claim_timeout_ms=1_200,
        call_timeout_ms=3_000,
        copy_chunk_bytes=60,
        migrations_per_member=4,
        duration_ms=2_400,
        heal_within_ms=60_000,
        operations_per_second=25,
        registers=24,
        counters=4,
        mix={
            "put": 4,
            "get": 2,
            "put_if_absent": 2,
            "replace": 1,
            "remove": 1,
            "put_all": 1,
            "increment": 4,
            "lock": 1,
        },
        faults=tuple(sorted(plot.moves + faults, key=lambda each: each.at_ms)),
    )
