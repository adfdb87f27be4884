"""One Spark session for all tests of a module."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from phalanx.cli.audit import HERE
from phalanx.spark import session

# As the command has it, with less memory.
SETTINGS = HERE | {"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "1g"}


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """A session on two cores."""
    made = session("local[2]", **SETTINGS)
    yield made
    made.stop()
