"""Makes a history smaller, as long as it violates the same.

The same is the property and, where a member failed, the error. First the history ends soon after the violation, which
makes every further try quicker. Then, until nothing helps any more: fewer faults, fewer hosts, fewer calls (many at once
and then one by one, as in delta debugging), a plain network and plain clocks, smaller tables and maps, shorter faults. Each
part that is left is needed: without it alone the property holds.

Tries are counted in inputs that members take, not in seconds: so the same history shrinks to the same one everywhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import msgspec

from phalanx.common.errors import PhalanxError
from phalanx_proof.sim.checkers.findings import Violation
from phalanx_proof.sim.fault import FaultKind
from phalanx_proof.sim.options import HistoryOptions
from phalanx_proof.sim.planted_bug import PlantedBug
from phalanx_proof.sim.result import Result
from phalanx_proof.sim.run import run

MOST_TRIES = 1_500
MOST_INPUTS = 4_000_000
"""Of all tries together: about two minutes of one core."""
PLAIN = {
    "lost_permille": 0, "doubled_permille": 0, "clock_ppm": (), "timer_slack_ms": 0, "ring_above_members": 100,
    "initial_members": 1, "latency_ms": (5, 5), "traits": (), "wall_ms": (), "stalls": False, "stays_whole_ms": 0,
    "anti_entropy_interval_ms": 0, "tombstone_ms": 14_400_000, "backups": 1, "partitions": 1, "registers": 1,
    "counters": 1, "one_machine": False, "migrations_per_member": 4, "operations_per_second": 0, "member_settings": {}, "staging": False, "idle": False,
    "journal": 0, "max_entries": 0, "max_bytes": 0, "eviction": "oldest", "settings_differ": False,
}  # fmt: skip
"""Option to the value at which it does no harm, or less."""
HALVED = ("partitions", "registers", "counters", "operations_per_second", "backups")
SHORTEST_MS = 50
AFTER_MS = 100
"""How much of the safety phase stays after the violation."""

Part = TypeVar("Part")


def signature(violation: Violation) -> str:
    """Return what makes two violations the same: the property, and the error where a member failed."""
    if violation.what != "a member never fails":
        return violation.what
    # The story: the member, the error's class, and (of an invariant) what must hold, before the facts of the moment.
    error = re.match(r"\S+: (\w+: [^\n(\[{0-9]*)", violation.story)
    return f"{violation.what}: {error[1].strip()}" if error else violation.what


def shrink(options: HistoryOptions, planted: PlantedBug | None = None) -> HistoryOptions:
    """Return the smallest history found; the options themselves where nothing is violated."""
    result = run(options, planted)
    return _Shrinking(options, planted, result).play() if result.violations else options


class _Shrinking:
    """The search for the smallest history."""

    def __init__(self, options: HistoryOptions, planted: PlantedBug | None, result: Result) -> None:
        self._best = options
        self._planted = planted
        self._wanted = signature(result.violations[0])
        self._violated_at = result.violations[0].at_ms
        self._tries = self._inputs = 0

    def play(self) -> HistoryOptions:
        self._end_early()
        before = None
        while before != self._best and not self._is_spent():
            before = self._best
            self._fewer(lambda o: o.faults, lambda o, kept: _replace(o, faults=tuple(kept)))
            self._fewer_hosts()
            self._fewer_calls()
            for smaller in (self._plainer, self._halved, self._shorter):
                self._while_it_helps(smaller)
        return self._best

    def _is_spent(self) -> bool:
        return self._tries >= MOST_TRIES or self._inputs >= MOST_INPUTS

    def _try(self, options: HistoryOptions) -> bool:
        """Tell whether these options violate the same; then they are the smallest so far."""
        if self._is_spent():
            return False
        self._tries += 1
        try:
            result = run(options, self._planted, ends_at=lambda each: signature(each) == self._wanted)
        except (PhalanxError, ValueError, IndexError):
            return False  # Settings that do not fit each other any more.
        self._inputs += result.inputs
        same = [each for each in result.violations if signature(each) == self._wanted]
        if same:
            self._best, self._violated_at = options, same[0].at_ms
        return bool(same)

    def _while_it_helps(self, smaller: Callable[[HistoryOptions], Iterator[HistoryOptions]]) -> None:
        """Try each way to make the history smaller; after one that helps, begin again from there."""
        has_helped = True
        while has_helped and not self._is_spent():
            has_helped = any(self._try(each) for each in smaller(self._best))

    def _end_early(self) -> None:
        """End the history soon after the violation. Many violations show only at rest: then try half of the time, and
        half of that.
        """
        options = self._best
        if self._violated_at + AFTER_MS < options.duration_ms:
            self._try(_ending(options, self._violated_at + AFTER_MS))
        while self._best.duration_ms > SHORTEST_MS and self._try(_ending(self._best, self._best.duration_ms // 2)):
            pass

    def _fewer(
        self,
        parts_of: Callable[[HistoryOptions], Sequence[Part]],
        with_parts: Callable[[HistoryOptions, list[Part]], HistoryOptions],
    ) -> None:
        """Leave out as many parts as possible: halves first, then smaller runs, in the end one by one."""
        size = len(parts_of(self._best))
        while size:
            first = 0
            while first < len(parts := list(parts_of(self._best))):
                if not self._try(with_parts(self._best, parts[:first] + parts[first + size :])):
                    first += size
            size //= 2

    def _fewer_hosts(self) -> None:
        for host in reversed(range(self._best.hosts)):
            if self._best.hosts > 1:
                self._try(without_host(self._best, host))

    def _fewer_calls(self) -> None:
        if not self._best.operations_per_second:
            return
        if self._best.kept_calls is None:
            # Each call that a program makes is at least one operation: this leaves out none.
            if not self._try(_replace(self._best, kept_calls=((1, run(self._best, self._planted).operations),))):
                return
            self._end_calls()
        self._fewer(_calls, _with_calls)

    def _end_calls(self) -> None:
        """Halve the number of calls from behind, before single ones are left out."""
        while (last := (self._best.kept_calls or ((0, 0),))[-1][1]) > 1 and self._try(
            _replace(self._best, kept_calls=((1, last // 2),))
        ):
            pass

    def _plainer(self, options: HistoryOptions) -> Iterator[HistoryOptions]:
        for name, plain in PLAIN.items():
            if getattr(options, name) != plain:
                yield _replace(options, **{name: plain})
        if any(options.start_at_ms):
            yield _replace(options, start_at_ms=(0,) * options.members)

    def _halved(self, options: HistoryOptions) -> Iterator[HistoryOptions]:
        for name in HALVED:
            if (value := getattr(options, name)) > 1:
                yield _replace(options, **{name: value // 2})
        if len(options.mix) > 1:
            for kind in options.mix:
                yield _replace(options, mix={each: weight for each, weight in options.mix.items() if each != kind})

    def _shorter(self, options: HistoryOptions) -> Iterator[HistoryOptions]:
        for index, fault in enumerate(options.faults):
            if fault.lasts_ms > SHORTEST_MS:
                shorter = msgspec.structs.replace(fault, lasts_ms=fault.lasts_ms // 2)
                yield _replace(options, faults=(*options.faults[:index], shorter, *options.faults[index + 1 :]))
        last = max((fault.at_ms for fault in options.faults), default=0)
        if last + 2 * AFTER_MS < options.duration_ms:
            yield _ending(options, (last + options.duration_ms) // 2)


def _replace(options: HistoryOptions, **changes: object) -> HistoryOptions:
    return msgspec.structs.replace(options, **changes)


def _ending(options: HistoryOptions, at_ms: int) -> HistoryOptions:
    return _replace(options, duration_ms=at_ms, faults=tuple(f for f in options.faults if f.at_ms < at_ms))


def _calls(options: HistoryOptions) -> list[int]:
    return [number for first, last in options.kept_calls or () for number in range(first, last + 1)]


def _with_calls(options: HistoryOptions, numbers: list[int]) -> HistoryOptions:
    ranges: list[tuple[int, int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return _replace(options, kept_calls=tuple(ranges))


def without_host(options: HistoryOptions, gone: int) -> HistoryOptions:
    """Return the options without a host: hosts behind it move up, and groups are cut without it."""

    def moved(host: int) -> int:
        return host - 1 if host > gone else host

    faults = []
    for fault in options.faults:
        if fault.kind is FaultKind.CUT_GROUP:
            low = fault.nth & ((1 << gone) - 1)
            faults.append(msgspec.structs.replace(fault, nth=low | fault.nth >> gone + 1 << gone))
        elif gone not in (fault.host, fault.other):
            faults.append(msgspec.structs.replace(fault, host=moved(fault.host), other=moved(fault.other)))
    members = options.members - (gone < options.members)
    if members == 0:
        return options

    def without(values: tuple[Part, ...]) -> tuple[Part, ...]:
        return values[:gone] + values[gone + 1 :]

    return _replace(
        options,
        hosts=options.hosts - 1,
        members=members,
        start_at_ms=without(options.start_at_ms),
        clock_ppm=without(options.clock_ppm),
        wall_ms=without(options.wall_ms),
        traits=without(options.traits),
        initial_members=min(options.initial_members, members),
        faults=tuple(faults),
    )
