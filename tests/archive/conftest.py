"""One Spark session, a cluster that is exported, and another one of another size for what is restored."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from support.processes import Cluster
from support.sparks import SHARED


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    return SHARED.get(**{"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "1g"})


def started(folder: Cluster, count: int, *options: str) -> Iterator[Cluster]:
    try:
        folder.start(count, options=options)
        yield folder
    finally:
        folder.stop()
        print(folder.logs())


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two members."""
    yield from started(Cluster(tmp_path_factory.mktemp("one"), "one"), 2)


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three members with other partitions."""
    yield from started(Cluster(tmp_path_factory.mktemp("other"), "other"), 3, "--partition-count", "40")
