"""Checks at rest what became of staged writes (`workload/staged_jobs.py`), by what the owners hold.

* A batch is in a partition whole or not at all: all keys of a partition have the value of one batch.
* It is applied once: what was written after it stays, although the batch was asked for again.
* What was confirmed is there: no partition is at an earlier batch than the last one that was confirmed of it.
* A replaced map has the content of one job, whole, in all partitions. That job asked for the decision, and no job was
  confirmed after it.
* Nobody sees rows of attempts that were not named.

What was lost with all replicas in sync is excused, as for any other write.

Where sides of a cut go on for long, each applies and replaces what it is asked for, and the merge takes the newer value of each
key. Then two rules are left: a batch is in a partition whole; and each entry of a replaced map is in the content of a job
that asked for the decision.
"""

from __future__ import annotations

from phalanx.codec.hashing import partition_of
from phalanx.common.ids import Millis
from phalanx_proof.sim.checkers.findings import Findings
from phalanx_proof.sim.checkers.table_checker import TableChecker
from phalanx_proof.sim.history.staging import TEXT, UNSEEN, Ack, JobDecision, StagedHistory

WHOLE = "a batch is applied whole or not at all"
ONCE = "a batch is applied once"
KEPT = "no confirmed batch is lost"
REPLACED = "a content replaces all or nothing"
NEVER_SEEN = "nobody sees what an unnamed attempt has staged"

Contents = list[dict[bytes, bytes]]
"""What each partition's owner holds of a map."""


class StagingChecker:
    """Judges a history when it is over."""

    def __init__(
        self, findings: Findings, tables: TableChecker, jobs: StagedHistory, *, has_sides: bool = False
    ) -> None:
        self._findings = findings
        self._has_sides = has_sides
        self._tables = tables
        self._jobs = jobs
        self.excused_losses = 0

    def check(self, applied: Contents, replaced: Contents, now: Millis) -> None:
        for held in (*applied, *replaced):
            for key, value in held.items():
                if value == UNSEEN:
                    self._findings.add(now, NEVER_SEEN, f"{_word(key)} has what an attempt staged that nobody named")
        for partition, held in enumerate(applied):
            self._check_batch(partition, held, len(applied), now)
        if self._has_sides:
            self._check_entries(replaced, now)
        else:
            self._check_content(replaced, now)

    # --- batches ---------------------------------------------------------------------------------------------------

    def _check_batch(self, partition: int, held: dict[bytes, bytes], count: int, now: Millis) -> None:
        jobs = self._jobs
        keys = [key for key in jobs.keys if partition_of(key, count) == partition]
        if not keys:
            return
        confirmed = max((ack.number for ack in jobs.applied if _is_in(ack, partition)), default=0)
        if self._is_lost(partition, [*jobs.staged, *jobs.applied, *jobs.written.values()], confirmed):
            self.excused_losses += 1
            return
        found = {key: _batch_of(held.get(key)) for key in keys}
        values = {_word(key): held.get(key, TEXT)[4:].decode() for key in keys}
        plain = {number for key, (number, _) in found.items() if key not in jobs.direct}
        if len(plain) > 1:
            self._findings.add(now, WHOLE, f"partition {partition} has {values}")
        for key, (number, is_direct) in found.items():
            if is_direct or self._has_sides:
                continue  # A write of a program that has died can come late.
            if not confirmed <= number <= jobs.begun:
                self._findings.add(now, KEPT, f"{_word(key)} of {values}: batch {confirmed} was confirmed")
            written = jobs.written.get(key)
            if written is not None and number <= written.number:
                self._findings.add(now, ONCE, f"{_word(key)} of {values} was written after batch {written.number}")

    def _is_lost(self, partition: int, acks: list[Ack], number_from: int) -> bool:
        """Tell whether something of these batches, or of a later one, was lost with every replica that had it."""
        return any(
            ack.number >= number_from
            and _is_in(ack, partition)
            and self._tables.may_be_lost(partition, ack.replier, ack.begin, ack.end)
            for ack in acks
        )

    # --- contents --------------------------------------------------------------------------------------------------

    def _check_content(self, replaced: Contents, now: Millis) -> None:
        jobs, count = self._jobs, len(replaced)
        if any(self._is_of_lost_side(decision, count) for decision in jobs.decisions):
            self.excused_losses += 1
            return
        found = sorted({_batch_of(value)[0] for held in replaced for value in held.values()})
        story = {
            partition: {_word(k): v[4:].decode() for k, v in held.items()} for partition, held in enumerate(replaced)
        }
        if len(found) > 1:
            self._findings.add(now, REPLACED, f"there are those of jobs {found}: {story}")
            return
        of = [decision for decision in jobs.decisions if found and decision.number == found[0]]
        if found and not of:
            self._findings.add(
                now, REPLACED, f"job {found[0]} has not asked for the decision, and there is its content"
            )
            return
        confirmed = [decision for decision in jobs.decisions if decision.replier is not None]
        later = [each for each in confirmed if not of or each.begin > of[0].end]
        number = found[0] if found else 0
        wanted = jobs.content_of(number) if found else {}
        for partition, held in enumerate(replaced):
            if self._is_lost(partition, [ack for ack in jobs.prepared if ack.number == number or not found], 0):
                self.excused_losses += 1
                continue
            expected = {key: value for key, value in wanted.items() if partition_of(key, count) == partition}
            if held != expected or later:
                why = f"{later[0]} was confirmed" if later else f"partition {partition} lacks or has more than its part"
                self._findings.add(now, REPLACED, f"there is that of job {number}, but {why}: {story}")
                return

    def _check_entries(self, replaced: Contents, now: Millis) -> None:
        asked = {decision.number for decision in self._jobs.decisions}
        for held in replaced:
            for key, value in held.items():
                number = _batch_of(value)[0]
                if number and (number not in asked or key not in self._jobs.content_of(number)):
                    self._findings.add(now, REPLACED, f"{_word(key)} is of job {number}, which never replaced it so")

    def _is_of_lost_side(self, decision: JobDecision, count: int) -> bool:
        """Tell whether the master that confirmed it led a side that was given up: then a merge decides what stays."""
        return decision.replier is not None and any(
            self._tables.may_be_lost(partition, decision.replier, decision.begin, decision.end)
            for partition in range(count)
        )


def _is_in(ack: Ack, partition: int) -> bool:
    """Tell whether what was confirmed is in that partition now: partitions can have been divided since."""
    return partition % ack.partition_count == ack.partition


def _batch_of(value: bytes | None) -> tuple[int, bool]:
    """Return the number in a value (0: none), and whether it was written directly."""
    if value is None or value == UNSEEN:
        return 0, False
    return int(value[4:].rstrip(b"!")), value.endswith(b"!")


def _word(key: bytes) -> str:
    return key[4:].decode()
