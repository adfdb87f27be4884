"""What happens to the cluster in each round, drawn from a seed before anything is started.

Every kind but those of one member ends all processes, so what is there afterwards comes from the folders alone.
"""

from __future__ import annotations

import enum
import random

import msgspec

from phalanx.common.errors import UsageError
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


WEIGHTS = {
    RestartKind.KILL_ALL: 4, RestartKind.STOP_ALL: 2, RestartKind.KILL_READING: 3, RestartKind.KILL_INSIDE: 4,
    RestartKind.POWER_ALL: 5, RestartKind.KILL_ONE: 2, RestartKind.POWER_ONE: 2, RestartKind.STOP_IN_TURN: 1, RestartKind.STOP_ONE: 2,
}  # fmt: skip
ONE = (RestartKind.KILL_ONE, RestartKind.STOP_ONE, RestartKind.POWER_ONE)
STOP = (RestartKind.STOP_ALL, RestartKind.STOP_IN_TURN, RestartKind.STOP_ONE)
POWER = (RestartKind.POWER_ALL, RestartKind.POWER_ONE)
CALLS = ("write", "sync_data", "allocate", "unlink")
"""In which a member can be killed."""


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
    has_always: bool = True
    """Whether somebody writes to maps that wait for syncs. One sync is for all, so where nobody does a power cut takes more of others."""

    def __str__(self) -> str:
        whom = f" m{self.order[0]}" if self.kind in ONE else ""
        inside = f" in {self.call} of m{self.order[0]}" if self.call else ""
        modes = "" if self.has_always else " that wait for no sync"
        again = "".join(f", again after {each:g} s" for each in self.reading_s)
        return f"{self.kind}{whom}{inside} after {self.writes_s:g} s of writes{modes}{again}"


def draw_rounds(options: DurableOptions) -> list[RestartRound]:
    """Draw the rounds. The first ones are of all kinds, in an order that is drawn; without backups none strikes one member alone."""
    rng = random.Random(f"phalanx durable chaos {options.seed}")
    weights = {kind: weight for kind, weight in WEIGHTS.items() if options.backups or kind not in ONE}
    kinds = [RestartKind.KILL_ALL, RestartKind.POWER_ALL, RestartKind.STOP_ALL]
    others = [kind for kind in weights if kind not in kinds]
    rng.shuffle(others)
    kinds += others
    kinds += rng.choices(list(weights), list(weights.values()), k=max(0, options.rounds - len(kinds)))
    return [_draw_round(rng, kind, options.members) for kind in kinds[: options.rounds]]


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
        rng.choice(CALLS) if kind is RestartKind.KILL_INSIDE else "",
        rng.random() < BOTH_MODES,
    )
