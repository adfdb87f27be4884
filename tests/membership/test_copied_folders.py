"""DU-22: of two members with copies of one folder, the master refuses the second one, and says which two they are."""

from __future__ import annotations

import pytest

from phalanx.common.former_incarnation import FormerIncarnation
from phalanx.common.ids import Millis, member_id
from phalanx.common.store import StoreStart
from phalanx.common.view import MembersView
from phalanx.grid.replication.replica_log import ReplicaLog
from phalanx.machine.effects import Finished
from phalanx.membership.join.copied_folders import CopiedFolders
from phalanx.wire.join_events import JoinRequestRefused
from phalanx.wire.messages import JoinRequest
from support.harness import Cluster, address, lone_id

STORE = "7f3a" * 8
PATIENCE: Millis = 20_000


def asking(name: str, start: int, store: str = STORE) -> JoinRequest:
    return JoinRequest(1, member_id(address(name), f"{name}2"), "test", 9, 1, store=StoreStart(store, start))


def view_with(name: str, start: int) -> MembersView:
    members = (lone_id("M"), lone_id(name))
    return MembersView(3, lone_id("M"), members, stores=((lone_id(name), StoreStart(STORE, start)),))


@pytest.mark.rows("DU-22")
def test_a_copy_with_no_later_start_is_refused_at_once() -> None:
    copied = CopiedFolders(PATIENCE)
    for start in (3, 4):
        refusal = copied.refuse(asking("D", start), view_with("B", 4), {}, 0)
        assert refusal is not None
        assert refusal.is_final
        assert refusal.reason.startswith(
            f"the data_dir of {address('D')} is a copy of that of {address('B')}, which is "
        )
        assert "(store 7f3a7f3a)" in refusal.reason


def test_a_later_start_waits_until_the_member_would_be_removed() -> None:
    """It can be the same folder at another address: then the member of the view is dead."""
    copied, view = CopiedFolders(PATIENCE), view_with("B", 4)
    finals = []
    for now in (1_000, 1_000 + PATIENCE, 1_001 + PATIENCE):
        refusal = copied.refuse(asking("D", 5), view, {}, now)
        assert refusal is not None
        finals.append(refusal.is_final)
    assert finals == [False, False, True]
    assert copied.refuse(asking("D", 5), view_with("C", 4), {}, 30_000) is not None
    assert copied.refuse(asking("D", 5), MembersView(4, lone_id("M"), (lone_id("M"),)), {}, 40_000) is None
    again = copied.refuse(asking("D", 6), view, {}, 50_000)
    assert again is not None
    assert not again.is_final


def test_another_process_has_time_of_its_own() -> None:
    copied, view = CopiedFolders(PATIENCE), view_with("B", 4)
    assert copied.refuse(asking("D", 5), view, {}, 0) is not None
    refusal = copied.refuse(asking("E", 5), view, {}, PATIENCE + 1)
    assert refusal is not None
    assert not refusal.is_final


@pytest.mark.rows("DU-22")
def test_of_two_that_wait_for_the_next_view_one_is_refused() -> None:
    copied, first = CopiedFolders(PATIENCE), asking("D", 5)
    alone = MembersView(1, lone_id("M"), (lone_id("M"),))
    assert copied.refuse(asking("E", 5), alone, {first.member: first}, 0) is not None


@pytest.mark.rows("D-6")
def test_who_starts_again_at_its_address_is_no_copy() -> None:
    copied = CopiedFolders(PATIENCE)
    assert copied.refuse(asking("B", 5), view_with("B", 4), {}, 0) is None
    assert copied.refuse(asking("D", 4, "0" * 32), view_with("B", 4), {}, 0) is None
    assert copied.refuse(JoinRequest(1, lone_id("D"), "test", 9, 1), view_with("B", 4), {}, 0) is None


@pytest.mark.rows("D-17", "DU-22")
@pytest.mark.parametrize("comes_back", [False, True])
def test_the_copy_ends_and_the_other_one_stays(comes_back: bool) -> None:
    """Whoever comes back, with a folder or from another side, does not give up for other refusals."""
    c = Cluster("AB")
    c.start("C", log=ReplicaLog(store=StoreStart(STORE, 2)))
    c.settle()
    past = FormerIncarnation(ask_first=(c.nodes["A"].this,))
    after = Finished("other side", past.ask_first, past=past) if comes_back else None
    c.start("D", after=after, log=ReplicaLog(store=StoreStart(STORE, 2)))
    c.advance(1_000)
    assert "D" in c.finished, "it asks again and again"
    assert c.finished["D"].failed
    assert f"is a copy of that of {address('C')}" in c.finished["D"].reason
    (refused,) = [event for name, event in c.events if name == "A" and isinstance(event, JoinRequestRefused)]
    assert refused.rule == "DU-22"
    view = c.nodes["A"].membership.view
    assert view is not None
    assert view.members[2:] == (c.nodes["C"].this,)
    assert dict(view.stores) == {c.nodes["C"].this: StoreStart(STORE, 2)}


def test_a_new_master_knows_the_folders_too() -> None:
    c = Cluster("AB")
    c.start("C", log=ReplicaLog(store=StoreStart(STORE, 2)))
    c.settle()
    c.crash("A")
    c.advance(60_000)
    view = c.nodes["B"].membership.view
    assert view is not None
    assert dict(view.stores) == {c.nodes["C"].this: StoreStart(STORE, 2)}
