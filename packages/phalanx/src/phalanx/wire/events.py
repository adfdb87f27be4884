"""The event log's schema: the kinds of all facts that a member records, for people and for the audit.

A driver writes each event as one line of JSON with `at`, `cluster`, `member`, `address`, the `event` name (the class's
tag) and the fields of its class. Fields are only ever added. A decision carries its inputs and the id of its rule in
docs/protocol. The classes are in one module for each subject, each class with what people read about it.
"""

from __future__ import annotations

from collections.abc import Mapping

from phalanx.wire import (
    disk_events,
    join_events,
    log_events,
    memory_events,
    merge_events,
    restart_events,
    suspicion_events,
    table_events,
    update_events,
    view_events,
)
from phalanx.wire.event import Event

MODULES = (
    join_events, view_events, suspicion_events, table_events, restart_events, merge_events, memory_events, disk_events,
    update_events, log_events,
)  # fmt: skip
"""The modules of events, in the order in which the reference shows them."""

EVENT_KINDS: Mapping[str, type[Event]] = {
    name: kind
    for module in MODULES
    for name, kind in vars(module).items()
    if isinstance(kind, type) and issubclass(kind, Event) and kind is not Event and not name.startswith("_")
}
"""Name of an event to its class."""
