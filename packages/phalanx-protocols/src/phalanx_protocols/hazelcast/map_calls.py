"""Calls on one key of a map: what each asks of the owner, and how the reply becomes the answer.

A handler is given the connection, the type and number of the request, and its fields. It returns the answer, or None: it comes later.
"""

from __future__ import annotations

import struct
from typing import Any, Final

from phalanx.codec.values import to_data
from phalanx.common.ids import MAX_TTL_MS, Millis
from phalanx.maps.requests import expect
from phalanx.node.local_access import There
from phalanx.wire.key_requests import MAP_IDLE
from phalanx.wire.messages import (
    Contains,
    CountReply,
    DoneReply,
    FlagReply,
    Get,
    GetTimeToLive,
    Put,
    PutIfAbsent,
    Remove,
    Replace,
    UpdateValue,
    ValueReply,
)
from phalanx_protocols.hazelcast.answers import done, flag, value
from phalanx_protocols.hazelcast.data import data_frame
from phalanx_protocols.hazelcast.fields import Fields
from phalanx_protocols.hazelcast.frames import BEGIN_FRAME, LAST_END_FRAME, LAST_NULL_FRAME, answer_head, frame
from phalanx_protocols.hazelcast.serving import Connection, Handler

THREAD_TTL: Final = struct.Struct("<qq")
THREAD_TTL_IDLE: Final = struct.Struct("<qqq")
TTL: Final = struct.Struct("<q")
_VIEW: Final = struct.Struct("<10q")
FOR_EVER: Final = 2**63 - 1
_TRUE: Final = to_data(True)


def lifetime(ms: int) -> Millis:
    """Return how long an entry lives, by what a client sent: nothing or less, or more than ten years, is for ever."""
    return ms if 0 < ms <= MAX_TTL_MS else 0


# --- reading --------------------------------------------------------------------------------------------------------


def get(connection: Connection, kind: int, number: int, fields: Fields) -> bytes | None:
    name, key = fields.map(), fields.data()
    found = connection.grid.local.get(name, key)
    if isinstance(found, int):
        return connection.ask_partition(found, Get(connection.next_id(), name, key), kind, number, take_value)
    return value(kind, number, found)


def contains_key(connection: Connection, kind: int, number: int, fields: Fields) -> bytes | None:
    name, key = fields.map(), fields.data()
    return connection.ask(key, Contains(connection.next_id(), name, key), kind, number, take_flag)


def get_entry_view(connection: Connection, kind: int, number: int, fields: Fields) -> bytes | None:
    """Answer with an entry, its key and its time to live.

    The grid does not count costs, hits and times of single entries: those are 0.
    """
    name, key = fields.map(), fields.data()

    def take_stored(kind: int, number: int, reply: Any) -> bytes | None:
        stored = expect(reply, ValueReply, "get").value
        if stored is None:
            return answer_head(kind + 1, number, bytes(8), is_last=False) + LAST_NULL_FRAME

        def take_left(kind: int, number: int, reply: Any) -> bytes:
            left = expect(reply, CountReply, "time_to_live").count
            until = connection.grid.wall_ms() + left if left > 0 else FOR_EVER
            numbers = _VIEW.pack(0, 0, until, 0, 0, 0, 0, 0, left if left > 0 else FOR_EVER, FOR_EVER)
            shown = BEGIN_FRAME + frame(numbers) + data_frame(key) + data_frame(stored) + LAST_END_FRAME
            return answer_head(kind + 1, number, struct.pack("<q", FOR_EVER), is_last=False) + shown

        return connection.ask(key, GetTimeToLive(connection.next_id(), name, key), kind, number, take_left)

    return connection.ask(key, Get(connection.next_id(), name, key), kind, number, take_stored)


# --- writing --------------------------------------------------------------------------------------------------------


def put(connection: Connection, kind: int, number: int, fields: Fields) -> bytes | None:
    """Store a value, and answer with the one before."""
    _, ttl = fields.fixed(THREAD_TTL)
    return _put(connection, kind, number, fields, lifetime(ttl), 0)


def put_with_max_idle(connection: Connection, kind: int, number: int, fields: Fields) -> bytes | None:
    _, ttl, idle = fields.fixed(THREAD_TTL_IDLE)
    return _put(connection, kind, number, fields, lifetime(ttl), lifetime(idle))


def _put(connection: Connection, kind: int, number: int, fields: Fields, ttl: Millis, idle: Millis) -> bytes | None:
    name, key, new = fields.map_key_value()
    there = None
    if not ttl and not idle:
        before = connection.grid.local.swap(name, key, new)
        if not isinstance(before, int):
            return value(kind, number, before)
        there = before
    return _update(connection, kind, number, (name, key), "get_and_put", [new], ttl, idle, there=there)


def _update(
    connection: Connection, kind: int, number: int, entry: tuple[str, bytes], function: str,
    arguments: list[bytes], ttl: Millis | None = None, idle: Millis | None = None, take: Any = None, there: There | None = None,
) -> bytes | None:  # fmt: skip
    """Let a function of members change a value. `ttl`: None: it stays as it is. `there`: the key's partition, where it is known."""
    name, key = entry
    max_idle = None if ttl is None else idle or MAP_IDLE
    request = UpdateValue(
        connection.next_id(), name, key, function, arguments, ttl, 0, connection.grid.open_from, max_idle
    )
    if there is not None:
        return connection.ask_partition(there, request, kind, number, take or take_value)
    return connection.ask(key, request, kind, number, take or take_value)


def set_(connection: Connection, kind: int, number: int, fields: Fields) -> bytes | None:
    """Store a value."""
    _, ttl = fields.fixed(THREAD_TTL)
    return _set(connection, kind, number, fields, lifetime(ttl), 0, done)


def set_with_max_idle(connection: Connection, kind: int, number: int, fields: Fields) -> bytes | None:
    """Store a value. The answer has a place for an old one, which is null there, too."""
    _, ttl, idle = fields.fixed(THREAD_TTL_IDLE)
    return _set(connection, kind, number, fields, lifetime(ttl), lifetime(idle), _null)


def try_put(connection: Connection, kind: int, number: int, fields: Fields) -> bytes | None:
    """Store a value. Nothing makes it wait: locks do not hold up writes here."""
    return _set(connection, kind, number, fields, 0, 0, _yes)


def _set(
    connection: Connection, kind: int, number: int, fields: Fields, ttl: Millis, idle: Millis, tell: Any
) -> bytes | None:
    name, key, new = fields.map_key_value()
    grid = connection.grid
    is_for_ever = not ttl and not idle
    there = grid.local.put(name, key, new) if is_for_ever else grid.local.partition(key)
    if there is None:
        answer: bytes = tell(kind, number)
        return answer
    request = Put(connection.next_id(), name, key, new, ttl, 0, grid.open_from, idle)

    def take(kind: int, number: int, reply: Any) -> bytes:
        expect(reply, DoneReply, "put")
        answer: bytes = tell(kind, number)
        return answer

    return connection.ask_partition(there, request, kind, number, take)


def _null(kind: int, number: int) -> bytes:
    return value(kind, number, None)


def _yes(kind: int, number: int) -> bytes:
    return flag(kind, number, True)


def put_if_absent(connection: Connection, kind: int, number: int, fields: Fields) -> bytes | None:
    _, ttl = fields.fixed(THREAD_TTL)
    return _put_if_absent(connection, kind, number, fields, lifetime(ttl), 0)


def put_if_absent_with_max_idle(connection: Connection, kind: int, number: int, fields: Fields) -> bytes | None:
    _, ttl, idle = fields.fixed(THREAD_TTL_IDLE)
    return _put_if_absent(connection, kind, number, fields, lifetime(ttl), lifetime(idle))


def _put_if_absent(
    connection: Connection, kind: int, number: int, fields: Fields, ttl: Millis, idle: Millis
) -> bytes | None:
    name, key, new = fields.map_key_value()
    request = PutIfAbsent(connection.next_id(), name, key, new, ttl, 0, connection.grid.open_from, idle)
    return connection.ask(key, request, kind, number, take_value)


def replace(connection: Connection, kind: int, number: int, fields: Fields) -> bytes | None:
    """Store a value if the key has one, and answer with the one before."""
    name, key, new = fields.map_key_value()
    return _update(connection, kind, number, (name, key), "get_and_replace", [new], 0)


def replace_if_same(connection: Connection, kind: int, number: int, fields: Fields) -> bytes | None:
    name, key, expected, new = fields.map(), fields.data(), fields.data(), fields.data()
    request = Replace(connection.next_id(), name, key, expected, new, 0, 0, connection.grid.open_from)
    return connection.ask(key, request, kind, number, take_flag)


def set_ttl(connection: Connection, kind: int, number: int, fields: Fields) -> bytes | None:
    """Change how long a present entry lives. Its idle time stays."""
    (ttl,) = fields.fixed(TTL)
    name, key = fields.map(), fields.data()
    request = UpdateValue(connection.next_id(), name, key, "touch", [], lifetime(ttl), 0, connection.grid.open_from)
    return connection.ask(key, request, kind, number, take_truth)


# --- removing -------------------------------------------------------------------------------------------------------


def remove(connection: Connection, kind: int, number: int, fields: Fields) -> bytes | None:
    """Remove a key, and answer with its value."""
    return _remove(connection, kind, number, fields, take_value)


def delete(connection: Connection, kind: int, number: int, fields: Fields) -> bytes | None:
    """Remove a key."""
    return _remove(connection, kind, number, fields, _take_removed)


def evict(connection: Connection, kind: int, number: int, fields: Fields) -> bytes | None:
    """Remove a key, and answer whether it had a value."""
    return _remove(connection, kind, number, fields, _take_whether_removed)


def _remove(connection: Connection, kind: int, number: int, fields: Fields, take: Any) -> bytes | None:
    name, key = fields.map(), fields.data()
    request = Remove(connection.next_id(), name, key, 0, connection.grid.open_from)
    return connection.ask(key, request, kind, number, take)


def remove_if_same(connection: Connection, kind: int, number: int, fields: Fields) -> bytes | None:
    name, key, expected = fields.map(), fields.data(), fields.data()
    return _update(connection, kind, number, (name, key), "remove_if", [expected], take=take_truth)


# --- replies --------------------------------------------------------------------------------------------------------


def take_value(kind: int, number: int, reply: Any) -> bytes:
    return value(kind, number, expect(reply, ValueReply, "the call").value)


def take_flag(kind: int, number: int, reply: Any) -> bytes:
    return flag(kind, number, expect(reply, FlagReply, "the call").flag)


def take_truth(kind: int, number: int, reply: Any) -> bytes:
    """Answer with the True or False that a function returned."""
    return flag(kind, number, expect(reply, ValueReply, "the call").value == _TRUE)


def _take_removed(kind: int, number: int, reply: Any) -> bytes:
    expect(reply, ValueReply, "remove")
    return done(kind, number)


def _take_whether_removed(kind: int, number: int, reply: Any) -> bytes:
    return flag(kind, number, expect(reply, ValueReply, "remove").value is not None)


KEY_CALLS: Final[dict[int, Handler]] = {
    0x010100: put,
    0x010200: get,
    0x010300: remove,
    0x010400: replace,
    0x010500: replace_if_same,
    0x010600: contains_key,
    0x010800: remove_if_same,
    0x010900: delete,
    0x010B00: evict,  # tryRemove: nothing makes it wait
    0x010C00: try_put,
    0x010D00: set_,
    0x010E00: put_if_absent,
    0x010F00: set_,
    0x011D00: get_entry_view,
    0x011E00: evict,
    0x014300: set_ttl,
    0x014400: put_with_max_idle,
    0x014500: set_with_max_idle,
    0x014600: put_if_absent_with_max_idle,
    0x014700: set_with_max_idle,
}
"""The type of a request to what serves it."""
