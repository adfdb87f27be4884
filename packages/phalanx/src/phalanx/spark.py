"""Spark: maps as DataFrames, both ways.

    df.write.format("phalanx").option("members", "127.0.0.1:5701").option("map", "flights").option("key", "id") \\
        .mode("append").save()
    spark.read.format("phalanx").option("members", "127.0.0.1:5701").option("map", "flights").option("key", "id").load()

And as streams: `readStream` follows the changes of a map, `writeStream` writes each batch exactly once; `each_batch` does
that in `foreachBatch`.

Spark finds the format by itself where the package phalanx-spark is installed beside it; elsewhere call `register(spark)` once.
"""

from __future__ import annotations

from phalanx.common.missing_packages import explain_missing

try:
    from phalanx_spark.connector import each_batch, register, session
except ModuleNotFoundError as error:
    raise explain_missing(error, __name__, "spark", "phalanx_spark", "pyspark", "pyarrow", "numpy") from None

__all__ = ["each_batch", "register", "session"]
