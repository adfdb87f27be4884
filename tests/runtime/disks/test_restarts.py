"""Real members that end in every way, and come back with what is in their folders."""

import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

import pytest

import phalanx
from phalanx.common.errors import PhalanxError
from support.processes import Cluster, wait_for
from support.stored_clusters import StoredCluster, end_of_content, flip, overwrite, segments_of

EACH = 300
"""Entries that a test writes beside those of its writers."""
LONG_S = 3_600
CLOCK_MS = 2
"""Times to live are whole milliseconds, and so is the clock."""


class Writers:
    """Threads that write until the cluster is gone, and know what was acknowledged."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.written: dict[str, int] = {}
        """What was acknowledged, and not removed afterwards."""
        self.removed: set[str] = set()
        self.doubtful: set[str] = set()
        """Keys of calls that have failed: nobody knows whether they had an effect."""
        self.counted: list[int] = []
        """By writer: the result of the last increment that was acknowledged."""
        self._is_over = threading.Event()

    @contextmanager
    def running(self, writers: int = 2) -> Iterator[None]:
        """Write while the block runs, and until all have noticed that nobody answers."""
        self.counted = [0] * writers
        threads = [threading.Thread(target=self._write, args=(number,)) for number in range(writers)]
        for each in threads:
            each.start()
        try:
            wait_for(lambda: min(self.counted) >= 20, "all writers write")
            yield
        finally:
            self._is_over.set()
            for each in threads:
                each.join()

    def _write(self, writer: int) -> None:
        with self._cluster.client(call_timeout_s=5) as grid:
            entries, counters = grid.map("written"), grid.map("counters")
            for number in count():
                key = f"{writer}-{number}"
                try:
                    entries[key] = number
                    self.written[key] = number
                    if number % 3 == 0:
                        self.written.pop(key)
                        self.doubtful.add(key)
                        entries.pop(key)
                        self.doubtful.discard(key)
                        self.removed.add(key)
                    self.counted[writer] = counters.increment(f"by {writer}")
                except PhalanxError:
                    self.doubtful.add(key)
                    return
                if self._is_over.is_set():
                    return

    def check(self) -> None:
        """What was acknowledged is there, and what was removed is not."""
        with self._cluster.client() as grid:
            found = dict(grid.map("written").items())
            missing = {key for key, value in self.written.items() if found.get(key) != value}
            assert not missing
            assert not self.removed & found.keys()
            assert found.keys() <= self.written.keys() | self.doubtful
            for writer, acknowledged in enumerate(self.counted):
                # The last call is perhaps done, and its answer lost; it is never done twice.
                assert grid.map("counters")[f"by {writer}"] in (acknowledged, acknowledged + 1)


def fill(grid: phalanx.Client, name: str = "filled") -> dict[str, int]:
    values = {f"k{number}": number for number in range(EACH)}
    grid.map(name).update(values)
    return values


def filled(cluster: Cluster) -> dict[str, int]:
    with cluster.client() as grid:
        return fill(grid)


def check_filled(cluster: Cluster, expected: dict[str, int]) -> None:
    with cluster.client() as grid:
        assert dict(grid.map("filled").items()) == expected


@pytest.fixture
def lone(cluster: Cluster) -> StoredCluster:
    """A cluster of one member with a folder."""
    stored = StoredCluster(cluster)
    stored.start()
    return stored


@pytest.fixture
def three(cluster: Cluster) -> StoredCluster:
    """A cluster of three members with folders, and one backup."""
    stored = StoredCluster(cluster, "--backup-count=1")
    stored.start(range(3))
    return stored


def left_ms(grid: phalanx.Client, name: str) -> int:
    """The remaining time to live of the only entry of a map."""
    (page,) = grid.map(name).scan_packed(with_ttls=True)
    return int.from_bytes(page.ttls, "little")


# --- one member --------------------------------------------------------------------------------------------------------


def test_what_the_only_member_had_is_there_after_two_crashes(cluster: Cluster, lone: StoredCluster) -> None:
    with cluster.client() as grid:
        expected = fill(grid)
        grid.map("filled").pop("k7")
        del expected["k7"]
        assert [grid.map("counters").increment("c", 2) for _ in range(5)][-1] == 10
        grid.map("lived").put("stays", 1, ttl=LONG_S)
    put_at = time.monotonic()
    for start in (2, 3):
        lone.kill()
        lone.start()
        with cluster.client() as grid:
            assert dict(grid.map("filled").items()) == expected
            assert grid.map("counters").increment("c") == 9 + start
            lived_ms = (time.monotonic() - put_at) * 1000
            assert 0 < left_ms(grid, "lived") <= LONG_S * 1000 - lived_ms + CLOCK_MS
            grid.map("filled")[f"after {start}"] = expected[f"after {start}"] = start


def test_the_only_member_that_was_stopped_comes_back_with_everything(cluster: Cluster, lone: StoredCluster) -> None:
    expected = filled(cluster)
    assert lone.terminate() == 0
    lone.start()
    check_filled(cluster, expected)


# --- several ------------------------------------------------------------------------------------------------------------


@pytest.mark.rows("D-16")
def test_all_members_that_were_killed_come_back_in_another_order(cluster: Cluster, three: StoredCluster) -> None:
    expected = filled(cluster)
    cluster.wait_redundant()
    writers = Writers(cluster)
    with writers.running():
        three.kill()
    three.start([2, 0, 1])
    check_filled(cluster, expected)
    writers.check()


def test_two_of_three_go_on_without_the_third_if_they_hold_everything(cluster: Cluster, three: StoredCluster) -> None:
    expected = filled(cluster)
    cluster.wait_redundant()
    three.kill()
    three.start([2, 1])
    with cluster.client() as grid:
        assert dict(grid.map("filled").items()) == expected
        grid.map("filled").pop("k3")
        grid.map("filled")["later"] = expected["later"] = -1
    del expected["k3"]
    three.start([0])
    cluster.wait_redundant()
    check_filled(cluster, expected)


def test_a_cluster_without_backups_waits_for_whoever_is_missing_and_says_for_whom(cluster: Cluster) -> None:
    stored = StoredCluster(cluster, "--backup-count=0")
    stored.start(range(3))
    expected = filled(cluster)
    cluster.wait_redundant(backup_count=0)
    missing = stored.member(0).address
    stored.kill()
    stored.begin(1)
    stored.begin(2)
    wait_for(
        lambda: any(
            f"waits for {missing} before the cluster goes on: nobody else has all of" in stored.log_of(member)
            for member in cluster.members
        ),
        "one of them says for whom it waits",
    )
    cluster.wait_views()
    with cluster.client(call_timeout_s=0.5) as grid, pytest.raises(PhalanxError):
        grid.map("filled").get("k1")
    stored.start([0])
    check_filled(cluster, expected)


@pytest.mark.rows("D-6")
def test_members_that_are_stopped_one_after_the_other_lose_nothing(cluster: Cluster, three: StoredCluster) -> None:
    """Each comes back with what its folder has kept."""
    expected = filled(cluster)
    cluster.wait_redundant()
    for place in range(3):
        assert three.terminate(place) == 0
        three.start([place])
        cluster.wait_redundant()
    three.kill()
    three.start([1, 0, 2])
    check_filled(cluster, expected)


def test_what_was_answered_while_all_members_were_stopped_is_there_with_any_two(
    cluster: Cluster, three: StoredCluster
) -> None:
    expected = filled(cluster)
    cluster.wait_redundant()
    writers = Writers(cluster)
    with writers.running():
        assert three.terminate_all() == [0, 0, 0]
    three.start([2, 1])
    check_filled(cluster, expected)
    writers.check()


# --- folders that are refused -------------------------------------------------------------------------------------------


def test_a_folder_is_used_by_one_process(cluster: Cluster, lone: StoredCluster) -> None:
    first = lone.member()
    second = lone.begin(1, f"--set=data_dir={lone.folder(0)}")
    assert f"used by pid {first.pid} on host" in lone.wait_refused(second)
    filled(cluster)


def test_a_folder_of_another_cluster_is_refused(cluster: Cluster, lone: StoredCluster) -> None:
    lone.kill()
    line = lone.wait_refused(lone.begin(0, "--cluster=other"))
    assert f"data_dir {lone.folder()}: it is of cluster 'test', and this member is configured for 'other'" in line
    lone.start()


# --- folders that are hurt ----------------------------------------------------------------------------------------------


def test_a_member_does_not_start_with_a_log_that_is_damaged(cluster: Cluster, lone: StoredCluster) -> None:
    filled(cluster)
    lone.kill()
    lone.start()  # continues the first segment, which is sealed by that
    lone.kill()
    path = next(segments_of(lone.folder()))
    flip(path, end_of_content(path) // 2)
    line = lone.wait_refused(lone.begin())
    assert f"segment {int(path.stem, 16)} of the log is damaged at byte" in line
    place = int(line.partition("at byte ")[2].partition(":")[0])
    assert place <= end_of_content(path) // 2
    flip(path, end_of_content(path) // 2)  # put back, it starts
    lone.start()


def test_a_member_starts_with_a_log_whose_end_is_torn_and_tells(cluster: Cluster, lone: StoredCluster) -> None:
    with cluster.client() as grid:
        expected = fill(grid)
        grid.map("filled")["last"] = 1
    lone.kill()
    path = list(segments_of(lone.folder()))[-1]
    overwrite(path, end_of_content(path) - 8, bytes(8))
    member = lone.begin()
    line = lone.wait_logged(member, "is cut off at record")
    assert "was not written whole when its process ended" in line
    lone.start([])
    with cluster.client() as grid:
        found = dict(grid.map("filled").items())
    assert found.keys() <= expected.keys() | {"last"}
    assert found.items() <= (expected | {"last": 1}).items()


def test_a_copy_of_a_folder_is_refused(cluster: Cluster) -> None:
    """DU-22: also when the member whose folder it is was started with it again."""
    stored = StoredCluster(cluster)
    stored.start(range(2))
    shutil.copytree(stored.folder(1), stored.folder(2))
    copy = stored.begin(2)
    assert "is a copy of that of" in stored.wait_logged(copy, "gives up joining")
