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
    c.advance(10_000)
    assert not quorum.is_stable
    for name in "BA":
        c.sync(name)
    c.advance(10_000)
    assert quorum.is_stable
    assert c.views_of("AB") == ["AB", "AB"], "nobody was suspected meanwhile"
