"""What a member was granted, has promised and, as the master, has granted: by clocks alone."""

from __future__ import annotations

import pytest

from phalanx.common.ids import NEVER, MemberId
from phalanx.common.quorum import QuorumHandover, QuorumRecord, QuorumView, VoterHistory
from phalanx.membership.quorum.lease import Lease, with_margin

A, B, C, D, E = map(MemberId, "ABCDE")
LEASE = 1_000


def footing(voters: str, *pending: str) -> QuorumRecord:
    views = [
        QuorumView(number, number, A, tuple(map(MemberId, each))) for number, each in enumerate((voters, *pending), 5)
    ]
    return QuorumRecord(A, views[0], 5 + len(pending), tuple(views[1:]))


def master(*others: MemberId) -> Lease:
    lease = Lease(A, LEASE, None)
    lease.follow(A)
    lease.become_master(others, 0, 0, inherits=False)
    return lease


@pytest.mark.rows("EL-50")
def test_the_masters_lease_runs_from_the_stamp_that_a_majority_has_echoed() -> None:
    a = master()
    a.on_request(B, 7, 100)
    a.on_request(C, 7, 0)
    assert not a.renew(footing("ABCDE"), (), 200)
    a.on_request(C, 8, 150)
    assert a.renew(footing("ABCDE"), (), 200)
    assert a.until == 100 + LEASE
    a.on_request(D, 8, 180)
    assert not a.renew(footing("ABCDE"), (), 200), "it had one already"
    assert a.until == 150 + LEASE


@pytest.mark.rows("EL-50")
def test_every_view_that_may_have_become_stable_counts() -> None:
    a = master()
    a.on_request(B, 7, 100)
    a.on_request(C, 7, 150)
    assert not a.renew(footing("ABC", "CDE"), (), 200)
    a.on_request(D, 7, 120)
    assert a.renew(footing("ABC", "CDE"), (), 200)
    assert a.until == 120 + LEASE


def test_who_is_a_majority_alone_needs_nobody_and_who_has_left_is_counted() -> None:
    a = master()
    assert a.renew(footing("A"), (), 50)
    assert a.until == NEVER
    assert a.bound_to == A, "the vote of this process is not to be had elsewhere at once"
    b = master()
    assert not b.renew(footing("AB"), (), 50)
    assert b.renew(footing("AB"), (B,), 50)


@pytest.mark.rows("EL-50")
def test_a_master_grants_no_more_than_it_has_and_remembers_it_by_its_own_clock() -> None:
    a = master()
    a.on_request(B, 7_000, 100)
    a.renew(footing("ABC"), (), 200)
    assert a.grant(B, 600) == (7_000, 500)
    a.keep_only([A, C])
    assert a.holds_until == 600 + with_margin(500)
    assert master().grant(B, 600) == (0, 0)


@pytest.mark.rows("EL-50")
def test_a_slave_counts_from_when_it_asked() -> None:
    b = Lease(B, LEASE, None)
    b.follow(A)
    assert b.on_grant(A, 90, 5_000, 400), "the first stamp is echoed at once"
    assert b.until == 5_400
    assert b.echo(A, 5_010) == 90
    assert not b.on_grant(A, 95, 5_010, 300)
    assert b.until == 5_400, "a later answer takes nothing back"
    b.follow(C)
    assert b.until == 0


@pytest.mark.rows("EL-50", "EL-63")
def test_who_has_echoed_one_master_echoes_no_other_before_its_lease_must_be_over() -> None:
    b = Lease(B, LEASE, None)
    b.follow(A)
    b.on_grant(A, 90, 0, 0)
    assert b.echo(A, 100) == 90
    b.follow(C)
    b.on_grant(C, 40, 0, 0)
    free_at = 100 + with_margin(LEASE)
    assert b.bound_ms(100) == with_margin(LEASE)
    assert b.echo(C, free_at - 1) == 0
    assert b.echo(C, free_at) == 40
    assert b.bound_to == C
    # The next incarnation of the same process keeps the promise.
    memory = VoterHistory(B, footing("ABC"))
    again = Lease(MemberId("X"), LEASE, QuorumHandover(memory, A, free_at))
    again.follow(C)
    again.on_grant(C, 40, 0, 0)
    assert (again.echo(C, free_at - 1), again.echo(C, free_at)) == (0, 40)


@pytest.mark.rows("EL-50", "EL-51")
def test_a_new_master_that_is_bound_does_not_count_itself_and_waits_for_what_was_promised() -> None:
    b = Lease(B, LEASE, None)
    b.follow(A)
    b.on_grant(A, 90, 0, 0)
    b.echo(A, 100)
    b.follow(B)
    b.become_master((), 200, 150, inherits=False)
    assert b.holds_until == 100 + with_margin(LEASE)
    b.on_request(C, 0, 210)
    assert not b.renew(footing("ABC"), (), 300)
    assert b.renew(footing("ABC"), (), 100 + with_margin(LEASE))


def test_a_mastership_that_is_handed_over_brings_promises_and_grants_along() -> None:
    b = Lease(B, LEASE, None)
    b.follow(A)
    b.on_grant(A, 90, 0, 800)
    b.echo(A, 100)
    b.inherit(A, B)
    b.follow(B)
    b.become_master((C,), 200, 0, inherits=True)
    assert b.until == 800
    assert not b.is_bound(B, 200)
    b.keep_only([B])
    assert b.holds_until == 200 + with_margin(LEASE), "the former master may have granted so much to C"


def test_clocks_that_are_wrong_by_one_in_a_hundred_are_allowed_for() -> None:
    fast, slow = 1.01, 0.99
    for ms in (1, 10, 800, 2_400, 60_000):
        assert with_margin(ms) / fast > ms / slow


@pytest.mark.rows("PX-33")
def test_what_was_echoed_before_the_majority_was_lost_does_not_count_when_it_is_back() -> None:
    a = master()
    a.on_request(B, 7, 100)
    assert a.renew(footing("ABC"), (), 200)
    lost = QuorumRecord(A, footing("ABC").stable, 0)
    assert not a.renew(lost, (), 300)
    assert a.until == 0
    assert not a.renew(footing("ABC"), (), 310)
    a.on_request(B, 8, 305)
    assert a.renew(footing("ABC"), (), 320)
