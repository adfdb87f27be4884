"""DU-57: where all members that hold data have folders, a new one without is refused; and it can still get there, one after another."""

from __future__ import annotations

import pytest

from phalanx.common.former_incarnation import FormerIncarnation
from phalanx.common.ids import MemberId
from phalanx.common.quorum import QuorumHandover
from phalanx.common.store import StoreStart
from phalanx.grid.replication.replica_log import ReplicaLog
from phalanx.machine.effects import Finished
from support.harness import Cluster


def members_with(folders: str, others: str = "") -> Cluster:
    c = Cluster(seeds=folders[0])
    for name in folders + others:
        c.start(name, log=ReplicaLog(store=StoreStart(name, 1)) if name in folders else None)
        c.advance(1_500)
    return c


def has_joined(c: Cluster, name: str) -> bool:
    c.advance(3_000)
    return name in c.nodes and c.nodes[name].membership.view is not None


@pytest.mark.rows("DU-57")
def test_it_is_refused_and_told_what_to_do() -> None:
    c = members_with("AB")
    c.start("C")
    assert not has_joined(c, "C")
    assert c.finished["C"].failed
    assert c.finished["C"].reason.endswith("set data_dir, or make it a lite member")


@pytest.mark.rows("DU-57")
def test_a_cluster_gets_folders_one_member_after_another() -> None:
    c = Cluster("ABC")
    for name in "CB":
        c.crash(name)
        c.advance(20_000)
        c.start(name, log=ReplicaLog(store=StoreStart(name, 1)))
        assert has_joined(c, name)
        c.start("D")
        assert has_joined(c, "D"), "A has none"
        c.crash("D")
        c.advance(20_000)


def test_a_lite_member_needs_none() -> None:
    c = members_with("AB")
    c.start("C", lite=True)
    assert has_joined(c, "C")


@pytest.mark.rows("DU-57")
def test_who_was_a_member_before_comes_back_as_it_was() -> None:
    c = members_with("AB")
    past = FormerIncarnation(ask_first=(c.nodes["A"].this,))
    carried = QuorumHandover(None, voter=MemberId("10.0.0.3:5701/C0"))
    c.start("C", after=Finished("the others went on", past.ask_first, past=past, carried=carried))
    assert has_joined(c, "C")
