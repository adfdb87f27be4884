"""The data source `phalanx`: what Spark creates for `format("phalanx")`.

Spark calls it in Python workers: options, schema, reader and writer in one on the driver's machine while it plans, then
`read` and `write` in one per task. Arrow and numpy are imported when a read or write is planned, so that Spark can look
for data sources, as it does once per session, without paying for them.
"""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceReader
from pyspark.sql.types import StructType

from phalanx.spark.errors import explained
from phalanx.spark.options import READ, WRITE, parse_options


class PhalanxSource(DataSource):
    """A distributed map as a table: one row per entry."""

    @classmethod
    def name(cls) -> str:
        """The short name of the format."""
        return "phalanx"

    def schema(self) -> StructType:
        """Infer the schema from a sample of the map's entries."""
        with explained():
            from phalanx.spark.inference import infer_schema

            return infer_schema(parse_options(self.options, READ))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Plan a read. Everything that can be wrong with it as a whole is refused here."""
        with explained():
            from phalanx.spark.reader import KeyReader, PhalanxReader

            options = parse_options(self.options, READ)
            return KeyReader(options, schema) if options.push_down else PhalanxReader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Plan a write. Everything that can be wrong with it as a whole is refused here."""
        with explained():
            from phalanx.spark.writer import PhalanxWriter, check_write

            options = parse_options(self.options, WRITE)
            check_write(options, schema, overwrite)
            return PhalanxWriter(options)
