"""The streaming sink without Spark around it: what it stages, which attempts it applies, and what it refuses."""

import pickle
import random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from phalanx.common.errors import ConnectError, IndeterminateWrite, UnavailableError, UsageError
from phalanx.spark import each_batch
from phalanx_spark.connector import grid as grid_module
from phalanx_spark.connector import stream_writer
from phalanx_spark.connector.options import parse_options
from phalanx_spark.connector.source import PhalanxSource
from phalanx_spark.connector.stream_writer import EachBatchWriter, PhalanxStreamWriter, StagedEpoch
from spark.fakes import FakeGrid
from spark.stream_fakes import Died, FakeStaging, Stages

MEMBERS = {"members": "127.0.0.1:5701", "map": "flights"}
QUERY = "0e6b6be1"
SCHEMA = StructType().add("key", "string").add("n", "long")
Rows = list[dict[str, Any]]


class Context:
    """What a task of a streaming query sees of it."""

    @staticmethod
    def get() -> "Context":
        return Context()

    def getLocalProperty(self, name: str) -> str | None:
        return {"sql.streaming.queryId": QUERY}.get(name)


@pytest.fixture
def grid(monkeypatch: pytest.MonkeyPatch) -> FakeGrid:
    fake = FakeGrid()
    monkeypatch.setattr(grid_module, "connect", fake.connect)
    monkeypatch.setattr(grid_module, "change_schema", fake.change_schema)
    monkeypatch.setattr(grid_module, "has_entries", lambda client, name: bool(client.maps.get(name)))
    monkeypatch.setattr(stream_writer, "TaskContext", Context)
    return fake


@pytest.fixture
def stages(grid: FakeGrid, monkeypatch: pytest.MonkeyPatch) -> Stages:
    fake = Stages()
    monkeypatch.setattr(grid_module, "Staging", fake.staging)
    return fake


def sink(overwrite: bool = False, schema: StructType = SCHEMA, **options: str) -> PhalanxStreamWriter:
    writer = PhalanxSource(MEMBERS | options).streamWriter(schema, overwrite)
    assert isinstance(writer, PhalanxStreamWriter)
    return writer


def task(writer: PhalanxStreamWriter, *batches: Rows) -> StagedEpoch:
    """One attempt of a task, in a process of its own."""
    copy = pickle.loads(pickle.dumps(writer))
    found = pickle.loads(pickle.dumps(copy.write(iter([pa.RecordBatch.from_pylist(rows) for rows in batches]))))
    assert isinstance(found, StagedEpoch)
    return found


def row(key: str, n: int) -> dict[str, Any]:
    return {"key": key, "n": n}


# --- exactly once ---------------------------------------------------------------------------------------------------


def test_nothing_is_seen_before_the_driver_says_that_all_tasks_are_done(grid: FakeGrid, stages: Stages) -> None:
    writer = sink()
    messages = [task(writer, [row("a", 1)]), task(writer, [row("b", 2)], [row("c", 3)])]
    assert grid.content("flights") == {}
    sink().commit(list(messages), 0)
    assert grid.content("flights") == {"a": row("a", 1), "b": row("b", 2), "c": row("c", 3)}
    assert stages.attempts == {}


def test_only_the_attempts_that_spark_took_count(grid: FakeGrid, stages: Stages) -> None:
    writer = sink()
    task(writer, [row("a", 1), row("b", 1)])  # it failed after that, or another one was faster
    sink().commit([task(writer, [row("a", 2)])], 0)
    assert grid.content("flights") == {"a": row("a", 2)}


def test_a_batch_is_applied_once(grid: FakeGrid, stages: Stages) -> None:
    sink().commit([task(sink(), [row("a", 1)])], 0)
    sink().commit([task(sink(), [row("a", 2)])], 1)
    sink().commit([task(sink(), [row("a", 1)])], 0)
    sink().commit([task(sink(), [row("a", 1)])], 1)
    assert grid.content("flights") == {"a": row("a", 2)}


def test_a_batch_whose_driver_died_half_way_is_done_where_it_was_not(grid: FakeGrid, stages: Stages) -> None:
    first, second = sink(), sink()
    rows = [row(f"k{number}", number) for number in range(40)]
    stages.dies_behind = 3
    with pytest.raises(Died):
        sink().commit([task(first, rows)], 0)
    done = grid.content("flights")
    assert 0 < len(done) < 40
    with grid.connect(parse_options(MEMBERS, "writeStream")) as client:
        client.maps["flights"].clear()  # so that what is applied twice shows
    stages.dies_behind = None
    sink().commit([task(second, rows)], 0)
    assert grid.content("flights") == {one["key"]: one for one in rows if one["key"] not in done}


def test_a_batch_without_rows_asks_for_nothing(grid: FakeGrid, stages: Stages) -> None:
    sink().commit([task(sink()), task(sink(), [])], 0)
    assert stages.applied == {}


def test_a_batch_that_failed_leaves_nothing_staged(grid: FakeGrid, stages: Stages) -> None:
    writer = sink()
    messages = [task(writer, [row("a", 1)]), None]
    sink().abort(list(messages), 0)
    assert stages.attempts == {}
    assert grid.content("flights") == {}


def test_an_abort_that_fails_does_not_hide_why_the_batch_did(
    grid: FakeGrid, stages: Stages, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = task(sink(), [row("a", 1)])

    def unreachable(options: object) -> None:
        raise ConnectError("no member was ready")

    writer = sink()
    monkeypatch.setattr(grid_module, "connect", unreachable)
    writer.abort([message], 0)
    assert len(stages.attempts) == 1


def test_a_commit_that_may_have_been_done_is_asked_for_again(
    grid: FakeGrid, stages: Stages, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = task(sink(), [row("a", 1)])
    left = [IndeterminateWrite("no answer"), UnavailableError("no owner")]
    apply = FakeStaging.apply

    def doubtful(job: FakeStaging, *asked: Any, **more: Any) -> int:
        if left:
            raise left.pop()
        return apply(job, *asked, **more)

    monkeypatch.setattr(FakeStaging, "apply", doubtful)
    sink().commit([message], 0)
    assert grid.content("flights") == {"a": row("a", 1)}


def test_batches_of_one_query_are_jobs_of_their_own(grid: FakeGrid, stages: Stages) -> None:
    assert task(sink(), [row("a", 1)]).job != task(sink(), [row("a", 1)]).job


def test_a_complete_result_takes_the_place_of_the_one_before(grid: FakeGrid, stages: Stages) -> None:
    grid.put("flights", {"old": {"n": 1}})
    writer = sink(overwrite=True)
    sink(overwrite=True).commit([task(writer, [row("a", 1)]), task(writer, [row("b", 2)])], 0)
    assert grid.content("flights") == {"a": row("a", 1), "b": row("b", 2)}
    sink(overwrite=True).commit([task(sink(overwrite=True))], 1)
    assert grid.content("flights") == {}


# --- deletes --------------------------------------------------------------------------------------------------------


def flagged(key: str, n: int, gone: object) -> dict[str, Any]:
    return {"key": key, "n": n, "gone": gone}


def test_rows_that_say_so_remove_their_key(grid: FakeGrid, stages: Stages) -> None:
    grid.put("flights", {"a": {"n": 1}, "b": {"n": 2}})
    schema = StructType().add("key", "string").add("n", "long").add("gone", "boolean")
    writer = sink(schema=schema, deleteColumn="gone")
    message = task(writer, [flagged("a", 0, True), flagged("b", 5, False), flagged("c", 6, False)])
    sink(schema=schema, deleteColumn="gone").commit([message], 0)
    assert grid.content("flights") == {"b": row("b", 5), "c": row("c", 6)}


def test_of_several_rows_of_a_key_the_last_counts(grid: FakeGrid, stages: Stages) -> None:
    kinds = StructType().add("key", "string").add("n", "long").add("gone", "string")
    generator = random.Random(7)
    rows, model = [], {}
    for number in range(200):
        key, kind = generator.choice("abcdefgh"), generator.choice(["added", "updated", "merged", "removed", "expired"])
        rows.append(flagged(key, number, kind))
        model[key] = None if kind in ("removed", "expired") else row(key, number)
    writer = sink(schema=kinds, deleteColumn="gone")
    message = task(writer, *[rows[start : start + 30] for start in range(0, 200, 30)])
    sink(schema=kinds, deleteColumn="gone").commit([message], 0)
    assert grid.content("flights") == {key: value for key, value in model.items() if value is not None}


@pytest.mark.parametrize(
    ("value", "kind", "told"),
    [
        (None, "boolean", "column 'gone', which option 'deleteColumn' names, is null in 1 of 1 rows of a batch"),
        (
            "deleted",
            "string",
            "holds 'deleted', which is not a kind of a change; nothing of that batch was written; the",
        ),
    ],
)
def test_a_row_that_does_not_say_it_is_refused(
    grid: FakeGrid, stages: Stages, value: object, kind: str, told: str
) -> None:
    schema = StructType().add("key", "string").add("n", "long").add("gone", kind)
    batch = pa.RecordBatch.from_pylist(
        [flagged("a", 1, value)],
        pa.schema({"key": pa.string(), "n": pa.int64(), "gone": pa.bool_() if kind == "boolean" else pa.string()}),
    )
    with pytest.raises(UsageError) as error:
        sink(schema=schema, deleteColumn="gone").write(iter([batch]))
    assert told in str(error.value)


@pytest.mark.parametrize(
    ("schema", "options", "told"),
    [
        (SCHEMA, {"key": "id"}, "option 'key' names the column 'id', which the DataFrame does not have"),
        (SCHEMA, {"deleteColumn": "x"}, "option 'deleteColumn' names the column 'x', which the stream does not have"),
        (SCHEMA, {"deleteColumn": "n"}, "option 'deleteColumn' names the column 'n', which is bigint; it has to be a"),
        (SCHEMA, {"deleteColumn": "key"}, "which is string and part of the key; it has to be a boolean, or a string"),
        (
            SCHEMA,
            {"startingOffsets": "latest"},
            "option 'startingOffsets' belongs to a readStream, not to a writeStream",
        ),
        (
            SCHEMA,
            {"streamBatch": "7"},
            "option 'streamBatch': '7' is not a batch of a query; leave it to phalanx.spark",
        ),
    ],
)
def test_a_sink_that_cannot_be_is_refused(
    grid: FakeGrid, schema: StructType, options: dict[str, Any], told: str
) -> None:
    with pytest.raises(UsageError) as error:
        sink(schema=schema, **options)
    assert told in str(error.value)
    assert "\n" not in str(error.value)


def test_what_spark_adds_to_the_options_of_a_query_is_no_mistake(grid: FakeGrid, stages: Stages) -> None:
    sink(checkpointlocation="/tmp/x", queryname="counts")


# --- foreachBatch ---------------------------------------------------------------------------------------------------


def test_a_write_of_a_batch_is_applied_once_too(grid: FakeGrid, stages: Stages) -> None:
    for n in (1, 2):
        writer = PhalanxSource(MEMBERS | {"streamBatch": f"{QUERY}/0"}).writer(SCHEMA, False)
        assert isinstance(writer, EachBatchWriter)
        message = writer.write(iter([pa.RecordBatch.from_pylist([row("a", n)])]))
        writer.commit([message])
    assert grid.content("flights") == {"a": row("a", 1)}
    assert {query for _, _, query in stages.applied} == {QUERY}


def test_the_options_of_each_batch_are_checked_at_once() -> None:
    with pytest.raises(UsageError, match="there is no option 'mapp'"):
        each_batch(members="h:1", mapp="flights")
