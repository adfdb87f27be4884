"""`phalanx map list|get|put|remove|size|scan`: a look into the data, one entry or a few at a time."""

from __future__ import annotations

import itertools
from typing import Annotated, Any, NoReturn

import typer

from phalanx.cli.app import CommandGroup, fail
from phalanx.cli.failures import note
from phalanx.cli.hints import find_elsewhere, find_no_map
from phalanx.cli.options import At, ClusterName, Json, SecretFile
from phalanx.cli.output import as_cell, print_entry, print_json, print_line
from phalanx.client.ask import put_living_first
from phalanx.client.blocking.sync_map import SyncMap
from phalanx.client.sync import Client
from phalanx.codec.values import to_data, to_key_data
from phalanx.common.errors import CorruptDataError
from phalanx.common.map_settings import DictFormat
from phalanx.common.seeds import DEFAULT_MEMBERS
from phalanx.common.words import counted, quoted, shown
from phalanx.reports.entries import KeyType, key_of, to_key, to_value, value_of
from phalanx.reports.maps import as_object
from phalanx.reports.value_json import as_text

CONNECT_TIMEOUT_S = 4.0
CALL_TIMEOUT_S = 10.0

app = typer.Typer(
    name="map", cls=CommandGroup, help="Show a map, and set how it is stored, protected, merged and followed."
)


Name = Annotated[str, typer.Argument(help="Name of the map.")]
Key = Annotated[str, typer.Argument(help="The key; its type is --key-type.")]
KeyOption = Annotated[
    KeyType,
    typer.Option(
        "--key-type",
        help="bytes: in hexadecimal. json: any JSON; an array is a composite key, as Spark writes it.",
    ),
]


def connect(at: str, cluster: str) -> Client:
    """Connect a client that gives up within seconds, and at once if nobody listens."""
    return Client(
        put_living_first(at, cluster),
        cluster=cluster,
        connect_timeout_s=CONNECT_TIMEOUT_S,
        call_timeout_s=CALL_TIMEOUT_S,
    )


def _tell(entries: SyncMap[Any, Any], text: str, kind: KeyType, key: Any, data: bytes | None, *, json: bool) -> None:
    """Print what was found; nothing found is status 1, and where else it can be."""
    value = value_of(data, entries.decode) if data else None
    if json:
        print_json({"map": entries.name, "key": key, "found": data is not None, "value": value})
    elif data is not None:
        print(as_text(value))
    if data is None:
        fail_missing(entries, text, kind, key)


def fail_missing(entries: SyncMap[Any, Any], text: str, kind: KeyType, key: Any) -> NoReturn:
    """End the command, because the key has no entry; say where else it can be."""
    hint = find_elsewhere(entries, text, kind) or find_no_map(entries)
    also = f"; {hint}" if hint else ""
    fail(f"map {quoted(entries.name)} has no entry for the {kind.value} {as_cell(key)}{also}")


@app.command()
def get(
    name: Name,
    key: Key,
    at: At = DEFAULT_MEMBERS,
    key_type: KeyOption = KeyType.STR,
    cluster: ClusterName = "phalanx",
    secret_file: SecretFile = None,
    json: Json = False,
) -> None:
    """Print the value of a key; status 1 if it has none.

    Text is printed as it is. If it contains control characters for a terminal, it is printed as JSON, like all other values.
    """
    wanted = to_key(key, key_type)
    with connect(at, cluster) as grid:
        entries = grid.map(name)
        [data] = entries.get_data([to_key_data(wanted)])
        _tell(entries, key, key_type, wanted, data, json=json)


@app.command()
def put(
    name: Name,
    key: Key,
    value: Annotated[str, typer.Argument(help="The value: JSON if it is JSON, else text.")],
    at: At = DEFAULT_MEMBERS,
    key_type: KeyOption = KeyType.STR,
    ttl: Annotated[
        float | None, typer.Option(help="Seconds after which the entry expires.", show_default="for ever")
    ] = None,
    cluster: ClusterName = "phalanx",
    secret_file: SecretFile = None,
    json: Json = False,
) -> None:
    """Store a value, and wait until all synchronous backups have it."""
    wanted = to_key(key, key_type)
    stored = to_value(value)
    with connect(at, cluster) as grid:
        entries = grid.map(name)
        entries.put(wanted, stored, ttl)
        if elsewhere := find_elsewhere(entries, key, key_type):
            note(
                f"stored for the {key_type.value} {as_cell(wanted)}; the map has other keys that look the same: {elsewhere}"
            )
    if json:
        print_json({"map": name, "key": wanted, "stored": True})


@app.command()
def remove(
    name: Name,
    key: Key,
    at: At = DEFAULT_MEMBERS,
    key_type: KeyOption = KeyType.STR,
    cluster: ClusterName = "phalanx",
    secret_file: SecretFile = None,
    json: Json = False,
) -> None:
    """Remove a key, and print its value; status 1 if it had none."""
    wanted = to_key(key, key_type)
    with connect(at, cluster) as grid:
        entries = grid.map(name)
        [data] = entries.get_data([to_key_data(wanted)])  # a value can be None
        try:
            value = entries.remove(wanted)
        except CorruptDataError:
            pass  # it is removed; what it was is known in bytes
        else:
            if value is not None:  # perhaps it is another one than a moment ago
                data = to_data(value)
        _tell(entries, key, key_type, wanted, data, json=json)


@app.command("list")
def list_maps(
    at: At = DEFAULT_MEMBERS, cluster: ClusterName = "phalanx", secret_file: SecretFile = None, json: Json = False
) -> None:
    """Print the maps that have entries, one a line: name, entries, backups, and its bounds and format of dicts if it has any."""
    with connect(at, cluster) as grid:
        plan = grid.partition_table().maps
        for name in grid.map_names():
            count, kept = grid.map(name).size(), plan.of(name)
            if json:
                print_json(as_object(name, count, plan))
                continue
            bounds = [counted(kept.max_entries, "entry", "entries")] if kept.max_entries else []
            bounds += [counted(kept.max_bytes, "byte")] if kept.max_bytes else []
            at_most = f"at most {' and '.join(bounds)}" if bounds else ""
            dicts = f"dicts {shown(kept.dicts)}" if kept.dicts != DictFormat.ANY else ""
            cells = counted(count, "entry", "entries"), f"backups {kept.backups}", at_most, dicts
            print_line(name, *filter(None, cells))


@app.command()
def size(
    name: Name,
    at: At = DEFAULT_MEMBERS,
    cluster: ClusterName = "phalanx",
    secret_file: SecretFile = None,
    json: Json = False,
) -> None:
    """Print how many entries the map has."""
    with connect(at, cluster) as grid:
        entries = grid.map(name)
        count = entries.size()
        if not count and (hint := find_no_map(entries)):
            note(hint)
    if json:
        print_json({"map": name, "size": count})
    else:
        print(count)


@app.command()
def scan(
    name: Name,
    at: At = DEFAULT_MEMBERS,
    limit: Annotated[int, typer.Option(min=0, help="The most entries to print; 0: all.")] = 0,
    cluster: ClusterName = "phalanx",
    secret_file: SecretFile = None,
    json: Json = False,
) -> None:
    """Print the entries, one a line: key, tab, value; with --json an object with key and value.

    If a value cannot be decoded, its type id and bytes are shown.
    """
    with connect(at, cluster) as grid:
        entries = grid.map(name)
        pages = entries.scan_data()
        rows = itertools.chain.from_iterable(zip(keys, values, strict=True) for keys, values in pages)
        row = None
        for row in itertools.islice(rows, limit or None):
            key, value = key_of(row[0]), value_of(row[1], entries.decode)
            print_entry(key, value, json=json)
        if row is None and (hint := find_no_map(entries)):
            note(hint)
