"""Where an entry may be that was not found: keys of other types that are written alike, and maps of similar names."""

import datetime as dt
import json
import uuid
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from support.commands import Ask, Command
from support.processes import Cluster

ID = uuid.UUID(int=7)
KEYS = {
    "int": (8, "8"), "float": (7.5, "7.5"), "bool": (True, "true"), "uuid": (ID, str(ID)), "bytes": (b"\0\xff", "00ff"),
    "decimal": (Decimal("1.50"), "1.50"), "date": (dt.date(2024, 2, 29), "2024-02-29"),
    "datetime": (dt.datetime(2024, 2, 29, 12, 30), "2024-02-29T12:30:00"), "json": (("a", 1), '["a",1]'),
}  # fmt: skip


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    members = Cluster(tmp_path_factory.mktemp("single"))
    try:
        members.start(1)
        with members.client() as grid:
            grid.map("keys").put_all((key, name) for name, (key, _) in KEYS.items())
            grid.map("flights").put_all({7: "int", "7": "str"})
            grid.map("text as bytes")[b"apple"] = 1
        yield members
    finally:
        members.stop()


@pytest.fixture
def ask(phalanx_command: Command, single: Cluster) -> Ask:
    def run(*arguments: object, status: int = 0) -> Any:
        result = phalanx_command(*arguments, "--at", single.members[0].address, "--cluster", single.name)
        assert (result.exit_code, result.stderr.count("\n")) == (status, min(len(result.stderr), 1)), result.stderr
        return result

    return run


@pytest.mark.parametrize("kind", KEYS)
def test_a_key_of_another_type_is_hinted_at_and_found_so(ask: Ask, kind: str) -> None:
    _, text = KEYS[kind]
    missing = ask("map", "get", "keys", text, status=1)
    assert missing.stdout == ""
    assert f": give --key-type {kind}" in missing.stderr
    assert ask("map", "get", "keys", text, "--key-type", kind).stdout == f"{kind}\n"


def test_text_is_hinted_at_where_a_number_was_asked_for(ask: Ask) -> None:
    ask("map", "remove", "flights", "7", "--key-type", "int")
    hint = "map 'flights' has no entry for the int 7; it has one for the str 7: give --key-type str"
    assert hint in ask("map", "get", "flights", "7", "--key-type", "int", status=1).stderr
    assert hint in ask("map", "remove", "flights", "7", "--key-type", "int", status=1).stderr
    assert ask("map", "get", "flights", "7").stdout == "str\n"


def test_the_bytes_of_a_text_are_hinted_at(ask: Ask) -> None:
    missing = ask("map", "get", "text as bytes", "apple", status=1).stderr
    assert "it has one for the bytes of this text: give 6170706c65 --key-type bytes" in missing
    assert ask("map", "get", "text as bytes", "6170706c65", "--key-type", "bytes").stdout == "1\n"


def test_a_put_beside_a_key_that_is_written_alike_is_noted_and_done(ask: Ask) -> None:
    noted = ask("map", "put", "keys", "8", "text")
    assert "stored for the str 8; the map has other keys that look the same: it has one for the int 8" in noted.stderr
    assert ask("map", "put", "keys", "nothing like it", "1").stderr == ""
    assert json.loads(ask("map", "put", "keys", "8", "text", "--json").stdout)["stored"] is True


def test_a_map_that_is_not_there_is_named_with_those_that_are(ask: Ask) -> None:
    missing = ask("map", "get", "flihgts", "7", status=1).stderr
    assert "there is no map 'flihgts' with entries; there are: flights, " in missing
    assert "no map 'flihgts'" in ask("map", "size", "flihgts").stderr
    assert ask("map", "size", "flihgts").stdout == "0\n"
    assert ask("map", "scan", "flihgts").stdout == ""
    assert "no map 'flihgts'" in ask("map", "scan", "flihgts").stderr
    assert ask("map", "get", "flights", "no such key", status=1).stderr == (
        "phalanx: map 'flights' has no entry for the str no such key\n"
    )


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["settings", "flihgts"], 0),
        (["schema", "flihgts"], 1),
        (["backups", "flihgts"], 0),
        (["journal", "flihgts"], 0),
        (["ttl", "flihgts", "7"], 1),
    ],
    ids=lambda given: given[0] if isinstance(given, list) else "",
)
def test_settings_of_a_map_that_is_not_there_are_not_shown_as_if_it_were(
    ask: Ask, arguments: list[str], status: int
) -> None:
    command, name, *more = arguments
    said = ask("map", command, name, *more, status=status).stderr
    assert "there is no map 'flihgts' with entries; there are: flights, " in said
    more = ["no such key"] if more else []
    assert "there is no map" not in ask("map", command, "flights", *more, status=status).stderr


def test_a_setting_of_a_map_that_may_be_misspelt_is_noted_and_done(ask: Ask) -> None:
    noted = ask("map", "protect", "flihgts", "--minimum", "1")
    assert "protection at least 1 member for reads and writes" in noted.stdout
    assert "map 'flihgts' has no entries yet; if another one was meant: flights" in noted.stderr
    assert ask("map", "settings", "flihgts").stderr == ""  # it has settings of its own
    assert ask("map", "backups", "flihgts", "--sync", "0").stderr == noted.stderr
    for name in ("quite another", "flights", "flihg*", "*"):
        assert ask("map", "protect", name, "--off").stderr == ""


def test_a_map_that_is_protected_from_all_its_callers_is_noted(ask: Ask) -> None:
    refused = ask("map", "protect", "flights", "--minimum", "9").stderr
    assert "map 'flights' refuses calls now: it needs at least 9 members that hold data, and 1 is here" in refused
    assert ask("map", "protect", "flights", "--minimum", "1").stderr == ""
    assert ask("map", "protect", "flights", "--off").stderr == ""


def test_an_empty_grid_says_that_no_map_has_entries(phalanx_command: Command, cluster: Cluster, tmp_path: Path) -> None:
    [only] = cluster.start(1)
    exported = phalanx_command("export", tmp_path / "a", "--local", "--at", only.address, "--cluster", cluster.name)
    assert (exported.exit_code, exported.stdout) == (0, "")
    assert "no map has entries: the archive holds none" in exported.stderr
    missing = phalanx_command("map", "get", "m", "k", "--at", only.address, "--cluster", cluster.name)
    assert "there is no map 'm' with entries; no map has any" in missing.stderr
