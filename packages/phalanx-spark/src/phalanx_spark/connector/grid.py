"""The seam between the data source and the grid: the few calls that a read or a write makes."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from phalanx.client.blocking.journal import Journal
from phalanx.client.blocking.plan_runner import run_plan
from phalanx.client.core.two_clusters import check_founders
from phalanx.client.schemas import ASK_AGAIN_AFTER_S, change_schema
from phalanx.client.staging import StagedAttempt, StagedRows, Staging, new_job_id
from phalanx.client.sync import Client
from phalanx.common.errors import JournalNotEnabled, UnknownSchema, UsageError
from phalanx.common.map_schema import read_schema
from phalanx.common.map_settings import JournalSettings, MapChange
from phalanx.maps.compact_schemas import read_again
from phalanx.maps.dict_formats import dicts_are_json
from phalanx.maps.time_limit import TimeLimit
from phalanx_spark.columns import fallback
from phalanx_spark.connector.options import SparkOptions

__all__ = [
    "Client", "Journal", "StagedAttempt", "StagedRows", "Staging", "begin_journal", "change_schema", "connect", "new_job_id", "value_reader", "with_setting",
]  # fmt: skip

MOST_NAMES = 20
"""The most map names that a message lists."""


def begin_journal(client: Client, options: SparkOptions) -> None:
    """Give the map a journal, if it has none and an option says how large; return when it can be read."""
    name, capacity = options.map, options.journal_capacity
    if not capacity or client.refresh().maps.of(name).journal.is_on:
        return
    from phalanx.client.ask import ask_any, find_master  # tens of milliseconds that no other worker spends

    change = MapChange(journal=JournalSettings(capacity))
    master = find_master(options.members, options.cluster, secret_file=options.secret_file)
    ask_any(
        master, options.cluster, lambda inquirer: inquirer.change_map(name, change), secret_file=options.secret_file
    )
    limit = TimeLimit(client.call_timeout_s)
    while True:
        try:
            Journal(name, client).bounds()
            return
        except JournalNotEnabled:  # a member that has not the newest table yet says so
            if limit.is_over:
                raise
        time.sleep(ASK_AGAIN_AFTER_S)


def has_entries(client: Client, map_name: str) -> bool:
    """Return whether a map has entries."""
    return client.map(map_name).size() > 0


def is_known(client: Client, map_name: str) -> bool:
    """Return whether the cluster knows a map: it has entries, a setting or a content of its own, or had entries."""
    if has_entries(client, map_name):
        return True
    plan = client.partition_table().maps
    named = {name for name, _ in plan.maps} | {content.map for content in plan.contents}
    return map_name in named or map_name in client.map_names(with_empty=True)


def describe_maps(client: Client) -> str:
    """List the maps that have entries, for an error about another name."""
    names = client.map_names()
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return f"maps with entries are: {', '.join(map(repr, names[:MOST_NAMES]))}{more}" if names else "no map has any"


def with_setting(client: Client, options: SparkOptions) -> SparkOptions:
    """Return the options with how rows are stored by the map's setting. Raises `UsageError` if an option contradicts it."""
    json_dicts = dicts_are_json(options.map, options.dicts, client.partition_table().maps)
    if json_dicts and options.push_down:
        raise UsageError(
            f"option 'pushDown': members do not look into JSON, which the setting dicts of the map {options.map!r} asks for; leave it out"
        )
    return replace(options, json_dicts=json_dicts)


def with_key(options: SparkOptions) -> SparkOptions:
    """Return the options with the columns of the key that the map's schema names, where no option does."""
    if options.key_is_given:
        return options
    with connect(options) as client:
        schema = client.partition_table().maps.of(options.map).schema
    return replace(options, key=read_schema(schema).key or options.key) if schema else options


def value_reader(client: Client, options: SparkOptions) -> fallback.Read:
    """Return what deserialises the map's values. It fetches each schema of Compact objects from the cluster once for a process."""
    read = fallback.reader(json_dicts=options.json_dicts)

    def read_value(data: bytes) -> Any:
        try:
            return read(data)
        except UnknownSchema as error:
            return run_plan(read_again(client, None, error, lambda: read(data)), client)

    return read_value


@contextmanager
def connect(options: SparkOptions, founders: Collection[str] = ()) -> Iterator[Client]:
    """Connect to the cluster that the options name. Raises `ConnectError` if no member can be reached.

    `founders`: of the cluster with which the job began. Raises `TwoClusters` if another cluster answers now: a task
    would read from it, or write into it, beside tasks that use the first one.
    """
    with Client(options.members, cluster=options.cluster, secret_file=options.secret_file) as client:
        check_founders(options.cluster, founders, client.founders)
        yield client
