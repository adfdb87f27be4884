"""Phalanx's own maps: programs read them, and what writes them by right still does."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import phalanx
from phalanx.client.blocking.sync_map import SyncMap
from phalanx.common.errors import UsageError
from phalanx.maps.async_map import AsyncMap
from phalanx.maps.own_maps import REMOVALS, WRITES, OwnName, map_class
from phalanx.runtime.local.embedded import EmbeddedMap
from phalanx.runtime.local.local_map import LocalMap
from phalanx_protocols.hazelcast.fields import _map_name
from phalanx_spark.archive import export_maps, restore_maps
from phalanx_spark.archive.source import Source
from phalanx_spark.connector.options import READ, SINK, WRITE, parse_options

REFUSED = "belong to Phalanx, and programs cannot write into these maps; give your map another name"
READS = {
    *(
        "get",
        "get_all",
        "get_data",
        "contains",
        "items",
        "keys",
        "values",
        "iter_items",
        "size",
        "scan_data",
        "scan_packed",
    ),
    *("find_data", "time_to_live", "decode", "journal", "schema", "changes", "lock", "semaphore", "everywhere"),
}


@pytest.fixture
def grid() -> Iterator[phalanx.MemberThread]:
    with phalanx.start_member_in_thread(phalanx.Config(port=0)) as member:
        yield member


@pytest.mark.parametrize("kind", [SyncMap, LocalMap, AsyncMap, EmbeddedMap])
def test_each_method_of_a_map_is_known_to_read_or_to_write(kind: type[Any]) -> None:
    public = {name for each in kind.__mro__ for name in vars(each) if not name.startswith("_") and hasattr(kind, name)}
    assert public <= READS | {*WRITES} | {*REMOVALS}
    reading = map_class(kind, "phalanx.locks")
    assert reading is map_class(kind, "phalanx.locks") is not kind
    assert reading.__name__ == kind.__name__
    assert map_class(kind, "phalanx") is map_class(kind, "orders") is map_class(kind, OwnName("phalanx.locks")) is kind


def test_programs_do_not_write_into_them(grid: phalanx.MemberThread) -> None:
    with phalanx.Client(grid.address) as client:
        client.map(OwnName("phalanx.locks"))["k"] = 1
        for entries in (client.map("phalanx.locks"), grid.map("phalanx.locks", key=str, value=int)):
            writes: list[Callable[[], object]] = [
                lambda entries=entries: entries.__setitem__("k", 1),  # type: ignore[misc]
                lambda entries=entries: entries.__delitem__("k"),  # type: ignore[misc]
                lambda entries=entries: entries.put("k", 2),  # type: ignore[misc]
                lambda entries=entries: entries.update({"k": 2}),  # type: ignore[misc]
                lambda entries=entries: entries.pop("k"),  # type: ignore[misc]
                lambda entries=entries: entries.clear(),  # type: ignore[misc]
            ]
            for write in writes:
                with pytest.raises(UsageError, match=REFUSED):
                    write()
            assert dict(entries) == {"k": 1}
        with pytest.raises(UsageError, match=REFUSED):
            client.put_data("phalanx.locks", [b"k"], [b"v"])

        async def use() -> None:
            async with (
                phalanx.connect(grid.address) as connected,
                await phalanx.start_member(phalanx.Config(port=0)) as own,
            ):
                for there in (connected.map("phalanx.x"), own.map("phalanx.x")):
                    with pytest.raises(UsageError, match=REFUSED):
                        await there.put("k", 1)
                    assert await there.size() == 0

        asyncio.run(asyncio.wait_for(use(), 30))


def test_results_of_functions_are_kept_there_and_may_be_removed(grid: phalanx.MemberThread) -> None:
    made = []
    with phalanx.Client(grid.address) as client:
        for owner, name in ((client, "one"), (grid, "two")):

            @owner.cached(ttl=60, name=name)
            def load(number: int) -> int:
                made.append(number)
                return number

            assert load(1) == load(1) == 1
            assert load.forget(1)
            assert load(1) == 1
        assert made == [1] * 4
        results = client.map("phalanx.cached")
        with pytest.raises(UsageError, match=REFUSED):
            results["k"] = 1
        results.clear()
        assert results.size() == 0


def test_a_restore_and_locks_write_them_as_before(grid: phalanx.MemberThread, tmp_path: Path) -> None:
    schemas = "phalanx.hazelcast.schemas"
    with phalanx.Client(grid.address) as client:
        client.map(OwnName(schemas))[1] = ["Book", []]
        export_maps(None, Source(grid.address, "phalanx"), str(tmp_path / "archive"), [schemas])
        client.map(OwnName(schemas)).clear()
        restore_maps(None, Source(grid.address, "phalanx"), str(tmp_path / "archive"))
        assert dict(client.map(schemas)) == {1: ["Book", []]}
        with client.lock("gate", wait=5), client.map("phalanx.cached").lock("k", wait=5):
            pass


@pytest.mark.parametrize("name", ["phalanx.locks", "phalanx.hazelcast.schemas", "phalanx.cached"])
def test_neither_spark_nor_clients_of_other_protocols_write_them(name: str) -> None:
    for use in (WRITE, SINK):
        with pytest.raises(UsageError, match=REFUSED):
            parse_options({"members": "a:1", "map": name, "key": "id"}, use)
    assert parse_options({"members": "a:1", "map": name, "key": "id"}, READ).map == name
    with pytest.raises(UsageError, match=REFUSED):
        phalanx.Config(redis_maps=["redis", name])
    with pytest.raises(UsageError, match=REFUSED):
        _map_name(name.encode())
