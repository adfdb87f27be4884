"""Does the grid hold what the ledger says? Judged from outside, with nothing but what was written and what was found.

* A key that is written by one writer has the value of the last acknowledged write, or of an indeterminate one after it.
  Without any acknowledged write it can have none. Failed writes have changed nothing.
* A counter is at least the number of acknowledged increments, and at most that and the indeterminate ones. No two
  acknowledged increments made the same number. The same is true if the holder of the key's lock has read and put it.
* Nothing else is there; a look-up and a scan find the same; the size is the number of keys.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from phalanx_proof.chaos.ledger import COUNTED, Ledger, LedgerOutcome, LedgerWrite, Value

SHOWN = 60
"""Characters of a value."""


class ChaosViolation(msgspec.Struct, frozen=True):
    """Something that does not hold."""

    what: str
    map: str = ""
    key: str = ""
    expected: str = ""
    found: str = ""
    between_s: tuple[float, float] | None = None
    """When the writes were made that matter here, from the first to the last."""
    missed_s: float | None = None
    """When a reader first did not find it."""
    faults: tuple[str, ...] = ()
    """What was done to members around that time."""

    def __str__(self) -> str:
        around = "".join(f"\n      around it: {fault}" for fault in self.faults)
        if not self.key:
            return f"{self.what}{around}"
        when = f", written until {self.between_s[1]:.1f} s" if self.between_s is not None else ""
        when += f", missed from {self.missed_s:.1f} s on" if self.missed_s is not None else ""
        return f"{self.what}: {self.map}[{self.key}]: expected {self.expected}, found {self.found}{when}{around}"


@dataclass(frozen=True)
class ChecksFound:
    """What was read from one map in the end, in all ways that there are."""

    scanned: Sequence[tuple[str, Value]]
    looked_up: Mapping[str, Value]
    """Of the keys in the ledger: those that have a value."""
    size: int


def check_ledger(ledger: Ledger, found: Mapping[str, ChecksFound]) -> list[ChaosViolation]:
    """List everything that does not hold, in the order of maps and keys; empty if the ledger holds."""
    violations: list[ChaosViolation] = []
    for name, keys in ledger.maps.items():
        read, before = found[name], ledger.raised_before.get(name, {})
        for key, writes in sorted(keys.items()):
            value = read.looked_up.get(key)
            if name in COUNTED:
                violations += _check_counter(name, key, writes, value, before.get(key, 0))
            else:
                violations += _check_register(name, key, writes, value)
        violations += _check_reading(name, keys, read)
    return violations


def _check_register(name: str, key: str, writes: Sequence[LedgerWrite], value: Value) -> list[ChaosViolation]:
    acknowledged = [index for index, write in enumerate(writes) if write.outcome is LedgerOutcome.ACKNOWLEDGED]
    last = acknowledged[-1] if acknowledged else -1
    certain: Value = writes[last].value if acknowledged else None
    later = [write.value for write in writes[last + 1 :] if write.outcome is LedgerOutcome.INDETERMINATE]
    refused = [write for write in writes if write.outcome is LedgerOutcome.REFUSED]
    if refused:
        return [
            _violation("something was there before the only writer wrote it", name, key, "nothing", "a value", refused)
        ]
    if value == certain or value in later:
        return []
    expected = " or ".join(_shown(each) for each in dict.fromkeys((certain, *later)))
    if value is None:
        what = "an acknowledged write is missing"
    elif value not in [write.value for write in writes]:
        what = "a value that nobody wrote"
    elif any(write.value == value and write.outcome is LedgerOutcome.FAILED for write in writes):
        what = "a write that failed was done"
    elif certain is None:
        what = "what was removed is there"
    else:
        what = "an acknowledged write was undone"
    times = writes[max(last, 0) :]
    return [_violation(what, name, key, expected, _shown(value), times)]


def _check_counter(
    name: str, key: str, writes: Sequence[LedgerWrite], value: Value, before: int
) -> list[ChaosViolation]:
    acknowledged = [write for write in writes if write.outcome is LedgerOutcome.ACKNOWLEDGED]
    indeterminate = sum(write.outcome is LedgerOutcome.INDETERMINATE for write in writes)
    least = before + len(acknowledged)
    most = least + indeterminate
    violations = []
    value = value if value is not None else 0
    if not isinstance(value, int) or not least <= value <= most:
        expected = f"{least}" if least == most else f"{least} to {most}"
        is_low = not isinstance(value, int) or value < least
        what = "acknowledged increments are missing" if is_low else "increments were done twice"
        violations.append(_violation(what, name, key, expected, _shown(value), acknowledged[-1:]))
    for number, times in sorted(Counter(write.value for write in acknowledged).items(), key=str):
        if times > 1:
            made = [write for write in acknowledged if write.value == number]
            what = "one number was reached by two acknowledged increments"
            violations.append(_violation(what, name, key, f"{number} once", f"{times} times", made))
    return violations


def _check_reading(name: str, keys: Mapping[str, Sequence[LedgerWrite]], read: ChecksFound) -> list[ChaosViolation]:
    violations = []
    scanned = dict(read.scanned)
    for key, times in Counter(key for key, _ in read.scanned).items():
        if times > 1:
            violations.append(ChaosViolation("a scan returned a key twice", name, key, "once", f"{times} times"))
    for key in sorted(scanned.keys() - keys.keys()):
        violations.append(ChaosViolation("a key that nobody wrote", name, key, "nothing", _shown(scanned[key])))
    for key in sorted((scanned.keys() | read.looked_up.keys()) & keys.keys()):
        one, other = read.looked_up.get(key), scanned.get(key)
        if one != other:
            violations.append(ChaosViolation("a scan and a look-up differ", name, key, _shown(one), _shown(other)))
    if read.size != len(scanned):
        violations.append(
            ChaosViolation(f"the size of map {name} is {read.size}, but {len(scanned)} keys are in it", name)
        )
    return violations


def _violation(
    what: str, name: str, key: str, expected: str, found: str, writes: Sequence[LedgerWrite]
) -> ChaosViolation:
    between = (min(w.began_s for w in writes), max(w.ended_s for w in writes)) if writes else None
    return ChaosViolation(what, name, key, expected, found, between)


def _shown(value: Value) -> str:
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
