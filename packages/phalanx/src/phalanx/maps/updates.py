"""What both maps send to change a value where it lives, and what they make of the answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from itertools import islice
from typing import Any, TypeVar

from phalanx.codec.values import from_key_data, to_data
from phalanx.common.durations import Duration
from phalanx.common.errors import CorruptDataError, ErrorCode, UpdateFailed, UsageError
from phalanx.common.words import counted, quoted
from phalanx.maps.requests import expect, idle_to_ms, ttl_to_ms
from phalanx.wire.key_requests import MAP_IDLE
from phalanx.wire.limits import MAX_ARGUMENTS
from phalanx.wire.messages import CountReply, ErrorReply, UpdatedReply, ValueReply

K = TypeVar("K")
V = TypeVar("V")

_SMALL = [to_data(number) for number in range(17)]
"""The numbers that programs add most."""
UPDATES_AT_ONCE = 1_000
"""The most updates of one `update_all` that are under way."""
KEPT = None
"""The time to live of an update that leaves it as it is."""
FOR_EVER = 0
"""The time to live, in milliseconds, of an entry that does not expire."""


def datas_of(
    function: str, arguments: tuple[object, ...], serialise: Callable[[object], bytes] = to_data
) -> list[bytes]:
    """Return the arguments of a function, serialised. Raises `UsageError` for what no function can be given."""
    if not isinstance(function, str) or not function:
        raise UsageError(f"{quoted(function)} cannot name a function: give the name by which members know it")
    if len(arguments) > MAX_ARGUMENTS:
        raise UsageError(f"{len(arguments)} arguments are more than the {MAX_ARGUMENTS} of an update: give a list")
    return [serialise(argument) for argument in arguments]


def result_of(reply: Any, what: str, read: Callable[[bytes], Any]) -> Any:
    """Return what a function returned, deserialised by `read`. Raises the error of a refusal."""
    result = expect(reply, ValueReply, what).value
    return None if result is None else read(result)


class Tally:
    """Counts what the slices of one update of many entries have done."""

    def __init__(self, function: str) -> None:
        self._function = function
        self._changed = self._failed = 0
        self._first = (b"", "")
        """The first key that was refused, and why."""

    def count_replies(self, replies: list[Any]) -> list[Any]:
        """Count the slices that were done. Return the replies; who asks again cannot name an operation whose partition
        was divided, so its outcome is unknown."""
        for reply in replies:
            if isinstance(reply, UpdatedReply):
                self._changed += reply.changed
                if reply.failed and not self._failed:
                    self._first = reply.failed_key, reply.reason
                self._failed += reply.failed
        return [
            ErrorReply(reply.id, ErrorCode.INDETERMINATE, reply.text)
            if isinstance(reply, ErrorReply) and reply.code == ErrorCode.OWNERSHIP_LOST
            else reply
            for reply in replies
        ]

    def check(self, place: int, reply: Any) -> None:
        """Raise the error of a slice that was not done; it says how many entries were changed before."""
        if isinstance(reply, ErrorReply) and self._changed:
            text = f"{reply.text}; {counted(self._changed, 'entry was', 'entries were')} changed by then"
            reply = ErrorReply(reply.id, reply.code, text, reply.lost)
        expect(reply, UpdatedReply, self._function)

    def total(self) -> int:
        """Return how many entries were changed. Raises `UpdateFailed` if the function refused some."""
        if not self._failed:
            return self._changed
        data, why = self._first
        try:
            key = from_key_data(data)
        except CorruptDataError:
            key = data
        refused, changed = (
            counted(self._failed, "entry", "entries"),
            counted(self._changed, "entry was", "entries were"),
        )
        text = f"{self._function}: {refused} refused and left unchanged, {changed} changed; the first of them, {quoted(key)}: {why}"
        raise UpdateFailed(self._changed, self._failed, key, text)


def in_lots(keys: Iterable[K]) -> Iterator[list[K]]:
    """Yield the keys, each once, in lots of `UPDATES_AT_ONCE`."""
    left = iter(dict.fromkeys(keys))
    while lot := list(islice(left, UPDATES_AT_ONCE)):
        yield lot


def _number_data(number: object, what: str) -> bytes:
    """Return the serialised number. Raises `UsageError` unless it can be added to a value."""
    if type(number) is int and 0 <= number < len(_SMALL):
        return _SMALL[number]
    if type(number) not in (int, float, Decimal):
        raise UsageError(f"{what} is {quoted(number)}, of type {type(number).__name__}: give an int, float or Decimal")
    return to_data(number)


def numbers_data(by: object, initial: object) -> list[bytes]:
    """Return the arguments of an increment, serialised. Raises `UsageError` unless they are numbers; `initial` can be None."""
    if type(by) is type(initial) is int and initial == 0 <= by < len(
        _SMALL
    ):  # what counters do, without two calls more
        return [_SMALL[by], _SMALL[0]]
    return [_number_data(by, "by"), to_data(None) if initial is None else _number_data(initial, "initial")]


def sum_of(total: V | None, key: object) -> V:
    """Return the sum that an increment made. Raises `KeyError` if the key had no value, and was to get none."""
    if total is None:
        raise KeyError(key)
    return total


def kept_or_ms(ttl: Duration | None) -> int | None:
    """Return the milliseconds of a time to live; None, for none: it stays what it was."""
    return KEPT if ttl is None else ttl_to_ms(ttl)


def new_lives_ms(ttl: Duration | None, max_idle: Duration | None) -> tuple[int | None, int | None]:
    """Return the milliseconds of the time to live and of the idle time that `touch` is given; None: as it was. Raises
    `UsageError` unless one is given."""
    if ttl is None and max_idle is None:
        raise UsageError("ttl is None: give seconds, or max_idle, or make the entry never expire with persist()")
    return kept_or_ms(ttl), KEPT if max_idle is None else idle_to_ms(max_idle)


def map_or_ms(max_idle: Duration | None) -> int:
    """Return the milliseconds of an idle time of a value that replaces another one; None: the map's."""
    return MAP_IDLE if max_idle is None else idle_to_ms(max_idle)


def refuse_both(max_idle: Duration | None, fence: int) -> None:
    """Raise `UsageError` if a write under a lock is to expire when it is idle."""
    if max_idle is not None:
        raise UsageError(f"max_idle and fence ({fence}) exclude each other: give the entry its idle time with touch()")


def seconds_left(reply: Any, key: object) -> float | None:
    """Return how many seconds the entry lives; None: without end. Raises `KeyError` if there is no value."""
    left = expect(reply, CountReply, "time_to_live").count
    if left < 0:
        raise KeyError(key)
    return left / 1000 if left else None
