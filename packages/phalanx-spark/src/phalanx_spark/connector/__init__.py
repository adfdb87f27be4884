"""The source and the sink of Spark, in batches and streams. `options` lists what can be set."""

from __future__ import annotations

from phalanx_spark.connector.for_each_batch import each_batch
from phalanx_spark.connector.session import register, session

__all__ = ["each_batch", "register", "session"]
