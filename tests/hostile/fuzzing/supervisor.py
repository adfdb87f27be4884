"""Starts children that play a target, ends one that is held up, and believes what a new child finds again."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from hostile.fuzzing.child import HEAD, PROGRESS_BYTES, Order, Told
from hostile.fuzzing.judging import Finding, limit_ms
from hostile.fuzzing.target import TURN_MS, Case
from support.roots import TESTS

HELD_S = 2.0
"""CPU time of one turn after which a child is ended, on a machine that is as fast as the one of `TURN_MS`."""
STUCK_S = 120.0
"""The same, by the clock: a turn that waits for something."""
LOOKS_S = 0.1
ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": "131072", "MALLOC_TRIM_THRESHOLD_": "131072"}
"""What was freed goes back to the system at once: else an input could take again what the one before had, and nobody would see it."""
MOST_CHILDREN = 40
"""Children of one run of a target that did not survive."""


class Played(msgspec.Struct):
    """What became of a run of one target."""

    target: str
    inputs: int = 0
    findings: list[Finding] = []
    unrepeated: list[Finding] = []
    """What no second child found: nobody can do anything with it."""
    trouble: str = ""
    """Why the run ended early; empty: it did not."""


class _Ended(msgspec.Struct):
    """How one child ended."""

    inputs: int = 0
    findings: list[Finding] = []
    last: Finding | None = None
    """What it did not survive."""
    trouble: str = ""


def run_target(
    name: str,
    seed: str,
    *,
    inputs: int = 10**12,
    seconds: float = 0.0,
    source: Path | None = None,
    report: Callable[[Finding], None] = lambda finding: None,
    enough: int = 20,
    shrink: bool = True,
) -> Played:
    """Play a target until one of the limits; `source`: the folder of the package that is played, instead of this checkout's.

    `report` is told each confirmed finding; the run ends after `enough` of them.
    """
    played = Played(name)
    known: set[str] = set()
    ends = time.monotonic() + seconds if seconds else float("inf")
    for number in range(MOST_CHILDREN):
        left_s = ends - time.monotonic()
        if played.inputs >= inputs or left_s <= 0:
            break
        which = seed if number == 0 else f"{seed}.{number}"
        ended = _run(Order(name, which, "", inputs - played.inputs, left_s if seconds else 0.0), source)
        played.inputs += ended.inputs
        for finding in [*ended.findings, *([ended.last] if ended.last is not None else [])]:
            if finding.sign in known:
                continue
            known.add(finding.sign)
            confirmed = confirm(finding.target, finding.case, source, shrink=shrink)
            if confirmed is None:
                played.unrepeated.append(finding)
                continue
            known.add(confirmed.sign)
            if confirmed.sign not in {each.sign for each in played.findings}:
                played.findings.append(confirmed)
                report(confirmed)
        if ended.trouble:
            played.trouble = ended.trouble
            break
        if len(played.findings) >= enough:
            break
        if ended.last is None:
            break
    return played


def confirm(name: str, case: Case, source: Path | None = None, *, shrink: bool = False) -> Finding | None:
    """Play one input in a child of its own, and return what it does, for a shorter input if that is asked for and found soon."""
    ended = _run(Order(name, "", "", case=case, shrink=shrink), source)
    if ended.trouble:
        raise RuntimeError(ended.trouble)
    return ended.findings[-1] if ended.findings else ended.last


def _run(order: Order, source: Path | None) -> _Ended:
    """Run one child to its end."""
    paths = [str(source)] if source is not None else []
    environment = {
        **os.environ,
        **ALLOCATOR,
        "PYTHONPATH": os.pathsep.join([*paths, str(TESTS)]),
        "PYTHONHASHSEED": "0",
    }
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        order.progress = str(Path(folder) / "progress")
        with Path(order.progress).open("wb") as file:
            file.truncate(PROGRESS_BYTES)
        said, out = Path(folder) / "said", Path(folder) / "out"
        with said.open("wb") as errors, out.open("wb") as told:
            child = subprocess.Popen(
                [sys.executable, "-m", "hostile.fuzzing.child"],
                stdin=subprocess.PIPE, stdout=told, stderr=errors, env=environment, cwd=folder,
            )  # fmt: skip
            try:
                assert child.stdin is not None
                child.stdin.write(msgspec.json.encode(order))
                child.stdin.close()
                held = _watch(child, Path(order.progress))
            finally:
                child.kill()
                child.wait()
        return _ended(order, child.returncode, held, out, said)


def _watch(child: subprocess.Popen[bytes], progress: Path) -> str:
    """Wait until the child ends, or end it: then return why."""
    allowed_s = HELD_S * limit_ms() / TURN_MS
    number, since_cpu, since = -1, 0.0, time.monotonic()
    with progress.open("rb", buffering=0) as file:
        while True:
            try:
                child.wait(LOOKS_S)
                return ""
            except subprocess.TimeoutExpired:
                file.seek(0)
                now, cpu = HEAD.unpack(file.read(HEAD.size))[0], _cpu_s(child.pid)
            if now != number:
                number, since_cpu, since = now, cpu, time.monotonic()
            elif (number and cpu - since_cpu > allowed_s) or time.monotonic() - since > STUCK_S:
                child.send_signal(signal.SIGUSR1)  # it writes where it is
                time.sleep(LOOKS_S)
                used = cpu - since_cpu
                return f"it was ended after {used:.1f} s of CPU" if used > 1 else "it waited for two minutes"


def _cpu_s(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError):
        return time.monotonic()


def _ended(order: Order, status: int, held: str, out: Path, said: Path) -> _Ended:
    ended = _Ended()
    is_whole = False
    for line in out.read_bytes().splitlines():
        try:
            told = msgspec.json.decode(line, type=Told)
        except msgspec.MsgspecError:
            continue
        if told.finding is not None:
            ended.findings.append(told.finding)
        else:
            ended.inputs, is_whole = told.inputs, True
    if is_whole:
        return ended
    text = said.read_text(encoding="utf-8", errors="replace")
    with Path(order.progress).open("rb") as file:
        number, inputs, size = HEAD.unpack(file.read(HEAD.size))
        case = msgspec.msgpack.decode(file.read(size), type=Case) if size else None
    if not number or case is None:
        ended.trouble = f"a child of {order.target} ended with {status}:\n{text[-3000:]}"
        return ended
    ended.inputs = inputs
    if held:
        kind, what = "held", "a turn took seconds"
    else:
        kind, what = "crash", f"the process ended with {status}"
    if place := _innermost(text):
        what += f" in {place}"
    ended.last = Finding(order.target, kind, what, f"{held}\n{text[-3000:]}".strip(), case)
    return ended


def _innermost(text: str) -> str:
    """Return where a process was by the last of the stacks that it wrote: the innermost function of the product."""
    stack = text.rpartition("(most recent call first)")[2]
    found = re.search(r'File "[^"]*?/phalanx/([^"]+)", line \d+ in (\S+)', stack)
    return f"{found[1]}, {found[2]}" if found else ""
