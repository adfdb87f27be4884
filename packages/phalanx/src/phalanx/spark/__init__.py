"""Spark: maps as DataFrames, both ways.

    df.write.format("phalanx").option("members", "127.0.0.1:5701").option("map", "flights").option("key", "id") \\
        .mode("append").save()
    spark.read.format("phalanx").option("members", "127.0.0.1:5701").option("map", "flights").option("key", "id").load()

And as streams: `readStream` follows the changes of a map, `writeStream` writes each batch exactly once; `each_batch` does
that in `foreachBatch`.

Spark finds the format by itself where this package is installed beside it; elsewhere call `register(spark)` once.
`options` lists what can be set.
"""

from __future__ import annotations

try:
    from phalanx.spark.for_each_batch import each_batch
    from phalanx.spark.session import register, session
except ModuleNotFoundError as error:
    package = (error.name or "").partition(".")[0]
    if package not in ("pyspark", "pyarrow", "numpy"):
        raise
    raise ModuleNotFoundError(
        f"phalanx.spark needs {package}, which is not installed: pip install 'phalanx[spark]'", name=error.name
    ) from None

__all__ = ["each_batch", "register", "session"]
