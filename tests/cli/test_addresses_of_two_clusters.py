"""`--at` with the addresses of two clusters: told of both and refused, before anything is shown or changed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from phalanx.client.ask import Inquirer, ask_any
from phalanx.common.errors import TwoClusters
from phalanx.runtime.process.processes import MemberProcess
from support.commands import Command
from support.processes import Cluster, free_port

COMMANDS = [
    ["members"],
    ["members", "--json"],
    ["members", "--demote", "{first}"],
    ["partitions"],
    ["partitions", "--watch"],
    ["partitions", "--until-whole", "--wait", "60"],
    ["partitions", "--until-whole", "--members", "2", "--wait", "60"],
    ["partitions", "--set-count", "542"],
    ["partitions", "--acknowledge-loss", "all"],
    ["why", "{first}"],
    ["why", "1"],
    ["what-if", "--cut", "1-2"],
    ["map", "settings"],
    ["map", "backups", "m", "--sync", "0"],
    ["map", "put", "m", "k", "1"],
    ["map", "get", "m", "k"],
    ["map", "size", "m"],
    ["export", "{folder}/x"],
]


@pytest.fixture
def apart(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[MemberProcess, MemberProcess]]:
    """Two clusters of one name, with one member each."""
    (first,) = cluster.start()
    alone = Cluster(tmp_path_factory.mktemp("other"), cluster.name)
    try:
        (second,) = alone.start()
        yield first, second
    finally:
        alone.stop()


def test_every_command_refuses_addresses_of_two_clusters_and_names_both(
    phalanx_command: Command, cluster: Cluster, apart: tuple[MemberProcess, MemberProcess], tmp_path: Path
) -> None:
    first, second = apart
    both = f"{first.address},{second.address}"
    for command in COMMANDS:
        words = [word.format(first=first.address, folder=tmp_path) for word in command]
        result = phalanx_command(*words, "--at", both, "--cluster", cluster.name)
        assert (result.exit_code, result.stdout) == (1, ""), (command, result.stdout)
        for named in ("two clusters", repr(cluster.name), first.member, second.member, "founded by"):
            assert named in result.stderr, (command, result.stderr)
    assert cluster.table_of(first).table.partition_count == 271
    with pytest.raises(TwoClusters):
        ask_any(both, cluster.name, Inquirer.members)


def test_addresses_of_one_cluster_and_dead_ones_are_taken(phalanx_command: Command, cluster: Cluster) -> None:
    first, second = cluster.start(2)
    port = first.address.rpartition(":")[2]
    for at in (
        f"{first.address},{second.address}",
        f"127.0.0.1:{free_port()},{second.address}",
        f"localhost:{port},{first.address},{second.address}",
    ):
        result = phalanx_command("members", "--at", at, "--cluster", cluster.name)
        assert result.exit_code == 0, result.stderr
