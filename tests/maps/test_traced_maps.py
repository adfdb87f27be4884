"""Each call of a traced map is one span, by the conventions for clients of databases; without tracing there is none."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Iterator, MutableMapping
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode

import phalanx
from phalanx.client.blocking.sync_map import SyncMap
from phalanx.maps.async_map import AsyncMap
from phalanx.maps.mistakes import NoDict
from phalanx.maps.traced_maps import OPERATIONS, Tracing
from phalanx.runtime.local.embedded import EmbeddedMap
from phalanx.runtime.local.local_map import LocalMap
from phalanx.testing import LocalCluster
from phalanx.wire.messages import CountReply, SizeOf
from support.spans import exporter, take_names, take_spans

NO_CALLS = {"changes", "decode", "journal", "lock", "schema", "semaphore", "values", "keys", "items"}
"""What returns a view, a lock, a journal or a setting, and asks nobody. The asyncio maps' iterators of these names are calls."""

SYNC_CALLS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "[]": (lambda m: m["a"], "get"),
    "[] =": (lambda m: m.__setitem__("b", 2), "put"),
    "del": (lambda m: m.__delitem__("a"), "remove"),
    "in": (lambda m: "a" in m, "contains"),
    "len": (len, "size"),
    "iter": (lambda m: [*iter(m)], "keys"),
    "items": (lambda m: [*iter(m.items())], "items"),
    "values": (lambda m: [*iter(m.values())], "items"),
    "iter_items": (lambda m: [*m.iter_items()], "items"),
    "scan_data": (lambda m: [*m.scan_data()], "scan_data"),
    "scan_packed": (lambda m: [*m.scan_packed()], "scan_packed"),
    "setdefault": (lambda m: m.setdefault("a", 3), "setdefault"),
    "pop": (lambda m: m.pop("a"), "pop"),
    "popitem": (lambda m: m.popitem(), "popitem"),
    "put_packed": (lambda m: m.put_packed({}, 31), "put_packed"),
    "update like a dict": (lambda m: m.update({"a": 1}, b=2), "put_all"),
    "everywhere": (
        lambda m: m.everywhere(
            lambda p, of: SizeOf(m.client.next_id(), m.name, p, of), CountReply, "size", is_write=False
        ),
        "everywhere",
    ),
}
BOTH_CALLS: dict[str, Callable[[Any], Any]] = {
    "get": lambda m: m.get("a"),
    "put": lambda m: m.put("a", 1),
    "put_if_absent": lambda m: m.put_if_absent("a", 2),
    "replace": lambda m: m.replace("a", 2),
    "compare_and_set": lambda m: m.compare_and_set("a", 1, 2),
    "remove": lambda m: m.remove("a"),
    "contains": lambda m: m.contains("a"),
    "get_and_put": lambda m: m.get_and_put("a", 2),
    "get_and_replace": lambda m: m.get_and_replace("a", 2),
    "remove_if": lambda m: m.remove_if("a", 1),
    "increment": lambda m: m.increment("a"),
    "touch": lambda m: m.touch("a", 5),
    "persist": lambda m: m.persist("a"),
    "time_to_live": lambda m: m.time_to_live("a"),
    "update": lambda m: m.update("a", "max", 3),
    "update_all": lambda m: m.update_all(["a", "b"], "max", 3),
    "update_where": lambda m: m.update_where("true", "max", 3),
    "get_all": lambda m: m.get_all(["a", "b"]),
    "put_all": lambda m: m.put_all({"a": 1, "b": 2}),
    "get_data": lambda m: m.get_data([]),
    "put_data": lambda m: m.put_data([], []),
    "size": lambda m: m.size(),
    "clear": lambda m: m.clear(),
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    exporter()
    with LocalCluster(2) as made:
        yield made


@pytest.fixture(scope="module")
def client(cluster: LocalCluster) -> Iterator[phalanx.Client]:
    with phalanx.Client(cluster.addresses[0], cluster=cluster.name, tracing=True) as made:
        yield made


@pytest.fixture(scope="module")
def member() -> Iterator[phalanx.MemberThread]:
    exporter()
    with phalanx.start_member_in_thread(phalanx.Config(port=0, partition_count=31, tracing=True)) as made:
        yield made


@pytest.fixture(autouse=True)
def _nothing_is_left_of_others() -> None:
    take_spans()


@pytest.mark.parametrize("kind", [SyncMap, LocalMap, AsyncMap, EmbeddedMap])
def test_every_call_of_a_map_is_traced(kind: type[Any]) -> None:
    exporter()
    public = {name for each in kind.__mro__ for name in vars(each) if not name.startswith("_")}
    public = {name for name in public if callable(getattr(kind, name, None)) and name != "on_forked"}
    public |= {"__getitem__", "__setitem__", "__delitem__", "__contains__", "__iter__", "__len__"} & {
        name for each in kind.__mro__ for name in vars(each)
    }
    public = {name for name in public if getattr(kind, name) is not getattr(NoDict, name, None)}
    traced: Any = type(Tracing(lambda: None).traced(object.__new__(kind)))
    wrapped = {name for name in public if getattr(traced, name) is not getattr(kind, name)}
    views = set() if issubclass(kind, AsyncMap) else {"items", "keys", "values"}
    assert public - wrapped == views | {"decode", "lock", "schema", "semaphore"} | (
        {"changes", "journal"} if issubclass(kind, AsyncMap) else set()
    )
    assert public - wrapped <= NO_CALLS
    assert wrapped <= set(OPERATIONS)
    for name in wrapped:
        for same in (inspect.iscoroutinefunction, inspect.isasyncgenfunction, inspect.isgeneratorfunction):
            assert same(getattr(traced, name)) == same(getattr(kind, name)), name
        assert getattr(traced, name).__doc__ == getattr(kind, name).__doc__


@pytest.mark.parametrize("of", ["client", "member"])
@pytest.mark.parametrize("call", [*SYNC_CALLS, *BOTH_CALLS])
def test_a_blocking_call_is_one_span(
    client: phalanx.Client, member: phalanx.MemberThread, cluster: LocalCluster, of: str, call: str
) -> None:
    entries: Any = client.map("flights") if of == "client" else member.map("flights")
    address = cluster.addresses[0] if of == "client" else member.address
    entries.put("a", 1)
    take_spans()
    make, operation = SYNC_CALLS[call] if call in SYNC_CALLS else (BOTH_CALLS[call], call.partition(" ")[0])
    make(entries)
    [span] = take_spans()
    assert (span.name, span.kind, span.status.status_code) == (
        f"{operation} flights",
        SpanKind.CLIENT,
        StatusCode.UNSET,
    )
    attributes = dict(span.attributes or {})
    assert attributes.pop("db.operation.batch.size", None) == (
        2 if call in ("get_all", "put_all", "update_all") else None
    )
    host, _, port = address.rpartition(":")
    assert attributes == {
        "db.system.name": "phalanx",
        "db.operation.name": operation,
        "db.collection.name": "flights",
        "server.address": host,
        "server.port": int(port),
    }
    assert span.instrumentation_scope is not None
    assert (span.instrumentation_scope.name, span.instrumentation_scope.version) == ("phalanx", phalanx.__version__)


@pytest.mark.parametrize("of", ["client", "member"])
def test_an_asyncio_call_is_one_span(cluster: LocalCluster, of: str) -> None:
    async def use(grid: Any) -> None:
        entries = grid.map("cities")
        for call, make in BOTH_CALLS.items():
            await entries.put("a", 1)
            take_spans()
            await make(entries)
            assert take_names() == [f"{call.partition(' ')[0]} cities"], call
        for name in ("items", "keys", "values", "scan_data"):
            await entries.put("a", 1)
            take_spans()
            assert len([each async for each in getattr(entries, name)()]) == 1
            assert take_names() == [f"{name} cities"]
        assert [keys async for keys, _ in entries.find_data("true", 1_000) if keys]
        assert take_names() == ["find_data cities"]

    async def run() -> None:
        if of == "client":
            async with cluster.connect(tracing=True) as grid:
                await use(grid)
        else:
            async with await phalanx.start_member(phalanx.Config(port=0, partition_count=31, tracing=True)) as member:
                await use(member)

    asyncio.run(run())


def test_several_addresses_of_members_are_no_server(cluster: LocalCluster) -> None:
    with cluster.client(tracing=True) as client:
        client.map("flights").get("a")
    [span] = take_spans()
    assert span.attributes is not None
    assert not [name for name in span.attributes if name.startswith("server.")]


def test_the_size_of_a_batch_is_not_worth_a_call(client: phalanx.Client) -> None:
    flights, copies = client.map("flights"), client.map("copies")
    flights.clear()
    flights.put_all({"a": 1, "b": 2})
    take_spans()
    copies.put_all(flights)
    [span] = [span for span in take_spans() if span.name == "put_all copies"]
    assert "db.operation.batch.size" not in (span.attributes or {})
    copies.put_all(iter([("a", 1), ("b", 2)]))
    copies.put_all(entries={"a": 1})
    copies.get_all(keys=["a", "b", "c"])
    sizes = [(span.attributes or {}).get("db.operation.batch.size") for span in take_spans()]
    assert sizes == [None, None, 3]


# --- scans -------------------------------------------------------------------------------------------------------------


def test_a_scan_is_one_span_from_the_first_entry_to_its_end(client: phalanx.Client) -> None:
    entries = client.map("scanned")
    entries.put_all({number: number for number in range(100)})
    take_spans()
    scan = iter(entries)
    assert take_names() == []
    next(scan)
    assert take_names() == [], "it goes on"
    assert len([*scan]) == 99
    assert take_names() == ["keys scanned"]


def test_a_scan_that_is_closed_early_ends_its_span(client: phalanx.Client, cluster: LocalCluster) -> None:
    entries = client.map("scanned")
    entries.put_all({number: number for number in range(100)})
    take_spans()
    for _ in entries.items():
        break
    scan = entries.scan_packed()
    next(scan)
    scan.close()  # type: ignore[attr-defined]  # it is a generator
    ended = take_spans()
    assert [span.name for span in ended] == ["items scanned", "scan_packed scanned"]
    assert {span.status.status_code for span in ended} == {StatusCode.UNSET}

    async def run() -> None:
        async with cluster.connect(tracing=True) as grid:
            scan = grid.map("scanned").keys()
            await anext(scan)
            assert take_names() == []
            await scan.aclose()
            [span] = take_spans()
            assert (span.name, span.status.status_code) == ("keys scanned", StatusCode.UNSET)
            async for _ in grid.map("scanned").values():
                break
        # The loop closes what nobody iterates any more.

    asyncio.run(run())
    assert take_names() == ["values scanned"]


def test_who_closes_a_scan_closes_what_it_reads_at_once() -> None:
    exporter()
    closed = []

    class Entries:
        name = "fake"

        async def items(self) -> AsyncIterator[int]:
            try:
                yield 1
                yield 2
            finally:
                closed.append(self.name)

    async def run() -> None:
        scan: Any = Tracing(lambda: None).traced(Entries()).items()
        assert await anext(scan) == 1
        await scan.aclose()
        assert closed == ["fake"], "not when the loop gets to it"

    asyncio.run(run())
    assert take_names() == ["items fake"]


# --- errors ------------------------------------------------------------------------------------------------------------


def the_error(call: Callable[[], Any], kind: type[BaseException]) -> Any:
    """Return the span of a call that raises an error of this kind."""
    with pytest.raises(kind):
        call()
    [span] = take_spans()
    return span


def test_an_error_is_its_kind_and_no_text_that_may_quote_data(client: phalanx.Client) -> None:
    entries: Any = client.map("flights")
    entries.put("the key", "the value")
    entries.get_all(["the key"])
    for call, kind in [
        (lambda: entries.put("the key", object()), phalanx.SerializationError),
        (lambda: entries.update("the key", "no function", "the value"), phalanx.UsageError),
        (lambda: entries.put("the key", "the value", ttl="the value"), phalanx.UsageError),
    ]:
        take_spans()
        span = the_error(call, kind)
        assert span.status.status_code is StatusCode.ERROR
        assert span.attributes["error.type"] == kind.__name__
        assert (span.status.description, span.events) == (None, ())
        assert "the key" not in span.to_json()
        assert "the value" not in span.to_json()


def test_a_key_that_is_missing_is_no_error(client: phalanx.Client) -> None:
    entries = client.map("flights")
    entries.clear()
    take_spans()
    for call in (lambda: entries["a"], lambda: entries.pop("a"), lambda: entries.time_to_live("a"), entries.popitem):
        span = the_error(call, KeyError)
        assert span.status.status_code is StatusCode.UNSET
        assert "error.type" not in span.attributes


def test_members_that_do_not_answer_are_errors() -> None:
    exporter()
    with LocalCluster(1) as cluster, cluster.client(tracing=True, call_timeout_s=0.3) as client:
        flights = client.map("flights")
        flights["UA1"] = "EWR"
        cluster.hang(0)
        take_spans()
        span = the_error(lambda: flights.put("UA1", "JFK"), phalanx.IndeterminateWrite)
        assert (span.status.status_code, span.attributes["error.type"]) == (StatusCode.ERROR, "IndeterminateWrite")
        assert span.end_time - span.start_time >= 0.25e9
        span = the_error(lambda: flights.get("UA1"), phalanx.UnavailableError)
        assert (span.status.status_code, span.attributes["error.type"]) == (StatusCode.ERROR, "UnavailableError")
        cluster.resume(0)


def test_a_call_that_is_cancelled_is_an_error() -> None:
    exporter()

    async def run(cluster: LocalCluster) -> None:
        async with cluster.connect(tracing=True) as grid:
            flights = grid.map("flights")
            await flights.put("UA1", "EWR")
            take_spans()
            cluster.hang(0)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(flights.get("UA1"), 0.1)
            cluster.resume(0)
        [span] = take_spans()
        assert span.attributes is not None
        assert (span.status.status_code, span.attributes["error.type"]) == (StatusCode.ERROR, "CancelledError")

    with LocalCluster(1) as cluster:
        asyncio.run(run(cluster))


# --- parents -----------------------------------------------------------------------------------------------------------


def parents_of(spans: list[Any]) -> dict[str, str]:
    """Return the name of each map to the name of the span that the call's span is in; empty: in none."""
    names = {span.context.span_id: span.name for span in spans}
    return {
        span.attributes["db.collection.name"]: names[span.parent.span_id] if span.parent is not None else ""
        for span in spans
        if span.kind is SpanKind.CLIENT
    }


def test_the_parent_is_the_span_of_the_calling_thread(client: phalanx.Client) -> None:
    tracer, together = trace.get_tracer("test"), threading.Barrier(3)

    def work(name: str) -> None:
        with tracer.start_as_current_span("outer"), tracer.start_as_current_span(name):
            together.wait(20)
            client.map(name).put("a", 1)
            together.wait(20)
            assert trace.get_current_span().get_span_context().is_valid

    threads = [threading.Thread(target=work, args=(name,)) for name in ("one", "two", "three")]
    for thread in threads:
        thread.start()
    client.map("alone").get("a")
    for thread in threads:
        thread.join(30)
    assert parents_of(take_spans()) == {"one": "one", "two": "two", "three": "three", "alone": ""}


@pytest.mark.parametrize("of", ["client", "member"])
def test_the_parent_is_the_span_of_the_calling_task(cluster: LocalCluster, of: str) -> None:
    tracer = trace.get_tracer("test")

    async def work(grid: Any, name: str) -> None:
        with tracer.start_as_current_span(name):
            await asyncio.sleep(0)
            await grid.map(name).put_all(dict.fromkeys(range(50), name))
            assert len([each async for each in grid.map(name).items()]) == 50

    async def use(grid: Any) -> None:
        await asyncio.gather(*(work(grid, name) for name in ("first", "second", "third")))
        scan = grid.map("first").keys()
        with tracer.start_as_current_span("where it began"):
            await anext(scan)
        await anext(scan)
        assert not trace.get_current_span().get_span_context().is_valid, "a scan leaves the caller's context alone"
        await scan.aclose()

    async def run() -> None:
        if of == "client":
            async with cluster.connect(tracing=True) as grid:
                await use(grid)
        else:
            async with await phalanx.start_member(phalanx.Config(port=0, tracing=True)) as member:
                await use(member)

    asyncio.run(run())
    spans = take_spans()
    assert parents_of([span for span in spans if not span.name.startswith("keys")]) == {
        "first": "first",
        "second": "second",
        "third": "third",
    }
    [keys] = [span for span in spans if span.name == "keys first"]
    [outer] = [span for span in spans if span.name == "where it began"]
    assert keys.parent is not None
    assert keys.parent.span_id == outer.context.span_id


def test_what_the_grid_keeps_of_functions_is_traced(client: phalanx.Client) -> None:
    @client.cached(ttl=60, map="results", name="made")
    def square(number: int) -> int:
        return number * number

    assert [square(7), square(7)] == [49, 49]
    assert take_names() == ["get results", "get results", "put results", "get results"]


# --- it is the same map ------------------------------------------------------------------------------------------------


def test_a_traced_map_is_the_map(client: phalanx.Client, cluster: LocalCluster) -> None:
    entries = client.map("typed", key=str, value=int)
    assert isinstance(entries, SyncMap)
    assert isinstance(entries, MutableMapping)
    assert repr(entries) == "SyncMap('typed', key=str, value=int)"
    assert entries == client.map("typed")
    assert hash(entries) == hash(client.map("typed"))
    assert type(entries) is type(client.map("other"))
    entries["a"] = 1
    with pytest.raises(phalanx.UsageError):
        entries["b"] = "no int"  # type: ignore[assignment]
    with cluster.client() as other:
        assert type(other.map("typed")) is SyncMap
        assert dict(other.map("typed")) == {"a": 1}
    with entries.lock("a") as lock:
        entries.put("a", 2, fence=lock.token)
    assert entries["a"] == 2
