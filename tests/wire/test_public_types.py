"""Values that clients of Hazelcast store, of types that Phalanx never writes: the bytes are those of its own Python client."""

import datetime as dt
import struct
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.codec.messagepack import UUID, Json
from phalanx.codec.public_types import MAX_DEPTH, MORE_TYPE_IDS
from phalanx.codec.values import from_data
from phalanx.common.errors import CorruptDataError


def data(type_id: int, payload: str | bytes) -> bytes:
    return struct.pack(">i", type_id) + (bytes.fromhex(payload) if isinstance(payload, str) else payload)


@pytest.mark.parametrize(
    ("stored", "value"),
    [
        (data(-3, "ff"), -1),
        (data(-5, "0416"), "Ж"),
        (data(-6, "fffe"), -2),
        (data(-7, "00000005"), 5),
        (data(-9, struct.pack(">f", 1.5)), 1.5),
        (data(-13, "00000002 01 00"), [True, False]),
        (data(-14, "00000002 0041 0042"), "AB"),
        (data(-15, "00000001 ffff"), [-1]),
        (data(-16, "00000002 00000001 00000002"), [1, 2]),
        (data(-17, "00000001 0000000000000007"), [7]),
        (data(-18, struct.pack(">if", 1, 0.5)), [0.5]),
        (data(-19, struct.pack(">id", 1, 0.1)), [0.1]),
        (data(-20, "00000002 00000001 61 00000000"), ["a", ""]),
        (data(-20, "ffffffff"), None),
        (data(-24, "00000001 41"), "A"),
        (data(-27, "00000002 fb1e 00000003"), Decimal("-1.250")),
        (data(-28, "00000001 fffffff9 00000003"), [3]),
        (data(-29, "00000002 fffffff5 00000001 61 00000000"), ["a", None]),
        (data(-30, "00000001 ffffffe3 00000000"), [[]]),
        (data(-29, "00000001 ffffff7e 00000002 7b7d"), [Json("{}")]),
        (data(-29, data(0, "00000001")[4:] + data(-21, bytes(15) + b"\x01")), [UUID(int=1)]),
        (data(-51, "000007e8 01 02"), dt.date(2024, 1, 2)),
        (data(-52, "01 02 03 00000fa7"), dt.time(1, 2, 3, 4)),
        (data(-53, "000007e8 01 02 03 04 05 00001770"), dt.datetime(2024, 1, 2, 3, 4, 5, 6)),
        (
            data(-54, "000007e8 01 02 03 04 05 00001770 00000e10"),
            dt.datetime(2024, 1, 2, 3, 4, 5, 6, dt.timezone(dt.timedelta(hours=1))),
        ),
    ],
)
def test_types_that_others_store_are_read(stored: bytes, value: Any) -> None:
    assert from_data(stored) == value
    assert type(from_data(stored)) is type(value)


@pytest.mark.parametrize(
    ("stored", "why"),
    [
        (data(-120, "00000000"), "nothing is ever unpickled"),
        (data(-55, ""), "read only as values"),
        (data(-100, ""), "only by Java"),
        (data(-29, "00000001 ffffff88 00000000"), "nothing is ever unpickled"),
        (data(-29, "7fffffff"), "a list of 2147483647"),
        (data(-16, "00000002 00000001"), "a list of 2 at byte 4"),
        (data(-7, "000000"), "ends within"),
        (data(-7, "0000000000"), "ends at byte 8, but has 9"),
        (data(-51, "00000000 01 02"), "year"),
        (data(-27, b"\x00\x01\x00\x00" + bytes(100)), "at most 1024"),
        (data(-29, (data(-29, "00000001")[4:] + struct.pack(">i", -29)) * (MAX_DEPTH + 1) + bytes(4)), "nested"),
    ],
)
def test_what_is_not_read_says_why(stored: bytes, why: str) -> None:
    with pytest.raises(CorruptDataError, match=why):
        from_data(stored)


@given(st.sampled_from(MORE_TYPE_IDS), st.binary(max_size=80))
def test_any_bytes_are_read_or_refused(type_id: int, payload: bytes) -> None:
    try:
        from_data(data(type_id, payload))
    except CorruptDataError:
        return
