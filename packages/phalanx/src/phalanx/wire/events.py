"""The event log's schema: all facts that a member records, for people and for the audit.

A driver writes each event as one line of JSON with `at`, `cluster`, `member`, `address`, the `event` name (the class's
tag) and the fields of its class. Fields are only ever added. A decision carries its inputs and the id of its rule in
docs/protocol. The classes stand by subject in the modules below, each with what people are told of it. Here are all of
them under one name: an event is added by its class alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from phalanx.wire.event import Event as Event
from phalanx.wire.join_events import *  # noqa: F403
from phalanx.wire.log_events import *  # noqa: F403
from phalanx.wire.memory_events import *  # noqa: F403
from phalanx.wire.merge_events import *  # noqa: F403
from phalanx.wire.suspicion_events import *  # noqa: F403
from phalanx.wire.table_events import *  # noqa: F403
from phalanx.wire.update_events import *  # noqa: F403
from phalanx.wire.view_events import *  # noqa: F403


def _kinds_below(base: type[Event]) -> Iterator[type[Event]]:
    for kind in base.__subclasses__():
        yield from _kinds_below(kind) if kind.__subclasses__() else [kind]


EVENT_KINDS: Mapping[str, type[Event]] = {kind.__name__: kind for kind in _kinds_below(Event)}
"""Name of an event to its class."""
