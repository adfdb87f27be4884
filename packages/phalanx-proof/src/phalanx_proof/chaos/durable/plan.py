"""What happens to the cluster in each round, drawn from a seed before anything is started.

Every kind but those of one member and of disks ends all processes, so what is there afterwards comes from the folders alone.
"""

from __future__ import annotations

import enum
import random

import msgspec

from phalanx.common.errors import UsageError
from phalanx_proof.chaos.durable.disk_faults import FAILS, HANGS
from phalanx_proof.chaos.plan import check_backups, tenths

WRITES_S = (0.3, 1.5)
"""How long writers write before a fault."""
DOWN_S = (0.0, 0.5)
APART_S = (0.0, 0.4)
"""Between the starts of two members."""
READING_S = (0.3, 2.0)
"""After the starts of all, until they are killed again: while they load, read their logs back, find each other, or copy."""
ONE_DOWN_S = (0.0, 4.0)
BOTH_MODES = 0.5
"""The share of rounds in which there are writes of both modes."""


class RestartKind(enum.StrEnum):
    """How processes end before they come back."""

    KILL_ALL = "kill-all"
    STOP_ALL = "stop-all"
    """SIGTERM at the same time."""
    STOP_IN_TURN = "stop-in-turn"
    """SIGTERM, to each when the one before has ended."""
    KILL_READING = "kill-reading"
    """SIGKILL of all, and again when they have begun to read back, once or more."""
    KILL_INSIDE = "kill-inside"
    """One is killed in a call to its disk: in the middle of a write, before a sync, or while it changes or removes a segment.
    Then all are killed."""
    POWER_ALL = "power-all"
    """SIGKILL of all, and each disk loses what was not synced."""
    KILL_ONE = "kill-one"
    STOP_ONE = "stop-one"
    POWER_ONE = "power-one"
    DISK_FAILS = "disk-fails"
    """A write or a sync of one member fails, or its file system becomes read-only: others take over, and it ends by itself."""
    DISK_HANGS = "disk-hangs"
    """A call to the disk of one member does not return."""
    DISK_FULL = "disk-full"
    """The disk of one member has no room, until what would grow is refused."""
    DISK_SLOW = "disk-slow"
    """Each sync of all takes up to half a second. Then all lose power."""
    DISK_UNREADABLE = "disk-unreadable"
    """One is killed, and its disk does not give back what it has when it is started again."""
    DISK_ALL = "disk-all"
    """The disks of all fail, one after the other: the last members answer reads, and nothing else."""


WEIGHTS = {
    RestartKind.KILL_ALL: 4, RestartKind.STOP_ALL: 2, RestartKind.KILL_READING: 3, RestartKind.KILL_INSIDE: 4,
    RestartKind.POWER_ALL: 5, RestartKind.KILL_ONE: 2, RestartKind.POWER_ONE: 2, RestartKind.STOP_IN_TURN: 1, RestartKind.STOP_ONE: 2,
    RestartKind.DISK_FAILS: 4, RestartKind.DISK_HANGS: 2, RestartKind.DISK_FULL: 1, RestartKind.DISK_SLOW: 2,
    RestartKind.DISK_UNREADABLE: 2, RestartKind.DISK_ALL: 1,
}  # fmt: skip
DISK = (
    RestartKind.DISK_FAILS, RestartKind.DISK_HANGS, RestartKind.DISK_FULL, RestartKind.DISK_UNREADABLE, RestartKind.DISK_ALL,
)  # fmt: skip
"""Kinds that are played by `disk_rounds`."""
REPLACED = (RestartKind.DISK_FAILS, RestartKind.DISK_HANGS, RestartKind.DISK_UNREADABLE)
"""Kinds after which the disk of a member is perhaps replaced."""
NEED_BACKUPS = (
    RestartKind.KILL_ONE, RestartKind.STOP_ONE, RestartKind.POWER_ONE, RestartKind.DISK_HANGS, RestartKind.DISK_UNREADABLE,
)  # fmt: skip
NEED_OTHERS = (RestartKind.DISK_FAILS, RestartKind.DISK_ALL)
"""Kinds in which a member hands over what it holds."""
ONE = (RestartKind.KILL_ONE, RestartKind.STOP_ONE, RestartKind.POWER_ONE)
STOP = (RestartKind.STOP_ALL, RestartKind.STOP_IN_TURN, RestartKind.STOP_ONE)
POWER = (RestartKind.POWER_ALL, RestartKind.POWER_ONE, RestartKind.DISK_SLOW)
ALL_LOSE_POWER = (RestartKind.POWER_ALL, RestartKind.DISK_SLOW)
CALLS = {
    RestartKind.KILL_INSIDE: ("write", "sync_data", "allocate", "unlink"),
    RestartKind.DISK_FAILS: tuple(FAILS),
    RestartKind.DISK_HANGS: tuple(HANGS),
}
"""In which a member can be killed, and which can fail or hang."""


class DurableOptions(msgspec.Struct, frozen=True):
    """What a run is drawn from."""

    seed: int = 0
    rounds: int = 10
    members: int = 4
    backups: int = 1
    writers: int = 3
    """Half of them, and one more if that is not whole, write to maps of each mode."""
    partitions: int = 271

    def __post_init__(self) -> None:
        check_backups(self.backups)
        if self.members <= self.backups:
            raise UsageError(
                f"--members {self.members} are too few for --backups {self.backups}: give at least {self.backups + 1}"
            )


class RestartRound(msgspec.Struct, frozen=True):
    """One round."""

    kind: RestartKind
    writes_s: float
    down_s: float
    order: tuple[int, ...]
    """The places of the members, in the order in which they start again; of a kind that strikes one, the first is that one."""
    apart_s: float
    reading_s: tuple[float, ...] = ()
    """How long after their starts all are killed again."""
    call: str = ""
    is_replaced: bool = False
    """Whether a member whose disk had a fault is started with another, empty one; else with what the disk has."""
    has_always: bool = True
    """Whether somebody writes to maps that wait for syncs. One sync is for all, so where nobody does a power cut takes more of others."""

    def __str__(self) -> str:
        is_of_one = self.kind in ONE or (self.kind in DISK and self.kind is not RestartKind.DISK_ALL)
        whom = f" m{self.order[0]}" if is_of_one and not self.call else ""
        inside = f" in {self.call} of m{self.order[0]}" if self.call else ""
        modes = "" if self.has_always else " that wait for no sync"
        again = "".join(f", again after {each:g} s" for each in self.reading_s)
        replaced = ", with another disk" if self.is_replaced else ""
        return f"{self.kind}{whom}{inside} after {self.writes_s:g} s of writes{modes}{again}{replaced}"


def draw_rounds(options: DurableOptions) -> list[RestartRound]:
    """Draw the rounds. The first ones are of all kinds, in an order that is drawn. Without backups no member is struck alone, unless it
    can hand over what it holds.
    """
    rng = random.Random(f"phalanx durable chaos {options.seed}")
    weights = {kind: WEIGHTS[kind] for kind in possible_kinds(options)}
    kinds = [RestartKind.KILL_ALL, RestartKind.POWER_ALL, RestartKind.STOP_ALL]
    others = [kind for kind in weights if kind not in kinds]
    rng.shuffle(others)
    kinds += others
    kinds += rng.choices(list(weights), list(weights.values()), k=max(0, options.rounds - len(kinds)))
    return [_draw_round(rng, kind, options.members) for kind in kinds[: options.rounds]]


def possible_kinds(options: DurableOptions) -> list[RestartKind]:
    """List the kinds that take nothing from this cluster that it has to keep."""
    kinds = [kind for kind in WEIGHTS if options.backups or kind not in NEED_BACKUPS]
    return [kind for kind in kinds if options.members > 1 or kind not in NEED_OTHERS]


def _draw_round(rng: random.Random, kind: RestartKind, members: int) -> RestartRound:
    order = tuple(rng.sample(range(members), members))
    again = rng.randint(1, 2) if kind is RestartKind.KILL_READING else 0
    return RestartRound(
        kind,
        tenths(rng, WRITES_S),
        tenths(rng, ONE_DOWN_S if kind in ONE else DOWN_S),
        order,
        tenths(rng, APART_S),
        tuple(tenths(rng, READING_S) for _ in range(again)),
        rng.choice(CALLS[kind]) if kind in CALLS else "",
        kind is RestartKind.DISK_ALL or (kind in REPLACED and rng.random() < 0.5),
        rng.random() < BOTH_MODES,
    )
