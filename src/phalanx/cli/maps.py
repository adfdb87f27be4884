"""`phalanx map get|put|remove|size|scan`: a look into the data, one entry or a few at a time."""

from __future__ import annotations

import enum
import itertools
import json as jsonlib
from typing import Annotated, Any

import typer

from phalanx.cli.app import CommandGroup, fail
from phalanx.cli.options import At, ClusterName, Json, SecretFile
from phalanx.cli.output import as_cell, as_text, print_json
from phalanx.client.ask import put_living_first
from phalanx.client.sync import Client
from phalanx.common.errors import UsageError

CONNECT_TIMEOUT_S = 4.0
CALL_TIMEOUT_S = 10.0

_MISSING = object()

app = typer.Typer(
    name="map", cls=CommandGroup, help="Look into a map, and say how it is to be kept, protected, merged and followed."
)


class KeyType(enum.StrEnum):
    """What the text of a key on the command line means."""

    STR = "str"
    INT = "int"
    JSON = "json"


Name = Annotated[str, typer.Argument(help="Name of the map.")]
Key = Annotated[str, typer.Argument(help="The key; its type is --key-type.")]
KeyOption = Annotated[
    KeyType, typer.Option("--key-type", help="json: any JSON; an array is a composite key, as Spark writes it.")
]


def to_key(text: str, kind: KeyType) -> Any:
    """The key that the text stands for. Raises `UsageError` if it is none of that type."""
    try:
        match kind:
            case KeyType.STR:
                return text
            case KeyType.INT:
                return int(text)
            case KeyType.JSON:
                return jsonlib.loads(text)
    except ValueError as error:
        raise UsageError(f"{text!r} is no key of --key-type {kind.value}: {error}") from error


def to_value(text: str) -> Any:
    """What the text says as JSON; the text itself if it is no JSON."""
    try:
        return jsonlib.loads(text)
    except ValueError:
        return text


def connect(at: str, cluster: str) -> Client:
    """A client that gives up within seconds, and at once where nobody listens."""
    return Client(
        put_living_first(at, cluster),
        cluster=cluster,
        connect_timeout_s=CONNECT_TIMEOUT_S,
        call_timeout_s=CALL_TIMEOUT_S,
    )


def _tell(name: str, key: Any, value: Any, *, json: bool) -> None:
    """Print what was found; nothing found is status 1."""
    is_found = value is not _MISSING
    if json:
        print_json({"map": name, "key": key, "found": is_found, "value": value if is_found else None})
    elif is_found:
        print(as_text(value))
    if not is_found:
        fail(f"map {name!r} has no entry for the key {key!r}")


@app.command()
def get(
    name: Name,
    key: Key,
    at: At,
    key_type: KeyOption = KeyType.STR,
    cluster: ClusterName = "phalanx",
    secret_file: SecretFile = None,
    json: Json = False,
) -> None:
    """Print the value of a key; status 1 if it has none."""
    wanted = to_key(key, key_type)
    with connect(at, cluster) as grid:
        value = grid.map(name).get(wanted, _MISSING)
    _tell(name, wanted, value, json=json)


@app.command()
def put(
    name: Name,
    key: Key,
    value: Annotated[str, typer.Argument(help="The value: JSON if it is JSON, else text.")],
    at: At,
    key_type: KeyOption = KeyType.STR,
    ttl: Annotated[float | None, typer.Option(help="Seconds that the entry lives.", show_default="for ever")] = None,
    cluster: ClusterName = "phalanx",
    secret_file: SecretFile = None,
    json: Json = False,
) -> None:
    """Store a value. Done when all synchronous backups have it."""
    wanted = to_key(key, key_type)
    with connect(at, cluster) as grid:
        grid.map(name).put(wanted, to_value(value), ttl)
    if json:
        print_json({"map": name, "key": wanted, "stored": True})


@app.command()
def remove(
    name: Name,
    key: Key,
    at: At,
    key_type: KeyOption = KeyType.STR,
    cluster: ClusterName = "phalanx",
    secret_file: SecretFile = None,
    json: Json = False,
) -> None:
    """Remove a key, and print the value that it had; status 1 if it had none."""
    wanted = to_key(key, key_type)
    with connect(at, cluster) as grid:
        entries = grid.map(name)
        is_there = entries.contains(wanted)  # a value can be None
        value = entries.remove(wanted)
    _tell(name, wanted, value if is_there or value is not None else _MISSING, json=json)


@app.command()
def size(
    name: Name, at: At, cluster: ClusterName = "phalanx", secret_file: SecretFile = None, json: Json = False
) -> None:
    """Print how many entries the map has."""
    with connect(at, cluster) as grid:
        count = grid.map(name).size()
    if json:
        print_json({"map": name, "size": count})
    else:
        print(count)


@app.command()
def scan(
    name: Name,
    at: At,
    limit: Annotated[int, typer.Option(min=0, help="Entries at most; 0: all.")] = 0,
    cluster: ClusterName = "phalanx",
    secret_file: SecretFile = None,
    json: Json = False,
) -> None:
    """Print the entries, one a line: key, tab, value; with --json an object with key and value."""
    with connect(at, cluster) as grid:
        entries = grid.map(name).iter_items()
        for key, value in itertools.islice(entries, limit or None):
            if json:
                print_json({"key": key, "value": value})
            else:
                print(f"{as_cell(key)}\t{as_cell(value)}")
