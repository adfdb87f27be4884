"""`phalanx map where|clear|drop`: the entries that fulfil a condition; none at all any more."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Any

import typer

from phalanx.cli.failures import note
from phalanx.cli.hints import find_no_map
from phalanx.cli.map_updates import Condition
from phalanx.cli.map_updates import app as app
from phalanx.cli.maps import CALL_TIMEOUT_S, CONNECT_TIMEOUT_S, Name, connect
from phalanx.cli.options import At, ClusterName, Json, SecretFile
from phalanx.cli.output import print_entry, print_json
from phalanx.client.aio import connect as connect_async
from phalanx.client.ask import put_living_first
from phalanx.client.blocking.sync_map import SyncMap
from phalanx.client.schemas import change_schema
from phalanx.common.errors import CorruptDataError, UsageError
from phalanx.common.seeds import DEFAULT_MEMBERS
from phalanx.common.words import counted, quoted
from phalanx.maps.async_map import AsyncMap
from phalanx.reports.entries import key_of, value_of

PAGE_BYTES = 256 * 1024
"""About so much comes at once: with `--limit` no owner reads much further than it must."""
USUAL_LIMIT = 100


@app.command()
def where(
    name: Name,
    condition: Condition,
    at: At = DEFAULT_MEMBERS,
    limit: Annotated[int, typer.Option(min=0, help="The most entries to print; 0: all.")] = USUAL_LIMIT,
    cluster: ClusterName = "phalanx",
    secret_file: SecretFile = None,
    json: Json = False,
) -> None:
    """Print the entries that fulfil a condition, one a line: key, tab, value; with --json an object with key and value.

    Members check the entries, and send only those that fulfil it.
    """
    found = asyncio.run(_print_where(name, condition, at, limit, cluster, json=json))
    if limit and found > limit:
        note(f"there are more than {counted(limit, 'entry', 'entries')}: --limit shows more")
    elif not found:
        with connect(at, cluster) as grid:
            hint = find_no_map(grid.map(name))
        note(hint or f"no entry of map {quoted(name)} fulfils the condition")


async def _print_where(name: str, condition: str, at: str, limit: int, cluster: str, *, json: bool) -> int:
    """Print the entries, and return how many there are; one more than the limit: there are more."""
    count = 0
    connecting = connect_async(
        put_living_first(at, cluster),
        cluster=cluster,
        connect_timeout_s=CONNECT_TIMEOUT_S,
        call_timeout_s=CALL_TIMEOUT_S,
    )
    async with connecting as grid:
        entries = grid.map(name)
        async with aclosing(_entries(entries, condition)) as found:
            async for key, value in found:
                count += 1
                if limit and count > limit:
                    break
                print_entry(key, value, json=json)
    return count


async def _entries(entries: AsyncMap[Any, Any], condition: str) -> AsyncGenerator[tuple[Any, Any]]:
    """Yield keys and values; what cannot be decoded as its type id and bytes."""
    async for keys, values in entries.find_data(condition, PAGE_BYTES):
        for key, value in zip(keys, values, strict=True):
            try:
                restored = await entries.decode(value)
            except CorruptDataError:
                restored = value_of(value)
            yield key_of(key), restored


Sure = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]


@app.command()
def clear(
    name: Name,
    at: At = DEFAULT_MEMBERS,
    is_sure: Sure = False,
    cluster: ClusterName = "phalanx",
    secret_file: SecretFile = None,
    json: Json = False,
) -> None:
    """Remove all entries, and print how many there were. The map's settings stay. On a terminal it asks first."""
    with connect(at, cluster) as grid:
        _tell_removed(name, _remove_all(grid.map(name), is_sure=is_sure), json=json)


@app.command()
def drop(
    name: Name,
    at: At = DEFAULT_MEMBERS,
    is_sure: Sure = False,
    cluster: ClusterName = "phalanx",
    secret_file: SecretFile = None,
    json: Json = False,
) -> None:
    """Remove all entries and the schema, and print how many entries there were. Other settings stay. On a terminal it asks first."""
    with connect(at, cluster) as grid:
        count = _remove_all(grid.map(name), is_sure=is_sure)
        change_schema(grid, name, lambda _: "")
        _tell_removed(name, count, json=json)


def _remove_all(entries: SyncMap[Any, Any], *, is_sure: bool) -> int:
    """Remove the entries of a map, if the user is sure. Return how many there were."""
    count, name = entries.size(), entries.name
    if not count:
        if hint := find_no_map(entries):
            note(hint)
        return 0
    what = f"all {counted(count, 'entry', 'entries')} of map {quoted(name)}"
    if not is_sure and not sys.stdin.isatty():
        raise UsageError(f"{what} would be removed: confirm this with --yes")
    if not is_sure:
        typer.confirm(f"Remove {what}?", abort=True, err=True)
    entries.clear()
    return count


def _tell_removed(name: str, count: int, *, json: bool) -> None:
    if json:
        print_json({"map": name, "removed": count})
    else:
        print(count)
