"""Real members that are stopped in order to be started again: one, all at once by signals, and all by an operator."""

import json
import shutil
import time

import pytest

from phalanx.partition.coordinator.stopping_members import STOP_TOGETHER_MS
from support.commands import Command
from support.processes import Cluster, wait_for
from support.stored_clusters import StoredCluster

EACH = 300
LONG_GRACE = "--set=restart_grace_ms=600000"
"""Longer than a test lasts: what is whole in time was not waited for."""


def fill(cluster: Cluster) -> dict[str, int]:
    values = {f"k{number}": number for number in range(EACH)}
    with cluster.client() as grid:
        grid.map("filled").update(values)
    return values


def check(cluster: Cluster, expected: dict[str, int]) -> None:
    with cluster.client() as grid:
        assert dict(grid.map("filled").items()) == expected
        grid.map("filled")["k0"] = expected["k0"] = expected["k0"] + 1


def three_members(cluster: Cluster, *options: str) -> StoredCluster:
    stored = StoredCluster(cluster, *options)
    stored.start(range(3))
    return stored


@pytest.mark.rows("DU-38", "DU-39")
@pytest.mark.parametrize("place", [0, 2])
def test_one_that_is_stopped_comes_back_with_what_it_had(cluster: Cluster, place: int) -> None:
    stored = three_members(cluster, "--backup-count=1", LONG_GRACE)
    expected = fill(cluster)
    cluster.wait_redundant()
    leaver, began = stored.member(place), time.monotonic()
    assert stored.terminate(place) == 0
    assert time.monotonic() - began >= STOP_TOGETHER_MS / 1000
    assert "has left: its folder keeps 18" in stored.log_of(leaver)
    check(cluster, expected)
    stored.start([place])
    cluster.wait_redundant()
    check(cluster, expected)


@pytest.mark.rows("DU-41")
def test_one_whose_disk_has_failed_does_not_say_that_its_folder_keeps_anything(cluster: Cluster) -> None:
    stored = StoredCluster(cluster, "--backup-count=1")
    stored.start()
    fill(cluster)
    member = stored.member()
    shutil.rmtree(stored.folder())
    stored.wait_logged(member, "has lost its disk, and no other member has a working one")
    assert stored.terminate() == 0
    said = stored.log_of(member).rpartition("leaves, within")[2]
    assert "the data ends with them" in said
    assert "nobody took over 271 replicas, which went with it" in said
    assert "folder" not in said


@pytest.mark.rows("DU-38")
def test_what_has_no_backup_waits_for_the_member_that_was_stopped(cluster: Cluster) -> None:
    stored = three_members(cluster, "--backup-count=0")
    expected = fill(cluster)
    cluster.wait_redundant(backup_count=0)
    assert stored.terminate(1) == 0
    stored.start([1])
    check(cluster, expected)


@pytest.mark.rows("DU-58", "D-16")
def test_two_of_three_that_were_stopped_at_once_go_on(cluster: Cluster) -> None:
    stored = three_members(cluster, "--backup-count=1")
    expected = fill(cluster)
    cluster.wait_redundant()
    began = time.monotonic()
    assert stored.terminate_all() == [0, 0, 0]
    assert time.monotonic() - began < STOP_TOGETHER_MS / 1000 + 10
    stored.start([2, 0])
    check(cluster, expected)
    stored.start([1])
    cluster.wait_redundant()
    check(cluster, expected)


@pytest.mark.rows("DU-58")
def test_a_cluster_that_an_operator_has_stopped_comes_back_whole(cluster: Cluster, phalanx_command: Command) -> None:
    stored = three_members(cluster, "--backup-count=0")
    expected = fill(cluster)
    cluster.wait_redundant(backup_count=0)
    asked = ("--at", stored.member(1).address, "--cluster", cluster.name)
    assert phalanx_command("stop", *asked).exit_code == 2
    result = phalanx_command("stop", "--all", *asked)
    assert result.exit_code == 0, result.stderr
    assert "3 members have stopped" in result.stdout
    assert stored.wait_ended() == [0, 0, 0]
    stored.start([2, 0, 1])
    check(cluster, expected)


@pytest.mark.rows("DU-59")
def test_one_that_leaves_for_good_takes_nothing_along_and_a_lost_one_is_forgotten(
    cluster: Cluster, phalanx_command: Command
) -> None:
    stored = three_members(cluster, "--backup-count=1")
    expected = fill(cluster)
    cluster.wait_redundant()
    asked = ("--at", stored.member(0).address, "--cluster", cluster.name)

    def away() -> list[str]:
        result = phalanx_command("members", "--json", *asked)
        return [each["address"] for each in json.loads(result.stdout)["awaited"]]

    leaver, killed = stored.member(1).address, stored.member(2).address
    result = phalanx_command("members", "--leave", leaver, *asked)
    assert result.exit_code == 0, result.stderr
    assert stored.wait_ended(1) == [0]
    cluster.wait_redundant()
    assert away() == []
    stored.kill(2)
    wait_for(lambda: away() == [killed], "the one that was killed is awaited", seen=lambda: f"away: {away()}")
    assert "is gone, and is awaited" in phalanx_command("members", *asked).stdout
    assert phalanx_command("members", "--forget", leaver, *asked).exit_code == 2
    assert phalanx_command("members", "--forget", killed, *asked).exit_code == 0
    assert away() == []
    refused = phalanx_command("members", "--leave", stored.member(0).address, *asked)
    assert refused.exit_code == 2
    assert "no other member holds data" in refused.stderr
    check(cluster, expected)
