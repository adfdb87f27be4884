"""One Spark session for all tests, and one cluster of two members for those of a module."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from phalanx import Client
from support.processes import Cluster
from support.sparks import SHARED


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    """A session on two cores. New York time, so that a mistake with time zones shows."""
    return SHARED.get(**{"spark.sql.session.timeZone": "America/New_York", "spark.sql.shuffle.partitions": "2"})


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two members that stay up during all tests of a module."""
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        made.start(2)
        yield made
    finally:
        made.stop()
        print(made.logs())


@pytest.fixture(scope="module")
def grid(members: Cluster) -> Iterator[Client]:
    """What a Python service sees of the data."""
    with members.client() as client:
        yield client
