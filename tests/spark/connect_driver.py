"""A client of Spark Connect, in a process of its own: one that has a session of this kind can have none of the other.

    python connect_driver.py '{"remote": "sc://127.0.0.1:15002", "options": {"members": "...", ...}, "folder": "..."}'

It does what a user does, step by step, and says in the end as JSON what came of each step: a value, or an error's text.
"""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from phalanx import Client
from phalanx.spark import each_batch, register

FILES = 3
ROWS = 200
MARK = {"key": "k0", "count": -1}


class Steps:
    """What is done with maps over one session."""

    def __init__(self, spark: SparkSession, options: dict[str, str], folder: Path, grid: Client) -> None:
        self.spark = spark
        self.options = options
        self.folder = folder
        self.grid = grid
        self.told: dict[str, Any] = {}

    def do(self, name: str, step: Callable[[], Any]) -> None:
        try:
            self.told[name] = step()
        except Exception as error:
            self.told[name] = f"{type(error).__name__}: {error}"

    def save(self, frame: DataFrame, name: str, mode: str = "append", **more: str) -> int:
        frame.write.format("phalanx").options(**self.options, **more, map=name).mode(mode).save()
        return len(self.grid.map(name))

    def load(self, name: str) -> DataFrame:
        return self.spark.read.format("phalanx").options(**self.options, map=name).load()

    def view(self, name: str) -> Any:
        """SQL on a map whose schema nobody says here."""
        options = ", ".join(f"{option} '{value}'" for option, value in (self.options | {"map": name}).items())
        self.spark.sql(f"create temporary view {name} using phalanx options ({options})")
        self.spark.sql(f"insert into {name} values (5, 16)")
        return [list(row) for row in self.spark.sql(f"select *, typeof(n) from {name} where key = 5").collect()]

    def files(self) -> DataFrame:
        """One file in each batch, each with all keys."""
        made = self.folder / "in"
        made.mkdir(exist_ok=True)
        for number in range(FILES):
            rows = [{"key": f"k{key}", "n": number} for key in range(ROWS)]
            (made / f"{number}.json").write_text("\n".join(map(json.dumps, rows)))
        return self.spark.readStream.schema("key string, n long").option("maxFilesPerTrigger", "1").json(str(made))

    def run(self, writer: Any, checkpoint: str) -> None:
        """Take what there is now, and end."""
        query = writer.option("checkpointLocation", str(self.folder / checkpoint)).trigger(availableNow=True).start()
        query.awaitTermination(120)
        if query.isActive or query.exception() is not None:
            raise query.exception() or TimeoutError("the query goes on")

    def sink(self) -> int:
        self.run(self.files().writeStream.format("phalanx").options(**self.options, map="sink"), "sink")
        return len(self.grid.map("sink"))

    def unnamed(self) -> None:
        """A sink without the name of a query."""
        each_batch(**self.options, map="counts")

    def count(self) -> Any:
        counts = self.files().groupBy("key").count()
        write = each_batch("counts", **self.options, map="counts")
        self.run(counts.writeStream.outputMode("update").foreachBatch(write), "counts")
        return dict(self.grid.map("counts").iter_items())["k0"]

    def count_again(self) -> Any:
        """The last batch is repeated, as after a driver that died before it could note that batch's end."""
        self.grid.map("counts")["k0"] = MARK
        commits = self.folder / "counts" / "commits"
        for left in (f"{FILES - 1}", f".{FILES - 1}.crc"):
            (commits / left).unlink()
        found = self.count()
        return [found, (commits / f"{FILES - 1}").exists()]

    def follow(self) -> Any:
        options = self.options | {"map": "followed", "changes": "true"}
        changes = self.spark.readStream.format("phalanx").options(**options).load().select("kind", "key", "new.*")
        writer = changes.writeStream.format("phalanx").options(**self.options, map="copy", deleteColumn="kind")
        self.run(writer, "copy")
        return sorted(self.grid.map("copy"))


def main(given: dict[str, Any]) -> None:
    spark = SparkSession.builder.remote(given["remote"]).getOrCreate()
    options = given["options"]
    with Client(options["members"], cluster=options["cluster"]) as grid:
        steps = Steps(spark, options, Path(given["folder"]), grid)
        rows = spark.range(0, ROWS, 1, 2).selectExpr("id key", "id * 3 n")
        steps.do("session", lambda: type(spark).__module__)
        steps.do("append", lambda: steps.save(rows, "flights"))
        steps.do("read", lambda: [list(row) for row in steps.load("flights").orderBy("key").collect()])
        steps.do("filter", lambda: [list(row) for row in steps.load("flights").where("key = 5").collect()])
        steps.do("view", lambda: steps.view("flights"))
        steps.do("overwrite", lambda: steps.save(rows.limit(7), "flights", "overwrite"))
        steps.do("ignore", lambda: steps.save(rows, "flights", ifExists="ignore"))
        steps.do("error", lambda: steps.save(rows, "flights", ifExists="error"))
        steps.do("option", lambda: steps.save(rows, "flights", misspelt="1"))
        steps.do("null", lambda: steps.save(rows.selectExpr("nullif(key, 150) key", "n"), "nulls"))
        steps.do("nothing", lambda: len(grid.map("nulls")))
        steps.do("sink", steps.sink)
        steps.do("unnamed", steps.unnamed)
        steps.do("count", steps.count)
        steps.do("count again", steps.count_again)
        steps.do("follow", steps.follow)
        steps.do("register", lambda: register(spark))
        steps.do("registered", lambda: steps.load("flights").count())
        print(json.dumps(steps.told))
    spark.stop()


if __name__ == "__main__":
    os.environ.pop("SPARK_REMOTE", None)
    main(json.loads(sys.argv[1]))
