"""Compact objects of a real Hazelcast client, read by native programs of every kind, none of which knows a schema at first."""

import asyncio
import datetime as dt
import json
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest
import typer.testing
from hazelcast.client import HazelcastClient

import phalanx
from endpoints.hazelcast.compact_objects import CompactObject, ObjectSerializer
from phalanx.cli.main import app
from phalanx.codec import compact
from phalanx.codec.compact import CompactRecord
from phalanx.codec.compact_schemas import SCHEMAS
from phalanx.codec.values import to_key_data
from phalanx.common.errors import CorruptDataError, UnavailableError, UnknownSchema, UsageError
from phalanx.common.map_config import MapConfig
from phalanx.maps.map_plans import MapPlans
from phalanx.maps.own_maps import OwnName
from phalanx.maps.where import conditions_of
from phalanx.runtime.local.local_map import LocalMap
from phalanx.runtime.member_thread import MemberThread
from support.http_asking import ask

NAME = "compact"


class Book(CompactObject):
    """One with another object inside."""


class Author(CompactObject):
    """That one."""


ILIAD = Book(
    ("title", "string", "Iliad"),
    ("price", "nullable_int64", 12),
    ("authors", "array_of_compact", [Author(("name", "string", "Homer"))]),
    ("printed", "date", dt.date(1488, 12, 9)),
    ("weight", "decimal", Decimal("1.50")),
)
ROW = {
    "authors": [{"name": "Homer"}],
    "price": 12,
    "printed": dt.date(1488, 12, 9),
    "title": "Iliad",
    "weight": Decimal("1.50"),
}
MEMBER: dict[str, Any] = {"cluster": NAME, "partition_count": 31}


@pytest.fixture(scope="module")
def member() -> Iterator[MemberThread]:
    config = phalanx.Config(
        port=0, http_port=0, serve=("hazelcast",), maps={"books": MapConfig(journal_capacity=1000)}, **MEMBER
    )
    with phalanx.start_member_in_thread(config) as made:
        yield made


@pytest.fixture(scope="module")
def theirs(member: MemberThread) -> Iterator[Any]:
    """The map of books, as Hazelcast's client has it."""
    client = HazelcastClient(
        cluster_name=NAME,
        cluster_members=[member.address],
        compact_serializers=[ObjectSerializer("book", Book), ObjectSerializer("author", Author)],
    )
    try:
        yield client.get_map("books").blocking()
    finally:
        client.shutdown()


@pytest.fixture(scope="module")
def client(member: MemberThread) -> Iterator[phalanx.Client]:
    with phalanx.Client(member.address, cluster=NAME) as made:
        yield made


@pytest.fixture
def forget(theirs: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Stores the book `a` anew, and no other; and makes this process, which is all native programs, forget the schemas."""

    def store() -> None:
        theirs.clear()
        theirs.put("a", ILIAD)
        monkeypatch.setattr(compact, "_KNOWN", compact._Registry(1000))

    store()
    return store


@pytest.fixture
def lacking(forget: Callable[[], None], client: phalanx.Client) -> Iterator[int]:
    """The id of the book's schema, which the cluster has lost."""
    [data] = client.get_data("books", [to_key_data("a")])
    assert data is not None
    schema_id, schemas = int.from_bytes(data[4:12], "big", signed=True), client.map(OwnName(SCHEMAS))
    schema = schemas.pop(schema_id)
    yield schema_id
    schemas[schema_id] = schema


BLOCKING: dict[str, Callable[[Any], Any]] = {
    "get": lambda m: m.get("a"),
    "[]": lambda m: m["a"],
    "pop": lambda m: m.pop("a"),
    "popitem": lambda m: m.popitem()[1],
    "setdefault": lambda m: m.setdefault("a", 5),
    "put_if_absent": lambda m: m.put_if_absent("a", 5),
    "remove": lambda m: m.remove("a"),
    "get_and_put": lambda m: m.get_and_put("a", 5),
    "get_and_replace": lambda m: m.get_and_replace("a", 5),
    "update": lambda m: m.update("a", "get_and_put", 5),
    "get_all": lambda m: m.get_all(["a", "b"])["a"],
    "items": lambda m: dict(m.items())["a"],
    "values": lambda m: next(iter(m.values())),
    "decode": lambda m: m.decode(m.get_data([to_key_data("a")])[0]),
}


@pytest.mark.parametrize("call", BLOCKING.values(), ids=BLOCKING)
def test_blocking_programs_read_them(
    call: Callable[[Any], Any], client: phalanx.Client, member: MemberThread, forget: Callable[[], None]
) -> None:
    local = member.map("books")
    assert isinstance(local, LocalMap)
    for entries in (client.map("books"), local):
        forget()
        found = call(entries)
        assert (found, type(found), found.type_name) == (ROW, CompactRecord, "book")


@dataclass
class Title:
    title: str
    price: int | None = None


def test_a_typed_map_makes_objects_of_them(client: phalanx.Client, forget: Callable[[], None]) -> None:
    assert client.map("books", key=str, value=Title)["a"] == Title("Iliad", 12)
    forget()
    assert client.map("books", key=str, value=Title).get_all(["a"]) == {"a": Title("Iliad", 12)}
    forget()
    assert client.map("books", key=str, value=Title).pop("a") == Title("Iliad", 12)


async def _fenced(m: Any) -> Any:
    async with m.lock("a") as lock:
        return await m.remove("a", fence=lock.token)


async def _all_of(pages: Any) -> list[Any]:
    return [each async for each in pages]


async def _decoded(m: Any) -> Any:
    return await m.decode((await m.get_data([to_key_data("a")]))[0])


async def _changed(m: Any) -> Any:
    begin = {place: bounds.begin_position for place, bounds in (await m.journal().bounds()).items()}
    changes = m.changes(begin)
    try:
        return [change async for change in _until_the_last(changes)][-1].value
    finally:
        await changes.aclose()


async def _until_the_last(changes: Any) -> Any:
    """The changes of the book up to that by which it is there now."""
    async for change in changes:
        if change.key == "a":
            yield change
            if change.value is not None:
                return


ASYNC: dict[str, Callable[[Any], Awaitable[Any]]] = {
    "get": lambda m: m.get("a"),
    "put_if_absent": lambda m: m.put_if_absent("a", 5),
    "remove": lambda m: m.remove("a"),
    "remove, fenced": _fenced,
    "get_and_put": lambda m: m.get_and_put("a", 5),
    "get_and_replace": lambda m: m.get_and_replace("a", 5),
    "update": lambda m: m.update("a", "get_and_put", 5),
    "decode": _decoded,
    "changes": _changed,
}


async def _asyncio_calls(entries: Any, forget: Callable[[], None]) -> None:
    """Each call of an asyncio map."""
    for name, call in ASYNC.items():
        await asyncio.to_thread(forget)
        found = await call(entries)
        assert (found, type(found)) == (ROW, CompactRecord), name
    await asyncio.to_thread(forget)
    assert await entries.get_all(["a", "b"]) == {"a": ROW}
    await asyncio.to_thread(forget)
    assert await _all_of(entries.items()) == [("a", ROW)]
    await asyncio.to_thread(forget)
    assert await _all_of(entries.values()) == [ROW]
    for condition, keys in (
        ("price > 11 and title = 'Iliad'", [to_key_data("a")]),
        ("price > 12", []),
        ("other = 1", []),
    ):
        await asyncio.to_thread(forget)
        found = [key async for page, _ in entries.find_data(condition, 1000) for key in page]
        assert found == keys, condition


def test_asyncio_programs_read_them(member: MemberThread, forget: Callable[[], None]) -> None:
    async def run() -> None:
        async with phalanx.connect(member.address, cluster=NAME) as grid:
            await _asyncio_calls(grid.map("books"), forget)

    asyncio.run(run())


def test_a_member_in_the_program_reads_its_own(member: MemberThread, forget: Callable[[], None]) -> None:
    member._calls.run(_asyncio_calls(member._member.map("books"), forget), 30)


def test_a_member_in_the_program_reads_those_of_others(member: MemberThread, forget: Callable[[], None]) -> None:
    async def run() -> None:
        async with await phalanx.start_member(
            phalanx.Config(port=0, seeds=(member.address,), lite=True, **MEMBER)
        ) as lite:
            await _asyncio_calls(lite.map("books"), forget)

    asyncio.run(run())


def command(member: MemberThread, *arguments: str) -> list[str]:
    """What `phalanx map` prints."""
    given = ["map", *arguments, "--at", member.address, "--cluster", NAME]
    result = typer.testing.CliRunner(env={"COLUMNS": "200"}).invoke(app, given)
    assert result.exit_code == 0, result.stderr
    return result.stdout.splitlines()


def test_the_command_line_and_the_console_show_them(member: MemberThread, forget: Callable[[], None]) -> None:
    def told(*arguments: str) -> Any:
        forget()
        return json.loads(command(member, *arguments, "--json")[-1])

    row = {"authors": [{"name": "Homer"}], "price": 12, "printed": "1488-12-09", "title": "Iliad", "weight": "1.50"}
    assert told("get", "books", "a")["value"] == row
    assert told("scan", "books")["value"] == row
    assert told("remove", "books", "a")["value"] == row
    assert told("events", "books")["value"] == row
    for query in ("key=a", "where=price+%3D+12", "where=true"):
        forget()
        [entry] = ask(member.http_port, f"/console/entries?map=books&{query}").json["entries"]
        assert json.loads(entry["value"]) == row, query
    assert ask(member.http_port, "/console/entries?map=books&where=price+%3D+13").json["entries"] == []


def test_conditions_of_a_packed_scan_are_judged_by_who_reads(
    client: phalanx.Client, forget: Callable[[], None]
) -> None:
    books = client.map("books")
    books["b"] = {"price": 12}
    for condition, count in (("price = 12", 2), ("price = 12 and title = 'Iliad'", 1), ("price > 12", 0)):
        forget()
        books["b"] = {"price": 12}
        pages = books.scan_packed(conditions=conditions_of(condition))
        assert sum(len(page.key_sizes) // 4 for page in pages) == count, condition


def test_members_change_none(client: phalanx.Client, forget: Callable[[], None]) -> None:
    books = client.map("books")
    assert books["a"] == ROW  # this process, which is a member too, knows the schema now
    with pytest.raises(UsageError, match="read only as values"):
        books.update("a", "merge", {"price": 13})
    assert books.update_where("price = 12", "merge", {"price": 13}) == 0
    assert not books.compare_and_set("a", ROW, {"price": 13}), "a record is stored as a row"
    assert books["a"] == ROW


def test_a_schema_that_the_cluster_has_not(lacking: int, client: phalanx.Client, member: MemberThread) -> None:
    """The error names map, key and schema; what was called is done, and the bytes are as they were."""
    why = rf"map 'books': the schema {lacking} of a Compact object is not in the cluster .*; of the key 'a'"
    assert issubclass(UnknownSchema, CorruptDataError)
    for entries in (client.map("books"), member.map("books")):
        for call in (lambda m: m["a"], lambda m: m.get("a"), lambda m: m.get_all(["a"]), lambda m: list(m.items())):
            with pytest.raises(UnknownSchema, match=why) as raised:
                call(entries)
            assert raised.value.schema_id == lacking
    [shown] = command(member, "scan", "books")
    assert f"the schema {lacking} of a Compact object is not in the cluster" in shown

    async def run() -> None:
        async with phalanx.connect(member.address, cluster=NAME) as grid:
            books = grid.map("books")
            for call in (books.get("a"), books.get_all(["a"]), _all_of(books.items()), _all_of(books.values())):
                with pytest.raises(UnknownSchema, match=why):
                    await call
            with pytest.raises(UnknownSchema, match=why):
                await books.remove("a")
            assert await books.size() == 0

    asyncio.run(run())


def test_conditions_find_no_object_of_a_lost_schema_and_say_so_where_it_cannot_be_had_now(
    lacking: int, member: MemberThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def found() -> list[bytes]:
        async with phalanx.connect(member.address, cluster=NAME) as grid:
            return [key async for page, _ in grid.map("books").find_data("price = 12", 1000) for key in page]

    assert asyncio.run(found()) == []

    def unavailable(plans: MapPlans, keys: list[bytes]) -> Any:
        raise UnavailableError("the owner of the schema does not answer")
        yield

    monkeypatch.setattr(MapPlans, "get_data", unavailable)
    with pytest.raises(UnknownSchema, match=f"the schema {lacking} .* cannot be fetched now"):
        asyncio.run(found())
