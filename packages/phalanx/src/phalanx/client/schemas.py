"""How programs that write tables change the schema of a map: they read it from the master, and set it if it has not changed since.

A call returns when every member knows the schema. So rows that are stored by it afterwards do not depend on any single member, and
are read by it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from phalanx.calls.lost_members import has_ended_members
from phalanx.client.sync import Client
from phalanx.common.errors import ErrorCode, UnavailableError, UsageError
from phalanx.common.ids import Lost, MemberId
from phalanx.common.map_schema import MapSchema, read_schema, widened
from phalanx.common.map_settings import MapChange
from phalanx.maps.requests import check_map_name, expect
from phalanx.maps.time_limit import TimeLimit
from phalanx.wire.messages import ChangeMap, DoneReply, ErrorReply, GetTable, TableReply

ASK_AGAIN_AFTER_S = 0.02


def with_written(present: str, written: MapSchema, map_name: str) -> MapSchema:
    """Return the schema that a map has after a write: that of the write, where it had none. Raises `UsageError` that names a column
    for which there is none."""
    return widened(read_schema(present), written, map_name) if present else written


def change_schema(client: Client, map_name: str, wanted: Callable[[str], str]) -> None:
    """Give a map the schema that is `wanted` when it has the given one, both as the map's setting has them; empty: none.

    Raises what `wanted` raises, `UsageError` for a schema that no map can have, and `UnavailableError`: call again.
    """
    name, limit = check_map_name(map_name), TimeLimit(client.call_timeout_s)
    lost: Lost = ()
    while True:
        reply: Any
        try:
            master = client.members(limit).view.master
            present = _schema_by(client, master, name, limit)
            request = ChangeMap(client.next_id(), name, MapChange(schema=wanted(present)), present)
            reply = client.ask(master, request, limit.within_ms, lost)
            is_refused = isinstance(reply, ErrorReply) and reply.code is ErrorCode.INVALID
            if is_refused and present == _schema_by(client, master, name, limit):
                raise UsageError(reply.text)  # it was not that another writer came first
        except UnavailableError as error:
            reply = ErrorReply(0, ErrorCode.UNAVAILABLE, str(error))
        if isinstance(reply, DoneReply):
            return
        lost = (*lost, reply.lost) if reply.lost else lost
        if limit.is_over or has_ended_members(reply):
            raise UnavailableError(f"the schema of the map {name!r} was not set: {reply.text}; call again")
        time.sleep(ASK_AGAIN_AFTER_S)


def _schema_by(client: Client, master: MemberId, name: str, limit: TimeLimit) -> str:
    reply = client.ask(master, GetTable(client.next_id(), False), limit.within_ms)
    return expect(reply, TableReply, "table").table.maps.of(name).schema
