"""What a program writes on its first day with asyncio, and what objects show of themselves: in words, on one line, nothing else."""

import asyncio
import pydoc
import re
import rlcompleter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

import phalanx
from phalanx.client.blocking.sync_cached import SyncCached
from phalanx.client.blocking.sync_locks import SyncLock
from phalanx.common.public_names import internal_names
from phalanx.integrations.shared_grids import CachedMap, SharedGrid
from phalanx.maps.async_cached import AsyncCached
from phalanx.maps.async_locks import AsyncLock
from phalanx.maps.mistakes import OF_OTHER_CLIENTS
from phalanx.runtime.local.local_map import LocalMap
from support.roots import DOCS


@dataclass
class Flight:
    origin: str


@pytest.fixture(scope="module")
def member() -> Iterator[phalanx.MemberThread]:
    with phalanx.start_member_in_thread(phalanx.Config(port=0)) as member:
        yield member


@pytest.fixture
def client(member: phalanx.MemberThread) -> Iterator[phalanx.Client]:
    with phalanx.Client(member.address) as client:
        yield client


def in_loop(member: phalanx.MemberThread, use: Callable[[phalanx.AsyncClient], Awaitable[None]]) -> None:
    async def run() -> None:
        async with phalanx.connect(member.address) as client:
            await use(client)

    asyncio.run(asyncio.wait_for(run(), 30))


def test_a_client_that_was_not_awaited_says_so() -> None:
    connecting: Any = phalanx.connect("127.0.0.1:1")
    with pytest.raises(
        AttributeError, match=r"has no 'map', because it is not connected yet: write `async with phalanx"
    ):
        connecting.map("flights")
    assert repr(connecting) == "<phalanx.connect('127.0.0.1:1'): not connected yet>"
    with pytest.raises(TypeError, match="write `async with` instead of `with`"), connecting:
        pass


def mistakes_of(entries: Any) -> list[tuple[Callable[[], object], str]]:
    """What a program writes that knows dicts, and what it is told to write."""
    return [
        (lambda: entries["k"], "await map.get(key)"),
        (lambda: entries.__setitem__("k", 1), "await map.put(key, value)"),
        (lambda: entries.__delitem__("k"), "await map.remove(key)"),
        (lambda: "k" in entries, "await map.contains(key)"),
        (lambda: len(entries), "await map.size()"),
        (lambda: list(entries), "async for key in map.keys()"),
        (lambda: aiter(entries), "async for key in map.keys()"),
        (lambda: entries.pop("k"), "await map.remove(key)"),
    ]


def test_operators_of_a_dict_say_what_is_awaited_instead(member: phalanx.MemberThread) -> None:
    async def use(client: phalanx.AsyncClient) -> None:
        async with await phalanx.start_member(phalanx.Config(port=0)) as own:
            with pytest.raises(TypeError, match="write `async with` instead of `with`: Member"), own:  # type: ignore[attr-defined]
                pass
            for entries in (client.map("m"), own.map("m")):
                for mistake, instead in mistakes_of(entries):
                    with pytest.raises((TypeError, AttributeError)) as raised:
                        mistake()
                    assert type(entries).__name__ in str(raised.value)
                    assert f"write `{instead}" in str(raised.value)
                assert entries, "`given or default` is about the map, not about its entries"

    in_loop(member, use)


def test_with_and_async_with_are_told_apart(member: phalanx.MemberThread, client: phalanx.Client) -> None:
    async def use(connected: phalanx.AsyncClient) -> None:
        waits: list[Any] = [connected, connected.lock("gate"), connected.map("m").semaphore("k", 2)]
        for each in waits:
            with pytest.raises(TypeError, match="write `async with` instead of `with`: Async"), each:
                pass
        blocks: list[Any] = [client, member, client.lock("gate"), member.map("m").lock("k")]
        for each in blocks:
            with pytest.raises(TypeError, match=r"write `with` instead of `async with`.*phalanx\.connect"):
                async with each:
                    pass

    in_loop(member, use)


def test_cached_without_parentheses_says_what_is_missing(member: phalanx.MemberThread, client: phalanx.Client) -> None:
    def load() -> None: ...

    async def use(connected: phalanx.AsyncClient) -> None:
        grids: list[Any] = [client, member, connected]
        for grid in grids:
            with pytest.raises(phalanx.UsageError, match=r"load has no parentheses: write @cached\(ttl=60\)"):
                grid.cached(load)
            with pytest.raises(TypeError, match="ttl"):
                grid.cached()

    in_loop(member, use)


def test_cached_says_which_kind_of_function_it_takes(member: phalanx.MemberThread, client: phalanx.Client) -> None:
    async def load(number: int) -> int:
        return number

    grids: list[Any] = [client, member]
    for grid in grids:
        with pytest.raises(phalanx.UsageError, match=r"cached load: this is a coroutine function.*phalanx\.connect"):
            grid.cached(ttl=60, name="load")(load)

    async def use(connected: phalanx.AsyncClient) -> None:
        untyped: Any = connected
        with pytest.raises(
            phalanx.UsageError, match=r"cached double: it returned a value of type int.*write `async def`"
        ):
            await untyped.cached(ttl=60, name="double")(lambda number: 2 * number)(4)
        assert await connected.cached(ttl=60, name="same")(lambda number: load(number))(4) == 4
        for grid in (untyped, *grids):
            with pytest.raises(
                phalanx.UsageError, match=r"cached\(300\): give its arguments by name, as in @cached\(ttl=60\)"
            ):
                grid.cached(300)

    in_loop(member, use)


def test_names_of_other_clients_say_what_does_it_here(member: phalanx.MemberThread, client: phalanx.Client) -> None:
    grids: list[Any] = [client, member]
    for grid in grids:
        kind = type(grid).__name__
        with pytest.raises(
            AttributeError, match=rf"{kind} has no 'get', because .*: write `grid\.map\(name\)\.get\(key\)`"
        ):
            grid.get("k")
        with pytest.raises(AttributeError, match=rf"{kind} has no 'get_map': write `grid\.map\(name\)`"):
            grid.get_map("m")
        end = "stop" if isinstance(grid, phalanx.MemberThread) else "close"
        for other in {"close", "stop", "shutdown"} - {end}:
            with pytest.raises(AttributeError, match=rf"{kind} has no '{other}': write `grid\.{end}\(\)`"):
                getattr(grid, other)
        with pytest.raises(TypeError, match=rf"{kind} has maps, and no entries: write `grid\.map\(name\)`"):
            grid["m"]
        with pytest.raises(AttributeError, match=r"has no 'delete': write `map\.remove"):
            grid.map("m").delete("k")
        for each in (grid, grid.map("m")):
            with pytest.raises(AttributeError, match="object has no attribute 'nothing_of_the_kind'"):
                each.nothing_of_the_kind  # noqa: B018

    async def use(connected: phalanx.AsyncClient) -> None:
        untyped: Any = connected
        with pytest.raises(AttributeError, match=r"write `await grid\.map\(name\)\.put\(key, value\)`"):
            untyped.set("k", 1)
        with pytest.raises(AttributeError, match=r"AsyncMap has no 'incr': write `await map\.increment\(key\)`"):
            untyped.map("m").incr("k")

    in_loop(member, use)


def test_what_is_said_instead_of_names_of_other_clients_exists_and_stands_on_their_page() -> None:
    page = (DOCS / "coming-from.md").read_text()
    for name, instead in OF_OTHER_CLIENTS.items():
        method = instead.split("(")[0]
        assert {method} <= {*dir(phalanx.SyncMap)} & {*dir(phalanx.AsyncMap)}
        assert f".{name}(" in page, name
        assert f"map.{method}(" in page, method


def test_what_is_no_configuration_is_named() -> None:
    start: Any = phalanx.start_member_in_thread
    with pytest.raises(phalanx.UsageError, match=r"5701 is not a configuration: give phalanx\.Config\(port=5701\)"):
        start(5701)
    untyped: Any = phalanx.start_member
    with pytest.raises(phalanx.UsageError, match=r"'127\.0\.0\.1:5701' is not a configuration"):
        asyncio.run(untyped("127.0.0.1:5701"))


def test_what_is_too_large_says_once_what_to_do(member: phalanx.MemberThread) -> None:
    told = r"\(max_frame_bytes of members and clients\); store a smaller entry"
    with (
        phalanx.Client(member.address, max_frame_bytes=1 << 20) as client,
        pytest.raises(phalanx.EntryTooLarge, match=told) as raised,
    ):
        client.map("m").put("k", bytes(2 << 20))
    assert str(raised.value).count("smaller") == 1


def test_a_closed_client_is_no_unavailable_cluster(member: phalanx.MemberThread) -> None:
    client = phalanx.Client(member.address)
    entries, lock = client.map("m"), client.lock("gate")
    client.close()
    for call in (lambda: entries.get(1), lambda: entries.put(1, 1), entries.size, lock.acquire, client.map_names):
        with pytest.raises(phalanx.ClientClosed, match="use another client"):
            call()
    assert not issubclass(phalanx.ClientClosed, phalanx.UnavailableError | phalanx.UsageError)
    assert repr(client) == f"Client({member.address!r}, cluster='phalanx', closed)"

    async def use() -> None:
        connected = await phalanx.connect(member.address)
        await connected.close()
        there = connected.map("m")
        for call in (there.get(1), there.put(1, 1), there.size(), connected.map_names(), connected.lock("x").acquire()):
            with pytest.raises(phalanx.ClientClosed, match="use another"):
                await call
        assert repr(connected) == f"AsyncClient({member.address!r}, cluster='phalanx', closed)"

    asyncio.run(asyncio.wait_for(use(), 30))


def test_objects_show_what_they_are_on_one_line_and_no_secret(tmp_path: Any) -> None:
    word = "a secret of some length, 0123456789"
    path = tmp_path / "secret"
    path.write_text(word)
    path.chmod(0o600)
    with phalanx.start_member_in_thread(phalanx.Config(port=0, secret=word)) as member:
        address = f"phalanx://{member.address}/phalanx"
        with phalanx.Client(address, secret=word) as client, phalanx.Client(address, secret_file=path) as other:
            cached = client.cached(ttl=60, stale=5, name="load")(len)
            shown = {
                repr(client): f"Client({member.address!r}, cluster='phalanx')",
                repr(other): f"Client({member.address!r}, cluster='phalanx')",
                repr(member): f"MemberThread({member.address})",
                repr(client.map("m")): "SyncMap('m')",
                repr(client.map("m", key=str, value=Flight)): "SyncMap('m', key=str, value=Flight)",
                repr(member.map("m", value=list[int])): "LocalMap('m', key=Any, value=list[int])",
                repr(cached): "SyncCached('load', ttl=60, stale=5, map='phalanx.cached')",
            }
            assert list(shown) == list(shown.values())
            assert not any(word in each or "\n" in each for each in shown)

            async def use() -> None:
                async with phalanx.connect(address, secret=word) as connected:
                    assert repr(connected) == f"AsyncClient({member.address!r}, cluster='phalanx')"
                    assert repr(connected.map("m", key=int, value=Flight)) == "AsyncMap('m', key=int, value=Flight)"
                    made = connected.cached(ttl=1, name="f")(lambda: asyncio.sleep(0))
                    assert repr(made) == "AsyncCached('f', ttl=1, map='phalanx.cached')"

            asyncio.run(asyncio.wait_for(use(), 30))


BOTH_MAPS = """clear compare_and_set contains get get_all get_and_put get_and_replace get_data increment items keys lock name persist
 put put_all put_data put_if_absent remove remove_if replace scan_data schema semaphore size time_to_live touch update update_all update_where
 values"""
BOTH_CLIENTS = "cached call_timeout_s close lock map map_names partition_count semaphore"
PROMISED: dict[type, str] = {
    phalanx.Client: f"{BOTH_CLIENTS} get_data journal put_data scan_data",
    phalanx.AsyncClient: BOTH_CLIENTS,
    phalanx.SyncMap: f"{BOTH_MAPS} pop popitem setdefault",
    LocalMap: f"{BOTH_MAPS} pop popitem setdefault",
    phalanx.AsyncMap: f"{BOTH_MAPS} changes journal",
    phalanx.MemberThread: """address cached http_port id is_running journal lock map map_names semaphore stop table view wait_ended""",
    phalanx.Member: """address cached demote event_log_problem has_left http_port id is_leaving is_over lock map memory_shortage
        overload promote replicas_held semaphore slow_turns stop table view wait_ended waits_for""",
    SyncLock: "acquire is_held release status token",
    AsyncLock: "acquire is_held release status token",
    SyncCached: "forget",
    AsyncCached: "forget",
}


def test_dir_and_completion_show_what_is_promised(member: phalanx.MemberThread, client: phalanx.Client) -> None:
    async def use(connected: phalanx.AsyncClient) -> None:
        async with await phalanx.start_member(phalanx.Config(port=0)) as own:
            objects: list[object] = [client, client.map("m"), client.lock("x"), client.cached(ttl=1, name="f")(len)]
            objects += [connected, connected.map("m"), connected.lock("x"), member, member.map("m"), own]
            objects += [connected.cached(ttl=1, name="f")(lambda: asyncio.sleep(0))]
            assert {*map(type, objects)} == {*PROMISED}
            for each in objects:
                assert not hasattr(each, "__getattr__"), (
                    "all its other attributes would be looked up on Python's slow way"
                )
                listed = [name for name in dir(each) if not name.startswith("_")]
                assert listed == sorted(PROMISED[type(each)].split()), type(each)
                assert all(hasattr(each, name) for name in internal_names(type(each)) - {"on_forked"})
                complete = rlcompleter.Completer({"each": each}).complete
                completed: list[str] = []
                while (found := complete("each.", len(completed))) is not None:
                    completed.append(found.removeprefix("each.").rstrip("()"))
                assert sorted(completed) == listed
                if internal := internal_names(type(each)):
                    told = pydoc.plain(pydoc.render_doc(type(each)))
                    assert not [name for name in internal if re.search(rf"\b{name}\(self", told)]

    in_loop(member, use)
    listed = [name for name in dir(phalanx) if not name.startswith("_")]
    assert {*listed} - {"testing", "spark", "archive", "integrations"} == {*phalanx.__all__}


@pytest.mark.parametrize("kind", [phalanx.SyncMap, phalanx.AsyncMap, phalanx.Client, phalanx.AsyncClient, SyncLock, AsyncLock,
                                  phalanx.Member, phalanx.MemberThread])  # fmt: skip
def test_help_explains_the_names_of_types_that_it_shows(kind: type) -> None:
    told = pydoc.plain(pydoc.render_doc(kind))
    assert "`Duration` is a number of seconds, or a" in told.replace("\n |  ", " ")
    if issubclass(kind, phalanx.SyncMap | phalanx.AsyncMap):
        assert "`K` and `V` are the types of its keys and values" in told


def test_a_value_that_does_not_fit_is_named_by_its_key(member: phalanx.MemberThread, client: phalanx.Client) -> None:
    client.map("mixed").put_all({"good": {"origin": "FRA"}, "bad": {"origin": 5}})
    blocking = client.map("mixed", key=str, value=Flight)
    reads: list[Callable[[], object]] = [
        lambda: dict(blocking.items()),
        lambda: list(blocking.values()),
        lambda: blocking.get_all(["good", "bad"]),
        lambda: blocking["bad"],
    ]
    for read in reads:
        with pytest.raises(phalanx.StoredTypeError, match="of the key 'bad'"):
            read()

    async def use(connected: phalanx.AsyncClient) -> None:
        entries = connected.map("mixed", key=str, value=Flight)
        for scan in (entries.items(), entries.values()):
            with pytest.raises(phalanx.StoredTypeError, match="of the key 'bad'"):
                _ = [each async for each in scan]
        for call in (entries.get_all(["good", "bad"]), entries.get("bad"), entries.remove("bad")):
            with pytest.raises(phalanx.StoredTypeError, match="of the key 'bad'"):
                await call

    in_loop(member, use)


def test_a_stopped_member_says_that_it_is_closed() -> None:
    """No call can ever succeed: each says so, of all that was made of the member before."""
    grid = phalanx.start_member_in_thread(phalanx.Config(port=0))
    entries, typed, lock = grid.map("m"), grid.map("typed", key=str, value=int), grid.lock("gate")
    cached = grid.cached(ttl=5, name="twice")(lambda number: 2 * number)
    lenient, strict = (
        CachedMap(SharedGrid(lambda: grid), "m", ignore_errors=ignores, retry_after=5) for ignores in (True, False)
    )
    entries.put("k", 1)
    assert (cached(2), lenient.use(len, 0)) == (4, 1)
    grid.stop()
    calls = (
        *(
            lambda: entries["k"],
            lambda: entries.put("k", 1),
            lambda: len(entries),
            lambda: list(entries),
            entries.clear,
        ),
        *(lambda: entries.put_all({"k": 1}), lambda: entries.get_all(["k"]), lambda: entries.increment("k")),
        *(lambda: entries.update_where("true", "merge", {}), lambda: typed.get("k"), lambda: cached(3), grid.map_names),
        *(lock.acquire, lambda: strict.use(len, 0)),
    )
    for call in calls * 2:
        with pytest.raises(
            phalanx.ClientClosed, match="this member stopped; nothing was changed; start another member"
        ):
            call()
    assert lenient.use(len, 0) == 0

    async def use() -> None:
        member = await phalanx.start_member(phalanx.Config(port=0))
        there, typed, changes = member.map("m"), member.map("typed", key=str, value=int), member.map("m").changes()

        @member.cached(ttl=5, name="twice")
        async def cached(number: int) -> int:
            return 2 * number

        await there.put("k", 1)
        await member.stop()
        for call in (
            *(
                there.get("k"),
                there.put("k", 1),
                there.size(),
                there.put_all({"k": 1}),
                there.get_all(["k"]),
                there.clear(),
            ),
            *(there.update_where("true", "merge", {}), typed.get("k"), cached(2), member.lock("gate").acquire()),
            anext(aiter(changes)),
        ):
            with pytest.raises(phalanx.ClientClosed, match="start another member"):
                await call

    asyncio.run(asyncio.wait_for(use(), 30))
