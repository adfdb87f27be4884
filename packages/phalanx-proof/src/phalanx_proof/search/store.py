"""What a search keeps: one row of each history and the events of failing ones, in Parquet, in one folder.

    DIR/results/part-….parquet    a row for each history; written beside, then renamed: a file is whole or is not there
    DIR/traces/….parquet          the events of failing histories, in the columns that the audit reads
    DIR/failing/….json            shrunk histories, for `phalanx simulate --replay`

The driver writes, so executors need no folder that they share. A history is known by code, profile, canary, settings and
seed: each of them is a column, so that other configurations, and other versions of the code, stand side by side and are
told apart; what is reported is of one code only. A history that is there is not played again. One search writes into a
folder at a time: it holds a lock, which ends with its process.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from phalanx.common.errors import UsageError
from phalanx.common.invariant import known
from phalanx.reports.trace_rows import TRACE_COLUMNS, TraceRow
from phalanx_proof.search.work import SearchRow, history_name
from phalanx_proof.sim.options import Profile
from phalanx_proof.sim.schedule import Schedule, write_schedule
from phalanx_proof.sim.settings import Configuration, Value

FLUSH_EVERY_S = 20.0
"""What is lost with the driver's process at most, and how many files there are."""
FLUSH_ROWS = 50_000
COUNTS = pa.map_(pa.string(), pa.int64())
ROW_FIELDS: list[tuple[str, Any]] = [
    ("seed", pa.int64()), ("digest", pa.string()), ("violations", pa.int32()), ("violated", pa.string()),
    ("violated_at_ms", pa.int64()), ("story", pa.string()), ("simulated_ms", pa.int64()), ("healed_after_ms", pa.int64()),
    ("operations", pa.int64()), ("messages", pa.int64()), ("inputs", pa.int64()), ("cpu_s", pa.float64()),
    ("mass_join_versions", pa.int64()), ("detected_after_ms", pa.list_(pa.int64())), ("rules", COUNTS), ("events", COUNTS),
    ("faults", COUNTS), ("outcomes", COUNTS), ("counts", COUNTS),
]  # fmt: skip
KEY_FIELDS = ("code", "profile", "canary", "configuration")
_TRACE_TYPES = {"string": pa.string(), "bigint": pa.int64()}

Played = tuple[Configuration, SearchRow]


class Store:
    """The rows of one search; without a folder they are kept in memory, and gone with it."""

    def __init__(self, folder: Path | None, code: str, canary: str) -> None:
        self._folder = folder
        self._code = code
        self._canary = canary
        self._waiting: list[Played] = []
        self._tables: list[pa.Table] = []
        self._flushed_at = time.monotonic()
        self._lock: IO[bytes] | None = None
        self.warnings: list[str] = []
        self.of_other_code = 0
        """Histories in the folder that were played with other code: they are left alone, and not reported."""
        if folder is not None:
            self._open(folder)

    # --- opening ----------------------------------------------------------------------------------------------------

    def _open(self, folder: Path) -> None:
        try:
            for each in ("results", "traces", "failing"):
                (folder / each).mkdir(parents=True, exist_ok=True)
            self._lock = (folder / ".lock").open("wb")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for unfinished in folder.glob("*/.*.writing"):
                unfinished.unlink()
        except BlockingIOError:
            raise UsageError(f"--out: another search writes into {folder} at this moment: wait for it") from None
        except OSError as error:
            raise UsageError(f"--out: cannot write into {folder}: {error.strerror}") from error

    def present(self) -> dict[tuple[Profile, str], set[int]]:
        """Return the seeds that are there with this code and canary, by profile and settings."""
        found: dict[tuple[Profile, str], set[int]] = {}
        for table in self._read([*KEY_FIELDS, "seed"], of_any_code=True):
            own = table.filter(self._mine())
            self.of_other_code += table.num_rows - table.filter(pc.field("code") == self._code).num_rows
            for profile, label in dict.fromkeys(
                zip(*(own[n].to_pylist() for n in ("profile", "configuration")), strict=True)
            ):
                of_one = own.filter((pc.field("profile") == profile) & (pc.field("configuration") == label))
                found.setdefault((Profile(profile), label), set()).update(of_one["seed"].to_pylist())
        return found

    def _mine(self) -> Any:
        return (pc.field("code") == self._code) & (pc.field("canary") == self._canary)

    def _read(self, columns: Sequence[str], *, of_any_code: bool = False) -> Iterator[pa.Table]:
        """Read file by file. One that cannot be read counts as not written: it is put aside, with a warning."""
        for path in sorted((self._folder / "results").glob("part-*.parquet")) if self._folder is not None else []:
            try:
                table = pq.read_table(path, columns=list(dict.fromkeys([*KEY_FIELDS, *columns])), partitioning=None)
            except (pa.ArrowException, OSError) as error:
                aside = path.with_name(f".unreadable-{path.name}")
                path.rename(aside)
                self.warnings.append(f"{path} cannot be read ({str(error)[:80]}): its histories count as not played")
                continue
            yield table if of_any_code else table.filter(self._mine())
        for table in self._tables:
            yield table.select([n for n in table.column_names if n in {*KEY_FIELDS, *columns}])

    def rows(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Read some columns of all histories with this code and canary, and the columns that say which histories they are."""
        self.flush()
        return self._read(columns)

    # --- results ----------------------------------------------------------------------------------------------------

    def add(self, configuration: Configuration, rows: Sequence[SearchRow]) -> None:
        """Add histories that were played. They are on disk after `FLUSH_EVERY_S`, or by `flush`."""
        self._waiting += [(configuration, row) for row in rows]
        if len(self._waiting) >= FLUSH_ROWS or time.monotonic() - self._flushed_at >= FLUSH_EVERY_S:
            self.flush()

    def flush(self) -> None:
        """Write what waits. Raises `UsageError` when the disk does not take it."""
        waiting, self._waiting = self._waiting, []
        self._flushed_at = time.monotonic()
        by_columns: dict[tuple[str, ...], list[Played]] = {}
        for each in waiting:
            by_columns.setdefault(tuple(name for name, _ in each[0].settings), []).append(each)
        for played in by_columns.values():
            table = self._table(played)
            if self._folder is None:
                self._tables.append(table)
            else:
                name = f"part-{time.time_ns() // 1_000_000}-{uuid4().hex[:8]}.parquet"
                _write_whole(self._folder / "results" / name, table)

    def _table(self, played: list[Played]) -> pa.Table:
        count = len(played)
        columns: dict[str, Any] = {
            "code": pa.array([self._code] * count, pa.string()),
            "profile": pa.array([str(each.profile) for each, _ in played], pa.string()),
            "canary": pa.array([self._canary] * count, pa.string()),
            "configuration": pa.array([each.label for each, _ in played], pa.string()),
        }
        for name, kind in ROW_FIELDS:
            values = [getattr(row, name) for _, row in played]
            columns[name] = pa.array([list(v.items()) for v in values] if kind is COUNTS else values, kind)
        for index, (name, _) in enumerate(played[0][0].settings):
            column = name if name not in columns else f"set_{name}"
            columns[column] = pa.array([_scalar(each.settings[index][1]) for each, _ in played])
        return pa.table(columns)

    # --- failing histories ------------------------------------------------------------------------------------------

    def has_trace(self, configuration: Configuration, seed: int) -> bool:
        return self._folder is not None and self._trace_path(configuration, seed).exists()

    def add_trace(self, configuration: Configuration, seed: int, rows: Sequence[TraceRow]) -> None:
        """Write the events of a failing history."""
        if self._folder is None:
            return
        columns = {
            name: pa.array([getattr(row, name) for row in rows], _TRACE_TYPES[kind])
            for name, kind in TRACE_COLUMNS.items()
        }
        facts = {"code": self._code, "profile": str(configuration.profile), "canary": self._canary,
                 "configuration": configuration.label}  # fmt: skip
        for name, value in facts.items():
            columns[name] = pa.array([value] * len(rows), pa.string())
        columns["seed"] = pa.array([seed] * len(rows), pa.int64())
        _write_whole(self._trace_path(configuration, seed), pa.table(columns))

    def add_schedule(self, configuration: Configuration, seed: int, schedule: Schedule) -> Path | None:
        """Write a shrunk history that can be replayed, and return where it is."""
        if self._folder is None:
            return None
        path = self._folder / "failing" / f"{self._file_name(configuration, seed)}.json"
        write_schedule(path, schedule)
        return path

    def find_schedule(self, configuration: Configuration, seed: int) -> Path | None:
        """Find the shrunk history of a seed from an earlier search with the same code."""
        if self._folder is None:
            return None
        path = self._folder / "failing" / f"{self._file_name(configuration, seed)}.json"
        return path if path.exists() else None

    def _trace_path(self, configuration: Configuration, seed: int) -> Path:
        folder = known(self._folder, "traces are kept in a folder")
        return folder / "traces" / f"{self._file_name(configuration, seed)}.parquet"

    def _file_name(self, configuration: Configuration, seed: int) -> str:
        """Return a readable name, another one for each history and version of the code."""
        name = history_name(configuration, seed, self._canary)
        digest = hashlib.blake2b(f"{self._code} {name}".encode(), digest_size=4).hexdigest()
        return re.sub(r"[^A-Za-z0-9]+", "-", name)[:80] + f"-{digest}"

    def close(self) -> None:
        """Write what waits, and let others write."""
        try:
            self.flush()
        finally:
            if self._lock is not None:
                self._lock.close()
                self._lock = None


def _scalar(value: Value) -> int | float | str | bool:
    return "-".join(map(str, value)) if isinstance(value, tuple) else value


def _write_whole(path: Path, table: pa.Table) -> None:
    beside = path.with_name(f".{path.name}.writing")
    try:
        with beside.open("wb") as file:
            pq.write_table(table, file, compression="zstd")
            file.flush()
            os.fsync(file.fileno())
        beside.rename(path)
    except OSError as error:
        raise UsageError(f"--out: cannot write {path}: {error.strerror}") from error


def decoded_counts(column: pa.ChunkedArray) -> pa.Table:
    """Return the entries of a column of counts: `row` (which of the column), `key`, `value`."""
    rows, keys, values = [], [], []
    before = 0
    for chunk in column.chunks:
        as_list = chunk.cast(pa.list_(pa.struct([("key", pa.string()), ("value", pa.int64())])))
        entries = pc.list_flatten(as_list)
        rows.append(pc.add(pc.list_parent_indices(as_list).cast(pa.int64()), before))
        keys.append(pc.struct_field(entries, "key"))
        values.append(pc.struct_field(entries, "value"))
        before += len(chunk)
    return pa.table(
        {
            "row": pa.chunked_array(rows, pa.int64()),
            "key": pa.chunked_array(keys, pa.string()),
            "value": pa.chunked_array(values, pa.int64()),
        }
    )
