"""A comparison that could not see a difference would prove nothing: each kind of difference is planted and told."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from phalanx_spark.demo.compare import find_examples, fingerprint, mean_delays, read_csv, sample
from phalanx_spark.demo.dataset import TABLES
from support.sparks import FRUGAL, SHARED

KEY = ("k", "l")
SCHEMA = "k string, l int, n int, s string, d double"
ROWS = [("a", 1, 10, "x", 0.5), ("a", 2, None, "y", 1.5), ("b", 1, 30, None, 2.5), ("b", 2, 40, "", None)]


def changed(index: int, **columns: object) -> list[tuple[object, ...]]:
    names = [column.split()[0] for column in SCHEMA.split(", ")]
    rows: list[dict[str, object]] = [dict(zip(names, row, strict=True)) for row in ROWS]
    rows[index].update(columns)
    return [tuple(row.values()) for row in rows]


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    from phalanx.spark import session

    SHARED.stop()
    settings = {"spark.sql.shuffle.partitions": "1", "spark.sql.session.timeZone": "UTC"}
    made = session("local[1]", **(FRUGAL | settings))
    yield made
    made.stop()


@pytest.mark.long
def test_the_order_of_rows_and_partitions_does_not_matter(spark: SparkSession) -> None:
    one = spark.createDataFrame(ROWS, SCHEMA)
    other = spark.createDataFrame(ROWS[::-1], SCHEMA).repartition(3)
    assert fingerprint(one, KEY) == fingerprint(other, KEY)
    assert find_examples(one, other) == []
    assert fingerprint(one.limit(0), KEY) == (0, 0)


@pytest.mark.long
@pytest.mark.parametrize(
    ("rows", "examples"),
    [
        (ROWS[:3], ["file: {'k': 'b', 'l': 2, 'n': 40, 's': '', 'd': None}"]),
        ([*ROWS, ("c", 1, 1, "z", 1.0)], ["map: {'k': 'c', 'l': 1, 'n': 1, 's': 'z', 'd': 1.0}"]),
        (changed(0, n=11), ["file: {'k': 'a', 'l': 1, 'n': 10, ", "map: {'k': 'a', 'l': 1, 'n': 11, "]),
        (changed(0, n=None), ["file: {'k': 'a', 'l': 1, 'n': 10, ", "map: {'k': 'a', 'l': 1, 'n': None, "]),
        (
            changed(2, s=""),
            ["file: {'k': 'b', 'l': 1, 'n': 30, 's': None,", "map: {'k': 'b', 'l': 1, 'n': 30, 's': '',"],
        ),
        (
            changed(3, s="z"),
            ["file: {'k': 'b', 'l': 2, 'n': 40, 's': '',", "map: {'k': 'b', 'l': 2, 'n': 40, 's': 'z',"],
        ),
        (changed(1, d=1.5000001), ["'d': 1.5}", "'d': 1.5000001}"]),
        (changed(1, d=float("nan")), ["'d': 1.5}", "'d': nan}"]),
    ],
)
def test_a_planted_difference_is_found_and_shown(
    spark: SparkSession, rows: list[tuple[object, ...]], examples: list[str]
) -> None:
    files, grid = spark.createDataFrame(ROWS, SCHEMA), spark.createDataFrame(rows, SCHEMA)
    there = fingerprint(grid, KEY)
    assert there != fingerprint(files, KEY)
    assert there[0] == len(rows)
    shown = find_examples(files, grid)
    assert len(shown) == len(examples)
    for line, text in zip(shown, examples, strict=True):
        assert text in line


@pytest.mark.long
def test_values_that_changed_places_are_found(spark: SparkSession) -> None:
    """The values of each column, or of each row, are the same in other places: sums of plain hashes would not move."""
    files = spark.createDataFrame(ROWS, SCHEMA)
    swapped = [(*ROWS[0][:2], *ROWS[1][2:]), (*ROWS[1][:2], *ROWS[0][2:]), *ROWS[2:]]
    assert fingerprint(files, KEY) != fingerprint(spark.createDataFrame(swapped, SCHEMA), KEY)
    schema = "k string, l int, s string, t string"
    one, other = ([("a", 1, *texts)] for texts in (("x", None), (None, "x")))
    assert fingerprint(spark.createDataFrame(one, schema), KEY) != fingerprint(
        spark.createDataFrame(other, schema), KEY
    )


@pytest.mark.long
def test_the_question_is_answered_as_by_hand(spark: SparkSession, source: Path) -> None:
    tables = {name: read_csv(spark, source / f"{name}.csv", table.schema) for name, table in TABLES.items()}
    answer = mean_delays(tables)
    assert answer == {("United Air Lines Inc.", 0): (15.5, 2), ("JetBlue Airways", 15): (-10.0, 1)}


def test_a_sample_shows_the_airlines_with_most_flights() -> None:
    answer = {("A", 0): (1.0, 5), ("A", 25): (None, 0), ("B", 5): (-2.04, 9), ("C", 0): (3.0, 1)}
    rows = sample(answer, 2)
    assert rows == [["B", "", "-2.0", "", "", "", ""], ["A", "+1.0", "", "", "", "", ""]]
