"""The file STORE of a data folder: the identity of what is in it, and how often a process has started with it.

    {"format":1,"store":"7f3a…","created":"2026-11-27T10:00:00+00:00","start":3}
    crc32 9a0c44e1

It is written beside, synced and renamed, so it is whole whenever a process or a machine ends. Each start raises the number and syncs it
before the process does anything else: whoever knows a greater number of this store knows that the folder is an old copy (DU-22).
"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import re
import zlib
from collections.abc import Sized
from typing import Final

import msgspec

from phalanx.common.errors import UsageError
from phalanx.runtime.disk.files import Files, read_small, write_whole

NAME: Final = "STORE"
UNFINISHED: Final = "STORE.tmp"
FORMAT: Final = 1
"""The format of the data folder: of this file, and of the names of all others."""
ID_BYTES: Final = 16
_ID: Final = re.compile(r"[0-9a-f]{32}")


class StoreRecord(msgspec.Struct, frozen=True):
    """What STORE says."""

    format: int
    store: str
    """The identity of the folder: 128 random bits as hexadecimal digits."""
    created: str
    """When, by the clock of the machine."""
    start: int
    """How often a process has started with this folder, the present one included."""
    log: str = ""
    """The identity in the folder's log, where the folder was restored from a backup: that of the folder which wrote it; empty: its own."""
    founder: str = ""
    """Who founded the cluster of that backup; empty: the folder was not restored."""
    restored_founder: str = ""
    """Who counts as the founder instead."""
    repaired: int = 0
    """The last start before an operator repaired the folder: what was written until then can have gone on behind its end; 0: never."""
    cut: int = 0
    """The last start before the log was cut off before damage; 0: it was not. Until then it does not know what it promised afterwards."""
    has_log: bool = False
    """Whether there was a segment: where none is any more, the log is lost, and the folder is none that was never written to."""

    @property
    def log_id(self) -> bytes:
        """Return the identity that the heads of its segments have."""
        return bytes.fromhex(self.log or self.store)


class _Format(msgspec.Struct):
    """The only thing that STORE says in every format."""

    format: int


def new_store() -> StoreRecord:
    """Return the identity of a folder that is used for the first time, before its first start."""
    return StoreRecord(FORMAT, os.urandom(ID_BYTES).hex(), dt.datetime.now(dt.UTC).isoformat(timespec="seconds"), 0)


def encode_store(store: StoreRecord) -> bytes:
    """Return the content of STORE."""
    line = msgspec.json.encode(store)
    return b"%b\ncrc32 %08x\n" % (line, zlib.crc32(line))


def decode_store(content: bytes, place: str) -> StoreRecord:
    """Return what STORE says. `place`: its path, for the error. Raises `UsageError` if it is broken or of a newer release."""
    line, _, rest = content.partition(b"\n")
    if rest != b"crc32 %08x\n" % zlib.crc32(line):
        raise UsageError(f"{_broken(place)}")
    try:
        known = msgspec.json.decode(line, type=_Format).format
        if known != FORMAT:
            raise UsageError(
                f"data_dir: {place} has format {known}, and this release of Phalanx reads format {FORMAT}: start the release that wrote it"
            )
        store = msgspec.json.decode(line, type=StoreRecord)
    except msgspec.MsgspecError as error:
        raise UsageError(f"{_broken(place)} ({error})") from error
    ids = (store.store, store.log or store.store)
    texts = store.created + store.founder + store.restored_founder
    if not all(map(_ID.fullmatch, ids)) or min(store.start, store.repaired, store.cut) < 0 or not texts.isprintable():
        raise UsageError(_broken(place))
    return store


def refuse_lost_log(store: StoreRecord, segments: Sized, path: str) -> None:
    """Raise `UsageError` if the folder at `path` has none of its segments any more."""
    if store.has_log and not segments:
        raise UsageError(
            f"data_dir {path}: its log is gone: there is no segment, and there was one: put the segments back from a backup of the folder, "
            "or move the folder away and let the other members give this one its data"
        )


def _broken(place: str) -> str:
    return (
        f"data_dir: {place}, which says whose data this is, is broken: put back that file from a backup of the folder, or move the "
        "folder away and let the other members give this one its data"
    )


def read_store(files: Files, folder: int, path: str) -> StoreRecord | None:
    """Return what the STORE of a folder says; None: there is none. `path`: the folder's, for errors.

    Raises `UsageError` if it is broken, and `OSError`.
    """
    content = read_small(files, folder, NAME)
    return decode_store(content, os.path.join(path, NAME)) if content is not None else None


def write_store(files: Files, folder: int, store: StoreRecord) -> None:
    """Put STORE into its folder, in place of the present one. When it returns, that is on the disk. Raises `OSError`."""
    descriptor = files.open(folder, UNFINISHED, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        write_whole(files, descriptor, encode_store(store), 0)
        files.sync(descriptor)
    except OSError:
        files.close(descriptor)
        with contextlib.suppress(OSError):
            files.unlink(folder, UNFINISHED)
        raise
    files.close(descriptor)
    files.rename(folder, UNFINISHED, NAME)
    files.sync(folder)
