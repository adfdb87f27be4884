"""One Spark session for all tests of the audit."""

import pytest
from pyspark.sql import SparkSession

from phalanx_spark.cli.audit import HERE
from support.sparks import SHARED

# As the command has it, with less memory.
SETTINGS = HERE | {"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "1g"}


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    """A session on two cores."""
    return SHARED.get(**SETTINGS)
