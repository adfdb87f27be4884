"""Migrations of every kind, hurt after each of their messages: nothing confirmed is lost, and all ends well."""

import math

import pytest

from phalanx.wire.table_events import MigrationRolledBack
from support.moving import KINDS, Moving, steps_of

pytestmark = pytest.mark.thorough

MOMENTS = 2
"""So many steps of each case are tried, evenly apart. Each case begins elsewhere, so that between them those of a kind try
nearly all of its steps; `./run soak` tries all of them in each case."""
SAFE = ["move the owner", "move a backup", "shift up", "shift up in the place of a backup",
        "shift up in the place of the owner", "exchange", "move all"]  # fmt: skip
"""Kinds that begin with two replicas or more."""


def moments(kind: str, turn: float, most: int) -> range:
    """After how many messages something happens; `turn`: where in the list of cases this one is, from 0 to below 1."""
    steps = steps_of(*KINDS[kind]) + 4
    apart = math.ceil(steps / most)
    return range(int(apart * turn), steps, apart)


some_or_all = pytest.mark.parametrize(
    "most", [MOMENTS, pytest.param(1_000, marks=pytest.mark.long)], ids=["some", "all"]
)


DEAD = ["O", "B", "D", "M", "OM", "BM", "DM", "DO"]
UNTOLD = ("clear", "OM")
"""The only holder of the newest row dies, and with it the only other one that knows that row: B goes on from what it has, as the
backup that it was. Nobody is left who can tell that something is missing."""
HURT = ["O and D", "M and O", "M and D", "D and O", "D hangs", "O hangs"]


def cases(whats: list[str]) -> list[tuple[str, str]]:
    """Each kind with everything of these that can happen to it: upper case letters are members."""
    return [(kind, what) for kind, rows in KINDS.items() for what in whats
            if {name for name in what if name.isupper()} <= set("MO" + "".join(rows)) and (kind, what) != UNTOLD]  # fmt: skip


@pytest.mark.rows("DL-45", "DL-48", "DL-83", "DL-85")
@pytest.mark.parametrize("kind", KINDS)
def test_an_undisturbed_migration_goes_where_it_should(kind: str) -> None:
    with Moving(*KINDS[kind]) as moving:
        moving.run(steps_of(*KINDS[kind]))
        moving.finish()
        moving.check()
        assert not moving.c.events_of("M", MigrationRolledBack)


@pytest.mark.rows("DL-16", "DL-33", "DL-48", "DL-55", "DL-57")
@some_or_all
@pytest.mark.parametrize("lose", [True, False])
@pytest.mark.parametrize(("kind", "dead"), cases(DEAD))
def test_whoever_dies_at_whichever_step(kind: str, dead: str, lose: bool, most: int) -> None:
    """Two may die at once: where the newest row that is left names a survivor, it has everything."""
    for steps in moments(kind, (DEAD.index(dead) + lose / 2) / len(DEAD), most):
        with Moving(*KINDS[kind]) as moving:
            moving.run(steps)
            promised = moving.promised(dead, lose=lose)
            moving.crash(dead, lose=lose)
            moving.run(5)
            moving.finish()
            moving.check()
            assert not (promised and moving.is_lost()), steps
            assert not (kind in SAFE and len(set(dead) - {"M"}) == 1 and moving.is_lost()), steps


@pytest.mark.rows("DL-16", "DL-19")
@some_or_all
@pytest.mark.parametrize(("kind", "what"), cases(HURT))
def test_whatever_connection_breaks_and_whoever_hangs_at_whichever_step(kind: str, what: str, most: int) -> None:
    """`D and O`: D hears of it first. `hangs`: for a moment."""
    for steps in moments(kind, HURT.index(what) / len(HURT), most):
        with Moving(*KINDS[kind]) as moving:
            moving.run(steps)
            hurt(moving, what)
            moving.run(5)
            moving.finish()
            moving.check()
            assert not moving.is_lost()


def hurt(moving: Moving, what: str) -> None:
    one, verb, *other = what.split()
    moving.is_disturbed = True
    if verb == "and":
        moving.c.lose_link(one, other[0])
    else:
        moving.c.hang(one)
        moving.run(20)
        moving.c.resume(one)
