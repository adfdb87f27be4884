"""Whether the calls on one key can be put in an order that explains every answer and respects time.

Until the first fault, every register is linearizable: each call takes effect at its owner, at one moment between its
beginning and its end. The search tries orders depth first, remembers what it has tried, and gives up when it has
tried too many: no answer is then no finding. (After a fault less is promised; see `data_checker`.)
"""

from __future__ import annotations

from typing import NamedTuple

from phalanx.common.ids import Millis
from phalanx_proof.sim.history.operations import NEVER, Operation, Outcome

TRIES = 10_000
TEXT = b"\xff\xff\xff\xf5"
"""The type id of a string: what all values begin with."""


class TimedCall(NamedTuple):
    """One call on one key, as the search sees it."""

    begin: Millis
    end: Millis
    """NEVER: it can have taken effect, or not."""
    kind: str
    value: bytes | None
    expected: bytes | None
    result: object


def calls_on(key: bytes, operations: list[Operation], until: Millis) -> list[TimedCall]:
    """Return the calls that began before a time, in their order; those that were not answered by then are left open."""
    calls = []
    for operation in operations:
        if operation.begin >= until or operation.outcome is Outcome.FAILED or key not in operation.keys:
            continue
        index = operation.keys.index(key)
        is_known = operation.kind != "count_where" or operation.result is not None
        is_answered = operation.outcome is Outcome.OK and operation.end < until and is_known
        if not is_answered and not operation.values and operation.kind not in ("remove", "count", "count_where"):
            continue
        value = operation.values[index] if operation.values else None
        result = operation.result
        if isinstance(result, tuple):
            result = result[index]  # type: ignore[assignment]
        end = operation.end if is_answered else NEVER
        calls.append(TimedCall(operation.begin, end, operation.kind, value, operation.expected, result))
    return sorted(calls, key=lambda call: (call.begin, call.end))


def is_linearizable(calls: list[TimedCall]) -> bool | None:
    """Tell whether some order of the calls explains all answers; None: not decided within the number of tries."""
    states: set[bytes | None] = {None}
    begin, end = 0, -1
    for index, call in enumerate(calls):
        if call.begin > end and index > begin:
            # Nothing was under way at this moment: what came before is in order before all that follows.
            ends = _end_states(calls[begin:index], states)
            if not ends:
                return None if ends is None else False
            begin, states = index, ends
        end = max(end, call.end)
    ends = _end_states(calls[begin:], states)
    return None if ends is None else bool(ends)


def _end_states(calls: list[TimedCall], states: set[bytes | None]) -> set[bytes | None] | None:
    """Find the values that the key can have after calls that overlap, from any of these before them; None: not decided."""
    if len(calls) == 1:
        taken = [_take(calls[0], state) for state in states]
        return {after for possible, after in taken if possible} | (states if calls[0].end == NEVER else set())
    must = sum(1 << index for index, call in enumerate(calls) if call.end != NEVER)
    ends: set[bytes | None] = set()
    tried: set[tuple[int, bytes | None]] = set()
    stack: list[tuple[int, bytes | None]] = [((1 << len(calls)) - 1, state) for state in states]
    while stack:
        left, state = stack.pop()
        if (left, state) in tried:
            continue
        tried.add((left, state))
        if len(tried) > TRIES:
            return None
        if not left & must:
            ends.add(state)
        for index in _next_ones(calls, left):
            possible, after = _take(calls[index], state)
            if possible:
                stack.append((left & ~(1 << index), after))
    return ends


def _next_ones(calls: list[TimedCall], left: int) -> list[int]:
    """List the remaining calls that can come next: none that began after another one of them had ended."""
    candidates: list[int] = []
    first_end = NEVER
    while left:
        lowest = left & -left
        index = lowest.bit_length() - 1
        call = calls[index]
        if call.begin > first_end:
            break
        first_end = min(first_end, call.end)
        candidates.append(index)
        left ^= lowest
    # In the end the first to end is tried first: it is the one that cannot wait.
    candidates.sort(key=lambda index: -calls[index].end)
    return [index for index in candidates if calls[index].begin <= first_end]


def _take(call: TimedCall, state: bytes | None) -> tuple[bool, bytes | None]:
    """Tell whether a call can come next, and which value the key has then."""
    is_open = call.end == NEVER
    kind = call.kind
    if kind in ("get", "get_all", "read_counter"):
        return call.result == state, state
    if kind in ("put", "put_all"):
        return True, call.value
    if kind == "get_and_put":
        return is_open or call.result == state, call.value
    if kind == "count":
        raised = TEXT + b"%d" % (int(state[len(TEXT) :]) + 1 if state else 1)
        return is_open or call.result == raised, raised
    if kind == "count_where":
        raised_if_there = TEXT + b"%d" % (int(state[len(TEXT) :]) + 1) if state else None
        return is_open or call.result == (state is not None), raised_if_there
    if kind == "remove":
        return is_open or call.result == state, None
    if kind in ("put_if_absent", "lock") or (kind == "write_counter" and call.expected is None):
        if state is None:
            return is_open or call.result is None, call.value
        return is_open or call.result == state, state
    fits = state is not None and (call.expected is None or call.expected == state)
    return is_open or call.result == fits, call.value if fits else state
