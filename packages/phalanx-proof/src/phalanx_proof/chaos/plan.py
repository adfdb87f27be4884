"""Which faults strike when: drawn from a seed before anything is started, so that a schedule can be printed and repeated.

Two lanes run beside each other. *Hurting* faults take members away without a word: no more at a time than there are
backups, and the next only when the cluster is whole again. *Gentle* ones must never cost data, whatever else happens:
graceful stops, several at once and the oldest among them, joins, and pauses too short for anybody to be removed.
Without backups there are only stops and joins: a pause on a busy machine can become a removal.

The member that a fault strikes is drawn as a rank by age, because nobody knows beforehand which members there will be; 0 is the oldest member,
the master, which is drawn more often than others. A rank over the number of members wraps around.
"""

from __future__ import annotations

import enum
import random

import msgspec

from phalanx.common.backups import MAX_BACKUPS
from phalanx.common.errors import UsageError

HEARTBEAT_INTERVAL_MS = 500
HEARTBEAT_TIMEOUT_MS = 5_000
ACCEPTABLE_PAUSE_MS = 4_000
"""Raises no suspicion: twice the longest pause, so that a busy machine does not turn a pause into a removal."""

PAUSE_S = (0.1, 2.0)
HANG_S = (6.5, 9.0)
"""Longer than the heartbeat timeout: the member is removed, and comes back as another one."""
HURTING_GAP_S = (1.5, 6.0)
GENTLE_GAP_S = (1.0, 5.0)
MOST_AT_ONCE = 3
"""Members that stop gracefully at the same time, or join."""
OLDEST_SHARE = 0.3
"""Of faults that strike the oldest member, beside those that draw it by chance."""


class ChaosKind(enum.StrEnum):
    """What is done to members."""

    KILL = "kill"
    """SIGKILL; others join in their place later."""
    RESTART = "restart"
    """SIGKILL, and a new process on the same address, often before anybody has noticed."""
    HANG = "hang"
    """SIGSTOP for longer than the heartbeat timeout."""
    PAUSE = "pause"
    """SIGSTOP for less."""
    STOP = "stop"
    """SIGTERM: the member hands over and leaves."""
    JOIN = "join"


HURTING = {ChaosKind.KILL: 4, ChaosKind.RESTART: 3, ChaosKind.HANG: 3}
"""Kind to its weight."""
GENTLE = {ChaosKind.STOP: 4, ChaosKind.JOIN: 3, ChaosKind.PAUSE: 3}
WITHOUT_BACKUPS = {ChaosKind.STOP: 1, ChaosKind.JOIN: 1}


class ChaosOptions(msgspec.Struct, frozen=True):
    """What a run is drawn from; with the seed it determines the plan."""

    seed: int = 0
    seconds: float = 60.0
    members: int = 4
    """At the beginning, and again after each fault: what was killed or stopped is replaced up to this number."""
    backups: int = 1
    writers: int = 3
    partitions: int = 271

    def __post_init__(self) -> None:
        check_backups(self.backups)
        if self.members < self.fewest + 1:
            raise UsageError(
                f"--members {self.members} are too few for --backups {self.backups}: give at least {self.fewest + 1}, "
                f"so that one can go while the others keep all replicas"
            )

    @property
    def fewest(self) -> int:
        """Graceful stops leave so many members at least."""
        return max(2, self.backups + 1)

    @property
    def most(self) -> int:
        """Joins make no more."""
        return self.members + 2


class ChaosFault(msgspec.Struct, frozen=True):
    """One fault as it is planned."""

    at_s: float
    """Since the beginning, at the earliest: a hurting one waits until the cluster is whole."""
    kind: ChaosKind
    ranks: tuple[int, ...]
    """The members, by age; of a join only their number matters."""
    lasts_s: float = 0.0
    """How long a process is stopped."""
    replaced_after_s: float = 0.0
    """Until another member is started, where one is missing."""

    def __str__(self) -> str:
        if self.kind is ChaosKind.JOIN:
            return f"{self.at_s:6.1f} s  join {len(self.ranks)}"
        whom = ", ".join("the oldest" if rank == 0 else f"#{rank}" for rank in self.ranks)
        more = f" for {self.lasts_s:.1f} s" if self.lasts_s else ""
        return f"{self.at_s:6.1f} s  {self.kind} {whom}{more}"


class ChaosPlan(msgspec.Struct, frozen=True):
    """All faults of a run, in order."""

    hurting: tuple[ChaosFault, ...]
    gentle: tuple[ChaosFault, ...]

    def lines(self) -> list[str]:
        """Return all faults for people, in the order of time."""
        return [str(fault) for fault in sorted((*self.hurting, *self.gentle), key=lambda fault: fault.at_s)]


def draw_plan(options: ChaosOptions) -> ChaosPlan:
    """Draw the plan of these options: the same for the same options, whatever else is drawn in the process."""
    rng = random.Random(f"phalanx chaos {options.seed}")
    hurting = _draw_lane(rng, options, HURTING, HURTING_GAP_S, options.backups) if options.backups else []
    weights = GENTLE if options.backups else WITHOUT_BACKUPS
    return ChaosPlan(tuple(hurting), tuple(_draw_lane(rng, options, weights, GENTLE_GAP_S, MOST_AT_ONCE)))


def _draw_lane(
    rng: random.Random, options: ChaosOptions, weights: dict[ChaosKind, int], gap_s: tuple[float, float], at_once: int
) -> list[ChaosFault]:
    faults = []
    at_s = tenths(rng, gap_s)
    while at_s < options.seconds:
        kind = rng.choices(list(weights), list(weights.values()))[0]
        count = 1 if kind is ChaosKind.PAUSE else rng.randint(1, at_once)
        ranks = rng.sample(range(max(options.members, count)), count)
        if rng.random() < OLDEST_SHARE and 0 not in ranks:
            ranks[0] = 0
        lasts_s = {ChaosKind.PAUSE: tenths(rng, PAUSE_S), ChaosKind.HANG: tenths(rng, HANG_S)}.get(kind, 0.0)
        replaced_after_s = rng.choice((0.0, tenths(rng, (0.0, 4.0))))
        faults.append(ChaosFault(at_s, kind, tuple(sorted(ranks)), lasts_s, replaced_after_s))
        at_s = round(at_s + tenths(rng, gap_s), 1)
    return faults


def check_backups(count: int) -> None:
    """Raise `UsageError` if there can be no such number of backups."""
    if not 0 <= count <= MAX_BACKUPS:
        raise UsageError(f"--backups {count} is not between 0 and {MAX_BACKUPS}")


def tenths(rng: random.Random, bounds: tuple[float, float]) -> float:
    """Draw a time, in whole tenths of a second."""
    return round(rng.uniform(*bounds), 1)
