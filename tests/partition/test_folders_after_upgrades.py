"""Members that came while the master was of a release that knows nothing of folders: the views tell of theirs later."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest

from phalanx.common.store import StoreStart
from phalanx.common.view import MembersView
from phalanx.wire import messages as m
from phalanx.wire.table_events import PartitionLost
from support.dormancy import VALUE, dormant, write
from support.harness import Cluster, lone_id, name_of
from support.mixed_members import NEW, Master, ask

pytestmark = pytest.mark.rows("DU-32")


def upgraded(rows: tuple[str, ...]) -> Cluster:
    """B and C were upgraded, and got folders, while A was the master, which is of an older release. Then it is D."""
    c = Cluster(has_folders=True, seeds="A", partition_count=len(rows), backup_count=0, without_folders="A")

    def as_older(view: MembersView, *fields: Any) -> MembersView:
        return make(view, *fields[:5])

    make = MembersView.with_change
    c.start("A", raise_cluster_version=False)
    c.advance(1_500)
    with patch.object(MembersView, "with_change", as_older):
        for name in "BC":
            c.join(name)
    c.leave("A")
    c.advance(5_000)
    c.join("D", seeds="B")
    c.advance(2_000)
    assert c.view("D") == "BCD"
    c.assign(rows=rows)
    for partition, row in enumerate(rows):
        write(c, row[0], partition, VALUE)
    return c


def test_the_view_that_raises_the_cluster_version_names_all_folders() -> None:
    """PX-44."""
    c = upgraded(("B", "C", "D"))
    assert {name_of(member): start.store for member, start in c.members_view("D").stores} == {
        name: name for name in "BCD"
    }


def test_an_operator_raises_it_when_all_have_told_of_their_folders() -> None:
    """PX-44."""
    a = Master("AB", raise_cluster_version=False)
    assert isinstance(ask(a, m.RaiseClusterVersion(1, NEW)), m.ErrorReply)
    store = StoreStart("b", 1)
    view = a.present
    a.hear("B", m.MasterConfirmation(view.version, view.maker, -1, departures=(), store=store))
    ask(a, m.RaiseClusterVersion(2, NEW))
    assert (a.present.cluster_version, a.present.stores) == (NEW, ((lone_id("B"), store),))


def test_a_later_master_knows_their_folders() -> None:
    c = upgraded(("B", "C", "D"))
    c.crash("BC")
    c.advance(20_000)
    assert dormant(c, "D") == {0: "B", 1: "C"}
    assert not c.events_of("D", PartitionLost)
