"""DU-27: what logs have reserved counts where a cluster goes on that was switched off, and in no cluster that runs."""

from __future__ import annotations

import pytest

from phalanx.common.clock import COUNTER_BITS
from phalanx.wire import messages as m
from support.harness import Cluster

pytestmark = pytest.mark.rows("DU-27")

AHEAD_MS = 600_000
"""Longer than a cluster waits here, so that no clock gets there by itself."""


def running() -> Cluster:
    """A, B and C, with an entry."""
    c = Cluster(has_folders=True, seeds="A", partition_count=3, backup_count=1, restart_grace_ms=3_000)
    for name in "ABC":
        c.start(name)
        c.advance(1_500)
    c.assign(rows=("AB", "BC", "CA"))
    c.put("A", c.key(0), b"1")
    c.advance(500)
    return c


def lose_power(c: Cluster, names: str, reserved: str) -> int:
    """They end, and the log of one of them has reserved what that of a running member has. Return that stamp."""
    c.crash(names)
    c.reserved[reserved] = until = c.now + AHEAD_MS << COUNTER_BITS
    return until


def wait_alone(c: Cluster) -> None:
    """A is back, has found nobody, and waits for the others."""
    c.start("A")
    c.advance(60_000)
    assert c.view("A") == "A"
    assert not c.table("A").is_assigned


def clocks_of(c: Cluster, names: str) -> list[int]:
    """How far the clock of each is ahead of the time."""
    return [(c.nodes[name].clock.read(c.now) >> COUNTER_BITS) - c.now for name in names]


def test_who_comes_back_to_a_running_cluster_takes_no_clock_ahead() -> None:
    c = running()
    lose_power(c, "C", "C")
    c.join("C")
    c.advance(5_000)
    assert c.table("C").is_assigned
    assert clocks_of(c, "ABC") == [0, 0, 0]


@pytest.mark.parametrize("reserved", "ABC")
def test_a_cluster_that_goes_on_gives_no_stamp_that_any_of_its_logs_has_reserved(reserved: str) -> None:
    """Not even before its members hear the next heartbeat of the master."""
    c = running()
    until = lose_power(c, "ABC", reserved)
    wait_alone(c)
    c.join("B")
    assert not c.table("A").is_assigned
    c.swallow = lambda sender, receiver, message: isinstance(message, m.Heartbeat)
    c.start("C")
    while not all(c.table(name).is_assigned for name in "ABC"):
        c.advance(100)
    assert all(c.nodes[name].clock.next(c.now) > until for name in "ABC")


def test_who_leads_after_the_master_of_a_restart_gives_no_such_stamp_either() -> None:
    """1. A brings the cluster back, and only C hears of its table. 2. A ends, and B, the next master, learns the table from C. 3. Did B stamp
    by its own clock until it hears a heartbeat, its writes would lose against those that A's disk has lost, or has."""
    c = running()
    until = lose_power(c, "ABC", "A")
    wait_alone(c)
    c.join("B")
    c.swallow = lambda sender, receiver, message: (
        isinstance(message, m.Heartbeat | m.MasterConfirmation)
        or (receiver == "B" and isinstance(message, m.TableUpdate | m.TableChanges))
    )
    c.start("C")
    while not c.table("C").is_assigned:
        c.advance(100)
    assert not c.table("B").is_assigned
    c.crash("A")
    while not c.table("B").is_assigned:
        c.advance(100)
    assert c.nodes["B"].membership.is_master
    assert c.nodes["B"].clock.next(c.now) > until


def test_as_long_as_a_cluster_waits_its_clocks_go_by_what_is_on_the_disks() -> None:
    """1. A waits, and loses power again. 2. Did its log show then what is reserved, it would be taken for given, and go along for good."""
    c = running()
    lose_power(c, "ABC", "A")
    wait_alone(c)
    assert clocks_of(c, "A") == [0]


def test_a_side_that_goes_on_without_the_majority_is_beyond_what_it_has_reserved() -> None:
    """An operator says so; and what it stamps then goes along to the others, who come back later."""
    c = running()
    until = lose_power(c, "ABC", "A")
    wait_alone(c)
    c.nodes["A"].coordinator.accept_restart(c.now)
    c.advance(1_000)
    assert c.nodes["A"].clock.next(c.now) > until
    c.join("B")
    c.join("C")
    c.advance(5_000)
    assert all(c.nodes[name].clock.next(c.now) > until for name in "ABC")
