"""Checks what the programs were told against what they did, key by key, and the replicas at rest.

What is promised, and therefore checked:

* A read returns a value that was written to its key, by a call that had begun and was not told that it changed nothing.
* A read by the rightful owner is not older than a write that was acknowledged before the read began. Reads can be newer:
  the owner answers with writes that wait for their backups, and such a write can vanish with the owner. A member that was
  left behind can answer with old values until it notices; those are counted, not forbidden. So are those from which a write is missing that
  a side without the majority acknowledged, until it is merged.
* A write can have been seen although its caller was told that it changed nothing: its first owner was lost with it, and the
  next owner found nothing to change. It can be seen until that answer, and not later, unless the first owner comes back with its folder,
  and what it alone had is merged.
* After everything healed, the value of a key is not older than any acknowledged write, unless all replicas in sync left
  the cluster that went on. A removal on a side without the majority is undone where it was forgotten before that side was merged.
* One call raises a counter from each number to the next: an acknowledged call, or one whose outcome is unknown. Each
  acknowledged call has raised it, and a call that was told that it changed nothing has not.
* A number is the count of its increments: of all that were acknowledged, by its key or by a condition, and of some whose
  outcome is unknown. One that was asked again over a merge can count twice. Each by its key was told another number, and none a
  lower one than an increment that was over when it began.
* Of the callers of put-if-absent at most one is told that it stored, and its value stays.

An entry of a bounded map can be evicted. Then its key has no value until it is written again, and nothing is promised of
counters, numbers and locks any more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from phalanx.common.ids import MemberId, Millis
from phalanx_proof.sim.checkers.eviction_checker import Eviction
from phalanx_proof.sim.checkers.findings import Findings
from phalanx_proof.sim.checkers.merge_starts import MergeStarts
from phalanx_proof.sim.checkers.table_checker import TableChecker
from phalanx_proof.sim.history.operations import NEVER, Operation, Outcome


class Write(NamedTuple):
    """A value (None: no value) that a call gave a key, or can have given it."""

    value: bytes | None
    begin: Millis
    end: Millis
    """When its effect was in place at the latest; NEVER: it can come, or not."""
    acknowledged: bool
    operation: Operation | None


class Read(NamedTuple):
    """A value (None: no value) that a key was found to have."""

    value: bytes | None
    begin: Millis
    end: Millis
    replier: MemberId | None
    operation: Operation


ONCE = ("put_if_absent", "lock", "replace", "remove", "write_counter")
"""Kinds of calls that can change nothing."""
INITIAL = Write(None, -1, -1, False, None)
"""The state before all calls: no value."""


def write_of(operation: Operation, key: bytes) -> Write | None:
    """Return what a call wrote to a key; None: nothing."""
    kind, outcome = operation.kind, operation.outcome
    if outcome is Outcome.FAILED or (not operation.values and kind != "remove"):
        return None
    value = operation.values[operation.keys.index(key)] if operation.values else None
    if outcome is not Outcome.OK:
        return Write(value, operation.begin, NEVER, False, operation)
    result = operation.result
    if kind in ("put_if_absent", "lock") or (kind == "write_counter" and isinstance(result, tuple)):
        stored = isinstance(result, tuple) and result[0] is None
        return Write(value, operation.begin, operation.end, True, operation) if stored else None
    if kind in ("replace", "write_counter") and result is not True:
        return None
    # A removal that found nothing changed nothing; it was as if read.
    if kind == "remove" and isinstance(result, tuple) and result[0] is None:
        return None
    return Write(value, operation.begin, operation.end, True, operation)


def unchanged_by_value(operations: list[Operation], key: bytes) -> dict[bytes | None, list[Operation]]:
    """Find the calls that could have given the key a value (None: no value) and were told that they changed nothing."""
    found: dict[bytes | None, list[Operation]] = {}
    for operation in operations:
        if operation.outcome is Outcome.OK and operation.kind in ONCE and write_of(operation, key) is None:
            found.setdefault(operation.values[0] if operation.values else None, []).append(operation)
    return found


def evictions_of(evictions: Sequence[Eviction], writes: Sequence[Write]) -> list[Write]:
    """Turn the evictions of a key into writes of no value: each ends one value, and nothing that was written later."""
    ends: dict[bytes | None, Millis] = {}
    for write in writes:
        ends[write.value] = max(write.end, ends.get(write.value, -1))
    return [Write(None, each.at, ends.get(each.value, -1), False, None) for each in evictions]


def read_of(operation: Operation, key: bytes) -> Read | None:
    """Return what a call told about a key; None: nothing."""
    if operation.outcome is not Outcome.OK or not isinstance(operation.result, tuple):
        return None
    index = operation.keys.index(key)
    if index >= len(operation.result):
        return None
    return Read(operation.result[index], operation.begin, operation.end, operation.replier, operation)


def raises_of(operations: list[Operation]) -> tuple[list[Operation], list[Operation]]:
    """Return the calls that have raised a number, each once, and those of which nobody knows whether they have.

    One by a condition raises the numbers that are there, and says how many these were.
    """
    done, unknown = [], []
    for each in operations:
        if each.kind in ("count", "count_where"):
            if each.outcome in (Outcome.INDETERMINATE, Outcome.OPEN) or (
                each.outcome is Outcome.OK and each.result is None
            ):
                unknown.append(each)
            elif each.outcome is Outcome.OK and each.result is not False:
                done.append(each)
    return done, unknown


def story_of_too_many(key: bytes, operations: list[Operation], found: bytes | None) -> str | None:
    """Tell of a number that is greater than all increments can have made it; None: it is not."""
    value = int(found[4:]) if found else 0
    done, unknown = raises_of(operations)
    if value <= len(done) + len(unknown):
        return None
    return f"{key[4:].decode()} is {value} after {len(done)} increments, and {len(unknown)} that nobody knows of"


class DataChecker:
    """Judges a whole history when it is over."""

    def __init__(
        self,
        findings: Findings,
        tables: TableChecker,
        partitions: dict[bytes, int],
        evictions: Mapping[bytes, Sequence[Eviction]],
        merges: MergeStarts,
        tombstone_ms: Millis,
    ) -> None:
        self._findings = findings
        self._tombstone_ms = tombstone_ms
        self._merges = merges
        self._evictions = evictions
        self._tables = tables
        self._partitions = partitions
        self.stale_reads = 0
        """Old values that were read from members that were no longer the owner, or before a side was merged."""
        self.excused_losses = 0
        """Acknowledged writes that were lost with all replicas in sync."""
        self.late_effects = 0
        """Values made by calls that had been told that they changed nothing: their first owner has come back with its folder."""

    def check(self, operations: list[Operation], final: dict[bytes, Operation], now: Millis) -> None:
        """Check the history and the reads after everything healed (`final`)."""
        by_key: dict[bytes, list[Operation]] = {key: [] for key in self._partitions}
        for operation in operations:
            for key in operation.keys:
                by_key[key].append(operation)
        for key, of_key in by_key.items():
            last = final.get(key)
            if key[4:5] in (b"c", b"n"):
                if key not in self._evictions:
                    check = self._check_counter if key[4:5] == b"c" else self._check_number
                    check(key, of_key, last, now)
            else:
                self._check_register(key, of_key, last, now)
            if key[4:5] == b"l" and key not in self._evictions:
                self._check_lock(key, of_key, now)

    # --- registers -------------------------------------------------------------------------------------------------

    def _check_register(self, key: bytes, operations: list[Operation], last: Operation | None, now: Millis) -> None:
        writes = [INITIAL, *(write for operation in operations if (write := write_of(operation, key)))]
        writes += evictions_of(self._evictions.get(key, ()), writes)
        by_value: dict[bytes | None, list[Write]] = {}
        for write in writes:
            by_value.setdefault(write.value, []).append(write)
        acknowledged = sorted((write for write in writes if write.acknowledged), key=lambda write: write.end)
        unchanged = unchanged_by_value(operations, key)
        for operation in operations:
            read = read_of(operation, key)
            if read is None:
                continue
            sources = [write for write in by_value.get(read.value, []) if write.begin <= read.end]
            lost = [each for each in unchanged.get(read.value, []) if each.begin <= read.end and each is not operation]
            if any(each.end >= read.begin for each in lost):
                continue
            late = [
                Write(read.value, each.begin, each.end, False, each)
                for each in unchanged.get(read.value, [])  # also its own first try
                if each.begin <= read.end and self._shows_late(key, each, read.end)
            ]
            self.late_effects += bool(late) and not sources
            sources += late
            if not sources and lost and not self._is_by_owner(key, read):
                self.stale_reads += 1
                continue
            if not sources:
                story = f"{read.operation} found a value that nobody can have written"
                self._findings.add(read.end, "reads return what was written", story)
                continue
            newer = self._superseding(key, sources, acknowledged, read)
            if newer is None:
                continue
            story = f"{read.operation} found the value of {sources[-1].operation} although {newer.operation} was acknowledged"
            if operation is last:
                self._findings.add(now, "no acknowledged write is lost", story)
            elif self._is_by_owner(key, read):
                self._findings.add(read.end, "reads by the owner are not stale", story)
            else:
                self.stale_reads += 1

    def _shows_late(self, key: bytes, operation: Operation, at: Millis) -> bool:
        """Tell whether a call that was told that it changed nothing can have done so at an owner before the one that said that.

        1. A, an owner, carries it out, and ends before B, its backup, has it. 2. B owns the partition, and finds nothing to change. 3. A
        comes back with its folder: what B has not is merged.
        """
        return self._merges.show_late(self._partitions[key], operation.begin, operation.end, operation.replier, at)

    def _is_excused_count(self, key: bytes, operation: Operation, now: Millis) -> bool:
        """Tell whether what was acknowledged need not count in the end: it is lost, or a side without the majority acknowledged it, and merged
        what it had. Each side counts for itself.

        1. A and B hold a counter. A crashes, and B goes on alone: it raises the counter. 2. All crash, and restart by A's row. 3. A raises
        the counter to the same, before B has merged.
        """
        replier = operation.replier
        if replier is None:
            return False
        part, begin, end = self._partitions[key], operation.begin, operation.end
        return self._excused(key, operation) or self._merges.may_be_void(part, begin, end, replier, now)

    def _is_by_owner(self, key: bytes, read: Read) -> bool:
        return self._tables.owner_between(self._partitions[key], read.begin, read.end) == read.replier

    def _superseding(self, key: bytes, sources: list[Write], acknowledged: list[Write], read: Read) -> Write | None:
        """Find a write that was acknowledged before the read, and that came after every write that can have left this
        value.
        """
        latest = max(source.end for source in sources)
        if latest == NEVER:
            return None
        for write in acknowledged:
            if write.end >= read.begin:
                break
            if write.begin > latest and write.operation is not None:
                if self._excused(key, write.operation):
                    self.excused_losses += 1
                elif (merged_at := self._merged_at(key, write.operation)) >= read.begin:
                    self.stale_reads += 1
                elif write.value is None and merged_at >= write.begin + self._tombstone_ms:
                    self.excused_losses += 1
                else:
                    return write
        return None

    def _excused(self, key: bytes, operation: Operation) -> bool:
        replier = operation.replier
        if replier is None:
            return False
        return self._tables.may_be_lost(self._partitions[key], replier, operation.begin, operation.end)

    def _merged_at(self, key: bytes, operation: Operation) -> Millis:
        replier = operation.replier
        return self._merges.merged_at(self._partitions[key], replier, operation.end) if replier is not None else -1

    # --- counters and locks ----------------------------------------------------------------------------------------

    def _check_counter(self, key: bytes, operations: list[Operation], last: Operation | None, now: Millis) -> None:
        raises = [operation for operation in operations if operation.kind == "write_counter"]
        if last is None or not isinstance(last.result, tuple):
            return
        value = int(last.result[0][4:]) if last.result[0] else 0
        done: dict[int, list[Operation]] = {}
        unknown: set[int] = set()
        late: set[int] = set()
        """`done`: what acknowledged calls have raised it to; `unknown`: what calls without an answer can have raised it
        to; `late`: what calls can have that were told that they have not."""
        for each in raises:
            raised_to = int(each.values[0][4:])
            if each.outcome in (Outcome.INDETERMINATE, Outcome.OPEN):
                unknown.add(raised_to)
            elif (write := write_of(each, key)) and write.acknowledged:
                done.setdefault(raised_to, []).append(each)
            elif self._shows_late(key, each, now):
                late.add(raised_to)
        name = key[4:].decode()
        for number in range(1, value + 1):
            if number in late and number not in done and number not in unknown:
                self.late_effects += 1
            elif number not in done and number not in unknown:
                story = f"{name} is {value}, and nobody raised it to {number}"
                self._findings.add(now, "a counter is raised once by a call", story)
        acknowledged = [each for several in done.values() for each in several]
        if any(self._is_excused_count(key, each, now) for each in acknowledged):
            self.excused_losses += max(len(acknowledged) - value, 0)
            return
        for number, several in sorted(done.items()):
            if len(several) > 1:
                story = f"{several[0]} and {several[1]} both raised {name} to {number}"
                self._findings.add(now, "a counter is raised once by a call", story)
            if number > value:
                self._findings.add(now, "no acknowledged write is lost", f"{name} is {value}, but {several[0]}")

    def _check_number(self, key: bytes, operations: list[Operation], last: Operation | None, now: Millis) -> None:
        if last is None or not isinstance(last.result, tuple):
            return
        rule, name = "an increment counts once", key[4:].decode()
        value = int(last.result[0][4:]) if last.result[0] else 0
        done, unknown = raises_of(operations)
        if (story_of_more := story_of_too_many(key, operations, last.result[0])) is not None:
            too_many = value - len(done) - len(unknown)
            if too_many > sum(self._counts_twice(key, each) for each in done):
                self._findings.add(now, rule, story_of_more)
            else:
                self.late_effects += too_many
        if any(self._is_excused_count(key, each, now) for each in done):
            self.excused_losses += max(len(done) - value, 0)
            return
        if value < len(done):
            story = f"{name} is {value} after {len(done)} acknowledged increments"
            self._findings.add(now, "no acknowledged write is lost", story)
        by_number: dict[int, Operation] = {}
        for each in sorted([each for each in done if each.kind == "count"], key=lambda operation: operation.end):
            raised_to = int(each.result[0][4:]) if isinstance(each.result, tuple) and each.result[0] else 0
            if raised_to in by_number:
                self._findings.add(now, rule, f"{by_number[raised_to]} and {each} both raised {name} to {raised_to}")
            by_number[raised_to] = each
            if not 0 < raised_to <= value:
                self._findings.add(now, rule, f"{name} is {value}, but {each}")
        # In the order of their ends: what began after another had ended found its number.
        last_begun: Operation | None = None
        for number in sorted(by_number):
            later = by_number[number]
            if last_begun is not None and later.end < last_begun.begin:
                self._findings.add(now, rule, f"{later} was over before {last_begun} began")
            if last_begun is None or later.begin > last_begun.begin:
                last_begun = later

    def _counts_twice(self, key: bytes, raised: Operation) -> bool:
        """Tell whether an increment can count twice: before a merge that was under way when it was answered, and after it.

        1. A, an owner, carries it out, and is cut off before it can say so. 2. The others have no replica, and wait for A. 3. A comes
        back as another incarnation, and merges what it had. 4. The caller asks again: a merge brings entries, and not which calls were
        carried out.
        """
        return self._shows_late(key, raised, raised.end)

    def _check_lock(self, key: bytes, operations: list[Operation], now: Millis) -> None:
        winners = [o for o in operations if o.kind == "lock" and (write := write_of(o, key)) and write.acknowledged]
        kept = [winner for winner in winners if not self._is_excused_count(key, winner, now)]
        if len(kept) > 1:
            self._findings.add(now, "one caller stores if absent", f"{kept[0]} and {kept[1]}")


def check_replicas(
    tables: list[tuple[MemberId, tuple[tuple[int, dict[str, dict[bytes, bytes]]], ...]]],
    rows: list[tuple[MemberId, ...]],
    findings: Findings,
    now: Millis,
) -> None:
    """Check at rest that each partition is where it should be, and that its replicas are equal.

    `tables`: of each member the partitions that it holds, with their entries by map. `rows`: who should hold each
    partition.
    """
    held = {member: dict(partitions) for member, partitions in tables}
    for partition, row in enumerate(rows):
        for member, partitions in held.items():
            if partition in partitions and member not in row:
                findings.add(now, "no data where the table does not put it", f"{member} holds partition {partition}")
        if not row or row[0] not in held or partition not in held[row[0]]:
            findings.add(now, "each partition is at its owner", f"partition {partition}: {row}")
            continue
        owners = held[row[0]][partition]
        for member in row[1:]:
            theirs = held.get(member, {}).get(partition)
            if theirs is None:
                if any(owners.values()):
                    findings.add(now, "replicas are equal at rest", f"{member} has nothing of partition {partition}")
            elif _not_empty(theirs) != _not_empty(owners):
                story = (
                    f"partition {partition} at {member} differs from its owner {row[0]}: {_difference(theirs, owners)}"
                )
                findings.add(now, "replicas are equal at rest", story)


def _not_empty(maps: dict[str, dict[bytes, bytes]]) -> dict[str, dict[bytes, bytes]]:
    return {name: entries for name, entries in maps.items() if entries}


def _difference(one: dict[str, dict[bytes, bytes]], other: dict[str, dict[bytes, bytes]]) -> str:
    left = {(name, key, value) for name, entries in one.items() for key, value in entries.items()}
    right = {(name, key, value) for name, entries in other.items() for key, value in entries.items()}
    return f"only here {sorted(left - right)[:5]}, only at the owner {sorted(right - left)[:5]}"
