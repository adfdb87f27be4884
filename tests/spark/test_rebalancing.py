"""Reads and writes of many entries that go on while a member joins and gets its share."""

import pytest
from pyspark.sql import SparkSession

from phalanx.spark import register
from support.processes import Cluster

pytestmark = pytest.mark.long

ROWS = 20_000


def owns(cluster: Cluster) -> set[str]:
    """The addresses that own partitions."""
    table = cluster.table_of(cluster.members[0]).table
    return {str(owner).partition("/")[0] for owner in table.owners()}


def test_spark_writes_and_reads_while_partitions_move(spark: SparkSession, cluster: Cluster) -> None:
    cluster.start(2)
    register(spark)
    options = {"members": cluster.addresses, "cluster": cluster.name, "map": "flights"}
    frame = spark.range(0, ROWS, 1, 4).selectExpr("id key", "id * 3 n", "repeat('x', 300) padding")
    frame.write.format("phalanx").options(**options).mode("append").save()
    rounds = 0
    (joining,) = cluster.start(1, wait=False)
    while joining.address not in owns(cluster) or rounds < 3:
        rounds += 1
        frame.selectExpr("key", f"n + {rounds} n", "padding").write.format("phalanx").options(**options).mode(
            "append"
        ).save()
        found = (
            spark.read.format("phalanx")
            .options(**options)
            .load()
            .selectExpr("count(1)", f"sum(n - key * 3 - {rounds})")
        )
        assert tuple(found.first() or ()) == (ROWS, 0)
        assert rounds < 100
    cluster.wait_redundant()


def test_bulk_calls_lose_nothing_and_fail_never_while_partitions_move(cluster: Cluster) -> None:
    cluster.start(2)
    with cluster.client() as grid:
        numbers = grid.map("numbers")
        keys = list(range(15_000))
        numbers.put_all({key: {"n": 0, "padding": "x" * 200} for key in keys})
        (joining,) = cluster.start(1, wait=False)
        written = 0

        while written < 3 or joining.address not in owns(cluster):
            written += 1
            for first in range(0, len(keys), 3_000):
                part = keys[first : first + 3_000]
                numbers.put_all({key: {"n": written, "padding": "x" * 200} for key in part})
                found = numbers.get_all(part)
                assert [found[key]["n"] for key in part] == [written] * len(part)
            assert written < 300
        cluster.wait_redundant()
        assert {value["n"] for value in numbers.get_all(keys).values()} == {written}
        assert len(numbers) == len(keys)
