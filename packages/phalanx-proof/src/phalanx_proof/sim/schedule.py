"""A history in a file: all that it depends on, besides the code. It can be played again without a seed.

No seed draws a shrunk history: its file is the only way to it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from phalanx.common.errors import UsageError
from phalanx.common.words import quoted
from phalanx_proof.sim.options import HistoryOptions
from phalanx_proof.sim.planted_bug import load_planted_bug


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the file."""

    kind: Literal["phalanx schedule"] = "phalanx schedule"
    version: Literal[1] = 1
    code: str
    """Digest of the code with which it was played: with other code it can be another history."""
    canary: str = ""
    """The planted bug, as `load_planted_bug` takes it; empty: none."""
    violation: str = ""
    """The property that it violated; empty: none."""
    digest: str
    shrunk: bool = False
    options: HistoryOptions


def write_schedule(path: Path, schedule: Schedule) -> None:
    """Write a schedule. Raises `UsageError` where the file cannot be written."""
    try:
        path.write_bytes(msgspec.json.format(msgspec.json.encode(schedule)) + b"\n")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error


def read_schedule(path: Path, canary: str = "") -> Schedule:
    """Read and check a schedule. Raises `UsageError` with what is wrong in the file.

    `canary`: the planted bug that it must have. The file can come from anybody, and a bug is a module that is imported: so the
    file alone does not choose it.
    """
    try:
        schedule = msgspec.json.decode(path.read_bytes(), type=Schedule)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except msgspec.MsgspecError as error:
        raise UsageError(f"{path} is not a schedule that this version can play: {error}") from error
    options = schedule.options
    if schedule.canary != canary:
        played = f"with the planted bug {quoted(schedule.canary)}" if schedule.canary else "without a planted bug"
        do = (
            f"give --canary {schedule.canary}, if its module is allowed to run here"
            if schedule.canary
            else "leave out --canary"
        )
        raise UsageError(f"{path}: it was played {played}: {do}")
    try:
        load_planted_bug(schedule.canary)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error
    try:
        for host in range(options.hosts):
            options.node_config(host)
    except (UsageError, TypeError, IndexError) as error:
        raise UsageError(f"{path}: its options do not fit: {error}") from error
    if not 1 <= options.members <= options.hosts or len(options.start_at_ms) != options.members:
        raise UsageError(f"{path}: its options do not fit: of {options.hosts} hosts {options.members} start")
    return schedule
