"""A log file that is rotated when it is large or old, and whose earlier parts are compressed.

    NAME.jsonl                             what is being written
    NAME.jsonl.20261124T093000.000123Z     an earlier part, until it is compressed
    NAME.jsonl.20261124T093000.000123Z.gz  an earlier part

A part is compressed under a name that no reader looks for, and takes its place when it is complete. If the process ends in
between, the uncompressed part stays and is read as well. No failure of a rotation loses a line: the file continues, and the
next attempt follows after as many bytes again.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import gzip
import os
import shutil
import time
import zlib
from pathlib import Path
from typing import Final

from phalanx.common.errors import UnavailableError, UsageError
from phalanx.net.begun_threads import begin_thread
from phalanx.reports.file_modes import open_private
from phalanx.runtime.logs.line_writer import LogFile
from phalanx.runtime.logs.safe_logger import SafeLogger

logger = SafeLogger("phalanx.member")

COMPRESSED: Final = ".gz"
UNFINISHED: Final = ".compressing"
"""The end of the name of a part that is being compressed."""
READINGS: Final = 10
"""How often a folder is read that changes meanwhile."""
STALE_S: Final = 3_600.0
"""An unfinished part that nobody has written to for so long is of a process that has ended."""


class RotatingLogFile(LogFile):
    """A `LogFile` of bounded size and age. Only the writer's thread uses it."""

    def __init__(self, path: Path, max_bytes: int, max_age_s: float, keep: int) -> None:
        """`max_bytes`, `max_age_s`: of one part, to the next line; 0: any. `keep`: earlier parts that are kept; 0: all."""
        super().__init__(path)
        self._max_bytes, self._max_age_s, self._keep = max_bytes, max_age_s, keep
        self._size = 0
        self._begun_at = 0.0
        """When the first line was written, by the wall clock."""
        self._try_at = 0
        """The size at which a rotation that failed is tried again."""

    def open(self) -> None:
        super().open()
        status = os.stat(self.path)
        self._size = status.st_size
        self._begun_at = status.st_mtime if self._size else time.time()
        self._try_at = 0

    def write(self, line: bytes | bytearray) -> None:
        super().write(line)
        self._size += len(line)
        is_large = 0 < self._max_bytes <= self._size
        is_old = 0 < self._max_age_s <= time.time() - self._begun_at
        if (is_large or is_old) and self._size >= self._try_at:
            self._rotate()

    def _rotate(self) -> None:
        stamp = dt.datetime.now(dt.UTC).strftime("%Y%m%dT%H%M%S.%fZ")
        part = self.path.with_name(f"{self.path.name}.{stamp}")
        try:
            os.rename(self.path, part)
        except OSError as error:
            self._try_at = self._size + max(self._max_bytes, 1)
            logger.warning("%s cannot be rotated, and grows: %s", str(self.path), error.strerror)
            return
        self.close()
        try:
            begin_thread(functools.partial(compress, part, self._keep), "event-log-compress")
        except UnavailableError as error:
            logger.warning("%s stays uncompressed: %s", str(part), error)


def read_logs(folder: Path) -> list[bytes]:
    """Return the content of all parts of the event logs in a folder, those of one file oldest first, none of them twice.

    Raises `UsageError` for a part that cannot be read.
    """
    for _ in range(READINGS):
        parts = _parts(folder)
        found = [_read(path) for path in parts]
        if None not in found and _parts(folder) == parts:
            break
        # A part began, or was compressed, while they were read: what was in it then can be missing, or be there twice.
    return [content for content in found if content is not None]


def _parts(folder: Path) -> list[Path]:
    found = [
        path for path in folder.glob("*.jsonl*") if path.suffix in (".jsonl", COMPRESSED) or ".jsonl." in path.name
    ]
    found = [path for path in found if path.suffix == COMPRESSED or not path.with_name(path.name + COMPRESSED).exists()]
    return sorted(found, key=lambda path: (path.name.partition(".jsonl")[0], path.suffix == ".jsonl", path.name))


def _read(path: Path) -> bytes | None:
    """Return the lines of a part; None: it is not there any more."""
    try:
        if path.suffix != COMPRESSED:
            return path.read_bytes()
        with gzip.open(path) as packed:
            return packed.read()
    except FileNotFoundError:
        return None
    except (OSError, EOFError, zlib.error) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error


def compress(part: Path, keep: int) -> None:
    """Compress an earlier part, and drop what is older than the `keep` newest ones of its file (0: nothing)."""
    unfinished = part.with_name(part.name.replace(".jsonl.", ".", 1) + UNFINISHED)
    try:
        with part.open("rb") as source, open(unfinished, "wb", opener=open_private) as raw:
            with gzip.open(raw, "wb") as packed:
                shutil.copyfileobj(source, packed, 1 << 20)
            raw.flush()
            os.fsync(raw.fileno())
        os.rename(unfinished, part.with_name(part.name + COMPRESSED))
        part.unlink()
    except OSError as error:
        logger.warning("%s stays uncompressed: %s", str(part), error.strerror)
        with contextlib.suppress(OSError):
            unfinished.unlink()
    with contextlib.suppress(OSError):
        _drop_old(part, keep)


def _drop_old(part: Path, keep: int) -> None:
    name = part.name.rpartition(".jsonl.")[0] + ".jsonl."
    parts = sorted(each for each in part.parent.iterdir() if each.name.startswith(name))
    for each in parts[:-keep] if keep else []:
        each.unlink(missing_ok=True)
    for each in part.parent.glob(f"*{UNFINISHED}"):
        if time.time() - each.stat().st_mtime > STALE_S:
            each.unlink(missing_ok=True)
