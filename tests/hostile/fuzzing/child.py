"""The process in which inputs are played: with a limit of memory, and what it plays told before it plays it.

It writes each input into a file that its supervisor reads if this process does not survive it, and a line for each finding.
"""

from __future__ import annotations

import faulthandler
import gc
import mmap
import resource
import signal
import struct
import sys
import time
from pathlib import Path

import msgspec

from hostile.fuzzing.engine import Engine, shrunk
from hostile.fuzzing.judging import Finding, Judge
from hostile.fuzzing.target import Case, Turns
from hostile.fuzzing.targets import make_target

MEMORY_BYTES = 1024 * 1024 * 1024
"""The address space of a child."""
ENOUGH = 8
"""Findings after which a child ends."""
SHORT_S = 1.0
"""CPU time of judging an input that is worth making shorter: that plays it hundreds of times."""
PROGRESS_BYTES = 16 * 1024 * 1024
HEAD = struct.Struct("<QQQ")
"""A number that grows with each turn, how many inputs were begun, and the length of the one that follows."""


class Order(msgspec.Struct):
    """What a child has to do."""

    target: str
    seed: str
    progress: str
    """The file in which the input under way is kept."""
    inputs: int = 0
    """How many inputs it plays; 0: one, that of `case`."""
    seconds: float = 0.0
    """When it ends at the latest; 0: never."""
    case: Case | None = None
    """An input to confirm."""
    shrink: bool = False
    """Whether it looks for a shorter one that does the same."""


class Told(msgspec.Struct, omit_defaults=True):
    """A line of a child."""

    finding: Finding | None = None
    inputs: int = 0
    """How many it has played, when it ends."""


class Progress:
    """The file that says what is under way."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), PROGRESS_BYTES)
        self._number = self._inputs = 0

    def begin(self, case: Case) -> None:
        data = msgspec.msgpack.encode(case)
        size = len(data) if len(data) < PROGRESS_BYTES - HEAD.size else 0
        self._number += 1
        self._inputs += 1
        self._map[HEAD.size : HEAD.size + size] = data[:size]
        HEAD.pack_into(self._map, 0, self._number, self._inputs, size)

    def turn(self) -> None:
        self._number += 1
        struct.pack_into("<Q", self._map, 0, self._number)


def tell(finding: Finding | None, inputs: int = 0) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(Told(finding, inputs)) + b"\n")
    sys.stdout.buffer.flush()


def carry_out(order: Order) -> None:
    progress = Progress(Path(order.progress))
    target = make_target(order.target)
    plain = target.play
    if order.case is None:
        engine = Engine(target, order.seed)
        judge = engine.judge
    else:
        judge = Judge(target)

    def play(case: Case, turns: Turns) -> None:
        progress.begin(case)
        turns.on_turn = progress.turn
        plain(case, turns)

    target.play = play  # type: ignore[method-assign]
    gc.collect()
    gc.freeze()
    if order.case is not None:
        confirm(judge, order)
        return
    known: set[str] = set()
    ends = time.monotonic() + order.seconds if order.seconds else float("inf")
    while engine.inputs < order.inputs and time.monotonic() < ends:
        for finding in engine.run(min(100, order.inputs - engine.inputs)):
            if finding.sign not in known:
                known.add(finding.sign)
                tell(finding)
        if len(known) >= ENOUGH:
            break
    tell(None, engine.inputs)


def confirm(judge: Judge, order: Order) -> None:
    """Play one input; tell what it does, and a shorter one that does the same."""
    began = time.thread_time()
    found = judge.judge(order.case or [])
    if found is not None:
        tell(found)
        if order.shrink and time.thread_time() - began < SHORT_S:
            tell(shrunk(judge, found))
    tell(None, 1)


def main() -> None:
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=Order)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1)
    carry_out(order)


if __name__ == "__main__":
    main()
