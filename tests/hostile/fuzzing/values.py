"""Values and serialised values that somebody chose: of every kind, and of those that are known to do harm somewhere.

Only small ones are drawn often; the large ones are made once.
"""

from __future__ import annotations

import datetime as dt
import functools
import math
from collections.abc import Callable
from decimal import Decimal
from random import Random
from typing import Any
from uuid import UUID

from hostile.fuzzing.changes import ODD_NUMBERS, changed_bytes
from phalanx.codec.messagepack import EXT_DECIMAL, EXT_INTEGER, integer_bytes
from phalanx.codec.values import BIG_INT_TYPE_ID, JSON_PREFIX, MSGPACK_PREFIX, Json, prefix_of, to_data
from phalanx.common.errors import PhalanxError

ODD_DECIMALS = tuple(
    Decimal(text)
    for text in (
        "0", "-0", "1", "1.0", "1E+3", "0.1", "NaN", "-NaN", "sNaN", "sNaN123", "Infinity", "-Infinity", "1E+999999", "1E-999999",
        "1E+999999999999999999", "9" * 40, "1E+150", "1E+400",
    )
)  # fmt: skip
ODD_FLOATS = (0.0, -0.0, 0.5, 1.0, math.nan, math.inf, -math.inf, 5e-324, 1.7976931348623157e308, 2.0**53 + 2, 1e22)
ODD_TEXTS = (
    "",
    "a",
    "f",
    "é",
    "\U0001f600",
    "\0",
    "x" * 300,
    "1",
    "-1",
    "true",
    "null",
    "NaN",
    "1e400",
    "a.b",
    "'",
    '"',
)
ODD_TIMES = (
    dt.date(1970, 1, 1), dt.date.min, dt.date.max, dt.datetime(2026, 1, 2, 3, 4, 5, 6), dt.datetime.min, dt.datetime.max,
    dt.datetime(2026, 1, 2, tzinfo=dt.UTC), dt.time(0), dt.time(23, 59, 59, 999999), dt.timedelta(0), dt.timedelta.max,
)  # fmt: skip


def scalar(rng: Random) -> Any:
    """Return a simple value."""
    kind = rng.randrange(12)
    if kind <= 2:
        return rng.choice(ODD_NUMBERS) if rng.random() < 0.5 else rng.randrange(-3, 4)
    if kind == 3:
        return rng.choice(ODD_FLOATS)
    if kind == 4:
        return rng.choice(ODD_DECIMALS)
    if kind <= 6:
        return rng.choice(ODD_TEXTS)
    if kind == 7:
        return rng.randbytes(rng.randrange(9))
    if kind == 8:
        return rng.choice(ODD_TIMES)
    if kind == 9:
        return rng.choice((True, False, None, UUID(int=rng.getrandbits(128))))
    if kind == 10:
        return Json(rng.choice(("{}", "[]", '{"a":1}', "1", "nul", "", '{"a":{"b":[1,2]}}', "NaN", '"\\ud800"')))
    return -rng.getrandbits(rng.choice((64, 65, 200, 513, 4_000)))


def value(rng: Random, depth: int = 3) -> Any:
    """Return a value, often a nested one."""
    kind = rng.random()
    if depth == 0 or kind < 0.5:
        return scalar(rng)
    many = rng.randrange(4)
    if kind < 0.75:
        return [value(rng, depth - 1) for _ in range(many)]
    names = (lambda: rng.choice(ODD_TEXTS[:5])) if kind < 0.95 else (lambda: rng.randrange(-2, 3))
    return {names(): value(rng, depth - 1) for _ in range(many)}


def of_kind(rng: Random, kind: type) -> Any:
    """Return a value of one type, as a function wants it."""
    if kind is list:
        return [value(rng, 1) for _ in range(rng.randrange(5))]
    if kind is dict:
        return {rng.choice(ODD_TEXTS[:5]): value(rng, 2) for _ in range(rng.randrange(5))}
    return rng.choice((*ODD_NUMBERS, *ODD_FLOATS, *ODD_DECIMALS, rng.getrandbits(200)))


FUNCTION_KINDS: dict[str, type] = {
    "add_to_set": list, "append": list, "discard": list, "extend": list, "merge": dict, "increment": int, "max": int, "min": int
}  # fmt: skip
"""What a function wants as the value that it changes; any other takes any."""


def argument(rng: Random, function: str) -> bytes:
    """Return a serialised argument for a function."""
    kind = FUNCTION_KINDS.get(function)
    if kind is int and rng.random() < 0.8:
        return to_data(of_kind(rng, int)) if rng.random() < 0.97 else large(rng)
    if kind is list and rng.random() < 0.2:
        return to_data(rng.choice(ODD_DECIMALS))
    return data(rng)


def data(rng: Random) -> bytes:
    """Return a serialised value; now and then one that no writer makes."""
    chance = rng.random()
    if chance < 0.005:
        return large(rng)
    if chance < 0.04:
        return MSGPACK_PREFIX + nested(rng)
    try:
        found = to_data(of_kind(rng, rng.choice((list, dict, int))) if chance < 0.4 else value(rng))
    except PhalanxError:
        found = to_data(1)
    return changed_bytes(rng, found) if rng.random() < 0.05 else found


def nested(rng: Random) -> bytes:
    """Return MessagePack that is nested, as deeply as it likes."""
    unit = rng.choice((b"\x91", b"\x81\xa1a", b"\x92\x01", b"\x81\x01", b"\x91\x81\xa1b"))
    depth = rng.choice((1, 2, 30, 199, 200, 201, 300, 500, 900, 1_000, 3_000, 20_000))
    return unit * depth + rng.choice((b"\xc0", b"\x01", b"\x90", b"", b"\x91\x01"))


# --- large values that are known to cost -----------------------------------------------------------------------------


def extension(code: int, payload: bytes) -> bytes:
    """Return an extension of MessagePack."""
    return b"\xc9" + len(payload).to_bytes(4, "big") + code.to_bytes(1, "big") + payload


@functools.cache
def _same_hash(count: int, values: bytes) -> bytes:
    """A dict whose keys are ints with one hash: Python's is the remainder by 2^61 - 1."""
    keys = (extension(EXT_INTEGER, integer_bytes((number + 8) * (2**61 - 1))) for number in range(count))
    return MSGPACK_PREFIX + b"\xdf" + count.to_bytes(4, "big") + b"".join(key + values for key in keys)


@functools.cache
def _same_hash_inside(count: int) -> bytes:
    return MSGPACK_PREFIX + b"\x81\xa1a" + _same_hash(count, b"\x01")[4:]


@functools.cache
def _long_int(size: int) -> bytes:
    return prefix_of(BIG_INT_TYPE_ID) + size.to_bytes(4, "big") + b"\x7f" * size


@functools.cache
def _long_decimal(digits: int, exponent: str) -> bytes:
    return MSGPACK_PREFIX + extension(EXT_DECIMAL, b"9" * digits + exponent.encode())


@functools.cache
def _list_of(item: bytes, count: int) -> bytes:
    return MSGPACK_PREFIX + b"\xdd" + count.to_bytes(4, "big") + item * count


@functools.cache
def _deep_json(depth: int, unit: str) -> bytes:
    text = unit * depth
    return JSON_PREFIX + len(text).to_bytes(4, "big") + text.encode()


_LARGE: tuple[Callable[[Random], bytes], ...] = (
    lambda rng: _same_hash(rng.choice((300, 3_000, 8_000)), rng.choice((b"\x01", b"\xc0"))),
    lambda rng: _same_hash_inside(rng.choice((300, 3_000))),
    lambda rng: _long_int(rng.choice((600, 5_000, 64 * 1024, 256 * 1024))),
    lambda rng: _long_decimal(rng.choice((40, 4_300, 5_000, 100_000)), rng.choice(("", "E+9999", "E-99999", ".5"))),
    lambda rng: _list_of(
        rng.choice((b"\x01", b"\xc0", b"\xa1a", b"\xcb\x7f\xf8" + bytes(6))), rng.choice((1_000, 100_000))
    ),
    lambda rng: _list_of(extension(EXT_DECIMAL, b"1"), rng.choice((1_000, 20_000))),
    lambda rng: _deep_json(rng.choice((100, 1_000, 20_000)), rng.choice(("[", '{"a":', "[{}],"))),
    lambda rng: to_data("x" * rng.choice((4_096, 65_536, 1_000_000))),
    lambda rng: to_data("9" * rng.choice((4_300, 4_301, 20_000))),
    lambda rng: to_data({f"a{number}": number for number in range(rng.choice((100, 2_000)))}),
)


def large(rng: Random) -> bytes:
    """Return one of the large values."""
    return rng.choice(_LARGE)(rng)
