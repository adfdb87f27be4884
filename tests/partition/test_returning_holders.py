"""Who is waited for, and who goes on with a partition: holders that have left, come back as others, or have gone on elsewhere."""

from __future__ import annotations

import pytest

from phalanx.common.lineage import LeaderEpoch
from phalanx.common.losses import LossKind
from phalanx.wire import messages as m
from phalanx.wire.join_events import LiteChanged
from phalanx.wire.merge_messages import DormantOrphans
from phalanx.wire.table_messages import OwnerEpoch
from support.dormancy import LATER, VALUE, back, crash, dormant, filled, give_up, read, write
from support.harness import Cluster, lone_id

pytestmark = pytest.mark.rows("DU-30", "DU-32")


def test_a_cluster_waits_for_no_holder_that_has_left_for_good_while_it_lacked_the_majority() -> None:
    """B ends, and A goes on without the majority. C joins A, which hands over to it, and leaves."""
    c = filled("AB", "AB")
    crash(c, "B")
    c.join("C", seeds="A")
    c.advance(5_000)
    write(c, "A", 0, LATER)
    c.leave("A")
    c.advance(20_000)
    assert (c.views_of("C"), c.row("C", 0)) == (["C"], "C")
    c.crash("C")
    c.start("B")
    c.start("C", seeds="B")
    c.stay_together("BC")
    assert read(c, 0) == LATER


@pytest.mark.parametrize(("others", "begins"), [(1, False), (2, True)], ids=["all and more", "another line"])
def test_what_is_to_be_merged_is_not_all_where_another_folder_has_all_of_it_and_more(others: int, begins: bool) -> None:
    """B was cut off, or came back too late, and is to merge what it had. D went on with it, without the majority."""
    c = filled("ABCD", "BC")
    b = c.id("B")
    c.crash("B")
    crash(c, "C")
    assert dormant(c, "A") == {0: "BC"}
    lineage = (LeaderEpoch(1, b, 0),)
    went_on = OwnerEpoch(0, 9, c.id("D"), 20, (LeaderEpoch(others, b, 0), LeaderEpoch(9, c.id("D"), 12)))
    version = c.table("A").version
    c.say("D", "A", m.TableAck(version, formers=(lone_id("X"),), positions=(went_on,), lacks_majority=True))
    to_merge = DormantOrphans(b, (0,), positions=(OwnerEpoch(0, 1, b, 10, lineage),))
    c.say("D", "A", m.KeptReport(1, 1, dormant=(to_merge,)))
    assert (dormant(c, "A") == {}) is begins


def test_what_is_to_be_merged_waits_for_what_the_member_has_read() -> None:
    """B's process merged what it had into D's side, and D owns it there. What D tells of the merge overtakes what it has read."""
    c = filled("ABCD", "BC")
    b, d = c.id("B"), c.id("D")
    c.crash("B")
    c.swallow = lambda sender, receiver, message: sender == "D" and isinstance(message, m.TableAck)
    crash(c, "C")
    report = m.KeptReport(0, 0, dormant=(DormantOrphans(b, (0,)),))
    c.say("D", "A", report)
    c.say("D", "A", report)
    assert dormant(c, "A") == {0: "BC"}
    went_on = OwnerEpoch(0, 9, d, 20, (LeaderEpoch(9, d, 0),))
    c.say("D", "A", m.TableAck(c.table("A").version, formers=(lone_id("X"),), positions=(went_on,)))
    assert dormant(c, "A") == {}
    assert c.table("A").owner(0) == d
    assert c.table("A").versions[0] > 9


def became_lite(c: Cluster, name: str) -> None:
    """It held data before: it was in no row as a lite member."""
    assert [each.subject for each in c.events_of("A", LiteChanged)] == [c.id(name)]
    assert c.members_view("A").traits_of(c.id(name)).lite


def test_one_that_comes_back_as_a_lite_member_holds_what_it_has_read_until_others_do() -> None:
    """PX-02: also if it joins anew before it could bring it."""
    c = filled("ABC", "A", "B", "C", backup_count=0)
    crash(c, "B")
    c.swallow = lambda sender, receiver, message: sender == "B" and isinstance(message, m.TableAck)
    c.start("B", seeds="A", lite=True)
    c.advance(3_000)
    c.hang("B")
    c.advance(12_000)
    c.resume("B")
    c.advance(1_000)
    c.swallow = lambda sender, receiver, message: False
    c.stay_together("ABC")
    assert read(c, 1) == VALUE
    c.advance(5_000)
    assert (c.row("A", 1), read(c, 1)) in {("A", VALUE), ("C", VALUE)}
    became_lite(c, "B")


def test_after_a_restart_of_all_a_lite_member_holds_what_it_has_read_until_others_do() -> None:
    c = filled("AB", "A", "B", backup_count=0)
    c.crash("AB")
    c.start("A")
    c.start("B", seeds="A", lite=True)
    c.advance(20_000)
    assert (read(c, 0), read(c, 1)) == (VALUE, VALUE)
    assert c.row("A", 1) == "A"
    became_lite(c, "B")


def test_another_folder_at_the_address_of_a_holder_does_not_say_that_the_holder_has_nothing() -> None:
    """C goes, and B confirms a write alone. C is back, and lacks that write, when B's folder is lost."""
    c = filled("ABC", "A", "BC")
    c.swallow = lambda sender, receiver, message: isinstance(message, m.CopyChunk)
    crash(c, "C")
    write(c, "B", 1, LATER)
    c.join("C", seeds="AB")
    crash(c, "B")
    c.lose_folder("B")
    back(c, "B")
    assert dormant(c, "A") == {1: "B"}
    assert give_up(c, "A", "B", 0) == ""
    assert [loss.kind for loss in c.table("A").losses.losses] == [LossKind.EMPTY]
    c.advance(10_000)
    assert read(c, 1) == VALUE, "C has had that to merge"
