"""DU-34: members that come back end again, at whatever moment of reading, joining and waiting, as often as that happens."""

from __future__ import annotations

import pytest

from support.dormancy import LATER, VALUE, filled, read, write
from support.harness import Cluster

pytestmark = pytest.mark.rows("DU-34")

STEPS = range(0, 9_000, 300)
"""Milliseconds after which they end: the cluster goes on at once when all are back, which takes about five seconds."""


def begin(c: Cluster, names: str) -> None:
    for name in names:
        c.start(name, seeds="ABC")


def is_whole(c: Cluster, rows: int) -> bool:
    return all(c.table(name).is_assigned for name in c.nodes) and {read(c, p) for p in range(rows)} == {VALUE}


@pytest.mark.parametrize("ends", ["ABC", "A", "B"], ids=["all", "the first one", "another one"])
def test_whatever_moment_they_end_at_nothing_is_lost_and_nothing_is_waited_for(ends: str) -> None:
    """Each attempt goes on with what the one before has left in the folders."""
    c = filled("ABC", "AB", "BC", "CA")
    c.crash("ABC")
    stays = "".join(sorted(set("ABC") - set(ends)))
    begin(c, stays)
    for ms in STEPS:
        begin(c, ends)
        c.advance(ms)
        for name in c.gone():
            c.come_back(name)
        c.crash("".join(name for name in ends if name in c.nodes))
        c.advance(500)
    begin(c, ends)
    c.stay_together("ABC")
    c.advance(15_000)
    assert is_whole(c, 3)
    write(c, c.replicas("A", 0)[0], 0, LATER)


def test_a_start_that_ends_before_it_has_written_all_changes_nothing() -> None:
    """What it logs first is cut off at each place: the next start reads the same."""
    c = filled("AB", "AB", "BA")
    c.crash("AB")
    before = list(c.folders["B"])
    begin(c, "AB")
    c.stay_together("AB")
    c.advance(3_000)
    c.crash("AB")
    written = c.folders["B"][len(before) :]
    assert written
    for kept in range(len(written)):
        c.folders["B"] = [*before, *written[:kept]]
        begin(c, "AB")
        c.stay_together("AB")
        c.advance(3_000)
        assert is_whole(c, 2)
        c.crash("AB")
