"""The demo's writer: what it counts as acknowledged is there although its member dies, and a loss is seen."""

import time

from phalanx_spark.demo.writer import MAP, Writer, check
from support.processes import Cluster, wait_for


def test_every_acknowledged_write_survives_a_crash(cluster: Cluster) -> None:
    cluster.start(3)
    writer = Writer(cluster.addresses, cluster.name)
    writer.start()
    wait_for(lambda: writer.acknowledged > 200, "the writer writes")
    table = cluster.wait_redundant().table
    victim = cluster.members[1]
    lost = {partition for partition, owner in enumerate(table.owners()) if owner == victim.member}
    killed_at = time.monotonic()
    cluster.kill(victim)
    written_at = wait_for(lambda: writer.first_acknowledged_after(killed_at, lost), "a write for one of its keys")
    cluster.wait_redundant()
    writer.stop()
    assert writer.error is None
    assert 0 < written_at - killed_at < 10
    assert writer.acknowledged >= len(writer.values) > 150
    assert max(writer.values.values()) == writer.acknowledged
    with cluster.client() as grid:
        assert check(writer, grid) == ([], [])
        assert len(grid.map(MAP)) == len(writer.values)
        keys = sorted(writer.values)
        grid.map(MAP).remove(keys[0])
        grid.map(MAP).put(keys[1], -1)
        grid.map(MAP).put(keys[2], writer.values[keys[2]] + 1)
        assert check(writer, grid) == ([keys[0]], [keys[1], keys[2]])


def test_a_write_without_outcome_may_be_there_or_not(cluster: Cluster) -> None:
    cluster.start(1)
    writer = Writer(cluster.addresses, cluster.name)
    writer.values = {"a": 1, "b": 2}
    writer.pending = ("b", 3)
    with cluster.client() as grid:
        grid.map(MAP).put_all({"a": 1, "b": 3})
        assert check(writer, grid) == ([], [])
        writer.pending = ("a", 9)
        assert check(writer, grid) == ([], ["b"])


def test_only_writes_that_began_after_the_moment_and_concern_the_partitions_count() -> None:
    writer = Writer("127.0.0.1:1", "none")
    writer._acknowledgements.extend([(1.0, 5.0, 7), (2.0, 3.0, 8), (4.0, 4.5, 8), (4.6, 4.7, 7)])
    assert writer.first_acknowledged_after(1.5, {7}) == 4.7
    assert writer.first_acknowledged_after(1.5, {7, 8}) == 3.0
    assert writer.first_acknowledged_after(5.0, {7, 8}) is None


def test_a_writer_without_a_cluster_says_so_in_the_report() -> None:
    writer = Writer("127.0.0.1:1", "none")
    writer.start()
    writer.join(30)
    assert "127.0.0.1:1" in str(writer.error)
