"""Where a member's events go: log lines for people, and one JSON object a line for the audit."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import IO

import msgspec

from phalanx.common.errors import UsageError
from phalanx.common.ids import MemberId, address_of
from phalanx.common.view import MembersView
from phalanx.runtime.event_words import in_words
from phalanx.wire.events import (
    ClusterStarted,
    Ejected,
    Event,
    JoinAnswered,
    JoinAttemptFailed,
    Joined,
    MemberSuspected,
    PartitionsAssigned,
    PartitionsRepaired,
    ViewInstalled,
)

logger = logging.getLogger("phalanx.member")

AGAIN_AFTER_S = 5.0
"""The same sentence is not told again before that."""


class EventLog:
    """Writes the events of one member process, over all its incarnations."""

    def __init__(self, cluster: str, folder: str | None, *, legacy_member_list: bool) -> None:
        self._cluster = cluster
        self._legacy = legacy_member_list
        self._folder = Path(folder) if folder is not None else None
        self._file: IO[bytes] | None = None
        self._member = MemberId("")
        self._encoder = msgspec.json.Encoder()
        self._last_at = 0
        self._told: dict[str, float] = {}
        """What was told lately, and when."""

    def begin(self, member: MemberId) -> None:
        """A new incarnation writes from now on. Raises `UsageError` if its file cannot be opened."""
        self.close()
        self._member = member
        if self._folder is not None:
            path = self._folder / f"{member.replace('/', '_').replace(':', '_')}.jsonl"
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
                self._file = path.open("ab", buffering=0)
            except OSError as error:
                raise UsageError(f"event_log: cannot write {path}: {error.strerror}") from error

    def record(self, event: Event) -> None:
        self._log(event)
        if self._file is not None:
            # Never backwards, whatever the wall clock does: readers order a member's lines by it.
            self._last_at = max(self._last_at, time.time_ns() // 1_000_000)
            envelope = {
                "at": self._last_at,
                "cluster": self._cluster,
                "member": self._member,
                "address": address_of(self._member),
            }
            self._file.write(self._encoder.encode(envelope | msgspec.to_builtins(event)) + b"\n")

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _log(self, event: Event) -> None:
        this = address_of(self._member)
        match event:
            case ViewInstalled():
                view = MembersView(event.view_version, event.maker, event.members)
                logger.info("%s", "\n".join(view.log_lines(self._member, legacy=self._legacy)))
            case Joined():
                logger.info("%s joined the cluster. Membership=%d members, ver %d", this, len(event.members),
                            event.view_version)  # fmt: skip
            case ClusterStarted() if event.waited_for > 1:
                logger.info("%s begins to work: the cluster has had the %d members that it waited for", this,
                            event.waited_for)  # fmt: skip
            case ClusterStarted():
                pass
            case JoinAttemptFailed():
                logger.warning("Join attempt %d from %s to %s failed. Retrying (%s)", event.attempt, this, event.seed,
                               event.reason)  # fmt: skip
            case JoinAnswered():
                logger.info("Sending join response from %s to %s", this, address_of(event.joiner))
            case MemberSuspected():
                logger.warning("%s suspects %s: %s", this, address_of(event.suspect), event.reason)
            case PartitionsAssigned():
                logger.info("partition table ver %d: %d partitions assigned to %d members", event.table_version,
                            event.partitions, len(event.members))  # fmt: skip
            case PartitionsRepaired():
                level = logging.ERROR if event.lost else logging.INFO
                logger.log(level, "partition table ver %d: %d backups became owners, %d partitions lost all replicas",
                           event.table_version, len(event.promoted), len(event.lost))  # fmt: skip
            case Ejected():
                logger.warning("%s: the cluster went on without this member; coming back as a new one", this)
            case _:
                level, said = in_words(event)
                logger.log(self._once_in_a_while(level, said), "%s %s", this, said)

    def _once_in_a_while(self, level: int, said: str) -> int:
        """The level, or DEBUG if the same was told a moment ago: after a hang a message comes many times, and its answer."""
        now = time.monotonic()
        if now - self._told.get(said, -AGAIN_AFTER_S) < AGAIN_AFTER_S:
            return logging.DEBUG
        self._told = {text: at for text, at in self._told.items() if now - at < AGAIN_AFTER_S}
        self._told[said] = now
        return level
