"""What members do lately, as `phalanx top` shows it: calls a second, their 99th percentile, clients, and processor."""

from __future__ import annotations

from phalanx.http.durations import CALL_ENDS_S, percentile_ms
from phalanx.wire.messages import ActivityReply

COLUMNS = ("calls/s", "p99", "clients", "processor")
UNKNOWN = "–"


def activity_cells(reply: ActivityReply | None) -> list[str]:
    """Return a cell for each column. A member that did not answer tells nothing; one without an HTTP port counts no calls."""
    if reply is None or not reply.points:
        return [UNKNOWN] * len(COLUMNS)
    last = reply.points[-1]
    took_ms = max(last.took_ms, 1)
    calls = p99 = UNKNOWN
    if reply.counts_calls:
        calls = f"{(last.reads + last.writes) * 1000 / took_ms:,.0f}"
        found = percentile_ms(last.classes, CALL_ENDS_S, 0.99)
        p99 = f"{found:.3g} ms" if found is not None else UNKNOWN
    return [calls, p99, f"{last.clients:,}", f"{last.processor_ms * 100 / took_ms:.0f} %"]
