"""The outcomes that writers got, write by write: the truth that the grid is compared with in the end."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

UNIQUE, REGISTERS, COUNTERS, LOCKED = "unique", "registers", "counters", "locked"
"""The maps: keys that are written once; values that one writer overwrites and removes; numbers that all writers raise, by
compare-and-set or where they are; and numbers that they read and put while they hold the lock of the key."""
COUNTED = (COUNTERS, LOCKED)
"""The maps whose values are raised by one."""

Value = str | int | None
"""None: the key has no value."""


class LedgerOutcome(enum.StrEnum):
    """What became of a write, as its caller was told."""

    ACKNOWLEDGED = "acknowledged"
    REFUSED = "refused"
    """By compare-and-set: another value was there; or the lock was lost by then. Nothing was changed."""
    FAILED = "failed"
    """`UnavailableError`, `GridFull`: nothing was changed."""
    INDETERMINATE = "indeterminate"
    """`IndeterminateWrite`: done or not."""


class LedgerWrite(msgspec.Struct, frozen=True, gc=False):
    """One write. Times are seconds since the beginning."""

    writer: int
    value: Value
    """Written, or None: removed."""
    outcome: LedgerOutcome
    began_s: float
    ended_s: float


class LedgerToken(msgspec.Struct, frozen=True, gc=False):
    """The token of a lock that was acquired. Times are seconds since the beginning."""

    token: int
    began_s: float
    ended_s: float


@dataclass
class Ledger:
    """All writes."""

    maps: dict[str, dict[str, list[LedgerWrite]]] = field(
        default_factory=lambda: {name: {} for name in (UNIQUE, REGISTERS, *COUNTED)}
    )
    """Map, then key, to its writes in the order in which they ended."""
    outcomes: Counter[str] = field(default_factory=Counter)
    certain: list[str] = field(default_factory=list)
    """Unique keys whose write was acknowledged, in that order."""
    missed_s: dict[str, float] = field(default_factory=dict)
    """Of those: which a reader did not find, and when it first did not."""
    longest: dict[int, LedgerWrite] = field(default_factory=dict)
    """Writer to the write that it waited for the longest."""
    raised_before: dict[str, dict[str, int]] = field(default_factory=dict)
    """Map, then key, to the number that a counter had when the ledger was settled."""
    tokens: dict[str, list[LedgerToken]] = field(default_factory=dict)
    """Key to the tokens that its lock gave, in the order in which they were received."""

    def note(self, map_name: str, key: str, write: LedgerWrite) -> None:
        """Note a write that has ended."""
        self.maps[map_name].setdefault(key, []).append(write)
        self.outcomes[write.outcome] += 1
        if map_name == UNIQUE and write.outcome is LedgerOutcome.ACKNOWLEDGED:
            self.certain.append(key)
        longest = self.longest.get(write.writer)
        if longest is None or write.ended_s - write.began_s > longest.ended_s - longest.began_s:
            self.longest[write.writer] = write

    def settle(self, found: Mapping[str, Mapping[str, Value]], now_s: float) -> None:
        """Begin anew with what was found in the maps: it is what the next writes follow. No write is under way."""
        for name, keys in self.maps.items():
            read = found[name]
            if name in COUNTED:
                self.raised_before[name] = {key: value for key, value in read.items() if isinstance(value, int)}
                self.maps[name] = {key: [] for key in keys}
                continue
            for key, writes in keys.items():
                writes.append(LedgerWrite(writes[0].writer, read.get(key), LedgerOutcome.ACKNOWLEDGED, now_s, now_s))
        self.certain = [key for key in self.maps[UNIQUE] if key in found[UNIQUE]]
        self.missed_s.clear()

    @property
    def operations(self) -> int:
        """How many writes have ended."""
        return self.outcomes.total()
