"""The outcomes of writes, recorded beside a partition's entries, so that a retried write is applied once.

Each write of one key has an operation id: its caller, and a number that grows with each call. Its outcome is recorded
in the step that changes the entries, goes to the backups in the same message, and moves with every copy. So if a caller
retries a write, the owner at that time gives the answer of the first owner, and applies nothing.

What is forgotten, and why nothing is applied twice all the same:

* outcomes that the caller has received (`open_from`: it retries no lower number). A late request with such a number is
  refused.
* the oldest outcomes of a caller with more than `MAX_OUTCOMES` under way here, and returned values beyond
  `MAX_VALUE_BYTES` in one partition. Their outcome is unknown then, so a retry is refused.
* a returned value over the members' `max_outcome_bytes`: the record says that the write was applied, without the value.
  A retry is not applied, and its caller is told so.
* callers that were silent for `SILENT_MS`, or for `CROWDED_MS` if there are too many. No caller retries so long after
  its first try, and no kernel delivers a message so late.

An operation without a record whose number is below its caller's floor may have been applied: it is never applied again.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable

import msgspec

from phalanx.common.config import MAX_OUTCOME_BYTES
from phalanx.common.ids import Millis, Target
from phalanx.wire.replication_messages import OutcomeValue, RecordedCaller

MAX_OUTCOMES = 1024
"""The most outcomes of one caller in one partition."""
MAX_VALUE_BYTES = MAX_OUTCOME_BYTES
"""The most bytes of all returned values in one partition; the newest value always stays, and is no longer than that."""
NOT_KEPT = b""
"""The outcome of an operation that returned a value too long to be kept. No serialised value is empty."""
CROWDED_MS = 2 * 60_000
"""A caller that was silent for so long is dropped if there are too many callers."""
SILENT_MS = 20 * 60_000
"""A caller that wrote nothing to the partition for so long is dropped."""
LOOK_EVERY_MS = 60_000
"""Between two searches for silent callers, which happen only when a new caller comes."""


class OperationState(enum.Enum):
    """What is known of an operation that has no recorded outcome."""

    NEW = enum.auto()
    """It was not applied."""
    FORGOTTEN = enum.auto()
    """Its caller has the answer, or it may have been applied."""


class CallerRecord(msgspec.Struct, gc=False):
    """One caller's outcomes in one partition. A caller with one call at a time needs no dict."""

    floor: int
    """A lower number without an outcome in `older` is forgotten."""
    number: int
    """The greatest number that was recorded."""
    outcome: OutcomeValue
    """The outcome of `number`; meaningless if `number` is below the floor."""
    heard_at: Millis
    """When the caller's last write was recorded; -1: the record came with a copy; the next search sets the time."""
    older: dict[int, OutcomeValue] | None = None
    """Lower numbers to their outcomes, mostly in ascending order."""


class Deduplication:
    """The outcomes of writes in one replica of one partition."""

    __slots__ = ("_look_at", "_value_bytes", "callers")

    def __init__(self, recorded: Iterable[RecordedCaller] = ()) -> None:
        self.callers: dict[str, CallerRecord] = {}
        self._value_bytes = 0
        self._look_at = 0
        self.adopt(recorded)

    def adopt(self, recorded: Iterable[RecordedCaller]) -> None:
        """Adopt the exported outcomes of callers that have no record here."""
        for record in recorded:
            self._adopt(record)

    def __repr__(self) -> str:
        return f"Deduplication({self.export()})"

    def forget_times(self) -> None:
        """Forget when callers were heard: the times are of another process, and the next search sets them."""
        for record in self.callers.values():
            record.heard_at = -1

    def find(self, caller: Target, number: int) -> OutcomeValue | OperationState:
        """Return the outcome of an operation, or what else is known of it."""
        record = self.callers.get(caller)
        if record is None or number > record.number:
            return OperationState.NEW
        if number == record.number and number >= record.floor:
            return record.outcome
        if record.older is not None and number in record.older:
            return record.older[number]
        return OperationState.FORGOTTEN if number < record.floor else OperationState.NEW

    def note_next(self, caller: str, number: int, open_from: int, outcome: bool | None, now: Millis) -> bool:
        """Record an outcome on the fast path: the caller has one call at a time here, and this one is new.

        Return False, and record nothing, if that is not so.
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
        """Record the outcome of an applied operation, and forget the caller's outcomes below `open_from`."""
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
        """Record one more outcome of a known caller; False: its number is below the floor, and nothing is recorded."""
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
        """Return whether a write of this caller can be recorded: no new caller is taken when `most` others have written
        recently.
        """
        if len(self.callers) < most or caller in self.callers:
            return True
        if now >= self._look_at:
            self._drop_silent(now, CROWDED_MS)
        return len(self.callers) < most

    def export(self, callers: Iterable[str] | None = None) -> tuple[RecordedCaller, ...]:
        """Return the records of these callers, for a copy; without an argument, of all callers."""
        exported = []
        for caller in self.callers if callers is None else callers:
            record = self.callers[caller]
            outcomes = dict(record.older) if record.older is not None else {}
            if record.number >= record.floor:
                outcomes[record.number] = record.outcome
            exported.append(RecordedCaller(caller, record.floor, list(outcomes), list(outcomes.values())))
        return tuple(exported)

    def _adopt(self, record: RecordedCaller) -> None:
        older = dict(zip(record.numbers, record.outcomes, strict=False))
        number = max([record.floor - 1, *older])
        outcome = older.pop(number, None) if number >= record.floor else None
        self.callers[record.caller] = CallerRecord(record.floor, number, outcome, -1, older or None)
        self._value_bytes += sum(len(value) for value in record.outcomes if type(value) is bytes)

    def _keep(self, record: CallerRecord, number: int, outcome: OutcomeValue) -> None:
        """Keep an outcome whose number is not the greatest. Forget the oldest one if there are too many."""
        older = record.older
        if older is None:
            older = record.older = {}
        older[number] = outcome
        if len(older) >= MAX_OUTCOMES:
            self._forget(record, next(iter(older)))

    def _close(self, record: CallerRecord, floor: int) -> None:
        """Drop the outcomes below a new floor. (The one in `outcome` is dropped when the next one replaces it.)"""
        record.floor = floor
        older = record.older
        while older:
            number = next(iter(older))
            if number >= floor:
                return
            self._release(older.pop(number))
        record.older = None

    def _forget(self, record: CallerRecord, number: int) -> None:
        """Drop an outcome that the caller can still ask for, and raise the floor above it."""
        if record.older is not None:
            self._release(record.older.pop(number))
        record.floor = max(record.floor, number + 1)

    def _forget_values(self, newest: CallerRecord) -> None:
        """Forget returned values, caller by caller in the order of their first writes, until the rest is small enough."""
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
