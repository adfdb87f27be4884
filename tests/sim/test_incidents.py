"""Histories of other systems that lost data in restarts, as simulated members play them (docs/protocol/incidents.md)."""

import msgspec
import pytest

from phalanx_proof.sim.fault import MASTER, Fault, FaultKind
from phalanx_proof.sim.options import HistoryOptions
from phalanx_proof.sim.result import Result
from phalanx_proof.sim.run import run
from support.plots import options

KIND = "move-owner"
BEGINS = (900, 960, 1_100, 1_160)
"""Since when everything waits for the next migration that is ordered: others are in the middle of theirs then."""
KILLS = 8
"""Each of four members twice."""


def all_end_in_a_migration(at_ms: int, how: str) -> HistoryOptions:
    """All processes end when a migration is ordered; one comes back much later than the others."""
    outage = Fault(at_ms, FaultKind.OUTAGE, MASTER, lasts_ms=500, what=how, nth=at_ms, during=KIND)
    return with_folders(options(KIND, outage), always=how == FaultKind.POWER)


def each_is_killed_and_started_at_once(backups: int) -> HistoryOptions:
    """Each member of four is killed and back before anybody can have missed it, one after the other."""
    kills = tuple(Fault(700 + 400 * turn, FaultKind.CRASH, turn % 4, lasts_ms=5) for turn in range(KILLS))
    rolling = msgspec.structs.replace(options(KIND), faults=kills, backups=backups, duration_ms=4_000)
    return with_folders(rolling)


def with_folders(history: HistoryOptions, *, always: bool = False) -> HistoryOptions:
    settings = history.member_settings | {"restart_grace_ms": 500}
    return msgspec.structs.replace(history, restarts=True, always=always, member_settings=settings)


def told(result: Result) -> list[str]:
    """What is wrong in a history in which nothing at all can be lost."""
    lost = {name: result.counts.get(name, 0) for name in ("excused losses", "lost partitions")}
    return [f"{each.what}: {each.story}" for each in result.violations] + [
        name for name, count in lost.items() if count
    ]


@pytest.mark.rows("D-7")
@pytest.mark.parametrize("how", ["", FaultKind.POWER])
@pytest.mark.parametrize("at_ms", BEGINS)
def test_all_end_in_the_middle_of_migrations(at_ms: int, how: str) -> None:
    result = run(all_end_in_a_migration(at_ms, how))
    assert told(result) == []
    assert (result.faults["outage"], result.counts["faults at migrations"]) == (1, 1)


@pytest.mark.rows("D-6")
@pytest.mark.parametrize("backups", [0, 1])
def test_members_are_restarted_one_by_one_faster_than_anybody_misses_them(backups: int) -> None:
    result = run(each_is_killed_and_started_at_once(backups))
    assert told(result) == []
    assert result.faults["crash"] >= KILLS - 1, "one can be in no list yet"
