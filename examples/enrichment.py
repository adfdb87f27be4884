"""Complete a stream by look-ups in the grid: orders arrive as files, customers are in a map.

Each batch of rows asks for its customers at once, from the members that own them: one round trip for thousands of rows.
The customers may change while the stream runs; an order gets what is there when it passes by.
"""

import argparse
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

import phalanx
from phalanx.spark import session

CUSTOMERS = {f"c{n}": {"name": f"Customer {n}", "country": ["PT", "JP", "CL"][n % 3]} for n in range(50)}
ORDERS = "id long, customer string, euros double"
ENRICHED = f"{ORDERS}, name string, country string"


def enrich(at: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Runs in Spark's workers: one client for each task."""
    with phalanx.Client(at) as grid:
        customers = grid.map("customers")
        for batch in batches:
            wanted = batch.column("customer").to_pylist()
            found = customers.get_all(set(wanted))
            rows = [found.get(key) or {} for key in wanted]
            columns = [pa.array([row.get(name) for row in rows], pa.string()) for name in ("name", "country")]
            names = [*batch.schema.names, "name", "country"]
            yield pa.RecordBatch.from_arrays([*batch.columns, *columns], names=names)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--at", default="127.0.0.1:5701", help="address of any member")
    at = parser.parse_args().at
    with phalanx.Client(at) as grid:
        grid.map("customers").put_all(CUSTOMERS)
    spark = session("local[2]")
    with tempfile.TemporaryDirectory() as folder:
        incoming = Path(folder) / "orders"
        incoming.mkdir()
        for part in range(3):
            orders = [{"id": part * 100 + n, "customer": f"c{n % 51}", "euros": n / 4} for n in range(100)]
            (incoming / f"{part}.json").write_text("\n".join(map(json.dumps, orders)))
        stream = spark.readStream.schema(ORDERS).option("maxFilesPerTrigger", 1).json(str(incoming))
        enriched = stream.mapInArrow(lambda batches: enrich(at, batches), ENRICHED)
        query = (
            enriched.writeStream.format("parquet")
            .option("checkpointLocation", f"{folder}/checkpoint")
            .trigger(availableNow=True)
            .start(f"{folder}/enriched")
        )
        query.awaitTermination()
        result = spark.read.parquet(f"{folder}/enriched")
        result.orderBy("id").show(5)
        countries = {row["country"]: row["count"] for row in result.groupBy("country").count().collect()}
        print(
            "orders by country:",
            json.dumps({str(country): countries[country] for country in sorted(countries, key=str)}),
        )
    spark.stop()


if __name__ == "__main__":
    main()
