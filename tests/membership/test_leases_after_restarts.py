"""DU-08: who comes back from a folder keeps the promise that the process before it has made to a master."""

from __future__ import annotations

import pytest

from phalanx.common.ids import MemberId
from phalanx.common.quorum import UNKNOWN_MASTER, QuorumHandover
from phalanx.membership.quorum.lease import Lease, with_margin
from support.harness import Cluster

pytestmark = pytest.mark.rows("DU-08")

LEASE_MS = 30_000


def test_a_process_from_a_folder_echoes_no_master_for_as_long_as_the_one_before_it_can_have_promised() -> None:
    b = Lease(MemberId("B"), LEASE_MS, QuorumHandover(None, UNKNOWN_MASTER))
    b.start(500)
    for master in map(MemberId, "AC"):
        b.follow(master)
        b.on_grant(master, 40, 0, 0)
        assert b.echo(master, 500 + with_margin(LEASE_MS) - 1) == 0
    assert b.echo(MemberId("C"), 500 + with_margin(LEASE_MS)) == 40


def test_the_next_incarnation_of_that_process_waits_no_longer() -> None:
    first = Lease(MemberId("B"), LEASE_MS, QuorumHandover(None, UNKNOWN_MASTER))
    first.start(500)
    second = Lease(MemberId("B2"), LEASE_MS, QuorumHandover(None, first.bound_to, first.bound_until))
    second.start(9_000)
    assert second.bound_ms(9_000) == first.bound_ms(9_000)


def test_without_leases_and_without_a_folder_nothing_was_promised() -> None:
    for lease_ms, carried in ((0, QuorumHandover(None, UNKNOWN_MASTER)), (LEASE_MS, None)):
        lease = Lease(MemberId("B"), lease_ms, carried)
        lease.start(500)
        assert not lease.is_bound(MemberId("A"), 500)


def test_a_member_that_comes_back_from_its_folder_tells_a_claimer_how_long_it_is_bound() -> None:
    """1. A, the master, is cut off; its lease rests on what B echoed. 2. B is killed, starts again with D and E, and agrees to D's claim.
    3. D and E heard A long ago. Did B echo D at once, D could confirm writes, while A still answers reads with what was before."""
    c = Cluster("", has_folders=True, lease_ms=LEASE_MS)
    c.seeds = "A"
    for name in "ABC":
        c.start(name)
        c.advance(1_500)
    c.assign("A")
    c.crash("B")
    c.start("B")
    lease = c.nodes["B"].membership.majority.lease
    assert lease.is_bound(c.id("A"), c.now), "also to the master of before: perhaps it followed another one since"
    assert c.nodes["B"].membership.majority.promise(c.id("C"), c.now)[1] == with_margin(LEASE_MS)
    c.advance(10_000)
    assert c.view("B") == "ACB"
    assert lease.bound_to == UNKNOWN_MASTER
    assert lease.until > c.now, "it serves: the others' echoes are enough"
    c.advance(LEASE_MS)
    assert lease.bound_to == c.id("A")


def test_a_new_member_of_that_cluster_is_not_bound() -> None:
    c = Cluster("", has_folders=True, lease_ms=LEASE_MS)
    c.seeds = "A"
    c.start("A")
    c.start("B")
    c.advance(3_000)
    assert c.nodes["B"].membership.majority.lease.until > c.now
