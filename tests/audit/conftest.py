"""One Spark session for all tests of a module."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from phalanx.spark import session


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """A session on two cores."""
    made = session("local[2]", **{"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "1g"})
    yield made
    made.stop()
