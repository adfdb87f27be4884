"""Judges the answers that Redis clients got: no acknowledged command is lost, and none is done twice.

They repeat nothing, so a counter ends between what was acknowledged and what was sent. A register is of one client, which sets it to
greater numbers: it ends at the last acknowledged number, or a later one whose outcome its client does not know.

Where sides of a cut go on, each counts for itself, and of a register the latest number wins when they merge: it ends at one that was sent, and none
that was acknowledged is later than that, by more than the accuracy of the grid's clock (as in `merged_data`). What no side can have
lost is judged as without sides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from phalanx.codec.values import from_data, to_data
from phalanx.common.ids import MemberId, Millis
from phalanx_proof.sim.checkers.findings import Findings
from phalanx_proof.sim.history.operations import NEVER

LOST = "an acknowledged command of a Redis client is not lost, and done once"
WRONG = "a Redis client is told what holds"


class RedisKey:
    """A key that clients write, and who acknowledged writes of it, and when."""

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.acknowledged_by: list[tuple[MemberId, Millis]] = []


class RedisCounter(RedisKey):
    """A counter that all clients increment."""

    def __init__(self, key: bytes) -> None:
        super().__init__(key)
        self.acknowledged = 0
        self.sent = 0
        """Increments that were sent, and not refused for sure."""


class Register(RedisKey):
    """A key that one client sets to 1, 2, 3 and so on."""

    def __init__(self, key: bytes) -> None:
        super().__init__(key)
        self.acknowledged = 0
        self.last_sent = 0
        self.is_certain = True
        """Whether the client knows what became of every SET."""
        self.sets: dict[int, tuple[Millis, Millis]] = {}
        """Number to when its SET was sent, and was acknowledged (NEVER: it was not); without those that were refused for sure."""

    def __repr__(self) -> str:
        return f"{self.key.decode()} (acknowledged {self.acknowledged}, sent {self.last_sent})"

    def send(self, now: Millis) -> int:
        """Note that the next number is sent, and return it."""
        self.last_sent += 1
        self.sets[self.last_sent] = now, NEVER
        return self.last_sent

    def acknowledge(self, number: int, now: Millis) -> None:
        """Note that a SET was acknowledged."""
        self.acknowledged = number
        self.sets[number] = self.sets[number][0], now

    def fail(self, number: int, *, is_undone: bool) -> None:
        """Note that a SET was refused. `is_undone`: it was not carried out for sure."""
        if is_undone:
            del self.sets[number]
        else:
            self.is_certain = False

    def may_be(self, text: bytes | None) -> bool:
        """Return whether the register can have this text now."""
        number = 0 if text is None or text == b"$-1" else int(text)
        return self.acknowledged <= number <= (self.acknowledged if self.is_certain else self.last_sent)


class Merges(NamedTuple):
    """What is known of a history whose sides merged."""

    accuracy_ms: Millis
    """Two writes that are nearer together can be ordered either way."""
    lost_at: Mapping[bytes, Millis]
    """Serialised key to when the last process that held its latest state ended."""

    def story_of(self, register: Register, number: int) -> tuple[str, bool] | None:
        """Return what is wrong with a merged register that has this number (0: none), and whether it is excused; None: nothing is."""
        if number and number not in register.sets:
            return f"{register} is {number}, which was not sent, or was refused", False
        _, ended = register.sets.get(number, (-1, -1))
        if ended == NEVER:
            return None
        for later, (begun, acknowledged_at) in sorted(register.sets.items(), reverse=True):
            if acknowledged_at != NEVER and begun > ended + self.accuracy_ms:
                is_excused = begun <= self.lost_at.get(to_data(register.key), -1)
                return f"{register} is {number}, and {later} was acknowledged at {acknowledged_at} ms", is_excused
        return None


def check_redis(
    counters: Iterable[RedisCounter],
    registers: Sequence[Register],
    wrong: Iterable[tuple[RedisKey, str]],
    value_of: Callable[[bytes], bytes | None],
    may_be_lost: Callable[[RedisKey], bool],
    findings: Findings,
    now: Millis,
    merges: Merges | None = None,
) -> int:
    """Judge the history of all clients at rest; return how many findings are excused. `wrong`: answers that no promise allows, of
    which key. `may_be_lost`: whether all replicas that had an acknowledged write of a key can be gone, or have given way to another
    side's. `merges`: None, if there were no sides."""
    found: list[tuple[RedisKey, str, str]] = [(key, WRONG, text) for key, text in wrong]
    for counter in counters:
        value = value_of(counter.key)
        count = 0 if value is None else int(from_data(value))
        text = f"{counter.key.decode()} is {count}: {counter.acknowledged} of {counter.sent} were acknowledged"
        if count > counter.sent:
            findings.add(now, LOST, text)
        elif count < counter.acknowledged:
            found.append((counter, LOST, text))
    for register in registers:
        value = value_of(register.key)
        if not register.may_be(None if value is None else from_data(value)):
            found.append((register, LOST, f"{register} is {value!r}"))
    excused = 0
    for register in registers:
        value = value_of(register.key)
        story = merges.story_of(register, 0 if value is None else int(from_data(value))) if merges is not None else None
        if story is not None and not story[1]:
            findings.add(now, LOST, story[0])
        excused += story is not None and story[1]
    for key, what, text in found:
        if may_be_lost(key):
            excused += 1
        else:
            findings.add(now, what, text)
    return excused
