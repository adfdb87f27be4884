"""Values are bounded where they are written and read: their depth, and how many keys of a dict have one hash."""

import contextlib
import datetime as dt
import struct
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.codec import bounds, messagepack
from phalanx.codec.bounds import MAX_DEPTH, MAX_SAME_HASH, has_colliding_keys, is_too_deep
from phalanx.codec.json_dicts import from_json_data, to_json_data
from phalanx.codec.values import MSGPACK_PREFIX, from_checked_data, from_data, to_data
from phalanx.common.errors import CorruptDataError, SerializationError

PRIME = 2**61 - 1
"""Python hashes numbers by their remainder by this."""


def nested(depth: int, inner: Callable[[Any], Any] = lambda part: [part]) -> Any:
    found: Any = 1
    for _ in range(depth):
        found = inner(found)
    return found


def packed(value: Any) -> bytes:
    """As another program would write it, which has no limits."""
    return MSGPACK_PREFIX + msgspec.msgpack.encode(value)


SHAPES: dict[str, Callable[[Any], Any]] = {
    "lists": lambda part: [part],
    "dicts": lambda part: {"a": part},
    "last of many": lambda part: [*"text", 5, part],
    "in turn": lambda part: {"a": part} if type(part) is list else [part],
}


# --- depth ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_too_deep_is_neither_written_nor_read(shape: str) -> None:
    inner = SHAPES[shape]
    deepest = nested(MAX_DEPTH, inner)
    assert from_data(to_data(deepest)) == deepest
    assert from_data(packed(deepest)) == deepest
    deeper = [deepest]
    with pytest.raises(SerializationError, match="nested deeper than 200"):
        to_data(deeper)
    with pytest.raises(CorruptDataError, match="nested deeper than 200"):
        from_data(packed(deeper))


@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 900, 3_000, 100_000])
@pytest.mark.parametrize(("begin", "end"), [("[", "]"), ('{"a":', "}")])
def test_json_has_the_same_limit(depth: int, begin: str, end: str) -> None:
    text = begin * depth + "1" + end * depth
    data = struct.pack(">ii", -130, len(text)) + text.encode()
    with pytest.raises(CorruptDataError, match="nested deeper than 200"):
        from_json_data(data)
    deepest = nested(MAX_DEPTH, SHAPES["dicts"])
    assert from_json_data(to_json_data(deepest)) == deepest
    with pytest.raises(SerializationError, match="nested deeper than 200"):
        to_json_data({"a": deepest})


@given(st.recursive(st.integers() | st.text(), lambda each: st.lists(each) | st.dictionaries(st.text(), each)))
def test_depth_is_what_a_slow_twin_counts(value: Any) -> None:
    def depth(part: Any) -> int:
        if isinstance(part, dict):
            part = list(part.values())
        return 1 + max(map(depth, part), default=0) if isinstance(part, list) else 0

    most, bounds.MAX_DEPTH = bounds.MAX_DEPTH, 2  # type: ignore[misc]
    try:
        assert is_too_deep(value) is (depth(value) > 2)
    finally:
        bounds.MAX_DEPTH = most  # type: ignore[misc]


def test_shallow_values_are_not_walked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messagepack, "is_too_deep", None)
    monkeypatch.setattr(messagepack, "has_colliding_keys", None)
    for value in ({f"k{n}": n % 100 for n in range(10_000)}, "x" * 100_000, [b"y" * 100] * 1_000):
        assert from_checked_data(to_data(value)) == value
    monkeypatch.undo()
    monkeypatch.setattr(messagepack, "has_colliding_keys", None)
    assert from_checked_data(to_data([*range(10_000)])) == [*range(10_000)]


# --- keys of one hash -------------------------------------------------------------------------------------------------


def same_hash_pairs(many: int) -> list[tuple[int, int]]:
    """Pairs whose hashes, as tuples, are the same."""
    one, two, five, mask = 11400714785074694791, 14029467366897019727, 2870177450012600261, 2**64 - 1
    back_one, back_two = pow(one, -1, 2**64), pow(two, -1, 2**64)

    def turned(number: int, by: int) -> int:
        return ((number << by) | (number >> (64 - by))) & mask

    found: list[tuple[int, int]] = []
    wanted, first = 12345, 0
    while len(found) < many:
        first += 1
        begun = turned((five + first * two) & mask, 31) * one & mask
        lane = (turned(wanted * back_one & mask, 33) - begun) * back_two & mask
        if 0 < lane < PRIME:
            found.append((first, lane))
    assert len({*map(hash, found)}) == 1
    return found


MANY = 400
FLOODS: dict[str, list[Any]] = {
    "ints": [2**64 + 7 - (2**64) % PRIME + PRIME * n for n in range(MANY)],
    "negative ints": [-(2**64) - 7 - PRIME * n - (-(2**64)) % PRIME for n in range(MANY)],
    "Decimals": [Decimal(7 + PRIME * n) for n in range(MANY)],
    "Decimals with exponents": [Decimal(f"7E{n}") * pow(10, -n, PRIME) for n in range(MANY)],
    "UUIDs": [uuid.UUID(int=7 + PRIME * n) for n in range(MANY)],
    "pairs": list(same_hash_pairs(MANY)),
}


@pytest.mark.parametrize("kind", FLOODS)
def test_members_read_no_dict_whose_keys_share_a_hash(kind: str) -> None:
    keys = FLOODS[kind]
    few = dict.fromkeys(keys[:MAX_SAME_HASH]) | {f"text {n}": [n] for n in range(1000)}
    assert from_checked_data(to_data(few)) == few
    for value in (dict.fromkeys(keys), [1, {"a": {"b": {**dict.fromkeys(range(500)), **dict.fromkeys(keys)}}}]):
        assert from_data(to_data(value)) == value
        with pytest.raises(CorruptDataError, match="more than 64 keys of one hash"):
            from_checked_data(to_data(value))


def test_the_same_numbers_in_lists_and_usual_keys_are_read() -> None:
    for value in (
        [*FLOODS["ints"], *FLOODS["Decimals"]],
        {n: [n] for n in range(5_000)},
        {(n, "a"): [n] for n in range(2_000)},
        {dt.date.fromordinal(n + 1): [n] for n in range(2_000)},
        {Decimal(n) / 100: [n] for n in range(2_000)},
        {uuid.UUID(int=n << 64 | n): [n] for n in range(2_000)},
        {2**64 + n: [n] for n in range(2_000)},
    ):
        assert from_checked_data(to_data(value)) == value


SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text(max_size=40)
    | st.binary(max_size=40) | st.decimals(allow_nan=False) | st.integers() | st.dates()
)  # fmt: skip


@given(st.recursive(SCALARS, lambda each: st.lists(each) | st.dictionaries(SCALARS, each)))
def test_the_walk_takes_objects_apart_as_the_decoder_does(value: Any) -> None:
    payload = messagepack.pack(value)
    assert bounds._end_of(payload, 0) == len(payload)
    assert not has_colliding_keys(payload, messagepack._read_key)


@given(st.binary(max_size=200))
def test_broken_bytes_are_told_as_such(payload: bytes) -> None:
    for data in (payload, b"\xde\xff\xff" + payload + b"\x91" * 5_000):
        with contextlib.suppress(CorruptDataError):
            from_checked_data(MSGPACK_PREFIX + data)


# --- ints as JSON -----------------------------------------------------------------------------------------------------


def test_an_int_that_no_json_reader_takes_is_not_written_as_json() -> None:
    assert from_json_data(to_json_data({"a": 10**4299})) == {"a": 10**4299}
    with pytest.raises(SerializationError, match=r"value\['a'\]\[0\]: an int of more than 4,300 digits"):
        to_json_data({"a": [10**4300]})
