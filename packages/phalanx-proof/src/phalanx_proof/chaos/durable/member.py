"""`python -m phalanx_proof.chaos.durable.member NOTES member …`: a member whose disk can lose power and have faults. Only `phalanx chaos` starts it."""

from __future__ import annotations

import sys
from pathlib import Path

from phalanx.__main__ import main
from phalanx.runtime.disk import folder_lock, member_disk
from phalanx_proof.chaos.durable.disk_faults import FaultyFiles
from phalanx_proof.chaos.durable.power import PowerFiles

SEGMENT_BYTES = 4 * 1024 * 1024
"""Small, so that segments change, are copied and removed all the time."""
BOOT = "boot"
"""The file beside the notes that says since which power cut its machine runs."""


def begin_boot(number: str) -> None:
    """Let everybody in this process see another boot of the machine after each power cut, and the same one after each kill.

    Within one boot nothing that was written can be missing, so a log is read more strictly.
    """
    real = folder_lock.read_boot_id
    boot = f"{real()[:24]}{number:0>12}"
    for module in list(sys.modules.values()):
        if vars(module).get("read_boot_id") is real:
            vars(module)["read_boot_id"] = lambda: boot


def run(notes: Path, disk: type[PowerFiles] = FaultyFiles) -> None:
    """Run the command line with another disk below it."""
    begin_boot((notes / BOOT).read_text(encoding="ascii"))
    member_disk.MemberDisk.files = disk(notes)
    member_disk.MemberDisk.segment_bytes = SEGMENT_BYTES
    main()


if __name__ == "__main__":
    run(Path(sys.argv.pop(1)))
