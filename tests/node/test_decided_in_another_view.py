"""What was decided in a view that a member has not installed binds it only when it has.

1. A cannot reach B, C and E, removes B and C, and begins the partitions anew that only they held, with D as the owner and
E as the backup. 2. D has heard of that, and tells E. 3. E, to which A's list has not come, accepts the claim of B. Had E
taken D's word or A's table, it would bring them to B's side: what B and C hold would seem outdated by what began empty.
"""

import pytest

from phalanx.codec.rows import pack_rows
from phalanx.common.view import ViewId
from phalanx.wire import messages as m
from phalanx_proof.sim.options import Profile
from phalanx_proof.sim.profiles.drawing import draw_options
from phalanx_proof.sim.run import run
from support.harness import KEY, Lone, lone_id, lone_view
from support.masters import table_of

VALUE = bytes(8) + b"v"
pytestmark = pytest.mark.rows("CS-26")

BY_A, BY_B = ViewId(6, lone_id("A")), ViewId(6, lone_id("B"))


def member() -> Lone:
    """E, with a list of A's and a table in which B owns the only partition, and C backs it up."""
    e = Lone("E", "ABCDE", 5)
    e.hear("A", m.TableUpdate(table_of("BC", versions=[4]), (), ViewId(5, lone_id("A"))))
    e.sent.clear()
    return e


def probe(view: ViewId) -> m.Probe:
    return m.Probe(0, 6, 0, 0, "", 1, view)


def test_an_owner_is_answered_when_its_view_has_come_too() -> None:
    e = member()
    e.hear("D", probe(BY_A))
    assert e.sent_of(m.ProbeAnswer) == []
    assert 0 not in e.node.grid.follower.replicas
    e.hear("A", m.MembersUpdate(lone_view("ADE", 6)))
    assert e.sent_of(m.ProbeAnswer) == [("D", m.ProbeAnswer(0, 6, 0))]


@pytest.mark.parametrize("view", [ViewId(5, lone_id("B")), BY_B])
def test_an_owner_on_another_side_is_never_answered(view: ViewId) -> None:
    """Neither at once nor when this side has come to a later view, in which the owner may still be by mistake."""
    e = member()
    if view == BY_B:
        e.hear("A", m.MembersUpdate(lone_view("ABDE", 6)))
    e.hear("D", probe(view))
    e.hear("A", m.MembersUpdate(lone_view("ADE", 7)))
    assert e.sent_of(m.ProbeAnswer) == []
    e.hear("D", probe(ViewId(7, lone_id("A"))))
    assert e.sent_of(m.ProbeAnswer) == [("D", m.ProbeAnswer(0, 6, 0))]


def test_no_copy_is_taken_from_an_owner_whose_view_has_not_come() -> None:
    e = member()
    start = m.CopyStart(0, 0, 1, 6, 1, 1, None, (), BY_A)
    e.hear("D", start)
    e.hear("D", m.CopyChunk(0, 1, 0, "m", pack_rows([KEY], [VALUE]), [], last=True))
    assert e.sent_of(m.CopyAck) == []
    e.hear("A", m.MembersUpdate(lone_view("ADE", 6)))
    e.hear("D", start)
    e.hear("D", m.CopyChunk(0, 1, 0, "m", pack_rows([KEY], [VALUE]), [], last=True))
    assert e.sent_of(m.CopyAck) == [("D", m.CopyAck(0, 1, 0))]


def test_a_table_waits_for_the_view_that_it_was_made_for() -> None:
    """A link that breaks may lose the list, and carry the table that the master publishes after it."""
    e = member()
    anew = m.TableUpdate(table_of("DE", versions=[6]), (), BY_A)
    changes = m.TableChanges(4, 6, (m.RowChange(0, 6, 6, (lone_id("D"), lone_id("E"))),), (), BY_A)
    for message in (anew, changes):
        e.hear("A", message)
        assert e.node.installed_table.table == table_of("BC", versions=[4])
        assert e.sent_of(m.TableAck) == [], "it is told again"
    e.hear("A", m.MembersUpdate(lone_view("ADE", 6)))
    e.hear("A", anew)
    assert e.node.installed_table.table == anew.table


def test_what_began_empty_on_one_side_does_not_outdate_what_the_other_holds() -> None:
    """The history in which that was found: it lost acknowledged writes."""
    result = run(draw_options(51_197, Profile.CUTS))
    assert not result.violations
