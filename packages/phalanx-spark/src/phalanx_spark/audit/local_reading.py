"""Reads event logs of this machine for the audit by this process, as `reading` does for Spark: the same events, lines and notes."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from phalanx.common.errors import UsageError
from phalanx_spark.audit.arrow_types import arrow_schema
from phalanx_spark.audit.lives import PIECES
from phalanx_spark.audit.local_engine import LocalEngine, LocalTable
from phalanx_spark.audit.local_runner import is_readable, read_here
from phalanx_spark.audit.reading import (
    DAMAGED,
    ENVELOPE,
    FIELDS,
    MOST_BAD_LINES,
    SHOWN_CHARACTERS,
    BadLine,
    Reading,
    copies_note,
    files_here,
    no_event_log,
    nothing_read,
    shown_log,
)
from phalanx_spark.audit.scratch import FAMILIES, OTHERS

LITTLE_BYTES: Final = 64 * 1024 * 1024
"""With fewer bytes of logs this process has judged them before Spark would have started."""
_COMPRESSED: Final = 10
"""A file that is compressed holds about so many times its bytes."""
_THREADS: Final = 2
_READ: Final = arrow_schema(f"{ENVELOPE}, {FIELDS}")
_PLACES: Final = arrow_schema(
    "history string, log string, block bigint, id bigint, family string, bad string, text string"
)
_WHOLE: Final = pa.schema([*_PLACES, *(field for field in _READ if field.name != "cluster")])


def is_little(folder: Path) -> bool:
    """Return whether a folder has logs that this process reads soon, and no other files."""
    sizes = {Path(path.removeprefix("file:")): size for path, size in files_here(folder).items()}
    weights = (size * (_COMPRESSED if path.suffix == ".gz" else 1) for path, size in sizes.items())
    return all(is_readable(str(path)) for path in sizes) and sum(weights) <= LITTLE_BYTES


def read_locally(engine: LocalEngine, folder: str) -> Reading:
    """Read all events of a folder. Raises `UsageError` if there are none, or a file of a kind that only Spark reads."""
    files = files_here(Path(folder))
    if not files:
        raise no_event_log(folder)
    paths = [Path(path.removeprefix("file://")) for path, size in files.items() if size]
    if others := [path for path in paths if not is_readable(str(path))]:
        raise UsageError(f"{others[0]} can only be read by Spark: --spark local[2]")
    if not paths:
        raise UsageError(f"{folder}: its {len(files)} event logs are empty")
    with tempfile.TemporaryDirectory(prefix="phalanx-audit-", ignore_cleanup_errors=True) as root:
        notes = [f"{DAMAGED}: {each}" for each in read_here(paths, Path(root), _READ, _THREADS)]
        parsed = engine.table(
            pa.concat_tables(
                [_WHOLE.empty_table(), *_parsed(Path(root)), _judged(Path(root))], promote_options="default"
            )
        )
    pieces = engine.sql(
        PIECES,
        parsed=parsed,
    )
    bad = engine.sql(
        f"select log, id, bad, text from {{p}} where bad is not null order by log, id limit {MOST_BAD_LINES}", p=parsed
    )
    bad_lines = tuple(BadLine(shown_log(row.log, folder), row.id, row.bad, row.text) for row in bad.collect())
    counts = engine.sql("select sum(bad) as bad, sum(good) as good from {p}", p=pieces).collect()[0]
    if not counts.good:
        raise nothing_read(folder, counts.bad, bad_lines)
    events = engine.sql(
        """
        select e.* except (bad, text, block, id), id as line, begins as place
        from {parsed} e join (select log as of, min(begins) as begins from {p} group by log) on of = log
        where bad is null and event is not null
        """,
        parsed=parsed, p=pieces,
    )  # fmt: skip
    once = _once(engine, events)
    copies = int(counts.good) - engine.rows(f"select count(*) as events from {once.name}")[0].events
    if copies:
        notes.append(copies_note(copies))
    empty = tuple(shown_log(path, folder) for path, size in files.items() if not size)
    return Reading(once, pieces, len(files), int(counts.good) - copies, int(counts.bad), bad_lines, empty, tuple(notes))


def _parsed(root: Path) -> Iterator[pa.Table]:
    """Yield the tables of lines that are as they should be."""
    for path in sorted(root.glob("events/family=*/*.parquet")):
        table = pq.ParquetFile(path).read()
        yield table.append_column("family", pa.repeat(path.parent.name.removeprefix("family="), table.num_rows))


def _judged(root: Path) -> pa.Table:
    """Return the other lines, each with its fields or the reason why it is not an event."""
    rows = [row for path in sorted(root.glob("doubtful/*.parquet")) for row in pq.ParquetFile(path).read().to_pylist()]
    return pa.Table.from_pylist([{**row, **judge(row["text"])} for row in rows], _WHOLE)


def judge(text: str) -> dict[str, Any]:
    """Return the fields of a line, and in `bad` why it is not an event, with its `text`; a blank line has neither."""
    if not text.strip():
        return {"text": None}
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        found = None
    fields = found if isinstance(found, dict) else {}
    values = {field.name: _fitting(fields.get(field.name), field.type) for field in _READ}
    is_damaged = not isinstance(found, dict) or any(value is _OTHER for value in values.values())
    values = {name: None if value is _OTHER else value for name, value in values.items()}
    missing = [name for name in ("at", "cluster", "member", "event") if values[name] is None]
    bad = ""
    if is_damaged:
        bad = (
            "a field has another type than the schema says"
            if values["event"]
            else "it is not a JSON object of an event"
        )
    elif missing:
        bad = f"it lacks: {', '.join(missing)}"
    history, event = values.pop("cluster"), values["event"]
    family = FAMILIES.get(event or "", OTHERS)
    verdict = {"bad": bad, "text": text[:SHOWN_CHARACTERS]} if bad else {"bad": None, "text": None}
    return {"history": history, "family": family, **values, **verdict}


_OTHER: Final = object()
"""A value of another type."""


def _fitting(value: Any, kind: pa.DataType) -> Any:
    """Return a value as one of this type, as Spark reads JSON: text is anything."""
    if value is None:
        return None
    if pa.types.is_string(kind):
        return value if isinstance(value, str) else msgspec.json.encode(value).decode()
    if pa.types.is_boolean(kind):
        return value if isinstance(value, bool) else _OTHER
    if pa.types.is_list(kind):
        if not isinstance(value, list):
            return _OTHER
        items = [_fitting(each, kind.value_type) for each in value]
        return _OTHER if any(each is _OTHER for each in items) else items
    bits = kind.bit_width - 1
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value if is_number and -(2**bits) <= value < 2**bits else _OTHER


def _once(engine: LocalEngine, events: LocalTable) -> LocalTable:
    """Return the events without lines that another file of the same member repeats.

    An event that a member recorded several times in one millisecond is several times in each file.
    """
    content = ", ".join(f'"{field.name}"' for field in _WHOLE if field.name not in (*_PLACES.names, "member"))
    return engine.run(
        f"""
        select * exclude (nth, file) from (
            select *, row_number() over (partition by history, member, {content}, nth order by place, log) as file from (
                select *, row_number() over (partition by history, member, {content}, log order by line) as nth from {events.name}
            )
        ) where file = 1
        """
    )
