"""Makes inputs for one target, one after the other, and hands each to the judge."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from random import Random
from types import CodeType, FrameType
from typing import Any

from hostile.fuzzing.changes import changed
from hostile.fuzzing.judging import Finding, Judge
from hostile.fuzzing.target import Case, Target, Turns
from hostile.fuzzing.texts import from_text
from support.roots import TESTS

CORPUS = TESTS / "hostile" / "corpus"
TRACED = 64
"""One input in so many is traced: that slows it down ten times."""
SHRUNK_WITHIN_S = 10.0
MOST_KEPT = 2_000
MOST_KEPT_BYTES = 64 * 1024
"""A longer input is not kept for changes: most of the time would go into copying and playing it."""


def corpus_of(name: str) -> list[Case]:
    """Return the inputs that are kept for a target, by their names."""
    return [from_text(path.read_text(encoding="utf-8")) for path in sorted((CORPUS / name).glob("*.case"))]


def _is_short(case: Case) -> bool:
    return sum(map(len, case)) <= MOST_KEPT_BYTES


class Reach:
    """Which lines of the product were ever reached, as far as inputs were traced."""

    def __init__(self) -> None:
        self._seen: dict[CodeType, set[int]] = {}
        self._missing: dict[CodeType, int] = {}
        """How many lines of a function were never reached."""
        self._is_new = False

    def is_new(self, target: Target, case: Case) -> bool:
        """Play an input, which does no harm, and return whether it reaches a line for the first time."""
        self._is_new = False
        sys.settrace(self._on_call)
        try:
            target.play(case, Turns())
        finally:
            sys.settrace(None)
        return self._is_new

    def _on_call(self, frame: FrameType, event: str, argument: Any) -> Any:
        code = frame.f_code
        missing = self._missing.get(code)
        if missing is None:
            is_ours = "/phalanx/" in code.co_filename.replace("\\", "/")
            missing = self._missing[code] = len({line for *_, line in code.co_lines() if line}) if is_ours else 0
            self._seen[code] = set()
        return self._on_line if missing else None

    def _on_line(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            seen = self._seen[frame.f_code]
            if frame.f_lineno not in seen:
                seen.add(frame.f_lineno)
                self._missing[frame.f_code] -= 1
                self._is_new = True
        return self._on_line


class Engine:
    """Plays a target. Half of its inputs are made out of nothing, the others are changes of some that are kept."""

    def __init__(self, target: Target, seed: str) -> None:
        self.target = target
        self.rng = Random(f"fuzz:{target.name}:{seed}")
        self.judge = Judge(target)
        self.inputs = 0
        self._first = corpus_of(target.name)
        """Inputs to be played first, as they are."""
        self._kept = [case for case in self._first if _is_short(case)]
        self._reach = Reach()

    def next(self) -> Case:
        """Return the next input."""
        rng, kept = self.rng, self._kept
        if self._first:
            return self._first.pop()
        if not kept or rng.random() < 0.5:
            return self.target.make(rng)
        case = rng.choice(kept)
        made = self.target.change(rng, case) if rng.random() < 0.3 else None
        return made if made is not None else changed(rng, case, rng.choice(kept))

    def play(self, case: Case) -> Finding | None:
        """Play an input, and keep it if it reaches something new."""
        self.inputs += 1
        found = self.judge.judge(case)
        if found is None and self.inputs % TRACED == 0 and _is_short(case) and self._is_new(case):
            if len(self._kept) >= MOST_KEPT:
                self._kept.pop(self.rng.randrange(len(self._kept)))
            self._kept.append(case)
        return found

    def _is_new(self, case: Case) -> bool:
        try:
            return self._reach.is_new(self.target, case)
        except Exception:  # what it raises the second time only, the judge has not seen: no finding that repeats
            return False

    def run(self, inputs: int) -> Iterator[Finding]:
        """Play so many inputs; return what does harm."""
        for _ in range(inputs):
            found = self.play(self.next())
            if found is not None:
                yield found


def shrunk(judge: Judge, finding: Finding, tries: int = 400) -> Finding:
    """Return a shorter input that does the same harm."""
    best, left, ends = finding, tries, time.monotonic() + SHRUNK_WITHIN_S
    size = max(1, len(best.case) // 2)
    while size and left > 0 and time.monotonic() < ends:  # whole parts first
        at = 0
        while at < len(best.case) and left > 0 and time.monotonic() < ends:
            left -= 1
            found = judge.judge(best.case[:at] + best.case[at + size :])
            if found is not None and found.sign == finding.sign:
                best = found
            else:
                at += size
        size //= 2
    for place in range(len(best.case)):
        size = max(1, len(best.case[place]) // 2)
        while size and left > 0 and time.monotonic() < ends:
            at = 0
            while at < len(best.case[place]) and left > 0 and time.monotonic() < ends:
                left -= 1
                case = list(best.case)
                case[place] = case[place][:at] + case[place][at + size :]
                found = judge.judge(case)
                if found is not None and found.sign == finding.sign:
                    best = found
                else:
                    at += size
            size //= 2
    return best
