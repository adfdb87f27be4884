"""Backups of data folders, also of members that run, and clusters that are restored from them."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from phalanx.common.errors import UsageError
from phalanx.disk.segment_head import HEAD_BYTES
from phalanx.runtime.disk import backup, segment_copies
from phalanx.runtime.disk.backup import back_up, restore_backup
from phalanx.runtime.disk.data_folder import DataFolder
from phalanx.runtime.disk.stored_log import read_stored_log, why_not_replayed
from support.processes import Cluster, wait_for
from support.stored_clusters import StoredCluster, end_of_content, flip, segments_of

EACH = 300
PLACES = (0, 1, 2)


@pytest.fixture
def living(tmp_path: Path) -> Iterator[StoredCluster]:
    (tmp_path / "living").mkdir()
    cluster = Cluster(tmp_path / "living")
    yield StoredCluster(cluster)
    cluster.stop()


@pytest.fixture
def other(tmp_path: Path) -> Iterator[StoredCluster]:
    (tmp_path / "other").mkdir()
    cluster = Cluster(tmp_path / "other")
    yield StoredCluster(cluster)
    cluster.stop()


def fill(cluster: Cluster, value: int) -> None:
    with cluster.client() as grid:
        grid.map("orders").update({f"k{number}": value for number in range(EACH)})


def values(cluster: Cluster) -> set[int]:
    with cluster.client() as grid:
        found = dict(grid.map("orders").items())
        assert len(found) == EACH
        return set(found.values())


def founders_of(stored: StoredCluster, place: int = 0) -> tuple[str, ...]:
    return stored.cluster.table_of(stored.member(place)).founders


# --- clusters -----------------------------------------------------------------------------------------------------------


def test_a_restored_cluster_has_what_was_there_and_stays_apart_from_the_living_one(
    living: StoredCluster, other: StoredCluster, tmp_path: Path
) -> None:
    living.start(PLACES)
    fill(living.cluster, 1)
    living.cluster.wait_redundant()
    for place in PLACES:
        back_up(living.folder(place), tmp_path / f"backup-{place}")
    fill(living.cluster, 2)
    for place in PLACES:
        restore_backup(tmp_path / f"backup-{place}", other.folder(place), "monday")
    # The last one is also told where the living ones are, which refuse it.
    wrong = f"--seed={living.member(0).address}", "--set=join_attempts=1"
    other.know_ports(PLACES)
    members = [other.begin(place, *(wrong if place == 2 else ())) for place in PLACES]
    other.cluster.wait_views(60)
    assert values(other.cluster) == {1}
    assert values(living.cluster) == {2}
    fill(other.cluster, 3)
    # A member of the living one looks for the others at the addresses of the restored ones, too.
    living.kill(1)
    again = living.begin(1, f"--seed={members[0].address}")
    living.cluster.wait_views()
    assert (values(living.cluster), values(other.cluster)) == ({2}, {3})
    assert set(founders_of(living)).isdisjoint(founders_of(other))
    assert again.is_running


def test_a_restored_cluster_survives_the_next_restart(
    living: StoredCluster, other: StoredCluster, tmp_path: Path
) -> None:
    living.start()
    fill(living.cluster, 1)
    back_up(living.folder(), tmp_path / "backup")
    living.kill()
    restore_backup(tmp_path / "backup", other.folder(), "a")
    other.start()
    founders = founders_of(other)
    assert values(other.cluster) == {1}
    fill(other.cluster, 2)
    other.kill()
    other.start()
    assert (values(other.cluster), founders_of(other)) == ({2}, founders)
    # And is backed up and restored in its turn.
    back_up(other.folder(), tmp_path / "again")
    other.kill()
    restore_backup(tmp_path / "again", living.folder(1), "a")
    living.know_ports((1,))
    living.begin(1)
    wait_for(lambda: values(living.cluster) == {2}, "the third cluster has the data of the second")
    assert set(founders_of(living, 1)).isdisjoint(founders)


@pytest.mark.rows("D-20", "DU-23")
def test_no_member_starts_with_a_backup(living: StoredCluster, tmp_path: Path) -> None:
    living.start()
    back_up(living.folder(), tmp_path / "backup")
    living.kill()
    before = sorted(os.listdir(tmp_path / "backup"))
    said = living.wait_refused(living.begin(0, f"--set=data_dir={tmp_path / 'backup'}"))
    assert "this is a backup of " in said
    assert "phalanx disk restore" in said
    assert sorted(os.listdir(tmp_path / "backup")) == before
    with pytest.raises(UsageError, match="this is a backup of"):
        back_up(tmp_path / "backup", tmp_path / "of-a-backup")
    with pytest.raises(UsageError, match="this is no backup"):
        restore_backup(living.folder(), tmp_path / "restored", "a")


def test_backups_under_writes_are_whole_and_grow(living: StoredCluster, tmp_path: Path) -> None:
    living.start()
    with living.cluster.client() as grid:
        entries, ends = grid.map("orders"), []
        for number in range(20):
            for key in range(50):
                entries[f"{number}-{key}"] = "x" * 1_000
            back_up(living.folder(), tmp_path / f"backup-{number}")
            log = read_stored_log(tmp_path / f"backup-{number}", even_in_use=False)
            replay, why = why_not_replayed(log)
            assert replay is not None, why
            found = sum(len(replica.maps["orders"].entries) for replica in replay.replicas.values() if replica.maps)
            assert found >= 50 * (number + 1)
            ends.append(found)
    assert ends == sorted(ends)


# --- files --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose log has three finished segments."""
    cluster = Cluster(tmp_path_factory.mktemp("written"))
    stored = StoredCluster(cluster)
    try:
        for value in range(3):
            stored.start()
            fill(cluster, value)
            stored.kill()
    finally:
        cluster.stop()
    return stored.folder()


def test_finished_segments_are_linked_and_the_newest_is_copied(written: Path, tmp_path: Path) -> None:
    made = back_up(written, tmp_path / "backup")
    links = [path.stat().st_nlink for path in segments_of(tmp_path / "backup")]
    assert (made.segments, made.linked, links) == (3, 2, [2, 2, 1])
    assert made.bytes < 8 * 1024 * 1024
    copied = back_up(written, tmp_path / "copied", copies=True)
    assert (copied.linked, [path.stat().st_nlink for path in segments_of(tmp_path / "copied")]) == (0, [1, 1, 1])
    ours, theirs = segments_of(written), segments_of(tmp_path / "copied")
    for one, another in zip(ours, theirs, strict=True):
        assert one.read_bytes() == another.read_bytes()
    assert (tmp_path / "backup").stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "copied").glob("*/*.log")} == {0o600}


def test_segments_are_copied_where_they_cannot_be_linked(
    written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*names: object, **options: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    assert back_up(written, tmp_path / "backup").linked == 0
    assert why_not_replayed(read_stored_log(tmp_path / "backup", even_in_use=False))[1] == ""


def test_a_segment_that_goes_meanwhile_begins_the_backup_anew(
    written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1. The segments are listed. 2. The member removes the oldest one. 3. What was made of the backup is not what it needs now."""
    real, calls = segment_copies.link_segment, list[str]()

    def link(source: int, folder: int, name: str) -> bool:
        calls.append(name)
        if len(calls) == 1:
            raise FileNotFoundError(name)
        return real(source, folder, name)

    monkeypatch.setattr(backup, "link_segment", link)
    assert back_up(written, tmp_path / "backup").linked == 2
    assert len(calls) == 3
    assert why_not_replayed(read_stored_log(tmp_path / "backup", even_in_use=False))[1] == ""
    monkeypatch.setattr(backup, "link_segment", lambda *_: (_ for _ in ()).throw(FileNotFoundError()))
    with pytest.raises(UsageError, match="removes segments faster"):
        back_up(written, tmp_path / "never")
    assert sorted(os.listdir(tmp_path)) == ["backup"]


def test_a_restored_folder_has_another_identity_and_the_same_log(written: Path, tmp_path: Path) -> None:
    back_up(written, tmp_path / "backup")
    restore_backup(tmp_path / "backup", tmp_path / "one", "a")
    restore_backup(tmp_path / "backup", tmp_path / "two", "a")
    logs = [read_stored_log(path, even_in_use=False) for path in (written, tmp_path / "one", tmp_path / "two")]
    assert len({log.store.store for log in logs}) == 3
    assert len({log.store.log_id for log in logs}) == 1
    assert len({log.store.start for log in logs}) == 1
    assert logs[1].store.restored_founder == logs[2].store.restored_founder != logs[1].store.founder
    contents = [(log.replay().replicas.keys(), log.found.synced_lsn) for log in logs]
    assert contents[0] == contents[1] == contents[2]
    folder = DataFolder.open(tmp_path / "one", is_lasting=True)
    assert folder.store.start == logs[0].store.start + 1
    folder.close()


def test_what_cannot_be_backed_up_or_restored_is_said_and_leaves_nothing(written: Path, tmp_path: Path) -> None:
    back_up(written, tmp_path / "backup")
    for wrong, word, said in (
        (tmp_path / "nowhere", "a", "there is no such folder"),
        (tmp_path / "backup", "A b", "cannot name a restored cluster"),
        (tmp_path, "a", "this is no backup"),
    ):
        with pytest.raises(UsageError, match=said):
            restore_backup(wrong, tmp_path / "made", word)
    for source, target, said in (
        (written, tmp_path / "backup", "exists already"),
        (written, tmp_path / "no" / "where", "is no folder: make it first"),
        (tmp_path, tmp_path / "made", "it has no file STORE"),
        (written / "STORE", tmp_path / "made", "this is no folder"),
    ):
        with pytest.raises(UsageError, match=said):
            back_up(source, target)
    assert os.listdir(tmp_path) == ["backup"]


def test_a_log_without_a_segment_that_it_needs_is_not_backed_up(written: Path, tmp_path: Path) -> None:
    back_up(written, tmp_path / "backup", copies=True)
    first = next(iter(segments_of(tmp_path / "backup")))
    flip(first, HEAD_BYTES + 1)
    with pytest.raises(UsageError, match=r"segment 1 of its log has no valid first block"):
        restore_backup(tmp_path / "backup", tmp_path / "made", "a")
    first.unlink()
    with pytest.raises(UsageError, match=r"segment 1 of its log is missing"):
        restore_backup(tmp_path / "backup", tmp_path / "made", "a")
    assert end_of_content(next(iter(segments_of(tmp_path / "backup")))) > HEAD_BYTES
