"""The data source without Spark around it: what it plans, asks of the grid, gives back and refuses."""

import datetime as dt
import os
import pickle
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThanOrEqual,
    Not,
    StringContains,
    StringStartsWith,
)
from pyspark.sql.types import (
    ArrayType,
    CharType,
    DataType,
    DayTimeIntervalType,
    DecimalType,
    IntegerType,
    MapType,
    StringType,
    StructType,
    VariantType,
    YearMonthIntervalType,
)

from phalanx.codec.values import Json
from phalanx.common.errors import TwoClusters, UnavailableError, UsageError
from phalanx.common.map_settings import MapChange
from phalanx_spark.columns.arrow import from_numpy
from phalanx_spark.connector import grid as grid_module
from phalanx_spark.connector.errors import HIDE_TRACEBACK as HIDDEN
from phalanx_spark.connector.errors import find_error
from phalanx_spark.connector.options import OPTIONS, SINK, describe, parse_options
from phalanx_spark.connector.planning import plan_scan, split_evenly
from phalanx_spark.connector.source import PhalanxSource
from phalanx_spark.connector.writer import Written, join_batches, split_batch
from spark.fakes import FakeGrid
from spark.stream_fakes import Stages

MEMBERS = {"members": "127.0.0.1:5701", "map": "flights"}


@pytest.fixture
def grid(monkeypatch: pytest.MonkeyPatch) -> FakeGrid:
    fake = FakeGrid()
    monkeypatch.setattr(grid_module, "connect", fake.connect)
    monkeypatch.setattr(grid_module, "change_schema", fake.change_schema)
    monkeypatch.setattr(grid_module, "has_entries", lambda client, name: bool(client.maps.get(name)))
    monkeypatch.setattr(grid_module, "is_known", lambda client, name: name in client.maps)
    return fake


@pytest.fixture(autouse=True)
def stages(monkeypatch: pytest.MonkeyPatch) -> Stages:
    made = Stages()
    monkeypatch.setattr(grid_module, "Staging", made.staging)
    return made


def fields(**kinds: str | DataType) -> StructType:
    schema = StructType()
    for name, kind in kinds.items():
        schema = schema.add(name, kind)
    return schema


def source(**options: str) -> PhalanxSource:
    return PhalanxSource(MEMBERS | options)


def read(schema: StructType, filters: list[Filter] | None = None, **options: str) -> list[dict[str, Any]]:
    """All tasks of a read, each with a reader of its own, as in a cluster."""
    reader = source(**options, **({} if filters is None else {"pushDown": "true"})).reader(schema)
    if filters is not None:
        assert reader.pushFilters(filters) != filters
    rows: list[dict[str, Any]] = []
    for task in reader.partitions():
        copy, task_copy = pickle.loads(pickle.dumps((reader, task)))
        rows += [row for batch in copy.read(task_copy) for row in batch.to_pylist()]
    return sorted(rows, key=repr)


def write(rows: list[dict[str, Any]], schema: StructType, overwrite: bool = False, **options: str) -> int:
    """One task, and the end of the job as Spark lets it end."""
    writer = source(**options).writer(schema, overwrite=overwrite)
    try:
        message = pickle.loads(pickle.dumps(writer)).write(iter([pa.RecordBatch.from_pylist(rows)]))
    except Exception:
        writer.abort([None])
        raise
    writer.commit([message])
    return int(message.rows)


# --- options --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "use", "told"),
    [
        ({"map": "m"}, "read", "option 'members' is missing: where members listen"),
        ({"members": "h:1"}, "read", "option 'map' is missing: name of the map; add .option('map', ...)"),
        ({"members": "h:1", "map": " "}, "write", "option 'map' is empty"),
        ({"members": "h", "map": "m"}, "read", "option 'members': 'h' is not an address"),
        (MEMBERS | {"key": "a,,b"}, "read", "option 'key': 'a,,b' has an empty column name"),
        (MEMBERS | {"key": "a, a"}, "read", "option 'key': 'a, a' names a column twice"),
        (
            MEMBERS | {"membres": "h:1"},
            "read",
            "there is no option 'membres' (did you mean 'members'?); options of a read",
        ),
        (
            MEMBERS | {"changes": "true"},
            "read",
            "option 'changes' belongs to a readStream, not to a read; leave it out",
        ),
        (MEMBERS | {"deletecolumn": "x"}, "write", "option 'deleteColumn' belongs to a writeStream, not to a write"),
        (MEMBERS | {"ifexists": "error"}, "writeStream", "option 'ifExists' belongs to a write, not to a writeStream"),
        (MEMBERS | {"snapshot": "true"}, "readStream", "option 'snapshot' belongs to a read, not to a readStream"),
        (MEMBERS | {"samplesize": "0"}, "read", "option 'sampleSize': '0' is not a whole number from 1 to"),
        (MEMBERS | {"numpartitions": "two"}, "read", "option 'numPartitions': 'two' is not a whole number from 0 to"),
        (MEMBERS | {"ttlms": "-1"}, "write", "option 'ttlMs': '-1' is not a whole number from 0 to"),
        (MEMBERS | {"keyinvalue": "yes"}, "write", "option 'keyInValue': 'yes' is neither true nor false"),
        (MEMBERS | {"path": "flights"}, "read", "has no paths, and 'flights' was given as one: name the map with"),
    ],
)
def test_a_wrong_option_is_named_with_its_remedy(given: dict[str, str], use: str, told: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_options(given, use)
    assert told in str(error.value)
    assert "\n" not in str(error.value)


def test_a_read_and_a_write_pass_over_what_concerns_the_other_only() -> None:
    """One view in SQL is read and written, and Spark hands over its options alike."""
    reads = {"numPartitions": "3", "sampleSize": "5", "pushDown": "true", "snapshot": "true", "dicts": "json"}
    plain = parse_options(MEMBERS | {"dicts": "json"}, "write")
    assert parse_options(MEMBERS | reads, "write") == plain
    writes = {"staged": "false", "ifExists": "error", "ttlMs": "5", "keyInValue": "false"}
    assert parse_options(MEMBERS | writes, "read") == parse_options(MEMBERS, "read")


@pytest.mark.parametrize("use", ["read", "write"])
def test_an_unknown_option_lists_all_that_there_are_with_defaults(use: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_options(MEMBERS | {"nonsense": "1"}, use)
    for option in OPTIONS:
        default = option.name if option.default is None else f"{option.name} (default {option.default})"
        assert (default in str(error.value)) == (use in option.applies_to)


def test_option_names_are_taken_in_any_case() -> None:
    options = parse_options({"MEMBERS": " h:1 , h:2", "Map": "m", "KEY": "a , b", "keyInVALUE": "False"}, "write")
    assert (options.key, options.key_in_value, options.map, options.cluster) == (("a", "b"), False, "m", "phalanx")
    assert options.secret_file is None
    assert parse_options(MEMBERS | {"secretfile": " /run/secret "}, "read").secret_file == "/run/secret"


# --- planning -------------------------------------------------------------------------------------------------------


def test_each_partition_is_read_once_and_a_task_has_one_owner() -> None:
    owners = ["a", "b", "c", "a", None, "b", "c", "a", "a"]
    for wanted in range(20):
        tasks = plan_scan(owners, wanted)
        assert Counter(p for task in tasks for p in task.partitions) == Counter(range(len(owners)))
        assert all(task.partitions for task in tasks)
        if wanted >= 4:
            assert all({owners[p] for p in task.partitions} == {task.owner} for task in tasks)
        if 0 < wanted < 4:
            assert len(tasks) == wanted


def test_by_default_there_are_two_tasks_for_each_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    assert len(plan_scan(["a", "b", "c"] * 90, 0)) == 6
    monkeypatch.setattr("os.cpu_count", lambda: 12)
    assert len(plan_scan(["a", "b", "c"] * 90, 0)) == 12


def test_parts_differ_by_one_at_most() -> None:
    for count in range(1, 30):
        for parts in range(1, 12):
            sizes = [len(part) for part in split_evenly(range(count), parts)]
            assert sum(sizes) == count
            assert max(sizes) - min(sizes) <= 1
            assert len(sizes) == min(parts, count)


# --- reading --------------------------------------------------------------------------------------------------------

FLIGHTS: dict[Any, Any] = {f"F{number}": {"price": number * 1.5, "seats": number} for number in range(40)}


def test_all_entries_are_read_each_once(grid: FakeGrid) -> None:
    grid.put("flights", FLIGHTS)
    found = read(fields(id="string", price="double", seats="integer"), key="id")
    assert found == sorted([{"id": key, **row} for key, row in FLIGHTS.items()], key=repr)


def test_every_client_is_closed(grid: FakeGrid) -> None:
    grid.put("flights", FLIGHTS)
    read(fields(id="string"), key="id")
    assert not grid.is_open
    assert {options.members for options in grid.connected} == {"127.0.0.1:5701"}


def test_a_schema_may_leave_out_columns_even_the_key(grid: FakeGrid) -> None:
    grid.put("flights", FLIGHTS)
    assert sorted(row["seats"] for row in read(fields(seats="long"), key="id")) == list(range(40))
    assert len(read(fields(id="string"), key="id")) == 40
    assert len(read(fields(id="string", no_such_field="date"), key="id")) == 40


def test_a_read_with_a_schema_of_a_map_without_entries_is_empty(grid: FakeGrid) -> None:
    grid.put("flights", {})
    assert read(fields(id="string"), key="id") == []


@pytest.mark.parametrize("more", [{}, {"snapshot": "true"}, {"pushDown": "true"}])
def test_a_read_of_a_map_that_nobody_knows_names_those_that_there_are(grid: FakeGrid, more: dict[str, Any]) -> None:
    grid.put("fligths", {"a": 1})
    with pytest.raises(
        UsageError, match=r"knows no map 'flights' \(maps with entries are: 'fligths'\); check the name"
    ):
        read(fields(id="string"), key="id", **more)
    assert read(fields(id="string"), key="id", ifMissing="empty") == []


def test_small_pages_are_read_together(grid: FakeGrid) -> None:
    grid.put("flights", FLIGHTS)
    reader = source(key="id", numPartitions="1").reader(fields(id="string", price="double"))
    (task,) = reader.partitions()
    batches: list[Any] = list(reader.read(task))
    assert [each.num_rows for each in batches] == [40]


def test_a_key_of_several_columns_is_a_list(grid: FakeGrid) -> None:
    grid.put("flights", {("LH", 400): {"to": "JFK"}, ("UA", 1): {"to": "SFO"}})
    wanted = [{"no": 1, "carrier": "UA", "to": "SFO"}, {"no": 400, "carrier": "LH", "to": "JFK"}]
    assert read(fields(no="integer", carrier="string", to="string"), key="carrier,no") == wanted
    assert read(fields(no="integer"), key="carrier,no") == [{"no": 1}, {"no": 400}]


def test_an_option_that_only_this_package_sets_is_not_offered() -> None:
    assert "streamBatch" not in describe(SINK)
    with pytest.raises(UsageError, match=r"no option 'streambatches'; options of a writeStream: members, map"):
        parse_options({"members": "a:1", "map": "m", "streambatches": "q/1"}, SINK)


def test_spark_says_in_one_line_that_its_pushdown_is_off_and_later_errors_keep_their_traces(
    grid: FakeGrid, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does so when it has a reader that takes filters, and before it asks it anything."""
    monkeypatch.setenv("SPARK_PYTHON_RUNTIME", "PYTHON_WORKER")
    monkeypatch.delenv(HIDDEN, raising=False)
    grid.put("flights", FLIGHTS)
    asked: list[Callable[[Any], object]] = [lambda reader: reader.partitions(), lambda reader: reader.pushFilters([])]
    for ask in asked:
        reader = source(key="id", pushDown="true").reader(fields(id="string"))
        assert os.environ.pop(HIDDEN) == "1"
        reader = source(key="id", pushDown="true").reader(fields(id="string"))
        ask(reader)
        assert HIDDEN not in os.environ
    source(key="id").reader(fields(id="string"))
    assert HIDDEN not in os.environ


@pytest.mark.parametrize(
    ("filters", "keys"),
    [
        ([EqualTo(("id",), "F7")], ["F7"]),
        ([IsNotNull(("id",)), EqualTo(("id",), "F7")], ["F7"]),
        ([In(("id",), ("F1", "F2", "nobody", None, "F1"))], ["F1", "F2"]),
        ([In(("id",), (None,))], []),
    ],
)
def test_a_filter_on_the_key_looks_it_up(grid: FakeGrid, filters: list[Filter], keys: list[str]) -> None:
    grid.put("flights", FLIGHTS)
    found = read(fields(id="string", seats="integer"), filters, key="id")
    assert [row["id"] for row in found] == keys
    assert {call[0] for call in grid.calls} <= {"get"}


def test_filters_on_each_of_several_key_columns_are_combined(grid: FakeGrid) -> None:
    grid.put("flights", {("LH", 1): {}, ("LH", 2): {}, ("UA", 1): {}})
    filters: list[Filter] = [EqualTo(("carrier",), "LH"), In(("no",), (1, 2, 3))]
    found = read(fields(carrier="string", no="short"), filters, key="carrier,no")
    assert [row["no"] for row in found] == [1, 2]
    assert [call[:3] for call in grid.calls] == [("get", "flights", 3)]


def test_only_the_filters_that_were_taken_are_kept_from_spark(grid: FakeGrid) -> None:
    filters = [GreaterThan(("price",), 1.0), EqualTo(("id",), "F1"), EqualTo(("id",), "F2"), EqualTo(("price",), 2.0)]
    left = list(source(key="id", pushDown="true").reader(fields(id="string", price="double")).pushFilters(filters))
    assert [any(one is other for other in left) for one in filters] == [True, False, True, True]


@pytest.mark.parametrize(
    ("schema", "key", "filters"),
    [
        (fields(id="string", n="integer"), "id", [EqualTo(("n",), 1)]),
        (fields(id="string", n="integer"), "id,n", [EqualTo(("n",), 1)]),
        (fields(id="double"), "id", [EqualTo(("id",), 0.0)]),  # -0.0 and 0.0, 1 and 1.0 are equal in SQL
        (fields(id=DecimalType(4, 2)), "id", [EqualTo(("id",), 1)]),  # 1.0 and 1.00 are two keys
        (fields(id="string"), "id", [EqualTo(("id",), "0b6c0b5e-3d2c-4c8e-9a51-7f0e0a2f4c11")]),  # may be a UUID
        (fields(id="string"), "id", [In(("id",), tuple(f"F{n}" for n in range(10_001)))]),
        (fields(id="integer"), "id", [EqualTo(("id",), "7")]),
        (fields(id="string"), "id", [EqualTo(("id", "part"), "F7")]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_filter_that_is_not_exactly_a_set_of_keys_is_no_look_up(
    grid: FakeGrid, schema: StructType, key: str, filters: list[Filter]
) -> None:
    grid.put("flights", {})
    reader = source(key=key, pushDown="true").reader(schema)
    reader.pushFilters(filters)
    list(reader.read(reader.partitions()[0]))
    assert [call[0] for call in grid.calls] == ["scan"]


@pytest.mark.parametrize(
    ("filters", "left"),
    [
        ([GreaterThan(("price",), 50.0)], 6),
        ([GreaterThan(("price",), 50.0), LessThanOrEqual(("seats",), 35)], 2),
        ([Not(In(("seats",), tuple(range(3, 40))))], 3),
        ([StringStartsWith(("id",), "F3")], 11),
        ([Not(StringStartsWith(("id",), "F3")), IsNotNull(("id",))], 29),
        ([IsNull(("price",))], 0),
        ([GreaterThanOrEqual(("id",), "F8")], 2),
    ],
)
def test_members_send_only_what_filters_on_key_and_fields_want(
    grid: FakeGrid, filters: list[Filter], left: int
) -> None:
    grid.put("flights", FLIGHTS)
    found = read(fields(id="string", price="double", seats="integer"), filters, key="id")
    assert (len(found), grid.sent) == (left, left)


@pytest.mark.parametrize(
    ("schema", "one"),
    [
        (fields(key="string", x="double"), In(("x",), (0.0, 1.0))),  # -0.0 and 0.0 are one, or two, by their number
        (fields(key="string", x="long"), In(("x",), tuple(range(1_001)))),
        (fields(key="string", x="long"), In(("x",), ())),
        (fields(key="string", x="long"), EqualTo(("x",), "1")),
        (fields(key="string", x="long"), EqualTo(("x",), 1.0)),
        (fields(key="string", x="long"), EqualTo(("x",), True)),
        (fields(key="string", x="long"), EqualTo(("y",), 1)),
        (fields(key="string", x="binary"), StringContains(("x",), "a")),
        (fields(key="string", x=StringType("UTF8_LCASE")), EqualTo(("x",), "a")),
        (fields(key="string", x=CharType(3)), EqualTo(("x",), "a  ")),
        (fields(key="string", x="timestamp"), EqualTo(("x",), dt.datetime(2024, 1, 1))),
        (fields(key="string", x="timestamp_ntz"), EqualTo(("x",), dt.datetime(2024, 1, 1, tzinfo=dt.UTC))),
        (fields(key="string", x="date"), EqualTo(("x",), dt.datetime(2024, 1, 1))),
        (fields(key="string", x=ArrayType(IntegerType())), EqualTo(("x",), [1])),
        (fields(key="string", x=MapType(StringType(), IntegerType())), EqualTo(("x", "a"), 1)),
        (fields(key="string", x="integer"), EqualTo(("x", "a"), 1)),
        (fields(key="string"), EqualTo(("key", "a"), 1)),
        (fields(key="string", value=MapType(IntegerType(), StringType())), IsNotNull(("value",))),
    ],
    ids=str,
)
def test_what_members_cannot_evaluate_exactly_stays_with_spark(grid: FakeGrid, schema: StructType, one: Filter) -> None:
    for each in (one, Not(one)):
        assert list(source(pushDown="true").reader(schema).pushFilters([each])) == [each]


def test_filters_are_taken_only_where_that_was_asked_for(grid: FakeGrid) -> None:
    """Spark refuses readers with a `pushFilters` of their own while its setting is off."""
    assert type(source().reader(fields(key="string"))).pushFilters is DataSourceReader.pushFilters
    assert type(source(pushDown="true").reader(fields(key="string"))).pushFilters is not DataSourceReader.pushFilters


# --- writing --------------------------------------------------------------------------------------------------------


def test_rows_are_stored_as_dicts_under_their_keys(grid: FakeGrid) -> None:
    rows = [{"id": "a", "n": 1, "at": None}, {"id": "b", "n": 2, "at": None}]
    assert write(rows, fields(id="string", n="long", at="string"), key="id") == 2
    assert grid.content("flights") == {"a": rows[0], "b": rows[1]}
    write(rows, fields(id="string", n="long", at="string"), key="id", ttlMs="5000", staged="false", map="brief")
    assert grid.content("brief") == {"a": rows[0], "b": rows[1]}
    assert grid.calls == [("put", "brief", 2, 5000)]
    write(rows, fields(id="string", n="long", at="string"), key="n,id", map="other", keyInValue="false")
    assert grid.content("other") == {(1, "a"): {"at": None}, (2, "b"): {"at": None}}


def test_what_was_written_is_read_back(grid: FakeGrid) -> None:
    rows = [{"id": number, "tags": ["x"] * number, "name": f"n{number}"} for number in range(5)]
    write(rows, fields(id="long", tags=ArrayType(StringType()), name="string"), key="id")
    inferred = source(key="id").schema()
    assert inferred.simpleString() == "struct<id:bigint,tags:array<string>,name:string>"
    assert read(inferred, key="id") == sorted(rows, key=repr)


def test_null_keys_are_refused_and_nothing_of_the_batch_is_written(grid: FakeGrid) -> None:
    with pytest.raises(
        UsageError, match=r"key column 'id' is null in 1 of 2 rows of a batch; nothing of that batch was"
    ):
        write([{"id": "a"}, {"id": None}], fields(id="string"), key="id")
    assert grid.calls == []


def test_a_broken_value_leaves_nothing_of_its_batch(grid: FakeGrid) -> None:
    far = from_numpy(pa.array([3_000_000], pa.int32()).to_numpy(), pa.date32())
    batch = pa.RecordBatch.from_arrays([pa.array(["a"]), far], names=["id", "day"])
    writer = source(key="id").writer(fields(id="string", day="date"), overwrite=False)
    with pytest.raises(
        UsageError, match=r"column 'day' holds a date outside .*nothing of this batch of 1 rows was written"
    ):
        writer.write(iter([batch]))
    assert grid.calls == []


@pytest.mark.parametrize(
    ("schema", "options", "told"),
    [
        (
            fields(id="string"),
            {},
            "option 'key' names the column 'key', which the DataFrame does not have (columns: id)",
        ),
        (fields(id="string"), {"key": "ID"}, "did you mean 'id'?"),
        (fields(id=ArrayType(IntegerType())), {"key": "id"}, "key column 'id' has type array<int>; a key is a scalar"),
        (
            fields(key="string", x=DayTimeIntervalType(0, 0)),
            {},
            "column 'x' has type interval day, which the grid cannot store; cast it",
        ),
        (
            fields(key="string", x=VariantType()),
            {},
            "column 'x' has type variant, which the grid cannot store; turn it into",
        ),
        (
            fields(key="string").add("s", fields(x=YearMonthIntervalType(0, 0))),
            {},
            "column 's.x' has type interval year",
        ),
        (fields(key="string", x="integer").add("x", "string"), {}, "column 'x' appears twice in the schema"),
        (fields(key="string").add("x\0y", "integer"), {}, "has a NUL character in its name"),
    ],
)
def test_a_write_that_cannot_be_is_refused_before_it_begins(
    grid: FakeGrid, schema: StructType, options: dict[str, str], told: str
) -> None:
    with pytest.raises(UsageError) as error:
        source(**({"key": "key"} | options)).writer(schema, overwrite=False)
    assert told in str(error.value)
    assert grid.connected == []


KEYED = fields(id="string", n="long")


def batch(*rows: tuple[str | None, int]) -> Any:
    schema = pa.schema([("id", pa.string()), ("n", pa.int64())])
    return pa.RecordBatch.from_pylist([{"id": name, "n": number} for name, number in rows], schema)


def test_nothing_is_seen_of_a_job_before_all_of_it(grid: FakeGrid, stages: Stages) -> None:
    grid.put("flights", {"a": {"id": "a", "n": 0}})
    writer = source(key="id").writer(KEYED, overwrite=False)
    messages = [pickle.loads(pickle.dumps(writer)).write(iter([batch((name, 1))])) for name in "abc"]
    assert grid.content("flights") == {"a": {"id": "a", "n": 0}}
    writer.commit(messages)
    assert grid.content("flights") == {name: {"id": name, "n": 1} for name in "abc"}
    assert stages.attempts == {}


def test_a_task_that_spark_repeats_or_runs_twice_counts_once(grid: FakeGrid, stages: Stages) -> None:
    writer = source(key="id").writer(KEYED, overwrite=False)
    first, second = (writer.write(iter([batch(("a", number))])) for number in (1, 2))
    with pytest.raises(UsageError):
        writer.write(iter([batch(("zombie", 3), (None, 3))]))
    writer.commit([second])
    assert isinstance(first, Written)
    assert isinstance(second, Written)
    assert first.staged is not None
    assert second.staged is not None
    assert first.staged.attempt != second.staged.attempt
    assert grid.content("flights") == {"a": {"id": "a", "n": 2}}


def test_of_one_key_in_several_tasks_the_last_counts(grid: FakeGrid) -> None:
    writer = source(key="id").writer(KEYED, overwrite=False)
    first, second = (writer.write(iter([batch(("a", number))])) for number in (1, 2))
    writer.commit([second, first])
    assert grid.content("flights") == {"a": {"id": "a", "n": 1}}


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_job_that_fails_leaves_everything_as_it_was(grid: FakeGrid, stages: Stages, overwrite: bool) -> None:
    grid.put("flights", {"a": {"id": "a", "n": 0}})
    writer = source(key="id").writer(KEYED, overwrite=overwrite)
    message = writer.write(iter([batch(("a", 1), ("b", 1))]))
    writer.abort([message, None])
    assert grid.content("flights") == {"a": {"id": "a", "n": 0}}
    assert stages.attempts == {}


def test_overwrite_replaces_all_that_was_there(grid: FakeGrid) -> None:
    grid.put("flights", {"a": {"n": 0}, "old": {"n": 0}})
    write([{"id": "a", "n": 1}], KEYED, overwrite=True, key="id", keyInValue="false")
    assert grid.content("flights") == {"a": {"n": 1}}
    writer = source(key="id").writer(KEYED, overwrite=True)
    writer.commit([writer.write(iter([]))])
    assert grid.content("flights") == {}


def test_overwrite_and_a_write_that_is_seen_as_it_goes_on_exclude_each_other(grid: FakeGrid) -> None:
    with pytest.raises(UsageError, match=r"mode 'overwrite' .* is all or nothing, and option 'staged' says false"):
        source(staged="false").writer(fields(key="string"), overwrite=True)
    with pytest.raises(UsageError, match=r"mode 'overwrite' replaces .* and option 'ifExists' says 'ignore'"):
        source(ifExists="ignore").writer(fields(key="string"), overwrite=True)


@pytest.mark.parametrize("staged", ["true", "false"])
def test_a_map_with_entries_is_an_error_or_ignored_where_that_was_asked_for(grid: FakeGrid, staged: str) -> None:
    assert write([{"id": "a", "n": 1}], KEYED, key="id", ifExists="error", staged=staged) == 1
    with pytest.raises(
        UsageError, match=r"map 'flights' of the cluster 'phalanx' has entries already: write with mode"
    ):
        write([{"id": "b", "n": 1}], KEYED, key="id", ifExists="error", staged=staged)
    assert write([{"id": "b", "n": 1}], KEYED, key="id", ifExists="ignore", staged=staged) == 0
    assert write([{"id": "c", "n": 1}], KEYED, key="id", ifExists="ignore", staged=staged, map="new") == 1
    assert (sorted(grid.content("flights")), sorted(grid.content("new"))) == (["a"], ["c"])


@pytest.mark.parametrize("if_exists", ["error", "ignore"])
def test_a_map_that_got_entries_while_the_job_ran_counts_too(grid: FakeGrid, stages: Stages, if_exists: str) -> None:
    writer = source(key="id", ifExists=if_exists).writer(KEYED, overwrite=False)
    message = writer.write(iter([batch(("b", 1))]))
    grid.put("flights", {"a": {"n": 0}})
    with pytest.raises(UsageError, match="has entries already") if if_exists == "error" else nullcontext():
        writer.commit([message])
    assert sorted(grid.content("flights")) == ["a"]
    assert stages.attempts == {}


def test_a_look_up_in_a_map_with_a_schema_reads_nothing_but_the_key(grid: FakeGrid) -> None:
    """No sample of the entries, and no scan: it costs the same whatever else the map holds."""
    write([{"id": number, "n": number} for number in range(50)], fields(id="long", n="integer"), key="id")
    grid.calls.clear()
    schema = source(pushDown="true").schema()
    assert read(schema, [EqualTo(("id",), 7)]) == [{"id": 7, "n": 7}]
    assert grid.calls == [("get", "flights", 1)]


def test_rows_are_written_without_a_schema_that_is_too_large_and_that_is_said(
    grid: FakeGrid, capsys: pytest.CaptureFixture[str]
) -> None:
    wide = fields(id="string", **{f"a column with the number {n}": "long" for n in range(700)})
    row = dict.fromkeys(wide.names, 1) | {"id": "a"}
    for overwrite in (False, True):
        assert write([row], wide, overwrite, key="id") == 1
        assert grid.schema_of("flights") == ""
        said = "phalanx: the map 'flights' is written without its schema: the schema of a map has at most 65,536 characters"
        assert capsys.readouterr().err.startswith(said)
    write([{"id": "a"}], fields(id="string"), overwrite=True, key="id")
    with pytest.raises(UsageError, match="has at most 65,536 characters"):
        write([row], wide, key="id")
    assert grid.content("flights") == {"a": {"id": "a"}}, "nobody could read both by the schema that the map has"


def test_a_schema_that_changes_between_the_plan_and_the_commit_is_widened_again(grid: FakeGrid) -> None:
    """Two writers into a map that was empty for both: who comes second adds its columns, or is refused."""
    first, second, third = (
        source(key="id").writer(fields(id="string", **more), overwrite=False)
        for more in ({"n": "integer"}, {"m": "integer"}, {"n": "string"})
    )
    for writer, row in ((first, {"id": "a", "n": 1}), (second, {"id": "b", "m": 2})):
        writer.commit([writer.write(iter([pa.RecordBatch.from_pylist([row])]))])
    assert grid.schema_of("flights") == "id string, n int, m int"
    message = third.write(iter([pa.RecordBatch.from_pylist([{"id": "c", "n": "x"}])]))
    with pytest.raises(UsageError, match="column 'n' is int by the map's schema, and string in this write"):
        third.commit([message])
    assert set(grid.content("flights")) == {"a", "b"}


def test_a_write_looks_for_the_cluster_before_it_begins(grid: FakeGrid) -> None:
    source(cluster="blue", key="key").writer(fields(key="string"), overwrite=False)
    assert [options.cluster for options in grid.connected] == ["blue"]


def test_small_batches_are_written_together() -> None:
    small = pa.RecordBatch.from_arrays([pa.array(["x" * 100] * 10)], names=["key"])
    assert [batch.num_rows for batch in join_batches(iter([small] * 7), 3 * small.nbytes)] == [30, 30, 10]
    assert [batch.num_rows for batch in join_batches(iter([small] * 2), 1)] == [10, 10]
    assert list(join_batches(iter([]), 1)) == []


def test_a_large_batch_is_cut_and_an_empty_one_left_out() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array(["x" * 1000] * 100)], names=["key"])
    pieces = list(split_batch(batch, 10_000))
    assert sum(piece.num_rows for piece in pieces) == 100
    assert max(piece.nbytes for piece in pieces) <= 10_100
    assert [piece.num_rows for piece in split_batch(batch, 10)] == [1] * 100
    assert list(split_batch(batch.slice(0, 0), 10)) == []


def test_an_error_that_explains_itself_is_found_in_what_java_makes_of_it() -> None:
    text = "An error occurred while calling o1.save.\n: SparkException: Writing job failed.\n\tat a.b.c\nCaused by: x: "
    told = find_error(
        f"{text}phalanx.common.errors.UnavailableError: no owner: in time; nothing was changed\n\tat d.e.f"
    )
    assert (type(told), str(told)) == (UnavailableError, "no owner: in time; nothing was changed")
    assert find_error(text) is None
    assert find_error("phalanx.common.errors.InvariantViolation: ours") is None
    assert find_error("phalanx.common.errors.Nonsense: x") is None


# --- a cluster that is another one by now ---------------------------------------------------------------------------


@pytest.mark.parametrize("filters", [None, [EqualTo(("id",), "a")]], ids=["scan", "look-up"])
def test_a_read_that_finds_another_cluster_than_it_was_planned_for_is_refused(
    grid: FakeGrid, filters: list[Filter] | None
) -> None:
    grid.put("flights", {"a": {"id": "a"}})
    reader = source(key="id", pushDown="true").reader(fields(id="string"))
    if filters is not None:
        reader.pushFilters(filters)
    task = reader.partitions()[0]
    for founders in [("b", "a"), ("a",), ()]:
        grid.founders = founders
        list(reader.read(task))
    grid.founders = ("b",)
    with pytest.raises(TwoClusters, match="began with the cluster 'phalanx' that a founded"):
        list(reader.read(task))


@pytest.mark.parametrize("staged", ["true", "false"])
def test_a_write_that_finds_another_cluster_than_it_was_planned_for_changes_nothing_there(
    grid: FakeGrid, staged: str
) -> None:
    rows = [{"id": "a", "n": 1}]
    writer = source(key="id", staged=staged).writer(fields(id="string", n="long"), overwrite=False)
    grid.founders = ("b",)
    with pytest.raises(TwoClusters):
        writer.write(iter([pa.RecordBatch.from_pylist(rows)]))
    assert not any(call[0] == "put" for call in grid.calls)
    grid.founders = ("a",)
    message = writer.write(iter([pa.RecordBatch.from_pylist(rows)]))
    grid.founders = ("b",)
    if staged == "true":
        with pytest.raises(TwoClusters):
            writer.commit([message])


def test_a_setting_for_json_refuses_what_members_cannot_do_with_it(grid: FakeGrid) -> None:
    grid.put("flights", {"a": Json('{"n":1}')})
    grid.settings = grid.settings.with_change("fl*", MapChange(dicts="json"))
    assert read(fields(key="string", n="long")) == [{"key": "a", "n": 1}]
    with pytest.raises(
        UsageError, match="members do not look into JSON, which the setting dicts of the map 'flights' asks for"
    ):
        read(fields(key="string", n="long"), pushDown="true")
    with pytest.raises(UsageError, match="dicts='rows' contradicts the map's setting, which is 'json'"):
        read(fields(key="string", n="long"), dicts="rows")
