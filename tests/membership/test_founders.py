"""What members tell of who founded their cluster, and for how long it has existed: through claims, cuts, merges and returns."""

import msgspec
import pytest

from phalanx.common.former_incarnation import FormerIncarnation
from phalanx.common.ids import MemberId
from phalanx.common.quorum import MERGED, QuorumHandover, first_record, with_merged
from phalanx.common.restored_cluster import is_restored, restored_root, stay_apart
from phalanx.common.view import MembersView
from phalanx.machine.effects import Finished
from phalanx.wire import messages as m
from phalanx.wire.join_events import JoinRequestRefused
from support.harness import Cluster, address, lone_id


def told_by(c: Cluster, name: str) -> m.TableReply:
    reply = c.replies[c.ask(name, m.GetTable, False)]
    assert isinstance(reply, m.TableReply), reply
    return reply


def founders(c: Cluster, name: str) -> tuple[MemberId, ...]:
    return told_by(c, name).founders


def test_all_members_name_the_one_that_founded_their_cluster_also_when_it_is_gone() -> None:
    c = Cluster("ABC")
    founder = c.id("A")
    assert [founders(c, name) for name in "ABC"] == [(founder,)] * 3
    c.crash("A")
    c.advance(10_000)
    assert c.master("B") == "B"
    c.join("D", seeds="B")
    assert [founders(c, name) for name in "BCD"] == [(founder,)] * 3


def test_both_sides_of_a_cut_name_one_founder() -> None:
    c = Cluster("ABCD")
    founder = c.id("A")
    c.cut("AB", "CD")
    c.advance(30_000)
    assert c.views_of("AC") == ["AB", "CD"]
    assert [founders(c, name) for name in "ABCD"] == [(founder,)] * 4


def test_a_cluster_to_which_another_has_come_names_both_founders() -> None:
    c = Cluster("AB")
    c.seeds = ""
    c.join("S")
    c.join("T", seeds="S")
    mine, other = c.id("A"), c.id("S")
    assert founders(c, "T") == (other,)
    # The smaller side finds the larger one as soon as somebody looks for it.
    c.join("C", seeds="AS")
    c.stay_together("ABCST")
    assert {founders(c, name) for name in "ABCST"} == {(mine, other)}
    c.crash("A")
    c.advance(10_000)
    assert {founders(c, name) for name in "BCST"} == {(mine, other)}


def test_the_founders_of_all_that_came_before_are_named_up_to_a_bound() -> None:
    view = MembersView(1, lone_id("A"), (lone_id("A"),))
    footing = with_merged(first_record(view), [lone_id("B"), lone_id("C"), lone_id("A")])
    assert footing.founders == (lone_id("A"), lone_id("B"), lone_id("C"))
    many = [MemberId(f"{address('X')}/{number}") for number in range(2 * MERGED)]
    assert with_merged(footing, many).founders == (lone_id("A"), *many[-MERGED:])


def test_the_age_of_a_cluster_is_told_alike_by_its_founder_and_by_who_came_late() -> None:
    c = Cluster("A")
    c.advance(60_000)
    c.join("B")
    c.advance(30_000)
    c.crash("A")
    c.advance(10_000)
    c.join("C", seeds="B")
    ages = [told_by(c, name).age_ms for name in "BC"]
    assert all(100_000 <= age <= 104_000 for age in ages), ages


def test_a_member_that_was_removed_and_is_alone_goes_on_with_the_age_of_its_cluster() -> None:
    c = Cluster("AB")
    founder = c.id("A")
    c.advance(60_000)
    c.hang("B")
    c.advance(20_000)
    c.resume("B")
    c.advance(2_000)
    assert "B" in c.finished
    c.crash("A")
    c.start("B", after=c.finished["B"])
    c.advance(60_000)
    reply = told_by(c, "B")
    assert reply.founders == (founder,)
    assert reply.age_ms >= 140_000


# --- clusters that were restored from backups -------------------------------------------------------------------------


def restored_beside_living() -> Cluster:
    """[A,B] and, founded apart, [S,T], whose founder says that it is of backups of the former."""
    c = Cluster("AB")
    c.seeds = ""
    c.join("S")
    quorum = c.nodes["S"].membership.majority.quorum
    assert quorum.footing is not None
    quorum.footing = msgspec.structs.replace(quorum.footing, root=restored_root(c.id("A"), "monday"))
    c.join("T", seeds="S")
    c.advance(5_000)
    return c


@pytest.mark.rows("DU-23")
def test_a_restored_cluster_and_the_living_one_never_merge_whoever_finds_the_other() -> None:
    """DU-23: 1. A backup of [A,B] is restored as [S,T]. 2. Each looks at an address of the other."""
    c = restored_beside_living()
    assert founders(c, "T") == (restored_root(c.id("A"), "monday"),)
    for here, there in ("AS", "SA"):
        c.nodes[here].membership.gone.former.remember([address(there)], c.now)
    c.advance(120_000)
    assert sorted(c.nodes) == ["A", "B", "S", "T"], "nobody has left its cluster for the other one"
    assert c.views_of("AS") == ["AB", "ST"]
    assert set(founders(c, "A")).isdisjoint(founders(c, "S"))


@pytest.mark.rows("DU-23")
@pytest.mark.parametrize("has_data", [True, False])
def test_a_member_of_the_living_cluster_does_not_join_a_restored_one(*, has_data: bool) -> None:
    """DU-23: 1. B of [A,B] is cut off and comes back. 2. It finds nobody but [S,T].

    Also if these have no data yet: 3. B joins them. 4. They count A as a founder, and the folders of A and B could join them.
    """
    c = restored_beside_living()
    if has_data:
        c.assign("S", rows=["ST"])
    memory = c.nodes["B"].membership.majority.quorum.memory()
    c.crash("B")
    past = FormerIncarnation(ask_first=(c.id("S"),))
    c.start("B", seeds="", after=Finished("cut off", past.ask_first, past=past, carried=QuorumHandover(memory)))
    c.advance(60_000)
    assert c.views_of("S") == ["ST"]
    assert any(
        "one of them was restored from backups" in event.reason for event in c.events_of("S", JoinRequestRefused)
    )


def test_sides_of_one_restored_cluster_merge() -> None:
    root = restored_root(lone_id("A"), "monday")
    assert not stay_apart((root,), (root,))
    assert not stay_apart((lone_id("A"),), (lone_id("B"),))
    assert stay_apart((root,), (lone_id("A"),))
    assert stay_apart((root,), (restored_root(lone_id("A"), "tuesday"),))
    assert restored_root(root, "monday") != root
    assert is_restored(root)
    assert not is_restored(lone_id("A"))
