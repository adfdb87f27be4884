"""What a simulated operator restores from backups, and what is judged of the members that start with it."""

from types import SimpleNamespace
from typing import cast

import pytest

from phalanx.common.ids import Address, MemberId
from phalanx.common.quorum import QuorumRecord, QuorumView
from phalanx.common.view import MembersView
from phalanx.disk.blocks import BlockTimes
from phalanx.wire.disk_records import ViewRecord
from phalanx_proof.sim.cluster.folder import UNSYNCED_MS, SimFolder
from phalanx_proof.sim.cluster.host import Host
from phalanx_proof.sim.cluster.observer import Observer
from phalanx_proof.sim.cluster.restored_cluster import RestoredCluster
from phalanx_proof.sim.cluster.restored_folder import RestoredFolder, founder_in
from phalanx_proof.sim.cluster.world import World
from support.losing_disk import LosesWhatIsNotSynced

A = MemberId("A:1/1")
NOW = 2 * UNSYNCED_MS


def join(folder: SimFolder, founder: MemberId) -> None:
    """Write that A is in a cluster that this member has founded, and sync nothing."""
    footing = QuorumRecord(founder, QuorumView(1, 1, A, (A,)), 1)
    folder.log.add(ViewRecord(MembersView(1, A, (A,)), footing, A, A))
    folder.write(NOW, BlockTimes(NOW << 16, NOW, NOW))


@pytest.fixture
def folder() -> SimFolder:
    """Return the folder of A, which has begun its log, and has synced that."""
    folder = SimFolder("any")
    folder.files = LosesWhatIsNotSynced()
    folder.begin_process("c", 0, 0)
    folder.begin_log(0, A, BlockTimes(0, 0, 0))
    folder.advance(NOW)
    return folder


def restore_backup_of(folder: SimFolder) -> Host:
    """Back the folder of A up, and restore it on another host. Return that one."""
    host, place = Host(0, Address("A:1")), Host(1, Address("R:1"))
    host.folder = folder
    starts: list[Host] = []
    world = SimpleNamespace(
        now=NOW, hosts=[host], restored_hosts=[place], restored_folder_type=RestoredFolder,
        options=SimpleNamespace(seed=1, backed_up_at_ms=NOW),
        queue=SimpleNamespace(call_at=lambda at, call, *args: call(*args)),
        start_later=lambda starting, after_ms: starts.append(starting),
    )  # fmt: skip
    RestoredCluster(1, cast(Observer, None), lambda what, why: None).plan(cast(World, world))
    assert starts == ([place] if place.folder is not None else [])
    return place


def test_what_a_backup_has_is_restored_also_where_it_was_not_synced(folder: SimFolder) -> None:
    join(folder, A)
    assert founder_in(folder.copy(NOW)) == A
    place = restore_backup_of(folder)
    assert place.folder is not None
    restoration = place.folder.begin_process("c", NOW, NOW)
    assert restoration is not None
    assert restoration.carried.memory is not None
    assert restoration.carried.memory.footing.root.startswith("A:1/restored-")


def test_nothing_is_restored_where_a_power_cut_has_taken_the_cluster_from_the_disk(folder: SimFolder) -> None:
    """The process that founded it has written more than what is there. Who starts with the backup belongs to no cluster, and may join any."""
    join(folder, A)
    folder.cut_power(NOW)
    assert folder.replay.index.cluster.footing is not None
    assert founder_in(folder.copy(NOW)) is None
    assert restore_backup_of(folder).folder is None


def test_the_founder_is_the_one_that_the_disk_names(folder: SimFolder) -> None:
    """1. A is in a cluster, and that is synced. 2. It comes to another one, and the power is cut. 3. Its folder is of the first one."""
    join(folder, A)
    folder.files.end_sync(folder.files.begin_sync())
    join(folder, MemberId("B:1/1"))
    assert founder_in(folder.copy(NOW)) == MemberId("B:1/1")
    folder.cut_power(NOW)
    assert founder_in(folder.copy(NOW)) == A
