"""What a worker does: play a chunk of histories, or look closer at one that failed. Needs neither Spark nor Arrow.

A worker gets the digest of the code, and plays nothing if its own is another one: results of two versions would stand
side by side as if they were of one. Whatever one history does to the simulator itself is a finding of that seed: neither
an error nor an endless loop of one costs the others of its chunk.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import traceback
import zlib
from collections.abc import Iterator

import msgspec

from phalanx.common.errors import UsageError
from phalanx.common.ids import Millis
from phalanx.reports.trace_rows import TraceRow, TraceWriter
from phalanx_proof.sim.code_digest import code_digest
from phalanx_proof.sim.options import HistoryOptions
from phalanx_proof.sim.planted_bug import PlantedBug, load_planted_bug
from phalanx_proof.sim.result import Result
from phalanx_proof.sim.run import run
from phalanx_proof.sim.schedule import Schedule
from phalanx_proof.sim.settings import Configuration
from phalanx_proof.sim.shrink import shrink

SIMULATOR_FAILED = "the simulator itself does not fail"
ENDS = "a history ends"
HISTORY_LIMIT_S = 600.0
"""Processor time of one history; the longest that there are take some seconds."""
MOST_STORY = 4_000


class Chunk(msgspec.Struct, frozen=True):
    """Some histories of one configuration, one after another."""

    configuration: Configuration
    canary: str
    code: str
    seeds: tuple[int, ...]


class SearchRow(msgspec.Struct, kw_only=True):
    """What is kept of a history, besides its configuration."""

    seed: int
    digest: str
    violations: int
    violated: str = ""
    """The property that was violated first; empty: none."""
    violated_at_ms: Millis | None = None
    story: str = ""
    """The facts of that."""
    simulated_ms: Millis = 0
    healed_after_ms: Millis = 0
    operations: int = 0
    messages: int = 0
    inputs: int = 0
    cpu_s: float = 0.0
    mass_join_versions: int = 0
    detected_after_ms: list[Millis] = []
    rules: dict[str, int] = {}
    events: dict[str, int] = {}
    faults: dict[str, int] = {}
    outcomes: dict[str, int] = {}
    counts: dict[str, int] = {}


class PlayedHistory(msgspec.Struct):
    """What came of a chunk."""

    chunk: Chunk
    rows: list[SearchRow]
    refused: str = ""
    """Why it was not played; empty: it was."""


class Case(msgspec.Struct, frozen=True):
    """A history that failed, to be looked at."""

    configuration: Configuration
    canary: str
    code: str
    seed: int
    digest: str
    """Of the first time."""
    is_shrunk: bool


class Examined(msgspec.Struct):
    """What came of looking at it."""

    case: Case
    trace: bytes = b""
    """All its events: see `rows_of`."""
    schedule: Schedule | None = None
    """The smallest history found that violates the same, where one was asked for."""
    refused: str = ""


class _Overtime(BaseException):
    """Not an Exception: members' errors are caught in the simulator."""


def history_name(configuration: Configuration, seed: int, canary: str = "") -> str:
    """Return the name that tells a history from all others of a search."""
    extra = "".join(f" {each}" for each in (configuration.label, f"canary={canary}" if canary else "") if each)
    return f"{configuration.profile}/{seed}{extra}"


def play_chunk(chunk: Chunk) -> PlayedHistory:
    """Play the histories of a chunk."""
    if refused := _why_refused(chunk):
        return PlayedHistory(chunk, [], refused)
    planted = load_planted_bug(chunk.canary)
    return PlayedHistory(chunk, [_play(chunk.configuration, planted, seed) for seed in chunk.seeds])


def _why_refused(work: Chunk | Case) -> str:
    """Return why a worker cannot play this: it has other code, or not the planted bug; empty: it can."""
    try:
        own = code_digest(work.canary)
    except UsageError as error:
        return f"a worker lacks the planted bug: {error}"
    if own == work.code:
        return ""
    return (
        f"a worker has another version of Phalanx (code {own}, here {work.code}): install the same one on all executors"
    )


def _play(configuration: Configuration, planted: PlantedBug | None, seed: int) -> SearchRow:
    try:
        with _limited():
            return row_of(run(configuration.draw(seed), planted))
    except _Overtime:
        return _broken_row(seed, ENDS, f"not within {HISTORY_LIMIT_S:.0f} s of processor time")
    except Exception as error:  # whatever it is, it is a finding of this seed
        trace_text = "".join(traceback.format_exception(error)[-3:])
        return _broken_row(seed, SIMULATOR_FAILED, f"{type(error).__name__}: {error}\n{trace_text}")


def _broken_row(seed: int, what: str, story: str) -> SearchRow:
    return SearchRow(seed=seed, digest="", violations=1, violated=what, violated_at_ms=0, story=story[:MOST_STORY])


def row_of(result: Result) -> SearchRow:
    """Return what is kept of the result of a history."""
    first = result.violations[0] if result.violations else None
    return SearchRow(
        seed=result.seed,
        digest=result.digest,
        violations=len(result.violations),
        violated=first.what if first else "",
        violated_at_ms=first.at_ms if first else None,
        story=first.story[:MOST_STORY] if first else "",
        simulated_ms=result.simulated_ms,
        healed_after_ms=result.healed_after_ms,
        operations=result.operations,
        messages=result.messages,
        inputs=result.inputs,
        cpu_s=result.cpu_s,
        mass_join_versions=result.mass_join_versions,
        detected_after_ms=result.detected_after_ms,
        rules=result.rules,
        events=result.events,
        faults={str(kind): count for kind, count in result.faults.items()},
        outcomes=result.outcomes,
        counts=result.counts,
    )


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    """Raise `_Overtime` after `HISTORY_LIMIT_S` of processor time; only the main thread of a process can be interrupted so."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: object) -> None:
        raise _Overtime

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, HISTORY_LIMIT_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


# --- a closer look ----------------------------------------------------------------------------------------------------


def examine(case: Case) -> Examined:
    """Play a failing history again with all its events kept, and make it smaller if asked for."""
    if refused := _why_refused(case):
        return Examined(case, refused=refused)
    planted = load_planted_bug(case.canary)
    try:
        with _limited():
            options = case.configuration.draw(case.seed)
            writer = TraceWriter(history_name(case.configuration, case.seed, case.canary))
            result = run(options, planted, trace=writer)
            if result.digest != case.digest:
                return Examined(case, refused=f"the second time it was another history (digest {result.digest})")
            trace = zlib.compress(msgspec.msgpack.encode(writer.rows), 1)
            return Examined(case, trace, _smallest(options, case, planted) if case.is_shrunk else None)
    except _Overtime:
        return Examined(case, refused=f"it took more than {HISTORY_LIMIT_S:.0f} s of processor time")
    except Exception as error:
        return Examined(case, refused=f"{type(error).__name__}: {error}")


def _smallest(options: HistoryOptions, case: Case, planted: PlantedBug | None) -> Schedule:
    smallest = shrink(options, planted)
    result = run(smallest, planted)
    return Schedule(
        code=case.code,
        canary=case.canary,
        violation=result.violations[0].what,
        digest=result.digest,
        shrunk=True,
        options=smallest,
    )


def rows_of(trace: bytes) -> list[TraceRow]:
    """Return the events of an examined history."""
    return msgspec.msgpack.decode(zlib.decompress(trace), type=list[TraceRow])
