"""The file FAILED of a data folder: its disk has failed, so it can lack what was answered. No member starts with it before an operator says so.

It is written to a disk that has just failed, so perhaps it is not there. Then what was not synced is all the same a torn tail, or damage
(`disk/scanning.py`), because a start reads from the disk and not from its cache.
"""

from __future__ import annotations

import datetime as dt
import shlex
from typing import Final

import msgspec

from phalanx.common.errors import UsageError
from phalanx.runtime.disk.files import Files, read_small, write_new

NAME: Final = "FAILED"


class DiskFailure(msgspec.Struct, frozen=True):
    """What FAILED says."""

    why: str
    when: str
    """By the clock of the machine; "": not known."""


def write_failure(files: Files, folder: int, why: str) -> None:
    """Put FAILED into a folder that has none. Raises `OSError`, also if one is there: the first failure is the one that counts."""
    failure = DiskFailure(why, dt.datetime.now(dt.UTC).isoformat(timespec="seconds"))
    write_new(files, folder, NAME, msgspec.json.encode(failure) + b"\n")


def read_failure(files: Files, folder: int) -> DiskFailure | None:
    """Return the failure of the disk that a folder tells of; None: it tells of none. Raises `OSError`."""
    content = read_small(files, folder, NAME)
    if content is None:
        return None
    try:
        failure = msgspec.json.decode(content, type=DiskFailure)
    except msgspec.MsgspecError:
        return DiskFailure("nobody could write why", "")  # that the file is there is what counts
    return failure if (failure.why + failure.when).isprintable() else DiskFailure("nobody could write why", "")


def why_failed(failure: DiskFailure, path: str) -> str:
    """Say why no member starts with a folder, and what an operator can do."""
    when = f" at {failure.when}" if failure.when else ""
    return (
        f"its disk failed{when} ({failure.why}), so it can lack what was answered then. If other members have its data, start this one with "
        f"an empty folder. Else look at the disk, and say that what it has is used: phalanx disk repair {shlex.quote(path)}"
    )


def refuse_failed(files: Files, folder: int, path: str) -> None:
    """Raise `UsageError` if the disk of a folder has failed. Raises `OSError`."""
    failure = read_failure(files, folder)
    if failure is not None:
        raise UsageError(f"data_dir {path}: {why_failed(failure, path)}")
