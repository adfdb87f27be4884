"""Restore maps of an archive in a cluster: an engine stages the rows of its files, and then they become the map's at
once.
"""

from __future__ import annotations

import contextlib
import enum
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from phalanx.client.ask import Inquirer, ask_any, find_master
from phalanx.client.schemas import change_schema, with_written
from phalanx.client.staging import Staging, new_job_id
from phalanx.client.sync import Client
from phalanx.common.errors import PhalanxError, UsageError
from phalanx.common.map_schema import read_schema
from phalanx.common.map_settings import MapChange, MapSettings
from phalanx.common.words import counted
from phalanx_spark.archive.engine import Engine, engine_for
from phalanx_spark.archive.manifest import ArchivedMap, manifest_in, settings_of
from phalanx_spark.archive.source import Source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class IfExists(enum.Enum):
    """What to do where the map has entries already."""

    ERROR = "error"
    APPEND = "append"
    REPLACE = "replace"


@dataclass(frozen=True)
class Restored:
    """What became of one map."""

    name: str
    entries: int
    """Put into the map."""
    over: int
    """Left out: their time to live was over."""


def restore_maps(
    spark: SparkSession | None,
    source: Source,
    address: str,
    names: Sequence[str] = (),
    *,
    if_exists: IfExists = IfExists.ERROR,
    with_settings: bool = True,
    restart_ttls: bool = False,
    tell: Callable[[Restored], None] = lambda _: None,
) -> list[Restored]:
    """Bring maps of an archive (none named: all of them) into a cluster of any size; `tell` is called after each.

    `spark` does it with many tasks, from any file system that it knows; None: this process does, from a folder of its
    machine.

    Each map is restored as a whole or not at all. Settings that differ are set first. An entry expires at the time at
    which it would have expired in the grid that it came from, to the second; with `restart_ttls` it lives as long as it
    had left when it was exported. Raises `UsageError` if the archive is not whole, and before anything is written if
    maps exist and must not; `PhalanxError` if one cannot be restored: those with which `tell` was called are restored.
    """
    engine = engine_for(spark, address)
    manifest = manifest_in(engine.folder)
    chosen = manifest.chosen(names)
    wanted = {each.name: settings_of(each) for each in chosen} if with_settings else {}
    late_ms = round(time.time() * 1000) - manifest.exported_ms if restart_ttls else 0
    done: list[Restored] = []
    with source.connect() as client:
        if if_exists is IfExists.ERROR:
            check_free(client, chosen)
        for archived in chosen:
            if with_settings:
                _set(source, archived.name, wanted[archived.name])
            terms = _Terms(if_exists, late_ms, wanted[archived.name].schema if with_settings else None)
            done.append(_restore(engine, client, source, archived, terms))
            tell(done[-1])
    return done


def check_free(client: Client, chosen: Sequence[ArchivedMap]) -> None:
    """Raise `UsageError` if one of the maps has entries."""
    taken = sorted({each.name for each in chosen} & set(client.map_names()))
    if taken:
        more = f", and {len(taken) - 1} more of the archive's" if len(taken) > 1 else ""
        raise UsageError(
            f"there is a map {taken[0]!r} already{more}: give --append (IfExists.APPEND) to add the archive's entries, or "
            "--replace (IfExists.REPLACE) to replace all entries by them"
        )


class _Terms(NamedTuple):
    """How a map is brought back."""

    if_exists: IfExists
    late_ms: int
    schema: str | None
    """The schema that it had (empty: none), which comes with its rows; None: the one that is there stays."""


def _restore(engine: Engine, client: Client, source: Source, archived: ArchivedMap, terms: _Terms) -> Restored:
    name, job, schema = archived.name, new_job_id(), terms.schema
    staging = Staging(client, name, job)
    try:
        parts = engine.stage_entries(source, name, job, archived.folder, terms.late_ms)
        found = sum(part.entries + part.over for part in parts)
        if found != archived.entries:
            raise UsageError(
                f"map {name!r}: the archive's files hold {counted(found, 'entry', 'entries')}, and the manifest says {archived.entries}: "
                "files are missing, or do not belong to it"
            )
        attempts = sorted(part.rows for part in parts)
        if terms.if_exists is IfExists.REPLACE:
            staging.prepare_replace(attempts, schema=schema)
            staging.decide_replace()
        else:
            if schema:
                written = read_schema(schema)
                change_schema(client, name, lambda present: with_written(present, written, name).to_json())
            staging.apply(attempts)
    except BaseException:
        _give_up(staging)
        raise
    return Restored(name, sum(part.entries for part in parts), sum(part.over for part in parts))


def _give_up(staging: Staging) -> None:
    # The error that led here says more; what is staged expires.
    with contextlib.suppress(PhalanxError):
        staging.abort()


def _set(source: Source, name: str, wanted: MapSettings) -> None:
    """Give the map the settings of the archive that the cluster does not have. The map's schema comes with its rows."""
    members, cluster, secret = source.members, source.cluster, source.secret_file
    now = ask_any(members, cluster, Inquirer.placement, secret_file=secret).table.maps.of(name)
    fields = [field for field in MapSettings.__struct_fields__ if field != "schema"]
    different = [field for field in fields if getattr(now, field) != getattr(wanted, field)]
    if different:
        change = MapChange(**{field: getattr(wanted, field) for field in different})
        master = find_master(members, cluster, secret_file=secret)
        ask_any(master, cluster, lambda inquirer: inquirer.change_map(name, change), secret_file=secret)
