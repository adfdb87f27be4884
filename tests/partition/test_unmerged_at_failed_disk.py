"""DU-41: a member leaves because of its disk, and has something to merge that nobody else has."""

import pytest

from phalanx.common.disk_state import DiskState
from phalanx.common.losses import LossKind
from phalanx.grid.merge.merging import LEAVE_AFTER_MS
from phalanx.machine.inputs import DiskChecked
from phalanx.wire import messages as m
from support.harness import Cluster
from support.merges import cluster, keys, meet, put, split

FAILED = DiskChecked(DiskState.FAILED, "data_dir /data: the sync of 1.log has failed: EIO")


class Batches:
    """Loses what A sends to be merged, but for so many batches."""

    def __init__(self, c: Cluster) -> None:
        self.let = 0
        c.swallow = self._lose

    def _lose(self, sender: str, receiver: str, message: m.Message) -> bool:
        if not isinstance(message, m.MergeEntries):
            return False
        self.let -= 1
        return self.let < 0


def wait(c: Cluster, ms: int) -> None:
    """Let the member find each second that its disk has failed, as it does."""
    for _ in range(ms // 5_000):
        c.feed("A", FAILED)
        c.advance(5_000)


@pytest.mark.rows("DU-41")
@pytest.mark.parametrize("is_told", [False, True])
def test_it_gives_up_nothing_before_an_operator_tells_it_to_leave(is_told: bool) -> None:
    c = cluster("ABC", backup_count=0)
    for key in keys(30):
        put(c, "A", key, b"before")
    split(c, "A", "BC")
    put(c, "A", keys(31)[-1], b"alone")
    meet(c, "A")
    batches = Batches(c)
    c.rejoin("A")
    wait(c, LEAVE_AFTER_MS)
    before = c.nodes["A"].data_merging.orphaned.entry_count()
    batches.let = 1
    wait(c, 3 * LEAVE_AFTER_MS)
    held = c.nodes["A"].data_merging.orphaned.entry_count()
    assert 0 < held < before
    if is_told:
        c.leave("A")
        c.advance(LEAVE_AFTER_MS + 5_000)
    else:
        batches.let = 1_000
        c.advance(LEAVE_AFTER_MS // 2)
    assert "A" not in c.view("B")
    losses = c.nodes["B"].installed_table.table.losses.losses
    assert [each.entries for each in losses if each.kind is LossKind.KEPT] == [held] * is_told
