"""The columns of recorded events, for everything that writes traces and for the audit that reads them.

One row is one event. The columns that every event has are columns; what only some have is one JSON object in `fields`, so
that a new kind of event, or a new field of one, needs no new column and files of several versions stand side by side.

* `history`: empty for logs of real members; of a simulated history what tells it from all others, for example
  `cuts/4711` (profile and seed). Nothing is compared between histories.
* `log` and `line`: where the event stands. Within one log, lines are in the order in which they happened; a member's
  events are ordered by `at`, and where it is the same by `log` and `line`.
* Parquet can have further columns (a seed, settings that were swept): the audit leaves them alone.

This module needs neither Spark nor Arrow: the simulator's workers make rows with it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from phalanx.common.ids import MemberId, Millis, address_of
from phalanx.wire.event import Event

TRACE_COLUMNS = {
    "history": "string",
    "log": "string",
    "line": "bigint",
    "at": "bigint",
    "cluster": "string",
    "member": "string",
    "address": "string",
    "event": "string",
    "fields": "string",
}
"""Column to its type in Spark's words."""

TRACE_DDL = ", ".join(f"{name} {kind}" for name, kind in TRACE_COLUMNS.items())
"""The schema for `createDataFrame`, `mapInArrow` and readers."""

PROCESS_EVENT = "ProcessStruck"
"""Not an event of the member: the program that runs the processes records what happened to one. `member` is that
incarnation; `fields` has `what`: `crashed`, `paused`, `resumed`, `left`, `started`. Detection times count from these."""

_encoder = msgspec.json.Encoder()


class TraceRow(msgspec.Struct, frozen=True):
    """One event as a row; the fields are the columns, in their order."""

    history: str
    log: str
    line: int
    at: Millis
    cluster: str
    member: str
    address: str
    event: str
    fields: str

    def as_tuple(self) -> tuple[Any, ...]:
        """Return the fields as a row for `createDataFrame`."""
        return msgspec.structs.astuple(self)


class TraceWriter:
    """Makes the rows of one history: give it the events in the order in which they happened."""

    def __init__(self, history: str, cluster: str = "phalanx") -> None:
        self.history = history
        self.rows: list[TraceRow] = []
        self._cluster = cluster

    def record(self, at: Millis, member: MemberId, event: Event) -> None:
        """Add a row for an event that a member has recorded."""
        fields = msgspec.to_builtins(event)
        self._add(at, member, fields.pop("event"), fields)

    def record_process(self, at: Millis, member: MemberId, what: str) -> None:
        """Add a row for what happened to the process of a member, or for its end (see `PROCESS_EVENT`)."""
        self._add(at, member, PROCESS_EVENT, {"what": what})

    def _add(self, at: Millis, member: MemberId, event: str, fields: dict[str, Any]) -> None:
        line = len(self.rows) + 1
        packed = _encoder.encode(fields).decode()
        self.rows.append(
            TraceRow(self.history, self.history, line, at, self._cluster, member, address_of(member), event, packed)
        )
