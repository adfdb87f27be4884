"""Schemas of Compact objects: what clients send before they store such an object, and fetch when they first meet one.

An object says only the id of its schema: a fingerprint of its type's name and of its fields. A client sends the schema, and waits for the
names of members that have it, before it sends the first object. The schemas are entries of the grid, so they are where its
backups are, move with partitions, and are found through any member. That is why the answer names all members of the view.
"""

from __future__ import annotations

import struct
from typing import Any, Final

from phalanx.codec.compact_schemas import MAX_NAME_LENGTH, MAX_SCHEMA_FIELDS, SCHEMAS, CompactSchema, stored_schema
from phalanx.codec.hashing import partition_of
from phalanx.codec.values import from_data, to_data
from phalanx.common.errors import UsageError
from phalanx.common.ids import MAX_TTL_MS
from phalanx.maps.call_plans import FIND_TABLE, CallOwners, CallPlan
from phalanx.maps.requests import expect
from phalanx.wire.messages import Get, PutIfAbsent, ValueReply
from phalanx_protocols.hazelcast.answers import done
from phalanx_protocols.hazelcast.fields import Fields
from phalanx_protocols.hazelcast.frames import (
    BEGIN_FRAME,
    END_FRAME,
    LAST_END_FRAME,
    LAST_NULL_FRAME,
    BadFrame,
    answer_head,
    frame,
    int_field,
    text_frame,
    uuids_frame,
)
from phalanx_protocols.hazelcast.serving import Connection, Handler
from phalanx_protocols.hazelcast.views import uuid_of_member

MAX_SCHEMAS: Final = 10_000
"""The most schemas in a cluster: no client removes one."""
MAX_SCHEMAS_AT_ONCE: Final = 1_000
_LONG: Final = struct.Struct("<q")


def send_schema(connection: Connection, kind: int, number: int, fields: Fields) -> bytes | None:
    """Store a schema. Answer with the names of all members, each of which can give it to clients from then on."""

    def tell(kind: int, number: int, outcome: Any) -> bytes:
        view = connection.grid.view
        members = [uuid_of_member(member) for member in view.members] if view is not None else []
        return answer_head(kind + 1, number, is_last=False) + uuids_frame(members, is_last=True)

    return connection.perform(_store(connection, [_read_schema(fields)]), kind, number, tell)


def send_all_schemas(connection: Connection, kind: int, number: int, fields: Fields) -> bytes | None:
    """Store all schemas that a client has: it has lost the cluster meanwhile, which can have lost them."""
    schemas = fields.many(lambda: _read_schema(fields))
    if len(schemas) > MAX_SCHEMAS_AT_ONCE:
        raise UsageError(f"{len(schemas)} schemas at once are more than {MAX_SCHEMAS_AT_ONCE}")
    return connection.perform(
        _store(connection, schemas), kind, number, lambda kind, number, outcome: done(kind, number)
    )


def fetch_schema(connection: Connection, kind: int, number: int, fields: Fields) -> bytes | None:
    """Answer with the schema of an id, or null."""
    (schema_id,) = fields.fixed(_LONG)
    key = to_data(schema_id)

    def tell(kind: int, number: int, reply: Any) -> bytes:
        head = answer_head(kind + 1, number, is_last=False)
        schema = stored_schema(expect(reply, ValueReply, "fetchSchema").value)
        return head + (LAST_NULL_FRAME if schema is None else _schema_frames(schema))

    return connection.ask(key, Get(connection.next_id(), SCHEMAS, key), kind, number, tell)


def _store(connection: Connection, schemas: list[CompactSchema]) -> CallPlan[None]:
    """Plan to store those schemas that the cluster has not. Raises `UsageError` if there would be too many, or two of one id."""
    wanted = {to_data(schema.id): schema.stored for schema in schemas}
    table = yield FIND_TABLE
    present = yield from connection.plans(SCHEMAS).get_data(list(wanted))
    missing = [key for key, data in zip(wanted, present, strict=True) if data is None]
    if missing and (yield from connection.plans(SCHEMAS).size()) + len(missing) > MAX_SCHEMAS:
        raise UsageError(
            f"the cluster has {MAX_SCHEMAS} schemas of Compact objects, and takes no more: use fewer types"
        )
    requests = []
    for key in missing:
        # An idle time of its own, so that one that all maps are given does not count.
        put = PutIfAbsent(connection.next_id(), SCHEMAS, key, wanted[key], 0, 0, connection.grid.open_from, MAX_TTL_MS)
        requests.append((partition_of(key, table.partition_count), put))
    replies = (yield CallOwners(requests, 0)) if requests else []
    stored = dict(zip(wanted, present, strict=True))
    stored |= {key: expect(reply, ValueReply, "sendSchema").value for key, reply in zip(missing, replies, strict=True)}
    for key, data in stored.items():
        if data is not None and data != wanted[key]:
            raise UsageError(
                f"another schema has the id {from_data(key)} of this one already: give the type or a field another name"
            )


def _read_schema(fields: Fields) -> CompactSchema:
    """Read the next schema. Raises `BadFrame`, and `UsageError` for one that no client needs."""
    fields.begin()
    type_name, described = fields.text(), fields.many(lambda: _read_field(fields))
    fields.end()
    names = {name for name, _ in described}
    if len(names) != len(described):
        raise BadFrame(f"the schema of {type_name[:100]!r} has two fields of one name")
    if len(described) > MAX_SCHEMA_FIELDS or max(map(len, (type_name, *names))) > MAX_NAME_LENGTH:
        raise UsageError(
            f"the schema of {type_name[:100]!r} has {len(described)} fields: at most {MAX_SCHEMA_FIELDS} are stored, with names of at "
            f"most {MAX_NAME_LENGTH} characters"
        )
    return CompactSchema(type_name, described)


def _read_field(fields: Fields) -> tuple[str, int]:
    fields.begin()
    kind, name = fields.payload(), fields.text()
    fields.end()
    if len(kind) < 4:
        raise BadFrame("a field of a schema has no kind")
    return name, int.from_bytes(kind[:4], "little")


def _schema_frames(schema: CompactSchema) -> bytes:
    made = [BEGIN_FRAME, text_frame(schema.type_name), BEGIN_FRAME]
    for name, kind in schema.fields:
        made += (BEGIN_FRAME, frame(int_field(kind)), text_frame(name), END_FRAME)
    return b"".join((*made, END_FRAME, LAST_END_FRAME))


SCHEMA_CALLS: Final[dict[int, Handler]] = {0x001300: send_schema, 0x001400: fetch_schema, 0x001500: send_all_schemas}
"""The type of a request to what serves it."""
