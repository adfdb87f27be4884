"""DU-34: an incarnation ends before it has a table, and its process joins another side: what has come to it stays, as if it was read."""

from __future__ import annotations

import pytest

from phalanx.wire import messages as m
from support.dormancy import VALUE
from support.harness import Cluster


@pytest.mark.rows("DU-29", "DU-34")
@pytest.mark.parametrize("ends", ["incarnation", "process"])
def test_a_write_that_only_a_member_without_a_table_has_is_there_when_it_is_back(ends: str) -> None:
    c = Cluster(has_folders=True, seeds="A", partition_count=1, backup_count=1)
    for name in "ACB":
        c.start(name)
        c.advance(1_500)
    c.crash("B")
    c.advance(15_000)
    c.swallow = lambda sender, receiver, message: (
        receiver == "B" and isinstance(message, m.TableUpdate | m.TableChanges)
    )
    c.join("B", seeds="A")
    c.advance(2_000)
    c.assign(rows=["AB"])
    put = c.put("A", c.key(0), VALUE)
    c.advance(50)
    assert c.is_done(put)
    assert not c.table("B").is_assigned
    c.cut("B", "AC")
    c.crash("A" if ends == "incarnation" else "AB")
    c.lose_folder("A")
    c.swallow = lambda sender, receiver, message: False
    c.advance(20_000)
    c.heal()
    if ends == "process":
        c.join("B", seeds="C")
    c.stay_together("BC")
    assert c.get(c.replicas("C")[0], c.key(0)) == VALUE
