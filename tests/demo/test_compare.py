"""A comparison that could not see a difference would prove nothing: each kind of difference is planted and told."""

import pytest

from phalanx.demo.compare import Fingerprint, differences, examples, fingerprint
from phalanx.demo.question import differing_answers, mean_delays, sample, text_table
from sparks import SHARED

KEY = ("k", "l")
SCHEMA = "k string, l int, n int, s string, d double"
ROWS = [("a", 1, 10, "x", 0.5), ("a", 2, None, "y", 1.5), ("b", 1, 30, None, 2.5), ("b", 2, 40, "", None)]


def changed(index: int, **columns: object) -> list[tuple]:
    names = [column.split()[0] for column in SCHEMA.split(", ")]
    rows = [dict(zip(names, row, strict=True)) for row in ROWS]
    rows[index].update(columns)
    return [tuple(row.values()) for row in rows]


def test_equal_fingerprints_have_no_differences():
    print_ = Fingerprint(2, {"a": (2, 17)})
    assert differences("m", print_, Fingerprint(2, {"a": (2, 17)})) == []


def test_each_kind_of_difference_is_told_with_its_column():
    files = Fingerprint(1_000, {"a": (1_000, 17), "b": (900, 18), "c": (5, 1)})
    grid = Fingerprint(999, {"a": (1_000, 16), "b": (901, 18)})
    assert differences("m", files, grid) == [
        "m: 1,000 rows in the file, 999 in the map",
        "m.c: not in the map",
        "m.a: other values in the map than in the file",
        "m.b: 900 values in the file, 901 in the map",
    ]


@pytest.fixture(scope="module")
def spark():
    from phalanx.spark import session

    SHARED.stop()
    made = session("local[1]", **{"spark.sql.shuffle.partitions": "1", "spark.sql.session.timeZone": "UTC"})
    yield made
    made.stop()


@pytest.mark.long
def test_the_order_of_rows_and_partitions_does_not_matter(spark):
    one = spark.createDataFrame(ROWS, SCHEMA)
    other = spark.createDataFrame(ROWS[::-1], SCHEMA).repartition(3)
    assert fingerprint(one, KEY) == fingerprint(other, KEY)
    assert examples(one, other, KEY) == []
    nothing = fingerprint(one.limit(0), KEY)
    assert nothing.rows == 0
    assert differences("m", nothing, fingerprint(other.limit(0), KEY)) == []


@pytest.mark.long
@pytest.mark.parametrize(
    ("rows", "told", "example"),
    [
        (ROWS[:3], ["m: 4 rows in the file, 3 in the map"], "k=b, l=2: only in the file"),
        ([*ROWS, ("c", 1, 1, "z", 1.0)], ["m: 4 rows in the file, 5 in the map"], "k=c, l=1: only in the map"),
        (changed(0, n=11), ["m.n: other values"], "k=a, l=1: n is 10 in the file and 11 in the map"),
        (changed(0, n=None), ["m.n: 3 values in the file, 2 in"], "k=a, l=1: n is 10 in the file and None in the map"),
        (changed(2, s=""), ["m.s: 3 values in the file, 4 in"], "k=b, l=1: s is None in the file and  in the map"),
        (changed(3, s="z"), ["m.s: other values"], "k=b, l=2: s is  in the file and z in the map"),
        (changed(1, d=1.5000001), ["m.d: other values"], "k=a, l=2: d is 1.5 in the file and 1.5000001 in the map"),
        (changed(1, d=float("nan")), ["m.d: other values"], "k=a, l=2: d is 1.5 in the file and nan in the map"),
    ],
)
def test_a_planted_difference_is_found_and_shown(spark, rows, told, example):
    files, grid = spark.createDataFrame(ROWS, SCHEMA), spark.createDataFrame(rows, SCHEMA)
    found = differences("m", fingerprint(files, KEY), fingerprint(grid, KEY))
    for text in told:
        assert any(line.startswith(text) for line in found), found
    assert example in examples(files, grid, KEY)


@pytest.mark.long
def test_values_that_changed_places_are_found(spark):
    """The values of each column are the same, in other rows: sums of plain hashes would not move."""
    swapped = [(*ROWS[0][:2], *ROWS[1][2:]), (*ROWS[1][:2], *ROWS[0][2:]), *ROWS[2:]]
    files, grid = spark.createDataFrame(ROWS, SCHEMA), spark.createDataFrame(swapped, SCHEMA)
    found = differences("m", fingerprint(files, KEY), fingerprint(grid, KEY))
    assert [line.split(":")[0] for line in found] == ["m.n", "m.s", "m.d"]


@pytest.mark.long
def test_the_question_is_answered_as_by_hand(spark, source):
    from phalanx.demo.dataset import NULL, TABLES

    tables = {
        table.name: spark.read.csv(str(source / f"{table.name}.csv"), table.schema, header=True, nullValue=NULL)
        for table in TABLES
    }
    answer = mean_delays(tables)
    assert answer == {("United Air Lines Inc.", 0): (15.5, 2), ("JetBlue Airways", 15): (-10.0, 1)}
    assert differing_answers(answer, dict(answer)) == []
    other = {("United Air Lines Inc.", 0): (15.0, 2), ("SkyWest", 25): (1.0, 1)}
    assert differing_answers(answer, other) == [
        "mean delay of JetBlue Airways at 15-20 mph: (-10.0, 1) from the files, None from the grid",
        "mean delay of SkyWest at 25+ mph: None from the files, (1.0, 1) from the grid",
        "mean delay of United Air Lines Inc. at 0-5 mph: (15.5, 2) from the files, (15.0, 2) from the grid",
    ]


def test_a_sample_shows_the_airlines_with_most_flights():
    answer = {("A", 0): (1.0, 5), ("A", 25): (None, 0), ("B", 5): (-2.04, 9), ("C", 0): (3.0, 1)}
    rows = sample(answer, 2)
    assert rows == [["B", "", "-2.0", "", "", "", ""], ["A", "+1.0", "", "", "", "", ""]]
    lines = text_table(rows)
    assert len({len(line) for line in lines}) == 1
    assert lines[0].split("  ")[0] == "minutes late, by wind"
