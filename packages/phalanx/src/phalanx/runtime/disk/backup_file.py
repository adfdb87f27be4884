"""The file BACKUP of a copy of a data folder: what it is a copy of, and when it was made. No member starts with a folder that has it (DU-23).

It is the first file that a backup gets, so that not even a part of one can be taken for a member's folder.
"""

from __future__ import annotations

import os
from typing import Final

import msgspec

from phalanx.common.errors import UsageError
from phalanx.runtime.disk.files import Files, read_small, write_new

NAME: Final = "BACKUP"


class BackupRecord(msgspec.Struct, frozen=True):
    """What BACKUP says."""

    of: str
    """The folder that was copied."""
    host: str
    """The machine on which that was."""
    made: str
    """When, by the clock of that machine."""
    cluster: str
    member: str
    """The incarnation that had written it last."""


def write_backup_record(files: Files, folder: int, record: BackupRecord) -> None:
    """Put BACKUP into a folder; when it returns, that is on the disk. Raises `OSError`."""
    write_new(files, folder, NAME, msgspec.json.encode(record) + b"\n")


def read_backup_record(files: Files, folder: int, path: str) -> BackupRecord | None:
    """Return what the BACKUP of a folder says; None: there is none. `path`: the folder's, for errors. Raises `UsageError`, `OSError`."""
    content = read_small(files, folder, NAME)
    if content is None:
        return None
    try:
        return msgspec.json.decode(content, type=BackupRecord)
    except msgspec.MsgspecError as error:
        raise UsageError(f"{os.path.join(path, NAME)} is broken ({error}): make another backup") from error


def refuse_backup(files: Files, folder: int, path: str) -> None:
    """Raise `UsageError` if a folder is a backup: a member that started with it would be one that is somewhere else, too."""
    record = read_backup_record(files, folder, path)
    if record is not None:
        raise UsageError(
            f"data_dir {path}: this is a backup of {record.of}, made {record.made}: make a folder of it with phalanx disk restore, and "
            "start the member with that"
        )
