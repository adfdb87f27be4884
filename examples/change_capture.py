"""Change capture: every change of a map into Parquet, none missing and none twice, also when the query is started again."""

import argparse
import json
import tempfile

import phalanx
from phalanx.client.ask import Inquirer, find_master
from phalanx.common.map_settings import JournalSettings, MapChange
from phalanx.spark import session

CHANGES = "kind string, key string, new struct<balance: long>, old struct<balance: long>, partition int, sequence long"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--at", default="127.0.0.1:5701", help="address of any member")
    at = parser.parse_args().at
    keep_journal(at)
    spark = session("local[2]")
    with phalanx.Client(at) as grid, tempfile.TemporaryDirectory() as folder:
        accounts = grid.map("accounts")
        accounts.clear()

        def capture() -> None:
            """What has changed since the last time: the checkpoint knows how far that came."""
            changes = (
                spark.readStream.format("phalanx")
                .options(members=at, map="accounts", startingOffsets="earliest")
                .schema(CHANGES)
                .load()
            )
            query = (
                changes.writeStream.format("parquet")
                .option("checkpointLocation", f"{folder}/checkpoint")
                .trigger(availableNow=True)
                .start(f"{folder}/changes")
            )
            query.awaitTermination()

        accounts.put_all({f"a{n}": {"balance": 100} for n in range(20)})
        capture()
        for n in range(5):
            accounts[f"a{n}"] = {"balance": 100 + n}
        del accounts["a19"]
        capture()
        changes = spark.read.schema(CHANGES).parquet(f"{folder}/changes")
        changes.orderBy("key", "sequence").show(6, truncate=False)
        kinds = {row["kind"]: row["count"] for row in changes.groupBy("kind").count().collect()}
        print("changes:", json.dumps(dict(sorted(kinds.items()))))
    spark.stop()


def keep_journal(at: str) -> None:
    """As `phalanx map journal accounts --capacity 1000 --at …` does: the master is asked."""
    with Inquirer(find_master(at, "phalanx")) as master:
        master.change_map("accounts", MapChange(journal=JournalSettings(1_000)))


if __name__ == "__main__":
    main()
