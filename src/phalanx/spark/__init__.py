"""Spark: maps as DataFrames, both ways.

    df.write.format("phalanx").option("members", "127.0.0.1:5701").option("map", "flights").option("key", "id") \\
        .mode("append").save()
    spark.read.format("phalanx").option("members", "127.0.0.1:5701").option("map", "flights").option("key", "id").load()

Spark finds the format by itself where this package is installed beside it; elsewhere call `register(spark)` once.
`options` lists what can be set.
"""

from __future__ import annotations

from phalanx.spark.session import register, session

__all__ = ["register", "session"]
