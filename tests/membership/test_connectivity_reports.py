"""What slaves report to the master, and when that has come to rest (docs/protocol/partial-partitions.md)."""

import pytest

from phalanx.common.ids import MemberId, member_id
from phalanx.membership.partial.connectivity_reports import UNREPEATED, ConnectivityReports
from support.harness import address


def id_(name: str) -> MemberId:
    return member_id(address(name), f"{name}1")


B, C, D, E = map(id_, "BCDE")
ROUNDS, MOST = 5, 15


def reports() -> ConnectivityReports:
    return ConnectivityReports(ROUNDS, MOST)


def ticks_until_resolved(r: ConnectivityReports, most: int = 100) -> int:
    """After how many heartbeats of the master there is something to decide."""
    for count in range(1, most + 1):
        r.tick()
        if r.to_resolve():
            return count
    raise AssertionError("nothing is ever decided")


@pytest.mark.rows("PD-20", "PD-21", "PN-10")
def test_the_master_waits_for_so_many_of_its_heartbeats() -> None:
    for rounds in (1, 2, 3, 5, 9):
        r = ConnectivityReports(rounds, 40)
        assert r.replace(B, [C])
        assert r.to_resolve() == []
        assert ticks_until_resolved(r) == rounds


@pytest.mark.rows("PD-21")
def test_each_new_link_restarts_the_count() -> None:
    r = reports()
    r.replace(B, [C])
    for _ in range(ROUNDS - 1):
        r.tick()
    assert r.replace(D, [E])
    assert ticks_until_resolved(r) == ROUNDS
    assert r.to_resolve() == [(B, C), (D, E)]


@pytest.mark.rows("PD-28")
def test_the_report_of_the_other_end_of_a_known_link_does_not_restart_it() -> None:
    r = reports()
    r.replace(B, [C])
    for _ in range(ROUNDS - 1):
        r.tick()
    assert not r.replace(C, [B])
    assert ticks_until_resolved(r) == 1
    assert r.to_resolve() == [(B, C)]


@pytest.mark.rows("PD-21")
def test_the_same_list_again_does_not_restart_it() -> None:
    r = reports()
    r.replace(B, [C, D])
    for _ in range(ROUNDS - 1):
        assert not r.replace(B, [D, C])
        r.tick()
    assert ticks_until_resolved(r) == 1


@pytest.mark.rows("PD-28")
def test_a_link_is_whole_only_when_both_ends_say_so() -> None:
    r = reports()
    r.replace(B, [C])
    r.replace(C, [B])
    assert not r.replace(B, [])
    assert r.links == [(B, C)]
    assert r.replace(C, [])
    assert r.links == []
    assert not r


def test_what_is_taken_back_restarts_the_count_for_the_rest() -> None:
    r = reports()
    r.replace(B, [C, D])
    for _ in range(ROUNDS - 1):
        r.tick()
    assert r.replace(B, [C])
    assert ticks_until_resolved(r) == ROUNDS
    assert r.to_resolve() == [(B, C)]


def test_reports_of_and_about_members_that_are_gone_do_not_count() -> None:
    r = reports()
    r.replace(B, [C, D])
    r.replace(D, [E])
    assert r.keep_only([B, C, E])
    assert r.by_reporter == {B: (C,)}
    assert not r.keep_only([B, C, E])
    assert r.keep_only([C])
    assert not r


@pytest.mark.rows("PD-20", "PN-10")
def test_a_link_that_comes_and_goes_does_not_put_off_for_ever_what_is_done_about_others() -> None:
    r = reports()
    r.replace(B, [C])
    decided_after = 0
    for count in range(1, 100):
        r.replace(D, [E] if count % 4 < 2 else [])
        r.tick()
        if r.to_resolve():
            decided_after = count
            break
    assert decided_after == MOST
    assert (B, C) in r.to_resolve()


@pytest.mark.rows("PD-20", "PN-10")
def test_a_link_that_comes_and_goes_is_decided_about_in_the_end_too() -> None:
    r = reports()
    for count in range(1, MOST + 3):
        r.replace(D, [E] if count % 4 else [])
        r.tick()
    assert r.links == [(D, E)]
    assert r.is_overdue
    assert not r.is_quiet
    assert r.to_resolve() == [(D, E)], "it was first reported long ago"


@pytest.mark.rows("PD-20", "PN-10")
def test_when_it_is_waited_no_longer_what_was_reported_just_now_still_is() -> None:
    r = reports()
    r.replace(B, [C])
    for count in range(MOST):
        r.replace(D, [E] if count % 2 else [])
        r.tick()
    r.replace(C, [E])
    assert (B, C) in r.to_resolve()
    assert (C, E) not in r.to_resolve(), "others may not have told of it yet"


def test_a_link_that_stayed_whole_for_as_long_as_it_is_waited_begins_anew() -> None:
    r = reports()
    r.replace(B, [C])
    for _ in range(MOST):
        r.tick()
    r.replace(B, [])
    for _ in range(ROUNDS):
        r.tick()
    r.replace(B, [C])
    assert not r.is_overdue
    assert ticks_until_resolved(r) == ROUNDS


@pytest.mark.rows("EL-45")
def test_in_a_large_cluster_a_report_that_is_not_repeated_is_taken_back() -> None:
    r = reports()
    assert r.add(B, C)
    for _ in range(4):
        assert r.tick() == []
        assert not r.add(B, C)
    r.add(B, D)
    for _ in range(UNREPEATED - 1):
        r.add(B, D)
        assert r.tick() == []
    r.add(B, D)
    assert r.tick() == [(B, C)]
    assert r.by_reporter == {B: (D,)}


def test_what_is_left_after_a_decision_is_waited_for_anew() -> None:
    r = reports()
    r.replace(B, [C])
    r.replace(D, [E])
    ticks_until_resolved(r)
    r.keep_only([B, D, E])
    r.begin_anew()
    assert r.links == [(D, E)]
    assert ticks_until_resolved(r) == ROUNDS
