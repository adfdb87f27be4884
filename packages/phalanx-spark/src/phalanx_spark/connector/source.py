"""The data source `phalanx`: what Spark creates for `format("phalanx")`.

Spark calls it in Python workers: options, schema, reader and writer in one on the driver's machine while it plans, then
`read` and `write` in one per task. Arrow and numpy are imported when a read or write is planned, so that Spark can look
for data sources, as it does once per session, without paying for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
)
from pyspark.sql.types import StructType

from phalanx.common.errors import PhalanxError
from phalanx_spark.connector.errors import explained
from phalanx_spark.connector.options import (
    FOLLOW,
    READ,
    SINK,
    STREAM_BATCH,
    WRITE,
    SparkOptions,
    find_read_use,
    parse_options,
)


class PhalanxSource(DataSource):
    """A distributed map as a table: one row per entry."""

    defaults: ClassVar[Mapping[str, str]] = {}
    """Options that Spark's configuration says (`configured`)."""

    @classmethod
    def name(cls) -> str:
        """Return the short name of the format."""
        return "phalanx"

    def schema(self) -> StructType:
        """Infer the schema from a sample of the map's entries: that of the entries, or that of their changes."""
        with explained():
            if find_read_use(self.options) == FOLLOW:
                from phalanx_spark.connector.changes import infer_changes

                return infer_changes(self._options(FOLLOW))
            from phalanx_spark.connector.inference import infer_schema

            return infer_schema(self._options(READ))

    def _options(self, use: str) -> SparkOptions:
        from phalanx_spark.connector.grid import with_key

        return with_key(parse_options(self.options, use, self.defaults))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Plan a read. Raises `UsageError` for all that can be wrong with it as a whole."""
        with explained():
            from phalanx_spark.connector.reader import FilterReader, PhalanxReader

            options = self._options(READ)
            return FilterReader(options, schema) if options.push_down else PhalanxReader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Plan a write. Raises `UsageError` for all that can be wrong with it as a whole."""
        with explained():
            if STREAM_BATCH.lower() in {name.lower() for name in self.options}:
                from phalanx_spark.connector.stream_writer import EachBatchWriter, check_sink

                options, planned = check_sink(self._options(SINK), schema, overwrite=overwrite)
                return EachBatchWriter(options, overwrite, planned)
            from phalanx_spark.connector.writer import plan_write

            return plan_write(self._options(WRITE), schema, overwrite)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Plan a stream of a map's changes. What can be wrong with it as a whole is an error of the reader's first
        call.

        Not of this call: for an error from here the worker of Spark 4 reports another one, because it has no reader to
        stop.
        """
        from phalanx_spark.connector.stream_reader import PhalanxStreamReader, RefusedStreamReader

        try:
            return PhalanxStreamReader(self._options(FOLLOW), schema)
        except PhalanxError as refusal:
            return RefusedStreamReader(refusal)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """Plan one batch of a stream. Raises `UsageError` for all that can be wrong with it as a whole."""
        with explained():
            from phalanx_spark.connector.stream_writer import PhalanxStreamWriter, check_sink

            options, planned = check_sink(self._options(SINK), schema, overwrite=overwrite)
            return PhalanxStreamWriter(options, overwrite, planned)


def configured(options: Mapping[str, str]) -> type[PhalanxSource]:
    """Return the data source with these defaults. They are in the class, because workers do not read the configuration."""
    if not options:
        return PhalanxSource

    class Configured(PhalanxSource):
        defaults: ClassVar[Mapping[str, str]] = dict(options)

    return Configured
