"""When the majority has the list without a removed member: what a master with leases, or with a folder, waits for (PX-33)."""

from __future__ import annotations

import msgspec
import pytest

from phalanx.common.config import NodeConfig
from phalanx.common.ids import MemberId
from phalanx.common.map_settings import MapChange, Protection
from phalanx.common.quorum import QuorumRecord, VoterHistory
from phalanx.common.versions import this_release
from phalanx.common.view import MembersView
from phalanx.machine.local_context import LocalContext
from phalanx.machine.outbox import Outbox
from phalanx.membership.quorum.quorum_state import QuorumState
from phalanx.wire import messages as m
from support.harness import MAP, Cluster

A, B, C, D, E = map(MemberId, "ABCDE")

pytestmark = pytest.mark.rows("PX-33")


def quorum_of(member: MemberId) -> QuorumState:
    """One with leases: it waits for its own acknowledgement, too."""
    return QuorumState(LocalContext(member, NodeConfig(lease_ms=4_000), this_release(), Outbox()), None)


def view(version: int, *members: MemberId) -> MembersView:
    return MembersView(version, A, members)


def master_of(*members: MemberId) -> QuorumState:
    """The master of a stable view, its first."""
    quorum = quorum_of(A)
    quorum.on_view_made(view(1, A))
    quorum.record_view_ack(A, 1, A)
    quorum.on_view_made(view(2, *members))
    for member in members:
        quorum.record_view_ack(member, 2, A)
    assert quorum.is_stable
    assert quorum.is_removal_committed, "nobody was removed"
    return quorum


def test_a_removal_is_committed_when_more_than_half_of_the_stable_view_have_it() -> None:
    quorum = master_of(A, B, C, D, E)
    quorum.on_view_made(view(3, A, B, C, D))
    assert not quorum.is_removal_committed
    assert not quorum.record_removal_ack(B, 2, A), "that is the view before"
    assert not quorum.record_removal_ack(B, 3, B), "that is another master's"
    assert not quorum.record_removal_ack(B, 3, A)
    assert not quorum.record_removal_ack(B, 3, A), "one member counts once"
    assert quorum.record_removal_ack(C, 3, A)
    assert quorum.is_removal_committed
    assert not quorum.record_removal_ack(D, 3, A), "it was committed already"


def test_who_has_an_earlier_list_without_the_removed_has_to_say_so_again_of_the_next_one() -> None:
    quorum = master_of(A, B, C, D, E)
    quorum.on_view_made(view(3, A, B, C, D))
    quorum.record_removal_ack(B, 3, A)
    quorum.on_view_made(view(4, A, B, C))
    assert not quorum.record_removal_ack(B, 4, A)
    assert quorum.record_removal_ack(C, 4, A)


def test_a_list_with_a_joiner_does_not_make_a_removal_good() -> None:
    quorum = master_of(A, B, C)
    quorum.on_view_made(view(3, A, B))
    quorum.on_view_made(view(4, A, B, D))
    assert not quorum.is_removal_committed
    assert not quorum.record_removal_ack(D, 4, A), "it has no vote in the stable view"
    assert quorum.record_removal_ack(B, 4, A)


def test_joiners_alone_are_no_removal_and_one_member_is_its_own_majority() -> None:
    quorum = master_of(A)
    quorum.on_view_made(view(3, A, B))
    assert quorum.is_removal_committed
    quorum.on_view_made(view(4, A))
    assert quorum.is_removal_committed, "the stable view has just this member"


def test_a_process_that_comes_back_has_a_vote_for_the_removal_of_others() -> None:
    quorum = master_of(A, B, C, D, E)
    memory = quorum.memory()
    assert memory is not None
    quorum.on_view_made(view(3, A, B))
    quorum.record_removal_ack(B, 3, A)
    assert not quorum.is_removal_committed, "two of five"
    back = MemberId("C2")
    quorum.learn_history(back, VoterHistory(C, memory.footing))
    quorum.on_view_made(view(4, A, B, back))
    assert not quorum.record_removal_ack(B, 4, A)
    assert quorum.record_removal_ack(back, 4, A), "it votes for C"


def test_who_leaves_in_good_order_counts_and_so_does_an_operators_word() -> None:
    quorum = master_of(A, B, C)
    quorum.on_view_made(view(3, A, B))
    quorum.record_departure(C)
    quorum.on_view_made(view(4, A, B))
    assert quorum.is_removal_committed, "C agrees with nobody any more"
    lost = master_of(A, B, C, D, E)
    lost.on_view_made(view(3, A, B))
    lost.accept()
    assert lost.is_removal_committed


def test_a_new_master_begins_with_what_its_own_list_lacks() -> None:
    quorum = quorum_of(B)
    quorum.adopt(view(2, A, B, C), master_of(A, B, C).footing, is_master=False)
    assert quorum.is_removal_committed
    handed_over = MembersView(3, A, (B, C))
    quorum.adopt(handed_over, quorum.next_footing(handed_over), is_master=True)
    assert not quorum.is_removal_committed
    assert quorum.record_removal_ack(C, 3, A)


def handed_over_by_one_of_four() -> tuple[MembersView, QuorumRecord]:
    """The last list of A, which leaves B and D, and what it stands on; C is removed, or has left before."""
    first = master_of(A, B, C, D)
    first.on_view_made(view(3, A, B, D))
    last = view(4, B, D)
    return last, first.next_footing(last, left=A)


def member(name: MemberId) -> QuorumState:
    quorum = quorum_of(name)
    quorum.adopt(view(2, A, B, C, D), master_of(A, B, C, D).footing, is_master=False)
    return quorum


def test_the_vote_of_a_master_that_has_left_counts_at_its_successor() -> None:
    last, footing = handed_over_by_one_of_four()
    quorum = member(B)
    quorum.adopt(last, footing, is_master=True)
    assert quorum.has_majority
    assert not quorum.is_removal_committed, "D may not have the list, and count with C"
    assert quorum.record_removal_ack(D, 4, A)
    assert quorum.is_removal_committed


@pytest.mark.rows("EL-63")
def test_a_successor_has_the_majority_also_in_its_own_first_list_and_nobody_else_has_it() -> None:
    last, footing = handed_over_by_one_of_four()
    for members in ((B, D, E), (B, D)):
        quorum = member(B)
        quorum.adopt(last, footing, is_master=True)
        quorum.on_view_made(MembersView(5, B, members))
        assert quorum.has_majority, "A agrees with nobody any more"
    other = member(D)
    other.adopt(last, footing, is_master=False)
    assert not other.left
    other.on_master_lost()
    other.on_view_made(MembersView(5, D, (D,)))
    assert not other.has_majority


def test_the_list_of_a_master_of_an_older_release_makes_its_removals_good_when_all_have_it() -> None:
    """Only that master knows that A, the third of four, agrees with nobody any more."""
    last, footing = handed_over_by_one_of_four()
    quorum = member(B)
    quorum.adopt(last, msgspec.structs.replace(footing, left=()), is_master=True)
    assert quorum.has_majority
    assert not quorum.record_removal_ack(D, 4, A)
    assert not quorum.record_view_ack(B, 4, A)
    assert not quorum.is_removal_committed
    assert quorum.record_view_ack(D, 4, A)
    assert quorum.is_removal_committed


OLD, LOST, KEPT = b"\0\0\0\0old", b"\0\0\0\0lost", b"\0\0\0\0kept"


def is_between_a_and_c(sender: str, receiver: str, message: m.Message) -> bool:
    return {sender, receiver} == {"A", "C"}


def is_lost(sender: str, receiver: str, message: m.Message) -> bool:
    is_list = sender + receiver == "AB" and isinstance(message, m.MembersUpdate)
    return is_list or is_between_a_and_c(sender, receiver, message)


def parted() -> Cluster:
    """A leads B and C, and has removed C, which owns a partition with its backup at A. B has not heard of it.

    What C was granted is over; A's own lease goes on.
    """
    c = Cluster("", lease_ms=20_000)
    c.seeds = "A"
    for name in "ABC":
        c.start(name)
        c.advance(1_500)
    c.assign("A", rows=["CA"])
    c.ask("A", m.ChangeMap, MAP, MapChange(protection=Protection(majority=True)))
    c.advance(3_000)
    put = c.put("C", c.key(0), OLD)
    c.advance(100)
    assert c.is_done(put)
    c.swallow = is_lost
    lease = c.nodes["A"].membership.majority.lease
    while not 0 < lease.holds_until < c.now:
        c.advance(100)
    assert (c.view("A"), c.view("B")) == ("AB", "ABC")
    assert c.now < lease.until
    return c


def test_a_removed_owner_keeps_its_partition_until_the_majority_knows_of_the_removal() -> None:
    c = parted()
    until = c.nodes["A"].membership.majority.lease.until
    c.advance(6_000)
    assert c.row("A") == "CA"
    assert c.nodes["A"].membership.majority.lease.until == until, "what B echoes does not count before it knows"
    c.swallow = is_between_a_and_c
    c.hold("A", "B")
    c.advance(1_000)
    assert c.row("A") == "CA"
    c.release("A", "B")
    while c.view("B") != "AB":
        assert c.row("A") == "CA"
        assert c.step()
    c.settle()
    assert c.row("A").startswith("A"), "and no time has passed since"
    put = c.put("A", c.key(0), KEPT)
    c.advance(100)
    assert c.is_done(put)


def test_no_write_is_confirmed_that_the_majority_goes_on_without() -> None:
    """1. A confirms a write alone, as the new owner. 2. B, cut off from A, leads C, which goes on as the owner."""
    c = parted()
    c.cut("A", "B")
    lost = c.put("A", c.key(0), LOST)
    c.advance(100)
    assert not c.is_done(lost)
    for _ in range(600):
        c.advance(100)
        kept = c.put("C", c.key(0), KEPT)
        c.advance(100)
        if c.is_done(kept):
            break
    assert (c.view("B"), c.is_done(kept), c.is_done(lost)) == ("BC", True, False)
    assert c.row("C").startswith("C")


@pytest.mark.rows("DU-05")
def test_what_is_acknowledged_after_a_removal_outlives_a_power_cut_although_some_come_back_late() -> None:
    """1. A removes B from A, B, C, D and E, and D is to own what B owned. 2. All lose power before C and E have that list, and A and D come
    back late. 3. By what B, C and E have read they are the majority, and B has what D removed."""
    c = Cluster(has_folders=True, seeds="A", restart_grace_ms=3_000)
    for name in "ABCDE":
        c.start(name)
        c.advance(1_500)
    c.assign(rows=["BD"])
    c.put("B", c.key(0), OLD)
    c.advance(5_000)
    assert c.views_of("ABCDE") == ["ABCDE"] * 5
    c.hold("A", "CE")
    c.crash("B")
    c.advance(2_000)
    assert c.views_of("ACDE") == ["ACDE", "ABCDE", "ACDE", "ABCDE"]
    removal = c.ask("D", m.Remove, MAP, c.key(0))
    c.advance(1_000)
    assert (c.replicas("A"), c.is_done(removal)) == ("BD", False)
    c.release()
    c.advance(1_000)
    assert c.replicas("A")[0] == "D", "more than half have it"
    removal = c.ask("D", m.Remove, MAP, c.key(0))
    c.advance(100)
    assert c.is_done(removal)
    c.crash("ACDE")
    for name in "BCE":
        c.start(name, seeds="BCE")
    c.advance(40_000)
    assert not c.table("B").is_assigned, "they know of the list without B"
    c.start("A", seeds="BCE")
    c.start("D", seeds="BCE")
    c.advance(40_000)
    assert c.get(c.replicas("A")[0], c.key(0)) is None
