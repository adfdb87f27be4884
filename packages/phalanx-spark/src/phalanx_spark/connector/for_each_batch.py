"""A sink for `foreachBatch`: for queries in output mode `update`, which Spark does not offer to sinks written in Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark.sql import is_remote

from phalanx.common.errors import UsageError
from phalanx_spark.connector.options import SINK, STREAM_BATCH, parse_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_QUERY_ID = "sql.streaming.queryId"
_UNSEEN = (
    "phalanx.spark.each_batch is for foreachBatch of a streaming query, and the query's id is not to be seen here: "
    "give a name that stays the same with the checkpoint, each_batch(query='...')"
)


def each_batch(query: str = "", **options: str) -> Callable[[DataFrame, int], None]:
    """Return a function for `foreachBatch` that writes each batch into a map exactly once.

        counts.writeStream.outputMode("update").foreachBatch(
            phalanx.spark.each_batch(members="127.0.0.1:5701", map="counts", key="word")
        ).option("checkpointLocation", ...).start()

    `options`: those of the sink (`writeStream`). `query` tells apart several such writes of one query into one map, and
    replaces the query's id in a session of Spark Connect, which does not show it. Raises `UsageError`.
    """
    parse_options(options, SINK)
    if not query and is_remote():
        raise UsageError(_UNSEEN)  # here, and not with the first batch out of the server

    def write(frame: DataFrame, number: int) -> None:
        batch = f"{_query_id(frame, query)}/{number}"
        frame.write.format("phalanx").options(**options).option(STREAM_BATCH, batch).mode("append").save()

    return write


def _query_id(frame: DataFrame, query: str) -> str:
    try:
        found = frame.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
    except Exception:  # Spark Connect has no SparkContext
        found = None
    if not found and not query:
        raise UsageError(_UNSEEN)
    return ":".join(part for part in (found, query) if part)
