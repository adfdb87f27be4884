"""The commands of keys with any values: existence, expiry, types, and commands that look at all keys."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import accumulate
from typing import Any, Final

from phalanx.codec.hashing import partition_of
from phalanx.codec.values import JSON_PREFIX, to_data
from phalanx.common.errors import ErrorCode, UsageError
from phalanx.endpoints.protocol import TURN_S
from phalanx.grid.serving.update_results import UpdateRefused
from phalanx.maps.call_plans import CallOwners, CallPlan
from phalanx.maps.glob import Pattern
from phalanx.wire.key_requests import LifeRule
from phalanx.wire.messages import Contains, ErrorReply, Get, GetTimeToLive, Remove, ValueReply
from phalanx_protocols.redis_functions import BYTES_PREFIX, DICT_PREFIX, hash_of, integer_of, text_of
from phalanx_protocols.resp.answer_list import AT_ONCE, NEXT_TURN, AnswerList
from phalanx_protocols.resp.answers import KeyCall, Outcome, count_of, flag_of, refusal
from phalanx_protocols.resp.arguments import life_of, syntax_error
from phalanx_protocols.resp.connection import RespConnection
from phalanx_protocols.resp.framing import OK, ONE, ZERO, array, bulk, error, integer, said
from phalanx_protocols.resp.scan_cursor import PAGES_AT_ONCE, PLACES, keys_of_page, page, position_of
from phalanx_protocols.resp.table import SEVERAL, Commands
from phalanx_protocols.resp.updates import update

KEYS_AT_ONCE: Final = 512
"""Of so many keys each is asked for at once."""
RANDOM_PAGE_BYTES: Final = 4096

# --- existence ------------------------------------------------------------------------------------------------------------


def _of_each(make: Callable[[RespConnection, bytes], Any], count: Callable[[Any], int]) -> Any:
    """Return a handler that sends a request for each key, and answers how many of them are counted."""

    def handle(c: RespConnection, args: list[bytes]) -> Outcome:
        if len(args) == 2:
            key = to_data(args[1])
            return KeyCall(key, make(c, key), lambda reply: integer(count(reply)))
        return plan(c, [to_data(word) for word in args[1:]])

    def plan(c: RespConnection, keys: list[bytes]) -> CallPlan[bytes]:
        total, first = 0, None
        for start in range(0, len(keys), KEYS_AT_ONCE):
            some = keys[start : start + KEYS_AT_ONCE]
            partition_count = c.grid.partition_count
            replies = yield CallOwners([(partition_of(key, partition_count), make(c, key)) for key in some], 0)
            total += sum(count(reply) for reply in replies)
            first = first or next((reply for reply in replies if isinstance(reply, ErrorReply)), None)
            if first is not None:
                return _of_some(first, total)
        return integer(total)

    return handle


def _of_some(failed: ErrorReply, done: int) -> bytes:
    if not done or failed.code in (ErrorCode.INDETERMINATE, ErrorCode.OWNERSHIP_LOST):
        return refusal(failed)
    return error(f"INDETERMINATE {done} keys were counted, and of another one: {failed.text}")


def _make_remove(c: RespConnection, key: bytes) -> Remove:
    return Remove(c.grid.next_id(), c.map, key, 0, c.grid.open_from)


def _make_contains(c: RespConnection, key: bytes) -> Contains:
    return Contains(c.grid.next_id(), c.map, key)


def _had_value(reply: Any) -> int:
    return int(isinstance(reply, ValueReply) and reply.value is not None)


# --- expiry ---------------------------------------------------------------------------------------------------------------

_RULES: Final = {
    frozenset[bytes](): LifeRule.ANY,
    frozenset({b"NX"}): LifeRule.NONE,
    frozenset({b"XX"}): LifeRule.SOME,
    frozenset({b"GT"}): LifeRule.SHORTER,
    frozenset({b"LT"}): LifeRule.LONGER,
    frozenset({b"XX", b"GT"}): LifeRule.SHORTER,
    frozenset({b"XX", b"LT"}): LifeRule.SOME_LONGER,
}


def _expire(unit: bytes, command: str) -> Any:
    def handle(c: RespConnection, args: list[bytes]) -> Outcome:
        life_ms = life_of(c.grid, unit, args[2], command)
        for word in args[3:]:
            if word.upper() not in (b"NX", b"XX", b"GT", b"LT"):
                raise UpdateRefused(f"ERR Unsupported option {said(word)}")
        options = frozenset(word.upper() for word in args[3:])
        if options not in _RULES:
            raise UpdateRefused(
                "ERR NX and XX, GT or LT options at the same time are not compatible"
                if b"NX" in options
                else "ERR GT and LT options at the same time are not compatible"
            )
        rule, key = _RULES[options], to_data(args[1])
        if life_ms > 0:
            return update(c, key, "touch", [], _flag, life_ms, rule)
        # What is over at once is removed, if its present time to live allows; a remaining one is at least 1 ms.
        return update(c, key, "redis.remove", [], _flag, 0 if rule is LifeRule.ANY else 1, rule)

    return handle


def _flag(reply: Any) -> bytes:
    return ONE if flag_of(reply) else ZERO


def persist(c: RespConnection, args: list[bytes]) -> Outcome:
    return update(c, to_data(args[1]), "touch", [], _flag, 0, LifeRule.SOME)


def _time_to_live(answer_of: Callable[[RespConnection, int], int]) -> Any:
    def handle(c: RespConnection, args: list[bytes]) -> Outcome:
        key = to_data(args[1])

        def answer(reply: Any) -> bytes:
            left_ms = count_of(reply)
            return integer(-2 if left_ms < 0 else -1 if left_ms == 0 else answer_of(c, left_ms))

        return KeyCall(key, GetTimeToLive(c.grid.next_id(), c.map, key), answer)

    return handle


# --- types ----------------------------------------------------------------------------------------------------------------


def type_of(c: RespConnection, data: bytes) -> bytes:
    """Return the name of the type that a serialised value has for Redis clients."""
    prefix = data[:4]
    if prefix == BYTES_PREFIX:
        return b"string"
    if prefix == DICT_PREFIX:
        return b"hash"
    # Whatever cannot be read is a value: one such entry must not end a scan for all others.
    if prefix == JSON_PREFIX and c.has_json_dicts:
        with suppress(Exception):
            hash_of(data, json_dicts=True)
            return b"hash"
    try:
        text_of(data)
    except Exception:
        return b"value"
    return b"string"


def type_(c: RespConnection, args: list[bytes]) -> Outcome:
    key = to_data(args[1])

    def answer(reply: ValueReply) -> bytes:
        return b"+%b\r\n" % (b"none" if reply.value is None else type_of(c, reply.value))

    return KeyCall(key, Get(c.grid.next_id(), c.map, key), answer)


# --- all keys -------------------------------------------------------------------------------------------------------------


def dbsize(c: RespConnection, args: list[bytes]) -> CallPlan[bytes]:
    return integer((yield from c.plans().size()))


def flush(maps_of: Callable[[RespConnection], Sequence[str]]) -> Any:
    """Return a handler that clears maps."""

    def handle(c: RespConnection, args: list[bytes]) -> CallPlan[bytes]:
        if len(args) > 2 or (len(args) == 2 and args[1].upper() not in (b"SYNC", b"ASYNC")):
            raise syntax_error()
        for name in maps_of(c):
            yield from c.plans(name).clear()
        return OK

    return handle


def scan(c: RespConnection, args: list[bytes]) -> CallPlan[bytes]:
    pattern, count, kind = scan_options(args, 2)
    partition, place = position_of(args[1])
    cursor, entries = yield from keys_of_page(c, partition, place, count)
    if kind is not None:
        entries = [entry for entry in entries if type_of(c, entry[1]) == kind]
    found = AnswerList(c.grid)
    yield from _add_matching(c, pattern, [key for key, _ in entries], found)
    return array([bulk(b"%d" % cursor), found.array()])


def _add_matching(c: RespConnection, pattern: Pattern, keys: list[bytes], found: AnswerList) -> CallPlan[None]:
    """Plan to add those of serialised keys that match, in turns."""
    clock_s = c.grid.clock_s
    until_s = clock_s() + TURN_S
    for start in range(0, len(keys), AT_ONCE):
        matching = []
        for key in keys[start : start + AT_ONCE]:
            if key[:4] == BYTES_PREFIX and pattern.matches(key[8:]):
                matching.append(bulk(key[8:]))
            if clock_s() >= until_s:
                yield NEXT_TURN
                until_s = clock_s() + TURN_S
        found.add(matching)


def scan_options(args: list[bytes], index: int, *, with_type: bool = True) -> tuple[Pattern, int, bytes | None]:
    """Return the pattern, the count and the type that a scan is given. Raises `UpdateRefused` and `UsageError`."""
    pattern, count, kind = Pattern(b"*"), 10, None
    while index < len(args):
        word = args[index].upper()
        if index + 1 >= len(args):
            raise syntax_error()
        if word == b"MATCH":
            pattern = Pattern(args[index + 1])
        elif word == b"COUNT":
            count = integer_of(args[index + 1])
            if count < 1:
                raise syntax_error()
        elif word == b"TYPE" and with_type:
            kind = args[index + 1].lower()
        else:
            raise syntax_error()
        index += 2
    return pattern, count, kind


def keys(c: RespConnection, args: list[bytes]) -> CallPlan[bytes]:
    pattern, found = Pattern(args[1]), AnswerList(c.grid)
    partition_count, filled = yield from c.plans().filled_partitions()
    pages = c.plans().scan_data(sorted(filled), partition_count, PAGES_AT_ONCE)
    while (some := (yield from pages.next_pages())) is not None:
        for each in some:
            yield from _add_matching(c, pattern, each.keys, found)
    return found.array()


def randomkey(c: RespConnection, args: list[bytes]) -> CallPlan[bytes]:
    _, filled = yield from c.plans().filled_partitions()
    while filled:
        # Each key has the same chance to be in the partition that is looked at.
        sizes = list(accumulate(filled.values()))
        partition = list(filled)[bisect_right(sizes, c.grid.draw(sizes[-1]))]
        del filled[partition]
        for place in (c.grid.draw(PLACES), 0):
            found = yield from page(c, partition, place, RANDOM_PAGE_BYTES)
            texts = [key[8:] for key in found.keys if key[:4] == BYTES_PREFIX] if found is not None else []
            if texts:
                return bulk(texts[c.grid.draw(len(texts))])
    return c.nil


COMMANDS = Commands("generic")
_add = COMMANDS.add
_add("del", -2, "Removes keys.", _of_each(_make_remove, _had_value), "write", **SEVERAL, is_idempotent=True,
     differs="Each key alone. The number of a retry counts what the first try left.")  # fmt: skip
_add(
    "unlink", -2, "Removes keys (DEL).", _of_each(_make_remove, _had_value), "write fast", **SEVERAL, is_idempotent=True
)
_add("exists", -2, "Counts the keys that have values.", _of_each(_make_contains, flag_of), "readonly fast", **SEVERAL)
_add("touch", -2, "Counts the keys that have values (EXISTS).", _of_each(_make_contains, flag_of), "readonly fast", **SEVERAL,
     differs="Does not count as a use of the entry.")  # fmt: skip
for _name, _unit, _what in (
    ("expire", b"EX", "in seconds"),
    ("pexpire", b"PX", "in milliseconds"),
    ("expireat", b"EXAT", "at a time in seconds"),
    ("pexpireat", b"PXAT", "at a time in milliseconds"),
):
    _add(_name, -3, f"Lets a key expire {_what}; NX, XX, GT, LT.", _expire(_unit, _name), "write fast", is_idempotent=True,
         differs="At most ten years from now.")  # fmt: skip
_add("persist", 2, "Lets a key live for ever.", persist, "write fast", is_idempotent=True)
_add("ttl", 2, "Returns the seconds a key lives.", _time_to_live(lambda c, ms: (ms + 500) // 1000), "readonly fast")
_add("pttl", 2, "Returns the milliseconds a key lives.", _time_to_live(lambda c, ms: ms), "readonly fast")
_add("expiretime", 2, "Returns when a key expires, in seconds.",
     _time_to_live(lambda c, ms: (c.grid.wall_ms() + ms + 500) // 1000), "readonly fast",
     differs="Worked out from the time that is left: two answers can differ by a moment.")  # fmt: skip
_add("pexpiretime", 2, "Returns when a key expires, in milliseconds.",
     _time_to_live(lambda c, ms: c.grid.wall_ms() + ms), "readonly fast",
     differs="Worked out from the time that is left: two answers can differ by a moment.")  # fmt: skip
_add("type", 2, "Returns the type of a value: string, hash, or value.", type_, "readonly fast",
     differs="`value`: one that a program wrote, and that is neither a string nor a hash.")  # fmt: skip
_add("scan", -2, "Returns some keys, and where to go on; MATCH, COUNT, TYPE.", scan, "readonly", first_key=0,
     differs="At most some 5,000 keys, or 1 MiB of entries, at once. Keys that programs wrote as another type than bytes are left out. A cursor is good at every member.")  # fmt: skip
_add("keys", 2, "Returns all keys that match.", keys, "readonly", first_key=0,
     differs="Reads all entries of the map; an answer has at most `max_answer_bytes`. SCAN is kinder.")  # fmt: skip
_add("randomkey", 1, "Returns some key.", randomkey, "readonly", first_key=0,
     differs="Keys behind a gap in the scan order come more often.")  # fmt: skip
_add("dbsize", 1, "Counts the keys.", dbsize, "readonly fast", first_key=0,
     differs="Counts entries with keys of other types, too; each partition at its own moment.")  # fmt: skip
_add("flushdb", -1, "Removes all keys of the database.", flush(lambda c: [c.map]), "write", first_key=0, is_idempotent=True,
     differs="Each owner alone; what others write meanwhile can stay.")  # fmt: skip
_add("flushall", -1, "Removes all keys of all databases.", flush(lambda c: c.server.maps), "write", first_key=0, is_idempotent=True,
     differs="The maps of `redis_maps`, one after the other; no other map.")  # fmt: skip
for _name in ("rename", "renamenx", "copy", "move", "dump", "restore", "migrate", "sort", "sort_ro"):
    _text = f"{_name.upper()} is not served: keys can have different owners"
    COMMANDS.refuse(_name, _text, "write", "keys can have different owners.", -2, first_key=0)
for _name in ("object", "memory", "debug"):
    _text = f"{_name.upper()} is not served: it shows the inside of Redis; see `phalanx map` and the HTTP port"
    COMMANDS.refuse(_name, _text, "readonly", "it shows the inside of Redis.", -2, first_key=0)

__all__ = ["COMMANDS", "UsageError"]
