"""Streams that take what there is now, and end, in the session of the tests."""

import json
import os
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from phalanx.client.ask import Inquirer
from phalanx.common.map_settings import JournalSettings, MapChange
from support.processes import Cluster

CHANGES = "kind string, key string, new struct<n:bigint>, old struct<n:bigint>, partition int, sequence bigint"


class Streams:
    """Streams from and to maps of the cluster, each with a checkpoint of its own."""

    def __init__(self, spark: SparkSession, members: Cluster, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.members = members
        self.options = {"members": members.addresses, "cluster": members.name}

    def journal(self, name: str, capacity: int) -> None:
        with Inquirer(self.members.members[0].address, cluster=self.members.name) as master:
            master.change_map(name, MapChange(journal=JournalSettings(capacity)))
        with self.members.client() as client:
            client.partition_table()  # whoever asks first has the partitions assigned
        self.members.wait_redundant()  # while a backup gets its copy, what is written then is not confirmed by it

    def changes(self, name: str, schema: str | None = CHANGES, **options: str) -> DataFrame:
        reader = self.spark.readStream.format("phalanx").options(**self.options, **options).option("map", name)
        return (reader.schema(schema) if schema else reader).load()

    def files(self, schema: str) -> DataFrame:
        """Rows of the files that `drop` makes, one file in each batch."""
        (self.folder / "in").mkdir(exist_ok=True)
        return self.spark.readStream.schema(schema).option("maxFilesPerTrigger", "1").json(str(self.folder / "in"))

    def drop(self, rows: list[dict[str, Any]]) -> None:
        number = len(list((self.folder / "in").glob("*.json")))
        part = self.folder / f"{number}.part"
        part.write_text("\n".join(map(json.dumps, rows)))
        os.utime(part, (number + 1, number + 1))  # Spark takes the oldest first
        part.rename(self.folder / "in" / f"{number:03}.json")

    def write(self, frame: DataFrame, name: str, mode: str = "append", **options: str) -> StreamingQuery:
        """Write what there is now into a map, and end."""
        writer = frame.writeStream.format("phalanx").options(**self.options, **options).option("map", name)
        return self.run(writer.outputMode(mode), name)

    def run(self, writer: Any, checkpoint: str) -> StreamingQuery:
        """Run a query until it has taken what there is now. Raises what ended it."""
        where = str(self.folder / f"checkpoint-{checkpoint}")
        query: StreamingQuery = writer.option("checkpointLocation", where).trigger(availableNow=True).start()
        query.awaitTermination()
        return query

    def collect(self, frame: DataFrame, checkpoint: str = "rows") -> list[Any]:
        """The rows that there are now behind the checkpoint."""
        rows: list[Any] = []
        self.run(frame.writeStream.foreachBatch(lambda batch, _: rows.extend(batch.collect())), checkpoint)
        return rows
