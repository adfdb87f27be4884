"""Read JSON lines of this machine without Spark, also where Spark runs: Arrow's parser, on as many threads, writes the
tables of events that `reading` would.

Only lines that Arrow parses as they are are taken: they begin and end as objects, and each field has the type that the
schema says. A chunk that holds another line is halved, until few lines are left. Spark gets these with their numbers:
what is bad, and why, is decided in one place.
"""

from __future__ import annotations

import gzip
import io
import re
import zlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
import pyarrow.parquet as pq

from phalanx_spark.audit.scratch import FAMILIES, OTHERS

NAMED_HERE = "here-"
"""The prefix of the names of files that this module writes."""
CHUNK_BYTES = 8_000_000
KEPT_BYTES = 100_000_000
"""The most bytes of tables that a thread keeps before it writes them."""
FEW_LINES = 64
DOUBTFUL = pa.schema({"log": pa.string(), "block": pa.int64(), "id": pa.int64(), "text": pa.string()})
COUNTED = ("history", "member", "log", "first", "lines", "oldest", "newest")
"""Columns of the counts of a member's lines in a piece: of all families but `OTHERS`, whose lines are read one by one."""

_KINDS, _NAMES = pa.array(FAMILIES), pa.array(FAMILIES.values())
_DAMAGE = (OSError, EOFError, zlib.error)
_NUMBER_AS_TEXT = re.compile(rb'"before":(\d+)')


def is_readable(path: str) -> bool:
    """Return whether a file is of a kind that is read here: plain, or gzip."""
    return not path.endswith((".bz2", ".deflate", ".lz4", ".snappy", ".zst", ".zstd", ".xz", ".parquet"))


def read_here(paths: Sequence[Path], root: Path, fields: pa.Schema, threads: int) -> list[str]:
    """Write under `root` the `events` of files by family, the counts of lines by member (`counted`), and the `doubtful`
    lines apart.

    Return what is damaged; damage ends only its own file.
    """
    shares: list[list[Path]] = [[] for _ in range(threads)]
    sizes = [0] * threads
    for path in sorted(paths, key=lambda each: (-each.stat().st_size, each)):
        least = sizes.index(min(sizes))
        shares[least].append(path)
        sizes[least] += path.stat().st_size * (10 if path.suffix == ".gz" else 1)
    workers = [_Reader(number, root, fields) for number in range(threads)]
    with ThreadPoolExecutor(threads) as pool:
        return [damage for each in pool.map(_Reader.read, workers, shares) for damage in each]


def _chunks(file: gzip.GzipFile | io.BufferedReader) -> Iterator[bytes]:
    """Yield whole lines, also those before damage, which is raised after them."""
    held = bytearray()
    try:
        while more := file.read1(CHUNK_BYTES):
            held += more
            if len(held) >= CHUNK_BYTES and (end := held.rfind(b"\n") + 1):
                yield bytes(held[:end])
                del held[:end]
    except _DAMAGE:
        yield bytes(held[: held.rfind(b"\n") + 1])
        raise
    yield bytes(held)


class _Reader:
    """One thread: the tables that it has not written yet, by the folder that they go to."""

    def __init__(self, number: int, root: Path, fields: pa.Schema) -> None:
        self._number, self._root = number, root
        self._parsing = pj.ParseOptions(explicit_schema=fields, unexpected_field_behavior="ignore")
        self._tables: dict[Path, list[pa.Table]] = defaultdict(list)
        self._bytes = self._written = 0

    def read(self, paths: Sequence[Path]) -> list[str]:
        damage = []
        for path in paths:
            count, log = 0, path.as_uri()
            try:
                with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
                    for chunk in _chunks(file):
                        lines = chunk.splitlines()
                        self._take(log, lines, count + 1)
                        count += len(lines)
            except _DAMAGE as error:
                damage.append(f"{path}: {error}")
        self._write()
        return damage

    def _take(self, log: str, lines: list[bytes], first: int) -> None:
        """Parse lines of a file, or leave them to Spark. `first`: the number of the first line."""
        table = self._parsed(lines) if lines else None
        if table is not None:
            self._take_table(log, lines, first, table)
        elif len(lines) <= FEW_LINES:
            self._leave(log, [(first + at, line) for at, line in enumerate(lines)])
        else:
            half = len(lines) // 2
            self._take(log, lines[:half], first)
            self._take(log, lines[half:], first + half)

    def _parsed(self, lines: list[bytes]) -> pa.Table | None:
        """Parse lines into a table with one row for each; None if a line is not as it should be.

        JSON that begins and ends with braces cannot continue in the next line: two lines never make one row. So if
        there are as many rows as lines, each row is one line.
        """
        if not all(line[:1] == b"{" and line[-1:] == b"}" for line in lines):
            return None
        # Two fields have one type in the kinds of events that are looked at, and another one in other kinds.
        data = b"\n".join(lines).replace(b'"removed":[', b'"removed_":[')
        data = _NUMBER_AS_TEXT.sub(rb'"before":"\1"', data)
        reading = pj.ReadOptions(use_threads=False, block_size=len(data) + 1)
        try:
            if not data.isascii():
                data.decode()
            table = pj.read_json(pa.BufferReader(data), reading, self._parsing)
        except (pa.ArrowException, UnicodeDecodeError):
            return None
        return table if table.num_rows == len(lines) else None

    def _take_table(self, log: str, lines: list[bytes], first: int, table: pa.Table) -> None:
        count = table.num_rows
        table = table.append_column("id", pa.array(range(first, first + count), pa.int64()))
        table = table.append_column("block", pa.repeat(pa.scalar(0, pa.int64()), count))
        table = table.append_column("log", pa.repeat(log, count))
        table = table.append_column("history", table["cluster"]).drop_columns(["cluster"])
        whole = pc.is_valid(table["history"])
        for name in ("at", "member", "event"):
            whole = pc.and_(whole, pc.is_valid(table[name]))
        if not pc.all(whole).as_py():
            left = table.filter(pc.invert(whole))["id"].to_pylist()
            self._leave(log, [(number, lines[number - first]) for number in left])
            table = table.filter(whole)
        families = pc.fill_null(pc.take(_NAMES, pc.index_in(table["event"], _KINDS)), OTHERS)
        for family in sorted(pc.unique(families).to_pylist()):
            self._keep(self._root / "events" / f"family={family}", table.filter(pc.equal(families, family)))
        many = table.filter(pc.not_equal(families, OTHERS)).group_by(["history", "member", "log"])
        counts = many.aggregate([("id", "min"), ("id", "count"), ("at", "min"), ("at", "max")])
        if counts.num_rows:
            self._keep(self._root / "counted", counts.rename_columns(COUNTED))
        if self._bytes > KEPT_BYTES:
            self._write()

    def _leave(self, log: str, lines: list[tuple[int, bytes]]) -> None:
        rows = [{"log": log, "block": 0, "id": number, "text": line.decode(errors="replace")} for number, line in lines]
        self._keep(self._root / "doubtful", pa.Table.from_pylist(rows, DOUBTFUL))

    def _keep(self, folder: Path, table: pa.Table) -> None:
        """Keep a table without its empty columns: each family has only a few."""
        table = table.select([name for name in table.column_names if table[name].null_count < table.num_rows])
        self._tables[folder].append(table)
        self._bytes += table.nbytes

    def _write(self) -> None:
        for folder, tables in self._tables.items():
            folder.mkdir(parents=True, exist_ok=True)
            whole = pa.concat_tables(tables, promote_options="default")
            pq.write_table(whole, folder / f"{NAMED_HERE}{self._number}-{self._written}.parquet")
        self._tables.clear()
        self._bytes, self._written = 0, self._written + 1
