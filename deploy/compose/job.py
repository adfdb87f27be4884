"""Write a DataFrame into a map of the grid, read it again, and compare. The members: the variable MEMBERS."""

import os

from pyspark.sql import SparkSession

ROWS = 10_000


def main() -> None:
    """Run the job. Raises `SystemExit` if what is read is not what was written."""
    spark = SparkSession.builder.master(os.environ.get("SPARK_MASTER", "local[2]")).appName("phalanx").getOrCreate()
    grid = {"members": os.environ.get("MEMBERS", "127.0.0.1:5701"), "map": "squares", "key": "id"}
    squares = spark.range(ROWS).selectExpr("id", "id * id as square")
    squares.write.format("phalanx").options(**grid).mode("append").save()
    found = spark.read.format("phalanx").options(**grid).schema("id bigint, square bigint").load()
    different = squares.exceptAll(found).count()
    print(f"{found.count()} rows are in the grid, {different} of {ROWS} are not as they were written")
    spark.stop()
    if different:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
