"""The schema of a map in a real cluster: how clients change it, and where it is shown."""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from phalanx.client.schemas import change_schema, with_written
from phalanx.common.errors import UsageError
from phalanx.common.map_schema import Column, DecimalType, IntType, MapSchema, TextType, make_schema
from support.commands import Ask, Command, asker
from support.processes import Cluster


def schema(*columns: Column) -> MapSchema:
    return make_schema((Column("id", TextType()), *columns), ("id",))


PRICES = schema(Column("price", DecimalType(12, 2)))


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("two"), "two")
    try:
        cluster.start(2)
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def ask(phalanx_command: Command, two: Cluster) -> Ask:
    return asker(phalanx_command, two)


def widening(written: MapSchema, name: str) -> Callable[[str], str]:
    return lambda present: with_written(present, written, name).to_json()


def test_a_schema_is_shown_by_every_member_and_removed(ask: Ask, two: Cluster) -> None:
    with two.client() as grid:
        change_schema(grid, "prices", widening(PRICES, "prices"))
        grid.refresh()
        assert grid.map("prices").schema() == PRICES
        assert grid.map("prices", key=str, value=dict).schema() == PRICES
        assert grid.map("other").schema() is None
    for at in (0, 1):
        assert ask("map", "schema", "prices", at=at) == "id\tstring\tkey\nprice\tdecimal(12,2)\n"
        assert "schema        id string, price decimal(12,2)" in ask("map", "settings", "prices", at=at)
    columns = {"key": ["id"], "columns": [{"name": "id", "type": "string"}, {"name": "price", "type": "decimal(12,2)"}]}
    assert ask("map", "settings", "prices", "--json")["prices"]["schema"] == columns
    told = ask("map", "schema", "prices", "--json")
    assert told["schema"].pop("arrow") == json.loads(PRICES.to_json())
    assert told == {"map": "prices", "schema": columns}
    assert ask("map", "schema", "prices", "--clear") == ""
    assert "map 'prices' has no schema: a write of Spark into an empty map stores one" in ask(
        "map", "schema", "prices", status=1
    )
    assert ask("map", "schema", "prices", "--clear", "--json", at=1) == {"map": "prices", "schema": None}
    assert "schema        none" in ask("map", "settings", "prices")


def test_of_writers_that_widen_it_at_once_none_takes_the_columns_of_another_away(two: Cluster) -> None:
    names = [f"column{number}" for number in range(6)]

    def add(name: str) -> None:
        with two.client() as grid:
            change_schema(grid, "wide", widening(schema(Column(name, IntType(32))), "wide"))

    with ThreadPoolExecutor(len(names)) as pool:
        list(pool.map(add, names))
    with two.client() as grid:
        found = grid.map("wide").schema()
    assert found is not None
    assert sorted(column.name for column in found.fields) == [*names, "id"]


def test_what_cannot_be_is_refused_and_leaves_the_schema(two: Cluster) -> None:
    with two.client() as grid:
        change_schema(grid, "refused", widening(PRICES, "refused"))
        with pytest.raises(
            UsageError, match=r"column 'price' is decimal\(12,2\) by the map's schema, and string in this write"
        ):
            change_schema(grid, "refused", widening(schema(Column("price", TextType())), "refused"))
        with pytest.raises(UsageError, match="is not a schema of Arrow as JSON"):
            change_schema(grid, "refused", lambda _: "{}")
        grid.refresh()
        assert grid.map("refused").schema() == PRICES
