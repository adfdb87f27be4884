"""Two masters, one after the other, change one partition without knowing of each other's change: the numbers collide.

The table of the first reached only members that then died; but an owner that it made has spoken to backups before.
"""

import pytest

from phalanx.wire import messages as m
from phalanx.wire.table_events import TableSearchEnded
from support.harness import KEY, Cluster

OLD, NEW, UNHEARD = b"\0\0\0\1old", b"\0\0\0\1new", b"\0\0\0\1unheard"


def rule_that_few_heard_of(owners: str, told: str) -> Cluster:
    """A partition is held by `owners`, B and C. All owners but the last, L, die; master M makes L the owner.

    Only L hears of that; members in `told` have heard that the owners are gone. L begins its rule with these, and writes
    a value that is confirmed to nobody. Then M and L die. Returned: the cluster that is left.
    """
    last = owners[-1]
    c = Cluster(f"M{owners}BC", backup_count=len(owners) + 1)
    c.assign(rows=[f"{owners}BC"])
    write = c.put(owners[0], KEY, OLD)
    c.settle()
    assert c.is_done(write)
    c.hold_all()
    c.swallow = lambda sender, receiver, message: isinstance(message, m.MigrationOrder)
    for gone in owners[:-1]:
        c.crash(gone)
        c.release(f"M{gone}{last}", f"M{gone}{last}")
        c.advance(2_000)
    assert c.replicas(last) == f"{last}BC"
    unheard = c.put(last, KEY, UNHEARD)
    for member in told:
        for _ in owners[:-1]:
            c.deliver("M", member, m.MembersUpdate)
        c.deliver(last, member, m.Probe)
        c.deliver(member, last, m.ProbeAnswer)
        c.deliver(last, member, m.ReplicatePut)
        assert c.entries(member) == {KEY: UNHEARD}
    c.crash(f"M{last}")
    c.release()
    c.advance(5_000)
    assert c.views_of("BC") == ["BC", "BC"]
    # Nobody is left whose table tells of it; but whoever follows it has all that may have been confirmed under it.
    assert c.events_of("B", TableSearchEnded)[-1].adopted == ((0,) if told else ())
    assert c.replicas("C") == ("C" if told == "C" else "BC"), "B copies to C without a message to itself"
    assert unheard not in c.replies
    c.swallow = lambda *_: False
    c.advance(2_000)
    assert sorted(c.replicas("C")) == ["B", "C"]
    assert c.replicas("C")[0] == ("C" if told == "C" else "B")
    return c


@pytest.mark.parametrize("owners", ["XL", "XYL", "XYZL"])
@pytest.mark.parametrize("told", ["", "C", "B", "BC"])
def test_the_rule_of_a_lost_table_is_not_mistaken_for_the_rule_of_the_table_that_goes_on(
    owners: str, told: str
) -> None:
    c = rule_that_few_heard_of(owners, told)
    owner, backup = list(c.replicas("C"))
    before = c.get(owner, KEY)
    assert before == (UNHEARD if told else OLD)
    c.advance(3_000)
    assert c.entries(backup) == {KEY: before}
    write = c.put(owner, KEY, NEW)
    c.advance(3_000)
    assert c.is_done(write)
    c.crash(owner)
    c.advance(3_000)
    assert c.get(backup, KEY) == NEW


@pytest.mark.rows("CS-26")
@pytest.mark.parametrize("gone", ["", "Y", "YZ"])
def test_nobody_follows_an_owner_whose_list_has_not_come(gone: str) -> None:
    """M takes X for dead and makes L the owner; only L hears of it, and asks C. M and L die, X does not.

    X goes on: it may have confirmed what L never had. So C must not have followed L, and L has confirmed nothing.
    """
    c = Cluster(f"MX{gone}LBC", backup_count=len(gone) + 3)
    c.assign(rows=[f"X{gone}LBC"])
    write = c.put("X", KEY, OLD)
    c.settle()
    assert c.is_done(write)
    c.hold_all()
    c.swallow = lambda sender, receiver, message: isinstance(message, m.MigrationOrder)
    c.crash(gone)
    c.cut("M", "X")
    c.release("M", "X")
    c.release(f"M{gone}L", f"M{gone}L")
    c.advance(2_000)
    assert c.replicas("L") == "LBC"
    unheard = c.put("L", KEY, UNHEARD)
    c.deliver("L", "C", m.Probe)
    c.crash("ML")
    c.release()
    c.advance(5_000)
    assert c.views_of("XBC") == ["XBC"] * 3
    assert c.events_of("X", TableSearchEnded)[-1].adopted == ()
    c.swallow = lambda *_: False
    c.advance(2_000)
    owner, hotter, colder = list(c.replicas("X"))
    assert owner == "X"
    assert c.get("X", KEY) == OLD
    assert unheard not in c.replies
    writes = [c.put("X", KEY, NEW), c.put("X", c.key(0, 1), NEW)]
    c.advance(3_000)
    assert all(c.is_done(write) for write in writes)
    c.crash("X")
    c.crash(hotter)
    c.advance(3_000)
    assert c.get(colder, KEY) == NEW
    assert c.get(colder, c.key(0, 1)) == NEW
