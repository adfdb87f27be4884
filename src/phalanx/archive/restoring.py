"""From an archive into a cluster: each task stages the rows of some files, and the driver makes them the map's at once."""

from __future__ import annotations

import contextlib
import enum
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from phalanx.archive.exporting import Source
from phalanx.archive.folder import Folder
from phalanx.archive.manifest import ENTRY_SCHEMA, ArchivedMap, manifest_in, settings_of
from phalanx.client.ask import Inquirer, ask_any, find_master
from phalanx.client.staging import StagedAttempt, StagedRows, Staging, new_job_id
from phalanx.client.sync import Client
from phalanx.common.errors import PhalanxError, UsageError
from phalanx.common.map_settings import MapChange, MapSettings
from phalanx.common.words import counted

TTL_STEP_MS = 1_000
"""Entries whose times to live end within this are staged together: the later end counts for all of them."""
_STAGED = "attempt string, of int, pages array<int>, entries long, over long"


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
    spark: SparkSession,
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

    Each map is restored as a whole or not at all. Settings that differ are set first. An entry lives until the time at
    which it would have ended in the grid that it came from, to the second; with `restart_ttls` as long as it still had to
    live when it was exported. Raises `UsageError` if the archive is not whole, and before anything is written if maps
    exist and must not; `PhalanxError` if one cannot be restored: those that were told of are.
    """
    folder = Folder(spark, address)
    manifest = manifest_in(folder)
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
            entries = spark.read.parquet(folder.of(archived.folder))
            done.append(_restore(client, source, archived, entries, if_exists, late_ms))
            tell(done[-1])
    return done


def check_free(client: Client, chosen: Sequence[ArchivedMap]) -> None:
    """Raises `UsageError` if one of the maps has entries."""
    taken = sorted({each.name for each in chosen} & set(client.map_names()))
    if taken:
        more = f", and {len(taken) - 1} more of the archive's" if len(taken) > 1 else ""
        raise UsageError(
            f"there is a map {taken[0]!r} already{more}: give --append (IfExists.APPEND) to put into what it holds, or "
            "--replace (IfExists.REPLACE) to put the archive's entries in the place of all that"
        )


def _restore(
    client: Client, source: Source, archived: ArchivedMap, entries: DataFrame, if_exists: IfExists, late_ms: int
) -> Restored:
    name, job = archived.name, new_job_id()
    staging = Staging(client, name, job)

    def stage(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        attempt, put, over = uuid.uuid4().hex, 0, 0
        with source.connect() as own:
            staged = Staging(own, name, job).attempt(attempt)
            for batch in batches:
                left_out = _stage(staged, batch.cast(ENTRY_SCHEMA), late_ms)
                put, over = put + batch.num_rows - left_out, over + left_out
            rows = staged.staged()
        yield pa.RecordBatch.from_pydict(
            {
                "attempt": [attempt],
                "of": pa.array([rows.of], pa.int32()),
                "pages": pa.array([list(rows.pages)], pa.list_(pa.int32())),
                "entries": [put],
                "over": [over],
            }
        )

    try:
        told = entries.mapInArrow(stage, _STAGED).collect()
        found = sum(row.entries + row.over for row in told)
        if found != archived.entries:
            raise UsageError(
                f"map {name!r}: the archive's files hold {counted(found, 'entry', 'entries')}, and the manifest says {archived.entries}: "
                "files are missing, or do not belong to it"
            )
        attempts = sorted(StagedRows(row.attempt, row.of, tuple(row.pages)) for row in told)
        if if_exists is IfExists.REPLACE:
            staging.prepare_replace(attempts)
            staging.decide_replace()
        else:
            staging.apply(attempts)
    except BaseException:
        _give_up(staging)
        raise
    return Restored(name, sum(row.entries for row in told), sum(row.over for row in told))


def _give_up(staging: Staging) -> None:
    # What led here says more; what is staged goes by itself.
    with contextlib.suppress(PhalanxError):
        staging.abort()


def _stage(attempt: StagedAttempt, batch: pa.RecordBatch, late_ms: int) -> int:
    """Stage the entries whose time is not over; how many are left out."""
    keys, values = batch.column("key").to_pylist(), batch.column("value").to_pylist()
    ends = batch.column("expires_ms")
    if ends.null_count == len(ends):
        attempt.put_rows(keys, values)
        return 0
    left = np.asarray(ends.fill_null(0)) + late_ms - round(time.time() * 1000)
    mortal = np.asarray(ends.is_valid())
    # 0 stands for those that live for ever, -1 for those whose time is over.
    steps = np.where(mortal, np.where(left > 0, -(-left // TTL_STEP_MS), -1), 0)
    for step in np.unique(steps).tolist():
        if step >= 0:
            rows = np.flatnonzero(steps == step).tolist()
            attempt.put_rows([keys[row] for row in rows], [values[row] for row in rows], step * TTL_STEP_MS)
    return int((steps < 0).sum())


def _set(source: Source, name: str, wanted: MapSettings) -> None:
    """Give the map the settings, where the cluster has others."""
    members, cluster, secret = source.members, source.cluster, source.secret_file
    now = ask_any(members, cluster, Inquirer.placement, secret_file=secret).table.maps.of(name)
    different = [field for field in MapSettings.__struct_fields__ if getattr(now, field) != getattr(wanted, field)]
    if different:
        change = MapChange(**{field: getattr(wanted, field) for field in different})
        master = find_master(members, cluster, secret_file=secret)
        ask_any(master, cluster, lambda inquirer: inquirer.change_map(name, change), secret_file=secret)
