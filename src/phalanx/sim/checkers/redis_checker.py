"""Judges what Redis clients were told: no acknowledged command is lost, and none is done twice.

They repeat nothing, so a counter ends between what was acknowledged and what was sent. A register is of one client, which sets it to
greater numbers: it ends at the last acknowledged number, or a later one whose outcome its client does not know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from phalanx.codec.values import from_data
from phalanx.common.ids import MemberId, Millis
from phalanx.sim.checkers.findings import Findings

LOST = "an acknowledged command of a Redis client is not lost, and done once"
WRONG = "a Redis client is told what holds"


class Key:
    """A key that clients write, and who acknowledged writes of it, and when."""

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.told: list[tuple[MemberId, Millis]] = []


class Counter(Key):
    """A counter that all clients increment."""

    def __init__(self, key: bytes) -> None:
        super().__init__(key)
        self.acknowledged = 0
        self.sent = 0
        """Increments that were sent, and not refused for sure."""


class Register(Key):
    """A key that one client sets to 1, 2, 3 and so on."""

    def __init__(self, key: bytes) -> None:
        super().__init__(key)
        self.acknowledged = 0
        self.last_sent = 0
        self.is_certain = True
        """Whether the client knows what became of every SET."""

    def __repr__(self) -> str:
        return f"{self.key.decode()} (acknowledged {self.acknowledged}, sent {self.last_sent})"

    def may_be(self, text: bytes | None) -> bool:
        """Return whether the register may have this text now."""
        number = 0 if text is None or text == b"$-1" else int(text)
        return self.acknowledged <= number <= (self.acknowledged if self.is_certain else self.last_sent)


def check_redis(
    counters: Iterable[Counter],
    registers: Iterable[Register],
    wrong: Iterable[tuple[Key, str]],
    value_of: Callable[[bytes], bytes | None],
    may_be_lost: Callable[[Key], bool],
    findings: Findings,
    now: Millis,
) -> int:
    """Judge the history of all clients at rest; return how many findings are excused. `wrong`: answers that no promise allows, of
    which key. `may_be_lost`: whether all replicas that had an acknowledged write of a key may be gone."""
    found: list[tuple[Key, str, str]] = [(key, WRONG, text) for key, text in wrong]
    for counter in counters:
        value = value_of(counter.key)
        count = 0 if value is None else int(from_data(value))
        told = f"{counter.key.decode()} is {count}: {counter.acknowledged} of {counter.sent} were acknowledged"
        if count > counter.sent:
            findings.add(now, LOST, told)
        elif count < counter.acknowledged:
            found.append((counter, LOST, told))
    for register in registers:
        value = value_of(register.key)
        if not register.may_be(None if value is None else from_data(value)):
            found.append((register, LOST, f"{register} is {value!r}"))
    excused = 0
    for key, what, told in found:
        if may_be_lost(key):
            excused += 1
        else:
            findings.add(now, what, told)
    return excused
