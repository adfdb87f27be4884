"""Folders whose log is damaged in the middle: what is before the damage is used where an operator says so (DU-61)."""

import re
import shutil
from pathlib import Path

import pytest

from phalanx.client.ask import Inquirer
from phalanx.common.errors import UsageError
from phalanx.runtime.disk.dropping import drop
from phalanx.runtime.disk.repair import repair_folder
from phalanx.runtime.disk.stored_log import read_stored_log
from support.processes import Cluster, wait_for
from support.stored_clusters import StoredCluster, end_of_content, flip, segments_of

EACH = 300


def fill(cluster: Cluster, value: int) -> None:
    with cluster.client() as grid:
        grid.map("orders").update({f"k{number}": value for number in range(EACH)})


def values(cluster: Cluster) -> dict[str, int]:
    with cluster.client() as grid:
        return dict(grid.map("orders").items())


def damage(folder: Path, segment: int) -> None:
    """Flip a bit near the end of a segment that later ones continue: what was written first in it stays."""
    path = list(segments_of(folder))[segment]
    flip(path, end_of_content(path) - 200)


@pytest.fixture
def lone(cluster: Cluster) -> StoredCluster:
    """A cluster of one member whose folder has one segment for each of three values, and damage in the second."""
    stored = StoredCluster(cluster)
    for value in (1, 2, 3):
        stored.start()
        fill(cluster, value)
        stored.kill()
    damage(stored.folder(), 1)
    return stored


@pytest.mark.rows("DU-61")
def test_what_is_before_the_damage_is_used_when_an_operator_says_so(cluster: Cluster, lone: StoredCluster) -> None:
    folder = lone.folder()
    assert "of the log is damaged at byte" in lone.wait_refused(lone.begin())
    before = sorted(path.name for path in folder.rglob("*"))
    with pytest.raises(UsageError) as refused:
        repair_folder(folder)
    said = str(refused.value)
    assert "\n" not in said
    assert f"segment {int(list(segments_of(folder))[1].stem, 16)} of the log is damaged" in said
    assert "later records would not be used" in said
    assert said.endswith(f"phalanx disk repair --up-to-damage {folder}")
    assert sorted(path.name for path in folder.rglob("*")) == before, "nothing is changed"
    done = repair_folder(folder, up_to_damage=True)
    assert (done.set_aside, [each.name for each in done.log.generations]) == (
        "000000000000.0",
        ["000000000000.0", "000000000001.0"],
    )
    assert done.lost > 200
    links = [
        path.stat().st_nlink for path in segments_of(folder / ".." / folder.name) if path.parent.name == done.set_aside
    ]
    assert links == [2, 1, 1]

    # It has no vote: what it has promised behind the damage is not known any more.
    member = lone.begin()
    said = wait_for(lambda: re.search("waits for|goes on with", lone.log_of(member)), "it says how it goes on").group()
    assert said == "waits for"
    with Inquirer(member.address, cluster=cluster.name) as inquirer:
        inquirer.accept_view(inquirer.members().view.version)
    found = wait_for(lambda: values(cluster) or None, "it goes on with what is before the damage")
    assert len(found) == EACH
    assert set(found.values()) <= {1, 2}
    fill(cluster, 4)
    lone.kill()
    # From then on it is a folder like others.
    assert drop(folder, done.set_aside) >= 3
    lone.start()
    assert set(values(cluster).values()) == {4}
    lone.kill()
    assert not read_stored_log(folder, even_in_use=False).found.damages


def test_others_know_better_than_a_repaired_folder(cluster: Cluster) -> None:
    """Its member comes back with all others: it has no vote, and what it has is behind."""
    stored = StoredCluster(cluster, "--backup-count=1")
    stored.start(range(3))
    fill(cluster, 1)
    cluster.wait_redundant()
    stored.kill()
    stored.start(range(3))
    fill(cluster, 2)
    cluster.wait_redundant()
    stored.kill()
    damage(stored.folder(1), 0)
    repair_folder(stored.folder(1), up_to_damage=True)
    stored.start(range(3))
    cluster.wait_redundant()
    assert set(values(cluster).values()) == {2}
    assert len(values(cluster)) == EACH


def test_only_what_is_named_is_dropped(lone: StoredCluster, tmp_path: Path) -> None:
    folder = lone.folder()
    shutil.copytree(folder, tmp_path / "copy")
    store = read_stored_log(folder, even_in_use=False).store.store
    repair_folder(folder, up_to_damage=True)
    for wrong in ("000000000001.0", "000000000000", "..", "", store[:-1]):
        with pytest.raises(UsageError, match="it has nothing with that name"):
            drop(folder, wrong)
    (folder / "notes").write_text("not ours")
    drop(folder, "000000000000.0")
    assert sorted(path.name for path in folder.iterdir()) == ["000000000001.0", "LOCK", "STORE", "notes"]
    drop(folder, store)
    assert [path.name for path in folder.iterdir()] == ["notes"]
    drop(tmp_path / "copy", store)
    assert not (tmp_path / "copy").exists()


def test_a_repair_that_was_killed_is_done_again(lone: StoredCluster) -> None:
    folder = lone.folder()
    (folder / "000000000001.0.unfinished").mkdir()
    with pytest.raises(UsageError, match=r"an earlier repair was killed: remove what ends with \.unfinished"):
        repair_folder(folder, up_to_damage=True)
    assert "of the log is damaged" in lone.wait_refused(lone.begin())
    (folder / "000000000001.0.unfinished").rmdir()
    assert repair_folder(folder, up_to_damage=True).set_aside


def test_a_log_of_which_nothing_is_complete_cannot_be_repaired(lone: StoredCluster) -> None:
    for path in list(segments_of(lone.folder()))[:2]:
        path.unlink()
    with pytest.raises(
        UsageError, match=r"is not complete by itself, because older segments were removed: .*Nothing is changed"
    ):
        repair_folder(lone.folder(), up_to_damage=True)
    assert not list(lone.folder().glob("*.unfinished"))
