"""Entries are changed where they are from the command line: numbers, lists, and how long they live."""

import json
from collections.abc import Iterator

import pytest

from phalanx.client.schemas import change_schema
from phalanx.common.map_schema import Column, IntType, TextType, make_schema
from support.commands import Ask, Command
from support.processes import Cluster


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("one"), "updated")
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def ask(phalanx_command: Command, one: Cluster) -> Ask:
    """Runs a command; its lines, or what it said when it failed."""

    def run(*arguments: object, status: int = 0) -> object:
        result = phalanx_command(*arguments, "--at", one.members[0].address, "--cluster", one.name)
        assert result.exit_code == status, (result.stdout, result.stderr)
        return result.stderr if status else result.stdout.splitlines()

    return run


def test_entries_that_fulfil_a_condition_are_shown(ask: Ask, phalanx_command: Command, one: Cluster) -> None:
    for number in range(5):
        ask("map", "put", "fares", f"LH {number}", json.dumps({"price": number * 100}))
    assert ask("map", "where", "fares", "price > 250 and key != 'LH 4'") == ['LH 3\t{"price":300}']
    shown = ask("map", "where", "fares", "price < 150", "--json")
    assert isinstance(shown, list)
    assert sorted(json.loads(line)["key"] for line in shown) == ["LH 0", "LH 1"]
    assert "price" in str(ask("map", "where", "fares", "price >", status=2))
    at = ("--at", one.members[0].address, "--cluster", one.name)
    few = phalanx_command("map", "where", "fares", "true", "--limit", "2", *at)
    assert (few.exit_code, len(few.stdout.splitlines())) == (0, 2)
    assert "there are more than 2 entries: --limit shows more" in few.stderr
    none = phalanx_command("map", "where", "fares", "price > 1000", *at)
    assert (none.exit_code, none.stdout) == (0, "")
    assert "no entry of map 'fares' fulfils the condition" in none.stderr
    other = phalanx_command("map", "where", "fare", "true", *at)
    assert "there is no map 'fare' with entries; there are: fares" in other.stderr


def test_a_map_is_cleared_by_who_is_sure(ask: Ask) -> None:
    for key in ("a", "b"):
        ask("map", "put", "old", key, "1")
    assert "all 2 entries of map 'old' would be removed: confirm this with --yes" in str(
        ask("map", "clear", "old", status=2)
    )
    assert ask("map", "size", "old") == ["2"]
    assert ask("map", "clear", "old", "--yes") == ["2"]
    assert ask("map", "size", "old") == ["0"]
    assert ask("map", "clear", "older") == ["0"], "nothing to be sure of"


def test_a_map_that_is_dropped_has_no_schema_any_more(ask: Ask, one: Cluster) -> None:
    ask("map", "put", "rows", "a", "1")
    schema = make_schema((Column("id", TextType()), Column("n", IntType(32))), ("id",)).to_json()
    with one.client() as grid:
        change_schema(grid, "rows", lambda _: schema)
    assert "all 1 entry of map 'rows' would be removed: confirm this with --yes" in str(
        ask("map", "drop", "rows", status=2)
    )
    assert ask("map", "schema", "rows") != []
    assert ask("map", "drop", "rows", "--yes") == ["1"]
    assert "has no schema" in str(ask("map", "schema", "rows", status=1))
    assert ask("map", "size", "rows") == ["0"]


def test_numbers_are_counted(ask: Ask) -> None:
    assert ask("map", "increment", "visits", "home") == ["1"]
    assert ask("map", "increment", "visits", "home", "--by", "-3") == ["-2"]
    assert ask("map", "increment", "visits", "share", "--by", "0.5") == ["0.5"]
    [line] = ask("map", "increment", "visits", "7", "--key-type", "int", "--json")
    assert json.loads(line) == {"map": "visits", "key": 7, "value": 1}
    ask("map", "put", "visits", "text", "hello")
    assert "the value is of type str" in ask("map", "increment", "visits", "text", status=2)
    assert "by is 'many', of type str" in ask("map", "increment", "visits", "text", "--by", "many", status=2)
    assert ask("map", "get", "visits", "text") == ["hello"]


def test_functions_are_called_by_name(ask: Ask) -> None:
    assert ask("map", "update", "things", "list", "append", "a", "2") == ["2"]
    assert ask("map", "get", "things", "list") == ['["a",2]']
    assert ask("map", "update", "things", "doc", "merge", '{"a": 1}') == ['{"a":1}']
    [line] = ask("map", "update", "things", "list", "add_to_set", "a", "--json")
    assert json.loads(line) == {"map": "things", "key": "list", "result": False}
    assert "there is no function 'sort' here; there are add_to_set" in ask(
        "map", "update", "things", "list", "sort", status=2
    )


def test_how_long_an_entry_lives_is_told_and_changed(ask: Ask) -> None:
    ask("map", "put", "lived", "a", "1")
    assert ask("map", "ttl", "lived", "a") == ["for ever"]
    [left] = ask("map", "ttl", "lived", "a", "--set", "100")
    assert 90 < float(left) <= 100
    [line] = ask("map", "ttl", "lived", "a", "--json")
    assert 90 < json.loads(line)["seconds"] <= 100
    assert ask("map", "ttl", "lived", "a", "--for-ever") == ["for ever"]
    assert "has no entry for the str none" in ask("map", "ttl", "lived", "none", "--set", "5", status=1)
    assert "exclude each other" in ask("map", "ttl", "lived", "a", "--set", "5", "--for-ever", status=2)
    assert "ttl is -1" in ask("map", "ttl", "lived", "a", "--set", "-1", status=2)


def test_entries_that_fulfil_a_condition_are_updated(ask: Ask) -> None:
    for key, price in (("apple", 3), ("pear", 12), ("plum", 15)):
        ask("map", "put", "goods", key, json.dumps({"price": price}))
    assert ask("map", "update-where", "goods", "price > 10", "merge", '{"sale": true}') == ["2"]
    assert ask("map", "get", "goods", "pear") == ['{"price":12,"sale":true}']
    [line] = ask("map", "update-where", "goods", "true", "merge", '{"sale": null}', "--json")
    assert json.loads(line) == {"map": "goods", "changed": 2, "refused": 0}
    ask("map", "put", "goods", "odd", "5")
    refused = ask("map", "update-where", "goods", "true", "add_to_set", "x", status=1)
    assert "add_to_set: 4 entries refused and left unchanged, 0 entries were changed" in str(refused)
    assert "at character 8" in str(ask("map", "update-where", "goods", "price >", "max", "1", status=2))
    assert "there is no function" in str(ask("map", "update-where", "goods", "true", "nothing", status=2))
