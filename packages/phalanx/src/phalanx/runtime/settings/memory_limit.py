"""The setting `memory_limit`: what it means, and how much memory this process can have at all.

The system's limit is that of the control group of this process (v2 `memory.max`, v1 `memory.limit_in_bytes`), also one of
a group above it, or else the memory of the machine.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

from phalanx.common.errors import UsageError
from phalanx.common.words import quoted

DEFAULT = "80%"
LEAST_BYTES = 16 * 1024 * 1024
"""A process without data has more than this."""
SYSTEM_PART = 0.95
"""The part of what the system allows that can be in memory, with what is free inside of the process."""
_UNITS = {
    "": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40,
}  # fmt: skip
_TEXT = re.compile(r"(\d{1,18}(?:\.\d{1,9})?)\s*([A-Za-z]*|%)")
FILES_OF_CGROUPS = Path("/sys/fs/cgroup")


class MemoryLimits(NamedTuple):
    """How much memory a member can use."""

    limit: int
    """The bytes from which on it refuses what grows it; 0: there is no limit."""
    ceiling: int
    """The most bytes that can be in memory, with what is free inside of the process."""


def check_memory_limit(given: object) -> tuple[float, bool]:
    """Return the number of a setting, and whether it is a percentage. Raises `UsageError` if it means nothing."""
    wanted = "give bytes, a size such as '2GiB', or a part of this machine's memory such as '80%'; 0 turns it off"
    if isinstance(given, bool) or not isinstance(given, int | str):
        raise UsageError(f"memory_limit: {quoted(given)} is not a size; {wanted}")
    found = _TEXT.fullmatch(str(given).strip())
    if found is None or (found[2] != "%" and found[2].upper() not in _UNITS):
        raise UsageError(f"memory_limit: {quoted(given)} is not a size; {wanted}")
    number = float(found[1])
    if found[2] == "%":
        if not 0 < number <= 100:
            raise UsageError(f"memory_limit: {quoted(given)} is not above 0 % and at most 100 %; {wanted}")
        return number, True
    size = number * _UNITS[found[2].upper()]
    if 0 < size < LEAST_BYTES:
        raise UsageError(f"memory_limit: {quoted(given)} is less than a member needs without data; {wanted}")
    return size, False


def shared_limit(given: int | str, members: int) -> int | str:
    """Return the setting of each of several members on this machine: a part of its memory is shared by all of them."""
    number, is_part = check_memory_limit(given)
    return f"{number / members:.6f}%" if is_part else given


def limits_of(given: int | str, available: int) -> MemoryLimits:
    """Return the limits that the setting means if the system gives a process this many bytes (0: not known)."""
    number, is_part = check_memory_limit(given)
    limit = int(available * number / 100) if is_part else int(number)
    if not limit:
        return MemoryLimits(0, 0)
    ceiling = limit + limit // 2
    if available:
        ceiling = min(ceiling, max(int(available * SYSTEM_PART), limit))
    return MemoryLimits(limit, ceiling)


def available_memory(files: Path = FILES_OF_CGROUPS, process: Path = Path("/proc/self/cgroup")) -> int:
    """Return how many bytes the system gives this process at most; 0: it is not known."""
    found = [limit for place in _places_of(files, process) if (limit := _read_limit(place)) is not None]
    return min([*found, *_machine_memory()], default=0)


def _machine_memory() -> list[int]:
    try:
        return [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    except (OSError, ValueError):
        return []


def _places_of(files: Path, process: Path) -> list[Path]:
    """List the files that can limit this process: of its groups and those above them."""
    try:
        lines = process.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return []
    places = []
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not controllers:
            roots, name = [files, files / "unified"], "memory.max"
        elif "memory" in controllers.split(","):
            roots, name = [files / "memory"], "memory.limit_in_bytes"
        else:
            continue
        # A container sees its own group as the root, whatever the path says.
        parts = [part for part in path.split("/") if part not in ("", "..")]
        for root in roots:
            places += [root.joinpath(*parts[:depth], name) for depth in range(len(parts), -1, -1)]
    return places


def _read_limit(place: Path) -> int | None:
    try:
        return int(place.read_text(encoding="ascii"))
    except (OSError, ValueError):  # there is no such file, or it says "max"
        return None
