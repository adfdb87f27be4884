"""The commands of strings, which are values of bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from phalanx.codec.values import to_data
from phalanx.common.errors import CorruptDataError
from phalanx.grid.serving.update_results import UpdateRefused
from phalanx.maps.answer_budget import AnswerBudget
from phalanx.maps.call_plans import CallPlan
from phalanx.wire.messages import Get, Put, PutIfAbsent, Replace, ValueReply
from phalanx_protocols.redis_functions import BYTES_PREFIX, decimal_of, integer_of, text_of
from phalanx_protocols.resp.answer_list import AnswerList, in_turns, listed
from phalanx_protocols.resp.answers import KeyCall, Outcome, flag_of, text_or_none
from phalanx_protocols.resp.arguments import FACTORS, positive_life, syntax_error
from phalanx_protocols.resp.connection import RespConnection
from phalanx_protocols.resp.framing import NIL, OK, ONE, ZERO, bulk, error, integer
from phalanx_protocols.resp.table import SEVERAL, Commands
from phalanx_protocols.resp.updates import update

BY_ONE = to_data(1)
AT_ONCE_KEYS = 256
"""Of so many keys the values are read or written at once, where they are here."""
PLAN_KEYS = 2_000
"""Of so many keys the values are asked for together."""


def get(c: RespConnection, args: list[bytes]) -> Outcome:
    key = to_data(args[1])
    found = c.grid.local.get(c.map, key) if c.there < 0 else c.take_there()
    if type(found) is bytes:
        text = found[8:] if found[:4] == BYTES_PREFIX else text_of(found)
        return b"$%d\r\n%b\r\n" % (len(text), text)
    if isinstance(found, int):
        return KeyCall(key, Get(c.grid.next_id(), c.map, key), lambda reply: c.text(text_or_none(reply)), found)
    return NIL[c.protocol]


def set_(c: RespConnection, args: list[bytes]) -> Outcome:
    grid, key, value = c.grid, to_data(args[1]), to_data(args[2])
    if len(args) == 3:
        there = grid.local.put(c.map, key, value) if c.there < 0 else c.take_there()
        if there is None:
            return OK
        return KeyCall(key, Put(grid.next_id(), c.map, key, value, 0, 0, grid.open_from), _ok, there)
    life_ms, condition, gets, keeps = _set_options(c, args)
    if gets:
        name = {b"NX": "redis.get_and_keep", b"XX": "redis.get_and_replace"}.get(condition, "redis.get_and_put")
        return update(c, key, name, [value], lambda r: c.text(text_or_none(r)), None if keeps else life_ms)
    if keeps and condition != b"NX":
        name = "get_and_replace" if condition == b"XX" else "get_and_put"

        def answer_of(reply: ValueReply) -> bytes:
            return c.nil if condition == b"XX" and reply.value is None else OK

        return update(c, key, name, [value], answer_of, None)
    if condition == b"NX":
        request: Any = PutIfAbsent(grid.next_id(), c.map, key, value, life_ms, 0, grid.open_from)
        return KeyCall(key, request, lambda reply: OK if reply.value is None else c.nil)
    if condition == b"XX":
        request = Replace(grid.next_id(), c.map, key, None, value, life_ms, 0, grid.open_from)
        return KeyCall(key, request, lambda reply: OK if flag_of(reply) else c.nil)
    return KeyCall(key, Put(grid.next_id(), c.map, key, value, life_ms, 0, grid.open_from), _ok)


def _ok(reply: Any) -> bytes:
    return OK


def _set_options(c: RespConnection, args: list[bytes]) -> tuple[int, bytes, bool, bool]:
    """Return the options of SET: milliseconds to live (0: for ever), NX or XX, GET, KEEPTTL."""
    life_ms, condition, gets, keeps, index = 0, b"", False, False, 3
    while index < len(args):
        word = args[index].upper()
        if word in (b"NX", b"XX") and not condition:
            condition = word
        elif word == b"GET":
            gets = True
        elif word == b"KEEPTTL" and not life_ms:
            keeps = True
        elif word in FACTORS and not life_ms and not keeps and index + 1 < len(args):
            life_ms = positive_life(c.grid, word, args[index + 1], "set")
            index += 1
        else:
            raise syntax_error()
        index += 1
    return life_ms, condition, gets, keeps


def setnx(c: RespConnection, args: list[bytes]) -> Outcome:
    key = to_data(args[1])
    request = PutIfAbsent(c.grid.next_id(), c.map, key, to_data(args[2]), 0, 0, c.grid.open_from)
    return KeyCall(key, request, lambda reply: ONE if reply.value is None else ZERO)


def _set_expiring(unit: bytes, command: str) -> Any:
    def handle(c: RespConnection, args: list[bytes]) -> Outcome:
        life_ms, key = positive_life(c.grid, unit, args[2], command), to_data(args[1])
        return KeyCall(key, Put(c.grid.next_id(), c.map, key, to_data(args[3]), life_ms, 0, c.grid.open_from), _ok)

    return handle


def getset(c: RespConnection, args: list[bytes]) -> Outcome:
    return update(c, to_data(args[1]), "redis.get_and_put", [to_data(args[2])], lambda r: c.text(text_or_none(r)), 0)


def getdel(c: RespConnection, args: list[bytes]) -> Outcome:
    return update(c, to_data(args[1]), "redis.get_and_remove", [], lambda r: c.text(text_or_none(r)))


def getex(c: RespConnection, args: list[bytes]) -> Outcome:
    if len(args) == 2:
        return get(c, args)
    unit = args[2].upper()
    if unit == b"PERSIST" and len(args) == 3:
        life_ms = 0
    elif unit in FACTORS and len(args) == 4:
        life_ms = positive_life(c.grid, unit, args[3], "getex")
    else:
        raise syntax_error()
    return update(c, to_data(args[1]), "redis.get_and_touch", [], lambda r: c.text(text_or_none(r)), life_ms)


def _reading(answer_of: Any) -> Any:
    """Return a handler that makes its answer of the present text, or None, and the words."""

    def handle(c: RespConnection, args: list[bytes]) -> Outcome:
        key = to_data(args[1])
        found = c.grid.local.get(c.map, key)
        if not isinstance(found, int):
            answer: bytes = answer_of(c, args, None if found is None else text_of(found))
            return answer
        get = Get(c.grid.next_id(), c.map, key)
        return KeyCall(key, get, lambda reply: answer_of(c, args, text_or_none(reply)), found)

    return handle


def _length(c: RespConnection, args: list[bytes], text: bytes | None) -> bytes:
    return integer(len(text or b""))


def _range(c: RespConnection, args: list[bytes], text: bytes | None) -> bytes:
    found = text or b""
    first, last = integer_of(args[2]), integer_of(args[3])
    if first < 0 and last < 0 and first > last:
        return bulk(b"")
    first = max(first + len(found), 0) if first < 0 else first
    last = max(last + len(found), 0) if last < 0 else last
    return bulk(found[first : last + 1] if found else b"")


def setrange(c: RespConnection, args: list[bytes]) -> Outcome:
    offset = integer_of(args[2])
    if offset < 0:
        return error("ERR offset is out of range")
    return update(c, to_data(args[1]), "redis.set_range", [to_data(offset), to_data(args[3])], number_answer)


def append(c: RespConnection, args: list[bytes]) -> Outcome:
    return update(c, to_data(args[1]), "redis.append", [to_data(args[2])], number_answer)


def number_answer(reply: ValueReply) -> bytes:
    """Return the answer of a function that returned an int."""
    value = reply.value
    return ZERO if value is None else b":%d\r\n" % int.from_bytes(value[4:], "big", signed=True)


def increment_by(c: RespConnection, key: bytes, by: int) -> Outcome:
    """Return what adding a number to an integer comes to."""
    return update(c, to_data(key), "redis.increment", [BY_ONE if by == 1 else to_data(by)], number_answer)


def decrby(c: RespConnection, args: list[bytes]) -> Outcome:
    by = integer_of(args[2])
    if by == -(2**63):
        return error("ERR decrement would overflow")
    return increment_by(c, args[1], -by)


def incrbyfloat(c: RespConnection, args: list[bytes]) -> Outcome:
    decimal_of(args[2])
    return update(c, to_data(args[1]), "redis.increment_float", [to_data(args[2])], lambda r: c.text(text_or_none(r)))


# --- of several keys ------------------------------------------------------------------------------------------------------


def _text_or_nil(c: RespConnection, data: bytes | None) -> bytes:
    if data is not None and data[:4] == BYTES_PREFIX:
        return b"$%d\r\n%b\r\n" % (len(data) - 8, data[8:])
    try:
        return c.text(None if data is None else text_of(data))
    except (UpdateRefused, CorruptDataError):
        return c.nil


def mget(c: RespConnection, args: list[bytes]) -> Outcome:
    words = args[1:]
    if len(words) > AT_ONCE_KEYS or len(set(words)) < len(words):
        return _mget(c, words)
    get, left = c.grid.local.get, c.grid.max_answer_bytes
    found: list[bytes] = []
    for word in words:
        data = get(c.map, to_data(word))
        if isinstance(data, int):
            return _mget(c, words)
        found.append(_text_or_nil(c, data))
        left -= len(found[-1])
        if left < 0:
            break  # the list refuses them
    return listed(c.grid, found, _as_they_are)


def _as_they_are(answers: Sequence[bytes]) -> Sequence[bytes]:
    return answers


def _mget(c: RespConnection, words: list[bytes]) -> CallPlan[bytes]:
    """Plan to answer with values. Each key is asked for once, however often it is named."""
    distinct = list(dict.fromkeys(words))
    made: dict[bytes, bytes] = {}
    budget = AnswerBudget(c.grid.max_answer_bytes)
    for start in range(0, len(distinct), PLAN_KEYS):
        some = distinct[start : start + PLAN_KEYS]
        found = yield from c.plans().get_data([to_data(word) for word in some], budget=budget)
        made |= {word: _text_or_nil(c, data) for word, data in zip(some, found, strict=True)}
    answers = AnswerList(c.grid)
    yield from in_turns(c.grid, words, lambda some: answers.add([made[word] for word in some]))
    return answers.array()


def mset(c: RespConnection, args: list[bytes]) -> Outcome:
    if len(args) % 2 == 0:
        return error("ERR wrong number of arguments for 'mset' command")
    pairs = dict(zip(args[1::2], args[2::2], strict=True))
    if len(pairs) <= AT_ONCE_KEYS:
        for word in list(pairs):
            if c.grid.local.put(c.map, to_data(word), to_data(pairs[word])) is not None:
                break
            del pairs[word]  # what is done is not done again behind writes of others
        if not pairs:
            return OK
    return _mset(c, pairs)


def _mset(c: RespConnection, pairs: dict[bytes, bytes]) -> CallPlan[bytes]:
    words = list(pairs)
    for start in range(0, len(words), PLAN_KEYS):
        some = words[start : start + PLAN_KEYS]
        yield from c.plans().put_data([to_data(word) for word in some], [to_data(pairs[word]) for word in some], 0)
    return OK


def msetnx(c: RespConnection, args: list[bytes]) -> Outcome:
    if len(args) % 2 == 0:
        return error("ERR wrong number of arguments for 'msetnx' command")
    if len(args) != 3:
        return error("ERR MSETNX of several keys is not served: they can have several owners, and nothing could hold them "
                     "together; use SET with NX for each key")  # fmt: skip
    return setnx(c, args)


COMMANDS = Commands("string")
_add = COMMANDS.add
_PAIRS = {"first_key": 1, "last_key": -1, "step": 2}
_add("get", 2, "Returns the value of a key.", get, "readonly fast", is_short=True)
_add("set", -3, "Sets the value of a key; NX, XX, GET, EX, PX, EXAT, PXAT, KEEPTTL.", set_, "write denyoom", is_idempotent=True, is_short=True,
     differs="A time to live is at most ten years. With NX or GET a retry can find what the first try did. What a program takes with NX and "
     "releases by a script, as the `Lock` of redis-py does, can be taken and never released (`EVALSHA` is refused): use `grid.lock`, or a time "
     "to live and no release.")  # fmt: skip
_add("setnx", 3, "Sets the value of a key that has none.", setnx, "write denyoom fast")
for _name in ("bitcount", "bitfield", "bitfield_ro", "bitop", "bitpos", "getbit", "setbit", "lcs"):
    _text = f"{_name.upper()} is not served: GETRANGE and SETRANGE read and write bytes, and programs do the rest"
    COMMANDS.refuse(_name, _text, "readonly", "GETRANGE and SETRANGE read and write bytes.")
_add(
    "setex",
    4,
    "Sets a value that expires, in seconds.",
    _set_expiring(b"EX", "setex"),
    "write denyoom",
    is_idempotent=True,
)
_add("psetex", 4, "Sets a value that expires, in milliseconds.", _set_expiring(b"PX", "psetex"), "write denyoom",
     is_idempotent=True)  # fmt: skip
_add("getset", 3, "Sets a value, returns the one before.", getset, "write denyoom fast")
_add("getdel", 2, "Removes a key, returns its value.", getdel, "write fast")
_add("getex", -2, "Returns a value and changes when it expires.", getex, "write fast", is_idempotent=True)
_add("strlen", 2, "Returns the length of a value.", _reading(_length), "readonly fast")
_add("getrange", 4, "Returns a part of a value.", _reading(_range), "readonly")
_add("substr", 4, "Returns a part of a value (GETRANGE).", _reading(_range), "readonly")
_add("setrange", 4, "Overwrites a part of a value.", setrange, "write denyoom", is_idempotent=True,
     differs="A value is at most `max_value_bytes` long (16 MiB unless set), not 512 MB.")  # fmt: skip
_add("append", 3, "Appends to a value.", append, "write denyoom fast")
_add("incr", 2, "Adds 1.", lambda c, args: increment_by(c, args[1], 1), "write denyoom fast")
_add("decr", 2, "Subtracts 1.", lambda c, args: increment_by(c, args[1], -1), "write denyoom fast")
_add(
    "incrby", 3, "Adds an integer.", lambda c, args: increment_by(c, args[1], integer_of(args[2])), "write denyoom fast"
)
_add("decrby", 3, "Subtracts an integer.", decrby, "write denyoom fast")
_add("incrbyfloat", 3, "Adds a number.", incrbyfloat, "write denyoom fast",
     differs="Counts with 34 decimal digits.")  # fmt: skip
_add("mget", -2, "Returns the values of keys.", mget, "readonly fast", **SEVERAL,
     differs="Each owner reads its keys at its own moment. The values of one answer have at most `max_answer_bytes`.")  # fmt: skip
_add("mset", -3, "Sets the values of keys.", mset, "write denyoom", is_idempotent=True, **_PAIRS,
     differs="Each key is set as a whole; all of them together are not: others can see some of them set.")  # fmt: skip
_add("msetnx", -3, "Sets the value of a key that has none.", msetnx, "write denyoom", **_PAIRS,
     differs="Takes one key only.")  # fmt: skip
