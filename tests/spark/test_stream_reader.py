"""The streaming source without Spark around it: what it plans, reads, leaves out and refuses."""

import datetime
import json
import pickle
from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import StructType

from phalanx.common.errors import UsageError
from phalanx_spark.connector import grid as grid_module
from phalanx_spark.connector.source import PhalanxSource
from phalanx_spark.connector.stream_reader import PhalanxStreamReader, RefusedStreamReader
from spark.fakes import PARTITIONS, FakeGrid
from spark.stream_fakes import Journals

MEMBERS = {"members": "127.0.0.1:5701", "map": "flights"}
SCHEMA = "kind string, key string, new struct<n:bigint>, old struct<n:bigint>, stamp timestamp, partition int, sequence bigint"
Json = dict[str, Any]


@pytest.fixture
def grid(monkeypatch: pytest.MonkeyPatch) -> FakeGrid:
    fake = FakeGrid()
    monkeypatch.setattr(grid_module, "connect", fake.connect)
    return fake


@pytest.fixture
def journals(grid: FakeGrid, monkeypatch: pytest.MonkeyPatch) -> Journals:
    fake = Journals()
    monkeypatch.setattr(grid_module, "Journal", fake.journal)
    return fake


_SQL_TYPES = {"bigint": "long", "int": "integer"}


def typed(schema: str) -> StructType:
    """Columns and their types, as SQL writes them; a parser of that would need a session."""
    found = StructType()
    for column in schema.split(", "):
        name, kind = column.split(" ")
        found.add(name, StructType().add("n", "long") if kind == "struct<n:bigint>" else _SQL_TYPES.get(kind, kind))
    return found


def stream(schema: str = SCHEMA, **options: str) -> PhalanxStreamReader:
    reader = PhalanxSource(MEMBERS | options).streamReader(typed(schema))
    if isinstance(reader, RefusedStreamReader):
        reader.getDefaultReadLimit()
    assert isinstance(reader, PhalanxStreamReader)
    return reader


class Query:
    """What Spark does with a source: offsets to its log before a batch, rows of tasks, and again what was not committed."""

    def __init__(self, schema: str = SCHEMA, **options: str) -> None:
        self.schema = schema
        self.options = options
        self.log: list[str] = []
        """The ends of the batches, as the checkpoint holds them."""
        self.rows: list[Json] = []
        self.start()

    def start(self, **options: str) -> None:
        """The query starts, or starts again from its checkpoint in another process."""
        self.reader = stream(self.schema, **self.options | options)

    def plan(self) -> bool:
        """Write down how far the next batch goes; whether there is one."""
        start = json.loads(self.log[-1]) if self.log else self.reader.initialOffset()
        end = json.dumps(self.reader.latestOffset(start, self.reader.getDefaultReadLimit()))
        if end == json.dumps(start):
            return False
        self.log.append(end)
        return True

    def run(self) -> list[Json]:
        """The rows of the last batch in the log."""
        start = json.loads(self.log[-2]) if len(self.log) > 1 else self.reader.initialOffset()
        rows: list[Json] = []
        for task in self.reader.partitions(start, json.loads(self.log[-1])):
            reader, copy = pickle.loads(pickle.dumps((self.reader, task)))
            rows += [row for batch in reader.read(copy) for row in batch.to_pylist()]
        return rows

    def batch(self) -> list[Json]:
        found = self.run() if self.plan() else []
        self.rows += found
        return found

    @property
    def end(self) -> Json:
        found: Json = json.loads(self.log[-1])
        return found


def seen(rows: list[Json]) -> list[tuple[str, str]]:
    return [(row["kind"], row["key"]) for row in rows]


# --- rows -----------------------------------------------------------------------------------------------------------


def test_an_event_is_a_row_with_what_there_was_and_what_there_is(journals: Journals) -> None:
    partition = journals.happen("added", "a", {"n": 1})
    journals.happen("updated", "a", {"n": 2}, {"n": 1})
    journals.happen("removed", "a", None, {"n": 2})
    first = {
        "kind": "added",
        "key": "a",
        "new": {"n": 1},
        "old": None,
        "stamp": datetime.datetime.fromtimestamp(1_700_000_000, datetime.UTC),
        "partition": partition,
        "sequence": 0,
    }
    rows = Query().batch()
    assert rows[0] == first
    assert [(row["kind"], row["new"], row["old"], row["sequence"]) for row in rows] == [
        ("added", {"n": 1}, None, 0),
        ("updated", {"n": 2}, {"n": 1}, 1),
        ("removed", None, {"n": 2}, 2),
    ]


def test_values_of_different_layouts_keep_their_order(journals: Journals) -> None:
    for number in range(200):
        value = {"n": number, "x": "y"} if number % 3 else {"n": number}
        journals.happen("expired" if number % 7 == 0 else "merged", "a", None if number % 5 == 0 else value)
    rows = Query().batch()
    assert [row["new"] for row in rows] == [None if n % 5 == 0 else {"n": n} for n in range(200)]
    assert [row["kind"] for row in rows] == ["expired" if n % 7 == 0 else "merged" for n in range(200)]


def test_a_schema_may_leave_out_columns_even_the_key(journals: Journals) -> None:
    journals.put("a", {"n": 1})
    assert Query("sequence bigint, kind string").batch() == [{"sequence": 0, "kind": "added"}]


def test_a_key_of_several_columns_is_taken_apart(journals: Journals) -> None:
    journals.put(("a", 3), {"n": 1})
    assert Query("a string, b int, kind string", key="a,b").batch() == [{"a": "a", "b": 3, "kind": "added"}]


def test_the_schema_is_inferred_from_the_entries_without_the_key_in_the_values(grid: FakeGrid) -> None:
    grid.put("flights", {"a": {"key": "a", "n": 1}})
    schema = PhalanxSource(MEMBERS | {"changes": "true"}).schema()
    assert schema.simpleString() == (
        "struct<kind:string,key:string,new:struct<n:bigint>,old:struct<n:bigint>,stamp:timestamp,partition:int,"
        "sequence:bigint>"
    )


@pytest.mark.parametrize("option", [{"onOverrun": "skip"}, {"startingOffsets": "latest"}, {"maxEventsPerTrigger": "5"}])
def test_any_option_of_a_stream_says_that_changes_are_meant(grid: FakeGrid, option: dict[str, str]) -> None:
    grid.put("flights", {"a": {"n": 1}})
    assert "sequence" in PhalanxSource(MEMBERS | option).schema().names


@pytest.mark.parametrize(
    ("schema", "options", "told"),
    [
        ("key string, n bigint", {}, "this schema is that of its entries: add .option('changes', 'true'), or give a"),
        (
            "kind string, n bigint",
            {},
            "column 'n' of the schema is not a column of a map's changes: they have kind, new",
        ),
        ("kind int", {}, "column 'kind' of the schema is int, but in changes of a map it is string"),
        (
            "new bigint",
            {},
            "column 'new' of the schema is bigint, but in changes of a map it is a struct of the value's",
        ),
        ("sequence int", {}, "column 'sequence' of the schema is int, but in changes of a map it is bigint"),
        ("kind string", {"key": "kind"}, "option 'key': 'kind' is also the name of a column that every change has"),
        ("kind string", {"onOverrun": "wait"}, "option 'onOverrun': 'wait' is neither fail nor skip"),
        ("kind string", {"startingOffsets": "now"}, "option 'startingOffsets': 'now' is neither earliest, nor latest"),
        ("kind string", {"maxEventsPerTrigger": "-1"}, "'-1' is not a whole number from 0 to"),
        ("kind string", {"ttlMs": "5"}, "option 'ttlMs' belongs to a write, not to a readStream"),
    ],
)
def test_a_stream_that_cannot_be_is_refused(schema: str, options: dict[str, str], told: str) -> None:
    with pytest.raises(UsageError) as error:
        stream(schema, **({"key": "key"} | options))
    assert told in str(error.value)
    assert "\n" not in str(error.value)


def test_a_reader_that_was_refused_says_why_whatever_it_is_asked() -> None:
    reader = PhalanxSource(MEMBERS | {"onOverrun": "wait"}).streamReader(typed("kind string"))
    for ask in (
        reader.initialOffset,
        reader.getDefaultReadLimit,
        lambda: reader.latestOffset({}, ReadAllAvailable()),
        lambda: reader.partitions({}, {}),
        lambda: reader.read(InputPartition(0)),
    ):
        with pytest.raises(UsageError, match="option 'onOverrun': 'wait' is neither fail nor skip"):
            ask()


# --- batches --------------------------------------------------------------------------------------------------------


def test_each_event_comes_once_and_those_of_a_key_in_order(journals: Journals) -> None:
    query = Query()
    for number in range(60):
        journals.put(f"k{number % 9}", {"n": number})
        if number % 7 == 0:
            query.batch()
    query.batch()
    assert query.batch() == []
    for key in {f"k{number % 9}" for number in range(60)}:
        numbers = [row["new"]["n"] for row in query.rows if row["key"] == key]
        assert numbers == [number for number in range(60) if f"k{number % 9}" == key]
    assert len(query.rows) == 60


def test_no_more_are_taken_than_the_limit_admits(journals: Journals) -> None:
    for number in range(50):
        journals.put(f"k{number}", {"n": number})
    query = Query(maxEventsPerTrigger="20")
    assert [len(query.batch()) for _ in range(4)] == [20, 20, 10, 0]
    assert sorted(row["new"]["n"] for row in query.rows) == list(range(50))


def test_where_spark_sets_no_limit_there_is_none(journals: Journals) -> None:
    for number in range(50):
        journals.put(f"k{number}", {"n": number})
    reader = stream(maxEventsPerTrigger="20")
    assert reader.getDefaultReadLimit() == ReadMaxRows(20)
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert sum(place["next"] for place in end["partitions"].values()) == 50


def test_a_query_that_takes_what_there_is_now_takes_no_more(journals: Journals) -> None:
    for number in range(30):
        journals.put(f"k{number}", {"n": number})
    query = Query(maxEventsPerTrigger="20")
    query.reader.prepareForTriggerAvailableNow()
    journals.put("late", {"n": 99})
    while query.batch():
        pass
    assert sorted(row["new"]["n"] for row in query.rows) == list(range(30))


def test_a_task_has_one_owner_and_each_partition_is_in_one(journals: Journals) -> None:
    for number in range(60):
        journals.put(f"k{number}", {"n": number})
    query = Query(numPartitions="3")
    assert query.plan()
    tasks = query.reader.partitions(query.reader.initialOffset(), query.end)
    owners = [{one.partition % 3 for one in task.ranges} for task in tasks]  # type: ignore[attr-defined]
    assert [len(each) for each in owners] == [1, 1, 1]
    found = [one.partition for task in tasks for one in task.ranges]  # type: ignore[attr-defined]
    assert sorted(found) == list(range(PARTITIONS))


def test_a_batch_is_repeated_as_it_was(journals: Journals) -> None:
    journals.put("a", {"n": 1})
    query = Query()
    query.batch()
    journals.put("a", {"n": 2})
    assert query.plan()
    journals.put("a", {"n": 3})
    query.start()
    assert [row["new"]["n"] for row in query.run()] == [2]
    assert [row["new"]["n"] for row in query.batch()] == [3]


@pytest.mark.parametrize("word", ["earliest", "latest"])
def test_the_first_batch_is_repeated_from_where_it_began(journals: Journals, word: str) -> None:
    for number in range(3):
        journals.put("a", {"n": number})
    query = Query(startingOffsets=word, maxEventsPerTrigger="2")
    assert query.plan()
    partition = journals.put("a", {"n": 3})
    query.start()
    assert [row["new"]["n"] for row in query.run()] == ([0, 1] if word == "earliest" else [])
    assert [row["new"]["n"] for row in query.batch()] == ([2, 3] if word == "earliest" else [3])
    assert "from" in json.loads(query.log[0])
    assert "from" not in query.end
    assert query.end["partitions"][str(partition)] == {"lineage": partition + 1, "next": 4}


def test_latest_is_the_moment_of_the_first_batch_even_without_events(journals: Journals) -> None:
    journals.put("a", {"n": 0})
    query = Query(startingOffsets="latest")
    assert query.batch() == []
    query.start()
    journals.put("a", {"n": 1})
    assert [row["new"]["n"] for row in query.batch()] == [1]


def test_a_query_begins_where_another_one_ended(journals: Journals) -> None:
    journals.put("a", {"n": 0})
    first = Query()
    first.batch()
    journals.put("a", {"n": 1})
    second = Query(startingOffsets=first.log[-1])
    assert [row["new"]["n"] for row in second.batch()] == [1]


def test_the_progress_tells_how_far_the_journal_reaches(journals: Journals) -> None:
    query = Query(maxEventsPerTrigger="1")
    assert query.reader.reportLatestOffset() is None
    for number in range(3):
        partition = journals.put("a", {"n": number})
    query.batch()
    told = query.reader.reportLatestOffset()
    assert told is not None
    assert told["partitions"][str(partition)]["next"] == 3


# --- what is missing ------------------------------------------------------------------------------------------------


def overrun(journals: Journals, query: Query) -> int:
    """Of eight events after the first batch the first three are dropped; in which partition."""
    partition = journals.put("a", {"n": 0})
    query.batch()
    for number in range(1, 9):
        journals.put("a", {"n": number})
    journals.drop(partition, 4)
    return partition


def test_an_overrun_is_an_error_that_names_partition_and_count(journals: Journals) -> None:
    query = Query()
    partition = overrun(journals, query)
    with pytest.raises(
        UsageError,
        match=rf"partition {partition}: 3 events, from number 1 on, have dropped out of the journal unread; start with a new",
    ):
        query.batch()


def test_an_overrun_of_a_batch_that_is_repeated_is_one_too(journals: Journals) -> None:
    query = Query()
    journals.put("a", {"n": 0})
    assert query.plan()
    partition = journals.put("a", {"n": 1})
    journals.drop(partition, 1)
    query.start()
    with pytest.raises(UsageError, match=rf"partition {partition}: 1 event, from number 0 on, has dropped out"):
        query.run()


def test_an_overrun_is_skipped_and_counted_on_request(journals: Journals) -> None:
    query = Query(onOverrun="skip")
    overrun(journals, query)
    assert [row["new"]["n"] for row in query.batch()] == [4, 5, 6, 7, 8]
    assert query.end["skipped"] == 3
    journals.put("a", {"n": 9})
    query.batch()
    assert query.end["skipped"] == 3
    assert "from" not in query.end


def test_what_dropped_out_between_plan_and_repetition_is_counted_with_the_next_batch(journals: Journals) -> None:
    query = Query(onOverrun="skip")
    partition = overrun(journals, query)
    assert query.plan()
    journals.drop(partition, 6)
    query.start()
    assert [row["new"]["n"] for row in query.run()] == [6, 7, 8]
    journals.put("a", {"n": 9})
    query.batch()
    assert query.end["skipped"] == 5


def test_what_drops_out_under_a_task_is_left_out_and_told(
    journals: Journals, capsys: pytest.CaptureFixture[str]
) -> None:
    query = Query(onOverrun="skip")
    partition = overrun(journals, query)
    assert query.plan()
    start = json.loads(query.log[-2])
    (task,) = query.reader.partitions(start, query.end)
    journals.drop(partition, 6)
    rows = [row for batch in query.reader.read(task) for row in batch.to_pylist()]
    assert [row["new"]["n"] for row in rows] == [6, 7, 8]
    assert f"skipped while the batch ran: partition {partition}: too late" in capsys.readouterr().err


def test_a_history_that_did_not_last_is_an_error(journals: Journals) -> None:
    query = Query()
    partition = journals.put("a", {"n": 0})
    journals.put("a", {"n": 1})
    query.batch()
    journals.part(partition, 1, 77)
    journals.put("a", {"n": 8})
    journals.put("a", {"n": 9})
    with pytest.raises(UsageError, match=rf"partition {partition}: 1 event that was read did not outlive"):
        query.batch()


def test_a_history_that_did_not_last_is_left_on_request_where_the_other_one_begins(journals: Journals) -> None:
    query = Query(onOverrun="skip")
    partition = journals.put("a", {"n": 0})
    journals.put("a", {"n": 1})
    query.batch()
    journals.part(partition, 1, 77)
    journals.put("a", {"n": 8})
    journals.put("a", {"n": 9})
    assert [row["new"]["n"] for row in query.batch()] == [8, 9]
    assert query.end["skipped"] == 0


@pytest.mark.parametrize("at", [0, 2])
def test_a_batch_whose_history_is_gone_when_it_is_repeated_reads_none_of_the_other(journals: Journals, at: int) -> None:
    query = Query(onOverrun="skip")
    for number in range(3):
        partition = journals.put("a", {"n": number})
    assert query.plan()
    journals.part(partition, at, 77)
    journals.put("a", {"n": 8})
    query.start()
    assert [row["new"]["n"] for row in query.run()] == list(range(at))
    assert [row["new"]["n"] for row in query.batch()] == [8]


def test_the_same_without_the_request_is_an_error(journals: Journals) -> None:
    query = Query()
    partition = journals.put("a", {"n": 0})
    assert query.plan()
    journals.part(partition, 0, 77)
    journals.put("a", {"n": 8})
    query.start()
    with pytest.raises(UsageError, match=rf"partition {partition}: began anew after it was lost or merged"):
        query.run()


def test_a_checkpoint_of_another_map_is_refused(journals: Journals) -> None:
    journals.put("a", {"n": 0})
    query = Query()
    query.batch()
    query.start(map="boats")
    with pytest.raises(
        UsageError, match="is of the map 'flights' in the cluster 'phalanx', but the options name 'boats'"
    ):
        query.batch()


def test_a_checkpoint_with_other_partitions_is_refused(journals: Journals) -> None:
    journals.put("a", {"n": 0})
    query = Query()
    query.batch()
    end = query.end
    del end["partitions"][str(PARTITIONS - 1)]
    query.log = [json.dumps(end)]
    with pytest.raises(
        UsageError, match=f"counts {PARTITIONS - 1} partitions, and the cluster 'phalanx' has {PARTITIONS}"
    ):
        query.batch()
