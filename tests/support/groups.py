"""Control groups with a memory limit, in which tests start members: the kernel ends whoever takes more."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

FILES = Path("/sys/fs/cgroup")
MIB = 1 << 20
_TAKE = "x = [b'x' * 1_000_000 for _ in range(200)]"


class MemoryGroup:
    """One control group. Its processes together may have so many bytes."""

    def __init__(self, folder: Path, limit: int) -> None:
        self._folder = folder
        folder.mkdir()
        name = "memory.max" if (folder / "memory.max").exists() else "memory.limit_in_bytes"
        (folder / name).write_text(str(limit), encoding="ascii")
        for swap in ("memory.swap.max", "memory.memsw.limit_in_bytes"):
            with contextlib.suppress(OSError):
                (folder / swap).write_text("0" if swap.endswith("max") else str(limit), encoding="ascii")

    def program(self, *command: str) -> tuple[str, ...]:
        """The command, started within the group."""
        return ("sh", "-c", f'echo $$ > "{self._folder}/cgroup.procs"; exec "$@"', "sh", *command)

    def remove(self) -> None:
        """Remove the group, as soon as the last of its processes has ended."""
        for _ in range(50):
            with contextlib.suppress(OSError):
                self._folder.rmdir()
                return
            time.sleep(0.1)


@contextlib.contextmanager
def memory_groups(limit: int, count: int) -> Iterator[list[MemoryGroup]]:
    """Groups of so many bytes each; removed in the end."""
    made: list[MemoryGroup] = []
    try:
        made.extend(MemoryGroup(_parent() / f"phalanx-test-{os.getpid()}-{n}", limit) for n in range(count))
        yield made
    finally:
        for group in made:
            group.remove()


def why_no_groups() -> str:
    """Why a process cannot be given a memory limit that the kernel holds it to; empty: it can."""
    try:
        with memory_groups(100 * MIB, 1) as [group]:
            ended = subprocess.run(group.program(sys.executable, "-c", _TAKE), check=False, capture_output=True)
    except OSError as error:
        return f"no control group with a memory limit can be made here: {error} (take root, or delegate one)"
    return "" if ended.returncode else "control groups of this machine do not hold a process to its memory limit"


def _parent() -> Path:
    """The folder in which groups with a memory limit are made."""
    return FILES / "memory" if (FILES / "memory").is_dir() else FILES
