"""Structured Streaming on members in real processes: a map's changes as a stream, a stream into a map."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from phalanx import Client
from phalanx.client.ask import Inquirer
from phalanx.client.blocking.journal import Journal
from phalanx.common.map_settings import MapChange
from phalanx.spark import each_batch
from spark.streams import Streams
from support.processes import Cluster, wait_for

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]


@pytest.fixture
def streams(spark: SparkSession, members: Cluster, tmp_path: Path) -> Streams:
    return Streams(spark, members, tmp_path)


def told(error: pytest.ExceptionInfo[BaseException]) -> str:
    """The line of the data source in what the driver sees."""
    text = str(error.value)
    assert "Traceback" not in text
    return next(line for line in text.splitlines() if "phalanx." in line)


# --- source ---------------------------------------------------------------------------------------------------------


def test_changes_come_once_across_restarts_from_the_checkpoint(streams: Streams, grid: Client) -> None:
    streams.journal("followed", 1000)
    followed = grid.map("followed")
    followed.put_all({f"k{number}": {"n": number} for number in range(50)})
    frame = streams.changes("followed", maxEventsPerTrigger="20")
    rows = streams.collect(frame)
    assert sorted((row.key, row.kind, row.new.n, row.old) for row in rows) == sorted(
        (f"k{number}", "added", number, None) for number in range(50)
    )
    followed["k1"] = {"n": 100}
    del followed["k2"]
    rows = streams.collect(frame)
    assert sorted((row.kind, row.key, row.old.n) for row in rows) == [("removed", "k2", 2), ("updated", "k1", 1)]
    assert streams.collect(frame) == []


def test_what_a_bounded_map_evicts_comes_once_with_the_value_that_went(streams: Streams, grid: Client) -> None:
    streams.journal("bounded", 1000)
    with Inquirer(streams.members.members[0].address, cluster=streams.members.name) as master:
        master.change_map("bounded", MapChange(max_entries=1))
    bounded, count = grid.map("bounded"), 3 * grid.partition_table().partition_count
    for number in range(count):
        bounded.put(f"k{number}", {"n": number})
    wait_for(lambda: len(bounded) <= count // 3, "one entry in each partition")
    left = {key: value["n"] for key, value in bounded.items()}
    frame = streams.changes("bounded", maxEventsPerTrigger="100")
    rows: list[Any] = []
    deadline = time.monotonic() + 60
    # An eviction may be read when the backups have it, and nobody waits for that.
    while len(rows) < 2 * count - len(left) and time.monotonic() < deadline:
        rows += streams.collect(frame)
    evicted = [(row.key, row.old.n, row.new) for row in rows if row.kind == "evicted"]
    gone = {f"k{number}": number for number in range(count) if f"k{number}" not in left}
    assert left
    assert sorted(evicted) == sorted((key, number, None) for key, number in gone.items())
    assert sorted((row.key, row.new.n) for row in rows if row.kind == "added") == sorted((left | gone).items())


def test_no_batch_has_more_than_the_limit_and_progress_shows_the_offsets(streams: Streams, grid: Client) -> None:
    streams.journal("limited", 1000)
    grid.map("limited").put_all({f"k{number}": {"n": number} for number in range(50)})
    frame = streams.changes("limited", maxEventsPerTrigger="20")
    query = streams.run(frame.writeStream.format("noop"), "limited")
    assert [progress["numInputRows"] for progress in query.recentProgress] == [20, 20, 10]
    end = json.loads(query.recentProgress[-1]["sources"][0]["endOffset"])
    assert (end["map"], end["cluster"], end["skipped"]) == ("limited", streams.members.name, 0)
    assert sum(place["next"] for place in end["partitions"].values()) == 50


def test_the_schema_is_inferred_from_the_map(streams: Streams, grid: Client) -> None:
    streams.journal("inferred", 10)
    grid.map("inferred")["a"] = {"key": "a", "n": 1, "s": "x"}
    frame = streams.changes("inferred", None, changes="true")
    (row,) = streams.collect(frame.select("kind", "key", "new.*", "stamp"))
    assert (row.kind, row.key, row.n, row.s) == ("added", "a", 1, "x")


def test_an_overrun_ends_the_query_in_one_line_or_is_counted(streams: Streams, grid: Client) -> None:
    streams.journal("narrow", 5)
    narrow = grid.map("narrow")
    narrow["a"] = {"n": 0}
    assert len(streams.collect(streams.changes("narrow"))) == 1
    for number in range(1, 11):
        narrow["a"] = {"n": number}
    with pytest.raises(StreamingQueryException) as error:
        streams.collect(streams.changes("narrow"))
    assert "5 events, from number 1 on, have dropped out of the journal unread; start with a new checkpoint" in told(
        error
    )
    partition = next(p for p, bounds in Journal("narrow", grid).bounds().items() if bounds.end)
    assert f"partition {partition}: 5 events" in told(error)
    frame = streams.changes("narrow", onOverrun="skip")
    seen: list[int] = []
    query = streams.run(
        frame.writeStream.foreachBatch(lambda rows, _: seen.extend(r.new.n for r in rows.collect())), "rows"
    )
    assert seen == [6, 7, 8, 9, 10]
    assert json.loads(query.recentProgress[-1]["sources"][0]["endOffset"])["skipped"] == 5


def test_a_map_without_journal_is_refused_in_one_line(streams: Streams, grid: Client) -> None:
    grid.map("plain")["a"] = {"n": 1}
    with pytest.raises(StreamingQueryException) as error:
        streams.collect(streams.changes("plain"))
    assert "or begin one with 'phalanx map journal plain --capacity" in told(error)


def test_the_checkpoint_of_another_map_is_refused_in_one_line(streams: Streams, grid: Client) -> None:
    for name in ("first", "second"):
        streams.journal(name, 10)
        grid.map(name)["a"] = {"n": 1}
    streams.collect(streams.changes("first"))
    with pytest.raises(StreamingQueryException) as error:
        streams.collect(streams.changes("second"))
    assert "is of the map 'first'" in told(error)
    assert "but the options name 'second'" in told(error)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"members": "127.0.0.1:1"}, "no member was ready within 10 s: 127.0.0.1:1"),
        ({"cluster": "other"}, "other"),
        ({"onOverrun": "wait"}, "option 'onOverrun': 'wait' is neither fail nor skip"),
        ({"startingOffsets": "{}"}, "option 'startingOffsets' is not a position in a map's changes"),
    ],
)
def test_what_a_stream_cannot_use_is_told_in_one_line(streams: Streams, options: dict[str, str], line: str) -> None:
    streams.options |= options
    with pytest.raises(StreamingQueryException) as error:
        streams.collect(streams.changes("followed"))
    assert line in told(error)


# --- sink -----------------------------------------------------------------------------------------------------------

ROWS = "key string, n bigint, gone boolean"


def row(key: str, n: int, gone: bool = False) -> dict[str, Any]:
    return {"key": key, "n": n, "gone": gone}


def test_batches_store_and_remove(streams: Streams, grid: Client) -> None:
    frame = streams.files(ROWS)
    streams.drop([row("a", 1), row("b", 2), row("c", 3)])
    streams.drop([row("a", 10), row("b", 0, True), row("d", 4), row("d", 5)])
    streams.write(frame, "stored", deleteColumn="gone")
    expected = {"a": 10, "c": 3, "d": 5}
    assert {key: value["n"] for key, value in grid.map("stored").items()} == expected
    assert "gone" not in grid.map("stored")["a"]
    streams.drop([row("c", 0, True)])
    streams.write(frame, "stored", deleteColumn="gone")
    assert {key: value["n"] for key, value in grid.map("stored").items()} == {"a": 10, "d": 5}


def test_an_update_query_writes_what_has_changed(streams: Streams, grid: Client) -> None:
    counts = streams.files("key string").groupBy("key").count()
    streams.drop([{"key": "a"}, {"key": "a"}, {"key": "b"}])
    streams.drop([{"key": "a"}])
    write = each_batch(map="counts", **streams.options)
    streams.run(counts.writeStream.outputMode("update").foreachBatch(write), "counts")
    assert {key: value["count"] for key, value in grid.map("counts").items()} == {"a": 3, "b": 1}


def test_a_complete_query_replaces_what_the_map_held(streams: Streams, grid: Client) -> None:
    grid.map("totals")["old"] = {"count": 9}
    counts = streams.files("key string").groupBy("key").count()
    streams.drop([{"key": "a"}, {"key": "a"}, {"key": "b"}])
    streams.drop([{"key": "a"}])
    streams.write(counts, "totals", "complete")
    assert {key: value["count"] for key, value in grid.map("totals").items()} == {"a": 3, "b": 1}


def test_a_sink_that_cannot_be_is_told_in_one_line(streams: Streams, grid: Client) -> None:
    frame = streams.files(ROWS)
    streams.drop([row("a", 1)])
    with pytest.raises(StreamingQueryException) as error:
        streams.write(frame, "stored", deleteColumn="removed")
    assert "option 'deleteColumn' names the column 'removed', which the stream does not have" in told(error)
    with pytest.raises(StreamingQueryException) as error:
        streams.write(frame, "stored", key="id")
    assert "option 'key' names the column 'id', which the DataFrame does not have" in told(error)


def test_a_task_that_fails_leaves_the_map_as_it_was(streams: Streams, grid: Client) -> None:
    frame = streams.files(ROWS)
    streams.drop([row("a", 1), row("b", 2)])
    broken = frame.selectExpr("key", "n", "raise_error('broken') as x").where("n > 0")
    with pytest.raises(StreamingQueryException, match="broken"):
        streams.write(broken, "untouched")
    assert grid.map("untouched").size() == 0
    streams.write(frame, "untouched")
    assert grid.map("untouched").size() == 2


def test_the_changes_of_a_map_make_another_one_the_same(streams: Streams, grid: Client) -> None:
    streams.journal("origin", 1000)
    origin, copy = grid.map("origin"), grid.map("copy")
    frame = streams.changes("origin", maxEventsPerTrigger="30").select("kind", "key", "new.*")
    for turn in range(3):
        origin.put_all({f"k{number}": {"n": number * turn} for number in range(turn, 40)})
        for number in range(0, 40, turn + 3):
            origin.remove(f"k{number}")
        streams.write(frame, "copy", deleteColumn="kind")
        assert {k: v["n"] for k, v in copy.items()} == {k: v["n"] for k, v in origin.items()}


@pytest.fixture(autouse=True)
def no_query_is_left(spark: SparkSession) -> Iterator[None]:
    yield
    for query in spark.streams.active:
        query.stop()
