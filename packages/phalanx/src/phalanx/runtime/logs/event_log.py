"""Write a member's events: as log lines for people, and as one JSON object per line for the audit.

Nothing here can stop, delay or change the member: `record` returns at once and raises nothing. A thread writes the file
(`line_writer`). Events that are lost because the disk accepts nothing for too long are counted, and an `EventsLost` in
the log says so as soon as the log can be written again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from phalanx.common.errors import UsageError
from phalanx.common.ids import MemberId, address_of
from phalanx.common.view import MembersView
from phalanx.reports.event_levels import EventLevels
from phalanx.reports.event_words import in_words, log_line
from phalanx.runtime.logs.line_writer import LineWriter, LogFile
from phalanx.runtime.logs.log_text import Listed
from phalanx.runtime.logs.rotating_log import RotatingLogFile
from phalanx.runtime.logs.safe_logger import SafeLogger
from phalanx.runtime.settings.config import Config
from phalanx.wire.event import Event
from phalanx.wire.log_events import EventsLost
from phalanx.wire.view_events import ClusterStarted, ViewInstalled

logger = SafeLogger("phalanx.member")

AGAIN_AFTER_S = 5.0
"""The same sentence is logged again only after this time."""
LATE = "its disk writes lines more slowly than they arrive"


class EventLog:
    """Writes the events of one member process, over all its incarnations."""

    def __init__(self, config: Config) -> None:
        self._cluster = config.cluster
        self._legacy = config.legacy_member_list_format
        self._folder = Path(config.event_log) if config.event_log is not None else None
        self._buffer_bytes = config.event_log_buffer_bytes
        self._bounds = config.event_log_max_bytes, config.event_log_max_age_ms / 1000, config.event_log_keep
        self._writer: LineWriter | None = None
        self._file: LogFile | None = None
        """The file of this incarnation. The writer opens it again if needed."""
        self._member = MemberId("")
        self._encoder = msgspec.json.Encoder()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._written = asyncio.Event()
        """Set when the writer has ended."""
        self._last_at = 0
        self._missing = 0
        """How many events were lost since the last `EventsLost`."""
        self._missing_since = 0.0
        """When the first of them was recorded, by the monotonic clock in seconds."""
        self._missing_because = ""
        self._problem = ""
        """Why nothing can be written now, set by the writer's thread; empty: it can."""
        self._logged_at: dict[str, float] = {}
        """Sentence to the time when it was logged last, for recent sentences."""
        self._levels = EventLevels()
        self._forget_at = 0.0
        """When sentences that are not recent are forgotten next, by the monotonic clock in seconds."""

    def begin(self, member: MemberId) -> None:
        """Begin the file of a new incarnation.

        Raises `UsageError` if the file of the first incarnation cannot be opened: that is an operator's mistake. Later
        incarnations continue without a file, log the problem, and try again.
        """
        self._member = member
        if self._folder is None:
            return
        path = self._folder / f"{member.replace('/', '_').replace(':', '_')}.jsonl"
        file = RotatingLogFile(path, *self._bounds)
        if self._writer is None:
            try:
                file.open()
            except OSError as error:
                raise UsageError(f"event_log: cannot write {file.path}: {error.strerror}") from error
            self._loop = asyncio.get_running_loop()
            self._writer = LineWriter(
                "event-log",
                self._buffer_bytes,
                on_failure=self._on_failure,
                on_recovery=self._on_recovery,
                on_room=lambda: self._in_loop(self._on_room),
                on_end=lambda: self._in_loop(self._written.set),
            )
        self._file = file

    def record(self, event: Event) -> None:
        """Write an event as a log line and into the event log. Never raises."""
        with contextlib.suppress(Exception):  # no memory for a sentence, or a defect in one: only people read it
            self._log(event)
        if self._writer is None:
            return
        if self._missing:
            self._tell_missing()
        try:
            is_taken = self._put(event)
        except Exception as error:
            self._miss(str(error) or type(error).__name__)
        else:
            if not is_taken:
                self._miss(self._problem or LATE)

    @property
    def problem(self) -> str:
        """Return why nothing can be written into the event log now; empty: it can, or there is none."""
        return self._problem

    def expect_leave(self) -> None:
        """Take what comes from now on as that of a member that was asked to leave."""
        self._levels.is_to_leave = True

    def close(self) -> None:
        """Write the events that wait. No further event must follow."""
        if self._writer is not None:
            if self._missing:
                self._tell_missing(urgent=True)
            self._writer.close()

    async def wait_written(self, within_s: float) -> bool:
        """Close, and wait. Return whether all accepted events were written, or given up, in time."""
        self.close()
        if self._writer is None:
            return True
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._written.wait(), within_s)
        return self._written.is_set()

    def flush(self, within_s: float) -> bool:
        """Wait like `wait_written`, in this thread."""
        self.close()
        return self._writer is None or self._writer.ended.wait(within_s)

    def _put(self, event: Event, *, urgent: bool = False) -> bool:
        # The time never goes backwards, even if the wall clock does: readers order a member's lines by it.
        self._last_at = max(self._last_at, time.time_ns() // 1_000_000)
        envelope = {
            "at": self._last_at,
            "cluster": self._cluster,
            "member": self._member,
            "address": address_of(self._member),
        }
        line = bytearray()  # not `encode`: see `wire/codec.py`
        self._encoder.encode_into(envelope | msgspec.to_builtins(event), line)
        line += b"\n"
        return self._writer.put(self._file, line, urgent=urgent)  # type: ignore[union-attr,arg-type]  # there are both

    def _miss(self, reason: str) -> None:
        """Count a lost event, and log the first one."""
        if not self._missing:
            self._missing_since, self._missing_because = time.monotonic(), reason
            logger.error(
                "%s: too many events wait for its event log, and are lost from now on (%s); the member continues to work",
                address_of(self._member), reason,
            )  # fmt: skip
        self._missing += 1

    def _tell_missing(self, *, urgent: bool = False) -> None:
        """Write into the log how many events it lacks, if there is room for that."""
        missing_ms = int((time.monotonic() - self._missing_since) * 1000)
        lost = EventsLost(self._missing, missing_ms, self._missing_because)
        with contextlib.suppress(Exception):
            if self._put(lost, urgent=urgent):
                self._missing = 0
                self._log(lost)

    # --- what the writer tells, in its thread ----------------------------------------------------------------------

    def _on_failure(self, error: Exception) -> None:
        self._problem = (error.strerror if isinstance(error, OSError) else "") or str(error) or type(error).__name__
        logger.error(
            "%s: its event log cannot be written (%s): it keeps up to %d bytes of lines and tries again; the member continues to work",
            address_of(self._member), self._problem, self._buffer_bytes,
        )  # fmt: skip

    def _on_recovery(self, after_s: float) -> None:
        self._problem = ""
        missing = self._missing
        logger.warning("%s: its event log can be written again after %.1f s; %s", address_of(self._member), after_s,
                       f"{missing} events are missing in it" if missing else "no event is missing in it")  # fmt: skip

    def _in_loop(self, function: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: no caller records or waits any more
            self._loop.call_soon_threadsafe(function)  # type: ignore[union-attr]  # there is a writer

    def _on_room(self) -> None:
        if self._missing:
            self._tell_missing()

    # --- for people ------------------------------------------------------------------------------------------------

    def _log(self, event: Event) -> None:
        this = address_of(self._member)
        level = self._levels.of(event)
        if not logger.isEnabledFor(level):
            return  # a sentence costs as much as a step of a migration, which records several
        match event:
            case ViewInstalled():
                view = MembersView(event.view_version, event.maker, event.members)
                logger.log(level, "%s", Listed.of(view.log_lines(self._member, legacy=self._legacy)))
            case ClusterStarted() if event.waited_for <= 1:
                pass
            case _ if line := log_line(event, this):
                logger.log(level, "%s", line)
            case _:
                said = in_words(event)
                logger.log(self._once_in_a_while(level, said), "%s %s", this, said)

    def _once_in_a_while(self, level: int, said: str) -> int:
        """Return the level, or DEBUG if the same was logged a moment ago: messages can come many times."""
        now = time.monotonic()
        if now - self._logged_at.get(said, -AGAIN_AFTER_S) < AGAIN_AFTER_S:
            return logging.DEBUG
        if now >= self._forget_at:
            # Not at each line: many different ones can come at once.
            self._logged_at = {text: at for text, at in self._logged_at.items() if now - at < AGAIN_AFTER_S}
            self._forget_at = now + AGAIN_AFTER_S
        self._logged_at[said] = now
        return level
