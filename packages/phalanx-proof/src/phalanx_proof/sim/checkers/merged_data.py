"""Checks what programs on all sides of a cut were told against what the healed cluster has, for the usual merge policy.

The latest update of a key wins, whichever side made it. So in the end:

* a key has a value that a call gave it, or none;
* its value is not older than a write that was acknowledged on any side, and a deleted entry does not come back. Two writes
  that are nearer together than the accuracy of the grid's clock can be ordered either way;
* unless the write was lost with the last process that held it: `Survival` knows which;
* unless a side has evicted entries of a bounded map that were as new: the write can be among them, or what it replaced can be,
  and no merge takes anything older.

Whether reads meanwhile are old depends on the side that is asked, and is not judged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from phalanx.common.ids import Millis
from phalanx_proof.sim.checkers.data_checker import (
    INITIAL,
    Write,
    evictions_of,
    read_of,
    story_of_too_many,
    unchanged_by_value,
    write_of,
)
from phalanx_proof.sim.checkers.eviction_checker import Eviction
from phalanx_proof.sim.checkers.findings import Findings
from phalanx_proof.sim.history.operations import NEVER, Operation


class Copy(NamedTuple):
    """The stamp of what one process holds of a key: of a write or a removal."""

    process: str
    stamp: int


class Survival:
    """Knows which keys can have lost writes: those whose latest state only a crashed process held."""

    def __init__(self) -> None:
        self.lost_at: dict[bytes, Millis] = {}
        """Key to when a process ended that alone held its latest state."""
        self.power_cuts: list[tuple[Millis, Millis]] = []
        """When everybody lost power, behind the time from which on everything can be gone that was written."""
        self._alone: dict[str, dict[bytes, Millis]] = {}
        """Process that can end to the keys whose latest state it alone holds, and since when."""

    def on_last_input(self, process: str, copies: Mapping[bytes, Iterable[Copy]], now: Millis) -> None:
        """Note what a process alone holds, which ends now or can end with its next input. `copies`: of each key what the
        processes hold that others can still get.
        """
        alone = self._alone[process] = {}
        for key, held in copies.items():
            mine = max((copy.stamp for copy in held if copy.process == process), default=-1)
            others = max((copy.stamp for copy in held if copy.process != process), default=-1)
            if mine > others:
                alone[key] = now

    def was_unsynced(self, begin: Millis, end: Millis) -> bool:
        """Tell whether what was written between two times can have been lost with everybody's power."""
        return any(begin <= at and end >= since for since, at in self.power_cuts)

    def on_ended(self, process: str) -> None:
        """Count what a process alone held as lost: it has ended, and nothing of it goes on."""
        self.lost_at |= self._alone.pop(process, {})


class MergedDataChecker:
    """Judges a whole history when it is over."""

    def __init__(
        self,
        findings: Findings,
        survival: Survival,
        accuracy_ms: Millis,
        prompt_ms: Millis,
        evictions: Mapping[bytes, Sequence[Eviction]],
        in_its_partition: Callable[[bytes], Sequence[Eviction]],
    ) -> None:
        """`prompt_ms`: a call that is answered within this time was asked once. `evictions`: by key; `in_its_partition`: of
        all keys of the partition that a key is in.
        """
        self._findings = findings
        self._evictions = evictions
        self._in_its_partition = in_its_partition
        self._written_by: dict[bytes, Millis] = {}
        """Value to when its write ended."""
        self._survival = survival
        self._accuracy_ms = accuracy_ms
        self._prompt_ms = prompt_ms
        self.excused_losses = 0
        """Acknowledged writes that were lost with the last process that held them."""
        self.late_effects = 0
        """Keys whose value was made by a call that had been told that it changed nothing: its first owner was on another
        side by then."""

    def check(self, operations: list[Operation], final: Mapping[bytes, Operation], now: Millis) -> None:
        """Check the history and the reads after everything healed (`final`)."""
        by_key: dict[bytes, list[Operation]] = {key: [] for key in final}
        for operation in operations:
            for key in operation.keys:
                by_key[key].append(operation)
            self._written_by |= dict.fromkeys(operation.values, operation.end)
        for key, of_key in by_key.items():
            self._check_key(key, of_key, final[key], now)

    def _check_key(self, key: bytes, operations: list[Operation], last: Operation, now: Millis) -> None:
        read = read_of(last, key)
        if read is None:
            return
        if key[4:5] == b"n":
            # Each side counts for itself, and one side's count stays: so much is told by what is too great.
            if (story := story_of_too_many(key, operations, read.value)) is not None:
                self._findings.add(now, "an increment counts once", story)
            return
        writes = [INITIAL, *(write for operation in operations if (write := write_of(operation, key)))]
        writes += evictions_of(self._evictions.get(key, ()), writes)
        gone_to = max((self._written_by.get(each.value, -1) for each in self._in_its_partition(key)), default=-1)
        sources = [write.end for write in writes if write.value == read.value]
        # 1. The first try of a call is carried out, and its answer lost with a link. 2. It is asked again on another side,
        # where there is nothing to change. 3. Both sides come together: the first try shows.
        unchanged = unchanged_by_value(operations, key).get(read.value, ())
        unanswered = [each.end for each in unchanged if self._may_have_been_asked_twice(each)]
        latest = max(sources + unanswered, default=None)
        self.late_effects += bool(unanswered) and latest != max(sources, default=None)
        if latest is None:
            self._findings.add(
                now, "reads return what was written", f"{last} found a value that nobody can have written"
            )
            return
        if latest == NEVER:
            return
        for write in sorted(writes, key=lambda write: -write.begin):
            if not write.acknowledged or write.begin <= latest + self._accuracy_ms:
                continue
            if write.begin <= self._survival.lost_at.get(key, -1) or self._survival.was_unsynced(
                write.begin, write.end
            ):
                self.excused_losses += 1
                continue
            if write.begin <= gone_to + self._accuracy_ms:
                continue  # It can have been evicted.
            self._findings.add(now, "no acknowledged write is lost", _story(last, write))
            return

    def _may_have_been_asked_twice(self, operation: Operation) -> bool:
        took_ms = operation.end - operation.begin
        # Who owns the key answers itself at once.
        return took_ms > (0 if operation.replier == operation.member else self._prompt_ms)


def _story(last: Operation, write: Write) -> str:
    what = "a deleted entry is back" if write.value is None else "a later write is missing"
    return f"{what}: {last}, although {write.operation} was acknowledged"
