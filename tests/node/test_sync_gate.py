"""What a member confirms of its views waits for its disk (DU-05)."""

from __future__ import annotations

import pytest

from phalanx.machine.inputs import Synced
from support.harness import Cluster


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
