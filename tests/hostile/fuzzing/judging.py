"""Judges one input: what came out of the target, the CPU time of its longest turn, and what the memory grew by."""

from __future__ import annotations

import contextlib
import re
import resource
import signal
import time
import traceback
from pathlib import Path
from types import FrameType, TracebackType

import msgspec

from hostile.fuzzing.target import MIB, TURN_MS, Case, Target, Turns

YARDSTICK_MS = 4.0
"""What `yardstick_ms` takes while nothing else runs, on the machine for which the times here are."""
GROWTH = 10
"""Bytes of memory that each byte of an input may take while it is played."""
GROWTH_BYTES = MIB
"""And what any input may take."""
MEASURED_OFTEN = 3
"""A turn that took too long is played so often, and the shortest counts."""


class Finding(msgspec.Struct, frozen=True):
    """An input that does harm."""

    target: str
    kind: str
    """error, time, memory, held (the turn did not end), crash (the process did)."""
    what: str
    """In a few words, what happened; the same for all inputs that do the same."""
    detail: str
    case: Case

    @property
    def sign(self) -> str:
        """What is the same for two findings of one defect."""
        return f"{self.target} {self.kind} {self.what}"


def yardstick_ms() -> float:
    """Measure what a fixed piece of work takes here and now: machines differ, and their load does."""
    best = float("inf")
    for _ in range(3):
        began = time.thread_time_ns()
        table: dict[int, str] = {}
        for number in range(20_000):
            table[number * 7919 % 65_521] = str(number)
        best = min(best, (time.thread_time_ns() - began) / 1e6)
    return best


def limit_ms(turn_ms: float = TURN_MS) -> float:
    """Return what a turn may take here and now."""
    return turn_ms * max(1.0, yardstick_ms() / YARDSTICK_MS)


class Judge:
    """Plays inputs of one target, and says which do harm."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._limit_ns = limit_ms(target.turn_ms) * 1e6
        self._peak = 0
        """The most memory of the process at any time since it was set back, in bytes."""
        self._until_reset = 0

    def judge(self, case: Case) -> Finding | None:
        """Play an input; return what is wrong with it."""
        target = self.target
        if self._until_reset <= 0:
            self._reset_peak()
        self._until_reset -= 1
        turns = Turns()
        began = time.thread_time_ns()
        try:
            target.play(case, turns)
        except MemoryError:
            return self._finding("memory", "it took more than 1 GiB", case)
        except Exception as error:
            return self._finding("error", _place_of(error), case, "".join(traceback.format_exception(error)[-12:]))
        took_ns = turns.longest_ns if turns.count else time.thread_time_ns() - began
        if took_ns > self._limit_ns and (slow := self._judge_time(case)) is not None:
            return slow
        peak = _peak_bytes()
        if peak - self._peak > self._may_grow(case):
            return self._judge_memory(case)
        self._peak = max(self._peak, peak)
        return None

    def _may_grow(self, case: Case) -> int:
        return GROWTH * sum(map(len, case)) + GROWTH_BYTES + self.target.answer_bytes_of(case)

    def _finding(self, kind: str, what: str, case: Case, detail: str = "") -> Finding:
        return Finding(self.target.name, kind, what, detail, case)

    def _judge_time(self, case: Case) -> Finding | None:
        """Play it again: the load of the machine, and the collector of garbage, are not its fault."""
        shortest, allowed = float("inf"), 0.0
        for _ in range(MEASURED_OFTEN):
            if allowed and shortest > 4 * allowed:
                break
            turns = Turns()
            began = time.thread_time_ns()
            self.target.play(case, turns)
            took_ns = turns.longest_ns if turns.count else time.thread_time_ns() - began
            shortest = min(shortest, took_ns / 1e6)
            if shortest <= (allowed := limit_ms(self.target.turn_ms)):
                return None
        return self._finding(
            "time",
            f"a turn took too long{self._sampled(case)}",
            case,
            f"{shortest:.0f} ms of CPU; it may take {allowed:.0f} ms here",
        )

    def _sampled(self, case: Case) -> str:
        """Play it once more, and return where it is half of the way."""
        places: list[str] = []

        def look(number: int, frame: FrameType | None) -> None:
            while frame is not None and not places:
                if place := _ours(frame):
                    places.append(place)
                frame = frame.f_back

        before = signal.signal(signal.SIGPROF, look)
        signal.setitimer(signal.ITIMER_PROF, self._limit_ns / 2e9)
        try:
            self.target.play(case, Turns())
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.signal(signal.SIGPROF, before)
        return places[0] if places else ""

    def _judge_memory(self, case: Case) -> Finding | None:
        self._reset_peak()
        before = _resident_bytes()
        self.target.play(case, Turns())
        grown, allowed = _peak_bytes() - before, self._may_grow(case)
        self._until_reset = 0
        if grown <= allowed:
            return None
        told = f"{grown / MIB:.1f} MiB for an input of {sum(map(len, case))} bytes; it may take {allowed / MIB:.1f}"
        return self._finding("memory", "it took too much memory", case, told)

    def _reset_peak(self) -> None:
        """Let the peak begin anew, where the system can; elsewhere only what goes beyond the greatest one is seen."""
        self._until_reset = 64
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")
        self._peak = _peak_bytes()


def _peak_bytes() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return _told_peak_bytes(peak) if _BEGAN_LARGE else peak


def _told_peak_bytes(usual: int) -> int:
    try:
        found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    except OSError:
        return usual
    return int(found[1]) * 1024 if found is not None else usual


_BEGAN_LARGE = _told_peak_bytes(2**62) < resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - MIB
"""Whether the process that began this one was larger than this one is: the usual peak, which is quick to ask for, is that one's then."""


def _resident_bytes() -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:
        return _peak_bytes()


def _place_of(error: BaseException) -> str:
    """Return the class of an error, and the innermost line of the product that it came through."""
    found, place, line = error.__traceback__, "", 0
    while isinstance(found, TracebackType):
        place = _ours(found.tb_frame) or place
        line = found.tb_lineno
        found = found.tb_next
    return f"{type(error).__name__}{place or f' in line {line} of the fuzzer'}"


def _ours(frame: FrameType) -> str:
    """Return the function of the product that a frame runs; empty: it is none of the product."""
    code = frame.f_code
    file = code.co_filename.replace("\\", "/")
    return f" in {file.rpartition('/phalanx/')[2]}, {code.co_name}" if "/phalanx/" in file else ""
