"""One Spark session for all tests of a module."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from phalanx.spark import session

SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "1g",
    # A hundred small queries run once each: the better compiler's work would never pay.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m",
    "spark.sql.adaptive.enabled": "false",
}


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """A session on two cores."""
    made = session("local[2]", **SETTINGS)
    yield made
    made.stop()
