"""Lets Spark find the format `phalanx` without `register`: it looks for a `DefaultSource` in packages named `pyspark_…`."""

from phalanx_spark.connector.source import PhalanxSource as DefaultSource

__all__ = ["DefaultSource"]
