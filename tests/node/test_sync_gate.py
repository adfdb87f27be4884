"""What a member confirms of its views, and of the copies that it gets, waits for its disk (DU-05)."""

from __future__ import annotations

import pytest

from phalanx.machine.inputs import Synced
from support.harness import Cluster

pytestmark = pytest.mark.rows("DU-05")


class SlowDisks(Cluster):
    """Members whose disks sync when a test says so."""

    def syncs_at_once(self, name: str) -> bool:
        return False

    def sync(self, name: str) -> None:
        self.feed(name, Synced(self.nodes[name].log.last_lsn))
        self.settle()

    def begin(self, name: str) -> None:
        self.start(name)
        self.advance(1_500)


@pytest.mark.parametrize("lease_ms", [0, 4_000])
def test_no_heartbeat_and_no_request_for_a_lease_confirms_a_view_that_is_not_synced(lease_ms: int) -> None:
    """1. B confirms A's view before it has synced that, which makes it stable. 2. The power fails: B's folder knows of no view, and nobody
    has B's vote any more."""
    c = SlowDisks(has_folders=True, seeds="A", lease_ms=lease_ms)
    quorum = c.start("A").membership.majority.quorum
    c.advance(1_500)
    c.sync("A")
    c.begin("B")
    assert c.view("B") == "AB"
    c.sync("A")
    c.advance(10_000)
    assert not quorum.is_stable
    for name in "BA":
        c.sync(name)
    c.advance(10_000)
    assert quorum.is_stable
    assert c.views_of("AB") == ["AB", "AB"], "nobody was suspected meanwhile"


@pytest.mark.parametrize("lease_ms", [0, 4_000])
def test_no_view_is_stable_before_its_master_has_synced_it(lease_ms: int) -> None:
    """1. A removes C from A, B and C, and B confirms it. 2. A tells that the list of A and B is stable, with a later one or a heartbeat. 3. The
    power fails before A has synced that: by its folder A is the majority with C, and B is it with others."""
    c = SlowDisks(has_folders=True, seeds="A", lease_ms=lease_ms)
    for name in "ABC":
        c.begin(name)
        for each in c.nodes:
            c.sync(each)
        c.advance(5_000)
    quorum = c.nodes["A"].membership.majority.quorum
    assert quorum.is_stable
    c.crash("C")
    c.advance(12_000)
    assert c.views_of("AB") == ["AB", "AB"]
    c.sync("B")
    c.advance(5_000)
    c.begin("D")
    c.sync("D")
    before = quorum.footing
    assert before is not None
    assert before.stable.voters == c.ids("ABC")
    c.sync("B")
    c.advance(5_000)
    told = c.nodes["B"].membership.majority.quorum.footing
    assert told is not None
    assert told.stable.voters == c.ids("ABC")
    for name in "ADBA":
        c.sync(name)
        c.advance(5_000)
    assert quorum.is_stable
    assert c.nodes["B"].membership.majority.quorum.is_stable


@pytest.mark.rows("DU-37")
@pytest.mark.parametrize("is_back", [False, True], ids=["a copy", "writes that it lacks"])
def test_a_member_is_in_no_row_before_its_disk_has_what_it_is_to_hold(*, is_back: bool) -> None:
    """1. A's partition is copied to B, which is in the row then. 2. A's disk is lost, and B loses power: the copy is on no disk."""
    c = SlowDisks(has_folders=True, seeds="A", partition_count=1, backup_count=1)

    def sync_until_b_has(entries: int) -> None:
        for _ in range(400):
            c.advance(50)
            c.sync("A")
            if len(c.entries("B", 0) or ()) == entries:
                return
            c.sync("B")
        raise AssertionError(f"B has {c.entries('B', 0)}")

    c.begin("A")
    c.sync("A")
    c.assign(rows=["A"])
    for number in range(2):
        c.put("A", c.key(0, number), b"value")
    c.sync("A")
    c.begin("B")
    sync_until_b_has(2)
    if is_back:
        c.advance(2_000)
        for name in "ABABAB":
            c.sync(name)
            c.advance(1_000)
        assert c.row("A", 0) == "AB"
        c.crash("B")
        c.advance(15_000)
        c.sync("A")
        c.put("A", c.key(0, 2), b"later")
        c.advance(20_000)
        c.sync("A")
        assert c.row("A", 0) == "A"
        c.begin("B")
        sync_until_b_has(3)
    for _ in range(10):
        c.advance(500)
        c.sync("A")
    assert c.row("A", 0) == "A"
    for _ in range(4):
        c.sync("B")
        c.advance(1_000)
        c.sync("A")
    assert c.row("A", 0) == "AB"
