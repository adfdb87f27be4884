"""The commands of hashes. A hash is one entry, a dict: it is read and written as a whole where it lives.

Where the map's dicts are JSON, a hash is an object of JSON, which clients of Hazelcast share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from phalanx.codec.values import to_data
from phalanx.grid.serving.update_results import UpdateRefused
from phalanx.wire.messages import Get
from phalanx_protocols.redis_functions import decimal_of, field_of, hash_of, integer_of, text_of_value
from phalanx_protocols.resp.answer_list import AT_ONCE, listed
from phalanx_protocols.resp.answers import Answer, KeyCall, Outcome, flag_of, text_or_none
from phalanx_protocols.resp.connection import RespConnection
from phalanx_protocols.resp.framing import OK, ONE, ZERO, array, bulk, error, integer
from phalanx_protocols.resp.keys import scan_options
from phalanx_protocols.resp.strings import number_answer
from phalanx_protocols.resp.table import Commands
from phalanx_protocols.resp.updates import update

Fields = dict[Any, Any]


def _reading(answer_of: Callable[[RespConnection, list[bytes], Fields], Answer]) -> Any:
    """Return a handler that makes its answer of the fields of the hash and the words."""

    def handle(c: RespConnection, args: list[bytes]) -> Outcome:
        key = to_data(args[1])
        found = c.grid.local.get(c.map, key)
        if not isinstance(found, int):
            return answer_of(c, args, c.hash_of(found) if found is not None else {})
        get = Get(c.grid.next_id(), c.map, key)
        return KeyCall(key, get, lambda reply: answer_of(c, args, _fields_of(c, reply.value)), found)

    return handle


def _fields_of(c: RespConnection, data: bytes | None) -> Fields:
    return {} if data is None else hash_of(data, json_dicts=c.has_json_dicts)


def _shown(value: Any) -> bytes:
    """Return a field's value, or name, as text; if it is not text, a word that says what it is."""
    try:
        return text_of_value(value)
    except UpdateRefused:
        return f"<{type(value).__name__}>".encode()
    except UnicodeEncodeError:  # JSON of another program has an escape of half a character
        return str(value).encode(errors="replace")


def _one(c: RespConnection, fields: Fields, name: bytes) -> bytes:
    key = field_of(fields, name)
    if key not in fields:
        return c.nil
    value = fields[key]
    return b"$%d\r\n%b\r\n" % (len(value), value) if type(value) is bytes else bulk(_shown(value))


def _get(c: RespConnection, args: list[bytes], fields: Fields) -> bytes:
    return _one(c, fields, args[2])


def _several(c: RespConnection, args: list[bytes], fields: Fields) -> Answer:
    names = args[2:]
    made = dict.fromkeys(names, b"")
    if len(made) == len(names):
        return listed(c.grid, names, lambda some: [_one(c, fields, name) for name in some])

    def make(some: Sequence[bytes]) -> list[bytes]:
        for name in some:
            made[name] = made[name] or _one(c, fields, name)
        return [made[name] for name in some]

    return listed(c.grid, names, make)


def _all(c: RespConnection, args: list[bytes], fields: Fields) -> Answer:
    end = None if c.protocol == 2 else lambda answers: answers.mapping(3)
    return listed(c.grid, list(fields.items()), lambda some: _shown_ones([part for pair in some for part in pair]), end)


def _shown_ones(some: Sequence[Any]) -> list[bytes]:
    return [b"$%d\r\n%b\r\n" % (len(each), each) if type(each) is bytes else bulk(_shown(each)) for each in some]


def _exists(c: RespConnection, args: list[bytes], fields: Fields) -> bytes:
    return ONE if field_of(fields, args[2]) in fields else ZERO


def _length(c: RespConnection, args: list[bytes], fields: Fields) -> bytes:
    key = field_of(fields, args[2])
    return integer(len(_shown(fields[key])) if key in fields else 0)


def _scan(c: RespConnection, args: list[bytes], fields: Fields) -> Answer:
    rest = [word for word in args[3:] if word.upper() != b"NOVALUES"]
    pattern, _, _ = scan_options(rest, 0, with_type=False)
    integer_of(args[2])
    has_values = len(rest) == len(args) - 3

    def make(some: Sequence[tuple[Any, Any]]) -> list[bytes]:
        found: list[bytes] = []
        for name, value in some:
            shown = _shown(name)
            if pattern.matches(shown):
                found += [bulk(shown), bulk(_shown(value))] if has_values else [bulk(shown)]
        return found

    at_once = 1 if pattern.is_costly else AT_ONCE
    return listed(c.grid, list(fields.items()), make, lambda answers: array([bulk(b"0"), answers.array()]), at_once)


def hset(c: RespConnection, args: list[bytes]) -> Outcome:
    if len(args) % 2:
        return error(f"ERR wrong number of arguments for '{args[0].decode('latin-1').lower()}' command")
    answer: Callable[[Any], bytes] = number_answer if args[0].upper() == b"HSET" else lambda reply: OK
    return update(c, to_data(args[1]), "redis.hash_set", [to_data(args[2:])], answer)


def hsetnx(c: RespConnection, args: list[bytes]) -> Outcome:
    words = [to_data(args[2]), to_data(args[3])]
    return update(c, to_data(args[1]), "redis.hash_set_absent", words, lambda reply: ONE if flag_of(reply) else ZERO)


def hdel(c: RespConnection, args: list[bytes]) -> Outcome:
    return update(c, to_data(args[1]), "redis.hash_remove", [to_data(args[2:])], number_answer)


def hincrby(c: RespConnection, args: list[bytes]) -> Outcome:
    words = [to_data(args[2]), to_data(integer_of(args[3]))]
    return update(c, to_data(args[1]), "redis.hash_increment", words, number_answer)


def hincrbyfloat(c: RespConnection, args: list[bytes]) -> Outcome:
    decimal_of(args[3])
    words = [to_data(args[2]), to_data(args[3])]
    return update(c, to_data(args[1]), "redis.hash_increment_float", words, lambda reply: c.text(text_or_none(reply)))


COMMANDS = Commands("hash")
_add = COMMANDS.add
_WHOLE = "A hash is one entry: each change writes all of it. Keep hashes to some hundred fields."
_add("hset", -4, "Sets fields.", hset, "write denyoom fast", is_idempotent=True, differs=_WHOLE)
_add("hmset", -4, "Sets fields (HSET).", hset, "write denyoom fast", is_idempotent=True, differs=_WHOLE)
_add("hsetnx", 4, "Sets a field that is not there.", hsetnx, "write denyoom fast")
_add("hget", 3, "Returns a field.", _reading(_get), "readonly fast")
_add("hmget", -3, "Returns fields.", _reading(_several), "readonly fast")
_add("hgetall", 2, "Returns all fields and their values.", _reading(_all), "readonly")
_add("hdel", -3, "Removes fields.", hdel, "write fast", is_idempotent=True)
_add("hexists", 3, "Tells whether a field is there.", _reading(_exists), "readonly fast")
_add("hlen", 2, "Counts the fields.", _reading(lambda c, args, fields: integer(len(fields))), "readonly fast")
_add(
    "hkeys",
    2,
    "Returns the names of the fields.",
    _reading(lambda c, args, fields: listed(c.grid, list(fields), _shown_ones)),
    "readonly",
)
_add("hvals", 2, "Returns the values of the fields.", _reading(lambda c, args, fields: listed(c.grid, list(fields.values()), _shown_ones)),
     "readonly")  # fmt: skip
_add("hstrlen", 3, "Returns the length of a field.", _reading(_length), "readonly fast")
_add("hincrby", 4, "Adds an integer to a field.", hincrby, "write denyoom fast")
_add(
    "hincrbyfloat",
    4,
    "Adds a number to a field.",
    hincrbyfloat,
    "write denyoom fast",
    differs="Counts with 34 decimal digits.",
)
_add("hscan", -3, "Returns the fields that match; MATCH, COUNT, NOVALUES.", _reading(_scan), "readonly",
     differs="Returns all of them at once.")  # fmt: skip
COMMANDS.refuse(
    "hrandfield",
    "HRANDFIELD is not served: choose one of what HKEYS returns",
    "readonly",
    "choose one of what HKEYS returns.",
)
