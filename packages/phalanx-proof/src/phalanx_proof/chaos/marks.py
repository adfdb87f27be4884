"""What was done to member processes, beside their own event logs: a killed one tells nobody when it ended."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec

from phalanx.common.ids import MemberId, address_of
from phalanx.reports.trace_rows import PROCESS_EVENT

NAME = "faults.jsonl"


class Marks:
    """Writes them as events, for `phalanx audit`."""

    def __init__(self, folder: Path, cluster: str) -> None:
        self._path, self._cluster = folder / NAME, cluster

    def note(self, member: MemberId | None, what: str) -> None:
        """Write that a member has `crashed`, `paused` or `resumed` just now; nothing if nobody knows which incarnation it was."""
        if member is None:
            return
        mark = {
            "at": time.time_ns() // 1_000_000,
            "cluster": self._cluster,
            "member": member,
            "address": address_of(member),
            "event": PROCESS_EVENT,
            "what": what,
        }
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("ab") as file:
            file.write(msgspec.json.encode(mark) + b"\n")
