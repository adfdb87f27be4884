"""A driver that writes into a map, and stands still when one of its tasks has staged everything and the other has not."""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from phalanx.spark import session


def main() -> None:
    given = json.loads(sys.argv[1])
    spark = session("local[2]", **{"spark.driver.memory": "1g"})
    flag = given["flag"]

    def hold(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            yield batch
            if 0 not in batch.column(0).to_pylist():
                continue
            # The batch before is staged by now: it is large enough not to wait for others.
            Path(flag).touch()
            while True:
                time.sleep(0.1)

    frame = spark.range(0, 40_000, 1, 2).selectExpr("id key", "1 n", "repeat('x', 1000) padding")
    frame.mapInArrow(hold, frame.schema).write.format("phalanx").options(**given["options"]).mode(given["mode"]).save()


if __name__ == "__main__":
    main()
