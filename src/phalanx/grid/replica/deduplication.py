"""What became of writes: the record beside a partition's entries that lets a write be asked for again.

Each write of one key has an operation id: its caller, and a number that grows from call to call. Its outcome is noted
in the same step that changes the entries, goes to the backups in the same message, and moves with every copy. So
whoever owns the partition when a caller asks once more answers what the first owner would have, and applies nothing.

What is forgotten, and why nothing is applied twice all the same:

* what the caller says is over (`open_from`: it asks for no lower number any more). What still comes late is refused.
* the oldest outcomes of a caller with more than `MAX_OUTCOMES` under way here, and values that removals returned beyond
  `MAX_VALUE_BYTES` in one partition. Asked again, they are unknown: refused.
* a value over the members' `max_outcome_bytes`: the owner notes that the write was applied, and not what it returned. Asked
  again, it is not applied, and its caller is told that much.
* callers that were silent for `SILENT_MS`, or `CROWDED_MS` where there are too many. No caller asks again so long after its
  first try, and no kernel goes on that long to deliver it.

An operation without a record whose number is below its caller's floor may have been applied: it never is again.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable

import msgspec

from phalanx.common.config import MAX_OUTCOME_BYTES
from phalanx.common.ids import Millis, Target
from phalanx.wire.replication_messages import OutcomeValue, RecordedCaller

MAX_OUTCOMES = 1024
"""Of one caller in one partition."""
MAX_VALUE_BYTES = MAX_OUTCOME_BYTES
"""Of all values in the outcomes of one partition; the newest one stays, and is no longer than that."""
NOT_KEPT = b""
"""As the outcome of an operation that returned a value which is too long to be kept. No serialised value is empty."""
CROWDED_MS = 2 * 60_000
"""A caller that was silent for so long is dropped when there are too many."""
SILENT_MS = 20 * 60_000
"""A caller that wrote nothing to the partition for so long is dropped."""
LOOK_EVERY_MS = 60_000
"""Silent callers are looked for when another one comes, at most so often."""


class OperationStanding(enum.Enum):
    """Of an operation that has no outcome here."""

    NEW = enum.auto()
    """It was not applied."""
    FORGOTTEN = enum.auto()
    """It is over, or may have been applied."""


class CallerRecord(msgspec.Struct, gc=False):
    """One caller's outcomes in one partition. One with a single call at a time needs no dict."""

    floor: int
    """What has a lower number and no outcome in `older` is forgotten."""
    number: int
    """The greatest number that was noted."""
    outcome: OutcomeValue
    """Of that one; void if it is below the floor."""
    heard_at: Millis
    """When the caller's last write was noted; -1: it came with a copy, and counts from the next look on."""
    older: dict[int, OutcomeValue] | None = None
    """Lower numbers, mostly in their order."""


class Deduplication:
    """The record of one replica of one partition."""

    __slots__ = ("_look_at", "_value_bytes", "callers")

    def __init__(self, recorded: Iterable[RecordedCaller] = ()) -> None:
        self.callers: dict[str, CallerRecord] = {}
        self._value_bytes = 0
        self._look_at = 0
        self.adopt(recorded)

    def adopt(self, recorded: Iterable[RecordedCaller]) -> None:
        """Take over what another record has told of callers that are not known here."""
        for told in recorded:
            self._adopt(told)

    def __repr__(self) -> str:
        return f"Deduplication({self.export()})"

    def find(self, caller: Target, number: int) -> OutcomeValue | OperationStanding:
        """Tell what became of an operation."""
        record = self.callers.get(caller)
        if record is None or number > record.number:
            return OperationStanding.NEW
        if number == record.number and number >= record.floor:
            return record.outcome
        if record.older is not None and number in record.older:
            return record.older[number]
        return OperationStanding.FORGOTTEN if number < record.floor else OperationStanding.NEW

    def note_next(self, caller: str, number: int, open_from: int, outcome: bool | None, now: Millis) -> bool:
        """The usual course in one short step: the caller has one call here at a time, and this one is new.

        False, and nothing noted: it is not so.
        """
        record = self.callers.get(caller)
        if record is None or not record.number < open_from <= number or record.older is not None or self._value_bytes:
            return False
        record.floor = open_from
        record.number = number
        record.outcome = outcome
        record.heard_at = now
        return True

    def note(self, caller: str, number: int, open_from: int, outcome: OutcomeValue, now: Millis) -> None:
        """An operation was applied, and what its caller says is over (below `open_from`) need not be kept."""
        if not isinstance(outcome, bytes) and self.note_next(caller, number, open_from, outcome, now):
            return
        record = self.callers.get(caller)
        if record is None:
            if now >= self._look_at:
                self._drop_silent(now)
            record = self.callers[caller] = CallerRecord(min(open_from, number), number, outcome, now)
        elif not self._note_beside(record, number, open_from, outcome, now):
            return
        if type(outcome) is bytes:
            self._value_bytes += len(outcome)
            if self._value_bytes > MAX_VALUE_BYTES:
                self._forget_values(record)

    def _note_beside(
        self, record: CallerRecord, number: int, open_from: int, outcome: OutcomeValue, now: Millis
    ) -> bool:
        """Note one more of a caller that is known; False if it is over already."""
        record.heard_at = now
        if open_from > record.floor:
            self._close(record, min(open_from, number))
        if number > record.number:
            if record.number >= record.floor:
                self._keep(record, record.number, record.outcome)
            else:
                self._release(record.outcome)
            record.number, record.outcome = number, outcome
            return True
        if number >= record.floor:
            self._keep(record, number, outcome)
            return True
        return False

    def has_room(self, caller: str, most: int, now: Millis) -> bool:
        """Whether a write of this caller may be noted: not where as many others as `most` have written of late."""
        if len(self.callers) < most or caller in self.callers:
            return True
        if now >= self._look_at:
            self._drop_silent(now, CROWDED_MS)
        return len(self.callers) < most

    def export(self, callers: Iterable[str] | None = None) -> tuple[RecordedCaller, ...]:
        """Return what is recorded of these callers; without an argument, of all callers."""
        exported = []
        for caller in self.callers if callers is None else callers:
            record = self.callers[caller]
            outcomes = dict(record.older) if record.older is not None else {}
            if record.number >= record.floor:
                outcomes[record.number] = record.outcome
            exported.append(RecordedCaller(caller, record.floor, list(outcomes), list(outcomes.values())))
        return tuple(exported)

    def _adopt(self, told: RecordedCaller) -> None:
        older = dict(zip(told.numbers, told.outcomes, strict=False))
        number = max([told.floor - 1, *older])
        outcome = older.pop(number, None) if number >= told.floor else None
        self.callers[told.caller] = CallerRecord(told.floor, number, outcome, -1, older or None)
        self._value_bytes += sum(len(value) for value in told.outcomes if type(value) is bytes)

    def _keep(self, record: CallerRecord, number: int, outcome: OutcomeValue) -> None:
        """Keep an outcome whose number is not the greatest; too many of them: forget the oldest."""
        older = record.older
        if older is None:
            older = record.older = {}
        older[number] = outcome
        if len(older) >= MAX_OUTCOMES:
            self._forget(record, next(iter(older)))

    def _close(self, record: CallerRecord, floor: int) -> None:
        """Drop what is over. (The outcome outside of `older` goes with the next one.)"""
        record.floor = floor
        older = record.older
        while older:
            number = next(iter(older))
            if number >= floor:
                return
            self._release(older.pop(number))
        record.older = None

    def _forget(self, record: CallerRecord, number: int) -> None:
        """Drop an outcome that may be asked for."""
        if record.older is not None:
            self._release(record.older.pop(number))
        record.floor = max(record.floor, number + 1)

    def _forget_values(self, newest: CallerRecord) -> None:
        """Forget values, of the callers in the order of their coming, until the rest is small enough."""
        for record in self.callers.values():
            if self._value_bytes <= MAX_VALUE_BYTES:
                return
            for number in [number for number, value in (record.older or {}).items() if type(value) is bytes]:
                self._forget(record, number)
            if record is not newest and type(record.outcome) is bytes:
                self._release(record.outcome)
                record.outcome = None
                record.floor = max(record.floor, record.number + 1)

    def _drop_silent(self, now: Millis, silent_ms: Millis = SILENT_MS) -> None:
        self._look_at = now + LOOK_EVERY_MS
        for caller, record in list(self.callers.items()):
            if record.heard_at < 0:
                record.heard_at = now
            elif now - record.heard_at >= silent_ms:
                for outcome in (record.outcome, *(record.older or {}).values()):
                    self._release(outcome)
                del self.callers[caller]

    def _release(self, outcome: OutcomeValue) -> None:
        if type(outcome) is bytes:
            self._value_bytes -= len(outcome)
